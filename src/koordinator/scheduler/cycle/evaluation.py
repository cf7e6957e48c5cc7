"""Results of the node-local plugins of a profile per class of pods, updated row by row.

Pods of different classes share an evaluation when every active node-local plugin reads the same
part of them (``Evaluator.key``).  Results of plugins that read node facts only are shared by plugin
and key.

Nominated pods with at least a pod's priority: filters count them as placed.
"""

import operator
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from koordinator.api.pod import Pod
from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.memo import Memo
from koordinator.scheduler.contract import ActivePlugin, Profile, Reads
from koordinator.scheduler.cycle.program import PluginPart, Program, compile_program
from koordinator.scheduler.cycle.score_table import UNFIT, Scores, ScoreTable
from koordinator.scheduler.rules.usage_kernels import Judgements
from koordinator.scheduler.snapshot import ClusterState, PodClass, RestorableHolds, Snapshot

#: Memory that kept evaluations may take; the ones unused for longest go first, and those unused
#: while many new classes of pods came.
KEEP_BYTES = 1 << 30
_DECODED = 8  # memory of a pod's objects as a multiple of its encoded spec
_OVERHEAD = 1 << 13  # bytes that any evaluation takes

#: Pods that preemption has made room for, with their classes, by node name.
NominatedPods = Mapping[str, Sequence[tuple[Pod, PodClass]]]


def view_for(profile: Profile, state: ClusterState, pod: PodClass) -> Snapshot:
    """Return the whole cluster as it is now, with the restorable holds of the pod."""
    snapshot = Snapshot(state)
    if not (pod.annotations or state.holds.by_uid):
        return snapshot  # it is no reserve pod, and there is no hold that it could use
    for active in profile.reservation_plugins:
        restorable: RestorableHolds | None = active.plugin.restorable(snapshot, pod)
        if restorable is not None:
            return snapshot.with_restorable(restorable)
    return snapshot


@dataclass(slots=True, eq=False)
class NodeFactResult:
    """An answer that depends on facts of nodes only, over all rows: accepted, score or total."""

    version: Hashable
    layout: int
    position: int  # in the node log
    values: npt.NDArray[Any]
    used_in: int = 0  # the generation of classes of the last use


