"""Reservations: capacity held for future pods.

``feature``     hooks of the loop, and pages
``controller``  statuses, expiry and removal
``gauges``      values of the metrics
"""

from koordinator.scheduler.features.reservations.feature import ReservationFeature

__all__ = ["ReservationFeature"]
