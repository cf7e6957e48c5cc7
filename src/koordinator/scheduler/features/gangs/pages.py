"""Pages of gangs under /apis/v1/plugins/Coscheduling.

Source: koordinator pkg/scheduler/plugins/coscheduling/plugin_service.go, core/gang_summary.go.
A set is a JSON object with empty values there; of the group's record only fields we keep are shown.
"""

from typing import Any

from koordinator.api.annotations.gang import GangMode
from koordinator.api.pod_groups import PodGroup
from koordinator.domain.gangs import Gang, GangCache, MemberState
from koordinator.foundation.errors import NotFoundError
from koordinator.scheduler.snapshot import ClusterState

_FROM_OBJECT, _FROM_PODS = "GangFromPodGroupCrd", "GangFromPodAnnotation"
_FROM_WORKLOAD = "GangFromWorkload"  # no counterpart in the original
_FROM_POD_GROUP = "GangFromSchedulingPodGroup"  # no counterpart in the original
_NANOSECONDS = 1_000_000_000


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
