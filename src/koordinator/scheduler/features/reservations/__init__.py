"""Reservations: capacity held for future pods.

``feature``     hooks of the loop
``controller``  statuses, expiry and removal
``pages``, ``gauges``  what is shown
"""

from koordinator.scheduler.features.reservations.feature import ReservationFeature

__all__ = ["ReservationFeature"]
