"""The loads of all nodes by the rules of each plugin.

A ``LoadLedger`` is created when a plugin first reads loads by its rules, and kept from then on.  A
report, a pod that is placed or removed, and the passing of time change the rows that they concern.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from koordinator.api.annotations.node import (
    RAW_ALLOCATABLE,
    USAGE_THRESHOLDS,
    CustomUsageThresholds,
)
from koordinator.api.core import ResourceList
from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node
from koordinator.api.node_metric import NodeMetric
from koordinator.api.pod import Pod
from koordinator.foundation.arrays import IntArray
from koordinator.foundation.errors import BugError, InputError
from koordinator.scheduler.rules.load.rules import LoadRules
from koordinator.scheduler.snapshot.classes import PodClass
from koordinator.scheduler.snapshot.load_ledger import LoadLedger
from koordinator.scheduler.snapshot.nodes import NodeTable
from koordinator.scheduler.snapshot.pods import PlacedPod, PodTable

_NO_ROWS: IntArray = np.zeros(0, np.int64)
_REREAD_S: Final = (
    30.0  # after which a clock that was set back is detected: half of a report interval
)


class LoadTable:
    """Reports by row, and a ledger for each set of rules.  Written by ``ClusterState`` only."""

    def __init__(self, nodes: NodeTable, pods: PodTable) -> None:
        self._nodes = nodes
        self._pods = pods
        self.now_s = 0.0  # as of when reports are looked at
        self._latest_s = 0.0  # time of the newest one since all were read again
        self.metrics: dict[int, NodeMetric] = {}  # the reports of nodes, by row
        self._reported_rows: set[int] = (
            set()
        )  # rows that have reported since a ledger was last used
        self._custom: dict[int, CustomUsageThresholds] = {}
        self._raw: dict[int, ResourceList] = {}
        self.charged: dict[str, LoadLedger] = {}  # all that pods are counted in, by their rules
        #: by row: annotations of the node that can't be read and are ignored
        self.problems: dict[int, list[InputError]] = {}

    # -- reading -----------------------------------------------------------------------------

    @property
    def ledgers(self) -> Mapping[str, LoadLedger]:
        """The existing ledgers, by key of their rules."""
        self._catch_up()
        return self.charged

    def by(self, rules: LoadRules) -> LoadLedger:
        """Return the loads by these rules.  Not to be written to."""
        if self._reported_rows:
            self._catch_up()
        ledger = self.charged.get(rules.key)
        if ledger is None:
            ledger = self.charged[rules.key] = self._derived(rules)
        return ledger

    # -- writing -----------------------------------------------------------------------------

    def grow(self) -> None:
        """Make room for as many rows as there may be nodes now."""
        for ledger in self.charged.values():
            ledger.grow()

    def advance(self, now_s: float) -> IntArray:
        """Set the time; return the rows whose report has expired, once.

        Where time goes back, reports that had expired may count again.
        """
        self.now_s = now_s
        if now_s >= self._latest_s:
            self._latest_s = now_s
        elif now_s < self._latest_s - _REREAD_S:
            self._latest_s = now_s
            if self.charged:
                self._reported_rows.update(self.metrics)
        expired = [
            ledger.expire(now_s)
            for ledger in self.charged.values()
            if ledger.next_expiry_s <= now_s
        ]
        return np.concatenate(expired) if expired else _NO_ROWS

    def set_node(self, row: int, node: Node | None) -> None:
        """Apply a node; None: it was deleted."""
        for facts in (self._custom, self._raw, self.problems):
            facts.pop(row, None)
        if node is None:
            self.report(row, None)
        elif node.metadata.annotations:
            self._read(row, node.metadata)
        for ledger in self.charged.values():
            self._put_node(ledger, row, node)

    def _read(self, row: int, meta: ObjectMeta) -> None:
        problems: list[InputError] = []
        try:
            custom = USAGE_THRESHOLDS.read(meta)
            if custom is not None:
                self._custom[row] = custom
        except InputError as problem:
            problems.append(problem)
        try:
            raw = RAW_ALLOCATABLE.read(meta)
            if raw:
                self._raw[row] = raw
        except InputError as problem:
            problems.append(problem)
        if problems:
            self.problems[row] = problems

    def report(self, row: int, metric: NodeMetric | None) -> None:
        """Store the measurements of a node."""
        if metric is None:
            self.metrics.pop(row, None)
        else:
            self.metrics[row] = metric
        if self.charged:
            self._reported_rows.add(row)

    def _catch_up(self) -> None:
        """Apply all reports at a time, which costs the ledgers less than one by one.

        The ledgers then sum up the pods of these rows again, whatever they counted there since.  So
        nothing may call this between the placement of a pod and its charge.
        """
        if self._reported_rows:
            reports = [
                (row, self.metrics.get(row), self._pods_on(row)) for row in self._reported_rows
            ]
            self._reported_rows.clear()
            for ledger in self.charged.values():
                ledger.report(reports, self.now_s)

    def _pods_on(self, row: int) -> Iterable[PlacedPod]:
        return self._pods.on_row[row].values()

    def charge(self, placed: PlacedPod, sign: int) -> None:
        """Count a pod on its row (1), or no more (-1)."""
        for ledger in self.charged.values():
            ledger.charge(placed, sign)

    def charge_all(
        self,
        pods: Sequence[PlacedPod],
        rows: IntArray,
        classes: Sequence[PodClass],
        kind: IntArray,
    ) -> None:
        """Count pods on their rows; ``kind`` are their classes, as indices of ``classes``."""
        for ledger in self.charged.values():
            if ledger.names_any([placed.key for placed in pods]):
                for placed in pods:
                    ledger.charge(placed, 1)
            else:
                ledger.charge_all(rows, classes, kind)

    def renew(self, placed: PlacedPod, pod: Pod) -> bool:
        """Replace a pod by a version with other times; return whether they matter.

        They matter where the pod was measured.  Rows with new reports are summed up again anyway.
        """
        for ledger in self.charged.values():
            if ledger.reports(placed) and placed.row not in self._reported_rows:
                break
        else:
            placed.renew(pod)
            return False
        self.charge(placed, -1)
        placed.renew(pod)
        self.charge(placed, 1)
        return True

    def validate(self) -> None:
        """Derive everything again and compare.  Raises BugError."""
        self._catch_up()
        for kept in self.charged.values():
            derived = self._derived(kept.rules)
            for name in ("figures", "facts", "margins", "measured", "reported"):
                a, b = getattr(kept, name), getattr(derived, name)
                if not (np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b):
                    raise BugError(f"loads of nodes: {name} differs from what it follows from")

    def _derived(self, rules: LoadRules) -> LoadLedger:
        ledger = LoadLedger(rules, self._nodes)
        for row, node in enumerate(self._nodes.objects):
            self._put_node(ledger, row, node)
        reports = [(row, metric, self._pods_on(row)) for row, metric in self.metrics.items()]
        if reports:
            ledger.report(reports, self.now_s)
        return ledger

    def _put_node(self, ledger: LoadLedger, row: int, node: Node | None) -> None:
        amounts = {} if node is None else node.status.allocatable
        raw = self._raw.get(row)
        if raw is not None:
            amounts = {**amounts, **raw}
        ledger.set_node(row, amounts, self._custom.get(row), self._pods_on(row))
