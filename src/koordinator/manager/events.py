"""Warning events about rejected configuration and failed writes."""

from koordinator.api.core import MicroTime, ObjectReference
from koordinator.api.event import Event, fitting_note
from koordinator.api.meta import KubeObject, ObjectMeta
from koordinator.foundation.clock import UTC

COMPONENT = "koord-manager"
JOB_NOT_QUEUED = "JobNotQueued"  # job: it is invalid, so that it gets no QueueUnit
CREATE_QUOTA_FAILED = "CreateQuotaFailed"  # ElasticQuotaProfile: its root quota was refused
UPDATE_QUOTA_FAILED = "UpdateQuotaFailed"  # ElasticQuotaProfile: a change of its quota was refused


def warning(
    about: KubeObject, reason: str, note: str, *, action: str, name: str, now_s: float
) -> Event:
    """Return a Warning event about an object; an event of the same ``name`` replaces it."""
    meta = about.metadata
    return Event(
        metadata=ObjectMeta(name=name, namespace=meta.namespace or "default"),
        event_time=MicroTime.fromtimestamp(now_s, UTC),
        type="Warning",
        reason=reason,
        action=action,
        note=fitting_note(note),
        regarding=ObjectReference(
            api_version=about.API_VERSION,
            kind=about.KIND,
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            resource_version=meta.resource_version,
        ),
        reporting_controller=COMPONENT,
        reporting_instance=COMPONENT,
    )
