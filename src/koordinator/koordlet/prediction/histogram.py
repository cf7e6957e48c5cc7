"""A histogram with exponentially growing buckets in which old samples count less and less.

Source: koordinator pkg/util/histogram (which is that of the vertical pod autoscaler):
histogram.go, decaying_histogram.go, histogram_options.go, histogram_checkpoint.go.
"""

import datetime as dt
import math
from dataclasses import dataclass, field

import msgspec
import numpy as np

from koordinator.foundation.errors import InputError

EPSILON = 1e-4  # a bucket of less weight is empty
GROWTH = 1.05  # every bucket is wider than the one before by this factor
MAX_CHECKPOINT_WEIGHT = 10_000
_MAX_EXPONENT = 100
#: Go's time zero: half-lives are counted from there.
_YEAR_ONE = dt.datetime(1, 1, 1, tzinfo=dt.UTC)
_YEAR_ONE_S = -62_135_596_800.0


@dataclass(frozen=True, slots=True)
class Buckets:
    """``first`` is the width of the first bucket, ``most`` the largest value of interest."""

    first: float
    most: float
    count: int = field(init=False)  # of buckets

    def __post_init__(self) -> None:
        last = math.ceil(math.log(self.most * (GROWTH - 1) / self.first + 1, GROWTH))
        object.__setattr__(self, "count", last + 1)

    def index(self, value: float) -> int:
        """Return the bucket of a value; the first or last one if it is outside."""
        if value < self.first:
            return 0
        found = int(math.log(value * (GROWTH - 1) / self.first + 1, GROWTH))
        return min(max(found, 0), self.count - 1)

    def start(self, index: int) -> float:
        """Return the smallest value of a bucket."""
        return self.first * (GROWTH**index - 1) / (GROWTH - 1)


CPU_BUCKETS = Buckets(first=0.025, most=1024.0)  # cores
MEMORY_BUCKETS = Buckets(first=float(5 << 20), most=float(1 << 41))  # bytes


class HistogramCheckpoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A histogram as it is stored.  The largest of the weights is 10,000."""

    reference_timestamp: dt.datetime = _YEAR_ONE  # when a sample weighs 1
    bucket_weights: dict[int, int] = {}
    total_weight: float = 0.0


class DecayingHistogram:
    """A sample of ``half_life_s`` ago counts half as much as one of now."""

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
        """Whether no sample counts any more."""
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
        """Return the upper end of the bucket in which the share of all weight is reached.

        Of the last bucket, which has no end, it is the start; 0 if nothing was added.
        """
        if self.is_empty:
            return 0.0
        sums = np.cumsum(self._weights[self._lowest : self._highest])
        index = self._lowest + int(np.searchsorted(sums, share * self._total, side="left"))
        return self._buckets.start(min(index + 1, self._buckets.count - 1))

    def checkpoint(self) -> HistogramCheckpoint:
        """Return what has to be stored; weights near zero are left out."""
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
        """Take the place of an empty histogram.

        Raises InputError for what no histogram of these buckets stores.
        """
        total = sum(checkpoint.bucket_weights.values())
        indices = checkpoint.bucket_weights
        if any(not 0 <= index < self._buckets.count for index in indices):
            raise InputError(
                f"found bucket {max(indices)}; accepted is 0..{self._buckets.count - 1}",
                path="bucketWeights",
            )
        if not 0 <= checkpoint.total_weight < math.inf or min(indices.values(), default=0) < 0:
            raise InputError(
                f"found {checkpoint.total_weight}; accepted is 0 or more", path="totalWeight"
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
        """Make a new time the one at which a sample weighs 1."""
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
