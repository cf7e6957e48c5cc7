"""Whose fault it is: exceptions of plugins and of objects, kept to the object they are about.

The boundaries stand in the shell and the binding cycle; ``docs/decisions/0007`` says where and why.
"""

from collections.abc import Callable, Iterable, Sequence
from types import FrameType, TracebackType
from typing import TypeVar

from msgspec import structs

from koordinator.api.codec import subject_of
from koordinator.api.meta import KubeObject
from koordinator.cluster.port import EventType, WatchEvent
from koordinator.foundation.clock import Clock
from koordinator.foundation.faults import Fault, FaultHandler, fault_of
from koordinator.scheduler.contract import ActivePlugin, Profile
from koordinator.scheduler.queue import SchedulingQueue

KindT = TypeVar("KindT", bound=KubeObject)

_FIRST_AGAIN_S, _LAST_AGAIN_S = 1.0, 300.0


class Isolation:
    """Makes faults of exceptions, with the plugin that raised them, and hands them on."""

    def __init__(self, profiles: Sequence[Profile], handler: FaultHandler) -> None:
        self._handler = handler
        self._plugins = {id(a.plugin): a.name for p in profiles for a in _actives(p)}
        self._kept_alive = tuple(profiles)  # ids of what is gone would be given out again

    def fault(self, stage: str, error: Exception, about: str) -> Fault:
        """Return the fault; raise what is none: the cluster's refusals, and lack of memory."""
        fault = fault_of(stage, error, about=about)
        for frame in _frames(error.__traceback__):
            name = self._plugins.get(id(frame.f_locals.get("self")))
            if name is not None:
                return Fault(frame.f_code.co_name.lstrip("_"), error, name, about)
        return fault

    def tell(self, fault: Fault) -> None:
        """Hand a fault to the handler, after everything has been put right."""
        self._handler(fault)

    def note(self, stage: str, error: Exception, about: str = "") -> Fault:
        """Tell a fault after which there is nothing to put right; return it."""
        fault = self.fault(stage, error, about)
        self.tell(fault)
        return fault

    def tell_of_hints(self, queue: SchedulingQueue) -> None:
        """Tell of queueing hints that broke; the pods were queued all the same."""
        for plugin, error in queue.take_hint_errors().items():
            self.tell(Fault("hint", error, plugin))

    def barrier(self, stage: str, about: str | KubeObject = "") -> "Barrier":
        """Go on after what goes wrong inside; ``about`` is the object, or its name."""
        return Barrier(self, stage, about)


class Barrier:
    """The boundary itself; a class since some stand in the way of every pod."""

    __slots__ = ("_about", "_isolation", "_stage")

    def __init__(self, isolation: Isolation, stage: str, about: str | KubeObject) -> None:
        self._isolation, self._stage, self._about = isolation, stage, about

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        about = self._about
        self._isolation.note(
            self._stage, error, about if isinstance(about, str) else subject_of(about)
        )
        return True


class LeftOut:
    """Objects that could not be taken in: as if they weren't there, tried again now and then.

    ``handle`` takes in news; ``leave_out`` takes out of the state what of an object is in it.
    """

    def __init__(
        self,
        clock: Clock,
        isolation: Isolation,
        handle: Callable[[WatchEvent], None],
        leave_out: Callable[[KubeObject, Fault], None],
    ) -> None:
        self._clock, self._isolation = clock, isolation
        self._handle, self._leave_out = handle, leave_out
        #: by kind and key: the news, when to try again, and how long that was waited for
        self.events: dict[tuple[type[KubeObject], str], tuple[WatchEvent, float, float]] = {}

    def forget(self, obj: KubeObject) -> None:
        """Forget an object of which there is a newer version, or none any more."""
        self.events.pop((type(obj), obj.key), None)

    def add(self, event: WatchEvent, error: Exception, waited_s: float = 0.0) -> None:
        """Leave an object out; each time for twice as long as the last one."""
        obj = event.object
        fault = self._isolation.fault("ingest", error, subject_of(obj))
        if event.type is not EventType.DELETED:
            wait_s = min(max(waited_s * 2, _FIRST_AGAIN_S), _LAST_AGAIN_S)
            anew = WatchEvent(EventType.ADDED, obj)
            self.events[type(obj), obj.key] = (anew, self._clock.now_s() + wait_s, wait_s)
        self._leave_out(obj, fault)
        self._isolation.tell(fault)

    def step(self) -> None:
        """Try again what is due."""
        now_s = self._clock.now_s()
        for event, due_s, waited_s in list(self.events.values()):
            if due_s <= now_s:
                self.forget(event.object)
                try:
                    self._handle(event)
                except Exception as error:  # noqa: BLE001 -- told
                    self.add(event, error, waited_s)

    def next_wakeup_s(self) -> float | None:
        """Return when the next one is due."""
        return min((due_s for _, due_s, _ in self.events.values()), default=None)


def bare(obj: KindT) -> KindT:
    """Return an object without what its writer may say freely: labels and annotations."""
    return structs.replace(obj, metadata=structs.replace(obj.metadata, labels={}, annotations={}))


def _actives(profile: Profile) -> Iterable[ActivePlugin]:
    for name in profile.__dataclass_fields__:
        value = getattr(profile, name)
        if isinstance(value, tuple):
            yield from value


def _frames(trace: TracebackType | None) -> Iterable[FrameType]:
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next
