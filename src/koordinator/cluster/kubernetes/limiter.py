"""Rate limiter of requests: a token bucket, as in client-go's ``flowcontrol``."""

import asyncio


class TokenBucket:
    """Token bucket of ``rate_per_s`` and ``burst``; a rate of None does not limit.

    Belongs to one event loop.
    """

    def __init__(self, rate_per_s: float | None, burst: int) -> None:
        self._rate_per_s = rate_per_s
        self._burst = float(burst)
        self._tokens = float(burst)
        self._counted_s: float | None = None

    async def take(self) -> None:
        """Wait for one's turn; turns come in the order of the calls."""
        if self._rate_per_s is None:
            return
        self._refill(self._rate_per_s)
        self._tokens -= 1
        if self._tokens < 0:
            await asyncio.sleep(-self._tokens / self._rate_per_s)

    def try_take(self) -> bool:
        """Take a turn if there is one now."""
        if self._rate_per_s is None:
            return True
        self._refill(self._rate_per_s)
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def _refill(self, rate_per_s: float) -> None:
        now_s = asyncio.get_running_loop().time()
        if self._counted_s is not None:
            earned = (now_s - self._counted_s) * rate_per_s
            self._tokens = min(self._burst, self._tokens + earned)
        self._counted_s = now_s
