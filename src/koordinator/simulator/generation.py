"""Generation of a workload's nodes with devices, pods with arrival times, and failures.

Everything is drawn before the run starts.  Each pool and stream has its own random generator,
seeded by the run's seed and its name, so that a new stream does not change the others.

Nodes of a pool, with the Device objects of their GPUs.
"""

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec.structs import replace

from koordinator.api import labels, resource_names
from koordinator.api.annotations.node import YARN_NODE_ID
from koordinator.api.codec import decode, decode_object
from koordinator.api.core import ResourceList, Taint
from koordinator.api.defaults import with_defaults
from koordinator.api.device import Device, DeviceInfo, DeviceSpec, DeviceType
from koordinator.api.meta import JsonObject, KubeObject, ObjectMeta
from koordinator.api.node import Node, NodeSpec, NodeStatus
from koordinator.api.pod import Pod
from koordinator.api.registry import BY_NAME
from koordinator.api.workload import PodController
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.quantity import Quantity
from koordinator.simulator.job_metrics import NodeRates
from koordinator.simulator.operator_workloads import (
    OPERATOR_GROUPS,
    OperatorWorkload,
    read_operator_workload,
)
from koordinator.simulator.pod_controllers import (
    CONTROLLER_KINDS,
    check_controller,
    not_simulated,
    with_pods,
)
from koordinator.simulator.pod_streams import priority_classes, submissions_of
from koordinator.simulator.stages import READY_CONDITION
from koordinator.simulator.workload import NodePool, PowerConfig, Workload
from koordinator.simulator.world import Submission

ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"
POOL = "koordinator.sh/node-pool"

_KNOWN_GROUPS: Final = frozenset(version.rpartition("/")[0] for version, _ in BY_NAME)


def nodes_of(pool: NodePool) -> Iterator[KubeObject]:
    """Yield the nodes of a pool, each followed by its Device object if it has GPUs."""
    digits = len(str(pool.count - 1))
    for number in range(pool.count):
        labels = {POOL: pool.name}
        if pool.zones:
            labels[ZONE] = pool.zones[number % len(pool.zones)]
        yield from node_objects(pool, f"{pool.name}-{number:0{digits}}", labels)


def node_objects(pool: NodePool, name: str, labels: dict[str, str]) -> Iterator[KubeObject]:
    """Yield one node of a pool with further labels, and its Device object if it has GPUs."""
    own = {HOSTNAME: name, **labels}
    amounts: ResourceList = {
        resource_names.CPU: pool.cpu,
        resource_names.MEMORY: pool.memory,
        resource_names.PODS: Quantity.from_int(pool.max_pods),
    }
    device = _device(pool, name)
    if device is not None:
        own |= device.metadata.labels
        amounts |= _published(device)
    yield Node(
        metadata=ObjectMeta(name=name, labels={**own, **pool.labels}),
        spec=NodeSpec(
            taints=tuple(Taint(key=t.key, effect=t.effect, value=t.value) for t in pool.taints)
        ),
        status=NodeStatus(capacity=amounts, allocatable=amounts, conditions=(READY_CONDITION,)),
    )
    if device is not None:
        yield device


def _device(pool: NodePool, node: str) -> Device | None:
    """Return the Device that koordlet would report for the node's GPUs."""
    if pool.gpus is None:
        return None
    whole = Quantity.from_int(resource_names.WHOLE_DEVICE)
    resources = {
        resource_names.GPU_CORE: whole,
        resource_names.GPU_MEMORY_RATIO: whole,
        resource_names.GPU_MEMORY: pool.gpus.memory,
    }
    own = {labels.GPU_VENDOR: labels.GpuVendor.NVIDIA.value}
    if pool.gpus.model:
        own[labels.GPU_MODEL] = pool.gpus.model
    infos = tuple(
        DeviceInfo(
            type=DeviceType.GPU,
            id=f"GPU-{node}-{minor}",
            minor=minor,
            health=True,
            resources=resources,
        )
        for minor in range(pool.gpus.count)
    )
    return Device(metadata=ObjectMeta(name=node, labels=own), spec=DeviceSpec(devices=infos))


