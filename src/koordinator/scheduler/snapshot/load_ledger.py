"""How loaded every node is, by one set of rules."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

import numpy as np
import numpy.typing as npt

from koordinator.api.annotations.node import CustomUsageThresholds
from koordinator.api.core import ResourceList
from koordinator.api.node_metric import NodeMetric
from koordinator.domain.load.kernels import FACTS, FIGURES, ByteArray, Fact, Figure, Status
from koordinator.domain.load.limits import limits_on
from koordinator.domain.load.measured import Measured, measured_by
from koordinator.domain.load.pod_load import (
    Addends,
    PodLoad,
    Sum,
    pod_load,
)
from koordinator.domain.load.rules import LoadRules, Window
from koordinator.scheduler.snapshot.axis import IntArray
from koordinator.scheduler.snapshot.classes import PodClass
from koordinator.scheduler.snapshot.pods import PlacedPod

SUMS = len(Sum)


@dataclass(frozen=True, slots=True)
class ClassLoad:
    """What pods of a class use and add, also as an array."""

    load: PodLoad
    addends: Addends  # where nothing was measured of it
    amounts: IntArray  # (5, r): the addends, and the estimate


class LoadLedger:
    """The loads of all rows by one set of rules.  Written by ``LoadTable`` only."""

    def __init__(self, rules: LoadRules, capacity: int) -> None:
        self.rules = rules
        self.measured: list[Measured | None] = [None] * capacity
        #: (capacity, FIGURES, r) sums over the pods by Sum, and the rest by Figure
        self.figures: IntArray = np.zeros((capacity, FIGURES, len(rules.resources)), np.int64)
        self.facts: ByteArray = np.zeros((capacity, FACTS), np.int8)  # by Fact
        self.reported: Counter[str] = Counter()  # keys of pods -> rows whose report names them
        self._is_reported = np.zeros(capacity, bool)
        self._windows: dict[int, Window | None] = {}  # that are limited, of nodes with limits
        self._expires_s: npt.NDArray[np.float64] = np.full(capacity, inf)
        self._next_expiry_s = inf  # at the earliest

    # -- reading -----------------------------------------------------------------------------

    def reports(self, placed: PlacedPod) -> bool:
        """Return whether something was measured of a pod where it is."""
        measured = self.measured[placed.row]
        return measured is not None and placed.key in measured.pods

    # -- writing -----------------------------------------------------------------------------

    def grow(self, capacity: int) -> None:
        """Make room for ``capacity`` rows."""
        more = capacity - len(self.measured)
        self.measured += [None] * more
        self.figures = np.pad(self.figures, ((0, more), (0, 0), (0, 0)))
        self.facts = np.pad(self.facts, ((0, more), (0, 0)))
        self._is_reported = np.pad(self._is_reported, (0, more))
        self._expires_s = np.pad(self._expires_s, (0, more), constant_values=inf)

    def set_node(
        self, row: int, amounts: ResourceList, custom: CustomUsageThresholds | None
    ) -> None:
        """Take over what a node has, and its own limits."""
        limits = limits_on(self.rules, custom)
        figures = self.figures[row]
        figures[Figure.HAS] = self.rules.amounts(amounts)
        figures[Figure.LIMIT], figures[Figure.PROD_LIMIT] = limits.usage, limits.prod
        self.facts[row, Fact.IS_AGGREGATED] = limits.window is not None
        if custom is None:
            self._windows.pop(row, None)
        else:
            self._windows[row] = limits.window
        self._choose_usage(row)

    def report(
        self, row: int, metric: NodeMetric | None, pods: Iterable[PlacedPod], now_s: float
    ) -> None:
        """Take over a report, None if there is none any more; ``pods`` are those on the row."""
        old = self.measured[row]
        new = self.measured[row] = None if metric is None else measured_by(metric, self.rules)
        self._note_reported(old, new)
        self._is_reported[row] = new is not None
        self._set_status(row, new, now_s)
        self._choose_usage(row)
        self.figures[row, :SUMS] = 0 if new is None else self._add_up(new, pods)

    def charge(self, placed: PlacedPod, sign: int) -> None:
        """Count a pod on its row (1), or no more (-1)."""
        measured = self.measured[placed.row]
        if measured is None:
            return
        kind = class_load(placed.pod_class, self.rules)
        added = kind.amounts[:SUMS]
        if placed.key in measured.pods:
            added = np.array(_reported(kind.load, placed, measured))
        sums = self.figures[placed.row, :SUMS]
        if sign > 0:
            sums += added
        else:
            sums -= added

    def charge_run(self, pod: PodClass, rows: IntArray, times: IntArray) -> None:
        """Count ``times[i]`` pods of a class, of which nothing was measured, on ``rows[i]``."""
        there = times * self._is_reported[rows]
        added = class_load(pod, self.rules).amounts[:SUMS]
        self.figures[rows, :SUMS] += there[:, None, None] * added

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
        before, after = old.pods.keys() if old else set(), new.pods.keys() if new else set()
        for key in before - after:
            self.reported[key] -= 1
            if not self.reported[key]:
                del self.reported[key]
        for key in after - before:
            self.reported[key] += 1

    def _set_status(self, row: int, measured: Measured | None, now_s: float) -> None:
        expires_s = inf
        status = Status.UNKNOWN
        if measured is not None:
            expires_s = measured.updated_s + self.rules.expiration_s
            is_empty = measured.usage is None
            if expires_s <= now_s:
                expires_s = inf
                status = Status.EMPTY if is_empty else Status.EXPIRED
            elif not is_empty:
                status = Status.FRESH
        self.facts[row, Fact.STATUS] = status
        self._expires_s[row] = expires_s
        self._next_expiry_s = min(self._next_expiry_s, expires_s)

    def _choose_usage(self, row: int) -> None:
        limited = scored = None
        measured = self.measured[row]
        if measured is not None:
            limited = measured.over(self._windows.get(row, self.rules.limits.window))
            scored = measured.over(self.rules.scored)
        figures, facts = self.figures[row], self.facts[row]
        figures[Figure.LIMITED], figures[Figure.SCORED] = limited or 0, scored or 0
        facts[Fact.KNOWS_LIMITED], facts[Fact.KNOWS_SCORED] = (
            limited is not None,
            scored is not None,
        )

    def _add_up(self, measured: Measured, pods: Iterable[PlacedPod]) -> IntArray:
        rules, reports = self.rules, measured.pods
        nothing = (0,) * len(rules.resources)
        system = measured.system if rules.includes_system else nothing
        addends: list[Addends] = [(nothing, nothing, nothing, system)]
        for placed in pods:
            kind = class_load(placed.pod_class, rules)
            if placed.key in reports:
                addends.append(_reported(kind.load, placed, measured))
            else:
                addends.append(kind.addends)
        total: IntArray = np.array(addends).sum(axis=0)
        return total


def _reported(load: PodLoad, placed: PlacedPod, measured: Measured) -> Addends:
    return load.reported(measured, measured.pods[placed.key], placed.pod, placed.assigned_s)


def class_load(pod: PodClass, rules: LoadRules) -> ClassLoad:
    """Return what pods of a class use by these rules."""
    known: ClassLoad | None = pod.facts.get(rules.key)
    if known is None:
        load = pod_load(pod.labels, pod.annotations, pod.spec, rules)
        addends = load.unreported()
        amounts = np.array((*addends, load.estimate), np.int64)
        known = pod.facts[rules.key] = ClassLoad(load, addends, amounts)
    return known
