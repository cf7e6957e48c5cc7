"""What is to be known of a job of whatever kind, read off its manifest by the data of its kind."""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from msgspec.structs import replace

from koordinator.api.codec import decode, to_manifest
from koordinator.api.core import ResourceList
from koordinator.api.labels import QUOTA_NAME, QUOTA_PREEMPTIBLE
from koordinator.api.meta import JsonObject, KubeObject
from koordinator.api.pod import Container, PodTemplateSpec
from koordinator.api.syntax import refusal
from koordinator.api.workload import Job
from koordinator.domain.pod_requests import pod_requests
from koordinator.domain.queue_units.kinds import SPARK, WORKFLOW, JobKind, Path, PodSetSource
from koordinator.domain.quota.amounts import NOTHING, Amounts, add, amounts_of, multiple
from koordinator.foundation.errors import InputError
from koordinator.foundation.quantity import Quantity

SUSPEND: Final = "scheduling.x-k8s.io/suspend"
ENQUEUED: Final = "koord-queue/job-has-enqueued"
ENQUEUED_AT: Final = "koord-queue/job-enqueue-timestamp"
DEQUEUED_AT: Final = "koord-queue/job-dequeue-timestamp"
ADMISSION: Final = "koord-queue/job-admission"  # ours: the unit and its attempt
#: Other labels that name the quota, as koord-queue's plugins ElasticQuotaV2 and ElasticQuota do.
OTHER_QUOTA_NAMES: Final = ("alibabacloud.com/quota-name", "quota.scheduling.alibabacloud.com/name")
_PREEMPTIBLE: Final = (QUOTA_PREEMPTIBLE, "quota.scheduling.alibabacloud.com/preemptible")
MOST_PODS: Final = 1 << 20
_MOST_SETS: Final = 8
_TRUE: Final = "true"


class QueuedJobState(Enum):
    """How far a job is."""

    WAITING = auto()  # it does not run, or not as a whole
    RUNNING = auto()
    SUCCEEDED = auto()
    FAILED = auto()


@dataclass(frozen=True, slots=True)
class JobPodSet:
    """Pods that are alike; ``request`` is of one."""

    name: str
    count: int
    request: Amounts
    template: PodTemplateSpec | None = None
    priority: int | None = None
    priority_class: str = ""


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A job as queues see it."""

    kind: JobKind
    obj: KubeObject
    is_suspended: bool
    state: QueuedJobState
    pod_sets: tuple[JobPodSet, ...]
    running: int = 0  # pods
    pending: int = 0

    @property
    def id(self) -> str:
        """Kind and key: no two jobs share it."""
        return f"{self.kind.name}:{self.obj.key}"

    @property
    def unit_key(self) -> str:
        """The key of the unit that stands for it."""
        meta = self.obj.metadata
        return f"{meta.namespace}/{meta.name}{self.kind.suffix}"

    @property
    def quota(self) -> str:
        """The quota that it names; empty: none."""
        labels = self.obj.metadata.labels
        return next(filter(None, map(labels.get, (QUOTA_NAME, *OTHER_QUOTA_NAMES))), None) or ""

    @property
    def request(self) -> Amounts:
        """What all its pods ask for together."""
        total: dict[str, int] = {}
        for pod_set in self.pod_sets:
            add(total, multiple(pod_set.request, pod_set.count))
        return total

    @property
    def has_pods(self) -> bool:
        """Whether there are pods of it that have not ended."""
        return self.running + self.pending > 0

    @property
    def is_over(self) -> bool:
        """Whether it has ended, well or badly."""
        return self.state in (QueuedJobState.SUCCEEDED, QueuedJobState.FAILED)


def is_unit_preemptible(labels: Mapping[str, str], *, default: bool) -> bool:
    """Return whether a unit may be sent back for a more important one."""
    said = [labels[name] for name in _PREEMPTIBLE if labels.get(name)]
    return _TRUE in said if said else default


def read_job(obj: KubeObject, kind: JobKind) -> WaitingJob:
    """Return a job as queues see it.  Raises InputError for what can't be read, with its path."""
    tree = to_manifest(obj)
    annotated = obj.metadata.annotations.get(SUSPEND) == _TRUE
    is_suspended = annotated or _at(tree, kind.suspend) is True
    pod_sets = tuple(_pod_sets(tree, kind))
    if len(pod_sets) > _MOST_SETS:
        raise refusal("spec", f"{len(pod_sets)} kinds of pods", f"at most {_MOST_SETS}")
    if isinstance(obj, Job):
        return _read_batch_job(obj, kind, is_suspended, pod_sets)
    state = _state(tree, kind)
    count = sum(pod_set.count for pod_set in pod_sets)
    running = count if state is QueuedJobState.RUNNING else 0
    return WaitingJob(kind, obj, is_suspended, state, pod_sets, running)


def resumed(job: WaitingJob, at: str, admission: str) -> JsonObject:
    """Return the patch that lets a job run, and notes when and for which admission."""
    return _switched(job, {DEQUEUED_AT: at, ADMISSION: admission}, suspend=False)


def suspended(job: WaitingJob) -> JsonObject:
    """Return the patch that stops a job; its operator deletes its pods."""
    return _switched(job, {}, suspend=True)


