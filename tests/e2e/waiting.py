"""Waiting for what other processes do."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_POLL_S = 0.05


def eventually(probe: Callable[[], T], timeout_s: float = 30.0) -> T:
    """Return the first true answer of the probe.

    Raises AssertionError with the last answer, or what the probe raised, after ``timeout_s``.
    """
    give_up = time.monotonic() + timeout_s
    while True:
        try:
            answer = probe()
        except Exception:
            if time.monotonic() > give_up:
                raise
        else:
            if answer:
                return answer
            assert time.monotonic() <= give_up, f"after {timeout_s} s still {answer!r}"
        time.sleep(_POLL_S)
