"""What is known of NUMA nodes from the time when a pod's nodes were compared."""

import numpy as np

from koordinator.foundation.arrays import IntArray
from koordinator.scheduler.snapshot import Snapshot


class KnownZones:
    """From which NUMA nodes a kind of pod would get what it takes, by row, as last worked out."""

    def __init__(self) -> None:
        self._version: object = None
        self._zones = np.zeros(0, np.int64)  # (capacity,); -1: from none
        self._since = np.zeros(0, np.int64)  # (capacity,): the position at which this was so

    def put(self, view: Snapshot, version: object, zones: IntArray) -> None:
        """Remember what was found on the rows of a view: masks, -1 where there are none."""
        capacity = len(view.numa.policy)
        if version != self._version or capacity != len(self._zones):
            self._version = version
            self._zones, self._since = np.zeros(capacity, np.int64), np.full(capacity, -1)
        rows = view.row_numbers
        self._zones[rows] = zones
        self._since[rows] = view.position

    def at(self, view: Snapshot, version: object, row: int) -> int | None:
        """Return the NUMA nodes on a row (of the cluster); None: not known, or from none."""
        if version != self._version or row >= len(self._zones):
            return None
        zones = int(self._zones[row])
        return zones if zones >= 0 and self._since[row] >= view.changed_at(row) else None
