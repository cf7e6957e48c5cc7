"""Histogram with exponentially growing buckets and exponentially decaying samples.

Source: koordinator pkg/util/histogram (from the vertical pod autoscaler):
histogram.go, decaying_histogram.go, histogram_options.go, histogram_checkpoint.go.
"""

import datetime as dt
import math
from dataclasses import dataclass, field

import msgspec
import numpy as np

from koordinator.foundation.errors import InputError

EPSILON = 1e-4  # a bucket with less weight is empty
GROWTH = 1.05  # ratio of the widths of successive buckets
MAX_CHECKPOINT_WEIGHT = 10_000
_MAX_EXPONENT = 100
#: Go's zero time, the origin of half-lives.
_YEAR_ONE = dt.datetime(1, 1, 1, tzinfo=dt.UTC)
_YEAR_ONE_S = -62_135_596_800.0


@dataclass(frozen=True, slots=True)
class Buckets:
    """Bucket layout: ``first`` is the width of the first bucket, ``most`` the largest value."""

    first: float
    most: float
    count: int = field(init=False)  # of buckets

    def __post_init__(self) -> None:
        last = math.ceil(math.log(self.most * (GROWTH - 1) / self.first + 1, GROWTH))
        object.__setattr__(self, "count", last + 1)

    def index(self, value: float) -> int:
        """Return the bucket of a value; values out of range count in the first or last one."""
        if value < self.first:
            return 0
        index = int(math.log(value * (GROWTH - 1) / self.first + 1, GROWTH))
        return min(max(index, 0), self.count - 1)

    def start(self, index: int) -> float:
        """Return the lower bound of a bucket."""
        return self.first * (GROWTH**index - 1) / (GROWTH - 1)


CPU_BUCKETS = Buckets(first=0.025, most=1024.0)  # cores
MEMORY_BUCKETS = Buckets(first=float(5 << 20), most=float(1 << 41))  # bytes


class HistogramCheckpoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Stored histogram; the largest weight is 10,000."""

    reference_timestamp: dt.datetime = _YEAR_ONE  # the time at which a sample has weight 1
    bucket_weights: dict[int, int] = {}
    total_weight: float = 0.0


class DecayingHistogram:
    """Histogram in which the weight of a sample halves every ``half_life_s``."""

    __slots__ = (
        "_buckets",
        "_half_life_s",
        "_highest",
        "_lowest",
        "_reference_s",
        "_total",
        "_weights",
    )

    def __init__(self, buckets: Buckets, half_life_s: float) -> None:
        self._buckets = buckets
        self._half_life_s = half_life_s
        self._weights = np.zeros(buckets.count)
        self._total = 0.0
        self._lowest, self._highest = buckets.count - 1, 0
        self._reference_s = _YEAR_ONE_S

    @property
    def is_empty(self) -> bool:
        """Whether no bucket has weight."""
        return bool(self._weights[self._lowest] < EPSILON)

    def add(self, value: float, now_s: float) -> None:
        """Add a sample of weight 1."""
        weight = self._decay(now_s)
        index = self._buckets.index(value)
        self._weights[index] += weight
        self._total += weight
        if self._weights[index] >= EPSILON:
            self._lowest = min(self._lowest, index)
            self._highest = max(self._highest, index)

    def percentile(self, share: float) -> float:
        """Return the upper bound of the bucket in which the share of the weight is reached.

        The last bucket has no upper bound: return its lower one.  Return 0 for an empty histogram.
        """
        if self.is_empty:
            return 0.0
        sums = np.cumsum(self._weights[self._lowest : self._highest])
        index = self._lowest + int(np.searchsorted(sums, share * self._total, side="left"))
        return self._buckets.start(min(index + 1, self._buckets.count - 1))

    def checkpoint(self) -> HistogramCheckpoint:
        """Return the content to store; weights near zero are omitted."""
        most = float(self._weights.max())
        if most <= 0:
            return HistogramCheckpoint(reference_timestamp=self._reference)
        scaled = np.floor(self._weights * (MAX_CHECKPOINT_WEIGHT / most) + 0.5).astype(int)
        return HistogramCheckpoint(
            reference_timestamp=self._reference,
            bucket_weights={int(index): int(scaled[index]) for index in np.flatnonzero(scaled)},
            total_weight=self._total,
        )

    def restore(self, checkpoint: HistogramCheckpoint) -> None:
        """Load a checkpoint into this empty histogram.

        Raises InputError for a checkpoint that does not fit the buckets.
        """
        total = sum(checkpoint.bucket_weights.values())
        indices = checkpoint.bucket_weights
        if any(not 0 <= index < self._buckets.count for index in indices):
            raise InputError(
                f"must be in 0..{self._buckets.count - 1}, got {max(indices)}",
                path="bucketWeights",
            )
        if not 0 <= checkpoint.total_weight < math.inf or min(indices.values(), default=0) < 0:
            raise InputError(
                f"must be at least 0, got {checkpoint.total_weight}", path="totalWeight"
            )
        if not total:
            return
        for index, weight in indices.items():
            self._weights[index] += weight * (checkpoint.total_weight / total)
            self._lowest = min(self._lowest, index)
            self._highest = max(self._highest, index)
        self._total += checkpoint.total_weight
        since = checkpoint.reference_timestamp - _YEAR_ONE
        self._reference_s = _YEAR_ONE_S + since.total_seconds()

    @property
    def _reference(self) -> dt.datetime:
        return _YEAR_ONE + dt.timedelta(seconds=self._reference_s - _YEAR_ONE_S)

    def _decay(self, now_s: float) -> float:
        if now_s > self._reference_s + self._half_life_s * _MAX_EXPONENT:
            self._shift(now_s)
        return float(2.0 ** ((now_s - self._reference_s) / self._half_life_s))

    def _shift(self, now_s: float) -> None:
        """Move the reference time, at which a sample has weight 1, to the present."""
        halves = math.floor((now_s - _YEAR_ONE_S) / self._half_life_s + 0.5)
        reference_s = _YEAR_ONE_S + halves * self._half_life_s
        exponent = math.floor((self._reference_s - reference_s) / self._half_life_s + 0.5)
        factor = math.ldexp(1.0, exponent)
        self._weights *= factor
        self._total *= factor
        self._reference_s = reference_s
        counted = np.flatnonzero(self._weights >= EPSILON)
        last = self._buckets.count - 1
        self._lowest, self._highest = (
            (int(counted[0]), int(counted[-1])) if len(counted) else (last, 0)
        )
