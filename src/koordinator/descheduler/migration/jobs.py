"""Accessors of PodMigrationJobs, their order, an index of jobs by pod, and events about jobs.

Source: koordinator pkg/descheduler/fieldindex; controllers/migration/arbitrator/filter.go,
``forEachAvailableMigrationJobs``; evictor/interpreter.go,
``GetEvictionTriggerAndReason``; ``eventRecorder.Eventf`` of the controller.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256

from msgspec.structs import replace

from koordinator.api.annotations.scheduling import (
    EVICT_REASON,
    EVICT_TRIGGER,
    EVICTION_ATTEMPT,
    PASSED_ARBITRATION,
    PROVEN_MOVE,
    USED_RESERVATION,
    EvictionAttempt,
    ProvenMove,
)
from koordinator.api.core import ObjectReference
from koordinator.api.event import Event, new_event, reference_to
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import (
    PodMigrationJob,
    PodMigrationJobMode,
    PodMigrationJobPhase,
)
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass

COMPONENT = "koord-descheduler"
ACTION = "Migrating"
DESCHEDULED = "Descheduled"  # Pod: it was evicted; the note has the plugin and the reason
_LONGEST_NAME = 200
_NOT_STARTED = ("", PodMigrationJobPhase.PENDING)
_UNPROVEN = ProvenMove(source="", target="")
_LIVE = (*_NOT_STARTED, PodMigrationJobPhase.RUNNING)


def is_live(job: PodMigrationJob) -> bool:
    """Return whether the job has not finished."""
    return job.status.phase in _LIVE


def has_started(job: PodMigrationJob) -> bool:
    """Return whether the job has started; finished jobs count as started."""
    return job.status.phase not in _NOT_STARTED


def has_passed(job: PodMigrationJob) -> bool:
    """Return whether arbitration admitted the job."""
    passed = job.metadata.annotations.get(PASSED_ARBITRATION) == "true"
    return passed or job.status.phase == PodMigrationJobPhase.RUNNING


def mode_of(job: PodMigrationJob, default: str) -> PodMigrationJobMode:
    """Return the mode of a job; an unknown mode means ReservationFirst, as in the original."""
    if (job.spec.mode or default) == PodMigrationJobMode.EVICT_DIRECTLY:
        return PodMigrationJobMode.EVICT_DIRECTLY
    return PodMigrationJobMode.RESERVATION_FIRST


def reservation_ref(job: PodMigrationJob) -> ObjectReference | None:
    """Return the reference to the reservation of the job, None before it has one."""
    options = job.spec.reservation_options
    return None if options is None else options.reservation_ref


def has_second_reservation(job: PodMigrationJob) -> bool:
    """Return whether another pod used the first reservation, so that the job makes a second."""
    return USED_RESERVATION in job.metadata.annotations


def trigger_of(job: PodMigrationJob) -> str:
    """Return the plugin that created the job; empty for a job of a user."""
    return job.metadata.annotations.get(EVICT_TRIGGER, "")


def reason_of(job: PodMigrationJob) -> str:
    """Return the reason of the move for events."""
    return job.metadata.annotations.get(EVICT_REASON) or trigger_of(job) or "NotSet"


def attempt_of(job: PodMigrationJob) -> EvictionAttempt | None:
    """Return the recorded eviction attempt; None also for a malformed annotation."""
    try:
        return EVICTION_ATTEMPT.read(job.metadata)
    except InputError:
        return None


def pod_key(reference: ObjectReference) -> str:
    """Return ``namespace/name`` of a reference to a pod."""
    return f"{reference.namespace}/{reference.name}"


def is_newer(obj: KubeObject, than: KubeObject, *, strictly: bool = False) -> bool:
    """Return whether a version of an object is not older than another version of it.

    ``strictly`` excludes equal versions.  Versions that can't be compared count as newer.  The API
    server guarantees that resource versions of one kind are numbers in the order of the writes.
    """
    versions = obj.metadata.resource_version, than.metadata.resource_version
    if obj.metadata.uid != than.metadata.uid or not all(map(str.isdecimal, versions)):
        return True
    return int(versions[0]) >= int(versions[1]) + strictly


# -- order of proven moves -------------------------------------------------------------------


def proven_move_of(job: PodMigrationJob) -> ProvenMove:
    """Return the proof annotation of a job; an empty one if it is missing or malformed."""
    try:
        return PROVEN_MOVE.read(job.metadata) or _UNPROVEN
    except InputError:
        return _UNPROVEN


def jobs_by_gang(jobs: Iterable[PodMigrationJob]) -> Mapping[str, Sequence[PodMigrationJob]]:
    """Return the jobs of gangs, which start together, by gang."""
    gangs: dict[str, list[PodMigrationJob]] = {}
    for job in jobs:
        if gang := proven_move_of(job).gang:
            gangs.setdefault(gang, []).append(job)
    return gangs


def as_passed(job: PodMigrationJob) -> PodMigrationJob:
    """Return the job as arbitration would admit it."""
    annotations = {**job.metadata.annotations, PASSED_ARBITRATION: "true"}
    return replace(job, metadata=replace(job.metadata, annotations=annotations))


# -- index ------------------------------------------------------------------------------------


class JobIndex:
    """Jobs by name, and live jobs by pod and namespace."""

    def __init__(self) -> None:
        self._jobs: dict[str, PodMigrationJob] = {}
        self._uids: dict[str, str] = {}  # uid of a job -> its name
        self._live: dict[str, PodMigrationJob] = {}
        self._by_pod_uid: dict[str, dict[str, None]] = {}
        self._by_pod: dict[str, dict[str, None]] = {}
        self._by_namespace: dict[str, dict[str, None]] = {}

    @property
    def by_name(self) -> Mapping[str, PodMigrationJob]:
        """All jobs by name."""
        return self._jobs

    def has_uid(self, uid: str) -> bool:
        """Return whether a job has the uid."""
        return uid in self._uids

    def put_job(self, job: PodMigrationJob) -> bool:
        """Add or update a job; return False if the known version is newer."""
        name = job.metadata.name
        known = self._jobs.get(name)
        if known is not None:
            if not is_newer(job, known):
                return False
            self.drop_job(name)
        self._jobs[name] = job
        self._uids[job.metadata.uid] = name
        if is_live(job):
            self._live[name] = job
            for index, key in self._places(job):
                index.setdefault(key, {})[name] = None
        return True

    def drop_job(self, name: str) -> PodMigrationJob | None:
        """Remove a job; return its last known version."""
        job = self._jobs.pop(name, None)
        if job is None:
            return None
        self._uids.pop(job.metadata.uid, None)
        if self._live.pop(name, None) is not None:
            for index, key in self._places(job):
                names = index.get(key, {})
                names.pop(name, None)
                if not names:
                    index.pop(key, None)
        return job

    def live(self) -> Iterable[PodMigrationJob]:
        """Return the jobs that have not finished."""
        return self._live.values()

    def live_in(self, namespace: str) -> Iterator[PodMigrationJob]:
        """Yield the live jobs for pods of a namespace."""
        return self._named(self._by_namespace.get(namespace, {}))

    def live_about(self, pod: Pod) -> Iterator[PodMigrationJob]:
        """Yield the live jobs for a pod, by its uid or its name."""
        by_uid = self._by_pod_uid.get(pod.metadata.uid, {})
        return self._named({**by_uid, **self._by_pod.get(pod.key, {})})

    def named_like(self, key: str) -> Iterator[PodMigrationJob]:
        """Yield the live jobs for a pod by ``namespace/name``."""
        return self._named(self._by_pod.get(key, {}))

    def _named(self, names: Iterable[str]) -> Iterator[PodMigrationJob]:
        return (self._live[name] for name in names)

    def _places(self, job: PodMigrationJob) -> list[tuple[dict[str, dict[str, None]], str]]:
        reference = job.spec.pod_ref
        places = [
            (self._by_pod, pod_key(reference)),
            (self._by_namespace, reference.namespace),
        ]
        if reference.uid:
            places.append((self._by_pod_uid, reference.uid))
        return places


@dataclass(frozen=True, slots=True)
class JobAnnouncement:
    """Kubernetes event to report about a job."""

    reason: str
    note: str
    is_warning: bool = False


def event_about(obj: KubeObject, announcement: JobAnnouncement, now_s: float) -> Event:
    """Return an event; an equal one about the same object replaces it."""
    meta, note = obj.metadata, announcement.note
    digest = sha256(f"{meta.uid} {announcement.reason} {note}".encode()).hexdigest()[:16]
    return new_event(
        reference_to(obj),
        name=f"{meta.name[:_LONGEST_NAME]}.{digest}",
        reason=announcement.reason,
        action=ACTION,
        note=note,
        component=COMPONENT,
        now_s=now_s,
        is_warning=announcement.is_warning,
    )


def descheduled(pod: Pod, reason: str, now_s: float) -> Event:
    """Return the event about an evicted pod."""
    note = f'Pod evicted from node "{pod.spec.node_name}" by the reason "{reason}"'
    return event_about(pod, JobAnnouncement(DESCHEDULED, note), now_s)
