"""Why a pod had to go, as whoever made it go has written into its status."""

from koordinator.api.pod import DISRUPTION_TARGET, Pod


def why_disrupted(pod: Pod) -> str:
    """Return reason and message of its condition DisruptionTarget; empty without one that holds."""
    for condition in pod.status.conditions:
        if condition.type == DISRUPTION_TARGET and condition.status == "True":
            return ": ".join(filter(None, (condition.reason, condition.message)))
    return ""