class Evaluation(Scores):
    """Filter verdict and total score of the node-local plugins, over all rows."""

    __slots__ = (
        "_layout",
        "_node_position",
        "_versions",
        "charged",
        "flat",
        "pod",
        "program",
        "raw",
        "usage_position",
        "used_in",
        "with_columns",
    )

    def __init__(self, program: Program, pod: PodClass) -> None:
        super().__init__()
        self.program = program
        self.pod = pod  # any pod of that kind: plugins see no difference
        self.used_in = 0  # the generation of classes of the last use
        self.charged = 0  # bytes that it counts with while it is kept
        self.raw: list[IntArray] = [np.zeros(0, np.int64) for _ in program.relative]
        self.flat: list[bool] = []  # per relative plugin: raw scores are 0 everywhere
        self._layout = self._node_position = -1
        self.usage_position = -1  # in the usage log, up to which ``totals`` is current; -1: unknown
        self._versions: Hashable = None
        #: what batches ask of amounts and of columns of a plugin, by the latter
        self.with_columns: tuple[Hashable, Judgements] | None = None

    @property
    def spreads(self) -> bool:
        """Whether all relative scores that are not flat are scaled by ``Spread``."""
        return all(map(operator.or_, self.flat, self.program.spreads))

    @property
    def eligible(self) -> BoolArray:
        """``(n_rows,)``: where no plugin rejects the pod that reads facts of nodes alone."""
        eligible: BoolArray = self.node_totals != UNFIT
        return eligible

    @property
    def nbytes(self) -> int:
        own = self.totals.nbytes * (1 + len(self.program.own_raw)) + _OVERHEAD
        return own + self.pod.nbytes * _DECODED

    def refresh(self, evaluator: "Evaluator", snapshot: Snapshot, *, rows: bool = True) -> None:
        """Apply the changes since the last call; without ``rows``, no changes of single rows.

        ``snapshot`` contains the restorable holds of the pod.
        """
        state = evaluator.state
        usage, facts = state.usage_log, state.node_log
        versions = evaluator.versions(self.program, snapshot)
        changed = usage.since(self.usage_position) if self.usage_position >= 0 else None
        stale = (
            changed is None
            or self._layout != state.layout
            or self._node_position != facts.position
            or self._versions != versions
        )
        if stale or changed is None:
            with snapshot.restoring():
                self._rebuild(evaluator, snapshot)
        elif len(changed) and rows:
            self._update(snapshot, changed)
        else:
            return
        self._layout, self._versions = state.layout, versions
        self._node_position, self.usage_position = facts.position, usage.position

    def apply_changes(self, evaluator: "Evaluator", snapshot: Snapshot) -> None:
        """Apply the changes since the last call, where pods have been placed and nothing else."""
        usage = evaluator.state.usage_log
        changed = usage.since(self.usage_position)
        if changed is None:
            self.refresh(evaluator, snapshot)
        elif len(changed):
            self._update(snapshot, changed)
            self.usage_position = usage.position

    def _rebuild(self, evaluator: "Evaluator", snapshot: Snapshot) -> None:
        program, pod = self.program, self.pod
        self.node_totals = evaluator.node_totals(program, pod)
        totals, raw = self._score(snapshot, self.node_totals)
        for index, part in enumerate(program.relative):
            if part.active.plugin.reads is Reads.NODE:
                # An array of many classes, which only changes where all of them are built again.
                raw_facts = evaluator.node_facts("score", part, pod)
                self.raw[index] = raw_facts.astype(np.int64, copy=False)
            else:
                own = raw[index] if index in raw else part.active.plugin.score(snapshot, pod)
                self.raw[index] = np.array(own, np.int64)
        self.flat = [not raw.any() for raw in self.raw]
        evaluator.table.put(self, totals)

    def _update(self, snapshot: Snapshot, rows: IntArray) -> None:
        if len(rows) * 4 > len(self.totals):
            changed = np.zeros(len(self.totals), bool)
            changed[rows] = True
            rows = np.flatnonzero(changed)
        view = snapshot[rows]
        with view.restoring():
            self.totals[rows], raw = self._score(view, self.node_totals[rows])
            for index, part in enumerate(self.program.relative):
                if part.active.plugin.reads is not Reads.NODE:
                    own = raw[index] if index in raw else part.active.plugin.score(view, self.pod)
                    self.raw[index][rows] = own
                    self.flat[index] = not (own.any() or self.raw[index].any())

    def _score(self, view: Snapshot, node_totals: IntArray) -> tuple[IntArray, dict[int, IntArray]]:
        """Return ``totals`` of a view, from their ``node_totals``, and raw relative scores.

        These are scores that a plugin computes with its verdicts, by index in ``relative``.
        """
        program, pod, ok, total = self.program, self.pod, node_totals != UNFIT, node_totals.copy()
        if program.judge is None:
            view.judge(program.arithmetic.judgements, ok, total)
        else:
            program.judge(program.arithmetic, view, ok, total)
        for part, judge in program.joint:
            judge(view, pod, part.active.weight, ok, total)
        for part in program.other_filters:
            ok &= part.active.plugin.filter(view, pod).codes == 0
        for part in program.other_scores:
            score = part.active.plugin.score(view, pod)
            total += score if part.active.weight == 1 else part.active.weight * score
        raw = {index: rate(view, pod, ok) for index, rate in program.rated} if program.rated else {}
        return np.where(ok, total, UNFIT), raw

    def fits(self, snapshot: Snapshot, rows: IntArray, times: IntArray) -> BoolArray:
        """Return where ``rows[i]`` takes another such pod after ``times[i]`` of them."""
        fits: BoolArray = self.trajectory(snapshot, rows, times) != UNFIT
        return fits

    def trajectory(self, snapshot: Snapshot, rows: IntArray, times: IntArray) -> IntArray:
        """Return ``totals`` of ``rows[i]`` as it would be after ``times[i]`` more such pods."""
        view = snapshot[rows].after(self.pod, times)
        return self._score(view, self.node_totals[rows])[0]


class EvaluationKey:
    """Identity of the pods that share an evaluation; hashed for each pod."""

    __slots__ = ("__weakref__",)


