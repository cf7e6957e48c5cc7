"""Room for those who wait, one gang after the other; else less GPU that is of no use."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from koordinator.api.annotations.descheduling import EVICT_TRIGGER
from koordinator.api.cluster_network_topology import ClusterNetworkTopology
from koordinator.api.device import Device
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.pod_group import PodGroup
from koordinator.api.pod_migration_job import PodMigrationJob, PodMigrationJobPhase
from koordinator.api.reservation import Reservation
from koordinator.descheduler.contract import DeschedulerPluginSpec, Handle
from koordinator.descheduler.moves import MoveGain, Relocation
from koordinator.descheduler.plugins.gpu_defragmentation.arguments import GPUDefragmentationArgs
from koordinator.descheduler.plugins.gpu_defragmentation.gpu_cluster import GpuCluster
from koordinator.descheduler.plugins.gpu_defragmentation.pending_gangs import (
    PendingGang,
    pending_gangs,
    request_of,
)
from koordinator.descheduler.plugins.gpu_defragmentation.room import (
    RoomCluster,
    RoomPlan,
    RoomRequest,
    find_room,
    solve_room,
)
from koordinator.descheduler.plugins.gpu_defragmentation.stranded import StrandedGpu
from koordinator.descheduler.pod_filters import CandidateFilter, candidates_of, selected_nodes
from koordinator.foundation.errors import InputError

NAME = "GPUDefragmentation"
_LIVE = ("", PodMigrationJobPhase.PENDING, PodMigrationJobPhase.RUNNING)
_SMALL = 300  # nodes times pods that may move, up to which the fewest moves are found by the solver
_FORGOTTEN_AFTER_S = 600.0  # a pod that was to go and is still there

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RoomGoal:
    """Pods leave the nodes on which room is made, and come to none of them."""

    gang: str
    rooms: frozenset[str]  # names of nodes

    def gain(self, moves: Sequence[Relocation]) -> MoveGain:
        """Return how many pods are out of the way."""
        for move in moves:
            if move.target in self.rooms:
                return MoveGain(0.0, f"it would take the room for {self.gang} on {move.target}")
        return MoveGain(float(len(moves)), f"room for {self.gang}")

    def made(self, moves: Sequence[Relocation]) -> None:
        """Do nothing: the goal stays the same."""


@dataclass(frozen=True, slots=True)
class _StrandedGoal:
    """Less GPU is expected to be of no use."""

    measure: StrandedGpu
    least_milli: int

    def gain(self, moves: Sequence[Relocation]) -> MoveGain:
        """Return the GPU milli that are of use again; what is too little counts as none."""
        found = self.measure.gain(moves)
        return MoveGain(found.amount if found.amount >= self.least_milli else 0.0, found.text)

    def made(self, moves: Sequence[Relocation]) -> None:
        """Do nothing: one pod of a node moves in a cycle."""


@dataclass(slots=True)
class GPUDefragmentation:
    """Moves pods so that pods of whole GPUs, gangs above all, find room."""

    args: GPUDefragmentationArgs
    handle: Handle
    candidates: CandidateFilter
    _going: dict[str, tuple[str, float]] = field(default_factory=dict)  # uid: key, since

    def balance(self, nodes: Sequence[Node]) -> None:
        if self.args.paused:
            log.info("GPUDefragmentation is paused and does nothing")
            return
        if self._is_under_way():
            return
        chosen = selected_nodes(nodes, self.args.node_selector)
        view, now_s = self.handle.view, self.handle.clock.now_s()
        pods = tuple(view.objects(Pod).values())
        waiting = pending_gangs(pods, view, now_s)
        before_s = now_s - self.args.pending_for.total_seconds()
        ripe = pending_gangs(pods, view, before_s)
        for gang in ripe[: self.args.max_gangs_per_cycle]:
            cluster = GpuCluster.of(chosen, view, lambda pod, gang=gang: self._may_go(pod, gang))  # type: ignore[misc]  # mypy knows no defaults of lambdas
            if self._make_room(gang, cluster):
                return
        if not waiting:
            self._tidy(chosen)

    # -- for who waits -------------------------------------------------------------------------

    def _make_room(self, gang: PendingGang, cluster: GpuCluster) -> bool:
        """Move pods for a gang; return whether some go."""
        try:
            request = request_of(gang, cluster, self.handle.view)
        except InputError as error:
            log.info("no room is made", extra={"gang": gang.name, "why": str(error)})
            return False
        plan = None if request is None else _plan(cluster.room, request)
        if plan is None or len(plan.moves) > self.args.max_moves_per_gang:
            why = "no moves make it" if plan is None else f"it takes {len(plan.moves)} moves"
            log.info("no room is made", extra={"gang": gang.name, "why": why})
            return False
        if not plan.moves:
            return False  # there is room: the scheduler has other reasons
        names = [node.metadata.name for node in cluster.nodes]
        rooms = frozenset(names[place.row] for place in plan.places)
        moving = [cluster.pods[move.pod] for move in plan.moves]
        goal = RoomGoal(gang.name, rooms)
        reason = f"room for {gang.name}: {gang.gpus} GPUs on each of {len(gang.pods)} nodes"
        if self.args.dry_run:
            told = {"gang": gang.name, "pods": ", ".join(pod.key for pod in moving)}
            log.info("pods would be moved, but for the dry run", extra=told)
            return False
        evictor = self.handle.evictor
        if not evictor.prove(moving, goal, avoiding=sorted(rooms), then=gang.pods):
            return False
        return self._evict(moving, reason, goal)

    def _may_go(self, pod: Pod, gang: PendingGang) -> bool:
        return (pod.spec.priority or 0) <= gang.priority and self._is_movable(pod)

    def _is_movable(self, pod: Pod) -> bool:
        evictor = self.handle.evictor
        return (
            pod.metadata.deletion_timestamp is None
            and not evictor.is_node_limit_reached(pod.spec.node_name)
            and self.candidates.admits(pod)
        )

    def _evict(self, pods: Sequence[Pod], reason: str, goal: RoomGoal | _StrandedGoal) -> bool:
        """Let pods go, in this order; return whether one goes."""
        goes = False
        for pod in pods:
            if not self.handle.evictor.evict(pod, reason, goal=goal):
                break
            goes = True
            if not self.handle.is_dry_run:
                self._going[pod.metadata.uid] = pod.key, self.handle.clock.now_s()
        return goes

    def _is_under_way(self) -> bool:
        """Return whether pods that were to go are still there, or their moves not at an end."""
        pods: Mapping[str, Pod] = self.handle.view.objects(Pod)
        oldest_s = self.handle.clock.now_s() - _FORGOTTEN_AFTER_S
        for uid, (key, since_s) in list(self._going.items()):
            pod = pods.get(key)
            if pod is None or pod.metadata.uid != uid or since_s < oldest_s:
                del self._going[uid]
        jobs = self.handle.view.objects(PodMigrationJob).values()
        return bool(self._going) or any(
            job.metadata.annotations.get(EVICT_TRIGGER) == NAME and job.status.phase in _LIVE
            for job in jobs
        )

    # -- when nobody waits ---------------------------------------------------------------------

    def _tidy(self, nodes: Sequence[Node]) -> None:
        """Make some moves that lower the GPU which is expected to be of no use."""
        wanted = self.args.without_pending
        if not wanted.max_moves or self.args.dry_run:
            return
        cluster = GpuCluster.of(nodes, self.handle.view, self._is_movable)
        if "cpu" not in cluster.resources or not (cluster.room.gpu_free >= 0).any():
            return
        measure = StrandedGpu(cluster, wanted.expected)
        goal, left, touched = (
            _StrandedGoal(measure, wanted.least_gain_milli),
            wanted.max_moves,
            set(),
        )
        for gain, index in measure.best_moves():
            pod = cluster.pods[index]
            if gain < wanted.least_gain_milli or not left:
                return
            if pod.spec.node_name in touched or not self.handle.evictor.pre_eviction_filter(pod):
                continue
            reason = f"{gain:.0f} milli of GPU would be of use again"
            if self._evict([pod], reason, goal):
                touched.add(pod.spec.node_name)
                left -= 1


def _plan(cluster: RoomCluster, request: RoomRequest) -> RoomPlan | None:
    """Return the fewest moves for small clusters, few for others."""
    plan = find_room(cluster, request, np.random.default_rng(0))
    movable = sum(pod.may_move for pod in cluster.pods)
    if plan is not None and not plan.moves:
        return plan
    if movable * len(cluster.free) <= _SMALL:
        exact = solve_room(cluster, request)
        if exact is not None and (plan is None or exact.rank < plan.rank):
            return exact
    return plan


def build_gpu_defragmentation(args: GPUDefragmentationArgs, handle: Handle) -> GPUDefragmentation:
    """Return the plugin."""
    candidates = candidates_of(handle, args.evictable_namespaces, args.pod_selectors)
    return GPUDefragmentation(args, handle, candidates)


GPU_DEFRAGMENTATION = DeschedulerPluginSpec(
    NAME,
    GPUDefragmentationArgs,
    build_gpu_defragmentation,
    watches=(Device, Reservation, PodGroup, ClusterNetworkTopology, PodMigrationJob),
    proves_moves=True,
)
