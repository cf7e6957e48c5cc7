"""Nodes on which a volume is usable, as rows of the cluster.

Most volumes select nodes by one label, often one node each: those rows are looked up instead of
searched.

Source: k8s.io/component-helpers storage/volume/pv_helpers.go ``CheckNodeAffinity``.
"""

import numpy as np

from koordinator.api.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from koordinator.api.meta import LabelSelector
from koordinator.api.volume import PersistentVolume
from koordinator.foundation.arrays import IntArray
from koordinator.foundation.memo import Memo
from koordinator.scheduler.snapshot import Snapshot
from koordinator.scheduler.snapshot.selection import matches_selector

_NOWHERE = np.zeros(0, np.int64)


class Reach:
    """Rows by volume or selector for the current nodes, cached until a node changes."""

    def __init__(self, cluster: Snapshot) -> None:
        self.everywhere: IntArray = np.arange(len(cluster))
        self._whole = cluster
        self._rows: dict[NodeSelector, IntArray] = {}
        self._by_label: dict[str, dict[str, IntArray]] = {}

    def of_volume(self, volume: PersistentVolume) -> IntArray:
        """Return the rows on which the volume is usable."""
        affinity = volume.spec.node_affinity
        if affinity is None or affinity.required is None:
            return self.everywhere
        return self.of_selector(affinity.required)

    def of_topology(self, selector: LabelSelector) -> IntArray:
        """Return the rows of nodes whose labels are selected."""
        requirements = (
            *(
                NodeSelectorRequirement(key=key, operator="In", values=(value,))
                for key, value in selector.match_labels.items()
            ),
            *(
                NodeSelectorRequirement(
                    key=wanted.key, operator=wanted.operator, values=wanted.values
                )
                for wanted in selector.match_expressions
            ),
        )
        if not requirements:
            return self.everywhere
        term = NodeSelectorTerm(match_expressions=requirements)
        return self.of_selector(NodeSelector(node_selector_terms=(term,)))

    def of_selector(self, selector: NodeSelector) -> IntArray:
        """Return the rows of nodes that some term selects."""
        rows = self._rows.get(selector)
        if rows is None:
            rows = self._rows[selector] = self._find(selector)
        return rows

    def _find(self, selector: NodeSelector) -> IntArray:
        terms = selector.node_selector_terms
        if len(terms) == 1 and len(terms[0].match_expressions) == 1 and not terms[0].match_fields:
            only = terms[0].match_expressions[0]
            if only.operator == "In":
                by_value = self._with_label(only.key)
                found = [by_value[v] for v in dict.fromkeys(only.values) if v in by_value]
                return np.concatenate(found) if found else _NOWHERE
        return np.flatnonzero(matches_selector(self._whole, selector))

    def _with_label(self, key: str) -> dict[str, IntArray]:
        """Return the rows by value of a label."""
        known = self._by_label.get(key)
        if known is None:
            ids, values = self._whole.label(key)
            order = np.argsort(ids, kind="stable")
            starts = np.searchsorted(ids[order], np.arange(len(values) + 1))
            known = self._by_label[key] = {
                value: order[starts[i] : starts[i + 1]] for i, value in enumerate(values)
            }
        return known


_REACH: Memo[Reach] = Memo()


def reach(cluster: Snapshot) -> Reach:
    """Return the cached rows for the current nodes."""
    return _REACH.as_of(cluster.shared, cluster.node_version, Reach, cluster)
