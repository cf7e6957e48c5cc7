"""Whether the devices of a claim are ready for its pod, or never will be.

Source: Kubernetes enhancement 5007; kubernetes
pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go ``isClaimReadyForBinding``,
``isClaimTimeout``.
"""

from koordinator.api.dynamic_resources import ResourceClaim
from koordinator.foundation.clock import to_epoch_s


def readiness(claim: ResourceClaim) -> bool | str:
    """Return whether all conditions of the claim hold, or which one says they never will."""
    allocation = claim.status.allocation
    held = {
        (one.driver, one.pool, one.device): {c.type for c in one.conditions if c.status == "True"}
        for one in claim.status.devices
    }
    is_ready = True
    for result in allocation.devices.results if allocation is not None else ():
        known = held.get((result.driver, result.pool, result.device), set())
        failed = known.intersection(result.binding_failure_conditions)
        if failed:
            device = f"{result.driver}/{result.pool}/{result.device}"
            return f"claim {claim.key}: device {device} reports {', '.join(sorted(failed))}"
        is_ready &= known.issuperset(result.binding_conditions)
    return is_ready


def why_lost(claim: ResourceClaim, now_s: float, timeout_s: float) -> str:
    """Return why nobody waits for the claim's devices any more; empty: they are or may be ready."""
    answer = readiness(claim)
    if isinstance(answer, str):
        return answer
    allocation = claim.status.allocation
    since = allocation.allocation_timestamp if allocation is not None else None
    if answer or since is None or to_epoch_s(since) + timeout_s >= now_s:
        return ""
    return f"claim {claim.key}: devices were not ready in time"
