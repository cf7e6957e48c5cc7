"""What a reservation would get of devices and CPUs where it takes over pods."""

from collections.abc import Sequence
from typing import Any

from koordinator.scheduler.contract import NOTHING, Refusal
from koordinator.scheduler.rules.reservations.remainder import missing_parts
from koordinator.scheduler.snapshot import Hold, PodClass, Snapshot


def short_of_parts(
    node: Snapshot, pod: PodClass, taken: Sequence[Hold], parts: Sequence[Any]
) -> tuple[str, ...]:
    """Return why a reservation can't have its parts of the node with these pods taken over.

    It has to get those of the pods, and may get others besides.  ``parts`` are the plugins that
    give them out.
    """
    allocation, view = NOTHING, node.nominating(None, tuple(taken))
    with node.restoring_only(*taken):
        for plugin in parts:
            if plugin.hints.filters(view, pod):
                part = plugin.reserve(view, pod, None)
                if isinstance(part, Refusal):
                    return (part.reason,)
                allocation = allocation.joined(part)
    held = allocation.pod_allocation
    return missing_parts(
        held.devices,
        held.numa,
        [(hold.placed.pod_allocation.devices, hold.placed.pod_allocation.numa) for hold in taken],
    )
