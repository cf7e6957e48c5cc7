"""Long series made short enough to draw."""

import numpy as np
from numpy.typing import NDArray

from koordinator.foundation.arrays import FloatArray

RowArray = NDArray[np.int64]


def kept_rows(series: FloatArray, limit: int = 600) -> RowArray:
    """Return the rows to draw of ``series[n_series, n]``, ascending, at most ``limit``.

    The first and the last row stay, and of every stretch of rows the least and the greatest
    value of each series.  NaN is no value.  ``limit`` is at least 2 + 2 * n_series.
    """
    n_series, n = series.shape
    if n <= limit:
        return np.arange(n)
    n_stretches = (limit - 2) // (2 * n_series)
    kept = {0, n - 1}
    for rows in np.array_split(np.arange(n), n_stretches):
        for values in series[:, rows]:
            if not np.isnan(values).all():
                kept.update((int(rows[np.nanargmin(values)]), int(rows[np.nanargmax(values)])))
    return np.array(sorted(kept))
