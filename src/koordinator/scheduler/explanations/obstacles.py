"""Obstacles of a pod: the verdicts of all plugins on all nodes.

A scheduling decision stops at the first plugin that rejects a node, and so does its message;
remedies need all verdicts.
"""

from collections.abc import Sequence
from dataclasses import field

import numpy as np

from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.contract import Profile, Refusal, Rejections
from koordinator.scheduler.cycle.evaluation import NominatedPods, view_for
from koordinator.scheduler.cycle.what_if import StateWhatIf
from koordinator.scheduler.diagnosis import reasons_of
from koordinator.scheduler.rules.reservations.match import BY_NODE
from koordinator.scheduler.snapshot import ClusterState, PodClass, Snapshot


@dataclass(frozen=True, slots=True, order=True)
class Cause:
    """Plugin and reason against a pod, on some nodes or independent of nodes."""

    plugin: str  # several plugins with the same reason are separated by ", "
    reason: str

    @property
    def plugins(self) -> tuple[str, ...]:
        """Names of the plugins."""
        return tuple(self.plugin.split(", "))


Way = frozenset[Cause]  # all causes against some node


@dataclass(frozen=True, slots=True)
class Obstacles:
    """Obstacles of a pod in the current state.

    ``blocked[c, i]``: ``causes[c]`` rejects the node of row ``rows[i]``; ``hopeless[c, i]``: it
    rejects the node even when that is empty.
    """

    rows: IntArray  # (n,) rows of existing nodes
    names: Sequence[str]  # (n,)
    causes: tuple[Cause, ...]
    blocked: BoolArray  # (n_causes, n)
    hopeless: BoolArray  # (n_causes, n)
    repeated: BoolArray  # (n_causes, n): another cause has the same origin on that node
    refusals: tuple[Cause, ...] = ()  # causes independent of nodes
    lasting: tuple[Cause, ...] = ()  # refusals that hold without other pods, too
    #: plugins whose filters only repeat a refusal
    silent: frozenset[str] = frozenset()
    #: minimal sets of causes: each set is all there is against some node, and contains no other
    #: set, ignoring repeated causes
    ways: tuple[Way, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ways", self._minimal())

    @property
    def rejected(self) -> BoolArray:
        """``(n,)``: nodes that reject the pod."""
        return np.asarray(self.blocked.any(axis=0))

    @property
    def never(self) -> BoolArray:
        """``(n,)``: nodes that reject the pod even when empty."""
        return np.asarray((self.blocked & self.hopeless).any(axis=0))

    @property
    def fits(self) -> bool:
        """Whether some node takes the pod."""
        return not self.refusals and not self.rejected.all()

    @property
    def decisive(self) -> frozenset[Cause]:
        """Causes in a refusal or a minimal set.

        Other causes need not go: wherever they apply, the node also has a superset of the causes of
        some simpler node.
        """
        return frozenset(self.refusals).union(*self.ways)

    def only(self, causes: frozenset[Cause]) -> IntArray:
        """Return the rows of the nodes with exactly these causes."""
        wanted = np.array([cause in causes for cause in self.causes], bool)
        exact = (self.blocked == wanted[:, None]).all(axis=0)
        matching: IntArray = self.rows[exact]
        return matching

    def against(self, index: int) -> list[Cause]:
        """Return the causes against a node, in the order of the plugins."""
        return [self.causes[c] for c in np.flatnonzero(self.blocked[:, index]).tolist()]

    def _minimal(self) -> tuple[frozenset[Cause], ...]:
        if not len(self.rows):
            return ()
        own = self.blocked & ~self.repeated
        packed = np.packbits(np.concatenate([self.blocked, own]), axis=0).T
        firsts = {pattern.tobytes(): index for index, pattern in enumerate(packed)}
        sets = {index: self._where(own, index) for index in firsts.values()}
        least = {
            self._where(self.blocked, index)
            for index, one in sets.items()
            if not any(other < one for other in sets.values())
        }
        return tuple(sorted(least, key=lambda way: (len(way), sorted(way))))

    def _where(self, mask: BoolArray, index: int) -> Way:
        return frozenset(self.causes[c] for c in np.flatnonzero(mask[:, index]).tolist())


def obstacles(
    profile: Profile, state: ClusterState, pod: PodClass, nominated: NominatedPods | None = None
) -> Obstacles:
    """Run all filters of a profile on all nodes, without caches.

    ``nominated`` are the nominated pods to respect; see
    ``nominated_pods_with_priority``.
    """
    snapshot = view_for(profile, state, pod)
    rows = np.flatnonzero(snapshot.alive)
    table = _RejectionTable(len(rows))
    refusals, lasting, echoed = _refusals(profile, snapshot, pod)
    refused_by = {name for cause in refusals for name in cause.plugins}
    with snapshot.restoring():
        for active in profile.filter:
            if active.name not in refused_by and active.hints.filters(snapshot, pod):
                table.add(active.name, active.plugin.filter(snapshot, pod), rows)
    repeating = table.forget({cause.reason for cause in refusals} | echoed)
    table.merge_shortages()
    if nominated:
        what_if = StateWhatIf(profile, state, nominated)
        table.add_kept(what_if, pod, rows, snapshot.node_names, nominated)
    names = [snapshot.node_names[row] for row in rows.tolist()]
    causes, blocked, hopeless = table.arrays()
    repeated = table.repeated(profile, snapshot, pod, rows)
    silenced = frozenset(refused_by | repeating)
    return Obstacles(rows, names, causes, blocked, hopeless, repeated, refusals, lasting, silenced)


def _refusals(
    profile: Profile, snapshot: Snapshot, pod: PodClass
) -> tuple[tuple[Cause, ...], tuple[Cause, ...], frozenset[str]]:
    """Return the refusals, those that hold without other pods, and equivalent node reasons.

    Refusals with the same reason are merged.
    """
    answers = ((a, a.plugin.prefilter(snapshot, pod)) for a in profile.pre_filter)
    refusals = [(active, answer) for active, answer in answers if isinstance(answer, Refusal)]
    reasons = {answer.reason for _, answer in refusals}
    by_reason: dict[str, list[str]] = {}
    passing: set[str] = set()
    for active, answer in refusals:
        reason = answer.same_as if answer.same_as in reasons else answer.reason
        by_reason.setdefault(reason, []).append(active.name)
        if answer.resolvable or "run_limit" in active.has:  # it counts pods
            passing.add(reason)
    causes = tuple(Cause(", ".join(plugins), reason) for reason, plugins in by_reason.items())
    lasting = tuple(cause for cause in causes if cause.reason not in passing)
    return causes, lasting, frozenset(answer.same_as for _, answer in refusals if answer.same_as)


class _RejectionTable:
    """Builder of the table of causes and nodes."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._blocked: dict[Cause, BoolArray] = {}
        self._hopeless: dict[Cause, BoolArray] = {}

    def add(self, plugin: str, rejections: Rejections, rows: IntArray) -> None:
        codes = rejections.codes[rows]
        rejected = np.flatnonzero(codes)
        if not len(rejected):
            return
        never = np.broadcast_to(rejections.unresolvable, rejections.codes.shape)[rows]
        if rejections.explain is None:
            for bit, reason in enumerate(rejections.reasons):
                mask = (codes >> bit & 1).astype(bool)
                if mask.any():
                    self._note(Cause(plugin, reason), mask, never)
            return
        by_reason: dict[str, list[int]] = {}
        for index in rejected.tolist():
            for reason in reasons_of(rejections, int(rows[index])):
                by_reason.setdefault(reason, []).append(index)
        for reason, indices in by_reason.items():
            mask = np.zeros(self._count, bool)
            mask[indices] = True
            self._note(Cause(plugin, reason), mask, never)

    def forget(self, refused: set[str]) -> set[str]:
        """Drop causes that repeat a refusal; return their plugins."""
        dropped = set()
        for cause in list(self._blocked):
            if any(cause.reason.endswith(reason) for reason in refused):
                del self._blocked[cause], self._hopeless[cause]
                dropped.add(cause.plugin)
        return dropped

    def merge_shortages(self) -> None:
        """Drop shortages beside reservations on nodes with the same shortage overall."""
        by_reason = {cause.reason: mask for cause, mask in self._blocked.items()}
        for cause, mask in list(self._blocked.items()):
            known = by_reason.get(cause.reason.removesuffix(BY_NODE))
            if known is not None and cause.reason.endswith(BY_NODE):
                self._blocked[cause] = mask & ~known
                if not self._blocked[cause].any():
                    del self._blocked[cause], self._hopeless[cause]

    def repeated(
        self, profile: Profile, snapshot: Snapshot, pod: PodClass, rows: IntArray
    ) -> BoolArray:
        """Return ``(n_causes, n)``: causes that repeat another plugin's cause on a node."""
        repeated = np.zeros((len(self._blocked), self._count), bool)
        speaking = {cause.plugin for cause in self._blocked}
        for active in profile.filter:
            if active.name not in speaking or "duplicate_of" not in active.has:
                continue
            other, mask = active.plugin.duplicate_of(snapshot, pod)
            by_other = [mask for cause, mask in self._blocked.items() if cause.plugin == other]
            for index, (cause, blocked) in enumerate(self._blocked.items()):
                if by_other and cause.plugin == active.name:
                    repeated[index] = blocked & mask[rows] & np.any(by_other, axis=0)
        return repeated

    def add_kept(
        self,
        what_if: StateWhatIf,
        pod: PodClass,
        rows: IntArray,
        names: Sequence[str],
        nominated: NominatedPods,
    ) -> None:
        """Add nodes that reject the pod only because of nominated pods."""
        for index, row in enumerate(rows.tolist()):
            others = nominated.get(names[row])
            if not others or any(mask[index] for mask in self._blocked.values()):
                continue
            plugin, reasons = what_if.rejection(pod, row)
            for reason in reasons:
                kept = ", ".join(sorted(nominated_pod.key for nominated_pod, _ in others))
                mask = np.zeros(self._count, bool)
                mask[index] = True
                cause = Cause(plugin, f"{reason} (nominated to {kept}, which preempted there)")
                self._note(cause, mask, np.zeros(self._count, bool))

    def _note(self, cause: Cause, mask: BoolArray, never: BoolArray) -> None:
        nothing = np.zeros(self._count, bool)
        self._blocked[cause] = self._blocked.get(cause, nothing) | mask
        self._hopeless[cause] = self._hopeless.get(cause, nothing) | (mask & never)

    def arrays(self) -> tuple[tuple[Cause, ...], BoolArray, BoolArray]:
        causes = tuple(self._blocked)
        shape = (len(causes), self._count)
        blocked = np.array([self._blocked[c] for c in causes], bool).reshape(shape)
        hopeless = np.array([self._hopeless[c] for c in causes], bool).reshape(shape)
        return causes, blocked, hopeless
