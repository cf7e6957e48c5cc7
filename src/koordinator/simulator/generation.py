"""Generation of a workload's nodes with devices, pods with arrival times, and failures.

Everything is drawn before the run starts.  Each pool and stream has its own random generator,
seeded by the run's seed and its name, so that a new stream does not change the others.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec.structs import replace

from koordinator.api.annotations.node import YARN_NODE_ID
from koordinator.api.codec import decode, decode_object
from koordinator.api.defaults import with_defaults
from koordinator.api.meta import JsonObject, KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.registry import BY_NAME
from koordinator.api.workload import PodController
from koordinator.foundation.errors import InputError
from koordinator.simulator.job_metrics import NodeRates
from koordinator.simulator.node_pools import nodes_of
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
from koordinator.simulator.workload import NodePool, PowerConfig, Workload
from koordinator.simulator.world import Submission

if TYPE_CHECKING:  # YARN is an optional part
    from koordinator.simulator.yarn.applications import SimulatedApplication


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
    found = {}
    for path, manifest, obj in _manifests(workload):
        if isinstance(obj, CONTROLLER_KINDS):
            try:
                controller = decode(manifest, PodController)
                check_controller(obj, controller)
            except InputError as error:
                raise error.within(path=path) from None
            found[type(obj), obj.key] = controller
    return found


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
    """Return what an operator makes of a manifest; None for other kinds.

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


_KNOWN_GROUPS: Final = frozenset(version.rpartition("/")[0] for version, _ in BY_NAME)


def _generator(seed: int, role: str, name: str) -> np.random.Generator:
    return np.random.default_rng([seed, *f"{role}/{name}".encode()])


def _with_node_manager(node: Node) -> Node:
    from koordinator.simulator.yarn.applications import node_manager_id  # noqa: PLC0415 -- optional

    meta = node.metadata
    noted = {**meta.annotations, YARN_NODE_ID: node_manager_id(meta.name)}
    return replace(node, metadata=replace(meta, annotations=noted))


def _applications(workload: Workload, seed: int, until_s: float) -> "list[SimulatedApplication]":
    if workload.yarn is None:
        return []
    from koordinator.simulator.yarn.applications import applications_of  # noqa: PLC0415 -- optional

    queues = workload.yarn.queues
    found: list[SimulatedApplication] = []
    for queue in queues:
        found += applications_of(queue, until_s, _generator(seed, "queue", queue.name))
    found.sort(key=lambda each: each.at_s)
    for number, application in enumerate(found, 1):
        application.number = number
    return found


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
