"""Reports about gangs: events for gated members, PodGroup statuses, and the pages of gangs.

Source: koordinator pkg/scheduler/plugins/coscheduling/plugin_service.go, core/gang_summary.go.
A set is a JSON object with empty values there; of the group's record only fields we keep are shown.
"""

import logging
from collections.abc import Sequence
from itertools import islice
from typing import Any, Protocol

from msgspec.structs import replace

from koordinator.api.annotations.gang import GROUPS, QUEUE_POSITION, QUEUE_REASON, GangMode
from koordinator.api.pod import Pod
from koordinator.api.pod_groups import PodGroup
from koordinator.cluster.port import Cluster
from koordinator.domain.gangs import Gang, GangCache, MemberState, contradictions, status_of
from koordinator.foundation.clock import Clock, to_datetime
from koordinator.foundation.errors import NotFoundError
from koordinator.scheduler.loop.reporter import GATED, Patches, Reporter
from koordinator.scheduler.snapshot import ClusterState

log = logging.getLogger(__name__)

GRACE_PERIOD_S = 30.0  # before a missing gang of a group is reported
MOST_UPDATES = 200  # PodGroups per step
SPARE = 16  # changed gangs that may be deleted ones

_FROM_OBJECT, _FROM_PODS = "GangFromPodGroupCrd", "GangFromPodAnnotation"
_FROM_WORKLOAD = "GangFromWorkload"  # no counterpart in the original
_FROM_POD_GROUP = "GangFromSchedulingPodGroup"  # no counterpart in the original
_NANOSECONDS = 1_000_000_000


class JobPlaces(Protocol):
    """Positions of jobs in the queues of their quotas."""

    def place_of(self, job_id: str) -> tuple[int, str] | None:
        """Return the position and reason last reported for a job."""
        ...

    def is_waiting(self, job_id: str) -> bool:
        """Return whether a job is in a queue."""
        ...


class NoPlaces:
    """Positions without job queues."""

    def place_of(self, _job_id: str) -> None:
        """Return None."""
        return

    def is_waiting(self, _job_id: str) -> bool:
        """Return False."""
        return False


