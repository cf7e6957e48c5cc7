"""Pod sets of a job, read from its manifest: counts and requests of pods that run concurrently.

The request of a pod is the amount that the scheduler counts after the API server has set defaults:
init containers, sidecars, pod-level resources and overhead are included.

Source: kuberay ray-operator controllers/ray/common/{job,pod}.go, utils/util.go
``GetWorkerGroupDesiredReplicas``; jobset pkg/controllers/jobset_controller.go ``constructJob``;
mpi-operator pkg/apis/kubeflow/v2beta1/default.go; Apache Spark
resource-managers/kubernetes ``BasicDriverFeatureStep``, ``BasicExecutorFeatureStep`` and
``SchedulerBackendUtils``; argo-workflows workflow/controller/workflowpod.go.
"""

from collections.abc import Iterator
from typing import Any, Final

from msgspec.structs import replace

from koordinator.api.codec import decode
from koordinator.api.core import ResourceList, ResourceRequirements
from koordinator.api.defaults import with_defaults
from koordinator.api.meta import JsonObject
from koordinator.api.pod import Container, Pod, PodSpec, PodTemplateSpec
from koordinator.api.syntax import invalid_value
from koordinator.domain.amounts import NOTHING, Amounts
from koordinator.domain.pod_requests import pod_requests
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.quantity import Quantity
from koordinator.manager.queue_units.kinds import (
    JOB_SET,
    RAY,
    SPARK,
    WORKFLOW,
    FieldPath,
    JobKind,
    PodSetSource,
)

MOST_PODS: Final = 1 << 20

_CLUSTER: Final = ("spec", "rayClusterSpec")
#: Resources that KubeRay sets for the job submitter and the autoscaler container.
_SUBMITTER: Final = {
    "requests": {"cpu": "500m", "memory": "200Mi"},
    "limits": {"cpu": "1", "memory": "1Gi"},
}
_AUTOSCALER: Final = {
    "requests": {"cpu": "500m", "memory": "512Mi"},
    "limits": {"cpu": "500m", "memory": "512Mi"},
}

_LEAST_OVERHEAD: Final = 384 << 20
_OVERHEAD_FACTOR: Final = 0.1
_OVERHEAD_FACTOR_BESIDE_JAVA: Final = 0.4
_EXECUTORS: Final = 2

_JAVA: Final = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}


@dataclass(frozen=True, slots=True)
class JobPodSet:
    """Identical pods; ``request`` is the request of one pod."""

    name: str
    count: int
    request: Amounts
    template: PodTemplateSpec | None = None
    priority: int | None = None
    priority_class: str = ""


def pod_sets_of(tree: JsonObject, kind: JobKind) -> Iterator[JobPodSet]:
    """Yield the pod sets of a job.  Raises InputError for a field that can't be parsed."""
    if kind is SPARK:
        yield _spark_pods(tree, "driver", 1)
        yield _spark_pods(tree, "executor", _spark_executors(tree))
    elif kind is WORKFLOW:
        yield _largest_step(tree)
    elif kind is RAY:
        yield from _ray_pods(tree)
    else:
        for source in kind.pod_sets:
            for key, entry in _entries(tree, source.entries):
                yield _pod_set(entry, source, key, makes_jobs=kind is JOB_SET)


def _pod_set(entry: Any, source: PodSetSource, key: str, *, makes_jobs: bool) -> JobPodSet:
    name = at(entry, source.name) if source.name else None
    label = name if isinstance(name, str) else key or source.fallback
    template = _template(entry, source.template, source.entries)
    count = _count(entry, source.counts, source.default_counts.get(key, 1))
    if makes_jobs:
        count = _bounded(count * _job_parallelism(entry), source.entries)
    return _set_of(label, count, template)


def _template(entry: Any, path: FieldPath, above: FieldPath) -> PodTemplateSpec:
    template, template_path = at(entry, path), ".".join((*above, *path))
    if not isinstance(template, dict):
        raise invalid_value(template_path, template, "the template of a pod")
    try:
        return decode(template, PodTemplateSpec)
    except InputError as error:
        raise error.within(path=template_path) from None


def _set_of(name: str, count: int, template: PodTemplateSpec) -> JobPodSet:
    spec = template.spec
    return JobPodSet(
        name.lower(),
        count,
        _request(spec),
        template,
        spec.priority,
        spec.priority_class_name,
    )


def _request(spec: PodSpec) -> Amounts:
    """Return the request of a pod, as the scheduler counts it after API server defaults."""
    return pod_requests(with_defaults(Pod(spec=spec)).spec)


