"""Reservations: room that is held for pods to come.

``feature``     what the loop asks and tells
``controller``  statuses, expiry and removal
``pages``, ``gauges``  what is shown
"""

from koordinator.scheduler.features.reservations.feature import ReservationFeature

__all__ = ["ReservationFeature"]
