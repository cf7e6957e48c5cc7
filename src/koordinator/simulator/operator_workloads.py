"""Workloads of operators: the pods and Jobs that their controllers make, where the rule is simple.

A reader turns the manifest of a kind into parts.  A kind whose pods depend on more than its
manifest, or whose controller is not known here, is reported as not simulated.

Source: jobset pkg/controllers/jobset_controller.go ``constructJob``; training-operator
pkg/controller.v1/common/pod.go ``createNewPod``; mpi-operator pkg/controller/mpi_job_controller.go;
kuberay ray-operator controllers/ray/common/pod.go, utils/util.go ``GetWorkerGroupDesiredReplicas``;
lws pkg/controllers, pkg/webhooks/pod_webhook.go; volcano pkg/controllers/job/job_controller_util.go
``createJobPod``; argo-rollouts, kruise: as their ReplicaSets.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from koordinator.api.codec import decode
from koordinator.api.defaults import with_defaults
from koordinator.api.meta import JsonObject, ObjectMeta
from koordinator.api.pod import Container, Pod, PodTemplateSpec
from koordinator.api.validation import validate
from koordinator.api.workload import PodControllerSpec
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass

MOST_PODS: Final = 1_000_000  # of one workload: more is a slip of the hand
_DEPTH: Final = 12  # levels below which templates of pods are not looked for

#: Fields that say that a controller is to make no pods, and which controllers are the usual ones.
_SUSPENDED: Final = (("suspend",), ("runPolicy", "suspend"))
_MANAGED: Final = (("managedBy",), ("runPolicy", "managedBy"))
_OWN_CONTROLLERS: Final = {
    "jobset.sigs.k8s.io/jobset-controller",
    "ray.io/kuberay-operator",
    "kubeflow.org/training-operator",
    "kubeflow.org/mpi-operator",
    "trainer.kubeflow.org/trainjob-controller",
}
_ENDED: Final = {"Succeeded", "Failed", "Completed", "Complete", "Error", "Terminated", "Aborted"}

_AUTOSCALER: Final = {
    "requests": {"cpu": "500m", "memory": "512Mi"},
    "limits": {"cpu": "500m", "memory": "512Mi"},
}
_SUBMITTER: Final = {
    "requests": {"cpu": "500m", "memory": "200Mi"},
    "limits": {"cpu": "1", "memory": "1Gi"},
}

_STEPS: Final = "its steps start one after the other"
_RUNS: Final = "its runs start one after the other"
_RESOURCES: Final = "its operator makes pods of its own settings"
_UNSIMULATED: Final[Mapping[tuple[str, str], str]] = {
    ("argoproj.io", "Workflow"): _STEPS,
    ("argoproj.io", "CronWorkflow"): _STEPS,
    ("tekton.dev", "PipelineRun"): _STEPS,
    ("tekton.dev", "TaskRun"): _RESOURCES,
    ("sparkoperator.k8s.io", "SparkApplication"): _RESOURCES,
    ("sparkoperator.k8s.io", "ScheduledSparkApplication"): _RESOURCES,
    ("flink.apache.org", "FlinkDeployment"): _RESOURCES,
    ("kubevirt.io", "VirtualMachine"): _RESOURCES,
    ("kubevirt.io", "VirtualMachineInstance"): _RESOURCES,
    ("trainer.kubeflow.org", "TrainJob"): "its pods come from the runtime that it names",
    ("serving.kserve.io", "InferenceService"): "its pods come from the runtime that it names",
    ("serving.knative.dev", "Service"): "the number of its pods follows its load",
    ("ray.io", "RayCronJob"): _RUNS,
    ("batch.volcano.sh", "CronJob"): _RUNS,
    ("flow.volcano.sh", "JobFlow"): _STEPS,
}

#: Ends of the names of kinds that describe pods which other objects make, or what pods may be.
_NO_WORKLOADS: Final = ("Template", "Runtime", "Policy", "Definition", "Profile", "Quota")


@dataclass(frozen=True, slots=True)
class WorkloadPart:
    """Pods that are alike: ``count`` of them, or a Job that makes them.

    Pods of a part with ``first`` are called ``<name>-<number>`` from that number on; one pod of
    ``is_single`` is called ``name``; all others get generated names.
    """

    name: str
    template: PodTemplateSpec
    count: int = 1  # below 0: they start after others have ended
    labels: Mapping[str, str] = field(default_factory=dict)
    first: int | None = None
    is_single: bool = False
    job: PodControllerSpec | None = None


@dataclass(frozen=True, slots=True)
class OperatorWorkload:
    """Pods of an operator's workload."""

    api_version: str
    kind: str
    meta: ObjectMeta
    parts: tuple[WorkloadPart, ...] = ()
    unsimulated: str = ""  # why its pods, or some of them, are not made here

    @property
    def notice(self) -> str:
        """Return the sentence about pods that are not made; empty if all are."""
        if not self.unsimulated:
            return ""
        called = f"{self.kind} {self.meta.namespace}/{self.meta.name}"
        return f"{called}: its pods are not simulated: {self.unsimulated}"


