"""What is written about gangs: why members wait before the queue, and how far PodGroups are."""

import logging
from collections.abc import Sequence

from msgspec.structs import replace

from koordinator.api.codec import merge_patch
from koordinator.api.pod import Pod
from koordinator.api.pod_group import PodGroup
from koordinator.cluster.port import Cluster
from koordinator.domain.gangs import GangBook, contradictions, status_of
from koordinator.foundation.clock import Clock, to_datetime
from koordinator.foundation.errors import ClusterError
from koordinator.scheduler.app.reporter import Reporter
from koordinator.scheduler.snapshot import ClusterState

log = logging.getLogger(__name__)

GATED = "SchedulingGated"  # the reason of the condition: room would not help, so no autoscaler acts
WRITES = 32  # of PodGroups in one step: each one is waited for


class GangReports:
    """Collects during a step what there is to tell, and tells it at the end."""

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        state: ClusterState,
        gangs: Sequence[GangBook],
        reporter: Reporter,
        *,
        enabled: bool,
    ) -> None:
        self._cluster, self._clock, self._state = cluster, clock, state
        self._gangs = gangs
        self._reporter = reporter
        self._enabled = enabled
        self._gated: dict[str, Pod] = {}
        self._complaints: dict[str, tuple[str, ...]] = {}  # gang id -> what has been logged

    def gated(self, pod: Pod) -> None:
        """Note that a pod does not enter the queue; if its gang is short, it is told so."""
        if self._enabled and self._gangs:
            self._gated[pod.key] = pod

    def told(self, pod: Pod) -> None:
        """Note that a pod knows already why it waits."""
        self._gated.pop(pod.key, None)

    @property
    def is_behind(self) -> bool:
        """Whether something is left for the next step."""
        return self._enabled and any(gangs.changed for gangs in self._gangs)

    def write(self) -> None:
        """Tell gated pods what their gangs lack, and bring PodGroups up to date."""
        gated, self._gated = self._gated, {}
        for pod in gated.values():
            for gangs in self._gangs:
                short = gangs.shortage(pod) if gangs.is_member(pod) else ""
                if short:
                    message = "; ".join((short, *contradictions(pod)))
                    self._reporter.failed(pod, message, GATED)
        left = WRITES if self._enabled else 0
        for gangs in self._gangs:
            while gangs.changed and left:
                gang_id = next(iter(gangs.changed))
                del gangs.changed[gang_id]
                left -= self._update(gangs, gang_id)
            if not self._enabled:
                gangs.changed.clear()

    def _update(self, gangs: GangBook, gang_id: str) -> int:
        """Write the status of a PodGroup if it has changed; return the number of writes."""
        gang, stored = gangs.gangs.get(gang_id), self._state.objects.get(PodGroup, gang_id)
        if gang is None or gang.terms is None:
            return 0
        complaints = gang.terms.complaints
        if complaints and self._complaints.get(gang_id) != complaints:
            self._complaints[gang_id] = complaints
            log.warning("gang ignores", extra={"gang": gang_id, "complaints": complaints})
            if stored is not None:
                self._reporter.complained(stored, "; ".join(complaints))
        if stored is None:
            return 0
        status = status_of(stored, gang, to_datetime(self._clock.now_s()))
        if status == stored.status:
            return 0
        meta = stored.metadata
        patch = merge_patch(stored, replace(stored, status=status))
        try:
            self._state.objects.put(self._cluster.patch(PodGroup, meta.name, meta.namespace, patch))
        except ClusterError as error:  # what comes next of the group is written again
            log.warning("status not written", extra={"gang": gang_id, "error": str(error)})
        return 1
