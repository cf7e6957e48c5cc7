"""Cache of expensive answers; the time to live grows with the time an answer took."""

import threading
from collections.abc import Callable, Hashable

from koordinator.foundation.clock import Clock

MIN_TTL_S = 1.0
TTL_FACTOR = 20  # multiple of the time an answer took; bounds the load to a twentieth of the time
MAX_ANSWERS = 256
MAX_KEYS = 2 * MAX_ANSWERS  # keys with a lock; includes keys whose answer raised


class AnswerCache:
    """Thread-safe cache; of concurrent calls with one key, one computes and the others wait."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._answers: dict[Hashable, tuple[float, object]] = {}  # expiry, answer
        self._key_locks: dict[Hashable, threading.Lock] = {}

    def get(self, key: Hashable, compute: Callable[[], object]) -> object:
        """Return the cached answer, or compute and cache it.  Raises what ``compute`` raises."""
        with self._lock:
            if len(self._key_locks) >= MAX_KEYS:
                # A call in progress keeps its lock; a new call may compute the same answer twice.
                self._key_locks = {}
            key_lock = self._key_locks.setdefault(key, threading.Lock())
        with key_lock:
            cached = self._answers.get(key)
            began_s = self._clock.now_s()
            if cached is not None and began_s < cached[0]:
                return cached[1]
            answer = compute()
            took_s = self._clock.now_s() - began_s
            until_s = self._clock.now_s() + max(MIN_TTL_S, TTL_FACTOR * took_s)
            with self._lock:
                if len(self._answers) >= MAX_ANSWERS:
                    self._answers.clear()
                    self._key_locks = {key: key_lock}
                self._answers[key] = (until_s, answer)
            return answer
