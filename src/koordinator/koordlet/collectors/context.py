"""Input of the collectors, rates of counters, and lenient reads of files."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from koordinator.api.node_slo import NodeSloSpec
from koordinator.domain.cgroups.layout import CgroupLayout
from koordinator.foundation.errors import HostError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.host.port import Files, Roots
from koordinator.koordlet.cgroup_tree import CgroupTree
from koordinator.koordlet.metrics import MetricStore
from koordinator.koordlet.view.machine import Machine
from koordinator.koordlet.view.pods import PodView

_FORGOTTEN_AFTER = 20  # intervals, after which a reading is too old for a rate
_TOLERANCE = 1.5  # times all CPUs, more than clock skew can explain


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionContext:
    """Machine and node state in this round."""

    files: Files
    roots: Roots
    cgroups: CgroupTree
    store: MetricStore
    layout: CgroupLayout
    machine: Machine
    slo: NodeSloSpec
    pods: Sequence[PodView]  # bound to the node, including ended ones

    def with_pods(self, pods: Sequence[PodView]) -> "CollectionContext":
        """Return the context with only these pods; itself if that is all of them."""
        return self if len(pods) == len(self.pods) else replace(self, pods=pods)

    @property
    def active_pods(self) -> Sequence[PodView]:
        """Pods that run or may start."""
        return [pod for pod in self.pods if pod.is_active]

    def add_rate(
        self, counters: "Counters", metric_key: tuple[str, str], now_s: float, value: float
    ) -> float | None:
        """Return the rate of a counter of CPU seconds; None if it is implausible."""
        rate = counters.rate(metric_key, now_s, value)
        if rate is None or rate > _TOLERANCE * max(len(self.machine.cpus), 1):
            return None
        return rate


class Collector(Protocol):
    """Collector of samples."""

    def collect(self, context: CollectionContext, now_s: float) -> None:
        """Read the host and add samples to the store; errors of the host are not raised."""


class Counters:
    """Last readings of counters, to compute rates."""

    def __init__(self, interval_s: float) -> None:
        self._oldest_s = _FORGOTTEN_AFTER * interval_s
        self._last: dict[tuple[str, str], tuple[float, float]] = {}

    def rate(self, key: tuple[str, str], now_s: float, value: float) -> float | None:
        """Return the growth per second since the last reading.

        Return None for the first reading, after a reset of the counter, after a long pause, and if
        no time has passed.
        """
        before = self._last.get(key)
        self._last[key] = (now_s, value)
        if before is None:
            return None
        elapsed_s, growth = now_s - before[0], value - before[1]
        if not 0 < elapsed_s <= self._oldest_s or growth < 0 or not math.isfinite(growth):
            return None
        return growth / elapsed_s

    def forget(self, now_s: float) -> None:
        """Drop the readings that are too old for a rate."""
        oldest_s = now_s - self._oldest_s
        self._last = {key: last for key, last in self._last.items() if last[0] >= oldest_s}


def read_text(files: Files, path: str) -> str:
    """Return the text of a file without surrounding blanks; empty if it can't be read."""
    try:
        return files.read(path).strip()
    except HostError:
        return ""