def _switched(job: WaitingJob, notes: Mapping[str, str], *, suspend: bool) -> JsonObject:
    """Return the patch of the field and, where it is used, the annotation."""
    annotations = dict(notes)
    if SUSPEND in job.obj.metadata.annotations:
        annotations[SUSPEND] = str(suspend).lower()
    patch: JsonObject = {"metadata": {"annotations": annotations}} if annotations else {}
    uses_field = _at(to_manifest(job.obj), job.kind.suspend) is not None
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
        found = _at(tree, kind.phase)
        said = {found} if isinstance(found, str) else set()
    else:
        listed = _at(tree, ("status", "conditions"))
        conditions = listed if isinstance(listed, list) else []
        said = {
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
        if said & words:
            return state
    return QueuedJobState.WAITING


def _pod_sets(tree: JsonObject, kind: JobKind) -> Iterator[JobPodSet]:
    if kind is SPARK:
        yield _spark_pods(tree, "driver", 1)
        yield _spark_pods(tree, "executor", _count(tree, (("spec", "executor", "instances"),)))
        return
    if kind is WORKFLOW:
        yield _largest_step(tree)
        return
    for source in kind.pod_sets:
        for key, entry in _entries(tree, source.entries):
            yield _pod_set(entry, source, key)


def _pod_set(entry: Any, source: PodSetSource, key: str) -> JobPodSet:
    name = _at(entry, source.name) if source.name else None
    called = name if isinstance(name, str) else key or source.fallback
    found = _at(entry, source.template)
    where = ".".join(source.entries)
    if not isinstance(found, dict):
        raise refusal(f"{where}.{'.'.join(source.template)}", found, "the template of a pod")
    try:
        template = decode(found, PodTemplateSpec)
    except InputError as error:
        raise error.within(path=f"{where}.{'.'.join(source.template)}") from None
    spec = template.spec
    return JobPodSet(
        called.lower(),
        _count(entry, source.counts),
        _request(template),
        template,
        spec.priority,
        spec.priority_class_name,
    )


def _request(template: PodTemplateSpec) -> Amounts:
    """Return what a pod asks for: its requests, and limits of what it requests nothing of."""
    spec = template.spec
    return pod_requests(
        replace(
            spec,
            containers=tuple(map(_with_defaults, spec.containers)),
            init_containers=tuple(map(_with_defaults, spec.init_containers)),
        )
    )


def _with_defaults(container: Container) -> Container:
    resources = container.resources
    requests = {**resources.limits, **resources.requests}
    return replace(container, resources=replace(resources, requests=requests))


def _spark_pods(tree: JsonObject, role: str, count: int) -> JobPodSet:
    """Return the driver or the executors: cores and memory in the words of Java."""
    said = _at(tree, ("spec", role))
    part: JsonObject = said if isinstance(said, dict) else {}
    cores = part.get("coreRequest", part.get("cores", 1))
    amounts: ResourceList = {"cpu": _quantity(cores, f"spec.{role}.cores")}
    memory = _java_memory(part.get("memory", "1g"), f"spec.{role}.memory")
    overhead = part.get("memoryOverhead")
    extra = 0 if overhead is None else _java_memory(overhead, f"spec.{role}.memoryOverhead")
    amounts["memory"] = Quantity.from_int(memory + extra, binary=True)
    gpu = part.get("gpu")
    if isinstance(gpu, dict) and isinstance(gpu.get("name"), str):
        amounts[gpu["name"]] = _quantity(gpu.get("quantity", 0), f"spec.{role}.gpu.quantity")
    return JobPodSet(role, count, amounts_of(amounts))


def _largest_step(tree: JsonObject) -> JobPodSet:
    """Return the pods of an Argo workflow that may run at once, as large as its largest step."""
    most: dict[str, int] = {}
    for _, step in _entries(tree, ("spec", "templates", "*")):
        asked: dict[str, int] = {}
        for part in ("container", "script"):
            found = _at(step, (part, "resources"))
            if isinstance(found, dict):
                listed = found.get("requests") or found.get("limits") or {}
                for name, amount in listed.items():
                    where = f"spec.templates.{part}.resources.{name}"
                    add(asked, amounts_of({name: _quantity(amount, where)}))
        for name, amount in asked.items():
            most[name] = max(most.get(name, 0), amount)
    return JobPodSet("main", _count(tree, (("spec", "parallelism"),)), most or NOTHING)


_JAVA: Final = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}


def _java_memory(found: object, path: str) -> int:
    text = str(found).strip().lower().removesuffix("ib").removesuffix("i")
    unit = _JAVA.get(text[-1:], 0)
    if not unit and text.endswith("b"):
        text, unit = text[:-1], _JAVA.get(text[-2:-1], 0)
    digits = text[:-1] if unit else text
    if not digits.isascii() or not digits.isdigit() or len(digits) > 15:  # noqa: PLR2004 -- petabytes
        raise refusal(path, found, "an amount such as 512m or 4g")
    return int(digits) * (unit or 1 << 20)


def _quantity(found: object, path: str) -> Quantity:
    if not isinstance(found, str | int | float) or isinstance(found, bool):
        raise refusal(path, found, "a quantity")
    try:
        return Quantity.parse(found)
    except InputError as error:
        raise error.within(path=path) from None


def _count(tree: Any, paths: tuple[Path, ...]) -> int:
    count = 1
    for path in paths:
        found = _at(tree, path)
        if found is None:
            continue
        if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found <= MOST_PODS:
            raise refusal(".".join(path), found, f"0 to {MOST_PODS}")
        count *= found
    if count > MOST_PODS:
        raise refusal(".".join(paths[0]), count, f"0 to {MOST_PODS} pods")
    return count


def _at(tree: Any, path: Path) -> Any:
    for name in path:
        if not isinstance(tree, dict):
            return None
        tree = tree.get(name)
    return tree


def _entries(tree: Any, path: Path) -> Iterator[tuple[str, Any]]:
    """Yield what a path leads to, with the key of the mapping that it is in."""
    *above, last = path
    if last != "*":
        found = _at(tree, path)
        if found is not None:
            yield "", found
        return
    holder = _at(tree, tuple(above))
    if isinstance(holder, dict):
        yield from holder.items()
    elif isinstance(holder, list):
        yield from (("", item) for item in holder)
