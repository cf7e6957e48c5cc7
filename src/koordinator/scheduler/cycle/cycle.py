"""All decisions of one profile on one state."""

from collections.abc import Sequence

import numpy as np

from koordinator.api.pod import Pod
from koordinator.foundation.arrays import IntArray
from koordinator.scheduler.cycle.evaluation import (
    NominatedPods,
    nominated_pods_with_priority,
    priority_of,
)
from koordinator.scheduler.cycle.gang_offers import GangOffers
from koordinator.scheduler.cycle.scorecard import Scorecard, scorecard
from koordinator.scheduler.cycle.what_if import StateWhatIf
from koordinator.scheduler.diagnosis import Diagnosis
from koordinator.scheduler.post_filter import Attempt, ClassedPod
from koordinator.scheduler.snapshot import PodClass


class SchedulingCycle(GangOffers):
    """Scheduling decisions of one profile on one state.  Decides; the caller places and binds."""

    def scorecard(self, pod: PodClass) -> Scorecard:
        """Return every node's verdict and scores, computed from scratch."""
        return scorecard(self.profile, self.state, pod)

    def diagnose(
        self,
        pod: Pod,
        pod_class: PodClass,
        nominated: NominatedPods,
        scorecard: Scorecard | None = None,
    ) -> Diagnosis:
        """Return why no node takes the pod, nodes kept free for others included."""
        card = scorecard or self.scorecard(pod_class)
        if self._mask is not None:
            card = card.restricted_to(self._mask)
        diagnosis = self.extenders.added_to(card.diagnosis(), pod)
        nominated_pods = (
            nominated_pods_with_priority(pod, nominated) if nominated and len(card.feasible) else {}
        )
        if not nominated_pods:
            return diagnosis
        what_if = StateWhatIf(self.profile, self.state, nominated_pods)
        taken = {row: what_if.rejection(pod_class, row) for row in card.feasible.tolist()}
        return diagnosis.with_rejections({row: why for row, why in taken.items() if why[0]})

    def diagnose_after(self, pod: PodClass, rows: IntArray) -> Diagnosis:
        """Return why no node takes one more pod after a run of such pods on these rows."""
        taken = np.bincount(rows, minlength=len(self.state.nodes))
        return scorecard(self.profile, self.state, pod, taken).diagnosis()

    def diagnose_full(self, pod: PodClass, taken: IntArray) -> Diagnosis:
        """Return why no node takes one more after each row has taken ``taken``, ``(n_rows,)``."""
        return scorecard(self.profile, self.state, pod, taken).diagnosis()

    def attempt(
        self,
        pod: Pod,
        pod_class: PodClass,
        diagnosis: Diagnosis,
        nominated: NominatedPods,
        members: Sequence[ClassedPod] = (),
        *,
        rows: IntArray | None = None,
        nominated_node: str = "",
    ) -> Attempt:
        """Return the failed attempt for PostFilter plugins; ``members`` are the members of a gang.

        Then ``nominated`` contains none of them, and ``rows`` are the rows where they may be.
        ``nominated_node`` is the pod's own.
        """
        least = min((member for member, _ in members), key=priority_of, default=pod)
        what_if = StateWhatIf(
            self.profile, self.state, nominated_pods_with_priority(least, nominated)
        )
        return Attempt(
            pod.key,
            pod,
            pod_class,
            what_if,
            diagnosis.rejected,
            diagnosis.resolvable,
            diagnosis.refused_by,
            tuple(members),
            rows,
            nominated_node,
            self.extenders,
        )
