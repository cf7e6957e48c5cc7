"""Goals of GPU defragmentation: pending gangs and stranded GPUs.

Source: ``domain.gpus.price``, whose prices are solved for on the cluster as it is.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from koordinator.api.annotations.devices import GPU_PARTITION_SPEC
from koordinator.api.annotations.gang import NETWORK_TOPOLOGY_SPEC, gang_name, min_available
from koordinator.api.annotations.numa import NUMA_TOPOLOGY_SPEC
from koordinator.api.cluster_network_topology import ClusterNetworkTopology
from koordinator.api.pod import Pod
from koordinator.api.pod_groups import PodGroup
from koordinator.descheduler.contract import ClusterView, MoveGain, Relocation
from koordinator.descheduler.plugins.gpu_defragmentation.gpu_cluster import GpuCluster, SlotGroups
from koordinator.descheduler.plugins.gpu_defragmentation.room import (
    RoomLedger,
    RoomPod,
    RoomRequest,
)
from koordinator.domain.gangs.terms import gang_id, group_reference
from koordinator.domain.gpus.mix import ExpectedPods, GpuClass, PodMix, mix_of
from koordinator.domain.gpus.options import GpuNodes, GpuRequestError, NodeKinds, gpu_request
from koordinator.domain.gpus.price import PriceModel
from koordinator.domain.network.tree import layers_of, rules_of
from koordinator.domain.pod_requests import pod_requests
from koordinator.foundation.arrays import FloatArray, IntArray
from koordinator.foundation.clock import to_epoch_s
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass

_WHOLE = 100  # percent
_SINGLE_NUMA_NODE = "SingleNUMANode"

MODEL_LABEL = "node.koordinator.sh/gpu-model"
_MOST_TRIED = 64  # pods with the largest relief of their nodes


@dataclass(frozen=True, slots=True)
class PendingGang:
    """Pending pods that start together: a gang, or a single pod."""

    name: str  # namespace/name
    pods: tuple[Pod, ...]
    gpus: int  # per pod

    @property
    def priority(self) -> int:
        """Highest priority of its pods."""
        return max(pod.spec.priority or 0 for pod in self.pods)


def pending_gangs(pods: Iterable[Pod], view: ClusterView, before_s: float) -> list[PendingGang]:
    """Return gangs pending since ``before_s`` or longer, by priority, then the longest first.

    Gangs that are incomplete or have members with different requests are omitted.
    """
    together: dict[str, list[Pod]] = {}
    bound: dict[str, int] = {}
    for pod in pods:
        gang = gang_id(pod.metadata)
        if pod.spec.node_name:
            bound[gang] = bound.get(gang, 0) + 1
        elif _is_pending(pod):
            together.setdefault(gang or pod.key, []).append(pod)
    gangs = []
    for name, members in together.items():
        gpus = {_whole_gpus(pod) for pod in members}
        youngest_s = max(to_epoch_s(pod.metadata.creation_timestamp) for pod in members)
        if len(gpus) != 1 or 0 in gpus or youngest_s > before_s:
            continue
        if len(members) + bound.get(name, 0) < _least(members[0], view):
            continue
        ordered = sorted(members, key=lambda pod: pod.key)
        gangs.append((youngest_s, PendingGang(name, tuple(ordered), gpus.pop())))
    gangs.sort(key=lambda each: (-each[1].priority, each[0], each[1].name))
    return [gang for _, gang in gangs]


def request_of(gang: PendingGang, cluster: GpuCluster, view: ClusterView) -> RoomRequest | None:
    """Return the room that a gang needs; None if no node has a requested resource.

    Raises InputError for members with different requests, and for invalid annotations.
    """
    first = gang.pods[0]
    wanted = cluster.amounts(pod_requests(first.spec))
    if wanted is None:
        return None
    allowed = cluster.accepting.of(first)
    for pod in gang.pods[1:]:
        amounts = cluster.amounts(pod_requests(pod.spec))
        if amounts is None or not np.array_equal(amounts, wanted):
            raise InputError("its members have different requests", source=gang.name)
        allowed = allowed & cluster.accepting.of(pod)
    return RoomRequest(
        members=len(gang.pods),
        gpus=gang.gpus,
        requests=wanted,
        accepts=allowed,
        groups=_groups(gang, cluster),
        domain=_domain(gang, cluster, view),
    )


def _is_pending(pod: Pod) -> bool:
    return (
        pod.status.phase in ("", "Pending")
        and pod.metadata.deletion_timestamp is None
        and not pod.spec.scheduling_gates
        and group_reference(pod.spec) is None  # the minimum of such a group is not known here
    )


def _whole_gpus(pod: Pod) -> int:
    """Return the number of whole GPUs that a pod requests; 0 for none and for shares."""
    try:
        request = gpu_request(pod_requests(pod.spec))
    except GpuRequestError:
        return 0
    if request is None or max(request.ratio, request.core) < _WHOLE:
        return 0
    return request.count


def _least(pod: Pod, view: ClusterView) -> int:
    """Return the minimum number of members of a pod's gang."""
    if not gang_name(pod.metadata):
        return 1
    group = view.objects(PodGroup).get(gang_id(pod.metadata))
    if group is not None:
        return group.spec.min_member
    return min_available(pod.metadata) or 1