def _published(device: Device) -> ResourceList:
    """Return the resources that koord-manager and NVIDIA's device plugin publish on the node.

    Source: koordinator pkg/slo-controller/noderesource/plugins/gpudeviceresource.
    """
    infos = device.spec.devices
    amounts: ResourceList = {}
    for name in (
        resource_names.GPU_CORE,
        resource_names.GPU_MEMORY_RATIO,
        resource_names.GPU_MEMORY,
    ):
        total = sum(info.resources[name].value() for info in infos)
        amounts[name] = Quantity.from_int(total, binary=name == resource_names.GPU_MEMORY)
    amounts[resource_names.GPU] = amounts[resource_names.GPU_CORE]
    amounts[resource_names.NVIDIA_GPU] = Quantity.from_int(len(infos))
    return amounts


if TYPE_CHECKING:  # YARN is an optional part
    from koordinator.simulator.yarn import SimulatedApplication


@dataclass(frozen=True, slots=True)
class Outage:
    """Outage of a node from ``at_s``; an infinite repair time lasts to the end."""

    node: str
    at_s: float
    repaired_after_s: float


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """Creation, change or deletion of an object other than a pod."""

    at_s: float
    object: KubeObject
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class SimulationPlan:
    """All external events of a run."""

    objects: tuple[KubeObject, ...]  # existing at the start
    nodes: dict[str, tuple[str, ...]]  # node names by pool
    submissions: tuple[Submission, ...]
    outages: tuple[Outage, ...]
    applications: "tuple[SimulatedApplication, ...]" = ()  # of YARN, in order of time
    node_managers: tuple[str, ...] = ()  # nodes that run one
    changes: "tuple[PlannedChange, ...]" = ()  # of other objects than pods, in order of time
    ranks: Mapping[str, int] = field(default_factory=dict)  # of nodes; the lowest wins a tie
    ends_s: float | None = None  # None: the horizon of the source
    sample_every_s: float | None = None  # None: the interval of the source
    rates: Mapping[str, NodeRates] = field(default_factory=dict)  # by pool
    order: str = ""  # description of the order of arrival, where it is drawn


def generate(workload: Workload, seed: int, until_s: float) -> SimulationPlan:
    """Draw all events up to a time."""
    objects: list[KubeObject] = []
    given: list[KubeObject | OperatorWorkload]
    nodes: dict[str, tuple[str, ...]] = {}
    for pool in workload.node_pools:
        made = list(nodes_of(pool))
        if runs_node_managers(workload, pool.name):
            made = [_with_node_manager(obj) if isinstance(obj, Node) else obj for obj in made]
        objects += made
        nodes[pool.name] = tuple(obj.metadata.name for obj in made if isinstance(obj, Node))
    submissions: list[Submission] = []
    for stream in workload.pod_streams:
        rng = _generator(seed, "stream", stream.name)
        submissions += submissions_of(stream, workload, until_s, rng)
    objects += priority_classes(workload)
    objects += other_objects(workload)
    given, objects = [*objects, *operator_workloads(workload)], []
    for obj in with_pods(given, pod_controllers(workload)):
        if isinstance(obj, Pod):
            owner = obj.metadata.owner_references[0]
            submissions.append(Submission(0.0, obj, kind=f"{owner.kind} {owner.name}"))
        else:
            objects.append(obj)
    outages = tuple(_outages(workload, nodes, seed, until_s))
    return SimulationPlan(
        tuple(objects),
        nodes,
        tuple(submissions),
        outages,
        tuple(_applications(workload, seed, until_s)),
        tuple(
            name
            for pool, names in nodes.items()
            if runs_node_managers(workload, pool)
            for name in names
        ),
        rates={pool.name: _rates(pool) for pool in workload.node_pools},
    )


def runs_node_managers(workload: Workload, pool: str) -> bool:
    """Return whether the nodes of a pool run NodeManagers of YARN."""
    yarn = workload.yarn
    return yarn is not None and (not yarn.pools or pool in yarn.pools)


def other_objects(workload: Workload) -> list[KubeObject]:
    """Return the manifests without workloads of operators.  Raises InputError with the path."""
    return [obj for _, _, obj in _manifests(workload) if not isinstance(obj, OperatorWorkload)]


def operator_workloads(workload: Workload) -> list[OperatorWorkload]:
    """Return the workloads of operators among the manifests.  Raises InputError with the path."""
    return [obj for _, _, obj in _manifests(workload) if isinstance(obj, OperatorWorkload)]


