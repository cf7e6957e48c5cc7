"""Proofs of moves: dry runs on a fork of the scheduler's state.

A dry run performs the steps of the real move: if a PodMigrationJob reserves a place first, the
reservation is scheduled while the pod still runs; then the pod is removed and its replacement is
scheduled.  A move is proven if the replacement is placed on another node, which its workload has
not left recently, and if the goal of the plugin gains.

Proven moves remain in the fork until the end of the cycle, and so do the pods to evict, since they
occupy their nodes until the moves are made: the next move finds only room that is already free.  A
move that fits only after others is ordered after these.

Pods without a reserved place are evicted at about the same time.  A second dry run therefore
removes all that leave the same node, and requires that each is still placed on another node.
Pending moves of earlier cycles are applied to the fork first.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import Final

from koordinator.api.annotations.scheduling import PROVEN_MOVE
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import PodMigrationJob
from koordinator.api.reservation import Reservation
from koordinator.descheduler.contract import (
    MoveGain,
    MoveGoal,
    MoveProof,
    Relocation,
    SkippedMove,
    SkipReason,
)
from koordinator.domain.placement_fork import (
    ForkedWorld,
    Landing,
    PlacementFork,
    replacement_of,
)
from koordinator.foundation.clock import Clock, to_epoch_s
from koordinator.foundation.errors import InputError

SWEPT_EVERY: Final = 1024  # calls of ``note``
#: Returns the reservation for a pod, None if it needs none; raises InputError if it is invalid.
ReservationFactory = Callable[[Pod], Reservation | None]

MOST_REFUSALS = 4096  # cached results of pods without a place, per cycle
_ELSEWHERE = MoveGain(1.0, "the pod runs on another node")


def lineage_of(pod: Pod) -> str:
    """Return the identity that a pod shares with its replacements: the uid of its controller.

    For a StatefulSet it includes the name of the pod, which replacements keep.  A pod without a
    controller has no replacement.
    """
    meta = pod.metadata
    owner = meta.controller
    if owner is None:
        return meta.uid
    uid = owner.uid or f"{meta.namespace}/{owner.kind}/{owner.name}"
    return f"{uid}/{meta.name}" if owner.kind == "StatefulSet" else uid


class MoveMemory:
    """Nodes that workloads left within ``lasts_s``, to prevent circular moves.

    Replacements have new names, so the memory is per workload.  A circle of any length ends at a
    node that the workload has left, so remembering these nodes is sufficient.
    """

    def __init__(self, lasts_s: float) -> None:
        self._lasts_s = lasts_s
        self._left_s: dict[tuple[str, str], float] = {}  # (lineage, node) -> when
        self._notes = 0

    def note(self, lineage: str, node: str, at_s: float) -> None:
        """Record that a pod of a lineage leaves a node."""
        known_s = self._left_s.get((lineage, node), at_s)
        self._left_s[lineage, node] = max(known_s, at_s)
        self._notes += 1
        if self._notes % SWEPT_EVERY == 0:
            self._left_s = {
                key: left_s for key, left_s in self._left_s.items() if at_s - left_s < self._lasts_s
            }

    def observe(self, job: PodMigrationJob) -> None:
        """Record the move of a job, which may be from an earlier process."""
        try:
            move = PROVEN_MOVE.read(job.metadata)
        except InputError:
            return
        if move is not None and move.lineage:
            self.note(move.lineage, move.source, to_epoch_s(job.metadata.creation_timestamp))

    def left_ago_s(self, lineage: str, node: str, now_s: float) -> float | None:
        """Return the time since a pod of the lineage left the node; None beyond the limit."""
        left_s = self._left_s.get((lineage, node))
        if left_s is None or now_s - left_s >= self._lasts_s:
            return None
        return now_s - left_s


class MoveProver:
    """Prover of the moves of a cycle."""

    def __init__(self, fork: PlacementFork, memory: MoveMemory, clock: Clock) -> None:
        self._fork, self._memory, self._clock = fork, memory, clock
        self._world: ForkedWorld | None = None
        self._leaving: dict[str, Relocation] = {}  # by key: proven moves whose pods still run
        self._at_once: dict[str, list[Relocation]] = {}  # by source: moves without a reservation
        self._proofs: dict[str, MoveProof] = {}  # by key: proven by ``prove_all``, not made yet
        #: By (lineage, node): result without a place, and the number of leaving pods at that time.
        self._without_node: dict[tuple[str, str], tuple[SkippedMove, int]] = {}

    @property
    def is_ready(self) -> bool:
        """Whether the fork has processed the initial listing."""
        return self._fork.is_ready

    def follow(self) -> None:
        """Process events.  Raises ClusterError if the cluster can't be read."""
        self._fork.follow()

    def refresh(self) -> None:
        """Guarantee that earlier changes are processed before the next proof."""
        self._fork.refresh()

    @contextmanager
    def cycle(self) -> Iterator[None]:
        """Fork the current state; proven moves remain in the fork until the context ends."""
        with self._fork.world() as world:
            self._world = world
            try:
                yield
            finally:
                self._world = None
                for known in (self._leaving, self._at_once, self._proofs, self._without_node):
                    known.clear()

    def apply_pending(self, moves: Iterable[tuple[Pod, Reservation | None]]) -> None:
        """Apply pending moves of earlier cycles to the fork; those without a place are skipped.

        Each pod comes with its future reservation, None if it needs none.
        """
        world = self._open_world()
        for pod, reservation in moves:
            if not world.schedules(pod) or world.node_of(pod.key) != pod.spec.node_name:
                continue
            with world.attempt() as attempt, suppress(InputError):
                if reservation is not None:
                    landing = world.reserve(reservation)
                else:
                    world.remove(pod.key)
                    landing = world.land(_next(pod))
                    world.put_back(pod.key)
                if landing.node:
                    attempt.keep()

    def members_with(self, pod: Pod) -> Sequence[str]:
        """Return the keys of the running members of the pod's gang; empty without a gang."""
        return self._world.gang_of(pod) if self._world is not None else ()

    def proof_of(self, pod: Pod) -> MoveProof | None:
        """Remove and return the unused proof of a pod from ``prove_all``, None without one."""
        return self._proofs.pop(pod.key, None)

    def made(self, proof: MoveProof, goal: MoveGoal | None) -> None:
        """Record that moves are being made."""
        now_s = self._clock.now_s()
        for move in proof.moves:
            self._memory.note(lineage_of(move.pod), move.source, now_s)
        if goal is not None:
            goal.made(proof.moves)

    def withdraw(self, proof: MoveProof) -> None:
        """Remove moves that are not made from the fork."""
        world = self._open_world()
        for move in proof.moves:
            world.remove(_next(move.pod).key)
            self._forget(move.pod.key)

    def _forget(self, key: str) -> None:
        move = self._leaving.pop(key, None)
        if move is not None and move in self._at_once.get(move.source, []):
            self._at_once[move.source].remove(move)

    # -- single pods -------------------------------------------------------------------------

    @property
    def makes_room(self) -> bool:
        """Whether moves of this cycle free room for others."""
        return bool(self._leaving)

    def prove(
        self,
        pod: Pod,
        goal: MoveGoal | None,
        reserve: ReservationFactory | None,
        *,
        waits: bool = False,
    ) -> MoveProof | SkippedMove:
        """Prove a move; with ``waits`` it may be ordered after the other moves of the cycle."""
        kind = lineage_of(pod), pod.spec.node_name
        refused, leaving = self._without_node.get(kind, (None, 0))
        if refused is not None and leaving == (len(self._leaving) if waits else leaving):
            return refused
        result = refused or self._prove_now(pod, goal, reserve)
        if isinstance(result, SkippedMove) and result.why is SkipReason.NO_PLACE:
            if self._leaving and waits:
                later = self._prove_later(pod, goal, reserve)
                result = result if isinstance(later, SkippedMove) else later
            if isinstance(result, SkippedMove) and len(self._without_node) < MOST_REFUSALS:
                self._without_node[kind] = result, len(self._leaving)
        return result

    def prove_all(
        self,
        pods: Sequence[Pod],
        goal: MoveGoal | None,
        reserve: ReservationFactory | None,
        *,
        cordoning: str = "",
        then: Sequence[Pod] = (),
    ) -> SkippedMove | None:
        """Prove moves that are useless without each other; return why one is skipped, else None.

        On success ``proof_of`` returns the proof of each pod.  ``cordoning`` is a node that takes
        no new pods.  ``then`` are pending pods that must be placed after all moves.
        """
        world, proofs = self._open_world(), dict[str, MoveProof]()
        with world.attempt() as attempt:
            if cordoning:
                world.cordon(cordoning)
            for pod in pods:
                result = self._prove_now(pod, goal, reserve)
                if then and isinstance(result, SkippedMove) and result.why is SkipReason.NO_PLACE:
                    later = self._prove_later(pod, goal, reserve) if self._leaving else result
                    result = result if isinstance(later, SkippedMove) else later
                if isinstance(result, SkippedMove):
                    return self._given_up(
                        proofs, SkippedMove(result.why, f"{pod.key}: {result.detail}")
                    )
                proofs[pod.key] = result
            if then:
                landing = self._landing_then(then)
                if not landing.node:
                    why = f"{landing.pod} would still have no node: {landing.why or landing.plugin}"
                    return self._given_up(proofs, SkippedMove(SkipReason.NO_GAIN, why))
            attempt.keep()
        self._proofs.update(proofs)
        return None

    def _given_up(self, proofs: Mapping[str, MoveProof], stay: SkippedMove) -> SkippedMove:
        for key in proofs:
            self._forget(key)
        return stay

    def _landing_then(self, pods: Sequence[Pod]) -> Landing:
        """Return the landing of the first pod after all moves, or of the first without a place."""
        world = self._open_world()
        with world.attempt():
            for key in self._leaving:
                world.remove(key)
            try:
                landings = world.land_together([_next(pod) for pod in pods])
            except InputError as error:
                return Landing(pods[0].key, why=str(error))
        failed = [each for each in landings if not each.node]
        return failed[0] if failed else landings[0]

    def _prove_now(
        self, pod: Pod, goal: MoveGoal | None, reserve: ReservationFactory | None
    ) -> MoveProof | SkippedMove:
        """Prove a move while the pods of all moves of the cycle still run."""
        world = self._open_world()
        with world.attempt() as attempt:
            result = self._try(world, pod, goal, reserve)
            if isinstance(result, MoveProof):
                move = result.moves[0]
                world.put_back(pod.key)
                if not result.is_reserved:
                    refusal = self._why_not_with_others(world, move)
                    if refusal is not None:
                        return refusal
                attempt.keep()
                self._leaving[pod.key] = move
                if not result.is_reserved:
                    self._at_once.setdefault(move.source, []).append(move)
        return result

    def _why_not_with_others(self, world: ForkedWorld, move: Relocation) -> SkippedMove | None:
        """Return why a pod that leaves its node together with others is skipped, else None.

        Each was proven while the others ran; without them the source may be the best node again.
        """
        others = self._at_once.get(move.source, [])
        if not others:
            return None
        going = [*others, move]
        with world.attempt():
            for each in going:
                world.remove(each.pod.key)
                world.remove(_next(each.pod).key)
            for each in going:
                try:
                    landing = world.land(_next(each.pod))
                except InputError as error:
                    return SkippedMove(SkipReason.REFUSED, str(error))
                if not landing.node:
                    return _without_place(landing)
                if landing.node == move.source:
                    why = f"with this move, {each.pod.key} would return to {move.source}"
                    return SkippedMove(SkipReason.COMES_BACK, why)
        return None

    def _prove_later(
        self, pod: Pod, goal: MoveGoal | None, reserve: ReservationFactory | None
    ) -> MoveProof | SkippedMove:
        """Prove a move after all other moves of the cycle."""
        world = self._open_world()
        with world.attempt() as attempt:
            for key in self._leaving:
                world.remove(key)
            result = self._try(world, pod, goal, reserve)
            if isinstance(result, SkippedMove):
                return result
            for key in (*self._leaving, pod.key):
                world.put_back(key)
            attempt.keep()
        target = result.moves[0].target
        from_there = [key for key, move in self._leaving.items() if move.source == target]
        after = tuple(sorted(from_there or self._leaving))
        self._leaving[pod.key] = result.moves[0]
        return replace(result, after=after)

    def _try(
        self,
        world: ForkedWorld,
        pod: Pod,
        goal: MoveGoal | None,
        reserve: ReservationFactory | None,
    ) -> MoveProof | SkippedMove:
        """Perform a move in the fork and evaluate it."""
        source = pod.spec.node_name
        refusal = self._why_not_tried(world, pod)
        if refusal is not None:
            return refusal
        try:
            reservation = reserve(pod) if reserve is not None else None
            if reservation is not None:
                landing = world.reserve(reservation)
                if not landing.node:
                    return _without_place(landing)
            world.remove(pod.key)
            landing = world.land(_next(pod))
        except InputError as error:
            return SkippedMove(SkipReason.REFUSED, str(error))
        if not landing.node:
            return _without_place(landing)
        if landing.node == source:
            why = "the scheduler would choose the same node again"
            return SkippedMove(SkipReason.COMES_BACK, f"{why}: {source}")
        moves = (Relocation(pod, source, landing.node),)
        return self._judged(moves, goal, is_reserved=reservation is not None)

    def _judged(
        self,
        moves: tuple[Relocation, ...],
        goal: MoveGoal | None,
        *,
        is_gang: bool = False,
        is_reserved: bool = False,
    ) -> MoveProof | SkippedMove:
        now_s = self._clock.now_s()
        for move in moves:
            ago_s = self._memory.left_ago_s(lineage_of(move.pod), move.target, now_s)
            if ago_s is not None and move.target != move.source:
                cause = f"its workload left {move.target} {int(ago_s)} s ago"
                return SkippedMove(SkipReason.CIRCLE, cause)
        gain = _ELSEWHERE if goal is None else goal.gain(moves)
        if gain.amount <= 0:
            return SkippedMove(SkipReason.NO_GAIN, gain.text)
        return MoveProof(moves, gain, is_gang=is_gang, is_reserved=is_reserved)

    def _why_not_tried(self, world: ForkedWorld, pod: Pod) -> SkippedMove | None:
        if not world.schedules(pod):
            known = ", ".join(sorted(self._fork.scheduler_names))
            name = pod.spec.scheduler_name
            return SkippedMove(SkipReason.FOREIGN, f"schedulerName {name!r} is not one of {known}")
        if world.node_of(pod.key) != pod.spec.node_name:
            return SkippedMove(SkipReason.UNKNOWN, world.node_of(pod.key) or "it does not exist")
        if target := world.node_of(_next(pod).key):
            return SkippedMove(SkipReason.UNKNOWN, f"it is already being moved to {target}")
        return None

    # -- gangs -------------------------------------------------------------------------------

    def prove_gang(
        self, wanted: Pod, members: Sequence[Pod], goal: MoveGoal | None
    ) -> MoveProof | SkippedMove:
        """Prove the move of all members of a gang, requested for one of them."""
        world = self._open_world()
        with world.attempt() as attempt:
            for member in members:
                refusal = self._why_not_tried(world, member)
                if refusal is not None:
                    return SkippedMove(SkipReason.GANG, f"{member.key}: {refusal}")
            for member in members:
                world.remove(member.key)
            landings = world.land_together([_next(one) for one in members])
            for landing in landings:
                if not landing.node:
                    return _without_place(landing)
            moves = tuple(
                Relocation(member, member.spec.node_name, landing.node)
                for member, landing in zip(members, landings, strict=True)
            )
            own = next(move for move in moves if move.pod.key == wanted.key)
            if own.source == own.target:
                why = f"its gang would restart, and the pod on {own.source} again"
                return SkippedMove(SkipReason.COMES_BACK, why)
            result = self._judged(moves, goal, is_gang=True)
            if isinstance(result, MoveProof):
                for member in members:
                    world.put_back(member.key)
                attempt.keep()
                self._leaving.update({move.pod.key: move for move in moves})
        return result

    def _open_world(self) -> ForkedWorld:
        if self._world is None:
            raise InputError("moves can be proven only during a cycle")
        return self._world


def cycle_of(prover: MoveProver | None) -> AbstractContextManager[None]:
    """Return the cycle of a prover; an empty context without a prover."""
    return nullcontext() if prover is None else prover.cycle()


def _next(pod: Pod) -> Pod:
    """Return the simulated replacement of a pod."""
    return replacement_of(pod, f"{pod.metadata.name}-next")


def _without_place(landing: Landing) -> SkippedMove:
    return SkippedMove(SkipReason.NO_PLACE, landing.why or landing.plugin)
