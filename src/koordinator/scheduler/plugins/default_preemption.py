"""Make room for a pod by evicting pods of lower priority from one node.

As few and as cheap ones as possible.  Unlike upstream, where members of a gang are served one by
one and pods are evicted for gangs that don't start then, a gang is served as a whole.

Source: kubernetes pkg/scheduler/framework/plugins/defaultpreemption and framework/preemption.
"""

from collections import Counter
from dataclasses import dataclass

from koordinator.api.kubescheduler import DefaultPreemptionArgs
from koordinator.api.pod import DISRUPTION_TARGET, PREEMPTED
from koordinator.api.policy import PodDisruptionBudget
from koordinator.scheduler.contract import Action, Attempt, EventHint, PluginSpec, PostFilterResult
from koordinator.scheduler.preemption import (
    NOT_HELPFUL,
    Candidate,
    minimal,
    not_eligible,
    room_for_job,
    summary,
)
from koordinator.scheduler.snapshot import PlacedPod, ResourceAxis

NO_VICTIMS = "No preemption victims found for incoming pod"


@dataclass(frozen=True, slots=True)
class DefaultPreemption:
    """PostFilter."""

    min_percentage: int
    min_absolute: int

    def postfilter(self, attempt: Attempt) -> PostFilterResult:
        """Nominate a node and name its victims, or say why not; for a gang, all of its nodes."""
        if attempt.members:
            return room_for_job(attempt, attempt.members)
        refused = not_eligible(attempt, _is_ending_victim)
        if refused:
            return PostFilterResult(f"preemption: {refused}", keeps_nomination=True)
        candidates, reasons = self._candidates(attempt)
        if not candidates:
            return PostFilterResult(f"preemption: {summary(len(attempt.rejected), reasons)}")
        best = min(candidates, key=lambda candidate: candidate.cost)
        return PostFilterResult(node=best.node, victims=best.victims)

    def _candidates(self, attempt: Attempt) -> tuple[list[Candidate], Counter[str]]:
        """Return candidates (at most as many as configured), and why the other nodes are none."""
        what_if, pod = attempt.what_if, attempt.pod_class
        snapshot = what_if.snapshot
        priority = attempt.pod.spec.priority or 0
        hopeful = attempt.rejected[attempt.resolvable]
        reasons = Counter({NOT_HELPFUL: len(attempt.rejected) - len(hopeful)})
        with_victims = hopeful[snapshot.lowest_priority[hopeful] < priority]
        if attempt.refused_by:  # no node did it, so it does not help to free one
            with_victims = with_victims[:0]
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
            candidate = minimal(
                names[row],
                lower[row],
                budgets,
                lambda without, row=row: not what_if.why_not(pod, row, without),  # type: ignore[misc]
            )
            if candidate.victims:
                candidates.append(candidate)
            if len(candidates) >= wanted and any(c.violations == 0 for c in candidates):
                break
        if not candidates:
            for row in with_victims[~fits].tolist():
                reasons.update(set(what_if.why_not(pod, row, lower[row])))
        return candidates, reasons


def _is_ending_victim(placed: PlacedPod) -> bool:
    """Return whether the pod goes because of a preemption, and not for another reason."""
    pod = placed.pod
    if pod.metadata.deletion_timestamp is None:
        return False
    target = next((c for c in pod.status.conditions if c.type == DISRUPTION_TARGET), None)
    return target is not None and (target.status, target.reason) == ("True", PREEMPTED)


def build(args: DefaultPreemptionArgs, _axis: ResourceAxis) -> DefaultPreemption:
    return DefaultPreemption(args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute)


PLUGIN = PluginSpec(
    "DefaultPreemption",
    DefaultPreemptionArgs,
    build,
    events=(EventHint("AssignedPod", Action.DELETE),),
)
