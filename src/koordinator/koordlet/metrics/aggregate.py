"""One number of many samples.

Source: koordinator pkg/koordlet/metriccache/util.go, ``fieldPercentileOfMetricList``,
``fieldAvgOfMetricList``, ``fieldLastOfMetricList``.
"""

from dataclasses import dataclass

import numpy as np

from koordinator.foundation.arrays import FloatArray
from koordinator.foundation.errors import BugError


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Samples of a time window, in order of time; both arrays are (n_samples,)."""

    times_s: FloatArray
    values: FloatArray

    @property
    def count(self) -> int:
        """The number of samples."""
        return len(self.values)

    @property
    def span_s(self) -> float:
        """From the first to the last sample; 0 for fewer than two."""
        return float(self.times_s[-1] - self.times_s[0]) if self.count else 0.0

    def average(self) -> float:
        """Return the mean.  Raises BugError without samples."""
        self._refuse_empty()
        return float(self.values.mean())

    def last(self) -> float:
        """Return the newest.  Raises BugError without samples."""
        self._refuse_empty()
        return float(self.values[-1])

    def percentile(self, share: float) -> float:
        """Return sample number floor(n * share) of the sorted ones, counted from 1, at least 1.

        ``share`` is in (0, 1].  The product has single precision, as in the original: 95 % of 20
        samples is the nineteenth.  Raises BugError without samples.
        """
        self._refuse_empty()
        index = max(int(np.float32(self.count) * np.float32(share)) - 1, 0)
        return float(np.partition(self.values, index)[index])

    def _refuse_empty(self) -> None:
        if not self.count:
            raise BugError("a number is asked of no samples")
