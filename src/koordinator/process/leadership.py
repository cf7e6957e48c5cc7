"""Leader election and heartbeat of a component's loop.

The elector runs in its own thread with its own cluster instance, whose requests must time out after
half the renew deadline, so that one that hangs leaves time for another.

A server thread answers even while the loop is blocked.  So the loop records the time of each round,
and livez checks the age of the last one.

Source: kubernetes cmd/kube-scheduler/app/server.go ``Run``, app/options/options.go.
"""

import logging
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

from koordinator.cluster.leader_election import LeaderElector
from koordinator.foundation.clock import Clock
from koordinator.process.health import Check

log = logging.getLogger(__name__)

DEADLINE_S = 60.0
#: A step that computes may take longer than one that waits: the first list of a large cluster, the
#: plan of a large gang.  A step that never ends still fails the probe.
COMPUTING_FACTOR = 10
_STACK = 8  # innermost calls to be logged
_NS = 1e9


def unique_identity() -> str:
    """Return the identity of an elector: the host's name and a unique suffix."""
    return f"{socket.gethostname()}_{uuid4()}"


class Leadership:
    """Keeps an elector going from ``start`` to ``stop``.

    After a loss, the process must end, or step down and use a new elector.
    ``on_lead`` is called in the thread when the process comes to lead.
    """

    def __init__(self, elector: LeaderElector, clock: Clock) -> None:
        self.on_lead: Callable[[], None] = lambda: None
        self._elector = elector
        self._clock = clock
        self._led = threading.Event()
        self._stopping = threading.Event()
        self._woken = threading.Event()
        self._releases = True
        self._leader = self._problem = ""  # as logged last
        self._thread = threading.Thread(target=self._run, name="leader-election", daemon=True)

    def start(self) -> None:
        """Become a candidate."""
        self._thread.start()

    def inherit(self, predecessor: "Leadership") -> None:
        """Adopt the lease as seen by an ended candidate of this process."""
        self._elector.inherit(predecessor._elector)  # noqa: SLF001 -- of this class

    def note_change(self) -> None:
        """Have a follower read the lease now, because it has changed; callable from any thread.

        The leader writes the lease itself, and keeps to its own times.
        """
        self._woken.set()

    def is_leader(self) -> bool:
        """Return whether this process may act now; to be called before every write."""
        return self._elector.is_leader()

    @property
    def leader(self) -> str:
        """Identity of the leader when the lease was last read; empty if there is none."""
        return self._elector.leader

    def overdue_s(self) -> float:
        """Return the seconds since its own lease expired; at most 0 if it does not lead."""
        return self._elector.overdue_s()

    @property
    def lost(self) -> bool:
        """Whether this process led and, unasked, does no longer, or a bug has ended the thread.

        Final: what comes back is a new candidate, in this process or in another.
        """
        died = self._thread.ident is not None and not self._thread.is_alive()
        return self._elector.lost or (died and not self._stopping.is_set())

    def wait_until_leading(self, timeout_s: float) -> bool:
        """Wait at most that many seconds to become leader; return whether this process may act."""
        self._led.wait(timeout_s)
        return self.is_leader()

    def stop(self, *, release: bool = True) -> None:
        """End the thread after its current request.

        ``release`` gives up the lease, so that another replica can take over immediately.
        All work of the leader must have ended.
        """
        self._releases = release
        self._stopping.set()
        self._woken.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        elector = self._elector
        log.info("waiting to lead", extra={"lease": elector.lease})
        while not self._stopping.is_set() and not elector.lost:
            if elector.attempt() and not self._led.is_set():
                log.info("leading", extra={"lease": elector.lease})
                self._led.set()
                self.on_lead()
            self._log_changes()
            event = self._stopping if self._led.is_set() else self._woken
            event.wait(max(0.0, elector.next_attempt_s - self._clock.now_s()))
            self._woken.clear()
        if elector.lost:
            log.error("leadership lost", extra={"lease": elector.lease, "leader": elector.leader})
            self._stopping.wait()
        if self._releases:
            elector.release()
            self._log_changes()

    def _log_changes(self) -> None:
        elector = self._elector
        if elector.leader != self._leader:
            self._leader = elector.leader
            log.info("leader changed", extra={"lease": elector.lease, "leader": self._leader})
        if elector.problem != self._problem:
            self._problem = elector.problem
            if self._problem:
                extra = {"lease": elector.lease, "error": self._problem}
                log.error("lease request failed", extra=extra)


class Heartbeat:
    """Beats whenever a loop comes round; ``problem`` may be called by any thread.

    The loop is taken to hang when it has not come round for ``deadline_s`` and its thread has used
    no CPU for as long; or, computing, when it has not come round for ten times as long.  The CPU is
    examined by ``problem``, which may notice it one probe later.
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
        if cpu_s and cpu_s != self._cpu_s:  # 0 once the thread has ended
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
