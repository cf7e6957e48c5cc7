"""Target nodes: a pod is assigned to the first node by name that accepts it within thresholds.

An assignment reduces the headroom of the node for the next pods.
Source: koordinator pkg/descheduler/framework/plugins/loadaware/utilization_util.go,
``podFitsAnyNodeWithThreshold``.
"""

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.descheduler.contract import ClusterView
from koordinator.descheduler.node_fit import acceptance_key, accepts, has_headroom
from koordinator.descheduler.plugins.low_node_load.usage import Amounts, Mask
from koordinator.domain.pod_requests import pod_requests

_FIRST = 256  # nodes checked as a first block: most pods fit on one of them


class Targets:
    """Targets of a pool; ``usage`` and ``high`` are ``(n_nodes, n_resources)``.

    ``rows`` are the targets in the order of the checks.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        rows: NDArray[np.intp],
        usage: Amounts,
        high: Amounts,
        view: ClusterView,
    ) -> None:
        self._nodes = [nodes[row] for row in rows]
        self._rows, self._usage, self._view = rows, usage, view
        self._headroom = high[rows] - usage[rows]
        self._accepting: dict[Hashable, Mask] = {}  # by ``acceptance_key``
        self._refusing: dict[Hashable, Mask] = {}  # nodes without room, by requests

    def take(self, pod: Pod, amounts: Amounts) -> bool:
        """Assign a pod with a usage of ``(n_resources,)`` to a node; return whether one fits."""
        candidates = self._accepted(pod)
        requests = tuple(sorted(pod_requests(pod.spec).items()))
        full = self._refusing.get(requests)
        if full is None:
            full = self._refusing[requests] = np.zeros(len(self._nodes), np.bool_)
        for start, end in ((0, _FIRST), (_FIRST, len(self._nodes))):
            block = slice(start, end)
            cool = (self._headroom[block] >= amounts).all(axis=1)
            for index in np.flatnonzero(cool & candidates[block] & ~full[block]):
                place = start + int(index)
                if has_headroom(self._nodes[place], requests, self._view):
                    self._headroom[place] -= amounts
                    self._usage[self._rows[place]] += amounts
                    return True
                full[place] = True
        return False

    def _accepted(self, pod: Pod) -> Mask:
        key = acceptance_key(pod)
        known = self._accepting.get(key)
        if known is None:
            known = np.array([accepts(node, pod) for node in self._nodes], np.bool_)
            self._accepting[key] = known
        return known
