"""What is written about gangs: why members wait before the queue, and how far PodGroups are."""

import logging
from collections.abc import Sequence
from itertools import islice
from typing import Protocol

from msgspec.structs import replace

from koordinator.api.annotations.gang import GROUPS, QUEUE_POSITION, QUEUE_REASON
from koordinator.api.pod import Pod
from koordinator.api.pod_group import PodGroup
from koordinator.cluster.port import Cluster
from koordinator.domain.gangs import Gang, GangCache, contradictions, status_of
from koordinator.foundation.clock import Clock, to_datetime
from koordinator.scheduler.loop.patches import Patches
from koordinator.scheduler.loop.reporter import GATED, Reporter
from koordinator.scheduler.snapshot import ClusterState

log = logging.getLogger(__name__)

PATIENCE_S = 30.0  # with gangs that others name and that are not there yet
LOOKS = 200  # at PodGroups in one step
SPARE = 16  # gangs to be looked at that may have gone


class JobPlaces(Protocol):
    """Where jobs stand in the queues of their quotas."""

    def place_of(self, job_id: str) -> tuple[int, str] | None:
        """Return the place and the reason that a job has been told last."""
        ...

    def is_waiting(self, job_id: str) -> bool:
        """Return whether a job is in a queue."""
        ...


class NoPlaces:
    """Without quotas that have queues no job stands anywhere."""

    def place_of(self, _job_id: str) -> None:
        """Return None."""
        return

    def is_waiting(self, _job_id: str) -> bool:
        """Return False."""
        return False


