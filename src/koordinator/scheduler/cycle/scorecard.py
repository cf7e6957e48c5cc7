"""Every node's verdict and scores for one pod, from scratch, in full.

This is what diagnosis and ``--scores`` read, and the reference that the kept evaluations are tested
against.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.contract import Profile, Reads, Refusal, Rejections, Shortlist
from koordinator.scheduler.cycle.evaluation import view_for
from koordinator.scheduler.diagnosis import Diagnosis, count_reasons, reasons_of
from koordinator.scheduler.snapshot import ClusterState, PodClass, Snapshot

NOT_ALIVE, FEASIBLE = -2, -1


@dataclass(frozen=True, slots=True)
class Scorecard:
    """Verdicts and scores of every node.

    Rows are rows of the cluster; scores have one entry per feasible row.
    """

    names: list[str]
    filters: tuple[tuple[str, Rejections], ...]  # in running order
    rejected_by: IntArray  # (n,): index into ``filters``, FEASIBLE or NOT_ALIVE
    refusal: tuple[str, Refusal] | None
    feasible: IntArray  # (k,) rows
    scores: dict[str, IntArray]  # plugin -> (k,), normalised and weighted
    total: IntArray  # (k,)

    def with_more(
        self,
        rejected: Mapping[int, tuple[str, str]],
        scores: Mapping[str, Mapping[int, int]],
    ) -> "Scorecard":
        """Return the card with the verdicts and scores of extenders, which run after all plugins.

        ``rejected`` has extender and reason by row, ``scores`` the added scores by name and row.
        """
        filters, rejected_by = list(self.filters), self.rejected_by.copy()
        for row, (plugin, reason) in rejected.items():
            rejected_by[row] = len(filters)
            codes = np.zeros(len(rejected_by), np.int64)
            codes[row] = 1
            filters.append((plugin, Rejections(codes, (reason,))))
        stays = ~np.isin(self.feasible, list(rejected))
        feasible = self.feasible[stays]
        shown = {name: points[stays] for name, points in self.scores.items()}
        total = self.total[stays]
        for name, by_row in scores.items():
            points = np.array([by_row.get(row, 0) for row in feasible.tolist()], np.int64)
            shown[name] = points
            total = total + points
        return replace(
            self,
            filters=tuple(filters),
            rejected_by=rejected_by,
            feasible=feasible,
            scores=shown,
            total=total,
        )

    def restricted_to(self, mask: BoolArray) -> "Scorecard":
        """Return the card restricted to the nodes of ``mask``, ``(n,)``.

        Scores stay normalized over all feasible nodes.
        """
        rejected_by = np.where(mask, self.rejected_by, NOT_ALIVE)
        stays = mask[self.feasible]
        return replace(
            self,
            rejected_by=rejected_by,
            feasible=self.feasible[stays],
            scores={name: points[stays] for name, points in self.scores.items()},
            total=self.total[stays],
        )

    def rejections(self) -> dict[str, tuple[str, str]]:
        """Return ``{node: (plugin, reasons)}`` for the nodes that were rejected, in node order."""
        out: dict[str, tuple[str, str]] = {}
        for row in np.flatnonzero(self.rejected_by >= 0).tolist():
            plugin, rejections = self.filters[self.rejected_by[row]]
            out[self.names[row]] = (plugin, ", ".join(reasons_of(rejections, row)))
        return out

    def score_table(self) -> dict[str, dict[str, int]]:
        """Return ``{node: {plugin: score, …, "total": sum}}`` for the feasible nodes."""
        return {
            self.names[row]: {
                **{plugin: int(scores[i]) for plugin, scores in self.scores.items()},
                "total": int(self.total[i]),
            }
            for i, row in enumerate(self.feasible.tolist())
        }

    def diagnosis(self) -> Diagnosis:
        """Return why no node takes the pod."""
        alive = np.flatnonzero(self.rejected_by != NOT_ALIVE)
        if self.refusal is not None:
            plugin, refusal = self.refusal
            resolvable = np.full(len(alive), refusal.resolvable)
            return Diagnosis(len(alive), plugin, refusal.reason, {}, alive, resolvable)
        counts: dict[tuple[str, str], int] = {}
        may_end = False
        hopeless = np.zeros(len(self.rejected_by), bool)
        for index, (plugin, rejections) in enumerate(self.filters):
            rows = np.flatnonzero(self.rejected_by == index)
            for reason, count in count_reasons(rejections, rows).items():
                counts[plugin, reason] = counts.get((plugin, reason), 0) + count
            may_end |= bool(rejections.may_end and len(rows))
            never = np.broadcast_to(rejections.unresolvable, hopeless.shape)
            hopeless[rows] = never[rows]
        rejected = np.flatnonzero(self.rejected_by >= 0)
        return Diagnosis(len(alive), "", "", counts, rejected, ~hopeless[rejected], may_end)


def scorecard(
    profile: Profile, state: ClusterState, pod: PodClass, taken: IntArray | None = None
) -> Scorecard:
    """Run every filter on every node and every score on every feasible one.

    Nothing kept is used.  ``taken`` is how many such pods each row has taken before; that is for
    runs of pods.
    """
    snapshot = view_for(profile, state, pod)
    if taken is not None:
        snapshot = snapshot.after(pod, taken)
    with snapshot.restoring():
        return _scorecard(profile, snapshot, pod)


def _scorecard(profile: Profile, snapshot: Snapshot, pod: PodClass) -> Scorecard:
    rejected_by = np.where(snapshot.alive, FEASIBLE, NOT_ALIVE).astype(np.int64)
    refusal = prefilter(profile, snapshot, pod)
    filters: list[tuple[str, Rejections]] = []
    not_listed = _not_listed(profile, snapshot, pod) if refusal is None else None
    if not_listed is not None:
        rejected_by[(rejected_by == FEASIBLE) & (not_listed[1].codes != 0)] = 0
        filters.append(not_listed)
    for active in profile.filter if refusal is None else ():
        if active.hints.filters(snapshot, pod):
            rejections = active.plugin.filter(snapshot, pod)
            first = (rejected_by == FEASIBLE) & (rejections.codes != 0)
            rejected_by[first] = len(filters)
            filters.append((active.name, rejections))
    feasible = np.flatnonzero(rejected_by == FEASIBLE) if refusal is None else np.zeros(0, np.int64)
    scores, total = score_rows(profile, snapshot, pod, feasible)
    return Scorecard(
        snapshot.node_names, tuple(filters), rejected_by, refusal, feasible, scores, total
    )


def prefilter(profile: Profile, snapshot: Snapshot, pod: PodClass) -> tuple[str, Refusal] | None:
    """Return the first plugin that rejects the pod for all nodes."""
    for active in profile.pre_filter:
        answer = active.plugin.prefilter(snapshot, pod)
        if isinstance(answer, Refusal):
            return active.name, answer
    return None


def _not_listed(
    profile: Profile, snapshot: Snapshot, pod: PodClass
) -> tuple[str, Rejections] | None:
    """Return the rejection of nodes outside the pod's shortlist, before any filter runs."""
    for active in profile.pre_filter:
        answer = active.plugin.prefilter(snapshot, pod)
        if isinstance(answer, Shortlist):
            others = np.array([name not in answer.nodes for name in snapshot.node_names], bool)
            reason = f"node(s) didn't satisfy plugin(s) [{active.name}]"
            return active.name, Rejections.where(others, reason, unresolvable=True)
    return None


def score_rows(
    profile: Profile, snapshot: Snapshot, pod: PodClass, feasible: IntArray
) -> tuple[dict[str, IntArray], IntArray]:
    """Return each plugin's weighted score of the feasible rows, and the sum."""
    scores: dict[str, IntArray] = {}
    total = np.zeros(len(feasible), np.int64)
    if not len(feasible):
        return scores, total
    for active in profile.score:
        if active.hints.scores(snapshot, pod):
            if active.plugin.reads is Reads.CLUSTER and "score_among" in active.has:
                raw = active.plugin.score_among(snapshot, pod, feasible)
            else:
                raw = active.plugin.score(snapshot, pod)[feasible]
            scores[active.name] = active.weight * active.normalized(raw)
            total += scores[active.name]
    return scores, total