def _rates(pool: NodePool) -> NodeRates:
    power = pool.power or PowerConfig()
    return NodeRates(pool.hourly_price, power.idle_watts, power.cpu_watts, power.gpu_watts)


def unsimulated(workload: Workload) -> list[str]:
    """Return a sentence for each object whose pods, or some of them, the simulation leaves out."""
    return not_simulated(obj for _, _, obj in _manifests(workload))


def pod_controllers(
    workload: Workload,
) -> dict[tuple[type[KubeObject], str], PodController]:
    """Return how workloads among the manifests make pods.  Raises InputError with the path."""
    controllers = {}
    for path, manifest, obj in _manifests(workload):
        if isinstance(obj, CONTROLLER_KINDS):
            try:
                controller = decode(manifest, PodController)
                check_controller(obj, controller)
            except InputError as error:
                raise error.within(path=path) from None
            controllers[type(obj), obj.key] = controller
    return controllers


def _manifests(
    workload: Workload,
) -> Iterator[tuple[str, JsonObject, KubeObject | OperatorWorkload]]:
    """Yield path, manifest and object."""
    for index, manifest in enumerate(workload.objects):
        path = f"objects[{index}]"
        try:
            yield path, manifest, _operator_workload(manifest) or _object(manifest)
        except InputError as error:
            raise error.within(path=path) from None


def _object(manifest: JsonObject) -> KubeObject:
    obj = with_defaults(decode_object(manifest))
    if isinstance(obj, Pod | Node):
        raise InputError(
            f"must not be a {obj.KIND}: nodes come from nodePools, pods from podStreams",
            path="kind",
        )
    return obj


def _operator_workload(manifest: JsonObject) -> OperatorWorkload | None:
    """Return the pods that an operator creates for a manifest; None for other kinds.

    A kind without reader counts if its group is neither of Kubernetes nor of Koordinator and it
    describes pods.
    """
    version, kind = manifest.get("apiVersion"), manifest.get("kind")
    if not (isinstance(version, str) and isinstance(kind, str)):
        return None
    group = version.rpartition("/")[0]
    if group not in OPERATOR_GROUPS and (
        "." not in group or group.endswith(".k8s.io") or group in _KNOWN_GROUPS
    ):
        return None
    return read_operator_workload(version, kind, manifest)


def _generator(seed: int, role: str, name: str) -> np.random.Generator:
    return np.random.default_rng([seed, *f"{role}/{name}".encode()])


def _with_node_manager(node: Node) -> Node:
    from koordinator.simulator.yarn import node_manager_id  # noqa: PLC0415 -- optional

    meta = node.metadata
    noted = {**meta.annotations, YARN_NODE_ID: node_manager_id(meta.name)}
    return replace(node, metadata=replace(meta, annotations=noted))


def _applications(workload: Workload, seed: int, until_s: float) -> "list[SimulatedApplication]":
    if workload.yarn is None:
        return []
    from koordinator.simulator.yarn import applications_of  # noqa: PLC0415 -- optional

    queues = workload.yarn.queues
    applications: list[SimulatedApplication] = []
    for queue in queues:
        applications += applications_of(queue, until_s, _generator(seed, "queue", queue.name))
    applications.sort(key=lambda each: each.at_s)
    for number, application in enumerate(applications, 1):
        application.number = number
    return applications


def _outages(
    workload: Workload, nodes: dict[str, tuple[str, ...]], seed: int, until_s: float
) -> Iterator[Outage]:
    for failure in workload.failures:
        rng = _generator(seed, "failures", failure.pool)
        repair = failure.repair.build()
        mtbf_s = failure.mtbf.total_seconds()
        for node in nodes[failure.pool]:
            at_s = float(rng.exponential(mtbf_s))
            while at_s <= until_s:
                repaired_after_s = repair.draw(rng)
                yield Outage(node, at_s, repaired_after_s)
                at_s += repaired_after_s + float(rng.exponential(mtbf_s))
    for index, outage in enumerate(workload.outages):
        rng = _generator(seed, "outages", str(index))
        repair = outage.repair.build()
        for node in nodes[outage.pool][outage.first : outage.first + outage.nodes]:
            yield Outage(node, outage.at.total_seconds(), repair.draw(rng))
