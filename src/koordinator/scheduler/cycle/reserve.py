"""What a pod takes on its node besides its requests: the reserve plugins of a profile."""

import numpy as np

from koordinator.foundation.arrays import IntArray
from koordinator.scheduler.contract import NOTHING, AllocationResult, Profile, Refusal
from koordinator.scheduler.snapshot import PodClass, Snapshot

ReserveRefusal = tuple[str, Refusal]  # the plugin that refuses, and why


def reserve(
    profile: Profile, snapshot: Snapshot, pod_class: PodClass, row: int
) -> AllocationResult | ReserveRefusal:
    """Ask the reserve plugins; one that does not filter the pod has nothing to hold for it.

    Returns the first plugin that refuses, and why, if one does.
    """
    if snapshot.restorable is not None:
        return _reserve_lent(profile, snapshot[np.array([row])], pod_class)
    return _hold(profile, snapshot, pod_class, row)


def _reserve_lent(
    profile: Profile, view: Snapshot, pod_class: PodClass
) -> AllocationResult | ReserveRefusal:
    """Reserve what a pod with restorable holds takes.

    Parts of the node come from the nominated reservation: all of them if it has enough, else those
    that it has and others besides.
    """
    active = profile.reservation_plugins[0]
    nomination = active.plugin.nominate(view, pod_class)
    if isinstance(nomination, Refusal):
        return active.name, nomination
    hold = nomination.uses
    if hold is not None and hold.has_parts:
        with view.restoring_only(hold, restricted=True):
            allocation = _hold(profile, view.nominating(hold), pod_class)
        if isinstance(allocation, AllocationResult) or hold.offer.is_restricted:
            return allocation
    view = view.nominating(hold, nomination.first)
    parted = [each for each in nomination.restored if each.has_parts]
    if not parted:
        return _hold(profile, view, pod_class)
    with view.restoring_only(*parted):
        return _hold(profile, view, pod_class)


def _hold(
    profile: Profile, snapshot: Snapshot, pod_class: PodClass, row: int | None = None
) -> AllocationResult | ReserveRefusal:
    """Ask the plugins what the pod takes on a row of the snapshot, or on the only one."""
    allocation = NOTHING
    concerned = [a for a in profile.reserve if a.hints.filters(snapshot, pod_class)]
    if not concerned:
        return allocation
    view = snapshot if row is None else snapshot[np.array([row])]
    preference: IntArray | None = None
    for active in profile.score:
        if "prefer_devices" in active.has:
            preference = active.plugin.prefer_devices(view, pod_class)
    for active in concerned:
        taken = active.plugin.reserve(view, pod_class, preference)
        if isinstance(taken, Refusal):
            return active.name, taken
        allocation = allocation.joined(taken)
    return allocation
