"""Exponential backoff with jitter."""

import numpy as np


class Backoff:
    """Delays that double from ``first_s`` up to ``last_s``, each with up to 50 % jitter on top."""

    def __init__(self, first_s: float, last_s: float, chance: np.random.Generator) -> None:
        self._first_s, self._last_s = first_s, last_s
        self._chance = chance
        self._delay_s = first_s

    def next_s(self) -> float:
        """Return the next delay in seconds."""
        delay_s = self._delay_s * (1 + self._chance.random() / 2)
        self._delay_s = min(2 * self._delay_s, self._last_s)
        return delay_s

    def reset(self) -> None:
        """Start again: the last try succeeded."""
        self._delay_s = self._first_s
