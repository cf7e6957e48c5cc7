"""What every plugin that keeps gangs says of a member: whether it may be tried, and may start."""

from koordinator.api.pod import Pod
from koordinator.domain.gangs import GangCache
from koordinator.scheduler.contract import Permit, Refusal


def gang_gate(gangs: GangCache, pod: Pod) -> Refusal | None:
    """Return what the pod's gang lacks, or who speaks for it; None: the pod may be tried."""
    why = gangs.why_gated(pod) if gangs.id_of(pod) else ""
    return Refusal(why) if why else None


def gang_permit(gangs: GangCache, pod: Pod) -> Permit:
    """Let a pod go that is in no gang, or in one of which enough members have their places."""
    if not gangs.id_of(pod):
        return Permit()
    gang = gangs.gang_of(pod)
    if gang is None or gang.terms is None:
        return Permit(refusal=Refusal("Gang not found"))
    return Permit() if gangs.may_start(pod) else Permit(wait_s=gang.terms.wait_s)
