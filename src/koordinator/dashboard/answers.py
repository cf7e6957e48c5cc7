"""Answers that take long, kept for a while: the longer one took, the longer it counts."""

import threading
from collections.abc import Callable, Hashable

from koordinator.foundation.clock import Clock

LASTS_S = 1.0  # at least
TIMES_AS_LONG = 20  # as it took: so many readers cost a twentieth of the time at most
MOST_ANSWERS = 256
MOST_QUESTIONS = 2 * MOST_ANSWERS  # those without an answer among them


class AnswerCache:
    """Used by many threads; of several who ask the same at once, one works and the others wait."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: dict[Hashable, tuple[float, object]] = {}  # until when it counts
        self._working: dict[Hashable, threading.Lock] = {}

    def get(self, key: Hashable, answer: Callable[[], object]) -> object:
        """Return what is known, or else the answer, which is kept.  Raises what it does."""
        with self._lock:
            if len(self._working) >= MOST_QUESTIONS:
                self._working = {}  # who works goes on, and somebody else may work on the same
            working = self._working.setdefault(key, threading.Lock())
        with working:
            known = self._kept.get(key)
            began_s = self._clock.now_s()
            if known is not None and began_s < known[0]:
                return known[1]
            found = answer()
            took_s = self._clock.now_s() - began_s
            until_s = self._clock.now_s() + max(LASTS_S, TIMES_AS_LONG * took_s)
            with self._lock:
                if len(self._kept) >= MOST_ANSWERS:
                    self._kept.clear()
                    self._working = {key: working}
                self._kept[key] = (until_s, found)
            return found
