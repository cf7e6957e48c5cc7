"""Reservations: what they hold is for some pods only, and free for these.

``usable_holds`` which holds the pods of a class may use, kept up to date
``judgement``    which of the holds on a node a pod fits into, or why into none
``trial``        what a reservation gets of devices and CPUs where it takes over pods
``placement``    where a reservation itself may go
``summary``      what is said of reservations to a pod that fits nowhere
``plugin``       the plugin

The rules are in ``scheduler.rules.reservations``.
Source: koordinator pkg/scheduler/plugins/reservation.
"""

from koordinator.scheduler.plugins.reservation.plugin import PLUGIN, Reservations

__all__ = ["PLUGIN", "Reservations"]
