"""Limit on the time that a container exceeds its CPU limit, as a token bucket.

Source: koordinator pkg/koordlet/qosmanager/plugins/cpuburst/cpu_burst.go, ``burstLimiter``.
"""

_CONSUMING_PERCENT = 100
_SAVING_PERCENT = 60
_INITIAL_SHARE = 0.5


class BurstLimiter:
    """Bucket of percent times seconds; ``chance`` in [0, 1) determines the initial tokens.

    The bucket fills in ``period_s`` without usage, and is empty after ``period_s`` of usage at
    ``percent`` of the limit.
    """

    def __init__(self, period_s: int, percent: int, now_s: float, chance: float) -> None:
        self.capacity = period_s * (percent - 100)
        self.tokens = int(self.capacity * chance * _INITIAL_SHARE)
        self._period_s = period_s
        self._updated_s = now_s

    def allows(self, usage_percent: int, now_s: float) -> bool:
        """Account the usage since the last call, in percent; return whether tokens remain."""
        elapsed_s = int(now_s - self._updated_s)
        if usage_percent >= _CONSUMING_PERCENT:
            self.tokens -= (usage_percent - 100) * elapsed_s
        elif usage_percent < _SAVING_PERCENT:
            self.tokens += (100 - usage_percent) * elapsed_s
        self.tokens = max(min(self.tokens, self.capacity), -self.capacity)
        self._updated_s = now_s
        return self.tokens > 0

    def is_expired(self, now_s: float) -> bool:
        """Return whether the bucket was not used for two periods."""
        return now_s - self._updated_s > 2 * self._period_s
