"""How loaded every node is, by one set of rules."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from koordinator.api.annotations.node import CustomUsageThresholds
from koordinator.api.core import ResourceList
from koordinator.api.node_metric import NodeMetric
from koordinator.domain.load.kernels import Status
from koordinator.domain.load.limits import limits_on
from koordinator.domain.load.measured import Measured, measured_by
from koordinator.domain.load.pod_load import (
    Addends,
    PodLoad,
    PodTimes,
    Sum,
    initialized_s,
    pod_load,
)
from koordinator.domain.load.rules import LoadRules
from koordinator.scheduler.snapshot.axis import BoolArray, IntArray
from koordinator.scheduler.snapshot.classes import PodClass
from koordinator.scheduler.snapshot.pods import PlacedPod


@dataclass(frozen=True, slots=True)
class ClassLoad:
    """What pods of a class use and add, also as arrays."""

    load: PodLoad
    estimate: IntArray  # (r,)
    added: IntArray  # (4, r), by Sum, where nothing was measured of the pod


class LoadLedger:
    """The loads of all rows by one set of rules.  Written by ``LoadTable`` only.

    Arrays are by resource of the rules, and as long as there is room for rows.
    """

    ARRAYS: ClassVar = (
        "is_reported",
        "status",
        "has",
        "limits",
        "prod_limits",
        "is_aggregated",
        "limited",
        "limited_known",
        "scored",
        "scored_known",
        "sums",
    )

    def __init__(self, rules: LoadRules, capacity: int) -> None:
        shape = len(rules.resources), capacity
        self.rules = rules
        self.measured: list[Measured | None] = [None] * capacity
        self.is_reported: BoolArray = np.zeros(capacity, bool)
        self.status: npt.NDArray[np.int8] = np.zeros(capacity, np.int8)  # a Status
        self.has: IntArray = np.zeros(shape, np.int64)  # what the nodes have, not amplified
        self.limits: IntArray = np.zeros(shape, np.int64)  # percent
        self.prod_limits: IntArray = np.zeros(shape, np.int64)
        self.is_aggregated: BoolArray = np.zeros(capacity, bool)  # the usage that has limits
        self.limited: IntArray = np.zeros(shape, np.int64)  # that usage, and where it is known
        self.limited_known: BoolArray = np.zeros(capacity, bool)
        self.scored: IntArray = np.zeros(shape, np.int64)  # the usage that scores look at
        self.scored_known: BoolArray = np.zeros(capacity, bool)
        self.sums: IntArray = np.zeros((len(Sum), *shape), np.int64)  # over the pods, by Sum
        self.reported: Counter[str] = Counter()  # keys of pods -> rows whose report names them
        self._custom: dict[int, CustomUsageThresholds] = {}
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
        for name in self.ARRAYS:
            old = getattr(self, name)
            setattr(self, name, np.pad(old, [(0, 0)] * (old.ndim - 1) + [(0, more)]))
        self._expires_s = np.pad(self._expires_s, (0, more), constant_values=inf)

    def set_node(
        self, row: int, amounts: ResourceList, custom: CustomUsageThresholds | None
    ) -> None:
        """Take over what a node has, and its own limits."""
        self.has[:, row] = self.rules.amounts(amounts)
        limits = limits_on(self.rules, custom)
        self.limits[:, row], self.prod_limits[:, row] = limits.usage, limits.prod
        self.is_aggregated[row] = limits.window is not None
        if custom is None:
            self._custom.pop(row, None)
        else:
            self._custom[row] = custom
        self._choose_usage(row)

    def report(
        self, row: int, metric: NodeMetric | None, pods: Iterable[PlacedPod], now_s: float
    ) -> None:
        """Take over a report, None if there is none any more; ``pods`` are those on the row."""
        old = self.measured[row]
        new = self.measured[row] = None if metric is None else measured_by(metric, self.rules)
        before, after = old.pods.keys() if old else set(), new.pods.keys() if new else set()
        for key in before - after:
            self.reported[key] -= 1
            if not self.reported[key]:
                del self.reported[key]
        self.reported.update(after - before)
        self.is_reported[row] = new is not None
        self._set_status(row, new, now_s)
        self._choose_usage(row)
        self.sums[:, :, row] = 0 if new is None else self._add_up(new, pods)

    def charge(self, placed: PlacedPod, sign: int) -> None:
        """Count a pod on its row (1), or no more (-1)."""
        measured = self.measured[placed.row]
        if measured is None:
            return
        kind = class_load(placed.pod_class, self.rules)
        added = kind.added
        if placed.key in measured.pods:
            added = np.array(_reported(kind.load, placed, measured))
        if sign > 0:
            self.sums[:, :, placed.row] += added
        else:
            self.sums[:, :, placed.row] -= added

    def charge_run(self, pod: PodClass, rows: IntArray, times: IntArray) -> None:
        """Count ``times[i]`` pods of a class, of which nothing was measured, on ``rows[i]``."""
        there = times * self.is_reported[rows]
        self.sums[:, :, rows] += class_load(pod, self.rules).added[:, :, None] * there

    def expire(self, now_s: float) -> IntArray:
        """Return the rows whose report has expired since the last call."""
        if now_s < self._next_expiry_s:
            return np.zeros(0, np.int64)
        expired = np.flatnonzero(self._expires_s <= now_s)
        fresh = self.status[expired] == Status.FRESH
        self.status[expired] = np.where(fresh, Status.EXPIRED, Status.EMPTY)
        self._expires_s[expired] = inf
        self._next_expiry_s = float(self._expires_s.min(initial=inf))
        return expired

    def _set_status(self, row: int, measured: Measured | None, now_s: float) -> None:
        self._expires_s[row] = inf
        if measured is None:
            self.status[row] = Status.UNKNOWN
            return
        expires_s = measured.updated_s + self.rules.expiration_s
        if expires_s <= now_s:
            self.status[row] = Status.EMPTY if measured.usage is None else Status.EXPIRED
            return
        self.status[row] = Status.UNKNOWN if measured.usage is None else Status.FRESH
        self._expires_s[row] = expires_s
        self._next_expiry_s = min(self._next_expiry_s, expires_s)

    def _choose_usage(self, row: int) -> None:
        measured, width = self.measured[row], len(self.rules.resources)
        window = limits_on(self.rules, self._custom.get(row)).window
        limited = scored = None
        if measured is not None:
            limited, scored = measured.over(window), measured.over(self.rules.scored)
        self.limited[:, row] = limited or (0,) * width
        self.scored[:, row] = scored or (0,) * width
        self.limited_known[row], self.scored_known[row] = limited is not None, scored is not None

    def _add_up(self, measured: Measured, pods: Iterable[PlacedPod]) -> IntArray:
        total: IntArray = np.zeros((len(Sum), len(self.rules.resources)), np.int64)
        if self.rules.includes_system:
            total[Sum.PROD_USAGE] = measured.system
        for placed in pods:
            kind = class_load(placed.pod_class, self.rules)
            if placed.key in measured.pods:
                total += np.array(_reported(kind.load, placed, measured))
            else:
                total += kind.added
        return total


def _reported(load: PodLoad, placed: PlacedPod, measured: Measured) -> Addends:
    times = PodTimes(placed.assigned_s, initialized_s(placed.pod))
    return load.reported(measured.pods[placed.key], measured, times)


def class_load(pod: PodClass, rules: LoadRules) -> ClassLoad:
    """Return what pods of a class use by these rules."""
    known: ClassLoad | None = pod.facts.get(rules)
    if known is None:
        load = pod_load(pod.labels, pod.annotations, pod.spec, rules)
        estimate, added = np.array(load.estimate, np.int64), np.array(load.unreported(), np.int64)
        known = pod.facts[rules] = ClassLoad(load, estimate, added)
    return known