class GangReports:
    """Collector of reports about gangs; ``write`` sends them once per step."""

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
        self._contradicting: dict[str, Pod] = {}  # pods whose contradictions are not reported yet
        self._missing: dict[str, float] = {}  # report time by gang with missing partners
        self._missing_texts: dict[str, str] = {}  # reported text by gang with missing partners
        self._warnings: dict[str, tuple[str, ...]] = {}  # logged warnings by gang

    def note_gated(self, pod: Pod) -> None:
        """Record a gated pod, to report an incomplete gang."""
        if self._enabled and self._gangs:
            self._gated[pod.key] = pod

    def check(self, pod: Pod) -> None:
        """Check a pod at the gate for contradictory labels and annotations, to report them."""
        if not self._enabled:
            return
        contradiction = next(
            (contradictions(pod, gangs.refs) for gangs in self._gangs if gangs.is_member(pod)), ()
        )
        if contradiction and self._contradictions.get(pod.key) != contradiction:
            self._contradictions[pod.key] = contradiction
            self._contradicting[pod.key] = pod

    def forget(self, key: str) -> None:
        """Drop pending reports about a pod."""
        self._gated.pop(key, None)
        self._contradictions.pop(key, None)
        self._contradicting.pop(key, None)

    def mark_reported(self, pod: Pod) -> None:
        """Record that the reason of a pod has been reported otherwise."""
        self._gated.pop(pod.key, None)

    @property
    def is_behind(self) -> bool:
        """Whether PodGroups are left for the next step."""
        return self._enabled and any(gangs.changed for gangs in self._gangs)

    def next_wakeup_s(self) -> float | None:
        """Return when the next report or retry is due."""
        times = [*self._missing.values()]
        if (again_s := self._patches.next_wakeup_s()) is not None:
            times.append(again_s)
        return min(times, default=None)

    def follow(self) -> None:
        """Drop deleted gangs from the changed ones once they may be the majority."""
        for gangs in self._gangs:
            if len(gangs.changed) > 2 * len(gangs.gangs) + SPARE:
                for gang_id in [one for one in gangs.changed if one not in gangs.gangs]:
                    del gangs.changed[gang_id]

    def write(self, now_s: float) -> None:
        """Report incomplete gangs to gated pods, and update PodGroups."""
        gated, self._gated = self._gated, {}
        for pod in gated.values():
            for gangs in self._gangs:
                short = gangs.shortage(pod) if gangs.is_member(pod) else ""
                if short:
                    message = "; ".join((short, *contradictions(pod, gangs.refs)))
                    self._reporter.report_unschedulable(pod, message, GATED)
        for pod in self._contradicting.values():
            self._reporter.warn_once(pod, "; ".join(self._contradictions[pod.key]))
        self._contradicting.clear()
        if self._missing:
            self._report_missing(now_s)
        lost = self._patches.overdue(now_s)
        for gangs in self._gangs:
            gangs.changed.update(dict.fromkeys(lost))
            for gang_id in list(islice(gangs.changed, MOST_UPDATES)) if self._enabled else ():
                del gangs.changed[gang_id]
                self._update(gangs, gang_id)
            if not self._enabled:
                gangs.changed.clear()

    def _update(self, gangs: GangCache, gang_id: str) -> None:
        """Write the status of a PodGroup if it changed."""
        gang, stored = gangs.gangs.get(gang_id), self._state.objects.get(PodGroup, gang_id)
        if gang is None or gang.terms is None or stored is None:
            self._patches.confirm(gang_id)
        if gang is None:
            for table in (self._missing, self._missing_texts, self._warnings):
                table.pop(gang_id, None)
        if gang is None or gang.terms is None:
            return
        self._note_missing(gangs, gang)
        missing = filter(None, [self._missing_texts.get(gang.id)])
        self._warn(gang, stored, (*gang.terms.warnings, *missing))
        if stored is None:
            return
        status = status_of(stored, gang, to_datetime(self._clock.now_s()))
        new = replace(self._with_place(stored, gang.terms.group_id), status=status)
        if new == stored:
            self._patches.confirm(gang_id)
        else:
            self._patches.send(stored, new)

    def _warn(self, gang: Gang, stored: PodGroup | None, warnings: tuple[str, ...]) -> None:
        """Report ignored settings of a gang once: on its PodGroup, else on one of its pods."""
        if stored is not None:
            self._reporter.write_validity(stored, "; ".join(warnings))
        if self._warnings.get(gang.id, ()) == warnings:
            return
        self._warnings[gang.id] = warnings
        if not warnings:
            return
        log.warning("gang ignores", extra={"gang": gang.id, "complaints": warnings})
        about = stored or self._member(gang)
        if about is not None:
            self._reporter.warn_once(about, "; ".join(warnings))

    def _member(self, gang: Gang) -> Pod | None:
        for key in gang.members:
            if (unbound := self._state.unbound.get(key)) is not None:
                return unbound[0]
            if (placed := self._state.pods.by_key.get(key)) is not None:
                return placed.pod
        return None

    def _note_missing(self, gangs: GangCache, gang: Gang) -> None:
        """Schedule or cancel the report of a gang whose partners are unknown."""
        if _missing(gangs, gang):
            if gang.id not in self._missing_texts:
                self._missing.setdefault(gang.id, self._clock.now_s() + GRACE_PERIOD_S)
        else:
            self._missing.pop(gang.id, None)
            self._missing_texts.pop(gang.id, None)

    def _report_missing(self, now_s: float) -> None:
        """Report partners that have not appeared within the grace period.

        Gangs of a group are created one after the other, so a missing one is normal at first.
        """
        for gang_id in [one for one, due_s in self._missing.items() if due_s <= now_s]:
            del self._missing[gang_id]
            for gangs in self._gangs[:1]:
                gang = gangs.gangs.get(gang_id)
                names = _missing(gangs, gang) if gang is not None else ()
                if gang is not None and names:
                    stored = self._state.objects.get(PodGroup, gang_id)
                    until = "no gang of the group starts before all of them exist"
                    text = f"{GROUPS.key}: no gang named {', '.join(names)} exists; {until}"
                    self._missing_texts[gang_id] = text
                    warnings = gang.terms.warnings if gang.terms is not None else ()
                    self._warn(gang, stored, (*warnings, text))

    def _with_place(self, stored: PodGroup, group_id: str) -> PodGroup:
        """Return the PodGroup with its queue position; without one if it is in no queue."""
        current = stored.metadata.annotations
        place = self._places.place_of(group_id)
        if place is not None:
            wanted = current | {QUEUE_POSITION: str(place[0]), QUEUE_REASON: place[1]}
        elif self._places.is_waiting(group_id):
            return stored  # its position is not reported yet
        else:
            wanted = {k: v for k, v in current.items() if k not in (QUEUE_POSITION, QUEUE_REASON)}
        if wanted == current:
            return stored
        return replace(stored, metadata=replace(stored.metadata, annotations=wanted))


