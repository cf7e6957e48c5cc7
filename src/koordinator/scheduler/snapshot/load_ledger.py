"""How loaded every node is, by one set of rules."""

from collections import Counter
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import inf

import numpy as np
import numpy.typing as npt

from koordinator.api.annotations.node import CustomUsageThresholds
from koordinator.api.core import ResourceList
from koordinator.api.node_metric import NodeMetric
from koordinator.api.pod import Pod
from koordinator.domain.load.kernels import (
    FACTS,
    FIGURES,
    MARGINS,
    ByteArray,
    Fact,
    Figure,
    Status,
    count,
    weigh,
)
from koordinator.domain.load.limits import limits_on, most_within
from koordinator.domain.load.measured import Measured, measured_by
from koordinator.domain.load.pod_load import (
    Addends,
    PodLoad,
    Sum,
    pod_load,
    scheduled_s,
)
from koordinator.domain.load.rules import Amounts, LoadRules, Window
from koordinator.scheduler.snapshot.axis import IntArray
from koordinator.scheduler.snapshot.classes import PodClass
from koordinator.scheduler.snapshot.nodes import NodeTable
from koordinator.scheduler.snapshot.pods import PlacedPod

SUMS = len(Sum)

#: A row, what it reports, None if that is nothing any more, and the pods that are there.
Report = tuple[int, NodeMetric | None, Iterable[PlacedPod]]
_UNSEEN: tuple[Pod | None, float] = (None, 0.0)
_NO_KEYS: AbstractSet[str] = frozenset()
_ONCE = {1: np.array((1,)), -1: np.array((-1,))}


@dataclass(frozen=True, slots=True)
class ClassLoad:
    """What pods of a class use and add, also as an array."""

    load: PodLoad
    addends: Addends  # where nothing was measured of it
    amounts: IntArray  # (5, r): the addends, and the estimate


