"""The say of extenders in one decision: nodes left out, scores added, victims approved.

They are called after all filters of the profile, one after the other, each with the nodes that
the extenders before it accepted; ignorable extenders come last.  If one fails, the attempt fails,
unless the extender is ignorable; a failed ``prioritize`` is always ignored.

Source: kubernetes pkg/scheduler/schedule_one.go ``findNodesThatPassExtenders``,
``prioritizeNodes``; pkg/scheduler/framework/preemption ``callExtenders``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

import numpy as np

from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.foundation.errors import ExtenderError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.memo import Memo
from koordinator.scheduler.contract import EXTENDER, MAX_SCORE, SchedulerExtender
from koordinator.scheduler.cycle.scorecard import Scorecard
from koordinator.scheduler.diagnosis import Diagnosis
from koordinator.scheduler.post_filter import ProposedVictims
from koordinator.scheduler.snapshot import ClusterState, PodClass

MAX_EXTENDER_SCORE = 10  # by convention; kube-scheduler accepts more, too


@dataclass(slots=True)
class ExtenderRecord:
    """The results of extenders in the last decision about one pod."""

    pod: str  # its key
    rejected: dict[int, tuple[str, bool]] = field(default_factory=dict)  # row: reason, resolvable
    scores: dict[str, dict[int, int]] = field(default_factory=dict)  # by extender and row


class ExtenderChain:
    """The extenders of a scheduler, as its cycles ask them."""

    def __init__(self, state: ClusterState, extenders: Sequence[SchedulerExtender] = ()) -> None:
        self._state = state
        self._concerns: Memo[bool] = Memo()
        self.members = tuple(sorted(extenders, key=lambda one: one.is_ignorable))
        self._record = ExtenderRecord("")

    def concerns(self, pod: PodClass) -> bool:
        """Return whether some extender filters or scores nodes for such pods."""
        return self._concerns.of(pod, self._find_concerns, pod)

    def _find_concerns(self, pod: PodClass) -> bool:
        return any(
            one.is_interested(pod.spec) and not one.verbs.isdisjoint(("filter", "prioritize"))
            for one in self.members
        )

    def accepted(self, pod: Pod, feasible: BoolArray) -> BoolArray:
        """Return ``(n,)``: which of the feasible rows all extenders accept.

        Raises ExtenderError.
        """
        self._record = record = ExtenderRecord(pod.key)
        left = feasible.copy()
        for extender in self._applicable("filter", pod):
            nodes = self._nodes(left)
            if not nodes:
                break
            try:
                verdict = extender.filter(pod, list(nodes.values()))
            except ExtenderError as error:
                if not extender.is_ignorable:
                    raise
                extender.record_failure(error)
                continue
            for row, node in nodes.items():
                name = node.metadata.name
                if name not in verdict.accepted:
                    left[row] = False
                    reason = verdict.reasons.get(name) or f"node(s) rejected by {extender.name}"
                    record.rejected[row] = reason, name not in verdict.unresolvable
        return left

    def scores(self, pod: Pod, rows: IntArray) -> IntArray:
        """Return ``(k,)``: what extenders add to the totals of feasible rows."""
        total = np.zeros(len(rows), np.int64)
        for extender in self._applicable("prioritize", pod):
            nodes = self._nodes_at(rows)
            try:
                priorities = extender.prioritize(pod, nodes)
            except ExtenderError as error:
                extender.record_failure(error)
                continue
            raw = np.array([priorities.get(node.metadata.name, 0) for node in nodes], np.int64)
            weighted = raw * extender.weight * (MAX_SCORE // MAX_EXTENDER_SCORE)
            total += weighted
            by_row = zip(rows.tolist(), weighted.tolist(), strict=True)
            self._record.scores[extender.name] = dict(by_row)
        return total

    def approved(
        self, pod: Pod, victims: Mapping[str, ProposedVictims]
    ) -> Mapping[str, ProposedVictims]:
        """Return the nodes and victims that all extenders agree to.  Raises ExtenderError."""
        for extender in self._applicable("preempt", pod):
            if not victims:
                break
            try:
                left = extender.preempt(pod, victims)
            except ExtenderError as error:
                if not extender.is_ignorable:
                    raise
                extender.record_failure(error)
                continue
            none = sorted(node for node, proposed in left.items() if not proposed.pods)
            if none and not extender.is_ignorable:
                raise ExtenderError(f"{extender.name}: preempt: no victim left on {none[0]!r}")
            victims = {node: proposed for node, proposed in left.items() if proposed.pods}
        return victims

    # -- results ------------------------------------------------------------------------------

    def refusal(self, pod: Pod) -> str:
        """Return why extenders left the pod no node in its last decision; empty: they did not."""
        if self._record.pod != pod.key:
            return ""
        return "; ".join(sorted({reason for reason, _ in self._record.rejected.values()}))

    def added_to(self, diagnosis: Diagnosis, pod: Pod) -> Diagnosis:
        """Return the diagnosis of the pod decided last, with what extenders had against nodes."""
        if self._record.pod != pod.key or diagnosis.refused_by:
            return diagnosis
        diagnosed = set(diagnosis.rejected.tolist())
        more = {row: it for row, it in self._record.rejected.items() if row not in diagnosed}
        if not more:
            return diagnosis
        extended = diagnosis.with_rejections(
            {row: (EXTENDER, (reason,)) for row, (reason, _) in more.items()}
        )
        resolvable = extended.resolvable.copy()
        resolvable[len(diagnosis.rejected) :] = [resolvable for _, resolvable in more.values()]
        return replace(extended, resolvable=resolvable)

    def shown_on(self, card: Scorecard, pod: Pod) -> Scorecard:
        """Return the scorecard of the pod decided last, with verdicts and scores of extenders."""
        if self._record.pod != pod.key:
            return card
        return card.with_more(
            {row: (EXTENDER, reason) for row, (reason, _) in self._record.rejected.items()},
            self._record.scores,
        )

    def _applicable(self, verb: str, pod: Pod) -> list[SchedulerExtender]:
        return [one for one in self.members if verb in one.verbs and one.is_interested(pod.spec)]

    def _nodes(self, mask: BoolArray) -> dict[int, Node]:
        objects = self._state.nodes.objects
        rows = np.flatnonzero(mask).tolist()
        return {row: node for row in rows if (node := objects[row]) is not None}

    def _nodes_at(self, rows: IntArray) -> list[Node]:
        objects = self._state.nodes.objects
        nodes = [objects[row] for row in rows.tolist()]
        return [node for node in nodes if node is not None]
