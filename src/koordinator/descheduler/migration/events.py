"""Kubernetes events about jobs and pods.

Source: koordinator pkg/descheduler/controllers/migration, ``eventRecorder.Eventf``.
"""

from hashlib import sha256

from koordinator.api.core import MicroTime
from koordinator.api.event import Event, fitting_note, reference_to
from koordinator.api.meta import KubeObject, ObjectMeta
from koordinator.api.pod import Pod
from koordinator.descheduler.migration.transitions import JobAnnouncement
from koordinator.foundation.clock import UTC

COMPONENT = "koord-descheduler"
ACTION = "Migrating"
DESCHEDULED = "Descheduled"  # Pod: it was evicted; the note has the plugin and the reason
_LONGEST_NAME = 200


def event_about(obj: KubeObject, announcement: JobAnnouncement, now_s: float) -> Event:
    """Return an event; an equal one about the same object replaces it."""
    meta, note = obj.metadata, announcement.note
    digest = sha256(f"{meta.uid} {announcement.reason} {note}".encode()).hexdigest()[:16]
    return Event(
        metadata=ObjectMeta(
            name=f"{meta.name[:_LONGEST_NAME]}.{digest}", namespace=meta.namespace or "default"
        ),
        event_time=MicroTime.fromtimestamp(now_s, UTC),
        type="Warning" if announcement.is_warning else "Normal",
        reason=announcement.reason,
        action=ACTION,
        note=fitting_note(note),
        regarding=reference_to(obj),
        reporting_controller=COMPONENT,
        reporting_instance=COMPONENT,
    )


def descheduled(pod: Pod, reason: str, now_s: float) -> Event:
    """Return the event about an evicted pod."""
    note = f'Pod evicted from node "{pod.spec.node_name}" by the reason "{reason}"'
    return event_about(pod, JobAnnouncement(DESCHEDULED, note), now_s)