class GangReports:
    """Collects during a step what there is to tell, and tells it at the end."""

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        state: ClusterState,
        gangs: Sequence[GangCache],
        reporter: Reporter,
        *,
        places: JobPlaces,
        enabled: bool,
    ) -> None:
        self._clock, self._state = clock, state
        self._patches = Patches(cluster, clock)
        self._gangs = gangs
        self._reporter = reporter
        self._places = places
        self._enabled = enabled
        self._gated: dict[str, Pod] = {}
        self._contradictions: dict[str, tuple[str, ...]] = {}  # by pod
        self._contradicting: dict[str, Pod] = {}  # of these, those to be told
        self._missing: dict[str, float] = {}  # gangs that name others in vain -> when to say so
        self._in_vain: dict[str, str] = {}  # gangs of which it has been said, and what
        self._warnings: dict[str, tuple[str, ...]] = {}  # gang id -> what has been logged

    def gated(self, pod: Pod) -> None:
        """Note that a pod does not enter the queue; if its gang is short, it is told so."""
        if self._enabled and self._gangs:
            self._gated[pod.key] = pod

    def seen(self, pod: Pod) -> None:
        """Note a pod that wants to enter the queue: what it says twice and differently is told."""
        if not self._enabled:
            return
        said = next(
            (contradictions(pod, gangs.refs) for gangs in self._gangs if gangs.is_member(pod)), ()
        )
        if said and self._contradictions.get(pod.key) != said:
            self._contradictions[pod.key] = said
            self._contradicting[pod.key] = pod

    def gone(self, key: str) -> None:
        """Forget a pod."""
        self._gated.pop(key, None)
        self._contradictions.pop(key, None)
        self._contradicting.pop(key, None)

    def told(self, pod: Pod) -> None:
        """Note that a pod knows already why it waits."""
        self._gated.pop(pod.key, None)

    @property
    def is_behind(self) -> bool:
        """Whether something is left for the next step."""
        return self._enabled and any(gangs.changed for gangs in self._gangs)

    def next_wakeup_s(self) -> float | None:
        """Return when something may have to be written again."""
        times = [*self._missing.values()]
        if (again_s := self._patches.next_wakeup_s()) is not None:
            times.append(again_s)
        return min(times, default=None)

    def follow(self) -> None:
        """Forget gangs that have gone, once they are most of those to be looked at."""
        for gangs in self._gangs:
            if len(gangs.changed) > 2 * len(gangs.gangs) + SPARE:
                for gang_id in [one for one in gangs.changed if one not in gangs.gangs]:
                    del gangs.changed[gang_id]

    def write(self, now_s: float) -> None:
        """Report to gated pods what their gangs lack, and bring PodGroups up to date."""
        gated, self._gated = self._gated, {}
        for pod in gated.values():
            for gangs in self._gangs:
                short = gangs.shortage(pod) if gangs.is_member(pod) else ""
                if short:
                    message = "; ".join((short, *contradictions(pod, gangs.refs)))
                    self._reporter.failed(pod, message, GATED)
        for pod in self._contradicting.values():
            self._reporter.complained(pod, "; ".join(self._contradictions[pod.key]))
        self._contradicting.clear()
        if self._missing:
            self._complain_of_missing(now_s)
        lost = self._patches.lost(now_s)
        for gangs in self._gangs:
            gangs.changed.update(dict.fromkeys(lost))
            for gang_id in list(islice(gangs.changed, LOOKS)) if self._enabled else ():
                del gangs.changed[gang_id]
                self._update(gangs, gang_id)
            if not self._enabled:
                gangs.changed.clear()

    def _update(self, gangs: GangCache, gang_id: str) -> None:
        """Have the status of a PodGroup written if it has changed."""
        gang, stored = gangs.gangs.get(gang_id), self._state.objects.get(PodGroup, gang_id)
        if gang is None or gang.terms is None or stored is None:
            self._patches.arrived(gang_id)
        if gang is None:
            for told in (self._missing, self._in_vain, self._warnings):
                told.pop(gang_id, None)
        if gang is None or gang.terms is None:
            return
        self._note_missing(gangs, gang)
        in_vain = filter(None, [self._in_vain.get(gang.id)])
        self._complain(gang, stored, (*gang.terms.warnings, *in_vain))
        if stored is None:
            return
        status = status_of(stored, gang, to_datetime(self._clock.now_s()))
        new = replace(self._with_place(stored, gang.terms.group_id), status=status)
        if new == stored:
            self._patches.arrived(gang_id)
        else:
            self._patches.send(stored, new)

    def _complain(self, gang: Gang, stored: PodGroup | None, warnings: tuple[str, ...]) -> None:
        """Tell once what of a gang is ignored: at its PodGroup, or else at one of its pods."""
        if stored is not None:
            self._reporter.judged(stored, "; ".join(warnings))
        if self._warnings.get(gang.id, ()) == warnings:
            return
        self._warnings[gang.id] = warnings
        if not warnings:
            return
        log.warning("gang ignores", extra={"gang": gang.id, "complaints": warnings})
        about = stored or self._member(gang)
        if about is not None:
            self._reporter.complained(about, "; ".join(warnings))

    def _member(self, gang: Gang) -> Pod | None:
        for key in gang.members:
            if (unbound := self._state.unbound.get(key)) is not None:
                return unbound[0]
            if (placed := self._state.pods.by_key.get(key)) is not None:
                return placed.pod
        return None

    def _note_missing(self, gangs: GangCache, gang: Gang) -> None:
        """Note since when a gang names others that nobody knows."""
        if _missing(gangs, gang):
            if gang.id not in self._in_vain:
                self._missing.setdefault(gang.id, self._clock.now_s() + PATIENCE_S)
        else:
            self._missing.pop(gang.id, None)
            self._in_vain.pop(gang.id, None)

    def _complain_of_missing(self, now_s: float) -> None:
        """Tell gangs whose partners have not come for a while.

        They come one after the other: at first nothing is wrong with that.
        """
        for gang_id in [one for one, due_s in self._missing.items() if due_s <= now_s]:
            del self._missing[gang_id]
            for gangs in self._gangs[:1]:
                gang = gangs.gangs.get(gang_id)
                names = _missing(gangs, gang) if gang is not None else ()
                if gang is not None and names:
                    stored = self._state.objects.get(PodGroup, gang_id)
                    until = "until all of the group are there none of it starts"
                    text = f"{GROUPS.key}: {', '.join(names)} found nowhere; {until}"
                    self._in_vain[gang_id] = text
                    warnings = gang.terms.warnings if gang.terms is not None else ()
                    self._complain(gang, stored, (*warnings, text))

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


def _missing(gangs: GangCache, gang: Gang) -> tuple[str, ...]:
    """Return the gangs of a group that nobody has said anything of."""
    if gang.terms is None or len(gang.terms.group) == 1:
        return ()
    known = gangs.gangs
    return tuple(one for one in gang.terms.group if one not in known or known[one].terms is None)
