"""What plugins ask and tell about pods that they want to go: limits, proofs, dry run, telling.

Every eviction of a cycle passes here and nowhere else.
Source: koordinator pkg/descheduler/framework/runtime/evictor_proxy.go.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from koordinator.api.annotations.descheduling import ProvenMove
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import DeleteOptions
from koordinator.api.reservation import Reservation
from koordinator.descheduler.contract import (
    ClusterView,
    EvictOptions,
    GroupEvictPlugin,
    ReservingEvictPlugin,
)
from koordinator.descheduler.eviction_limits import EvictionLimits, LimitReached
from koordinator.descheduler.moves import MoveGain, MoveGoal, MoveProof, Stay, StayReason
from koordinator.descheduler.profile import RunningProfile
from koordinator.descheduler.proof import MoveProver, lineage_of
from koordinator.foundation.errors import InputError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveVerdict:
    """What became of a pod that a plugin wanted to go."""

    plugin: str
    profile: str
    pod: Pod
    reason: str  # the plugin's
    stays: Stay | LimitReached | str | None = None  # None: it goes
    target: str = ""  # of a proven move
    gain: MoveGain | None = None
    after: tuple[str, ...] = ()
    gang: str = ""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A pod that a plugin wants to go."""

    pod: Pod
    reason: str
    delete_options: DeleteOptions | None
    goal: MoveGoal | None


#: Hears of every pod that a plugin wanted to go.
MoveObserver = Callable[[MoveVerdict], object]


