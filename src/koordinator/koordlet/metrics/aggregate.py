"""Aggregation of samples.

Source: koordinator pkg/koordlet/metriccache/util.go, ``fieldPercentileOfMetricList``,
``fieldAvgOfMetricList``, ``fieldLastOfMetricList``.
"""

from dataclasses import dataclass

import numpy as np

from koordinator.foundation.arrays import FloatArray
from koordinator.foundation.errors import BugError


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Samples of a time window in order of time; both arrays have shape (n_samples,)."""

    times_s: FloatArray
    values: FloatArray

    @property
    def count(self) -> int:
        """Number of samples."""
        return len(self.values)

    @property
    def span_s(self) -> float:
        """Time from the first to the last sample; 0 for fewer than two."""
        return float(self.times_s[-1] - self.times_s[0]) if self.count else 0.0

    def average(self) -> float:
        """Return the mean.  Raises BugError without samples."""
        self._check_not_empty()
        return float(self.values.mean())

    def last(self) -> float:
        """Return the newest value.  Raises BugError without samples."""
        self._check_not_empty()
        return float(self.values[-1])

    def percentile(self, share: float) -> float:
        """Return the sorted sample with the 1-based number max(floor(n * share), 1).

        ``share`` is in (0, 1].  The product has single precision, as in the original: 95 % of 20
        samples is the nineteenth.  Raises BugError without samples.
        """
        self._check_not_empty()
        index = max(int(np.float32(self.count) * np.float32(share)) - 1, 0)
        return float(np.partition(self.values, index)[index])

    def _check_not_empty(self) -> None:
        if not self.count:
            raise BugError("no samples to aggregate")
