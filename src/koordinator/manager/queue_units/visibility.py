"""Responses of koord-queue's aggregated API: pending units of a queue, and units of a quota.

Source: koord-queue 1.8, pkg/visibility/apis/v1alpha1/types.go, pkg/controller/controller.go.
"""

from collections.abc import Iterable
from functools import cached_property
from typing import Final

import msgspec

from koordinator.api.core import ResourceList
from koordinator.api.queue_unit import QueueUnit, UnitPhase
from koordinator.foundation.clock import to_epoch_s
from koordinator.manager.queue_units.controller import QueueUnitOptions, QueueWorld, plugins_over
from koordinator.manager.queue_units.ledgers import UnitPlace
from koordinator.manager.queue_units.life import phase_of

GROUP: Final = "visibility.koord-queue.x-k8s.io"
VERSION: Final = "v1alpha1"
GROUP_VERSION: Final = f"{GROUP}/{VERSION}"
MOST_UNITS: Final = 1000  # in one response
_WAITING: Final = frozenset((UnitPhase.ENQUEUED, UnitPhase.SCHED_FAILED, UnitPhase.TIMEOUT_BACKOFF))


class _Shown(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of all parts of a response."""


class VisibleMeta(_Shown, frozen=True, kw_only=True, omit_defaults=True):
    """Name and namespace of an object."""

    name: str = ""
    namespace: str = ""


class VisiblePods(_Shown, frozen=True, kw_only=True):
    """Counts of the pods of a job, by phase."""

    running: int = 0
    pending: int = 0


class VisibleUnit(_Shown, frozen=True, kw_only=True):
    """Summary of a unit."""

    metadata: VisibleMeta
    quota_name: str = ""
    queue_name: str = ""
    request: dict[str, str] = {}
    resources: dict[str, str] = {}
    phase: str = ""
    pod_state: VisiblePods = VisiblePods()


class UnitQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Filter and page of a request."""

    queue: str = ""
    phase: str = ""
    offset: int = 0
    limit: int = MOST_UNITS


class QueueVisibility:
    """Responses for one state of the cluster."""

    def __init__(self, world: QueueWorld, options: QueueUnitOptions) -> None:
        self._plugins = plugins_over(world, options)
        self._queues = {
            queue.metadata.name: queue
            for queue in world.queues.values()
            if queue.metadata.namespace == options.queue_namespace
        }
        self._quotas = self._plugins.quota_names()
        self._world = world

    @cached_property
    def _units(self) -> list[tuple[QueueUnit, UnitPlace]]:
        """All units in order; computed lazily, since lists of names do not need it."""
        placed = [(unit, self._plugins.places.place(unit)) for unit in self._world.units.values()]
        return sorted(placed, key=lambda each: _rank(each[0]))

    def queues(self) -> list[str]:
        """Return the names of all queues."""
        return sorted(self._queues)

    def quotas(self) -> list[str]:
        """Return the names of all quotas."""
        return sorted(self._quotas)

    def units_of_queue(self, name: str, query: UnitQuery) -> list[VisibleUnit]:
        """Return the pending units of a queue, in order."""
        selected = (
            (unit, place)
            for unit, place in self._units
            if place.queue == name and phase_of(unit) in _WAITING
        )
        return _page(selected, query)

    def units_of_quota(self, name: str, query: UnitQuery) -> list[VisibleUnit]:
        """Return the units of a quota in any phase."""
        selected = (
            (unit, place) for unit, place in self._units if place.quota.rpartition("/")[2] == name
        )
        return _page(selected, query)


def _page(selected: Iterable[tuple[QueueUnit, UnitPlace]], query: UnitQuery) -> list[VisibleUnit]:
    matching = [
        (unit, place)
        for unit, place in selected
        if query.phase in ("", unit.status.phase) and query.queue in ("", place.queue)
    ]
    limit = min(query.limit or MOST_UNITS, MOST_UNITS)
    return [_visible(*each) for each in matching[query.offset : query.offset + limit]]


def _visible(unit: QueueUnit, place: UnitPlace) -> VisibleUnit:
    meta, pods = unit.metadata, unit.status.pod_state
    return VisibleUnit(
        metadata=VisibleMeta(name=meta.name, namespace=meta.namespace),
        quota_name=place.quota,
        queue_name=place.queue,
        request=_texts(unit.spec.request),
        resources=_texts(unit.spec.resource),
        phase=unit.status.phase,
        pod_state=VisiblePods(running=pods.running, pending=pods.pending),
    )


def _texts(amounts: ResourceList) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}


def _rank(unit: QueueUnit) -> tuple[int, float, str]:
    arrived_s = to_epoch_s(unit.metadata.creation_timestamp)
    return -(unit.spec.priority or 0), arrived_s, unit.key