@dataclass(slots=True)
class ProfileEvictor:
    """Fulfils ``contract.Evictor`` for one plugin."""

    plugin: str
    profile: str
    limits: EvictionLimits
    is_dry_run: bool
    count: Callable[[str, Pod, str], None]
    observe: MoveObserver
    view: ClusterView
    prover: MoveProver | None = None  # None: moves of this plugin are not proven
    running: RunningProfile | None = None  # known as soon as all its plugins are built
    #: found no place, and may find one when others have gone
    _homeless: list[tuple["_Wanted", Stay | LimitReached]] = field(default_factory=list)
    #: by key of a pod that is to go next: nodes on which no place is reserved for it
    _avoided: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def filter(self, pod: Pod) -> bool:
        return all(each.filter(pod) for each in self._running().filters)

    def pre_eviction_filter(self, pod: Pod) -> bool:
        return all(each.pre_eviction_filter(pod) for each in self._running().filters)

    def evict(
        self,
        pod: Pod,
        reason: str = "",
        delete_options: DeleteOptions | None = None,
        *,
        goal: MoveGoal | None = None,
    ) -> bool:
        stay = self._try(pod, reason, delete_options, goal)
        if isinstance(stay, Stay) and stay.why is StayReason.NO_PLACE:
            self._homeless.append((_Wanted(pod, reason, delete_options, goal), stay))
            return False
        if isinstance(stay, (Stay, LimitReached)):
            return self._stays(pod, reason, stay)
        return stay

    def retry(self) -> None:
        """Let pods go that found no place, if others have made room since; tell who stays.

        Called when the plugin has named all the pods that it wants to go.
        """
        homeless, self._homeless = self._homeless, []
        self._avoided.clear()
        progress = self.prover is not None and self.prover.makes_room
        while progress and homeless:
            progress, left = False, []
            for wanted, _ in homeless:
                stay = self._try(wanted.pod, wanted.reason, wanted.delete_options, wanted.goal)
                if isinstance(stay, (Stay, LimitReached)):
                    left.append((wanted, stay))
                progress |= stay is True
            homeless = left
        for wanted, why in homeless:
            self._stays(wanted.pod, wanted.reason, why)

    def prove(
        self,
        pods: Sequence[Pod],
        goal: MoveGoal,
        *,
        cordoning: str = "",
        avoiding: Sequence[str] = (),
        then: Sequence[Pod] = (),
    ) -> bool:
        limit = self.limits.refusal_of(pods) if then else None
        if limit is not None:
            return self._stays(pods[0], "", limit)
        if avoiding:
            self._avoided.update({pod.key: tuple(avoiding) for pod in pods})
        if self.prover is None:
            return True
        for pod in pods:
            if self.prover.members_with(pod):
                return self._stays(pod, "", Stay(StayReason.GANG, "others have to go without it"))
        stay = self.prover.prove_all(pods, goal, self._reserve, cordoning=cordoning, then=then)
        return stay is None or self._stays(pods[0], "", stay)

    def is_node_limit_reached(self, node: str) -> bool:
        return self.limits.is_node_limit_reached(node)

    def evicted_total(self) -> int:
        return self.limits.total

    def _try(
        self,
        pod: Pod,
        reason: str,
        delete_options: DeleteOptions | None,
        goal: MoveGoal | None,
    ) -> Stay | LimitReached | bool:
        """Return why the pod stays, or whether it goes: the evict plugin may know better."""
        limit = self.limits.refusal(pod)
        if limit is not None or self.prover is None:
            return limit or self._go([pod], reason, delete_options, None)
        proof = self.prover.proof_of(pod) or self._prove(self.prover, pod, goal)
        if isinstance(proof, Stay):
            return proof
        pods = [move.pod for move in proof.moves]
        limit = self.limits.refusal_of(pods)
        if limit is not None or not self._go(pods, reason, delete_options, proof):
            self.prover.not_made(proof)
            return limit or False
        self.prover.made(proof, goal)
        return True

    # -- proofs --------------------------------------------------------------------------------

    def _prove(self, prover: MoveProver, pod: Pod, goal: MoveGoal | None) -> MoveProof | Stay:
        members = prover.members_with(pod)
        if not members:
            waits = isinstance(self._running().evict, ReservingEvictPlugin)
            return prover.prove(pod, goal, self._reserve, waits=waits)
        if not isinstance(self._running().evict, GroupEvictPlugin):
            return Stay(StayReason.GANG, "the evict plugin can't evict several pods or none")
        known = self.view.objects(Pod)
        pods = [known[key] for key in members if key in known]
        for member in pods:
            if member.key != pod.key and not self.filter(member):
                return Stay(StayReason.GANG, f"{member.key} may not go")
        if len(pods) != len(members):
            return Stay(StayReason.UNKNOWN, "members of its gang come and go")
        return prover.prove_gang(pod, pods, goal)

    def _reserve(self, pod: Pod) -> Reservation | None:
        evict = self._running().evict
        if not isinstance(evict, ReservingEvictPlugin):
            return None
        return evict.place_to_reserve(pod, self._avoided.get(pod.key, ()))

    # -- what is done --------------------------------------------------------------------------

    def _go(
        self,
        pods: Sequence[Pod],
        reason: str,
        delete_options: DeleteOptions | None,
        proof: MoveProof | None,
    ) -> bool:
        made = [self._options(pod, reason, delete_options, proof) for pod in pods]
        if not self.is_dry_run and not self._evict(list(zip(pods, made, strict=True))):
            return False
        for pod, options in zip(pods, made, strict=True):
            proven = options.proven
            told = "pod would be evicted, but for the dry run" if self.is_dry_run else "pod evicted"
            log.info(told, extra=self._extra(pod, reason) | _told(proven))
            self.limits.count(pod)
            self.observe(
                MoveVerdict(
                    plugin=self.plugin,
                    profile=self.profile,
                    pod=pod,
                    reason=reason,
                    target=proven.target if proven is not None else "",
                    gain=proof.gain if proof is not None else None,
                    after=proof.after if proof is not None else (),
                    gang=proven.gang if proven is not None else "",
                )
            )
        return True

    def _evict(self, wanted: Sequence[tuple[Pod, EvictOptions]]) -> bool:
        evict = self._running().evict
        if len(wanted) > 1 and isinstance(evict, GroupEvictPlugin):
            return evict.evict_together(wanted)
        return all(evict.evict(pod, options) for pod, options in wanted)

    def _options(
        self,
        pod: Pod,
        reason: str,
        delete_options: DeleteOptions | None,
        proof: MoveProof | None,
    ) -> EvictOptions:
        return EvictOptions(
            plugin=self.plugin,
            profile=self.profile,
            reason=reason,
            delete_options=delete_options,
            proven=None if proof is None else _written(proof, pod),
            avoided_nodes=self._avoided.get(pod.key, ()),
        )

    def _stays(self, pod: Pod, reason: str, why: Stay | LimitReached) -> bool:
        kind = why.why if isinstance(why, Stay) else why
        self.count(self.plugin, pod, kind)
        log.info("pod not evicted", extra=self._extra(pod, reason) | {"why": str(why)})
        self.observe(
            MoveVerdict(plugin=self.plugin, profile=self.profile, pod=pod, reason=reason, stays=why)
        )
        return False

    def _extra(self, pod: Pod, reason: str) -> dict[str, str]:
        return {
            "pod": pod.key,
            "node": pod.spec.node_name,
            "plugin": self.plugin,
            "profile": self.profile,
            "reason": reason,
        }

    def _running(self) -> RunningProfile:
        if self.running is None:
            raise InputError(f"plugin {self.plugin} asks about pods while it is built")
        return self.running


def _written(proof: MoveProof, pod: Pod) -> ProvenMove:
    """Return what a proof says of one of its pods, as it is written on a job."""
    move = next(each for each in proof.moves if each.pod.key == pod.key)
    return ProvenMove(
        source=move.source,
        target=move.target,
        gain=proof.gain.text,
        lineage=lineage_of(pod),
        after=proof.after,
        gang=proof.moves[0].pod.metadata.uid if proof.is_gang else "",
        gang_size=len(proof.moves) if proof.is_gang else 0,
    )


def _told(proven: ProvenMove | None) -> dict[str, str]:
    return {} if proven is None else {"target": proven.target, "gain": proven.gain}
