"""Extension points of Reservation, for pods that use reservations and for reservations."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np
from msgspec.structs import replace

from koordinator.api.annotations.reservation import (
    AFFINITY,
    ALLOCATED,
    IS_PRE_ALLOCATION,
    RESERVE_POD,
    ReservationAffinity,
    ReservationAllocated,
)
from koordinator.api.kubescheduler import NO_GATES, FeatureGates, ReservationArgs
from koordinator.api.kubescheduler.gates import OMIT_NODE_LABELS, STRICT_TENANCY
from koordinator.api.labels import RESERVATION_IGNORED, is_preemptible, is_true
from koordinator.api.meta import KubeObject, ObjectMeta
from koordinator.api.pod import Pod
from koordinator.domain.node_selection import (
    FORBIDDING,
    toleration_of,
    toleration_text,
    untolerated,
)
from koordinator.domain.reserve_pod import TERMS, ReservePodTerms, is_for_others
from koordinator.foundation.arrays import IntArray
from koordinator.foundation.errors import InputError
from koordinator.foundation.memo import Memo
from koordinator.scheduler.contract import (
    Action,
    AllocationResult,
    ClusterEvent,
    EventHint,
    Nomination,
    NumaAligner,
    NumaHintProvider,
    PluginExample,
    PluginHints,
    PluginSpec,
    QueueingHint,
    Reads,
    Refusal,
    Rejections,
    Shortlist,
    spread_of,
)
from koordinator.scheduler.contract.events import on_claimed_gpus
from koordinator.scheduler.plugins.reservation.hold_fit import HoldEvaluator, HoldFit
from koordinator.scheduler.plugins.reservation.pre_allocation import (
    NO_CANDIDATES,
    PreAllocation,
    PreAllocationPlan,
)
from koordinator.scheduler.plugins.reservation.usable_holds import (
    UsableHolds,
    in_words,
    placing,
    read_requester,
    reserves,
    summary,
    together,
    unusable,
)
from koordinator.scheduler.post_filter import Attempt, PostFilterResult
from koordinator.scheduler.preemption.single_node import preempt
from koordinator.scheduler.rules.reservations.match import IgnoredResources
from koordinator.scheduler.rules.reservations.offer import AllocatePolicy
from koordinator.scheduler.snapshot import (
    PlacedPod,
    PodAllocation,
    PodClass,
    ResourceAxis,
    RestorableHolds,
    Snapshot,
)

NO_MATCH: Final = "node(s) no reservations match reservation affinity"
ORDERED: Final = 1 << 10  # raw scores from here on encode the order label, smaller ones higher
LARGEST_ORDER: Final = 1 << 51
NAMED: Final = 2  # reservations of a node for which a change of the pod is proposed
FIRST_SCORE: Final = 1000  # raw score of the node with the smallest order label

#: What a class of pods may use; a refusal if its annotations are malformed.
Known = UsableHolds | PreAllocation | Refusal


class Reservations:
    """Filter, score and nomination of reservations; ``parts`` allocate devices and CPUs."""

    reads: ClassVar = Reads.PLACED

    def __init__(self, args: ReservationArgs) -> None:
        self.args = args
        self.ignored = IgnoredResources(
            frozenset(args.ignored_resources), frozenset(args.ignored_resource_groups)
        )
        self.parts: tuple[Any, ...] = ()
        self.gates = NO_GATES
        self._usable: Memo[Known | None] = Memo()
        self._usable_by_owners: Memo[Known | None] = Memo()  # for pods that may not ignore them
        self._planned: Memo[dict[int, PreAllocationPlan]] = Memo()
        self._known_fits: Memo[dict[int, HoldFit]] = Memo()
        self.hints = PluginHints(
            prefilters=lambda _snapshot, pod: bool(pod.annotations),  # nothing else can be refused
            filters=self._filters,
            scores=self._scores,
        )

    def with_gates(self, gates: FeatureGates) -> "Reservations":
        """Store the feature gates."""
        self.gates = gates
        return self

    def setup(self, plugins: Sequence[Any]) -> None:
        """Look up the plugins that allocate devices, CPUs and NUMA nodes."""
        candidates = (p for p in plugins if hasattr(p, "numa_hints") or hasattr(p, "aligns"))
        self.parts = tuple(p for p in candidates if isinstance(p, NumaHintProvider | NumaAligner))

    # -- usable holds --------------------------------------------------------------------------

    def restorable(self, snapshot: Snapshot, pod: PodClass) -> RestorableHolds | None:
        known = self._known(snapshot, pod)
        if isinstance(known, UsableHolds):
            return known.refresh(snapshot, pod)
        return known.refresh(snapshot) if isinstance(known, PreAllocation) else None

    def _known(self, snapshot: Snapshot, pod: PodClass) -> Known | None:
        """Return the pods that the class may use; None for a reservation of free capacity."""
        if self._is_denied(snapshot, pod):
            return self._usable_by_owners.of(pod, self._read_as_owner, snapshot, pod)
        return self._usable.of(pod, self._read, snapshot, pod)

    def _is_denied(self, snapshot: Snapshot, pod: PodClass) -> bool:
        """Return whether a pod ignores reservations in a namespace that does not allow it.

        This applies only with strict tenancy.
        """
        if STRICT_TENANCY not in self.gates or not is_true(pod.labels, RESERVATION_IGNORED):
            return False
        return not is_true(snapshot.namespace_labels(pod.namespace), RESERVATION_IGNORED)

    def _read_as_owner(self, snapshot: Snapshot, pod: PodClass) -> Known | None:
        return self._read(snapshot, pod, may_ignore=False)

    def _read(self, snapshot: Snapshot, pod: PodClass, *, may_ignore: bool = True) -> Known | None:
        is_strict = STRICT_TENANCY in self.gates
        if RESERVE_POD in pod.annotations:
            terms = self._terms(pod)
            if terms.pre_allocation is None:
                return None
            try:
                return PreAllocation.of(pod, terms, self.args, self.parts, is_strict=is_strict)
            except InputError as error:
                return Refusal(str(error))
        requester = read_requester(snapshot, pod, is_strict=is_strict, may_ignore=may_ignore)
        if isinstance(requester, Refusal):
            return requester
        return UsableHolds(requester, OMIT_NODE_LABELS in self.gates)

    def _is_required(self, known: Known | None) -> bool:
        return isinstance(known, UsableHolds) and known.requester.selector.affinity is not None

    # -- nodes ---------------------------------------------------------------------------------

    def prefilter(self, snapshot: Snapshot, pod: PodClass) -> Refusal | Shortlist | None:
        known = self._known(snapshot, pod)
        if isinstance(known, Refusal):
            return known
        if isinstance(known, PreAllocation):
            nodes = known.shortlist(snapshot)
            if nodes is not None and not nodes:
                return known.refusal or Refusal(NO_CANDIDATES)
            return known.refusal or (None if nodes is None else Shortlist(nodes))
        if known is None or not self._is_required(known):
            return None
        if snapshot.restorable is None:
            return Refusal(NO_MATCH)
        if known.nodes is None:
            names = snapshot.cluster.node_names
            known.nodes = frozenset(names[row] for row in snapshot.restorable.on_row)
        return Shortlist(known.nodes)

    def _filters(self, snapshot: Snapshot, pod: PodClass) -> bool:
        if snapshot.restorable is not None or reserves(pod):
            return True
        return self._is_required(self._known(snapshot, pod))

    def filter(self, snapshot: Snapshot, pod: PodClass) -> Rejections:
        """Reject nodes without a usable hold, and for reservations those with a policy conflict."""
        known = self._known(snapshot, pod)
        if isinstance(known, PreAllocation):
            return self._filter_over_pods(snapshot, pod, known)
        if known is None:
            return placing(snapshot, pod, AllocatePolicy(self._terms(pod).allocate_policy))
        rejections = self._filter_by_use(snapshot, pod, known)
        if not is_for_others(pod.labels):
            return rejections
        return together(placing(snapshot, pod, AllocatePolicy.ALIGNED), rejections)

    def _filter_by_use(
        self, snapshot: Snapshot, pod: PodClass, known: UsableHolds | Refusal
    ) -> Rejections:
        required = self._is_required(known)
        if isinstance(known, Refusal) or (known.requester.selector.ignores and not required):
            return Rejections.none(snapshot)
        fits = self._hold_fits(snapshot, pod, known)
        codes = np.full(len(snapshot), int(required), np.int64)
        for place, fit in fits.items():
            codes[place] = bool(fit.reasons)

        def explain(place: int) -> Sequence[str]:
            fit = fits.get(place)
            return fit.reasons if fit is not None else (NO_MATCH,)

        unmatched = np.ones(len(snapshot), bool)
        unmatched[list(fits)] = False
        return Rejections(codes, (NO_MATCH,), unmatched, explain)

    def _terms(self, pod: PodClass) -> ReservePodTerms:
        """Return the terms of a reservation."""
        return TERMS.read(ObjectMeta(annotations=dict(pod.annotations))) or ReservePodTerms()

    def _filter_over_pods(
        self, snapshot: Snapshot, pod: PodClass, known: PreAllocation
    ) -> Rejections:
        placed = placing(snapshot, pod, known.offer.policy)
        plans = self._plans(snapshot, pod, known)
        codes = placed.codes.copy()
        for place, plan in plans.items():
            codes[place] |= bool(plan.reasons) << len(placed.reasons)

        def explain(place: int) -> Sequence[str]:
            plan = plans.get(place)
            own = plan.reasons if plan is not None else ()
            return (*(r for bit, r in enumerate(placed.reasons) if codes[place] >> bit & 1), *own)

        return Rejections(codes, placed.reasons, placed.unresolvable, explain)

    def _plans(
        self, snapshot: Snapshot, pod: PodClass, known: PreAllocation
    ) -> dict[int, PreAllocationPlan]:
        """Return the plans by place in the view."""
        restorable = snapshot.restorable
        on_row = restorable.on_row if restorable is not None else {}

        def plan() -> dict[int, PreAllocationPlan]:
            rows = snapshot.row_numbers.tolist()
            return {
                place: known.at(snapshot, place, on_row.get(rows[place], {}).values(), pod)
                for place in known.places(snapshot, pod, on_row)
            }

        return self._planned.as_of(snapshot, (snapshot.usage_version, pod.id), plan)

    def _hold_fits(
        self, snapshot: Snapshot, pod: PodClass, known: UsableHolds
    ) -> dict[int, HoldFit]:
        """Return the results for rows with usable holds, by place in the view.

        For a pod that ignores reservations, each such row counts as free.
        """
        restorable, ignores = snapshot.restorable, known.requester.selector.ignores
        if restorable is None:
            return {}

        def evaluate_rows() -> dict[int, HoldFit]:
            evaluator = self._evaluator(snapshot, pod, known)
            on_row = restorable.on_row

            def at(place: int, row: int) -> HoldFit:
                return HoldFit() if ignores else evaluator.at(place, on_row[row].values())

            if snapshot.rows is None:
                return {row: at(row, row) for row in on_row}
            rows = enumerate(snapshot.rows.tolist())
            return {place: at(place, row) for place, row in rows if row in on_row}

        return self._known_fits.as_of(snapshot, (snapshot.usage_version, pod.id), evaluate_rows)

    def _evaluator(self, snapshot: Snapshot, pod: PodClass, known: UsableHolds) -> HoldEvaluator:
        return HoldEvaluator(snapshot, pod, known.requester, self.ignored, self.parts)

    # -- scores --------------------------------------------------------------------------------

    def _scores(self, snapshot: Snapshot, pod: PodClass) -> bool:
        known = self._known(snapshot, pod)
        ignores = isinstance(known, UsableHolds) and known.requester.selector.ignores
        return snapshot.restorable is not None and not ignores

    def score(self, snapshot: Snapshot, pod: PodClass) -> IntArray:
        """Return ``(n,)``: the utilisation of the reservation, or its order label.

        The smallest label is known only among feasible nodes.  Scores of reservations are negative
        and are not spread.
        """
        raw = np.zeros(len(snapshot), np.int64)
        known = self._known(snapshot, pod)
        if isinstance(known, PreAllocation):
            raw[:] = -known.score_of(PreAllocationPlan())
            for place, plan in self._plans(snapshot, pod, known).items():
                raw[place] = -known.score_of(plan)
        if not isinstance(known, UsableHolds) or known.requester.selector.ignores:
            return raw
        evaluator = self._evaluator(snapshot, pod, known)
        for place, fit in self._hold_fits(snapshot, pod, known).items():
            if fit.fitting:
                hold = evaluator.best(fit.fitting)
                raw[place] = evaluator.score(hold)
                if hold.offer.order:
                    order = min(max(hold.offer.order, -LARGEST_ORDER), LARGEST_ORDER)
                    raw[place] += (LARGEST_ORDER - order + 1) * ORDERED
        return raw

    def normalize(self, raw: IntArray) -> IntArray:
        """Return 0..MAX_SCORE, the fullest highest; the smallest order label leads by far."""
        if len(raw) and raw.min() < 0:
            return -raw
        scores = raw & (ORDERED - 1)
        best = int(raw.argmax()) if len(raw) else 0
        if len(raw) and raw[best] >= ORDERED:
            scores[best] = FIRST_SCORE
        return spread_of(scores)

    # -- nomination ----------------------------------------------------------------------------

    def nominate(self, node: Snapshot, pod: PodClass) -> Nomination | Refusal:
        known = self._known(node, pod)
        restorable, row = node.restorable, int(node.row_numbers[0])
        if isinstance(known, PreAllocation):
            taken = self._plans(node, pod, known).get(0, PreAllocationPlan()).taken
            return Nomination(restored=taken, first=taken)
        if not isinstance(known, UsableHolds) or restorable is None:
            return Nomination()
        if known.requester.selector.ignores:
            return Nomination(restored=tuple(restorable.at(row)))
        fit = self._hold_fits(node, pod, known).get(0)
        if fit is not None and fit.fitting:
            hold = self._evaluator(node, pod, known).best(fit.fitting)
            return Nomination(hold, (hold,), (hold,))
        if self._is_required(known):
            return Refusal(NO_MATCH)
        return Nomination()

    def reserve(self, node: Snapshot, pod: PodClass, _wish: IntArray | None) -> AllocationResult:
        """Record the reservation on the pod, or the taken-over pods on a reservation."""
        if isinstance(self._known(node, pod), PreAllocation):
            pods = tuple(hold.placed.pod for hold in node.restored)
            if not pods:
                return AllocationResult()
            uids = frozenset(each.metadata.uid for each in pods)
            return AllocationResult(PodAllocation(takes_over=uids), takes_over=pods)
        hold = node.nominated
        if hold is None:
            return AllocationResult()
        used = ReservationAllocated(name=hold.offer.name, uid=hold.offer.uid)
        annotations = ALLOCATED.entry(used)
        return AllocationResult(
            PodAllocation(uses=hold.offer.uid, annotations=annotations), annotations
        )

    # -- reasons -------------------------------------------------------------------------------

    def may_preempt(self, _pod: Pod, victim: PlacedPod) -> bool:
        return self.args.enable_preemption and _is_evictable(victim)

    def postfilter(self, attempt: Attempt) -> PostFilterResult:
        """Preempt if allowed; else count the reservations per reason."""
        messages: list[str] = []
        keeps_nomination = False
        if self.args.enable_preemption:
            percentage = self.args.min_candidate_nodes_percentage
            absolute = self.args.min_candidate_nodes_absolute
            result = preempt(attempt, percentage, absolute, _is_evictable)
            if result.node:
                return result
            messages.append(result.message)
            keeps_nomination = result.keeps_nomination
        snapshot, pod = attempt.what_if.snapshot, attempt.pod_class
        messages += self._reasons(snapshot, pod, lambda row: attempt.what_if.why_not(pod, row, ()))
        return PostFilterResult(", ".join(messages), keeps_nomination=keeps_nomination)

    def node_shortfall(self, view: Snapshot, pod: PodClass) -> dict[str, int] | None:
        known, restorable = self._known(view, pod), view.restorable
        holds = tuple(restorable.at(int(view.row_numbers[0]))) if restorable is not None else ()
        if not holds or not isinstance(known, UsableHolds) or known.requester.selector.ignores:
            return None
        return self._evaluator(view, pod, known).least_shortfall(0, holds)

    def refusal_detail(self, snapshot: Snapshot, pod: PodClass) -> str:
        """Return why reservations that the pod owns do not match."""
        known = self._known(snapshot, pod)
        if not isinstance(known, UsableHolds) or not self._is_required(known):
            return ""
        return in_words(known.verdicts(snapshot, pod))

    def pod_remedies(self, view: Snapshot, pod: PodClass, it: Pod) -> list[tuple[str, Pod]]:
        """Return the pod with an existing reservation's name, and without reservation affinity."""
        if AFFINITY.key not in it.metadata.annotations:
            return []
        known, row = self._known(view.cluster, pod), int(view.row_numbers[0])
        owned = known.owned(view.cluster) if isinstance(known, UsableHolds) else []
        changed = []
        for name in [hold.offer.name for hold in owned if hold.row == row][:NAMED]:
            named = AFFINITY.entry(ReservationAffinity(name=name))
            changed.append(
                (
                    f"name {name} in its reservation affinity: {', '.join(named.values())}",
                    _annotated(it, named),
                )
            )
        text = f"remove its reservation affinity (annotation {AFFINITY.key})"
        return [*changed, (text, _annotated(it, {}))]

    def unusable_holds(self, snapshot: Snapshot, pod: PodClass) -> dict[str, str]:
        """Return why the pod may not use the reservations that it owns, by name."""
        known = self._known(snapshot, pod)
        return unusable(known, snapshot, pod) if isinstance(known, UsableHolds) else {}

    def hold_remedies(self, view: Snapshot, pod: PodClass, it: Pod) -> list[tuple[str, Pod]]:
        """Return the pod with tolerations of reservations that it owns on the node."""
        known = self._known(view.cluster, pod)
        if not isinstance(known, UsableHolds) or known.requester.selector.affinity is not None:
            return []
        changed, row = [], int(view.row_numbers[0])
        for hold in known.owned(view.cluster):
            if hold.row != row:
                continue
            taints = untolerated(hold.offer.taints, it.spec.tolerations, FORBIDDING)
            if taints:
                more = tuple(map(toleration_of, taints))
                spec = replace(it.spec, tolerations=it.spec.tolerations + more)
                listed = ", ".join(map(toleration_text, more))
                text = f"add to its tolerations, for reservation {hold.offer.name}: [{listed}]"
                changed.append((text, replace(it, spec=spec)))
            if len(changed) == NAMED:
                break
        return changed

    def _reasons(
        self, snapshot: Snapshot, pod: PodClass, reasons_at: Callable[[int], Sequence[str]]
    ) -> list[str]:
        known = self._known(snapshot, pod)
        if not isinstance(known, UsableHolds):
            return []
        verdicts = known.verdicts(snapshot, pod)
        return summary(verdicts, reasons_at, required=self._is_required(known))


