"""The pods that workloads make: what Kubernetes' controllers would create, all at once.

Names end in hashes of their owner instead of chance: the same input makes the same pods.

Source: kubernetes pkg/controller/controller_utils.go ``GetPodFromTemplate``; deployment/sync.go;
daemon/util/daemonset_util.go; statefulset/stateful_set_utils.go; job/job_controller.go,
indexed_job_utils.go; k8s.io/apiserver pkg/storage/names/generate.go.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from koordinator.api.codec import encode_part
from koordinator.api.conditions import is_condition_true
from koordinator.api.core import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Toleration,
)
from koordinator.api.defaults import with_defaults
from koordinator.api.meta import KubeObject, LabelSelector, ObjectMeta, OwnerReference
from koordinator.api.node import Node
from koordinator.api.pod import Pod, PodSpec, PodTemplateSpec, is_terminal
from koordinator.api.selectors import matches
from koordinator.api.volume import PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Volume
from koordinator.api.workload import (
    CronJob,
    DaemonSet,
    Deployment,
    Job,
    PodController,
    PodControllerSpec,
    ReplicaSet,
    ReplicationController,
    StatefulSet,
    WorkloadSpec,
)
from koordinator.domain.node_selection import FORBIDDING, untolerated
from koordinator.foundation.errors import BugError, InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.snapshot import ClusterState, Snapshot
from koordinator.scheduler.snapshot.selection import matches_required
from koordinator.simulator.operator_workloads import (
    MOST_PODS,
    OperatorWorkload,
    WorkloadPart,
    check_template,
    pod_of,
)

CONTROLLER_KINDS: tuple[type[KubeObject], ...] = (
    Deployment,
    ReplicaSet,
    ReplicationController,
    StatefulSet,
    DaemonSet,
    Job,
    CronJob,
)
Controllers = Mapping[tuple[type[KubeObject], str], PodController]


_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # no vowels: no words
_SUFFIX = 5  # characters
_NAMES = len(_ALPHABET) ** _SUFFIX
_STRIDE = 1_000_003  # coprime to _NAMES: numbers in a row get names apart, and each another one
_LONGEST_BASE = 63 - _SUFFIX
_POD_TEMPLATE_HASH = "pod-template-hash"
_REVISION_HASH = "controller-revision-hash"
_INDEX = "batch.kubernetes.io/job-completion-index"
_JOB_CONTROLLER = "kubernetes.io/job-controller"
_JOB_ENDS = frozenset(("Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"))

#: What every pod of a DaemonSet tolerates: key, effect.
_DAEMON_TOLERATIONS = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
_OF_HOST_NETWORK = ("node.kubernetes.io/network-unavailable", "NoSchedule")


@dataclass(frozen=True, slots=True)
class _Owner:
    """Owner of a pod, and the labels that its pods inherit."""

    kind: type[KubeObject] | OperatorWorkload
    meta: ObjectMeta
    labels: Mapping[str, str]

    @property
    def kind_name(self) -> str:
        return self.kind.kind if isinstance(self.kind, OperatorWorkload) else self.kind.KIND

    @property
    def reference(self) -> OwnerReference:
        kind = self.kind
        return OwnerReference(
            api_version=kind.api_version
            if isinstance(kind, OperatorWorkload)
            else kind.API_VERSION,
            kind=self.kind_name,
            name=self.meta.name,
            uid=self.meta.uid,
            controller=True,
            block_owner_deletion=True,
        )


def with_pods(
    objects: Iterable[KubeObject | OperatorWorkload], controllers: Controllers
) -> list[KubeObject]:
    """Return the objects, each workload followed by the pods that it lacks.

    Pods of the input that a workload owns, directly or through a ReplicaSet or Job, count, and so
    do pods without owner that it would adopt.  A DaemonSet's pods are made for the nodes among the
    objects that it may run on.  ReplicaSets of Deployments, Jobs of CronJobs and claims of
    StatefulSets are made, too.  Workloads of operators are replaced by their objects.
    """
    listed = list(objects)
    given = [obj for obj in listed if isinstance(obj, KubeObject)]
    workloads = [obj for obj in listed if isinstance(obj, OperatorWorkload)]
    if not controllers and not workloads:
        return given
    making = _Making(given, workloads, controllers)
    for owner in given:
        controller = controllers.get((type(owner), owner.key))
        if controller is not None and owner.metadata.deletion_timestamp is None:
            making.adopt(owner, controller)
    made: list[KubeObject] = []
    for obj in listed:
        if isinstance(obj, OperatorWorkload):
            made += making.of_operator(obj)
            continue
        made.append(obj)
        controller = controllers.get((type(obj), obj.key))
        if controller is not None and obj.metadata.deletion_timestamp is None:
            name, namespace = obj.metadata.name, obj.metadata.namespace
            meta = replace(controller.metadata, name=name, namespace=namespace)
            made += making.of(type(obj), replace(controller, metadata=meta))
    return made


def not_simulated(objects: Iterable[KubeObject | OperatorWorkload]) -> list[str]:
    """Return a sentence for each workload whose pods are not made, and not among the objects."""
    listed = list(objects)
    owners = {
        (reference.kind, obj.metadata.namespace, reference.name)
        for obj in listed
        if isinstance(obj, KubeObject)
        for reference in obj.metadata.owner_references
    }
    return [
        obj.notice
        for obj in listed
        if isinstance(obj, OperatorWorkload)
        and obj.unsimulated
        and (obj.kind, obj.meta.namespace, obj.meta.name) not in owners
    ]


def check_controller(workload: KubeObject, controller: PodController) -> None:
    """Raise InputError with the path if no pods can be made: no template, or an invalid one."""
    spec, path = controller.spec, "spec"
    if isinstance(workload, CronJob):
        if spec.job_template is None:
            raise InputError("is required", path="spec.jobTemplate")
        spec, path = spec.job_template.spec, "spec.jobTemplate.spec"
    if spec.template is None:
        raise InputError("is required", path=f"{path}.template")
    counts = (("replicas", spec.replicas), ("parallelism", spec.parallelism))
    for name, count in (*counts, ("completions", spec.completions)):
        if count is not None and not 0 <= count <= MOST_PODS:
            raise InputError(f"must be 0..{MOST_PODS}, got {count}", path=f"{path}.{name}")
    for index, claim in enumerate(spec.volume_claim_templates):
        if not claim.metadata.name:
            at = f"{path}.volumeClaimTemplates[{index}].metadata.name"
            raise InputError("is required", path=at)
    if spec.completion_mode == "Indexed" and spec.completions is None and spec.parallelism:
        raise InputError("required with completionMode Indexed", path=f"{path}.completions")
    check_template(spec.template, f"{path}.template")
    _check_fit(workload, controller, spec.template, path)


def _check_fit(
    workload: KubeObject, controller: PodController, template: PodTemplateSpec, path: str
) -> None:
    """Check that a template makes pods as the workload needs them."""
    policies = ("OnFailure", "Never") if isinstance(workload, Job | CronJob) else ("Always", "")
    policy = template.spec.restart_policy
    if policy not in policies:
        problem = f"must be {' or '.join(filter(None, policies))}, got {policy or 'Always'}"
        raise InputError(problem, path=f"{path}.template.spec.restartPolicy")
    selector, labels = _selector(workload, controller), template.metadata.labels
    if selector is not None and not matches(selector, labels):
        raise InputError(
            f"must have the labels that spec.selector selects, got {labels or 'none'}",
            path=f"{path}.template.metadata.labels",
        )


class _Making:
    def __init__(
        self,
        given: Sequence[KubeObject],
        workloads: Sequence[OperatorWorkload],
        controllers: Controllers,
    ) -> None:
        self._controllers = controllers
        self._workloads = workloads
        self._orphans: dict[str, list[KubeObject]] = {}  # by namespace: those without controller
        self._adopted_sets: set[str] = set()
        self._nodes = [obj for obj in given if isinstance(obj, Node)]
        self._keys = {(type(obj), obj.key) for obj in given}
        self._owned: dict[tuple[str, str, str], list[KubeObject]] = {}
        self._state: ClusterState | None = None
        for obj in given:
            for reference in obj.metadata.owner_references:
                if reference.controller:
                    by = (reference.kind, obj.metadata.namespace, reference.name)
                    self._owned.setdefault(by, []).append(obj)
                    break
            else:
                if isinstance(obj, Pod | ReplicaSet) and not obj.metadata.deletion_timestamp:
                    self._orphans.setdefault(obj.metadata.namespace, []).append(obj)

    def adopt(self, workload: KubeObject, controller: PodController) -> None:
        """Count objects without controller that the workload's selector selects as its own."""
        meta = workload.metadata
        selector = _selector(workload, controller)
        if selector is None or not self._orphans.get(meta.namespace):
            return
        wanted = ReplicaSet if isinstance(workload, Deployment) else Pod
        left: list[KubeObject] = []
        for orphan in self._orphans[meta.namespace]:
            takes = isinstance(orphan, wanted) and matches(selector, orphan.metadata.labels)
            if takes and isinstance(workload, StatefulSet):
                name, _, number = orphan.metadata.name.rpartition("-")
                takes = name == meta.name and number.isdecimal()
            if takes and not (isinstance(orphan, Pod) and is_terminal(orphan)):
                key = (workload.KIND, meta.namespace, meta.name)
                self._owned.setdefault(key, []).append(orphan)
                if isinstance(orphan, ReplicaSet):
                    self._adopted_sets.add(orphan.key)
            else:
                left.append(orphan)
        self._orphans[meta.namespace] = left

    def of_operator(self, workload: OperatorWorkload) -> Iterator[KubeObject]:
        """Yield the objects that an operator's controller would create for a workload."""
        # An operator may create another workload, which then owns the pods: they must not be made
        # twice.
        delegates = any(
            reference.kind == workload.kind and reference.name == workload.meta.name
            for other in self._workloads
            if other.meta.namespace == workload.meta.namespace
            for reference in other.meta.owner_references
        )
        for part in workload.parts:
            if part.job is not None:
                yield from self._job_of_part(workload, part)
                continue
            if delegates:
                continue
            owner = _Owner(workload, workload.meta, part.labels)
            if part.is_single or part.first is not None:
                numbers = range(part.count)
                first = part.first or 0
                names = [f"{part.name}-{first + n}" for n in numbers]
                for name in [part.name] if part.is_single else names:
                    key = (Pod, f"{workload.meta.namespace}/{name}")
                    if key not in self._keys:
                        self._keys.add(key)
                        yield _pod(part.template, owner, name)
                continue
            existing = [
                pod
                for pod in self._active(owner)
                if part.labels.items() <= pod.metadata.labels.items()
            ]
            base = replace(workload.meta, name=part.name)
            for number in range(len(existing), part.count):
                yield _pod(part.template, owner, self._free_name(base, number))

    def _job_of_part(self, workload: OperatorWorkload, part: WorkloadPart) -> Iterator[KubeObject]:
        key = (Job, f"{workload.meta.namespace}/{part.name}")
        if part.job is None or key in self._keys:
            return
        self._keys.add(key)
        meta = ObjectMeta(
            name=part.name,
            namespace=workload.meta.namespace,
            labels=dict(part.labels),
            owner_references=(_Owner(workload, workload.meta, {}).reference,),
        )
        yield Job(metadata=meta)
        template = replace(
            part.template,
            metadata=replace(
                part.template.metadata, labels={**part.template.metadata.labels, **part.labels}
            ),
        )
        yield from self._of_job(
            PodController(metadata=meta, spec=replace(part.job, template=template))
        )

    def of(self, kind: type[KubeObject], controller: PodController) -> Iterator[KubeObject]:
        """Yield the objects that controllers of Kubernetes would create for a workload."""
        meta, spec = controller.metadata, controller.spec
        if kind is Deployment:
            yield from self._of_deployment(meta, spec)
        elif kind is CronJob:
            yield from self._of_cron_job(meta, spec)
        elif kind is Job:
            yield from self._of_job(controller)
        elif kind is DaemonSet:
            yield from self._of_daemon_set(meta, spec)
        elif kind is StatefulSet:
            yield from self._of_stateful_set(meta, spec)
        elif not (kind is ReplicaSet and self._is_of_deployment(meta)):
            owner = _Owner(kind, meta, {})
            yield from self._replicas(owner, spec, _wanted(spec.replicas))

    def _active(self, owner: _Owner) -> list[Pod]:
        owned = self._owned.get((owner.kind_name, owner.meta.namespace, owner.meta.name), ())
        return [
            pod
            for pod in owned
            if isinstance(pod, Pod) and not is_terminal(pod) and not pod.metadata.deletion_timestamp
        ]

    def _is_of_deployment(self, meta: ObjectMeta) -> bool:
        return f"{meta.namespace}/{meta.name}" in self._adopted_sets or any(
            reference.controller
            and reference.kind == Deployment.KIND
            and (Deployment, f"{meta.namespace}/{reference.name}") in self._keys
            for reference in meta.owner_references
        )

    def _replicas(self, owner: _Owner, spec: PodControllerSpec, wanted: int) -> Iterator[Pod]:
        template = _template(spec)
        for number in range(len(self._active(owner)), wanted):
            yield _pod(template, owner, self._free_name(owner.meta, number))

    def _free_name(self, meta: ObjectMeta, number: int) -> str:
        name = _generated(meta, number)
        while (Pod, f"{meta.namespace}/{name}") in self._keys:
            number += _NAMES // 2  # far from those in a row
            name = _generated(meta, number)
        self._keys.add((Pod, f"{meta.namespace}/{name}"))
        return name

    def _of_deployment(self, meta: ObjectMeta, spec: PodControllerSpec) -> Iterator[KubeObject]:
        owned = self._owned.get((Deployment.KIND, meta.namespace, meta.name), ())
        sets = [each for each in owned if isinstance(each, ReplicaSet)]
        existing = sum(len(self._active(_Owner(ReplicaSet, each.metadata, {}))) for each in sets)
        template = _template(spec)
        if spec.paused:
            if not sets:
                return
            set_of = self._controllers.get((ReplicaSet, max(sets, key=_revision).key))
            template = template if set_of is None else _template(set_of.spec)
        if sets:
            newest = max(sets, key=_revision).metadata
            code = newest.labels.get(_POD_TEMPLATE_HASH, "")
        else:
            code = _code(encode_part(template))
            labels = template.metadata.labels | {_POD_TEMPLATE_HASH: code}
            owner = _Owner(Deployment, meta, {})
            newest = ObjectMeta(
                name=f"{meta.name}-{code}",
                namespace=meta.namespace,
                uid=_uid(ReplicaSet, meta, code),
                labels=labels,
                owner_references=(owner.reference,),
            )
            selector = LabelSelector(match_labels=labels)
            yield ReplicaSet(
                metadata=newest, spec=WorkloadSpec(replicas=spec.replicas, selector=selector)
            )
        owner = _Owner(ReplicaSet, newest, {_POD_TEMPLATE_HASH: code} if code else {})
        count = len(self._active(owner)) + _wanted(spec.replicas) - existing
        yield from self._replicas(owner, replace(spec, template=template), count)

    def _of_cron_job(self, meta: ObjectMeta, spec: PodControllerSpec) -> Iterator[KubeObject]:
        owned = self._owned.get((CronJob.KIND, meta.namespace, meta.name), ())
        if spec.suspend or spec.job_template is None or any(isinstance(o, Job) for o in owned):
            return
        template = spec.job_template
        owner = _Owner(CronJob, meta, {})
        made = replace(
            template.metadata,
            name=f"{meta.name}-{_code(encode_part(template))}",
            namespace=meta.namespace,
            uid=_uid(Job, meta, "cron"),
            owner_references=(owner.reference,),
        )
        yield Job(metadata=made)
        yield from self._of_job(PodController(metadata=made, spec=template.spec))

    def _of_job(self, job: PodController) -> Iterator[Pod]:
        meta, spec, status = job.metadata, job.spec, job.status
        if spec.parallelism is None and spec.completions is None:
            spec = replace(spec, completions=1)
        ended = any(is_condition_true(status.conditions, kind) for kind in _JOB_ENDS)
        if spec.suspend or ended or (spec.managed_by or _JOB_CONTROLLER) != _JOB_CONTROLLER:
            return
        labels = {"job-name": meta.name, "batch.kubernetes.io/job-name": meta.name}
        owner = _Owner(Job, meta, labels)
        owned = self._owned.get((Job.KIND, meta.namespace, meta.name), ())
        pods = [pod for pod in owned if isinstance(pod, Pod)]
        running = len(self._active(owner))
        if spec.pod_replacement_policy == "Failed":
            running += sum(bool(p.metadata.deletion_timestamp) and not is_terminal(p) for p in pods)
        done = _indexes(status.completed_indexes) | _indexes(status.failed_indexes)
        wanted = _wanted(spec.parallelism)
        if spec.completions is not None:
            ended_pods = (
                {_index_of(pod) for pod in pods if pod.status.phase == "Succeeded"}
                if spec.completion_mode == "Indexed"
                else set()
            )
            over = len(done | ended_pods) if done | ended_pods else status.succeeded
            wanted = min(wanted, spec.completions - over)
        elif status.succeeded:
            return  # of a work queue nothing is started once something has succeeded
        if spec.completion_mode != "Indexed":
            for number in range(running, wanted):
                yield _pod(_template(spec), owner, self._free_name(meta, number))
            return
        template = _template(spec)
        taken = {_index_of(pod) for pod in pods if pod.status.phase != "Failed"} | done
        free = (n for n in range(spec.completions or 0) if n not in taken)
        for _ in range(wanted - running):
            index = next(free, None)
            if index is None:
                return
            name = _generated(replace(meta, name=f"{meta.name}-{index}"), index)
            marked = replace(
                template.metadata, annotations=template.metadata.annotations | {_INDEX: str(index)}
            )
            numbered = _Owner(Job, meta, labels | {_INDEX: str(index)})
            yield _pod(replace(template, metadata=marked), numbered, name)

    def _of_daemon_set(self, meta: ObjectMeta, spec: PodControllerSpec) -> Iterator[Pod]:
        template = _template(spec)
        template = replace(template, spec=_as_daemon(template.spec))
        labels = {_REVISION_HASH: _code(encode_part(template)), "pod-template-generation": "1"}
        owner = _Owner(DaemonSet, meta, labels)
        first = with_defaults(Pod(metadata=template.metadata, spec=template.spec))
        served = {_only_node(pod) for pod in self._active(owner)}
        for number, node in enumerate(self._nodes_for(first)):
            name = node.metadata.name
            if name not in served:
                made = _pod(template, owner, self._free_name(meta, number))
                yield replace(made, spec=_pinned(made.spec, name))

    def _nodes_for(self, pod: Pod) -> Iterator[Node]:
        if self._state is None:
            self._state = ClusterState()
            for node in self._nodes:
                self._state.put_node(node)
        wanted = matches_required(Snapshot(self._state), self._state.classes.of(pod))
        for node, is_wanted in zip(self._nodes, wanted, strict=True):
            spec = pod.spec
            named = spec.node_name in {"", node.metadata.name}
            if (
                is_wanted
                and named
                and not untolerated(node.spec.taints, spec.tolerations, FORBIDDING)
            ):
                yield node

    def _of_stateful_set(self, meta: ObjectMeta, spec: PodControllerSpec) -> Iterator[KubeObject]:
        template = _template(spec)
        revision = f"{meta.name}-{_code(encode_part(template))}"
        for ordinal in range(spec.ordinals.start, spec.ordinals.start + _wanted(spec.replicas)):
            name = f"{meta.name}-{ordinal}"
            key = (Pod, f"{meta.namespace}/{name}")
            if key in self._keys:
                continue
            self._keys.add(key)
            labels = {
                _REVISION_HASH: revision,
                "statefulset.kubernetes.io/pod-name": name,
                "apps.kubernetes.io/pod-index": str(ordinal),
            }
            volumes = {volume.name: volume for volume in template.spec.volumes}
            for claim in spec.volume_claim_templates:
                called = f"{claim.metadata.name}-{name}"
                volumes[claim.metadata.name] = Volume(
                    name=claim.metadata.name,
                    persistent_volume_claim=PersistentVolumeClaimVolumeSource(claim_name=called),
                )
                inside = replace(claim.metadata, name=called, namespace=meta.namespace)
                claimed = (PersistentVolumeClaim, f"{meta.namespace}/{called}")
                if claimed not in self._keys:
                    self._keys.add(claimed)
                    yield with_defaults(replace(claim, metadata=inside))
            pod_spec = replace(template.spec, volumes=tuple(volumes.values()))
            owner = _Owner(StatefulSet, meta, labels)
            yield _pod(replace(template, spec=pod_spec), owner, name)