def read_operator_workload(
    api_version: str, kind: str, tree: JsonObject
) -> OperatorWorkload | None:
    """Return the pods of an object of a custom kind; None if it describes none."""
    group = api_version.rpartition("/")[0]
    known, reason = _READERS.get((group, kind)), _UNSIMULATED.get((group, kind), "")
    if known is None and not reason:
        if kind.endswith(_NO_WORKLOADS) or not _describes_pods(tree.get("spec"), _DEPTH):
            return None
        reason = f"what the controller of {kind} ({api_version}) makes of them is not known"
    try:
        meta = _Manifest(tree, "").at("metadata").typed(ObjectMeta)
    except InputError as error:
        return OperatorWorkload(api_version, kind, ObjectMeta(), (), str(error))
    name = meta.name or meta.generate_name
    meta = replace(meta, name=name, namespace=meta.namespace or "default")
    if meta.deletion_timestamp is not None or _is_idle(tree):
        return OperatorWorkload(api_version, kind, meta)
    if known is None:
        return OperatorWorkload(api_version, kind, meta, (), reason)
    try:
        parts = tuple(known(_Manifest(tree, meta.name)))
    except InputError as error:
        return OperatorWorkload(api_version, kind, meta, (), str(error))
    later = [part.name for part in parts if part.count < 0]
    made = tuple(part for part in parts if part.count > 0)
    reason = f"{', '.join(later)} start after others" if later else ""
    return OperatorWorkload(api_version, kind, meta, made, reason)


# -- reading ---------------------------------------------------------------------------------


ValueT = TypeVar("ValueT")


class _Manifest:
    """A manifest, or a part of one, that is read with paths in errors."""

    def __init__(self, tree: object, name: str, path: str = "") -> None:
        self.name = name  # of the workload
        self.tree: JsonObject = tree if isinstance(tree, dict) else {}
        self.path = path

    def at(self, *names: str) -> "_Manifest":
        value: Any = self.tree
        for name in names:
            value = value.get(name) if isinstance(value, dict) else None
        return _Manifest(value, self.name, self._path(*names))

    def items(self, *names: str) -> "list[tuple[str, _Manifest]]":
        """Return the items of a list or mapping, with their numbers or keys."""
        *above, last = names
        container = self.at(*above).tree.get(last)
        path = self._path(*names)
        if isinstance(container, dict):
            pairs = [(key, value, f"{path}.{key}") for key, value in container.items()]
        elif isinstance(container, list):
            pairs = [(str(i), value, f"{path}[{i}]") for i, value in enumerate(container)]
        else:
            pairs = []
        return [(key, _Manifest(value, self.name, item_path)) for key, value, item_path in pairs]

    def count(self, *names: str, default: int = 1) -> int:
        *above, last = names
        value = self.at(*above).tree.get(last)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST_PODS:
            expected = f"must be a number from 0 to {MOST_PODS}, got {value!r}"
            raise InputError(expected, path=self._path(*names))
        return value

    def text(self, *names: str, default: str = "") -> str:
        *above, last = names
        value = self.at(*above).tree.get(last)
        return value if isinstance(value, str) else default

    def template(self, *names: str) -> PodTemplateSpec:
        """Return the template of pods.  Raises InputError if there is none, or a wrong one."""
        subtree, path = self.at(*names), self._path(*names)
        if not subtree.tree:
            raise InputError("must be the template of a pod", path=path)
        template = subtree.typed(PodTemplateSpec)
        check_template(template, path)
        return template

    def typed(self, kind: type[ValueT]) -> ValueT:
        """Return the part as a type.  Raises InputError."""
        try:
            return decode(self.tree, kind)
        except InputError as error:
            raise error.within(path=self.path) from None

    def _path(self, *names: str) -> str:
        return ".".join((*([self.path] if self.path else []), *names))