class Evaluator:
    """Keeps the evaluations of one profile."""

    def __init__(self, profile: Profile, state: ClusterState, keep_bytes: int = KEEP_BYTES) -> None:
        self.profile = profile
        self.state = state
        self._keep_bytes = keep_bytes
        self.table = ScoreTable()  # of the evaluations that batches use
        #: per pod class, valid for one version of the traits
        self._programs: Memo[tuple[Program, EvaluationKey]] = Memo()
        self._keys: WeakValueDictionary[Hashable, EvaluationKey] = WeakValueDictionary()
        #: least recently used first; together they take about ``_kept_bytes``
        self._kept: OrderedDict[EvaluationKey, Evaluation] = OrderedDict()
        self._kept_bytes = 0  # an estimate: arrays grow with the nodes
        #: verdicts and scores of ``Reads.NODE`` plugins, shared by pods of equal ``hints.key``
        self._facts: OrderedDict[Hashable, NodeFactResult] = OrderedDict()
        #: totals over these plugins, shared by pods of equal ``Program.node_key``
        self._node_totals: OrderedDict[Hashable, NodeFactResult] = OrderedDict()
        self._generation = 0  # of classes when idle ones were last dropped

    @property
    def snapshot(self) -> Snapshot:
        """The whole cluster as it is now."""
        return Snapshot(self.state)

    def view(self, pod: PodClass) -> Snapshot:
        """Return the whole cluster as it is now, with the restorable holds of the pod."""
        return view_for(self.profile, self.state, pod)

    def key(self, pod: PodClass) -> EvaluationKey:
        """Return the identity of the pod's evaluation, equal for pods that share it.

        They may be of different classes.
        """
        return self.program(pod, self.view(pod))[1]

    def of(
        self,
        pod: PodClass,
        view: Snapshot | None = None,
        known: tuple[Program, EvaluationKey] | None = None,
        *,
        rows: bool = True,
    ) -> Evaluation:
        """Return the pod's evaluation, up to date; ``view`` and program if they are known.

        Without ``rows``, changes of single rows since its ``usage_position`` are not applied yet.
        """
        view = self.view(pod) if view is None else view
        program, key = known or self.program(pod, view)
        generation = self.state.classes.generation
        if generation != self._generation:
            self._drop_idle(generation)
        kept = self._kept.get(key)
        if kept is None:
            kept = Evaluation(program, pod)
            kept.refresh(self, view)  # one that a plugin breaks on is not kept for others
            self._kept[key] = kept
            kept.charged = kept.nbytes
            self._kept_bytes += kept.charged
            while self._kept_bytes > self._keep_bytes and len(self._kept) > 1:
                self._drop_oldest()
        else:
            self._kept.move_to_end(key)
            kept.refresh(self, view, rows=rows)
        kept.used_in = generation
        return kept

    def _drop_idle(self, generation: int) -> None:
        """Drop evaluations unused in the last generation of classes: many have come since."""
        self._generation = generation
        while self._kept and next(iter(self._kept.values())).used_in < generation - 1:
            self._drop_oldest()
        for kept in (self._facts, self._node_totals):
            while kept and next(iter(kept.values())).used_in < generation - 1:
                kept.popitem(last=False)

    def _drop_oldest(self) -> None:
        dropped = self._kept.popitem(last=False)[1]
        self._kept_bytes -= dropped.charged
        self.table.leave(dropped)

    def is_linear(self, pod: PodClass, view: Snapshot) -> bool:
        """Return whether amounts and pod counts are all that placing such pods changes."""
        return self.program(pod, view)[0].linear

    def program(self, pod: PodClass, view: Snapshot) -> tuple[Program, EvaluationKey]:
        """Return the program of the pod's class as of the traits of the cluster."""
        traits = (self.state.traits, self.state.axis.generation, view.has_restorable)
        return self._programs.as_of(pod, traits, self._compile, pod, view)

    def _compile(self, pod: PodClass, view: Snapshot) -> tuple[Program, EvaluationKey]:
        program = compile_program(self.profile, view, pod)
        shared = (program.key, program.linear, self.state.axis.generation)
        return program, self._keys.setdefault(shared, EvaluationKey())

    def versions_of(self, pod: PodClass, view: Snapshot) -> Hashable:
        """Return a value that changes when results for the pod may change on every row.

        ``view`` is the pod's own.
        """
        return self.versions(self.program(pod, view)[0], view)

    def versions(self, program: Program, view: Snapshot) -> Hashable:
        """Return the versions of the plugins that have one; ``view`` is the pod's own."""
        if not program.versions:
            return None
        snapshot = self.snapshot if view.has_restorable else view
        return tuple([version(snapshot) for version in program.versions])

    def node_totals(self, program: Program, pod: PodClass) -> IntArray:
        """Return the weighted totals of the plugins that read facts of nodes alone, on every row.

        ``UNFIT`` where one of them rejects the pod.  Don't write to it: it is of many classes, and
        another array once facts have changed.
        """
        state, snapshot = self.state, self.snapshot
        parts = (*program.node_filters, *program.node_scores)
        versions = tuple(
            version(snapshot)
            for version in dict.fromkeys(part.active.hints.version for part in parts)
            if version is not None
        )
        key, layout = (program.node_key, state.axis.generation), state.layout
        known = self._node_totals.get(key)
        if (
            known is None
            or known.layout != layout
            or known.position != state.node_log.position
            or known.version != versions
        ):
            ok = snapshot.alive.copy()
            for part in program.node_filters:
                np.logical_and(ok, self.node_facts("filter", part, pod), out=ok)
            total = np.zeros(len(ok), np.int64)
            for part in program.node_scores:
                total += part.active.weight * self.node_facts("score", part, pod)
            totals = np.where(ok, total, UNFIT)
            known = NodeFactResult(versions, layout, state.node_log.position, totals)
            self._node_totals[key] = known
            self._bound(self._node_totals, totals.nbytes)
        self._node_totals.move_to_end(key)
        known.used_in = state.classes.generation
        return known.values

    def node_facts(self, method: str, part: PluginPart, pod: PodClass) -> BoolArray | IntArray:
        """Return a ``Reads.NODE`` plugin's verdict or raw score for every row.

        Don't write to it.
        """
        state, snapshot, active = self.state, self.snapshot, part.active
        version = active.hints.version(snapshot) if active.hints.version is not None else None
        key = (active.name, method, part.key, state.axis.generation)
        facts = self._facts.get(key)
        rows = state.node_log.since(facts.position) if facts is not None else None
        if (
            facts is None
            or rows is None
            or facts.version != version
            or facts.layout != state.layout
        ):
            values = self._results_of(method, active, snapshot, pod)
            facts = NodeFactResult(version, state.layout, state.node_log.position, values)
            self._facts[key] = facts
            self._bound(self._facts, values.nbytes)
        elif len(rows):
            facts.values[rows] = self._results_of(method, active, snapshot[rows], pod)
            facts.position = state.node_log.position
        self._facts.move_to_end(key)
        facts.used_in = state.classes.generation
        return facts.values

    def _bound(self, kept: "OrderedDict[Hashable, NodeFactResult]", nbytes: int) -> None:
        """Drop the least recently used results, given the bytes of each."""
        bound = max(64, self._keep_bytes // 8 // (nbytes + _OVERHEAD))
        while len(kept) > bound:
            kept.popitem(last=False)

    @staticmethod
    def _results_of(
        method: str, active: ActivePlugin, view: Snapshot, pod: PodClass
    ) -> BoolArray | IntArray:
        if method == "filter":
            accepted: BoolArray = active.plugin.filter(view, pod).codes == 0
            return accepted
        return np.array(active.plugin.score(view, pod), np.int64)


def nominated_pods_with_priority(
    pod: Pod, nominated: NominatedPods
) -> dict[str, list[tuple[Pod, PodClass]]]:
    """Return the other nominated pods with at least the pod's priority, by node."""
    priority = pod.spec.priority or 0
    nominated_pods = {
        node: [n for n in pods if n[0].key != pod.key and (n[0].spec.priority or 0) >= priority]
        for node, pods in nominated.items()
    }
    return {node: pods for node, pods in nominated_pods.items() if pods}


def priority_of(pod: Pod) -> int:
    """Return the priority by which pods are compared."""
    return pod.spec.priority or 0
