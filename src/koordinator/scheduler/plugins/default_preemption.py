"""Make room for a pod by evicting pods of lower priority from one node.

As few and as cheap ones as possible.

Source: kubernetes pkg/scheduler/framework/plugins/defaultpreemption and framework/preemption.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from koordinator.api.kubescheduler import DefaultPreemptionArgs
from koordinator.api.pod import DISRUPTION_TARGET, PREEMPTED, Pod
from koordinator.api.policy import PodDisruptionBudget
from koordinator.api.selectors import matches
from koordinator.foundation.clock import to_epoch_s
from koordinator.scheduler.contract import Action, Attempt, EventHint, PluginSpec, PostFilterResult
from koordinator.scheduler.snapshot import PlacedPod, ResourceAxis

NEVER = "not eligible due to preemptionPolicy=Never."
WAITING = "not eligible due to a terminating pod on the nominated node."
NOT_HELPFUL = "Preemption is not helpful for scheduling"
NO_VICTIMS = "No preemption victims found for incoming pod"
SHIFT = 2**31  # makes every priority positive, so that a sum of priorities also counts the victims


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that would take the pod without these victims, most important victim first."""

    node: str
    victims: tuple[PlacedPod, ...]
    violations: int  # victims whose disruption budget is used up

    @property
    def cost(self) -> tuple[int, int, int, int, float]:
        """Smaller is better; a tie goes to the candidate found first."""
        top = self.victims[0].priority
        starts = [_started_s(v) for v in self.victims if v.priority == top]
        return (
            self.violations,
            top,
            sum(v.priority + SHIFT for v in self.victims),
            len(self.victims),
            -min(starts),
        )


@dataclass(frozen=True, slots=True)
class DefaultPreemption:
    """PostFilter."""

    min_percentage: int
    min_absolute: int

    def postfilter(self, attempt: Attempt) -> PostFilterResult:
        """Nominate a node and name its victims, or say why not."""
        refused = self._not_eligible(attempt)
        if refused:
            return PostFilterResult(f"preemption: {refused}", keeps_nomination=True)
        candidates, reasons = self._candidates(attempt)
        if not candidates:
            return PostFilterResult(f"preemption: {_summary(len(attempt.rejected), reasons)}")
        best = min(candidates, key=lambda candidate: candidate.cost)
        return PostFilterResult(node=best.node, victims=best.victims)

    @staticmethod
    def _not_eligible(attempt: Attempt) -> str:
        pod = attempt.pod
        if pod.spec.preemption_policy == "Never":
            return NEVER
        snapshot, nominated = attempt.what_if.snapshot, pod.status.nominated_node_name
        row = snapshot.names[1].get(nominated)
        if row is None or row in attempt.rejected[~attempt.resolvable]:
            return ""
        if any(
            placed.priority < (pod.spec.priority or 0) and _is_ending_victim(placed.pod)
            for placed in snapshot.pods_on(row)
        ):
            return WAITING
        return ""

    def _candidates(self, attempt: Attempt) -> tuple[list[Candidate], Counter[str]]:
        """Return candidates (at most as many as configured), and why the other nodes are none."""
        what_if, pod = attempt.what_if, attempt.pod_class
        snapshot = what_if.snapshot
        priority = attempt.pod.spec.priority or 0
        hopeful = attempt.rejected[attempt.resolvable]
        reasons = Counter({NOT_HELPFUL: len(attempt.rejected) - len(hopeful)})
        with_victims = hopeful[snapshot.lowest_priority[hopeful] < priority]
        lower = {
            row: [p for p in snapshot.pods_on(row) if p.priority < priority]
            for row in with_victims.tolist()
        }
        reasons[NO_VICTIMS] = len(hopeful) - len(with_victims)
        budgets = list(snapshot.objects.all(PodDisruptionBudget))
        wanted = max(len(attempt.rejected) * self.min_percentage // 100, self.min_absolute)
        candidates: list[Candidate] = []
        fits = what_if.fit_without(pod, with_victims, priority)
        names = snapshot.node_names
        for row, fit in zip(with_victims.tolist(), fits.tolist(), strict=True):
            if not fit:
                continue
            candidate = _minimal(attempt, row, names[row], lower[row], budgets)
            if candidate.victims:
                candidates.append(candidate)
            if len(candidates) >= wanted and any(c.violations == 0 for c in candidates):
                break
        if not candidates:
            for row in with_victims[~fits].tolist():
                reasons.update(set(what_if.why_not(pod, row, lower[row])))
        return candidates, reasons


def _is_ending_victim(pod: Pod) -> bool:
    """Return whether the pod goes because of a preemption, and not for another reason."""
    if pod.metadata.deletion_timestamp is None:
        return False
    target = next((c for c in pod.status.conditions if c.type == DISRUPTION_TARGET), None)
    return target is not None and (target.status, target.reason) == ("True", PREEMPTED)


def _minimal(
    attempt: Attempt,
    row: int,
    node: str,
    lower: Sequence[PlacedPod],
    budgets: Sequence[PodDisruptionBudget],
) -> Candidate:
    """Put victims back one at a time and keep the ones that must go.

    Those protected by a budget come first.
    """
    ordered = sorted(lower, key=_importance)
    violating, others = _split_by_budget(ordered, budgets)
    victims = list(ordered)
    violations = 0
    for placed in (*violating, *others):
        without = [victim for victim in victims if victim is not placed]
        if not attempt.what_if.why_not(attempt.pod_class, row, without):
            victims = without
        elif placed in violating:
            violations += 1
    return Candidate(node, tuple(victims), violations)


def _split_by_budget(
    ordered: Sequence[PlacedPod], budgets: Sequence[PodDisruptionBudget]
) -> tuple[list[PlacedPod], list[PlacedPod]]:
    """Return the pods whose eviction would break a budget, and the others.

    Each in the given order.
    """
    allowed = [budget.status.disruptions_allowed for budget in budgets]
    violating: list[PlacedPod] = []
    others: list[PlacedPod] = []
    for placed in ordered:
        meta = placed.pod.metadata
        broken = False
        for index, budget in enumerate(budgets):
            selector = budget.spec.selector
            selects = selector is not None and (selector.match_labels or selector.match_expressions)
            if (
                budget.metadata.namespace == meta.namespace
                and meta.labels
                and selects
                and matches(selector, meta.labels)
                and meta.name not in budget.status.disrupted_pods
            ):
                allowed[index] -= 1
                broken = broken or allowed[index] < 0
        (violating if broken else others).append(placed)
    return violating, others


def _importance(placed: PlacedPod) -> tuple[int, float, str]:
    """Return a sort key, the most important first.

    The pod's key comes last: the order of the pods on a row depends on what was tried before.
    """
    return -placed.priority, _started_s(placed), placed.key


def _started_s(placed: PlacedPod) -> float:
    """Return when the pod started.

    One that has not started counts as starting now: later than all that have.
    """
    return to_epoch_s(placed.pod.status.start_time, default=float("inf"))


def _summary(nodes: int, reasons: Counter[str]) -> str:
    listed = sorted(f"{count} {reason}" for reason, count in reasons.items() if count)
    return f"0/{nodes} nodes are available: {', '.join(listed)}."


def build(args: DefaultPreemptionArgs, _axis: ResourceAxis) -> DefaultPreemption:
    return DefaultPreemption(args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute)


PLUGIN = PluginSpec(
    "DefaultPreemption",
    DefaultPreemptionArgs,
    build,
    events=(EventHint("AssignedPod", Action.DELETE),),
)
