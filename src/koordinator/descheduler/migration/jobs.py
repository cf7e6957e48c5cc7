"""What a PodMigrationJob says of itself, and all jobs by the pods that they are about.

Source: koordinator pkg/descheduler/fieldindex; controllers/migration/arbitrator/filter.go,
``forEachAvailableMigrationJobs``; evictor/interpreter.go, ``GetEvictionTriggerAndReason``.
"""

from collections.abc import Iterable, Iterator, Mapping

from koordinator.api.annotations.descheduling import (
    EVICT_REASON,
    EVICT_TRIGGER,
    EVICTION_ATTEMPT,
    PASSED_ARBITRATION,
    USED_RESERVATION,
    EvictionAttempt,
)
from koordinator.api.core import ObjectReference
from koordinator.api.meta import Condition, KubeObject
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import (
    PodMigrationJob,
    PodMigrationJobMode,
    PodMigrationJobPhase,
)
from koordinator.foundation.errors import InputError

_NOT_STARTED = ("", PodMigrationJobPhase.PENDING)
_LIVE = (*_NOT_STARTED, PodMigrationJobPhase.RUNNING)


def is_live(job: PodMigrationJob) -> bool:
    """Return whether the job still has something to do."""
    return job.status.phase in _LIVE


def has_started(job: PodMigrationJob) -> bool:
    """Return whether the job is past its beginning; a finished one is, too."""
    return job.status.phase not in _NOT_STARTED


def has_passed(job: PodMigrationJob) -> bool:
    """Return whether arbitration let the job begin."""
    passed = job.metadata.annotations.get(PASSED_ARBITRATION) == "true"
    return passed or job.status.phase == PodMigrationJobPhase.RUNNING


def mode_of(job: PodMigrationJob, default: str) -> PodMigrationJobMode:
    """Return how the pod is moved; a mode nobody knows is ReservationFirst, as in the original."""
    if (job.spec.mode or default) == PodMigrationJobMode.EVICT_DIRECTLY:
        return PodMigrationJobMode.EVICT_DIRECTLY
    return PodMigrationJobMode.RESERVATION_FIRST


def condition_of(job: PodMigrationJob, kind: str) -> Condition | None:
    """Return the condition of that type, None if there is none."""
    return next((each for each in job.status.conditions if each.type == kind), None)


def reservation_ref(job: PodMigrationJob) -> ObjectReference | None:
    """Return the reservation of the job, None if it has none yet."""
    options = job.spec.reservation_options
    return None if options is None else options.reservation_ref


def has_second_reservation(job: PodMigrationJob) -> bool:
    """Return whether another pod used the first reservation, so that the job makes a second."""
    return USED_RESERVATION in job.metadata.annotations


def trigger_of(job: PodMigrationJob) -> str:
    """Return the plugin that wanted the move; empty for a job made by hand."""
    return job.metadata.annotations.get(EVICT_TRIGGER, "")


def reason_of(job: PodMigrationJob) -> str:
    """Return why the pod is moved, as events tell it."""
    return job.metadata.annotations.get(EVICT_REASON) or trigger_of(job) or "NotSet"


def attempt_of(job: PodMigrationJob) -> EvictionAttempt | None:
    """Return the eviction that may have been made; None also for a text that can't be read."""
    try:
        return EVICTION_ATTEMPT.read(job.metadata)
    except InputError:
        return None


def pod_key(reference: ObjectReference) -> str:
    """Return ``namespace/name`` of the pod that a job is about."""
    return f"{reference.namespace}/{reference.name}"


def is_newer(obj: KubeObject, than: KubeObject, *, strictly: bool = False) -> bool:
    """Return whether a state of an object is not older than another of the same object.

    ``strictly`` excludes the same version.  Versions that can't be compared count as newer.
    The API server promises that the versions of one kind are numbers in the order of the writes.
    """
    versions = obj.metadata.resource_version, than.metadata.resource_version
    if obj.metadata.uid != than.metadata.uid or not all(map(str.isdecimal, versions)):
        return True
    return int(versions[0]) >= int(versions[1]) + strictly


class JobIndex:
    """All jobs by name, and those that still have something to do by their pods."""

    def __init__(self) -> None:
        self._jobs: dict[str, PodMigrationJob] = {}
        self._uids: dict[str, str] = {}  # of jobs -> names
        self._live: dict[str, PodMigrationJob] = {}
        self._by_pod_uid: dict[str, dict[str, None]] = {}
        self._by_pod: dict[str, dict[str, None]] = {}
        self._by_namespace: dict[str, dict[str, None]] = {}

    @property
    def by_name(self) -> Mapping[str, PodMigrationJob]:
        """All jobs."""
        return self._jobs

    def has_uid(self, uid: str) -> bool:
        """Return whether there is a job of that uid."""
        return uid in self._uids

    def put_job(self, job: PodMigrationJob) -> bool:
        """Take in a job as it is now; return False for one that is older than what is known."""
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
        """Take out a job; return what was known of it."""
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
        """Return all jobs that still have something to do."""
        return self._live.values()

    def live_in(self, namespace: str) -> Iterator[PodMigrationJob]:
        """Yield the live jobs about pods of a namespace."""
        return self._named(self._by_namespace.get(namespace, {}))

    def live_about(self, pod: Pod) -> Iterator[PodMigrationJob]:
        """Yield the live jobs about this pod, or about one of its name."""
        by_uid = self._by_pod_uid.get(pod.metadata.uid, {})
        return self._named({**by_uid, **self._by_pod.get(pod.key, {})})

    def named_like(self, key: str) -> Iterator[PodMigrationJob]:
        """Yield the live jobs about a pod with this ``namespace/name``."""
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
