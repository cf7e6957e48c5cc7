"""Queued jobs of any kind, read from their manifests."""

import dataclasses
from collections.abc import Mapping
from enum import Enum, auto
from typing import Any, Final

from koordinator.api.codec import to_manifest
from koordinator.api.labels import QUOTA_NAME, QUOTA_PREEMPTIBLE
from koordinator.api.meta import JsonObject, KubeObject
from koordinator.api.workload import Job
from koordinator.domain.amounts import Amounts, add, multiple
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.manager.queue_units.kinds import JobKind
from koordinator.manager.queue_units.pod_sets import JobPodSet, at, pod_sets_of

SUSPEND: Final = "scheduling.x-k8s.io/suspend"
ENQUEUED: Final = "koord-queue/job-has-enqueued"
ENQUEUED_AT: Final = "koord-queue/job-enqueue-timestamp"
DEQUEUED_AT: Final = "koord-queue/job-dequeue-timestamp"
ADMISSION: Final = "koord-queue/job-admission"  # ours: the unit and its attempt
#: Other labels that name the quota, as koord-queue's plugins ElasticQuotaV2 and ElasticQuota do.
OTHER_QUOTA_NAMES: Final = ("alibabacloud.com/quota-name", "quota.scheduling.alibabacloud.com/name")
_PREEMPTIBLE: Final = (QUOTA_PREEMPTIBLE, "quota.scheduling.alibabacloud.com/preemptible")
_MOST_SETS: Final = 8
_TRUE: Final = "true"


class QueuedJobState(Enum):
    """State of a queued job."""

    WAITING = auto()  # not all of its pods run
    RUNNING = auto()
    SUCCEEDED = auto()
    FAILED = auto()


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A queued job, independent of its kind."""

    kind: JobKind
    obj: KubeObject
    is_suspended: bool
    state: QueuedJobState
    pod_sets: tuple[JobPodSet, ...]
    running: int = 0  # pods
    pending: int = 0

    @property
    def id(self) -> str:
        """Kind and key; unique among all jobs."""
        return f"{self.kind.name}:{self.obj.key}"

    @property
    def unit_key(self) -> str:
        """The key of its QueueUnit."""
        meta = self.obj.metadata
        return f"{meta.namespace}/{meta.name}{self.kind.suffix}"

    @property
    def quota(self) -> str:
        """The quota that its labels name; empty without such a label."""
        labels = self.obj.metadata.labels
        return next(filter(None, map(labels.get, (QUOTA_NAME, *OTHER_QUOTA_NAMES))), None) or ""

    @property
    def request(self) -> Amounts:
        """The total requests of all its pods."""
        total: dict[str, int] = {}
        for pod_set in self.pod_sets:
            add(total, multiple(pod_set.request, pod_set.count))
        return total

    @property
    def has_pods(self) -> bool:
        """Whether it has running or pending pods."""
        return self.running + self.pending > 0

    @property
    def is_over(self) -> bool:
        """Whether it has succeeded or failed."""
        return self.state in (QueuedJobState.SUCCEEDED, QueuedJobState.FAILED)


def is_unit_preemptible(labels: Mapping[str, str], *, default: bool) -> bool:
    """Return whether a unit may be preempted, by its labels."""
    values = [labels[name] for name in _PREEMPTIBLE if labels.get(name)]
    return _TRUE in values if values else default


def read_job(obj: KubeObject, kind: JobKind) -> WaitingJob:
    """Return a queued job.  Raises InputError with the path of a field that can't be parsed."""
    tree = to_manifest(obj)
    annotated = obj.metadata.annotations.get(SUSPEND) == _TRUE
    is_suspended = annotated or at(tree, kind.suspend) is True
    pod_sets = tuple(pod_sets_of(tree, kind))
    if len(pod_sets) > _MOST_SETS:
        names = ", ".join(pod_set.name for pod_set in pod_sets)
        problem = (
            f"must have at most {_MOST_SETS} pod sets, the limit of a QueueUnit, "
            f"got {len(pod_sets)}: {names}"
        )
        raise InputError(problem, path="spec")
    if isinstance(obj, Job):
        return _read_batch_job(obj, kind, is_suspended, pod_sets)
    state = _state(tree, kind)
    count = sum(pod_set.count for pod_set in pod_sets)
    running = count if state is QueuedJobState.RUNNING else 0
    return WaitingJob(kind, obj, is_suspended, state, pod_sets, running)


def resumed(job: WaitingJob, at: str, admission: str) -> JsonObject:
    """Return the patch that resumes a job, and annotates the time and its admission."""
    return _switched(job, {DEQUEUED_AT: at, ADMISSION: admission}, suspend=False)


def suspended(job: WaitingJob) -> JsonObject:
    """Return the patch that suspends a job; its operator deletes its pods."""
    return _switched(job, {}, suspend=True)


def _switched(job: WaitingJob, notes: Mapping[str, str], *, suspend: bool) -> JsonObject:
    """Return the patch of the suspend field and, where it is used, of the annotation."""
    annotations = dict(notes)
    if SUSPEND in job.obj.metadata.annotations:
        annotations[SUSPEND] = str(suspend).lower()
    patch: JsonObject = {"metadata": {"annotations": annotations}} if annotations else {}
    uses_field = at(to_manifest(job.obj), job.kind.suspend) is not None
    if uses_field or SUSPEND not in job.obj.metadata.annotations:
        inner: Any = suspend
        for name in reversed(job.kind.suspend):
            inner = {name: inner}
        patch |= inner
    return patch


def _read_batch_job(
    job: Job, kind: JobKind, is_suspended: bool, pod_sets: tuple[JobPodSet, ...]
) -> WaitingJob:
    status, spec = job.status, job.spec
    parallelism = 1 if spec.parallelism is None else spec.parallelism
    count = parallelism
    if spec.completions is not None:
        count = min(parallelism, max(spec.completions - status.succeeded, 0))
    sets = tuple(dataclasses.replace(pod_set, count=count) for pod_set in pod_sets)
    true = {condition.type for condition in status.conditions if condition.status == "True"}
    state = QueuedJobState.WAITING
    if true & kind.succeeded:
        state = QueuedJobState.SUCCEEDED
    elif true & kind.failed:
        state = QueuedJobState.FAILED
    ready = min(status.ready or 0, status.active)
    if (
        state is QueuedJobState.WAITING
        and not is_suspended
        and ready + status.succeeded >= count > 0
    ):
        state = QueuedJobState.RUNNING
    return WaitingJob(kind, job, is_suspended, state, sets, ready, status.active - ready)


def _state(tree: JsonObject, kind: JobKind) -> QueuedJobState:
    if kind.phase:
        phase = at(tree, kind.phase)
        reported = {phase} if isinstance(phase, str) else set()
    else:
        listed = at(tree, ("status", "conditions"))
        conditions = listed if isinstance(listed, list) else []
        reported = {
            it["type"]
            for it in conditions
            if isinstance(it, dict)
            and it.get("status") == "True"
            and isinstance(it.get("type"), str)
        }
    for state, words in (
        (QueuedJobState.SUCCEEDED, kind.succeeded),
        (QueuedJobState.FAILED, kind.failed),
        (QueuedJobState.RUNNING, kind.running),
    ):
        if reported & words:
            return state
    return QueuedJobState.WAITING