def _is_idle(tree: JsonObject) -> bool:
    """Return whether the workload is suspended, over, or the business of another cluster."""
    whole = _Manifest(tree, "")
    spec, status = whole.at("spec"), whole.at("status")
    if any(spec.at(*path[:-1]).tree.get(path[-1]) is True for path in _SUSPENDED):
        return True
    manager = next(filter(None, (spec.text(*path) for path in _MANAGED)), "")
    if manager and manager not in _OWN_CONTROLLERS:
        return True
    phases = {
        status.text("phase"),
        status.text("jobDeploymentStatus"),
        status.text("state", "phase"),
    }
    phases |= {
        condition.text("type")
        for _, condition in status.items("conditions")
        if condition.text("status") == "True"
    }
    return not phases.isdisjoint(_ENDED)


def _describes_pods(tree: object, depth: int) -> bool:
    """Return whether containers with images are listed somewhere under a ``spec``."""
    if depth == 0:
        return False
    if isinstance(tree, list):
        return any(_describes_pods(item, depth - 1) for item in tree)
    if not isinstance(tree, dict):
        return False
    listed = tree.get("containers")
    if isinstance(listed, list) and any(isinstance(c, dict) and "image" in c for c in listed):
        return True
    return any(_describes_pods(value, depth - 1) for value in tree.values())


# -- kinds -----------------------------------------------------------------------------------


def _job_set(job_set: _Manifest) -> Iterator[WorkloadPart]:
    for _, listed in job_set.items("spec", "replicatedJobs"):
        name, replicas = listed.text("name"), listed.count("replicas")
        template = listed.template("template", "spec", "template")
        spec = listed.at("template", "spec").typed(PodControllerSpec)
        spec = replace(spec, completion_mode=spec.completion_mode or "Indexed")
        if spec.completions is None and spec.completion_mode == "Indexed":
            spec = replace(spec, completions=listed.count("template", "spec", "parallelism"))
        waits = any(one.text("status") == "Complete" for _, one in listed.items("dependsOn"))
        for index in range(replicas):
            labels = {
                "jobset.sigs.k8s.io/jobset-name": job_set.name,
                "jobset.sigs.k8s.io/replicatedjob-name": name,
                "jobset.sigs.k8s.io/replicatedjob-replicas": str(replicas),
                "jobset.sigs.k8s.io/job-index": str(index),
            }
            called = f"{job_set.name}-{name}-{index}"
            yield WorkloadPart(called, template, -1 if waits else 1, labels, job=spec)


def _kubeflow(field_name: str, *, has_launcher_job: bool = False) -> "_Reader":
    def read(job: _Manifest) -> Iterator[WorkloadPart]:
        for role, listed in job.items("spec", field_name):
            template, called = listed.template("template"), f"{job.name}-{role.lower()}"
            labels = {
                "training.kubeflow.org/job-name": job.name,
                "training.kubeflow.org/replica-type": role.lower(),
            }
            replicas = listed.count("replicas", default=0 if has_launcher_job else 1)
            if role == "Launcher":
                spec = PodControllerSpec(template=template) if has_launcher_job else None
                single = not has_launcher_job
                yield WorkloadPart(called, template, 1, labels, is_single=single, job=spec)
            else:
                yield WorkloadPart(called, template, replicas, labels, first=0)

    return read


