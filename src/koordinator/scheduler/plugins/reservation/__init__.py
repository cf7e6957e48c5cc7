"""Reservations: capacity held for owner pods, free for those only.

``usable_holds``  holds that the pods of a class may use, kept current; nodes for a reservation
                  itself; reasons of reservations for a pod that fits nowhere
``hold_fit``      holds on a node that a pod fits into, or why it fits into none
``plugin``        the extension points

The rules are in ``scheduler.rules.reservations``.
Source: koordinator pkg/scheduler/plugins/reservation.
"""

from koordinator.scheduler.plugins.reservation.plugin import PLUGIN, Reservations

__all__ = ["PLUGIN", "Reservations"]
