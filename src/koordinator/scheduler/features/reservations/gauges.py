"""Gauges of reservations: phase, amounts and utilisation.

Source: koordinator pkg/scheduler/plugins/reservation/controller, ``RecordReservationPhases`` and
``RecordReservationResource``; pkg/scheduler/metrics/metrics.go.
"""

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric

from koordinator.api.reservation import Reservation, ReservationPhase
from koordinator.foundation.quantity import Quantity
from koordinator.scheduler.snapshot import ClusterState

_PHASES = tuple(phase.value for phase in ReservationPhase if phase.value != "Waiting")
_GIB = 1 << 30


class ReservationGauges:
    """Collector that reads the reservations of the state at scrapes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._state: ClusterState | None = None
        registry.register(self)

    def watch(self, state: ClusterState) -> None:
        """Set the state to scrape."""
        self._state = state

    def unwatch(self) -> None:
        """Scrape no state."""
        self._state = None

    def describe(self) -> Iterable[Metric]:
        """Return nothing; names are not checked before the first scrape."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Return the metric families."""
        return _families(self._state) if self._state is not None else ()


def _families(state: ClusterState) -> Iterator[Metric]:
    """Yield the families; the current phase is 1, the others are 0."""
    phases = GaugeMetricFamily(
        "scheduler_reservation_status_phase",
        "1 for the phase that a reservation is in, 0 for the others.",
        labels=["name", "phase"],
    )
    amounts = GaugeMetricFamily(
        "scheduler_reservation_resource",
        "Allocatable and allocated amounts of a reservation, and their ratio.",
        labels=["type", "name", "resource", "unit"],
    )
    for reservation in list(state.objects.all(Reservation)):
        name, status = reservation.metadata.name, reservation.status
        current = status.phase or ReservationPhase.PENDING.value
        for phase in _PHASES:
            phases.add_metric([name, phase], float(phase == current))
        for resource, amount in status.allocatable.items():
            unit, kept = _measure(resource, amount)
            used = _measure(resource, status.allocated.get(resource, Quantity.parse("0")))[1]
            amounts.add_metric(["allocatable", name, resource, unit], kept)
            amounts.add_metric(["allocated", name, resource, unit], used)
            ratio = used / kept if kept else 0.0
            amounts.add_metric(["utilization", name, resource, "ratio"], ratio)
    yield phases
    yield amounts


def _measure(resource: str, amount: Quantity) -> tuple[str, float]:
    """Return unit and value."""
    if resource == "cpu":
        return "core", amount.milli() / 1000
    if resource == "memory":
        return "Gi", amount.value() / _GIB
    return "raw", float(amount.value())
