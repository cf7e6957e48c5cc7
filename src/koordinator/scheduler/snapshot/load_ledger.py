"""Loads of every node by one set of rules."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from math import inf

import numpy as np
import numpy.typing as npt

from koordinator.api.annotations.node import CustomUsageThresholds
from koordinator.api.core import ResourceList
from koordinator.api.node_metric import NodeMetric
from koordinator.foundation.arrays import IntArray, extended
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.memo import Memo
from koordinator.scheduler.rules.load.kernels import (
    FIGURES,
    USED,
    Case,
    Figure,
    ReportStatus,
    StateColumn,
    blank,
    charged,
    charged_all,
    taken,
    takes_of,
    weigh,
)
from koordinator.scheduler.rules.load.pod_load import (
    Addends,
    PodLoad,
    Sum,
    pod_load,
)
from koordinator.scheduler.rules.load.rules import (
    LoadRules,
    NodeMeasurement,
    Window,
    limits_on,
    measured_by,
    most_within,
)
from koordinator.scheduler.snapshot.classes import PodClass
from koordinator.scheduler.snapshot.nodes import NodeTable
from koordinator.scheduler.snapshot.pods import PlacedPod

#: A row, what it reports, None if that is nothing any more, and the pods that are there.
LoadReport = tuple[int, NodeMetric | None, Iterable[PlacedPod]]
_NO_KEYS: AbstractSet[str] = frozenset()

# Plain numbers: to look one up in an enumeration takes as long as much of the work on a report.
_PROD_USAGE = int(Sum.PROD_USAGE)
_STATUS, _CASE = int(StateColumn.STATUS), int(StateColumn.CASE)
_UNKNOWN, _FRESH, _EXPIRED, _EMPTY = (int(one) for one in ReportStatus)
_KNOWS_LIMITED, _KNOWS_SCORED, _HAS_PROD_LIMITS = (int(one) for one in Case)


@dataclass(frozen=True, slots=True)
class ClassLoad:
    """Usage of pods of a class, and their contribution to a node's load."""

    load: PodLoad
    unreported: Addends  # where nothing was measured of it
    measured_addends: (
        Addends | None
    )  # where it was measured in full; None: that alone does not say it
    takes: IntArray  # (CASES + 1, MARGINS, r) of margins where nothing was measured of it