def _job_parallelism(entry: Any) -> int:
    """Return the concurrent pods of a Job of a JobSet: its parallelism, at most completions."""
    job: FieldPath = ("template", "spec")
    parallelism = _count(entry, ((*job, "parallelism"),))
    if at(entry, (*job, "completions")) is None:
        return parallelism
    return min(parallelism, _count(entry, ((*job, "completions"),)))


# -- Ray -------------------------------------------------------------------------------------


def _ray_pods(tree: JsonObject) -> Iterator[JobPodSet]:
    """Yield the pod sets of the head, of each worker group and of the job submitter."""
    mode = at(tree, ("spec", "submissionMode")) or "K8sJobMode"
    if not at(tree, ("spec", "clusterSelector")):  # a selected cluster exists already
        yield _set_of("head", 1, _ray_head(tree, mode))
        groups: FieldPath = (*_CLUSTER, "workerGroupSpecs", "*")
        for _, group in _entries(tree, groups):
            name = at(group, ("groupName",))
            label = name if isinstance(name, str) else "main"
            count = _bounded(_ray_workers(group), groups)
            yield _set_of(label, count, _template(group, ("template",), groups))
    if mode != "K8sJobMode":
        return
    path: FieldPath = ("spec", "submitterPodTemplate")
    if at(tree, path) is None:
        container = _container({"name": "ray-job-submitter", "resources": _SUBMITTER}, path)
        template = PodTemplateSpec(spec=PodSpec(containers=(container,), restart_policy="Never"))
    else:
        template = _template(tree, path, ())
    yield _set_of("submitter", 1, template)


def _ray_head(tree: JsonObject, mode: object) -> PodTemplateSpec:
    """Return the template of the head pod, with the containers that KubeRay adds."""
    template = _template(tree, (*_CLUSTER, "headGroupSpec", "template"), ())
    added: list[Container] = []
    if at(tree, (*_CLUSTER, "enableInTreeAutoscaling")) is True:
        path: FieldPath = (*_CLUSTER, "autoscalerOptions", "resources")
        stated = at(tree, path)
        resources = _AUTOSCALER if stated is None else stated
        added.append(_container({"name": "autoscaler", "resources": resources}, path))
    if mode == "SidecarMode":
        path = ("spec", "submissionMode")
        added.append(_container({"name": "ray-job-submitter", "resources": _SUBMITTER}, path))
    spec = replace(template.spec, containers=(*template.spec.containers, *added))
    return replace(template, spec=spec)


def _ray_workers(group: Any) -> int:
    """Return the number of pods of a group: replicas within their bounds, times hosts."""
    if at(group, ("suspend",)) is True:
        return 0
    least = _count(group, (("minReplicas",),), 0)
    replicas = max(_count(group, (("replicas",),), 0), least)
    if isinstance(at(group, ("maxReplicas",)), int):
        # The default is the 32-bit maximum, so only a bound below the replicas matters.
        replicas = min(replicas, max(at(group, ("maxReplicas",)), 0))
    return replicas * _count(group, (("numOfHosts",),))


# -- Spark -----------------------------------------------------------------------------------


def _spark_executors(tree: JsonObject) -> int:
    path: FieldPath = ("spec", "executor", "instances")
    dynamic: FieldPath = ("spec", "dynamicAllocation")
    if at(tree, (*dynamic, "enabled")) is not True:
        return _count(tree, (path,), _EXECUTORS)
    starts = ((*dynamic, "initialExecutors"), (*dynamic, "minExecutors"), path)
    return max(_count(tree, (each,), 0) for each in starts)


def _spark_pods(tree: JsonObject, role: str, count: int) -> JobPodSet:
    """Return the pod set of the driver or the executors, with sidecars and init containers.

    Memory is in Java's notation, such as 512m.
    """
    stated = at(tree, ("spec", role))
    part: JsonObject = stated if isinstance(stated, dict) else {}
    cores = part.get("coreRequest", part.get("cores", 1))
    amounts: ResourceList = {"cpu": _quantity(cores, f"spec.{role}.cores")}
    memory = _java_memory(part.get("memory", "1g"), f"spec.{role}.memory")
    memory += _spark_overhead(tree, role, memory)
    amounts["memory"] = Quantity.from_int(memory, binary=True)
    gpu = part.get("gpu")
    if isinstance(gpu, dict) and isinstance(gpu.get("name"), str):
        amounts[gpu["name"]] = _quantity(gpu.get("quantity", 0), f"spec.{role}.gpu.quantity")
    main = Container(name=role, resources=ResourceRequirements(requests=amounts))
    beside = _containers(part.get("sidecars"), f"spec.{role}.sidecars")
    before = _containers(part.get("initContainers"), f"spec.{role}.initContainers")
    spec = PodSpec(containers=(main, *beside), init_containers=before)
    return JobPodSet(role, count, _request(spec))