def _annotated(it: Pod, entry: Mapping[str, str]) -> Pod:
    """Return the pod with this reservation affinity."""
    rest = {k: v for k, v in it.metadata.annotations.items() if k != AFFINITY.key}
    return replace(it, metadata=replace(it.metadata, annotations={**rest, **entry}))


def _is_evictable(placed: PlacedPod) -> bool:
    return is_preemptible(placed.pod.metadata.labels)


def _on_assigned_pod(pod: KubeObject, event: ClusterEvent) -> QueueingHint:
    """Queue if a pod was removed or holds less.

    A reservation that may take over running pods is queued for any event of one.
    """
    is_smaller = bool(event.action & (Action.DELETE | Action.UPDATE_SCALE_DOWN))
    helps = is_smaller or IS_PRE_ALLOCATION in pod.metadata.annotations
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP


def build(args: ReservationArgs, _axis: ResourceAxis) -> Reservations:
    return Reservations(args)


EXAMPLE = PluginExample(
    pods=({}, {"metadata": {"annotations": {AFFINITY.key: "{}"}}}),
    objects=tuple(
        {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "Reservation",
            "metadata": {
                "name": name,
                "uid": f"00000000-0000-4000-8000-00000000000{number}",
                "creationTimestamp": "2023-11-14T22:00:00Z",
            },
            "spec": {
                "owners": [{"labelSelector": {"matchLabels": {"app": f"app{number}"}}}],
                "allocateOnce": False,
                "template": {
                    "spec": {
                        "containers": [{"name": "hold", "resources": {"requests": {"cpu": "1"}}}]
                    }
                },
            },
            "status": {"phase": "Available", "nodeName": name, "allocatable": {"cpu": "1"}},
        }
        for number, name in enumerate(("n0", "n1", "n2"))
    ),
)

PLUGIN = PluginSpec(
    "Reservation",
    ReservationArgs,
    build,
    events=(
        EventHint("AssignedPod", Action.ALL, _on_assigned_pod),
        EventHint("Reservation", Action.ALL),
        EventHint(
            "Node",
            Action.ADD
            | Action.UPDATE_ALLOCATABLE
            | Action.UPDATE_LABELS
            | Action.UPDATE_ANNOTATIONS,
        ),
        # Beside each hold, the plugins for devices and NUMA nodes judge what they allocate.
        EventHint("Device", Action.ALL),
        EventHint("ConfigMap", Action.ALL),
        EventHint("ResourceClaim", Action.UPDATE | Action.DELETE, on_claimed_gpus),
        EventHint("NodeResourceTopology", Action.ALL),
        EventHint("Namespace", Action.ALL),
    ),
    example=EXAMPLE,
)