def _mpi_job(job: _Manifest) -> Iterator[WorkloadPart]:
    is_v2 = job.text("apiVersion").startswith("kubeflow.org/v2")
    yield from _kubeflow("mpiReplicaSpecs", has_launcher_job=is_v2)(job)


def _ray_groups(cluster: _Manifest, name: str) -> Iterator[WorkloadPart]:
    labels = {"ray.io/cluster": name, "ray.io/node-type": "head"}
    head = cluster.template("headGroupSpec", "template")
    if cluster.tree.get("enableInTreeAutoscaling") is True:
        options = cluster.at("autoscalerOptions")
        head = _with_container(head, "autoscaler", options.tree.get("resources") or _AUTOSCALER)
    yield WorkloadPart(f"{name}-head", head, 1, labels)
    for _, group in cluster.items("workerGroupSpecs"):
        least = group.count("minReplicas", default=0)
        most = group.count("maxReplicas", default=MOST_PODS)
        replicas = min(max(group.count("replicas", default=0), least), most)
        called = group.text("groupName")
        own = {"ray.io/cluster": name, "ray.io/node-type": "worker", "ray.io/group": called}
        count = 0 if group.tree.get("suspend") is True else replicas * group.count("numOfHosts")
        yield WorkloadPart(f"{name}-{called}-worker", group.template("template"), count, own)


def _ray_cluster(cluster: _Manifest) -> Iterator[WorkloadPart]:
    yield from _ray_groups(cluster.at("spec"), cluster.name)


def _ray_service(service: _Manifest) -> Iterator[WorkloadPart]:
    yield from _ray_groups(service.at("spec", "rayClusterConfig"), service.name)


def _ray_job(job: _Manifest) -> Iterator[WorkloadPart]:
    groups: list[WorkloadPart] = []
    mode = job.text("spec", "submissionMode", default="K8sJobMode")
    if not job.at("spec", "clusterSelector").tree:
        groups = list(_ray_groups(job.at("spec", "rayClusterSpec"), job.name))
        if mode == "SidecarMode":
            head = _with_container(groups[0].template, "ray-job-submitter", _SUBMITTER)
            groups[0] = dataclasses.replace(groups[0], template=head)
        yield from groups
    if mode != "K8sJobMode":
        return
    if job.at("spec", "submitterPodTemplate").tree:
        template = job.template("spec", "submitterPodTemplate")
    else:
        containers = groups[0].template.spec.containers if groups else ()
        image = containers[0].image if containers else ""
        submitter = {"name": "ray-job-submitter", "image": image, "resources": _SUBMITTER}
        template = decode(
            {"spec": {"restartPolicy": "Never", "containers": [submitter]}}, PodTemplateSpec
        )
    spec = PodControllerSpec(template=template)
    yield WorkloadPart(job.name, template, labels={"ray.io/job-name": job.name}, job=spec)


def _with_container(template: PodTemplateSpec, name: str, resources: Any) -> PodTemplateSpec:
    """Return the template with a container that an operator adds, of the image of the first."""
    containers = template.spec.containers
    image = containers[0].image if containers else ""
    added = decode({"name": name, "image": image, "resources": resources}, Container)
    return replace(template, spec=replace(template.spec, containers=(*containers, added)))