def _spark_overhead(tree: JsonObject, role: str, memory: int) -> int:
    """Return the memory overhead: as stated, else a fraction of the heap, at least 384 MiB."""
    stated = at(tree, ("spec", role, "memoryOverhead"))
    if stated is not None:
        return _java_memory(stated, f"spec.{role}.memoryOverhead")
    is_java = at(tree, ("spec", "type")) not in ("Python", "R")
    factor: Any = at(tree, ("spec", "memoryOverheadFactor"))
    if factor is None:
        factor = _OVERHEAD_FACTOR if is_java else _OVERHEAD_FACTOR_BESIDE_JAVA
    milli = _quantity(factor, "spec.memoryOverheadFactor").milli()
    mebi = (memory >> 20) * max(milli, 0) // 1000
    return max(mebi << 20, _LEAST_OVERHEAD)


# -- Argo ------------------------------------------------------------------------------------


def _largest_step(tree: JsonObject) -> JobPodSet:
    """Return the concurrent pods of an Argo workflow, each as large as its largest step."""
    most: dict[str, int] = {}
    for _, step in _entries(tree, ("spec", "templates", "*")):
        if not isinstance(step, dict):
            continue
        mains = [step[part] for part in ("container", "script") if step.get(part) is not None]
        containers = _containers(mains, "spec.templates.container")
        several = at(step, ("containerSet", "containers"))
        containers += _containers(several, "spec.templates.containerSet.containers")
        if not containers:
            continue  # the step creates no pod
        containers += _containers(step.get("sidecars"), "spec.templates.sidecars")
        before = _containers(step.get("initContainers"), "spec.templates.initContainers")
        request = _request(PodSpec(containers=containers, init_containers=before))
        for name, amount in request.items():
            most[name] = max(most.get(name, 0), amount)
    return JobPodSet("main", _count(tree, (("spec", "parallelism"),)), most or NOTHING)


# -- parts -----------------------------------------------------------------------------------


def _containers(value: object, path: str) -> tuple[Container, ...]:
    """Return containers with only the fields that determine their requests."""
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise invalid_value(path, value, "a list of containers")
    kept = ("resources", "restartPolicy")
    read = (
        {"name": "main", **{key: each[key] for key in kept if each.get(key) is not None}}
        for each in value
    )
    return tuple(_container(each, (path,)) for each in read)


def _container(value: JsonObject, path: FieldPath) -> Container:
    try:
        return decode(value, Container)
    except InputError as error:
        raise error.within(path=".".join(path)) from None


def _java_memory(value: object, path: str) -> int:
    text = str(value).strip().lower().removesuffix("ib").removesuffix("i")
    unit = _JAVA.get(text[-1:], 0)
    if not unit and text.endswith("b"):
        text, unit = text[:-1], _JAVA.get(text[-2:-1], 0)
    digits = text[:-1] if unit else text
    if not digits.isascii() or not digits.isdigit() or len(digits) > 15:  # noqa: PLR2004 -- petabytes
        raise invalid_value(path, value, "an amount such as 512m or 4g")
    return int(digits) * (unit or 1 << 20)


def _quantity(value: object, path: str) -> Quantity:
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise invalid_value(path, value, "a quantity")
    try:
        return Quantity.parse(value)
    except InputError as error:
        raise error.within(path=path) from None


def _count(tree: Any, paths: tuple[FieldPath, ...], default: int = 1) -> int:
    """Return the product of the counts at ``paths``; a missing one is ``default``."""
    count = 1
    for path in paths:
        factor = at(tree, path)
        if factor is None:
            factor = default
        if not isinstance(factor, int) or isinstance(factor, bool) or not 0 <= factor <= MOST_PODS:
            raise invalid_value(".".join(path), factor, f"0 to {MOST_PODS}")
        count *= factor
    return _bounded(count, paths[0]) if paths else count


def _bounded(count: int, path: FieldPath) -> int:
    if count > MOST_PODS:
        raise invalid_value(".".join(path), count, f"0 to {MOST_PODS} pods")
    return count


def at(tree: Any, path: FieldPath) -> Any:
    """Return the value at a path of a manifest; None if it is missing."""
    for name in path:
        if not isinstance(tree, dict):
            return None
        tree = tree.get(name)
    return tree


def _entries(tree: Any, path: FieldPath) -> Iterator[tuple[str, Any]]:
    """Yield the values at a path, each with its key if it is in a mapping."""
    *above, last = path
    if last != "*":
        value = at(tree, path)
        if value is not None:
            yield "", value
        return
    parent = at(tree, tuple(above))
    if isinstance(parent, dict):
        yield from parent.items()
    elif isinstance(parent, list):
        yield from (("", item) for item in parent)
