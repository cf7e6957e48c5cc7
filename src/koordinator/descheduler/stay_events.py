"""Events about pods that a plugin wants to go, and that stay because the move was not proven."""

from typing import Final

from koordinator.cluster.port import Cluster
from koordinator.descheduler.evictor import MoveVerdict
from koordinator.descheduler.migration.events import event_about
from koordinator.descheduler.migration.transitions import JobAnnouncement
from koordinator.descheduler.moves import Stay
from koordinator.foundation.clock import Clock

NOT_MOVED: Final = "NotMoved"
FEWEST_S: Final = 300.0
MOST_KNOWN: Final = 1 << 14  # pods; then all are forgotten, and may be told once more


class StayEvents:
    """Tells a pod why it stays, at most once in ``again_after_s`` for one reason."""

    def __init__(self, cluster: Cluster, clock: Clock, again_after_s: float) -> None:
        self._cluster, self._clock = cluster, clock
        self._again_after_s = max(again_after_s, FEWEST_S)
        self._told_s: dict[tuple[str, str], float] = {}  # (uid, why) -> when

    def observe(self, verdict: MoveVerdict) -> None:
        """Tell the pod, unless it knows; of limits of the cycle nobody is told."""
        stay, pod, now_s = verdict.stays, verdict.pod, self._clock.now_s()
        if not isinstance(stay, Stay):
            return
        key = (pod.metadata.uid, stay.why)
        told_s = self._told_s.get(key)
        if told_s is not None and now_s - told_s < self._again_after_s:
            return
        if len(self._told_s) >= MOST_KNOWN:
            self._told_s.clear()
        self._told_s[key] = now_s
        wanted = f"; {verdict.plugin} wanted it to go: {verdict.reason}" if verdict.reason else ""
        told = JobAnnouncement(NOT_MOVED, f"{stay}{wanted}")
        self._cluster.report([event_about(pod, told, now_s)])
