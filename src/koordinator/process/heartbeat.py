"""Heartbeat of a component's loop, for the liveness probe.

A server thread answers even while the loop waits for a file or a lock that never comes.  So the
loop records the time of each round, and livez checks the age of the last one.
"""

import logging
import sys
import threading
import traceback
from pathlib import Path

from koordinator.foundation.clock import Clock
from koordinator.process.health import Check

DEADLINE_S = 60.0
#: A step that computes may take longer than one that waits: the first list of a large cluster, the
#: plan of a large gang.  A step that never ends still fails the probe.
COMPUTING_FACTOR = 10
_STACK = 8  # innermost calls to be logged
_NS = 1e9

log = logging.getLogger(__name__)


class Heartbeat:
    """Beats whenever a loop comes round; ``problem`` may be asked by any thread.

    The loop is taken to hang when it has not come round for ``deadline_s`` and its thread has used
    no CPU for as long; or, computing, when it has not come round for ten times as long.  The CPU is
    looked at when ``problem`` is asked, so that it may be noticed one probe later.
    """

    def __init__(self, clock: Clock, deadline_s: float = DEADLINE_S) -> None:
        self._clock = clock
        self._deadline_s = deadline_s
        self._thread = threading.get_ident()
        self._native_id = threading.get_native_id()
        self._beat_s = clock.now_s()
        self._worked_s = self._beat_s  # when the thread was seen last to have used CPU
        self._cpu_s = self._used_s()
        self._is_logged = False
        self.check = Check("loop", self.problem, is_public=True)

    def beat(self) -> None:
        """Say that the loop has come round; to be called in its thread."""
        self._thread, self._native_id = threading.get_ident(), threading.get_native_id()
        self._beat_s = self._clock.now_s()

    def problem(self) -> str:
        """Return for how long the loop has hung, empty if it doesn't; log where, once."""
        now_s, cpu_s = self._clock.now_s(), self._used_s()
        if cpu_s != self._cpu_s:
            self._cpu_s, self._worked_s = cpu_s, now_s
        silent_s = now_s - self._beat_s
        waits_s = now_s - max(self._worked_s, self._beat_s)
        longest_s = self._deadline_s * COMPUTING_FACTOR
        if waits_s <= self._deadline_s and silent_s <= longest_s:
            self._is_logged = False
            return ""
        why = "waits" if waits_s > self._deadline_s else "computes"
        accepted_s = self._deadline_s if waits_s > self._deadline_s else longest_s
        problem = (
            f"no heartbeat for {silent_s:.0f} s, the loop {why}; at most {accepted_s:g} "
            "s is allowed"
        )
        if not self._is_logged:
            self._is_logged = True
            log.error("loop hangs", extra={"problem": problem, "at": self._place()})
        return problem

    def _used_s(self) -> float:
        """Return the CPU time of the loop's thread; 0 where it can't be found out."""
        try:
            text = Path(f"/proc/self/task/{self._native_id}/schedstat").read_text("ascii")
            return int(text.split()[0]) / _NS
        except (OSError, ValueError, IndexError):
            return 0.0

    def _place(self) -> str:
        frame = sys._current_frames().get(self._thread)  # noqa: SLF001 -- made for debuggers
        if frame is None:
            return "its thread has ended"
        stack = traceback.extract_stack(frame)[-_STACK:]
        return " > ".join(f"{Path(it.filename).name}:{it.lineno} {it.name}" for it in stack)