def _template(spec: PodControllerSpec) -> PodTemplateSpec:
    if spec.template is None:
        raise BugError("a workload without a template, which check_controller refuses")
    return spec.template


def _wanted(count: int | None) -> int:
    return 1 if count is None else count


def _pod(template: PodTemplateSpec, owner: _Owner, name: str) -> Pod:
    meta = ObjectMeta(
        name=name,
        namespace=owner.meta.namespace,
        labels={**template.metadata.labels, **owner.labels},
        annotations=template.metadata.annotations,
        finalizers=template.metadata.finalizers,
        owner_references=(owner.reference,),
    )
    return pod_of(template, meta)


def _selector(workload: KubeObject, controller: PodController) -> LabelSelector | None:
    """Return which pods a workload adopts; None if it adopts none."""
    if isinstance(workload, ReplicationController):
        template = controller.spec.template
        labels = workload.spec.selector or (template.metadata.labels if template else {})
        return LabelSelector(match_labels=labels) if labels else None
    if isinstance(workload, Job):
        return workload.spec.selector if controller.spec.manual_selector else None
    if isinstance(workload, Deployment | ReplicaSet | StatefulSet | DaemonSet):
        return workload.spec.selector
    return None


def _indexes(text: str) -> set[int]:
    """Return the numbers of ``1,3-5``; other parts are ignored."""
    indexes: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            indexes.update(range(int(first), min(int(last or first), MOST_PODS) + 1))
    return indexes