def _missing(gangs: GangCache, gang: Gang) -> tuple[str, ...]:
    """Return the gangs of a group that are unknown or have no terms."""
    if gang.terms is None or len(gang.terms.group) == 1:
        return ()
    known = gangs.gangs
    return tuple(one for one in gang.terms.group if one not in known or known[one].terms is None)


def gang_page(gangs: GangCache, state: ClusterState, namespace: str, name: str) -> dict[str, Any]:
    """Return one gang.  Raises NotFoundError."""
    gang = gangs.gangs.get(f"{namespace}/{name}")
    if gang is None:
        raise NotFoundError(f"cannot find gang {namespace}/{name}")
    return _summary(gangs, gang, state)


def gangs_page(gangs: GangCache, state: ClusterState) -> dict[str, Any]:
    """Return all gangs by ``namespace/name``."""
    return {name: _summary(gangs, gangs.gangs[name], state) for name in sorted(gangs.gangs)}


def _summary(gangs: GangCache, gang: Gang, state: ClusterState) -> dict[str, Any]:
    terms = gang.terms
    group = terms.group if terms else (gang.id,)
    group_id = ",".join(group)
    known = [gangs.gangs[one] for one in group if one in gangs.gangs]
    has_started = any(one.bound for one in known)
    waiting = [one.id for one in known if one.waiting]
    binding: dict[str, dict[str, str]] = {
        key: {} for one in known for key in _members(one, MemberState.WAITING)
    }
    return {
        "name": gang.id,
        "waitTime": int(terms.wait_s * _NANOSECONDS) if terms else 0,
        "createTime": _created(gang, state),
        "mode": terms.mode if terms else GangMode.STRICT,
        "gangMatchPolicy": terms.match_policy if terms else "",
        "minRequiredNumber": terms.min_member if terms else 0,
        "totalChildrenNum": terms.total if terms else 0,
        "gangGroup": list(group),
        "children": {key: {} for key in sorted(gang.members)},
        "pendingChildren": _members(gang, MemberState.PENDING, MemberState.BLOCKED),
        "waitingForBindChildren": _members(gang, MemberState.WAITING),
        "boundChildren": _members(gang, MemberState.BOUND),
        "onceResourceSatisfied": has_started,
        "gangFrom": _source_of(gang),
        "hasGangInit": terms is not None,
        "gangGroupInfo": {
            "Initialized": terms is not None,
            "GangGroupId": group_id,
            "GangGroup": list(group),
            "OnceResourceSatisfied": has_started,
            "WaitingGangIDs": {one: {} for one in waiting},
            "RepresentativePodKey": gangs.representative(group_id),
            "BindingMemberPods": binding,
        },
    }


def _source_of(gang: Gang) -> str:
    if gang.pod_group:
        return _FROM_POD_GROUP
    if gang.workload:
        return _FROM_WORKLOAD
    return _FROM_OBJECT if gang.terms and gang.terms.has_object else _FROM_PODS


def _members(gang: Gang, *states: MemberState) -> dict[str, dict[str, str]]:
    return {key: {} for key, member in sorted(gang.members.items()) if member.state in states}


def _created(gang: Gang, state: ClusterState) -> str | None:
    """Return the creation time of the PodGroup or of the first member; None if unknown."""
    group = state.objects.get(PodGroup, gang.id)
    metas = [group.metadata] if group is not None else []
    for key in gang.members if group is None else ():
        if (placed := state.pods.by_key.get(key)) is not None:
            metas.append(placed.pod.metadata)
        elif (unbound := state.unbound.get(key)) is not None:
            metas.append(unbound[0].metadata)
    times = [m.creation_timestamp for m in metas if m.creation_timestamp is not None]
    return min(times).isoformat().replace("+00:00", "Z") if times else None