def _leader_worker_set(whole: _Manifest) -> Iterator[WorkloadPart]:
    groups = whole.at("spec", "leaderWorkerTemplate")
    size, prefix = groups.count("size"), "leaderworkerset.sigs.k8s.io"
    worker = groups.template("workerTemplate")
    has_leader = bool(groups.at("leaderTemplate").tree)
    leader = groups.template("leaderTemplate") if has_leader else worker
    for group in range(whole.count("spec", "replicas")):
        name = f"{whole.name}-{group}"
        labels = {f"{prefix}/name": whole.name, f"{prefix}/group-index": str(group)}
        first = labels | {f"{prefix}/worker-index": "0"}
        yield WorkloadPart(name, leader, 1, first, is_single=True)
        yield WorkloadPart(name, worker, size - 1 if size else 0, labels, first=1)


def _volcano_job(job: _Manifest) -> Iterator[WorkloadPart]:
    scheduler = job.text("spec", "schedulerName", default="volcano")
    for index, task in job.items("spec", "tasks"):
        template = task.template("template")
        if not template.spec.scheduler_name:
            template = replace(template, spec=replace(template.spec, scheduler_name=scheduler))
        name = task.text("name", default=f"default{index}")
        labels = {"volcano.sh/job-name": job.name, "volcano.sh/task-spec": name}
        called = f"{job.name}-{name}"
        yield WorkloadPart(called, template, task.count("replicas"), labels, first=0)


def _replicated(whole: _Manifest) -> Iterator[WorkloadPart]:
    if whole.at("spec", "workloadRef").tree:
        raise InputError("its template is that of another object", path="spec.workloadRef")
    template = whole.template("spec", "template")
    yield WorkloadPart(whole.name, template, whole.count("spec", "replicas"))


def _kruise_stateful_set(whole: _Manifest) -> Iterator[WorkloadPart]:
    if whole.items("spec", "volumeClaimTemplates"):
        raise InputError("claims are not made", path="spec.volumeClaimTemplates")
    template, count = whole.template("spec", "template"), whole.count("spec", "replicas")
    yield WorkloadPart(whole.name, template, count, first=0)


_Reader = Callable[[_Manifest], Iterator[WorkloadPart]]
_READERS: Final[Mapping[tuple[str, str], _Reader]] = {
    ("jobset.x-k8s.io", "JobSet"): _job_set,
    ("kubeflow.org", "PyTorchJob"): _kubeflow("pytorchReplicaSpecs"),
    ("kubeflow.org", "TFJob"): _kubeflow("tfReplicaSpecs"),
    ("kubeflow.org", "XGBoostJob"): _kubeflow("xgbReplicaSpecs"),
    ("kubeflow.org", "PaddleJob"): _kubeflow("paddleReplicaSpecs"),
    ("kubeflow.org", "JAXJob"): _kubeflow("jaxReplicaSpecs"),
    ("kubeflow.org", "MXJob"): _kubeflow("mxReplicaSpecs"),
    ("kubeflow.org", "MPIJob"): _mpi_job,
    ("ray.io", "RayCluster"): _ray_cluster,
    ("ray.io", "RayJob"): _ray_job,
    ("ray.io", "RayService"): _ray_service,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): _leader_worker_set,
    ("batch.volcano.sh", "Job"): _volcano_job,
    ("argoproj.io", "Rollout"): _replicated,
    ("apps.kruise.io", "CloneSet"): _replicated,
    ("apps.kruise.io", "StatefulSet"): _kruise_stateful_set,
}
OPERATOR_GROUPS: Final = frozenset(group for group, _ in (*_READERS, *_UNSIMULATED))


def pod_of(template: PodTemplateSpec, meta: ObjectMeta) -> Pod:
    """Return a pod of the template with the name, labels and owner of ``meta``."""
    return with_defaults(Pod(metadata=meta, spec=template.spec))


def check_template(template: PodTemplateSpec, path: str) -> None:
    """Raise InputError with the path if pods of the template are invalid."""
    sample = ObjectMeta(
        name="sample",
        namespace="default",
        labels=template.metadata.labels,
        annotations=template.metadata.annotations,
    )
    try:
        validate(pod_of(template, sample))
    except InputError as error:
        raise InputError(error.problem, path=f"{path}.{error.path}") from None
