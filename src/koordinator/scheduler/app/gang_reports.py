"""What is written about gangs: why members wait before the queue, and how far PodGroups are."""

import logging
from collections.abc import Sequence
from itertools import islice

from msgspec.structs import replace

from koordinator.api.annotations.gang import QUEUE_POSITION, QUEUE_REASON
from koordinator.api.pod import Pod
from koordinator.api.pod_group import PodGroup
from koordinator.cluster.port import Cluster
from koordinator.domain.gangs import GangBook, contradictions, status_of
from koordinator.foundation.clock import Clock, to_datetime
from koordinator.scheduler.app.patches import Patches
from koordinator.scheduler.app.queue_places import QueuePlaces
from koordinator.scheduler.app.reporter import GATED, Reporter
from koordinator.scheduler.snapshot import ClusterState

log = logging.getLogger(__name__)

LOOKS = 200  # at PodGroups in one step


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
        places: QueuePlaces,
        enabled: bool,
    ) -> None:
        self._clock, self._state = clock, state
        self._patches = Patches(cluster, clock)
        self._gangs = gangs
        self._reporter = reporter
        self._places = places
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

    def next_wakeup_s(self) -> float | None:
        """Return when something may have to be written again."""
        return self._patches.next_wakeup_s()

    def write(self) -> None:
        """Tell gated pods what their gangs lack, and bring PodGroups up to date."""
        gated, self._gated = self._gated, {}
        for pod in gated.values():
            for gangs in self._gangs:
                short = gangs.shortage(pod) if gangs.is_member(pod) else ""
                if short:
                    message = "; ".join((short, *contradictions(pod)))
                    self._reporter.failed(pod, message, GATED)
        lost = self._patches.lost()
        for gangs in self._gangs:
            gangs.changed.update(dict.fromkeys(lost))
            for gang_id in list(islice(gangs.changed, LOOKS)) if self._enabled else ():
                del gangs.changed[gang_id]
                self._update(gangs, gang_id)
            if not self._enabled:
                gangs.changed.clear()

    def _update(self, gangs: GangBook, gang_id: str) -> None:
        """Have the status of a PodGroup written if it has changed."""
        gang, stored = gangs.gangs.get(gang_id), self._state.objects.get(PodGroup, gang_id)
        if gang is None or gang.terms is None or stored is None:
            self._patches.arrived(gang_id)
        if gang is None or gang.terms is None:
            return
        complaints = gang.terms.complaints
        if complaints and self._complaints.get(gang_id) != complaints:
            self._complaints[gang_id] = complaints
            log.warning("gang ignores", extra={"gang": gang_id, "complaints": complaints})
            if stored is not None:
                self._reporter.complained(stored, "; ".join(complaints))
        if stored is None:
            return
        status = status_of(stored, gang, to_datetime(self._clock.now_s()))
        new = replace(self._with_place(stored, gang.terms.group_id), status=status)
        if new == stored:
            self._patches.arrived(gang_id)
        else:
            self._patches.send(stored, new)

    def _with_place(self, stored: PodGroup, group_id: str) -> PodGroup:
        """Return the PodGroup with its place in the queue; without, if it is in none."""
        said = stored.metadata.annotations
        place = self._places.place_of(group_id)
        if place is not None:
            wanted = said | {QUEUE_POSITION: str(place[0]), QUEUE_REASON: place[1]}
        elif self._places.is_waiting(group_id):
            return stored  # it has not been told yet
        else:
            wanted = {k: v for k, v in said.items() if k not in (QUEUE_POSITION, QUEUE_REASON)}
        if wanted == said:
            return stored
        return replace(stored, metadata=replace(stored.metadata, annotations=wanted))
