"""What is to be said to the API server, kept until somebody has the time to say it.

The agent's loop must not wait for a server: while that is gone, pods still have to be kept in
bounds.  So the loop puts jobs here, and another thread, or the caller in tests and simulation,
delivers them.  A newer job takes the place of an older one of the same name.
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
        """Have a job done; it takes the place of a waiting one of that name."""
        with self._lock:
            self._jobs[name] = job
        self._wakeup.set()

    def deliver(self, cluster: Cluster) -> int:
        """Do what is waiting now; return how many jobs failed.

        A job that fails is logged and dropped: what it had to say will be said anew.
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
                log.warning("not reported", extra={"what": name, "error": str(error)})

    def wait(self, timeout_s: float) -> bool:
        """Wait until there is a job, at most so long; return whether there is."""
        return self._wakeup.wait(timeout_s)