def _index_of(pod: Pod) -> int:
    text = pod.metadata.annotations.get(_INDEX, "")
    return int(text) if text.isdecimal() else -1


def _revision(replica_set: ReplicaSet) -> tuple[int, str]:
    text = replica_set.metadata.annotations.get("deployment.kubernetes.io/revision", "0")
    return int(text) if text.isdecimal() else 0, replica_set.metadata.name


def _uid(kind: type[KubeObject], meta: ObjectMeta, salt: str) -> str:
    return f"{_fnv(f'{kind.KIND}/{meta.namespace}/{meta.name}/{salt}'.encode()):08x}"


def _fnv(text: bytes) -> int:
    """Return FNV-1a of 32 bits, which Kubernetes takes for templates."""
    value = 0x811C9DC5
    for byte in text:
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


def _code(text: bytes) -> str:
    return "".join(_ALPHABET[ord(digit) % len(_ALPHABET)] for digit in str(_fnv(text)))


def _generated(meta: ObjectMeta, number: int) -> str:
    """Return a name as of ``generateName``; other numbers give other names."""
    base = f"{meta.name}-"[:_LONGEST_BASE]
    place = (_fnv(f"{meta.namespace}/{meta.name}".encode()) + number * _STRIDE) % _NAMES
    letters = []
    for _ in range(_SUFFIX):
        place, letter = divmod(place, len(_ALPHABET))
        letters.append(_ALPHABET[letter])
    return base + "".join(letters)


def _as_daemon(spec: PodSpec) -> PodSpec:
    wanted = (*_DAEMON_TOLERATIONS, *([_OF_HOST_NETWORK] if spec.host_network else []))
    added = [Toleration(key=key, operator="Exists", effect=effect) for key, effect in wanted]
    kept = [each for each in spec.tolerations if (each.key, each.effect) not in wanted]
    return replace(spec, tolerations=(*kept, *added))


def _pinned(spec: PodSpec, node: str) -> PodSpec:
    """Return the spec with its required node affinity replaced by the name of a node."""
    field = NodeSelectorRequirement(key="metadata.name", operator="In", values=(node,))
    only = NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(field,)),))
    affinity = spec.affinity or Affinity()
    of_node = replace(
        affinity.node_affinity or NodeAffinity(),
        required_during_scheduling_ignored_during_execution=only,
    )
    return replace(spec, affinity=replace(affinity, node_affinity=of_node))


def _only_node(pod: Pod) -> str:
    """Return the node that a DaemonSet's pod is for; empty if it does not say."""
    required = pod.spec.required_node_affinity
    terms = required.node_selector_terms if required else ()
    named = [v for term in terms for field in term.match_fields for v in field.values]
    return pod.spec.node_name or (named[0] if named else "")