def _groups(gang: PendingGang, cluster: GpuCluster) -> SlotGroups | None:
    meta = gang.pods[0].metadata
    if GPU_PARTITION_SPEC.read(meta) is not None:
        return cluster.partitions(gang.gpus)
    numa = NUMA_TOPOLOGY_SPEC.read(meta)
    if numa is not None and numa.numa_topology_policy == _SINGLE_NUMA_NODE:
        return cluster.numa_nodes()
    return None


def _domain(gang: PendingGang, cluster: GpuCluster, view: ClusterView) -> IntArray | None:
    """Return the domain of each node, ``(n_nodes,)``, in the layer that must have all members."""
    spec = NETWORK_TOPOLOGY_SPEC.read(gang.pods[0].metadata)
    topology = next(iter(view.objects(ClusterNetworkTopology).values()), None)
    if spec is None or topology is None:
        return None
    layers = layers_of(topology)
    level = rules_of(spec, ["", *(layer.name for layer in layers)]).must
    if not level:
        return None
    numbers: dict[tuple[str, ...], int] = {}
    domains = []
    for node in cluster.nodes:
        path = _path(node.metadata.labels, [layer.keys for layer in layers[:level]])
        domains.append(-1 if path is None else numbers.setdefault(path, len(numbers)))
    return np.array(domains, np.int64)


def _path(labels: Mapping[str, str], keys: Sequence[Sequence[str]]) -> tuple[str, ...] | None:
    """Return the domains of a node from the top layer; None if a layer has no label."""
    names = []
    for accepted in keys:
        name = next((labels[key] for key in accepted if labels.get(key)), "")
        if not name:
            return None
        names.append(name)
    return tuple(names)


class StrandedGpu:
    """Potential of nodes in GPU milli, and its changes by moves."""

    def __init__(self, cluster: GpuCluster, expected: Sequence[ExpectedPods]) -> None:
        self._cluster, self._room = cluster, cluster.room
        self._ledger = RoomLedger(cluster.room)
        self._cpu = cluster.resources.index("cpu")
        self._rows = {node.metadata.name: row for row, node in enumerate(cluster.nodes)}
        names = [node.metadata.labels.get(MODEL_LABEL, "") for node in cluster.nodes]
        bits = {name: bit for bit, name in enumerate(sorted(set(names))[:62])}
        models = np.array([bits.get(name, 62) for name in names], np.int64)
        gpus = np.count_nonzero(self._room.gpu_free >= 0, axis=1)
        cpu = np.array([int(n.status.allocatable["cpu"].milli()) for n in cluster.nodes], np.int64)
        kinds, self._kind = NodeKinds.of(models, gpus, cpu)
        model = PriceModel(kinds)
        mix = mix_of(expected, bits) if expected else self._mix()
        self._prices = model.solve(mix, self._nodes(np.arange(len(names))))

    def best_moves(self) -> list[tuple[float, int]]:
        """Return the largest decrease of the potential by moving a pod, and the pod; best first."""
        falls = [
            (self.fall(index), index)
            for index, pod in enumerate(self._room.pods)
            if pod.may_move and pod.gpus
        ]
        gains = []
        for fall, index in sorted(falls, reverse=True)[:_MOST_TRIED]:
            growths = [
                self.growth(index, int(row))
                for row in self._ledger.rows_for(self._room.pods[index])
            ]
            if growths:
                gains.append((fall - min(growths), index))
        return sorted(gains, key=lambda gain: (-gain[0], gain[1]))

    def fall(self, index: int) -> float:
        """Return the decrease of the potential of a pod's node by its eviction."""
        pod = self._room.pods[index]
        return -self._change(pod.row, pod, pod.gpus, 1)

    def growth(self, index: int, row: int) -> float:
        """Return the increase of the potential of a row by a pod; infinite without room."""
        pod = self._room.pods[index]
        gpus = self._ledger.gpus_for(pod, row)
        return np.inf if gpus is None else self._change(row, pod, gpus, -1)

    def _change(self, row: int, pod: RoomPod, gpus: tuple[int, ...], sign: int) -> float:
        before = self._nodes(np.array([row]))
        gpu_free = before.gpu_free.copy()
        gpu_free[0, list(gpus)] += sign * pod.gpu_milli
        cpu_free = before.cpu_free + sign * int(pod.requests[self._cpu])
        after = GpuNodes(cpu_free, gpu_free, before.kind)
        change: FloatArray = self._prices.potential(after) - self._prices.potential(before)
        return float(change[0])

    def gain(self, moves: Sequence[Relocation]) -> MoveGain:
        """Return the decrease of the potential by moves with known targets."""
        position = {pod.key: index for index, pod in enumerate(self._cluster.pods)}
        total = 0.0
        for move in moves:
            index, row = position.get(move.pod.key), self._rows.get(move.target)
            if index is None or row is None:
                return MoveGain(0.0, f"{move.target} is not a node of the plugin")
            total += self.fall(index) - self.growth(index, row)
        text = f"{total:.0f} milli of GPU less are expected to be stranded"
        return MoveGain(total if np.isfinite(total) else 0.0, text)

    def _nodes(self, rows: IntArray) -> GpuNodes:
        room = self._room
        return GpuNodes(room.free[rows, self._cpu], room.gpu_free[rows], self._kind[rows])

    def _mix(self) -> PodMix:
        return PodMix.counted(
            GpuClass(int(pod.requests[self._cpu]), len(pod.gpus), pod.gpu_milli)
            for pod in self._room.pods
            if pod.gpus
        )
