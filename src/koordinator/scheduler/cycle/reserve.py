"""Allocations of the reserve plugins of a profile."""

from collections.abc import Sequence

import numpy as np

from koordinator.foundation.arrays import IntArray
from koordinator.scheduler.contract import (
    NOTHING,
    ActivePlugin,
    AllocationResult,
    Profile,
    Refusal,
)
from koordinator.scheduler.snapshot import PodClass, Snapshot

RefusingPlugin = tuple[str, Refusal]  # the plugin that refuses, and why


#: reserve plugins in running order; True: ``hints.filters`` is known to be true
Reserving = Sequence[tuple[ActivePlugin, bool]]


def reserve(
    profile: Profile,
    snapshot: Snapshot,
    pod_class: PodClass,
    row: int,
    reserving: Reserving | None = None,
) -> AllocationResult | RefusingPlugin:
    """Reserve the plugins' allocations on a row; plugins that do not filter the pod are skipped.

    ``reserving`` is the one of the program of the pod's class, if it is known.  Returns the first
    plugin that refuses, and why, if one does.
    """
    if reserving is None:
        reserving = [(active, False) for active in profile.reserve]
    if snapshot.restorable is not None:
        return _reserve_restored(profile, snapshot[np.array([row])], pod_class, reserving)
    return _hold(profile, snapshot, pod_class, reserving, row)


def _reserve_restored(
    profile: Profile, view: Snapshot, pod_class: PodClass, reserving: Reserving
) -> AllocationResult | RefusingPlugin:
    """Reserve for a pod with restorable holds.

    Devices and CPUs come from the nominated reservation alone if it has enough of them, otherwise
    from the reservation and the rest of the node.
    """
    active = profile.reservation_plugins[0]
    nomination = active.plugin.nominate(view, pod_class)
    if isinstance(nomination, Refusal):
        return active.name, nomination
    hold = nomination.uses
    if hold is not None and hold.has_parts:
        with view.restoring_only(hold, restricted=True):
            allocation = _hold(profile, view.nominating(hold), pod_class, reserving)
        if isinstance(allocation, AllocationResult) or hold.offer.is_restricted:
            return allocation
    view = view.nominating(hold, nomination.first)
    parted = [each for each in nomination.restored if each.has_parts]
    if not parted:
        return _hold(profile, view, pod_class, reserving)
    with view.restoring_only(*parted):
        return _hold(profile, view, pod_class, reserving)


def _hold(
    profile: Profile,
    snapshot: Snapshot,
    pod_class: PodClass,
    reserving: Reserving,
    row: int | None = None,
) -> AllocationResult | RefusingPlugin:
    """Allocate on a row of the snapshot, or on the only one."""
    allocation = NOTHING
    applicable = [
        active
        for active, filters in reserving
        if filters or active.hints.filters(snapshot, pod_class)
    ]
    if not applicable:
        return allocation
    view = snapshot if row is None else snapshot[np.array([row])]
    preference: IntArray | None = None
    for active in profile.score:
        if "prefer_devices" in active.has:
            preference = active.plugin.prefer_devices(view, pod_class)
    for active in applicable:
        taken = active.plugin.reserve(view, pod_class, preference)
        if isinstance(taken, Refusal):
            return active.name, taken
        allocation = allocation.joined(taken)
    return allocation
