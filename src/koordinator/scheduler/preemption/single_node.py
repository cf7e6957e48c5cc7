"""Common parts of preemption on one node: eligibility, order and cost of victims.

Source: kubernetes pkg/scheduler/framework/preemption, plugins/defaultpreemption.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
from msgspec import structs

from koordinator.api.conditions import find_condition
from koordinator.api.labels import PREEMPTION_POLICY
from koordinator.api.pod import DISRUPTION_TARGET, PREEMPTED, Pod
from koordinator.api.policy import PodDisruptionBudget
from koordinator.api.selectors import matches
from koordinator.foundation.errors import ExtenderError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.post_filter import (
    Allows,
    Attempt,
    ClassedPod,
    PostFilterResult,
    ProposedVictims,
)
from koordinator.scheduler.snapshot import PlacedPod

PREEMPT_NEVER, PREEMPT_LOWER_PRIORITY = "Never", "PreemptLowerPriority"
NEVER = "not eligible due to preemptionPolicy=Never."
WAITING = "not eligible due to a terminating pod on the nominated node."
NO_VICTIMS = "No preemption victims found for incoming pod"
NOT_HELPFUL = "Preemption is not helpful for scheduling"
SHIFT = 2**31  # makes every priority positive, so that a sum of priorities also counts the victims


class PolicyOfLabel:
    """Preemption policy from a label in place of the pod's spec; by default a pod does not preempt.

    Source: koordinator pkg/util/transformer/pod_transformer.go
    ``TransformKoordPreemptionPolicyFunc``.
    """

    def transform(self, pod: Pod) -> Pod:
        """Return the pod with the policy of its label."""
        label = pod.metadata.labels.get(PREEMPTION_POLICY, "")
        policy = label if label in (PREEMPT_NEVER, PREEMPT_LOWER_PRIORITY) else PREEMPT_NEVER
        if pod.spec.preemption_policy == policy:
            return pod
        return structs.replace(pod, spec=structs.replace(pod.spec, preemption_policy=policy))


@dataclass(frozen=True, slots=True)
class PreemptionCandidate:
    """A node that would take the pod without these victims, most important victim first."""

    node: str
    victims: tuple[PlacedPod, ...]
    violations: int  # victims whose disruption budget is used up

    @property
    def cost(self) -> tuple[int, int, int, int, float]:
        """The cost, smaller is better; a tie goes to the candidate found first."""
        top = self.victims[0].priority
        starts = [v.started_s for v in self.victims if v.priority == top]
        return (
            self.violations,
            top,
            sum(v.priority + SHIFT for v in self.victims),
            len(self.victims),
            -min(starts),
        )


def preempt(
    attempt: Attempt,
    min_percentage: int,
    min_absolute: int,
    may_go: Allows | None = None,
    *,
    to_first_exhausted: bool = False,
) -> PostFilterResult:
    """Nominate a node and name its victims, or say why not.

    At most ``min_percentage`` of the rejected nodes, but at least ``min_absolute``, are candidates.
    Victims are pods of lower priority that ``may_go``, if not all may.  For
    ``to_first_exhausted`` see ``split_by_budget``.
    """
    refused = not_eligible(attempt, _is_ending_victim)
    if refused:
        return PostFilterResult(f"preemption: {refused}", keeps_nomination=True)
    wanted = max(len(attempt.rejected) * min_percentage // 100, min_absolute)
    candidates, reasons = _candidates(attempt, wanted, may_go, to_first_exhausted)
    if not candidates:
        return PostFilterResult(f"preemption: {summary(len(attempt.rejected), reasons)}")
    return cheapest(attempt, candidates, may_go)


def cheapest(
    attempt: Attempt, candidates: Sequence[PreemptionCandidate], allows: Allows | None
) -> PostFilterResult:
    """Nominate the cheapest candidate; if it breaks a gang, search again with whole gangs.

    ``allows`` restricts the victims of that search.
    """
    try:
        candidates = _approved(attempt, candidates)
    except ExtenderError as error:
        return PostFilterResult(f"preemption: {error}")
    if not candidates:
        return PostFilterResult("preemption: an extender agrees to no node")
    best = min(candidates, key=lambda candidate: candidate.cost)
    if attempt.what_if.breaks_gang(best.victims):
        return headroom_for_pod(attempt, allows)
    return PostFilterResult(node=best.node, victims=best.victims, violations=best.violations)


def _approved(
    attempt: Attempt, candidates: Sequence[PreemptionCandidate]
) -> Sequence[PreemptionCandidate]:
    """Return the candidates with the victims that extenders agree to.  Raises ExtenderError."""
    if attempt.approval is None:
        return candidates
    by_node = {candidate.node: candidate for candidate in candidates}
    proposed = {
        node: ProposedVictims(tuple(victim.pod for victim in it.victims), it.violations)
        for node, it in by_node.items()
    }
    left = attempt.approval.approved(attempt.pod, proposed)
    if left is proposed:
        return candidates
    approved = []
    for node, agreed in left.items():
        keys = {pod.key for pod in agreed.pods}
        victims = tuple(victim for victim in by_node[node].victims if victim.key in keys)
        approved.append(PreemptionCandidate(node, victims, agreed.violations))
    return approved


def _candidates(
    attempt: Attempt, wanted: int, may_go: Allows | None, to_first_exhausted: bool
) -> tuple[list[PreemptionCandidate], Counter[str]]:
    """Return candidates, about as many as ``wanted``, and why the other nodes are none."""
    what_if, pod = attempt.what_if, attempt.pod_class
    snapshot = what_if.snapshot
    priority = attempt.pod.spec.priority or 0
    hopeful = attempt.rejected[attempt.resolvable]
    reasons = Counter({NOT_HELPFUL: len(attempt.rejected) - len(hopeful)})
    with_victims = hopeful[snapshot.lowest_priority[hopeful] < priority]
    if attempt.refused_by:  # the pod was refused as a whole, so freeing a node does not help
        with_victims = with_victims[:0]
    lower = {
        row: [
            p
            for p in snapshot.pods_on(row)
            if p.priority < priority and (may_go is None or may_go(p))
        ]
        for row in with_victims.tolist()
    }
    reasons[NO_VICTIMS] = len(hopeful) - len(with_victims)
    budgets = list(snapshot.objects.all(PodDisruptionBudget))
    if to_first_exhausted:
        budgets.sort(key=lambda budget: budget.key)
    candidates: list[PreemptionCandidate] = []
    fits = what_if.fit_without(pod, with_victims, priority)
    names = snapshot.node_names
    for row, fit in zip(with_victims.tolist(), fits.tolist(), strict=True):
        if not fit or (may_go is not None and what_if.why_not(pod, row, lower[row])):
            continue  # evicting only the allowed pods is not enough
        candidate = minimal(
            names[row],
            lower[row],
            budgets,
            lambda without, row=row: not what_if.why_not(pod, row, without),  # type: ignore[misc]
            to_first_exhausted=to_first_exhausted,
        )
        if candidate.victims:
            candidates.append(candidate)
        if len(candidates) >= wanted and any(c.violations == 0 for c in candidates):
            break
    if not candidates:
        spared = np.zeros_like(fits) if may_go is not None else fits
        for row in with_victims[~spared].tolist():
            reasons.update(set(what_if.why_not(pod, row, lower[row])))
    return candidates, reasons


def _is_ending_victim(placed: PlacedPod) -> bool:
    """Return whether the pod terminates because it was preempted."""
    pod = placed.pod
    if pod.metadata.deletion_timestamp is None:
        return False
    target = find_condition(pod.status.conditions, DISRUPTION_TARGET)
    return target is not None and (target.status, target.reason) == ("True", PREEMPTED)


def not_eligible(attempt: Attempt, is_victim: Callable[[PlacedPod], bool]) -> str:
    """Return why the pod may not preempt; empty: it may.

    It waits while a pod of lower priority that ``is_victim`` leaves its nominated node.
    """
    pod = attempt.pod
    if pod.spec.preemption_policy == PREEMPT_NEVER:
        return NEVER
    snapshot, nominated = attempt.what_if.snapshot, attempt.nominated_node
    row = snapshot.names[1].get(nominated)
    if row is None or row in attempt.rejected[~attempt.resolvable]:
        return ""
    priority = pod.spec.priority or 0
    if any(placed.priority < priority and is_victim(placed) for placed in snapshot.pods_on(row)):
        return WAITING
    return ""


def headroom_for_job(
    attempt: Attempt, members: Sequence[ClassedPod], allows: Allows | None = None
) -> PostFilterResult:
    """Return places for all members, and the victims; ``allows`` restricts the victims.

    A job does not preempt if one of its members does not.  The message is empty without candidates.
    """
    if any(pod.spec.preemption_policy == PREEMPT_NEVER for pod, _ in members):
        return PostFilterResult(f"preemption: {NEVER}")
    headroom = attempt.what_if.free_headroom(members, attempt.rows, allows)
    if headroom.places or not headroom.message:
        return headroom
    return replace(headroom, message=f"preemption: {headroom.message}")


def headroom_for_pod(attempt: Attempt, allows: Allows | None = None) -> PostFilterResult:
    """Nominate the pod as if it were a job of one: victims are whole jobs."""
    pod = attempt.pod
    headroom = headroom_for_job(attempt, ((pod, attempt.pod_class),), allows)
    node = headroom.places.get(attempt.key, "")
    if not node:
        return headroom
    if not headroom.victims and node == attempt.nominated_node:
        return PostFilterResult(f"preemption: {WAITING}", keeps_nomination=True)
    return PostFilterResult(node=node, victims=headroom.victims)


def minimal(
    node: str,
    evictable: Sequence[PlacedPod],
    budgets: Sequence[PodDisruptionBudget],
    fits_without: Callable[[Sequence[PlacedPod]], bool],
    *,
    to_first_exhausted: bool = False,
) -> PreemptionCandidate:
    """Put victims back one at a time and keep the ones that must go.

    Those protected by a budget come first; for ``to_first_exhausted`` see ``split_by_budget``.
    """
    victims = sorted(evictable, key=by_importance)
    violating, others = split_by_budget(
        [placed.pod for placed in victims], budgets, to_first_exhausted=to_first_exhausted
    )
    violations = 0
    by_key = {placed.key: placed for placed in victims}
    for pod in (*violating, *others):
        placed = by_key[pod.key]
        without = [victim for victim in victims if victim is not placed]
        if fits_without(without):
            victims = without
        elif pod in violating:
            violations += 1
    return PreemptionCandidate(node, tuple(victims), violations)


def violations_of(victims: Sequence[PlacedPod], budgets: Iterable[PodDisruptionBudget]) -> int:
    """Return the number of victims whose eviction, one after the other, breaks a budget."""
    pods = [placed.pod for placed in sorted(victims, key=by_importance)]
    ordered = sorted(budgets, key=lambda budget: budget.key)
    return len(split_by_budget(pods, ordered, to_first_exhausted=True)[0])


def split_by_budget(
    pods: Sequence[Pod],
    budgets: Sequence[PodDisruptionBudget],
    *,
    to_first_exhausted: bool = False,
) -> tuple[list[Pod], list[Pod]]:
    """Return the pods whose eviction, one after the other, would break a budget, and the others.

    A pod uses up all budgets that cover it; ``to_first_exhausted``, those up to the first that has
    nothing left, as in Kubernetes 1.37.
    """
    allowed = [budget.status.disruptions_allowed for budget in budgets]
    violating: list[Pod] = []
    others: list[Pod] = []
    for pod in pods:
        broken = False
        for index, budget in enumerate(budgets):
            if covers(budget, pod) and pod.metadata.name not in budget.status.disrupted_pods:
                allowed[index] -= 1
                broken = broken or allowed[index] < 0
                if broken and to_first_exhausted:
                    break
        (violating if broken else others).append(pod)
    return violating, others


def covers(budget: PodDisruptionBudget, pod: Pod) -> bool:
    """Return whether a budget is about a pod; an empty selector is about none."""
    selector, meta = budget.spec.selector, pod.metadata
    return (
        budget.metadata.namespace == meta.namespace
        and bool(meta.labels)
        and selector is not None
        and bool(selector.match_labels or selector.match_expressions)
        and matches(selector, meta.labels)
    )


def summary(nodes: int, reasons: Counter[str]) -> str:
    """Return why no node could be freed, in the words of the pod's condition."""
    listed = sorted(f"{count} {reason}" for reason, count in reasons.items() if count)
    return f"0/{nodes} nodes are available: {', '.join(listed)}."


def by_importance(placed: PlacedPod) -> tuple[int, float, str]:
    """Return a sort key, the most important first.

    The pod's key comes last: the order of the pods on a row depends on what was tried before.
    """
    return -placed.priority, placed.started_s, placed.key
