"""Pods that wait for a scheduler which this process could be, and with its configuration is not."""

import logging
from collections import Counter
from collections.abc import Iterable
from typing import Final

from koordinator.api.pod import Pod
from koordinator.simulator.configurations import shipped_configuration

log = logging.getLogger(__name__)

INTERVAL_S: Final = 30.0


class UnservedPods:
    """Warns once for each scheduler name of the installed configuration that is not served."""

    def __init__(self, served: Iterable[str]) -> None:
        known = {profile.scheduler_name for profile in shipped_configuration().profiles}
        self._unserved = known - set(served)
        self._next_s = 0.0

    def look(self, waiting: Iterable[Pod], now_s: float) -> None:
        """Look through the pods without a node, but not more often than twice a minute."""
        if not self._unserved or now_s < self._next_s:
            return
        self._next_s = now_s + INTERVAL_S
        names = (pod.spec.scheduler_name for pod in waiting)
        found = Counter(name for name in names if name in self._unserved)
        for name, count in sorted(found.items()):
            self._unserved.discard(name)
            log.warning(
                "pods wait for a scheduler name that the configuration does not serve",
                extra={
                    "schedulerName": name,
                    "pods": count,
                    "remedy": "--config with a profile of that name, such as --config koordinator "
                    "for koord-scheduler",
                },
            )
