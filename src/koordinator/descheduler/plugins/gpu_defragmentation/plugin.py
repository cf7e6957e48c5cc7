"""GPU defragmentation: evict pods so that pending gangs or stranded GPUs find room."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Annotated

import numpy as np
from msgspec import Meta

from koordinator.api.annotations.scheduling import EVICT_TRIGGER
from koordinator.api.cluster_network_topology import ClusterNetworkTopology
from koordinator.api.device import Device
from koordinator.api.kubescheduler.structs import ConfigStruct
from koordinator.api.meta import LabelSelector
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.pod_groups import PodGroup
from koordinator.api.pod_migration_job import PodMigrationJob, PodMigrationJobPhase
from koordinator.api.reservation import Reservation
from koordinator.descheduler.candidates import CandidateFilter, candidates_of, selected_nodes
from koordinator.descheduler.configuration import (
    DeschedulerPluginArgs,
    NamedPodSelector,
    NamespaceLists,
    check_namespaces,
    check_pod_selectors,
    check_selector,
    field_error,
)
from koordinator.descheduler.contract import DeschedulerPluginSpec, Handle, MoveGain, Relocation
from koordinator.descheduler.plugins.gpu_defragmentation.gpu_cluster import GpuCluster
from koordinator.descheduler.plugins.gpu_defragmentation.pending_gangs import (
    PendingGang,
    StrandedGpu,
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
from koordinator.domain.gpus.mix import ExpectedPods
from koordinator.foundation.clock import Duration
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass

_MOST_MOVES = 1000
_MOST_MILLI = 64_000

NAME = "GPUDefragmentation"
_LIVE = ("", PodMigrationJobPhase.PENDING, PodMigrationJobPhase.RUNNING)
_SMALL = 300  # nodes times movable pods, up to which the solver finds the fewest moves
_EXPIRATION_S = 600.0  # of evictions whose pods still run

log = logging.getLogger(__name__)


class MovesWithoutPending(ConfigStruct, frozen=True, kw_only=True):
    """Moves without pending gangs, which lower the GPU capacity that is expected to be stranded."""

    max_moves: Annotated[int, Meta(ge=0, le=_MOST_MOVES)] = 2  # per cycle; 0: none
    least_gain_milli: Annotated[int, Meta(ge=1, le=_MOST_MILLI)] = 200  # of a move
    expected: tuple[ExpectedPods, ...] = ()  # mix of pods; default: of the running pods


class GPUDefragmentationArgs(DeschedulerPluginArgs, frozen=True, kw_only=True):
    """Pending gangs to make room for, pods to move, and limits per cycle."""

    paused: bool = False
    dry_run: bool = False
    node_selector: LabelSelector | None = None
    evictable_namespaces: NamespaceLists | None = None
    pod_selectors: tuple[NamedPodSelector, ...] = ()  # pods to move; default: all
    pending_for: Duration = Duration(minutes=1)  # minimum pending time of a gang
    max_moves_per_gang: Annotated[int, Meta(ge=1, le=_MOST_MOVES)] = 64  # or single pod
    #: Gangs tried per cycle; room is made for the first one possible.
    max_gangs_per_cycle: Annotated[int, Meta(ge=1, le=_MOST_MOVES)] = 8
    without_pending: MovesWithoutPending = MovesWithoutPending()  # moves while no gang is pending

    def validate(self) -> None:
        if self.pending_for < Duration():
            raise field_error("pendingFor", str(self.pending_for), "must be 0s or more")
        check_selector(self.node_selector, "nodeSelector")
        check_pod_selectors(self.pod_selectors)
        check_namespaces(self.evictable_namespaces, "evictableNamespaces")


@dataclass(frozen=True, slots=True)
class RoomGoal:
    """Goal that pods leave the nodes where room is made for other nodes."""

    gang: str
    rooms: frozenset[str]  # names of nodes

    def gain(self, moves: Sequence[Relocation]) -> MoveGain:
        """Return the number of moved pods; no gain if one moves to a node of the room."""
        for move in moves:
            if move.target in self.rooms:
                return MoveGain(0.0, f"it would take the room for {self.gang} on {move.target}")
        return MoveGain(float(len(moves)), f"room for {self.gang}")

    def made(self, moves: Sequence[Relocation]) -> None:
        """Do nothing: the goal does not depend on moves."""


@dataclass(frozen=True, slots=True)
class _StrandedGoal:
    """Goal that less GPU is stranded."""

    measure: StrandedGpu
    least_milli: int

    def gain(self, moves: Sequence[Relocation]) -> MoveGain:
        """Return the recovered GPU milli; 0 if it is less than the minimum."""
        gain = self.measure.gain(moves)
        return MoveGain(gain.amount if gain.amount >= self.least_milli else 0.0, gain.text)

    def made(self, moves: Sequence[Relocation]) -> None:
        """Do nothing: at most one pod per node is moved in a cycle."""


@dataclass(slots=True)
class GPUDefragmentation:
    """Plugin that moves pods to make room for pending gangs."""

    args: GPUDefragmentationArgs
    handle: Handle
    candidates: CandidateFilter
    _evicted: dict[str, tuple[str, float]] = field(default_factory=dict)  # uid: key, since

    def balance(self, nodes: Sequence[Node]) -> None:
        if self.args.paused:
            log.info("GPUDefragmentation is paused")
            return
        if self._has_pending_moves():
            return
        chosen = selected_nodes(nodes, self.args.node_selector)
        view, now_s = self.handle.view, self.handle.clock.now_s()
        pods = tuple(view.objects(Pod).values())
        waiting = pending_gangs(pods, view, now_s)
        before_s = now_s - self.args.pending_for.total_seconds()
        ripe = pending_gangs(pods, view, before_s)
        for gang in ripe[: self.args.max_gangs_per_cycle]:
            cluster = GpuCluster.of(chosen, view, partial(self._may_move_for, gang))
            if self._make_room(gang, cluster):
                return
        if not waiting:
            self._reduce_stranded(chosen)

    # -- pending gangs -------------------------------------------------------------------------

    def _make_room(self, gang: PendingGang, cluster: GpuCluster) -> bool:
        """Move pods for a gang; return whether pods were evicted."""
        try:
            request = request_of(gang, cluster, self.handle.view)
        except InputError as error:
            log.info("no room is made", extra={"gang": gang.name, "why": str(error)})
            return False
        plan = None if request is None else _plan(cluster.room, request)
        if plan is None or len(plan.moves) > self.args.max_moves_per_gang:
            why = "no moves suffice" if plan is None else f"it needs {len(plan.moves)} moves"
            log.info("no room is made", extra={"gang": gang.name, "why": why})
            return False
        if not plan.moves:
            return False  # the room exists: the gang is pending for other reasons
        names = [node.metadata.name for node in cluster.nodes]
        rooms = frozenset(names[place.row] for place in plan.places)
        moving = [cluster.pods[move.pod] for move in plan.moves]
        goal = RoomGoal(gang.name, rooms)
        reason = f"room for {gang.name}: {gang.gpus} GPUs on each of {len(gang.pods)} nodes"
        if self.args.dry_run:
            extra = {"gang": gang.name, "pods": ", ".join(pod.key for pod in moving)}
            log.info("dry run: pods would be moved", extra=extra)
            return False
        evictor = self.handle.evictor
        if not evictor.prove(moving, goal, avoiding=sorted(rooms), then=gang.pods):
            return False
        return self._evict(moving, reason, goal)

    def _may_move_for(self, gang: PendingGang, pod: Pod) -> bool:
        return (pod.spec.priority or 0) <= gang.priority and self._is_movable(pod)

    def _is_movable(self, pod: Pod) -> bool:
        evictor = self.handle.evictor
        return (
            pod.metadata.deletion_timestamp is None
            and not evictor.is_node_limit_reached(pod.spec.node_name)
            and self.candidates.is_candidate(pod)
        )

    def _evict(self, pods: Sequence[Pod], reason: str, goal: RoomGoal | _StrandedGoal) -> bool:
        """Evict pods in order until one is refused; return whether one was evicted."""
        evicted = False
        for pod in pods:
            if not self.handle.evictor.evict(pod, reason, goal=goal):
                break
            evicted = True
            if not self.handle.is_dry_run:
                self._evicted[pod.metadata.uid] = pod.key, self.handle.clock.now_s()
        return evicted

    def _has_pending_moves(self) -> bool:
        """Return whether evicted pods still run or their jobs have not finished."""
        pods: Mapping[str, Pod] = self.handle.view.objects(Pod)
        oldest_s = self.handle.clock.now_s() - _EXPIRATION_S
        for uid, (key, since_s) in list(self._evicted.items()):
            pod = pods.get(key)
            if pod is None or pod.metadata.uid != uid or since_s < oldest_s:
                del self._evicted[uid]
        jobs = self.handle.view.objects(PodMigrationJob).values()
        return bool(self._evicted) or any(
            job.metadata.annotations.get(EVICT_TRIGGER) == NAME and job.status.phase in _LIVE
            for job in jobs
        )

    # -- without pending gangs -----------------------------------------------------------------

    def _reduce_stranded(self, nodes: Sequence[Node]) -> None:
        """Make moves that lower the stranded GPU."""
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
            reason = f"{gain:.0f} milli of GPU would be usable again"
            if self._evict([pod], reason, goal):
                touched.add(pod.spec.node_name)
                left -= 1


def _plan(cluster: RoomCluster, request: RoomRequest) -> RoomPlan | None:
    """Return a plan with the fewest moves for small clusters, with few moves for others."""
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
    """Build the plugin."""
    candidates = candidates_of(handle, args.evictable_namespaces, args.pod_selectors)
    return GPUDefragmentation(args, handle, candidates)


GPU_DEFRAGMENTATION = DeschedulerPluginSpec(
    NAME,
    GPUDefragmentationArgs,
    build_gpu_defragmentation,
    watches=(Device, Reservation, PodGroup, ClusterNetworkTopology, PodMigrationJob),
    proves_moves=True,
)
