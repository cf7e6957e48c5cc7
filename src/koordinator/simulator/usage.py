"""Usage of pods relative to their requests: a daily cycle, and spikes of streams.

Usage never exceeds the request, which is the limit as well.
"""

import math
from collections.abc import Sequence

import numpy as np

from koordinator.foundation.arrays import FloatArray
from koordinator.foundation.lazy_dataclass import dataclass

_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class UsageCurve:
    """Shares of the requests, 0..1; the CPU peak is at ``peak_s`` after midnight."""

    stream: str = ""
    low: float = 1.0
    high: float = 1.0
    peak_s: float = 0.0
    memory: float = 1.0


#: Default curve: the whole request.
WHOLE = UsageCurve()


@dataclass(frozen=True, slots=True)
class Spike:
    """Spike: the pods of a stream use ``factor`` times the CPU from ``at_s`` for ``lasts_s``."""

    stream: str
    at_s: float
    lasts_s: float
    factor: float


class UsageKinds:
    """Distinct usage profiles, numbered in order of appearance: columns of the fleet's arrays."""

    def __init__(self, spikes: Sequence[Spike] = ()) -> None:
        self.kinds: list[UsageCurve] = []
        self._spikes = spikes
        self._columns: dict[UsageCurve, int] = {}

    def column(self, usage: UsageCurve) -> int:
        """Return the number of a profile; a new profile gets the next one."""
        column = self._columns.get(usage)
        if column is None:
            column = self._columns[usage] = len(self.kinds)
            self.kinds.append(usage)
        return column

    def cpu_shares(self, now_s: float) -> FloatArray:
        """Return the share of the CPU request in use at a time, ``(n_kinds,)``."""
        return np.array([self._share(usage, now_s) for usage in self.kinds], float)

    def memory_shares(self) -> FloatArray:
        """Return the share of the memory request in use, ``(n_kinds,)``."""
        return np.array([usage.memory for usage in self.kinds], float)

    def _share(self, usage: UsageCurve, now_s: float) -> float:
        swing = (1 + math.cos(2 * math.pi * (now_s - usage.peak_s) / _DAY_S)) / 2
        share = usage.low + (usage.high - usage.low) * swing
        for spike in self._spikes:
            if spike.stream == usage.stream and 0 <= now_s - spike.at_s < spike.lasts_s:
                share *= spike.factor
        return min(share, 1.0)
