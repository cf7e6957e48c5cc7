"""Events of the events.k8s.io and of the core API.

Source: k8s.io/api events/v1/types.go, core/v1/types.go.
"""

import datetime as dt
from typing import ClassVar, Final

from koordinator.api.core import MicroTime, ObjectReference
from koordinator.api.meta import ApiStruct, KubeObject, ObjectMeta
from koordinator.foundation.clock import UTC

_LONGEST_NOTE: Final = 1024  # bytes; limit of the API server
_CUT: Final = "…"


class EventSeries(ApiStruct, frozen=True, kw_only=True):
    """The same event again and again."""

    count: int
    last_observed_time: MicroTime


class EventSource(ApiStruct, frozen=True, kw_only=True):
    """Reporter of an event, in the core API."""

    component: str = ""
    host: str = ""


class Event(KubeObject, frozen=True, kw_only=True):
    """Something happened to ``regarding``.  ``type`` is Normal or Warning."""

    API_VERSION: ClassVar[str] = "events.k8s.io/v1"
    KIND: ClassVar[str] = "Event"
    PLURAL: ClassVar[str] = "events"

    event_time: MicroTime | None = None
    type: str = ""
    reason: str = ""
    action: str = ""
    note: str = ""
    regarding: ObjectReference = ObjectReference()
    related: ObjectReference | None = None
    reporting_controller: str = ""
    reporting_instance: str = ""
    series: EventSeries | None = None


class CoreEvent(KubeObject, frozen=True, kw_only=True):
    """An event in the spelling of the core API."""

    API_VERSION: ClassVar[str] = "v1"
    KIND: ClassVar[str] = "Event"
    PLURAL: ClassVar[str] = "events"

    type: str = ""
    reason: str = ""
    message: str = ""
    action: str = ""
    involved_object: ObjectReference = ObjectReference()
    related: ObjectReference | None = None
    source: EventSource = EventSource()
    first_timestamp: dt.datetime | None = None
    last_timestamp: dt.datetime | None = None
    count: int = 0
    event_time: MicroTime | None = None
    reporting_component: str = ""
    reporting_instance: str = ""
    series: EventSeries | None = None


def fitting_note(note: str) -> str:
    """Return a note, shortened to the length that the API server accepts."""
    data = note.encode()
    if len(data) <= _LONGEST_NOTE:
        return note
    return data[: _LONGEST_NOTE - len(_CUT.encode())].decode(errors="ignore") + _CUT


def new_event(
    regarding: ObjectReference,
    *,
    name: str,
    reason: str,
    action: str,
    note: str,
    component: str,
    now_s: float,
    is_warning: bool = True,
) -> Event:
    """Return an event of a component about an object; it replaces an event of the same name."""
    return Event(
        metadata=ObjectMeta(name=name, namespace=regarding.namespace or "default"),
        event_time=MicroTime.fromtimestamp(now_s, UTC),
        type="Warning" if is_warning else "Normal",
        reason=reason,
        action=action,
        note=fitting_note(note),
        regarding=regarding,
        reporting_controller=component,
        reporting_instance=component,
    )


def reference_to(obj: KubeObject) -> ObjectReference:
    """Return what names the object in an event."""
    meta = obj.metadata
    return ObjectReference(
        api_version=obj.API_VERSION,
        kind=obj.KIND,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
    )


KINDS = (Event, CoreEvent)
