"""Tries moves on a fork of the scheduler's state before they are made.

A move is made in thought as it would be made in earnest: where a PodMigrationJob reserves a place
first, the reservation is placed while the pod is still there; then the pod goes, and its
replacement is placed.  It counts if the replacement lands on another node, on one that its workload
has not just left, and if what the plugin wants comes true there.

Moves that count stay in the fork for the rest of the cycle, and the pods that are to go stay, too,
since they are there until their moves have been made: the next move finds only the room that is
there already.  One that fits only when others have gone is said to come after these.

Pods that go without a reserved place go at about the same time, so each that leaves a node lands
elsewhere only if it does so, too, when the others have gone from there: that is tried as well.
What was begun in earlier cycles, and has no place yet, is carried out in the fork first.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace

from koordinator.api.pod import Pod
from koordinator.api.reservation import Reservation
from koordinator.descheduler.moves import (
    MoveGain,
    MoveGoal,
    MoveProof,
    Relocation,
    Stay,
    StayReason,
)
from koordinator.descheduler.proof.memory import MoveMemory, lineage_of
from koordinator.domain.placement_trial import (
    Landing,
    PlacementTrial,
    TrialWorld,
    replacement_of,
)
from koordinator.foundation.clock import Clock
from koordinator.foundation.errors import InputError

#: Returns what is reserved before a pod goes; None: nothing.  Raises InputError if it can't be.
Reserve = Callable[[Pod], Reservation | None]

MOST_REFUSALS = 4096  # kinds of pods of which it is remembered, for a cycle, that none has room
_ELSEWHERE = MoveGain(1.0, "the pod runs elsewhere")


class MoveProver:
    """Proves moves of one cycle after the other."""

    def __init__(self, trial: PlacementTrial, memory: MoveMemory, clock: Clock) -> None:
        self._trial, self._memory, self._clock = trial, memory, clock
        self._world: TrialWorld | None = None
        self._leaving: dict[str, Relocation] = {}  # by key: they go, and are there still
        self._at_once: dict[str, list[Relocation]] = {}  # by node: they leave it without a place
        self._proofs: dict[str, MoveProof] = {}  # by key: proven, not made yet
        #: by (lineage, node): no node took such a pod when so many were leaving
        self._homeless: dict[tuple[str, str], tuple[Stay, int]] = {}

    @property
    def is_ready(self) -> bool:
        """Whether everything that exists has been taken in."""
        return self._trial.is_ready

    def follow(self) -> None:
        """Take in what has happened.  Raises ClusterError if the cluster can't be read."""
        self._trial.follow()

    def refresh(self) -> None:
        """Make sure that nothing is missed that happened until now."""
        self._trial.refresh()

    @contextmanager
    def cycle(self) -> Iterator[None]:
        """Let moves be tried on the cluster as it is now; what is kept, is kept until the end."""
        with self._trial.world() as world:
            self._world = world
            try:
                yield
            finally:
                self._world = None
                for known in (self._leaving, self._at_once, self._proofs, self._homeless):
                    known.clear()

    def carry_out(self, moves: Iterable[tuple[Pod, Reservation | None]]) -> None:
        """Let pods that were to go in earlier cycles take their places now, as far as they can.

        With each comes the place that is still to be reserved for it; None: it goes without.
        """
        world = self._the_world()
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
        """Return the keys of the pods that run together with a member of a gang; else none."""
        return self._world.gang_of(pod) if self._world is not None else ()

    def proof_of(self, pod: Pod) -> MoveProof | None:
        """Return, once, a proof of ``prove_all`` that is not carried out; None: there is none."""
        return self._proofs.pop(pod.key, None)

    def made(self, proof: MoveProof, goal: MoveGoal | None) -> None:
        """Take note that moves are under way."""
        now_s = self._clock.now_s()
        for move in proof.moves:
            self._memory.note(lineage_of(move.pod), move.source, now_s)
        if goal is not None:
            goal.made(proof.moves)

    def not_made(self, proof: MoveProof) -> None:
        """Take note that moves are not made after all: nobody takes the room."""
        world = self._the_world()
        for move in proof.moves:
            world.remove(_next(move.pod).key)
            self._stays(move.pod.key)

    def _stays(self, key: str) -> None:
        move = self._leaving.pop(key, None)
        if move is not None and move in self._at_once.get(move.source, []):
            self._at_once[move.source].remove(move)

    # -- one pod, or several of which each goes on its own ------------------------------------

    @property
    def makes_room(self) -> bool:
        """Whether pods go in this cycle: others may find the room that they leave."""
        return bool(self._leaving)

    def prove(
        self, pod: Pod, goal: MoveGoal | None, reserve: Reserve | None, *, waits: bool = False
    ) -> MoveProof | Stay:
        """Return how a pod moves, or why it stays; ``waits``: it may move when others have."""
        kind = lineage_of(pod), pod.spec.node_name
        refused, leaving = self._homeless.get(kind, (None, 0))
        if refused is not None and leaving == (len(self._leaving) if waits else leaving):
            return refused
        found = refused or self._prove_now(pod, goal, reserve)
        if isinstance(found, Stay) and found.why is StayReason.NO_PLACE:
            if self._leaving and waits:
                later = self._prove_later(pod, goal, reserve)
                found = found if isinstance(later, Stay) else later
            if isinstance(found, Stay) and len(self._homeless) < MOST_REFUSALS:
                self._homeless[kind] = found, len(self._leaving)
        return found

    def prove_all(
        self,
        pods: Sequence[Pod],
        goal: MoveGoal | None,
        reserve: Reserve | None,
        *,
        cordoning: str = "",
        then: Sequence[Pod] = (),
    ) -> Stay | None:
        """Try moves of which each is for nothing without the others; return why one stays.

        If none does, ``proof_of`` each has its proof.  ``cordoning`` is a node that takes no new
        pods from then on.  ``then`` are pods that have to find places when all have gone.
        """
        world, proofs = self._the_world(), dict[str, MoveProof]()
        with world.attempt() as attempt:
            if cordoning:
                world.cordon(cordoning)
            for pod in pods:
                found = self._prove_now(pod, goal, reserve)
                if then and isinstance(found, Stay) and found.why is StayReason.NO_PLACE:
                    later = self._prove_later(pod, goal, reserve) if self._leaving else found
                    found = found if isinstance(later, Stay) else later
                if isinstance(found, Stay):
                    return self._given_up(proofs, Stay(found.why, f"{pod.key}: {found.detail}"))
                proofs[pod.key] = found
            if then:
                landing = self._landing_then(then)
                if not landing.node:
                    why = f"{landing.pod} would find no place: {landing.why or landing.plugin}"
                    return self._given_up(proofs, Stay(StayReason.NO_GAIN, why))
            attempt.keep()
        self._proofs.update(proofs)
        return None

    def _given_up(self, proofs: Mapping[str, MoveProof], stay: Stay) -> Stay:
        for key in proofs:
            self._stays(key)
        return stay

    def _landing_then(self, pods: Sequence[Pod]) -> Landing:
        """Return where the first of some pods lands when all that leave have gone.

        If one finds no place, then what is told of that one.
        """
        world = self._the_world()
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
        self, pod: Pod, goal: MoveGoal | None, reserve: Reserve | None
    ) -> MoveProof | Stay:
        """Try a move while all that leave in this cycle are still there."""
        world = self._the_world()
        with world.attempt() as attempt:
            found = self._try(world, pod, goal, reserve)
            if isinstance(found, MoveProof):
                move = found.moves[0]
                world.put_back(pod.key)
                if not found.is_reserved:
                    refusal = self._why_not_with_others(world, move)
                    if refusal is not None:
                        return refusal
                attempt.keep()
                self._leaving[pod.key] = move
                if not found.is_reserved:
                    self._at_once.setdefault(move.source, []).append(move)
        return found

    def _why_not_with_others(self, world: TrialWorld, move: Relocation) -> Stay | None:
        """Return why a pod stays that goes at the same time as others from its node.

        Each was tried while the others were there; without them the node may be the best again.
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
                    return Stay(StayReason.REFUSED, str(error))
                if not landing.node:
                    return _without_place(landing)
                if landing.node == move.source:
                    why = f"if it went, {each.pod.key} would come back to {move.source}"
                    return Stay(StayReason.COMES_BACK, why)
        return None

    def _prove_later(
        self, pod: Pod, goal: MoveGoal | None, reserve: Reserve | None
    ) -> MoveProof | Stay:
        """Try a move when all that leave in this cycle have gone."""
        world = self._the_world()
        with world.attempt() as attempt:
            for key in self._leaving:
                world.remove(key)
            found = self._try(world, pod, goal, reserve)
            if isinstance(found, Stay):
                return found
            for key in (*self._leaving, pod.key):
                world.put_back(key)
            attempt.keep()
        target = found.moves[0].target
        from_there = [key for key, move in self._leaving.items() if move.source == target]
        after = tuple(sorted(from_there or self._leaving))
        self._leaving[pod.key] = found.moves[0]
        return replace(found, after=after)

    def _try(
        self, world: TrialWorld, pod: Pod, goal: MoveGoal | None, reserve: Reserve | None
    ) -> MoveProof | Stay:
        """Make a move in thought and judge it."""
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
            return Stay(StayReason.REFUSED, str(error))
        if not landing.node:
            return _without_place(landing)
        if landing.node == source:
            why = "the scheduler would choose the same node again"
            return Stay(StayReason.COMES_BACK, f"{why}: {source}")
        moves = (Relocation(pod, source, landing.node),)
        return self._judged(moves, goal, is_reserved=reservation is not None)

    def _judged(
        self,
        moves: tuple[Relocation, ...],
        goal: MoveGoal | None,
        *,
        is_gang: bool = False,
        is_reserved: bool = False,
    ) -> MoveProof | Stay:
        now_s = self._clock.now_s()
        for move in moves:
            ago_s = self._memory.left_ago_s(lineage_of(move.pod), move.target, now_s)
            if ago_s is not None and move.target != move.source:
                what = f"its workload left {move.target} {int(ago_s)} s ago"
                return Stay(StayReason.CIRCLE, what)
        gain = _ELSEWHERE if goal is None else goal.gain(moves)
        if gain.amount <= 0:
            return Stay(StayReason.NO_GAIN, gain.text)
        return MoveProof(moves, gain, is_gang=is_gang, is_reserved=is_reserved)

    def _why_not_tried(self, world: TrialWorld, pod: Pod) -> Stay | None:
        if not world.schedules(pod):
            known = ", ".join(sorted(self._trial.scheduler_names))
            name = pod.spec.scheduler_name
            return Stay(StayReason.FOREIGN, f"schedulerName {name!r} is not one of {known}")
        if world.node_of(pod.key) != pod.spec.node_name:
            return Stay(StayReason.UNKNOWN, world.node_of(pod.key) or "it is gone")
        if target := world.node_of(_next(pod).key):
            return Stay(StayReason.UNKNOWN, f"it is on its way to {target}")
        return None

    # -- a gang ------------------------------------------------------------------------------

    def prove_gang(
        self, wanted: Pod, members: Sequence[Pod], goal: MoveGoal | None
    ) -> MoveProof | Stay:
        """Try a move of all members of a gang, one of which is wanted elsewhere."""
        world = self._the_world()
        with world.attempt() as attempt:
            for member in members:
                refusal = self._why_not_tried(world, member)
                if refusal is not None:
                    return Stay(StayReason.GANG, f"{member.key}: {refusal}")
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
                why = f"its gang would start anew, and it on {own.source} again"
                return Stay(StayReason.COMES_BACK, why)
            found = self._judged(moves, goal, is_gang=True)
            if isinstance(found, MoveProof):
                for member in members:
                    world.put_back(member.key)
                attempt.keep()
                self._leaving.update({move.pod.key: move for move in moves})
        return found

    def _the_world(self) -> TrialWorld:
        if self._world is None:
            raise InputError("moves are proven in cycles only")
        return self._world


def cycle_of(prover: MoveProver | None) -> AbstractContextManager[None]:
    """Return the cycle of a prover, if there is one."""
    return nullcontext() if prover is None else prover.cycle()


def _next(pod: Pod) -> Pod:
    """Return what replaces a pod, in thought."""
    return replacement_of(pod, f"{pod.metadata.name}-next")


def _without_place(landing: Landing) -> Stay:
    return Stay(StayReason.NO_PLACE, landing.why or landing.plugin)