class LoadLedger:
    """The loads of all rows by one set of rules.  Written by ``LoadTable`` only."""

    def __init__(self, rules: LoadRules, nodes: NodeTable) -> None:
        self.rules = rules
        self._nodes = nodes
        capacity = nodes.capacity
        self.measured: list[NodeMeasurement | None] = [None] * capacity
        #: (capacity, FIGURES, r) by Figure
        self.figures: IntArray = np.zeros((capacity, FIGURES, len(rules.resources)), np.int64)
        #: (capacity, MARGINS, r) by Margin, (capacity, FACTS) by Fact
        self.margins, self.facts = blank(capacity, len(rules.resources))
        self.reported: Counter[str] = Counter()  # keys of pods -> rows whose report names them
        self._windows: dict[int, Window | None] = {}  # that are limited, of nodes with limits
        self._expires_s: npt.NDArray[np.float64] = np.full(capacity, inf)
        self.next_expiry_s = inf  # of a report, at the earliest
        self.expired = 0  # number of reports that have expired so far

    # -- reading -----------------------------------------------------------------------------

    def reports(self, placed: PlacedPod) -> bool:
        """Return whether something was measured of a pod where it is."""
        measured = self.measured[placed.row]
        return measured is not None and placed.key in measured.pods

    def names_any(self, keys: Iterable[str]) -> bool:
        """Return whether a report of any node names one of these pods."""
        return not self.reported.keys().isdisjoint(keys)

    def added_by(self, placed: PlacedPod) -> Addends:
        """Return the contribution of a pod to its node."""
        measured = self.measured[placed.row]
        report = measured.pods.get(placed.key) if measured is not None else None
        kind = class_load(placed.pod_class, self.rules)
        if measured is None or report is None:
            return kind.unreported
        return kind.load.reported(measured, report, self.rules, placed.pod, placed.since_s)

    def sums(self, measured: NodeMeasurement | None, pods: Iterable[PlacedPod]) -> Addends:
        """Return the contributions of all pods of a node, and the usage outside of pods."""
        rules = self.rules
        if measured is None:
            all_of_it = [class_load(placed.pod_class, rules).unreported for placed in pods]
            return tuple(map(sum, zip(rules.nothing * len(Sum), *all_of_it, strict=True)))
        named, in_full_s = measured.pods, measured.updated_s - measured.interval_s
        addends = [rules.nothing * _PROD_USAGE + measured.system]
        for placed in pods:
            kind = class_load(placed.pod_class, rules)
            report = named.get(placed.key)
            if report is None:
                addends.append(kind.unreported)
            elif kind.measured_addends is not None and placed.since_s <= in_full_s:
                addends.append(kind.measured_addends)
            else:
                pod, since_s = placed.pod, placed.since_s
                addends.append(kind.load.reported(measured, report, rules, pod, since_s))
        return tuple(map(sum, zip(*addends, strict=True)))

    # -- writing -----------------------------------------------------------------------------

    def grow(self) -> None:
        """Make room for as many rows as there may be nodes now."""
        more = self._nodes.capacity - len(self.measured)
        self.measured += [None] * more
        self.figures = extended(self.figures, more)
        known, width = self.margins, len(self.rules.resources)
        self.margins, self.facts = blank(self._nodes.capacity, width)
        self.margins[: len(known)] = known
        self._expires_s = extended(self._expires_s, more, fill=inf)

    def set_node(
        self,
        row: int,
        amounts: ResourceList,
        custom: CustomUsageThresholds | None,
        pods: Iterable[PlacedPod],
    ) -> None:
        """Store a node's capacity, its own limits, and its pods."""
        limits = limits_on(self.rules, custom)
        figures, facts = self.figures[row], self.facts[row]
        has = self.rules.amounts(amounts)
        figures[Figure.HAS] = has
        figures[Figure.MOST] = list(map(most_within, has, limits.usage))
        figures[Figure.PROD_MOST] = list(map(most_within, has, limits.prod))
        facts[StateColumn.CASE] = Case.HAS_PROD_LIMITS * any(limits.prod)
        facts[StateColumn.IS_AGGREGATED] = limits.window is not None
        facts[StateColumn.HAS_LIMITS] = any(limits.usage)
        if custom is None:
            self._windows.pop(row, None)
        else:
            self._windows[row] = limits.window
        self._weigh([row], [pods])

    def report(self, reports: Sequence[LoadReport], now_s: float) -> None:
        """Take over reports, each of another row."""
        rows = [row for row, _, _ in reports]
        measurements = [
            None if metric is None else measured_by(metric, self.rules) for _, metric, _ in reports
        ]
        for row, new in zip(rows, measurements, strict=True):
            self._note_reported(self.measured[row], new)
            self.measured[row] = new
        self._set_status(rows, measurements, now_s)
        self._weigh(rows, [pods for _, _, pods in reports])

    def charge(self, placed: PlacedPod, sign: int) -> None:
        """Count a pod on its row (1), or no more (-1)."""
        row = placed.row
        if placed.key in self.reported:
            added = self.added_by(placed)
            self.margins[row] -= sign * taken(added, int(self.facts[row, StateColumn.CASE]))
            return
        kernel = charged.compiled if self._nodes.uses_kernels else charged.reference
        takes = class_load(placed.pod_class, self.rules).takes
        kernel(row, sign, takes, self.margins, self.facts)

    def charge_all(self, rows: IntArray, classes: Sequence[PodClass], kind: IntArray) -> None:
        """Charge pods without measurements to rows; ``kind`` are indices of ``classes``."""
        takes = np.array([class_load(one, self.rules).takes for one in classes])
        kernel = charged_all.compiled if self._nodes.uses_kernels else charged_all.reference
        kernel(rows, kind, takes, self.margins, self.facts)

    def expire(self, now_s: float) -> IntArray:
        """Return the rows whose report has expired since the last call."""
        expired = np.flatnonzero(self._expires_s <= now_s)
        fresh = self.facts[expired, StateColumn.STATUS] == ReportStatus.FRESH
        self.facts[expired, StateColumn.STATUS] = np.where(
            fresh, ReportStatus.EXPIRED, ReportStatus.EMPTY
        )
        self._expires_s[expired] = inf
        self.expired += len(expired)
        self.next_expiry_s = float(self._expires_s.min(initial=inf))
        return expired

    def _note_reported(self, old: NodeMeasurement | None, new: NodeMeasurement | None) -> None:
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

    def _set_status(
        self, rows: Sequence[int], measurements: Sequence[NodeMeasurement | None], now_s: float
    ) -> None:
        lasts_s, until_s, status = self.rules.expiration_s, [], []
        for new in measurements:
            expires_s = inf if new is None else new.updated_s + lasts_s
            has_body = new is not None and new.usage is not None
            if expires_s <= now_s:
                status.append(_EXPIRED if has_body else _EMPTY)
                expires_s = inf
            else:
                status.append(_FRESH if has_body else _UNKNOWN)
            until_s.append(expires_s)
        self.facts[rows, _STATUS] = status
        self._expires_s[rows] = until_s
        self.next_expiry_s = min(self.next_expiry_s, *until_s)

    def _weigh(self, rows: Sequence[int], pods: Iterable[Iterable[PlacedPod]]) -> None:
        """Recompute the margins of these rows."""
        rules, nothing = self.rules, self.rules.nothing
        used: list[tuple[int, ...]] = []
        knows: list[int] = []
        for row, row_pods in zip(rows, pods, strict=True):
            measured, limited, scored = self.measured[row], None, None
            if measured is not None:
                limited = measured.over(self._windows.get(row, rules.limits.window), rules)
                scored = measured.over(rules.scored, rules)
            used.append(self.sums(measured, row_pods) + (limited or nothing) + (scored or nothing))
            known = 0 if limited is None else _KNOWS_LIMITED
            knows.append(known if scored is None else known | _KNOWS_SCORED)
        weighed_rows = np.array(rows)
        facts = self.facts
        facts[weighed_rows, _CASE] = facts[weighed_rows, _CASE] & _HAS_PROD_LIMITS | knows
        amounts = np.array(used, np.int64).reshape(len(rows), USED, -1)
        kernel = weigh.compiled if self._nodes.uses_kernels else weigh.reference
        kernel(weighed_rows, amounts, self.figures, facts, self.margins)


#: By the key of the rules: equal ones share what they see.
_LOADS: defaultdict[str, Memo[ClassLoad]] = defaultdict(Memo)


def class_load(pod: PodClass, rules: LoadRules) -> ClassLoad:
    """Return the load of pods of a class by these rules."""
    return _LOADS[rules.key].of(pod, _class_load, pod, rules)


def _class_load(pod: PodClass, rules: LoadRules) -> ClassLoad:
    load = pod_load(pod.labels, pod.annotations, pod.spec, rules, pod.effective)
    unreported = load.unreported()
    return ClassLoad(load, unreported, load.measured_addends(), takes_of(unreported, load.estimate))
