"""Rate limits of requests and backoff after failures."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any

import numpy as np
import pytest

from koordinator.cluster.kubernetes.background import Backoff, TokenBucket


class _Jump(selectors.DefaultSelector):
    """Nothing ever happens but that time passes, at once."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.now_s += timeout or 0.0
        return []


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run with virtual time."""
    selector = _Jump()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now_s  # type: ignore[method-assign]  # virtual
    try:
        loop.run_until_complete(work)
    finally:
        loop.close()


async def attempts(bucket: TokenBucket, count: int) -> list[float]:
    """Return when each of several callers at once gets its turn, in seconds."""
    loop = asyncio.get_running_loop()

    async def attempt() -> float:
        await bucket.take()
        return loop.time()

    return list(await asyncio.gather(*[attempt() for _ in range(count)]))


def test_a_burst_passes_and_then_the_rate_counts() -> None:
    """In the order of the calls; what isn't used is saved up to the burst."""

    async def context() -> None:
        bucket = TokenBucket(10, burst=2)
        assert await attempts(bucket, 5) == pytest.approx([0, 0, 0.1, 0.2, 0.3])
        await asyncio.sleep(100)
        start_s = asyncio.get_running_loop().time()
        later = [when_s - start_s for when_s in await attempts(bucket, 3)]
        assert later == pytest.approx([0, 0, 0.1])

    run(context())


def test_no_limit_without_a_rate() -> None:
    """A rate of None is unlimited."""

    async def context() -> None:
        bucket = TokenBucket(None, burst=1)
        assert await attempts(bucket, 100) == [0] * 100
        assert bucket.try_take()

    run(context())


def test_token_can_be_taken_without_waiting() -> None:
    """A call that must not wait takes an available token, or fails."""

    async def context() -> None:
        bucket = TokenBucket(10, burst=1)
        assert [bucket.try_take() for _ in range(2)] == [True, False]
        await asyncio.sleep(0.2)
        assert bucket.try_take()

    run(context())


def test_delays_double_up_to_the_last() -> None:
    """With up to half on top, so that clients don't come back together."""
    backoff = Backoff(1, 4, np.random.default_rng(0))
    delays = [backoff.next_s() for _ in range(5)]
    for delay_s, least_s in zip(delays, [1, 2, 4, 4, 4], strict=True):
        assert least_s <= delay_s <= 1.5 * least_s
    backoff.reset()
    assert backoff.next_s() <= 1.5
