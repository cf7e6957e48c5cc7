"""Evictor of plugins: limits of the cycle, proofs, dry run and reports.

All evictions of a cycle go through ``ProfileEvictor``.
Source: koordinator pkg/descheduler/framework/runtime/evictor_proxy.go;
pkg/descheduler/evictions/eviction_limiter.go.
"""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import field
from enum import StrEnum

from koordinator.api.annotations.scheduling import ProvenMove
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import DeleteOptions
from koordinator.api.reservation import Reservation
from koordinator.descheduler.contract import (
    ClusterView,
    DeferringEvictPlugin,
    EvictOptions,
    MoveGain,
    MoveGoal,
    MoveProof,
    SkippedMove,
    SkipReason,
)
from koordinator.descheduler.profile import RunningProfile
from koordinator.descheduler.proof import MoveProver, lineage_of
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass

log = logging.getLogger(__name__)


class LimitReached(StrEnum):
    """Limit that prevents an eviction; ``result`` of the metric ``pods_evicted``."""

    NODE = "maximum number of pods per node reached"
    NAMESPACE = "maximum number of pods per namespace reached"
    TOTAL = "maximum number of pods total reached"


@dataclass(slots=True)
class EvictionLimits:
    """Evictions of the cycle by node and namespace; None means no limit."""

    per_node: int | None = None
    per_namespace: int | None = None
    in_total: int | None = None
    total: int = 0
    _by_node: Counter[str] = field(default_factory=Counter)
    _by_namespace: Counter[str] = field(default_factory=Counter)

    def reset(self) -> None:
        """Reset the counts at the start of a cycle."""
        self.total = 0
        self._by_node.clear()
        self._by_namespace.clear()

    def refusal(self, pod: Pod) -> LimitReached | None:
        """Return the limit that the eviction of a pod would exceed, None otherwise."""
        node = pod.spec.node_name
        if node and self.is_node_limit_reached(node):
            return LimitReached.NODE
        namespace = pod.metadata.namespace
        if self.per_namespace is not None and self._by_namespace[namespace] >= self.per_namespace:
            return LimitReached.NAMESPACE
        if self.in_total is not None and self.total >= self.in_total:
            return LimitReached.TOTAL
        return None

    def refusal_of(self, pods: Sequence[Pod]) -> LimitReached | None:
        """Return the limit that the evictions of all pods together would exceed, None otherwise."""
        after = EvictionLimits(
            self.per_node,
            self.per_namespace,
            self.in_total,
            self.total,
            Counter(self._by_node),
            Counter(self._by_namespace),
        )
        for pod in pods:
            refusal = after.refusal(pod)
            if refusal is not None:
                return refusal
            after.count(pod)
        return None

    def is_node_limit_reached(self, node: str) -> bool:
        """Return whether no further pod of a node may be evicted."""
        return self.per_node is not None and self._by_node[node] >= self.per_node

    def count(self, pod: Pod) -> None:
        """Count the eviction of a pod."""
        self.total += 1
        self._by_namespace[pod.metadata.namespace] += 1
        if pod.spec.node_name:
            self._by_node[pod.spec.node_name] += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveVerdict:
    """Result of an eviction that a plugin requested."""

    plugin: str
    profile: str
    pod: Pod
    reason: str  # the plugin's
    skipped: SkippedMove | LimitReached | str | None = None  # None: the pod is evicted
    target: str = ""  # of a proven move
    gain: MoveGain | None = None
    after: tuple[str, ...] = ()
    gang: str = ""


@dataclass(frozen=True, slots=True)
class _RequestedEviction:
    """Eviction that a plugin requested."""

    pod: Pod
    reason: str
    delete_options: DeleteOptions | None
    goal: MoveGoal | None


#: Receives the verdict on each requested eviction.
MoveObserver = Callable[[MoveVerdict], object]


