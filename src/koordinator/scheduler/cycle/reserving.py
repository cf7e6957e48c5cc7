"""What a pod takes on its node besides its requests: the reserve plugins of a profile."""

import numpy as np

from koordinator.scheduler.contract import NOTHING, Holding, Profile, Refusal
from koordinator.scheduler.cycle.evaluation import wants_filter
from koordinator.scheduler.snapshot import IntArray, PodClass, Snapshot


def reserve(
    profile: Profile, snapshot: Snapshot, pod_class: PodClass, row: int
) -> Holding | tuple[str, Refusal]:
    """Ask the reserve plugins; one that does not filter the pod has nothing to hold for it.

    Returns the first plugin that refuses, and why, if one does.
    """
    holding = NOTHING
    concerned = [a for a in profile.reserve if wants_filter(a, snapshot, pod_class)]
    if concerned:
        view = snapshot[np.array([row])]
        wish: IntArray | None = None
        for active in profile.score:
            if hasattr(active.plugin, "prefer_devices"):
                wish = active.plugin.prefer_devices(view, pod_class)
        for active in concerned:
            taken = active.plugin.reserve(view, pod_class, wish)
            if isinstance(taken, Refusal):
                return active.name, taken
            holding = holding.joined(taken)
    return holding
