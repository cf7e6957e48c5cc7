"""Leading: the thread that keeps a process leader, and the fence before everything it does.

The thread has its elector to itself, and the elector a cluster instance of its own, whose requests
must time out after half the renew deadline: one that hangs then leaves time for another.
Source: kubernetes cmd/kube-scheduler/app/server.go ``Run``, app/options/options.go.
"""

import logging
import socket
import threading
from uuid import uuid4

from koordinator.cluster.leader_election import LeaderElector
from koordinator.foundation.clock import Clock

log = logging.getLogger(__name__)


def unique_identity() -> str:
    """Return what an elector is called: the host's name and something no other process has."""
    return f"{socket.gethostname()}_{uuid4()}"


class Leadership:
    """Keeps an elector going from ``start`` to ``stop``.

    Who has lost must end its process, or step down and stand again with a new elector.
    """

    def __init__(self, elector: LeaderElector, clock: Clock) -> None:
        self._elector = elector
        self._clock = clock
        self._led = threading.Event()
        self._stopping = threading.Event()
        self._releases = True
        self._leader = self._problem = ""  # as logged last
        self._thread = threading.Thread(target=self._run, name="leader-election", daemon=True)

    def start(self) -> None:
        """Become a candidate."""
        self._thread.start()

    def holds(self) -> bool:
        """Return whether this process may act now; to be asked before every write."""
        return self._elector.holds()

    @property
    def leader(self) -> str:
        """Identity of the leader when the lease was last read; empty if there is none."""
        return self._elector.leader

    def overdue_s(self) -> float:
        """Return for how many seconds the own lease has run out; at most 0 for who doesn't lead."""
        return self._elector.overdue_s()

    @property
    def lost(self) -> bool:
        """Whether this process led and, unasked, does no longer, or a bug has ended the thread.

        Final: what comes back is a new candidate, in this process or in another.
        """
        died = self._thread.ident is not None and not self._thread.is_alive()
        return self._elector.lost or (died and not self._stopping.is_set())

    def wait_until_leading(self, timeout_s: float) -> bool:
        """Wait at most so many seconds to become leader; return whether this process may act."""
        self._led.wait(timeout_s)
        return self.holds()

    def stop(self, *, release: bool = True) -> None:
        """End the thread, after the request that is under way.

        ``release`` gives up the lease, so that another replica can take over immediately.
        All work of the leader must have ended.
        """
        self._releases = release
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        elector = self._elector
        log.info("waiting to lead", extra={"lease": elector.lease})
        while not self._stopping.is_set() and not elector.lost:
            if elector.attempt() and not self._led.is_set():
                log.info("leading", extra={"lease": elector.lease})
                self._led.set()
            self._log_changes()
            self._stopping.wait(max(0.0, elector.next_attempt_s - self._clock.now_s()))
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