@dataclass(slots=True)
class ProfileEvictor:
    """Implementation of ``contract.Evictor`` for one plugin."""

    plugin: str
    profile: str
    limits: EvictionLimits
    is_dry_run: bool
    count: Callable[[str, Pod, str], None]
    observe: MoveObserver
    view: ClusterView
    prover: MoveProver | None = None  # None: moves of this plugin are not proven
    running: RunningProfile | None = None  # set when all plugins are built
    #: Evictions without a place, retried after others have freed room.
    _pending_retry: list[tuple["_RequestedEviction", SkippedMove | LimitReached]] = field(
        default_factory=list
    )
    #: By key of a pod: nodes that the reservation of its next eviction excludes.
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
        skip = self._try(pod, reason, delete_options, goal)
        if isinstance(skip, SkippedMove) and skip.why is SkipReason.NO_PLACE:
            self._pending_retry.append(
                (_RequestedEviction(pod, reason, delete_options, goal), skip)
            )
            return False
        if isinstance(skip, (SkippedMove, LimitReached)):
            return self._skip(pod, reason, skip)
        return skip

    def retry(self) -> None:
        """Retry evictions without a place if others have freed room; report the skipped ones.

        It is called after the plugin has requested all its evictions.
        """
        pending, self._pending_retry = self._pending_retry, []
        self._avoided.clear()
        progress = self.prover is not None and self.prover.makes_room
        while progress and pending:
            progress, left = False, []
            for wanted, _ in pending:
                skip = self._try(wanted.pod, wanted.reason, wanted.delete_options, wanted.goal)
                if isinstance(skip, (SkippedMove, LimitReached)):
                    left.append((wanted, skip))
                progress |= skip is True
            pending = left
        for wanted, why in pending:
            self._skip(wanted.pod, wanted.reason, why)

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
            return self._skip(pods[0], "", limit)
        if avoiding:
            self._avoided.update({pod.key: tuple(avoiding) for pod in pods})
        if self.prover is None:
            return True
        for pod in pods:
            if self.prover.members_with(pod):
                return self._skip(
                    pod, "", SkippedMove(SkipReason.GANG, "other members of its gang would remain")
                )
        skip = self.prover.prove_all(pods, goal, self._reserve, cordoning=cordoning, then=then)
        return skip is None or self._skip(pods[0], "", skip)

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
    ) -> SkippedMove | LimitReached | bool:
        """Evict a pod; return why it is skipped, or whether the evict plugin accepted it."""
        limit = self.limits.refusal(pod)
        if limit is not None or self.prover is None:
            return limit or self._perform([pod], reason, delete_options, None)
        proof = self.prover.proof_of(pod) or self._prove(self.prover, pod, goal)
        if isinstance(proof, SkippedMove):
            return proof
        pods = [move.pod for move in proof.moves]
        limit = self.limits.refusal_of(pods)
        if limit is not None or not self._perform(pods, reason, delete_options, proof):
            self.prover.withdraw(proof)
            return limit or False
        self.prover.made(proof, goal)
        return True

    # -- proofs --------------------------------------------------------------------------------

    def _prove(
        self, prover: MoveProver, pod: Pod, goal: MoveGoal | None
    ) -> MoveProof | SkippedMove:
        members = prover.members_with(pod)
        if not members:
            waits = isinstance(self._running().evict, DeferringEvictPlugin)
            return prover.prove(pod, goal, self._reserve, waits=waits)
        if not isinstance(self._running().evict, DeferringEvictPlugin):
            return SkippedMove(
                SkipReason.GANG, "the evict plugin cannot evict several pods or none"
            )
        known = self.view.objects(Pod)
        pods = [known[key] for key in members if key in known]
        for member in pods:
            if member.key != pod.key and not self.filter(member):
                return SkippedMove(SkipReason.GANG, f"{member.key} may not be evicted")
        if len(pods) != len(members):
            return SkippedMove(
                SkipReason.UNKNOWN, "members of its gang are being created or deleted"
            )
        return prover.prove_gang(pod, pods, goal)

    def _reserve(self, pod: Pod) -> Reservation | None:
        evict = self._running().evict
        if not isinstance(evict, DeferringEvictPlugin):
            return None
        return evict.place_to_reserve(pod, self._avoided.get(pod.key, ()))

    # -- evictions -----------------------------------------------------------------------------

    def _perform(
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
            event = "dry run: pod would be evicted" if self.is_dry_run else "pod evicted"
            log.info(event, extra=self._extra(pod, reason) | _proof_extra(proven))
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
        if len(wanted) > 1 and isinstance(evict, DeferringEvictPlugin):
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
            proven=None if proof is None else _proven_move(proof, pod),
            avoided_nodes=self._avoided.get(pod.key, ()),
        )

    def _skip(self, pod: Pod, reason: str, why: SkippedMove | LimitReached) -> bool:
        kind = why.why if isinstance(why, SkippedMove) else why
        self.count(self.plugin, pod, kind)
        log.info("pod not evicted", extra=self._extra(pod, reason) | {"why": str(why)})
        self.observe(
            MoveVerdict(
                plugin=self.plugin, profile=self.profile, pod=pod, reason=reason, skipped=why
            )
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
            raise InputError(f"plugin {self.plugin} uses its evictor before it is built")
        return self.running


def _proven_move(proof: MoveProof, pod: Pod) -> ProvenMove:
    """Return the annotation of the job of a pod, from the proof of its move."""
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


def _proof_extra(proven: ProvenMove | None) -> dict[str, str]:
    return {} if proven is None else {"target": proven.target, "gain": proven.gain}
