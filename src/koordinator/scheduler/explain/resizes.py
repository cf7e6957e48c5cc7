"""Text about the resize of a pod that its node has not carried out."""

from typing import Final

from koordinator.api.pod import RESIZE_PENDING, Pod
from koordinator.domain.pod_requests import pod_requests
from koordinator.domain.resized_pods import granted_requests
from koordinator.scheduler.diagnosis import spoken

_IN_PROGRESS: Final = "PodResizeInProgress"
_STATES: Final = {
    "Deferred": "waits for capacity on its node (Deferred)",
    "Infeasible": "cannot be carried out on its node (Infeasible)",
}


def pending_resize(pod: Pod) -> str:
    """Return which resize of a pod is not complete, and why; empty if there is none.

    Amounts of the whole pod are named where the node has granted other amounts than requested.
    """
    conditions = {condition.type: condition for condition in pod.status.conditions}
    pending, started = conditions.get(RESIZE_PENDING), conditions.get(_IN_PROGRESS)
    changes = _changes(pod)
    message = ""
    if pending is not None:
        state, message = _STATES.get(pending.reason, "is pending"), pending.message
    elif started is not None:
        state, message = "is in progress", started.message
    elif changes:
        state = "has not been granted by its node yet"
    else:
        return ""
    text = f"its resize{f' ({changes})' if changes else ''} {state}"
    return f"{text}: {message}" if message else text


def _changes(pod: Pod) -> str:
    requested, granted = pod_requests(pod.spec), granted_requests(pod)
    return ", ".join(
        f"{name} from {spoken(name, granted.get(name, 0))} to {spoken(name, amount)}"
        for name, amount in requested.items()
        if amount != granted.get(name, 0)
    )
