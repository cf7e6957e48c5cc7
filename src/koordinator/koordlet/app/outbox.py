"""Queue of writes to the API server, delivered outside of the agent's loop.

The loop must not wait for a server: during an outage, pods must still be kept within their limits.
The loop queues jobs, and another thread (or the caller in tests and simulations) delivers them.  A
newer job replaces an older one of the same name.
"""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable

from koordinator.cluster.port import Cluster
from koordinator.foundation.errors import ClusterError

log = logging.getLogger(__name__)

Job = Callable[[Cluster], None]


class Outbox:
    """Jobs by name, the oldest first."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._lock = threading.Lock()
        self._wakeup = threading.Event()

    def put(self, name: str, job: Job) -> None:
        """Queue a job; it replaces a queued job of the same name."""
        with self._lock:
            self._jobs[name] = job
        self._wakeup.set()

    def deliver(self, cluster: Cluster) -> int:
        """Run the queued jobs; return the number of failures.

        A failed job is logged and dropped; the next round of the loop queues its content again.
        """
        failed = 0
        while True:
            with self._lock:
                if not self._jobs:
                    self._wakeup.clear()
                    return failed
                name, job = self._jobs.popitem(last=False)
            try:
                job(cluster)
            except ClusterError as error:
                failed += 1
                log.warning("report not delivered", extra={"what": name, "error": str(error)})

    def wait(self, timeout_s: float) -> bool:
        """Wait until a job is queued, at most ``timeout_s``; return whether one is."""
        return self._wakeup.wait(timeout_s)
