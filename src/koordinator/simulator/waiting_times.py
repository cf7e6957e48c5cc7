"""Mean and percentiles of the waiting times of pods or containers."""

from collections.abc import Sequence

import msgspec
import numpy as np


class WaitingTimes(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Virtual seconds from submission to scheduling."""

    mean_s: float
    p50_s: float
    p95_s: float
    p99_s: float


def waiting_times(waits_s: Sequence[float]) -> WaitingTimes | None:
    """Return the mean and percentiles; None for an empty sequence."""
    if not waits_s:
        return None
    p50_s, p95_s, p99_s = np.percentile(waits_s, (50, 95, 99)).tolist()
    return WaitingTimes(mean_s=float(np.mean(waits_s)), p50_s=p50_s, p95_s=p95_s, p99_s=p99_s)
