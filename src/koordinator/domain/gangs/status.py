"""Status of a PodGroup object.

Source: koordinator pkg/scheduler/plugins/coscheduling/controller/podgroup.go ``syncHandler``.
"""

import datetime as dt

from msgspec.structs import replace

from koordinator.api.pod_group import PodGroup, PodGroupPhase, PodGroupStatus
from koordinator.domain.gangs.gang import Gang

_DONE = (PodGroupPhase.FINISHED, PodGroupPhase.FAILED)
_FORGOTTEN_AFTER = dt.timedelta(hours=48)


def status_of(pod_group: PodGroup, gang: Gang, now: dt.datetime) -> PodGroupStatus:
    """Return the status; equal to the current one when no write is needed."""
    status = pod_group.status
    if status.phase in _DONE or _is_forgotten(pod_group, gang):
        return status
    least = max(pod_group.spec.min_member, 1)
    if not status.phase:
        status = replace(status, phase=PodGroupPhase.PENDING)
    if status.phase == PodGroupPhase.PENDING:
        if len(gang.members) < least:
            return status
        owners = next(iter(gang.members.values())).owners
        return replace(
            status,
            phase=PodGroupPhase.PRE_SCHEDULING,
            occupied_by=owners or status.occupied_by,
        )
    if not gang.members:
        return replace(status, phase=PodGroupPhase.PENDING)
    return _counted(status, gang, least, now)


def _counted(status: PodGroupStatus, gang: Gang, least: int, now: dt.datetime) -> PodGroupStatus:
    running, succeeded = gang.phases["Running"], gang.phases["Succeeded"]
    failed, scheduled = gang.phases["Failed"], gang.bound
    start = status.schedule_start_time
    if scheduled < least:
        phase, start = PodGroupPhase.SCHEDULING, start or now
    elif succeeded >= least:
        phase = PodGroupPhase.FINISHED
    elif failed and failed + running + succeeded >= least:
        phase = PodGroupPhase.FAILED
    elif succeeded + running >= least:
        phase = PodGroupPhase.RUNNING
    else:
        phase = PodGroupPhase.SCHEDULED
    return replace(
        status,
        phase=phase,
        scheduled=scheduled,
        running=running,
        succeeded=succeeded,
        failed=failed,
        schedule_start_time=start,
    )


def _is_forgotten(pod_group: PodGroup, gang: Gang) -> bool:
    """Return whether a group has been stuck for so long that its status is frozen."""
    created, start = pod_group.metadata.creation_timestamp, pod_group.status.schedule_start_time
    return (
        created is not None
        and start is not None
        and start - created > _FORGOTTEN_AFTER
        and gang.bound == pod_group.spec.min_member
        and gang.phases["Running"] == 0
    )