class LoadLedger:
    """The loads of all rows by one set of rules.  Written by ``LoadTable`` only."""

    def __init__(self, rules: LoadRules, nodes: NodeTable) -> None:
        self.rules = rules
        self._nodes = nodes
        capacity = nodes.capacity
        self.measured: list[Measured | None] = [None] * capacity
        #: (capacity, FIGURES, r) sums over the pods by Sum, and the rest by Figure
        self.figures: IntArray = np.zeros((capacity, FIGURES, len(rules.resources)), np.int64)
        self.facts: ByteArray = np.zeros((capacity, FACTS), np.int8)  # by Fact
        #: (capacity, MARGINS, r) by Margin
        self.margins: IntArray = np.zeros((capacity, MARGINS, len(rules.resources)), np.int64)
        self.reported: Counter[str] = Counter()  # keys of pods -> rows whose report names them
        self._is_reported = np.zeros(capacity, bool)
        self._windows: dict[int, Window | None] = {}  # that are limited, of nodes with limits
        self._expires_s: npt.NDArray[np.float64] = np.full(capacity, inf)
        self._next_expiry_s = inf  # at the earliest
        self._nothing: Addends = (rules.nothing,) * 4
        #: by row, of pods of which something was measured: their version and since when they had
        #: the node by that; to look it up in the pod takes longer than all else
        self._since: dict[int, dict[PlacedPod, tuple[Pod | None, float]]] = {}
        self._one_row = np.zeros(1, np.int64)  # for kernels, instead of a new array for each pod

    # -- reading -----------------------------------------------------------------------------

    def reports(self, placed: PlacedPod) -> bool:
        """Return whether something was measured of a pod where it is."""
        measured = self.measured[placed.row]
        return measured is not None and placed.key in measured.pods

    def are_alike(self, kinds: Sequence[PodClass]) -> bool:
        """Return whether pods of all these classes add the same."""
        first = class_load(kinds[0], self.rules).addends
        return all(class_load(kind, self.rules).addends == first for kind in kinds[1:])

    def added_by(self, placed: PlacedPod) -> Addends:
        """Return what a pod adds to its node, which has been measured."""
        measured = self.measured[placed.row]
        report = measured.pods.get(placed.key) if measured is not None else None
        kind = class_load(placed.pod_class, self.rules)
        if measured is None or report is None:
            return kind.addends
        return kind.load.reported(measured, report, self.rules, placed.pod, _since_s(placed))

    # -- writing -----------------------------------------------------------------------------

    def grow(self) -> None:
        """Make room for as many rows as there may be nodes now."""
        more = self._nodes.capacity - len(self.measured)
        self.measured += [None] * more
        self.figures = np.pad(self.figures, ((0, more), (0, 0), (0, 0)))
        self.facts = np.pad(self.facts, ((0, more), (0, 0)))
        self.margins = np.pad(self.margins, ((0, more), (0, 0), (0, 0)))
        self._is_reported = np.pad(self._is_reported, (0, more))
        self._expires_s = np.pad(self._expires_s, (0, more), constant_values=inf)

    def set_node(
        self, row: int, amounts: ResourceList, custom: CustomUsageThresholds | None
    ) -> None:
        """Take over what a node has, and its own limits."""
        limits = limits_on(self.rules, custom)
        figures, facts = self.figures[row], self.facts[row]
        has = self.rules.amounts(amounts)
        figures[Figure.HAS] = has
        figures[Figure.MOST] = list(map(most_within, has, limits.usage))
        figures[Figure.PROD_MOST] = list(map(most_within, has, limits.prod))
        facts[Fact.IS_AGGREGATED] = limits.window is not None
        facts[Fact.HAS_LIMITS], facts[Fact.HAS_PROD_LIMITS] = any(limits.usage), any(limits.prod)
        if custom is None:
            self._windows.pop(row, None)
        else:
            self._windows[row] = limits.window
        self._choose_usage([row])

    def report(self, reports: Sequence[Report], now_s: float) -> None:
        """Take over reports, each of another row."""
        rows = [row for row, _, _ in reports]
        where, rules = np.array(rows), self.rules
        news = [None if metric is None else measured_by(metric, rules) for _, metric, _ in reports]
        for row, new in zip(rows, news, strict=True):
            self._note_reported(self.measured[row], new)
            self.measured[row] = new
            if new is None:
                self._since.pop(row, None)
        self._is_reported[where] = [new is not None for new in news]
        self._set_status(where, news, now_s)
        self.figures[where, :SUMS] = [
            self._nothing if new is None else self._add_up(row, new, pods)
            for new, (row, _, pods) in zip(news, reports, strict=True)
        ]
        self._choose_usage(rows)

    def charge(self, placed: PlacedPod, sign: int) -> None:
        """Count a pod on its row (1), or no more (-1)."""
        measured = self.measured[placed.row]
        if measured is None:
            return
        if placed.key in measured.pods:
            added = np.array(self.added_by(placed))
        else:
            added = class_load(placed.pod_class, self.rules).amounts
        self._one_row[0] = placed.row
        self._count(self._one_row, _ONCE[sign], added)

    def charge_run(self, pod: PodClass, rows: IntArray, times: IntArray) -> None:
        """Count ``times[i]`` pods of a class, of which nothing was measured, on ``rows[i]``."""
        there = times * self._is_reported[rows]
        self._count(rows, there, class_load(pod, self.rules).amounts)

    def _count(self, rows: IntArray, times: IntArray, added: IntArray) -> None:
        kernel = count.compiled if self._nodes.is_large else count.reference
        kernel(rows, times, added, self.figures, self.facts, self.margins)

    def expire(self, now_s: float) -> IntArray:
        """Return the rows whose report has expired since the last call."""
        if now_s < self._next_expiry_s:
            return np.zeros(0, np.int64)
        expired = np.flatnonzero(self._expires_s <= now_s)
        fresh = self.facts[expired, Fact.STATUS] == Status.FRESH
        self.facts[expired, Fact.STATUS] = np.where(fresh, Status.EXPIRED, Status.EMPTY)
        self._expires_s[expired] = inf
        self._next_expiry_s = float(self._expires_s.min(initial=inf))
        return expired

    def _note_reported(self, old: Measured | None, new: Measured | None) -> None:
        before = old.pods.keys() if old is not None else _NO_KEYS
        after = new.pods.keys() if new is not None else _NO_KEYS
        if before == after:
            return
        for key in before - after:
            self.reported[key] -= 1
            if not self.reported[key]:
                del self.reported[key]
        for key in after - before:
            self.reported[key] += 1

    def _set_status(self, rows: IntArray, news: Sequence[Measured | None], now_s: float) -> None:
        lasts_s = self.rules.expiration_s
        expires_s = np.array([inf if new is None else new.updated_s + lasts_s for new in news])
        has_body = np.array([new is not None and new.usage is not None for new in news])
        expired = expires_s <= now_s
        fresh = np.where(has_body, Status.FRESH, Status.UNKNOWN)
        old = np.where(has_body, Status.EXPIRED, Status.EMPTY)
        self.facts[rows, Fact.STATUS] = np.where(expired, old, fresh)
        self._expires_s[rows] = expires_s = np.where(expired, inf, expires_s)
        self._next_expiry_s = min(self._next_expiry_s, float(expires_s.min()))

    def _choose_usage(self, rows: Sequence[int]) -> None:
        rules, nothing = self.rules, self.rules.nothing
        limited: list[Amounts | None] = []
        scored: list[Amounts | None] = []
        for row in rows:
            measured = self.measured[row]
            if measured is None:
                limited.append(None)
                scored.append(None)
            else:
                window = self._windows.get(row, rules.limits.window)
                limited.append(measured.over(window, rules))
                scored.append(measured.over(rules.scored, rules))
        where, figures, facts = np.array(rows), self.figures, self.facts
        for usages, figure, fact in (
            (limited, Figure.LIMITED, Fact.KNOWS_LIMITED),
            (scored, Figure.SCORED, Fact.KNOWS_SCORED),
        ):
            figures[where, figure] = [nothing if usage is None else usage for usage in usages]
            facts[where, fact] = [usage is not None for usage in usages]
        kernel = weigh.compiled if self._nodes.is_large else weigh.reference
        kernel(where, figures, facts, self.margins)

    def _add_up(self, row: int, measured: Measured, pods: Iterable[PlacedPod]) -> Sequence[Amounts]:
        rules, nothing = self.rules, self.rules.nothing
        addends = [(nothing, nothing, nothing, measured.system)]
        known = self._since.get(row, {})
        seen = self._since[row] = {}
        for placed in pods:
            kind, report = class_load(placed.pod_class, rules), measured.pods.get(placed.key)
            if report is None:
                addends.append(kind.addends)
                continue
            pod, since_s = known.get(placed, _UNSEEN)
            if pod is not placed.pod:
                pod, since_s = placed.pod, _since_s(placed)
            seen[placed] = pod, since_s
            addends.append(kind.load.reported(measured, report, rules, pod, since_s))
        if len(addends) == 1:
            return addends[0]
        return [tuple(map(sum, zip(*each, strict=True))) for each in zip(*addends, strict=True)]


def _since_s(placed: PlacedPod) -> float:
    """Return when a pod got its node."""
    bound_s = scheduled_s(placed.pod)
    return placed.assigned_s if bound_s is None else bound_s


def class_load(pod: PodClass, rules: LoadRules) -> ClassLoad:
    """Return what pods of a class use by these rules."""
    known: ClassLoad | None = pod.facts.get(rules.key)
    if known is None:
        load = pod_load(pod.labels, pod.annotations, pod.spec, rules)
        addends = load.unreported()
        amounts = np.array((*addends, load.estimate), np.int64)
        known = pod.facts[rules.key] = ClassLoad(load, addends, amounts)
    return known
