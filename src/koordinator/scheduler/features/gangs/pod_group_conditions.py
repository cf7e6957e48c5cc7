"""Scheduled condition of PodGroups of scheduling.k8s.io.

Source: kubernetes pkg/scheduler/schedule_one_podgroup.go ``updatePodGroupCondition``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from msgspec.structs import replace

from koordinator.api.crd import StandardCondition
from koordinator.api.scheduling_pod_group import (
    SCHEDULED_1_36,
    SCHEDULED_1_37,
    SchedulingPodGroup,
    SchedulingPodGroupV1Alpha2,
)
from koordinator.cluster.port import Cluster
from koordinator.domain.gangs import Gang, GangCache
from koordinator.foundation.clock import Clock, to_datetime
from koordinator.scheduler.loop.patches import Patches


@dataclass(frozen=True, slots=True)
class _Wanted:
    status: Literal["True", "False"]
    reason: str
    message: str


class PodGroupConditions:
    """Writer of PodGroup conditions; a condition that is True does not change any more."""

    def __init__(
        self, cluster: Cluster, clock: Clock, caches: Sequence[GangCache], *, enabled: bool
    ) -> None:
        self._clock, self._caches, self._enabled = clock, caches, enabled
        self._patches = Patches(cluster, clock)
        self._wanted: dict[str, _Wanted] = {}  # by key, until the watch confirms it
        self._changed: dict[str, None] = {}

    def scheduled(self, gang: Gang) -> None:
        """Record that enough members of a PodGroup have nodes."""
        self._note(gang, _Wanted("True", "Scheduled", ""))

    def refused(self, gang: Gang, message: str) -> None:
        """Record that too few members of a PodGroup fit."""
        self._note(gang, _Wanted("False", "Unschedulable", message))

    def failed(self, gang: Gang, message: str) -> None:
        """Record that a PodGroup cannot be decided."""
        self._note(gang, _Wanted("False", "SchedulerError", message))

    def recheck(self, key: str) -> None:
        """Recheck the condition of a PodGroup that was added, changed or deleted."""
        if key in self._wanted:
            self._changed[key] = None

    def next_wakeup_s(self) -> float | None:
        """Return when the next condition is due."""
        return self._clock.now_s() if self._changed else self._patches.next_wakeup_s()

    def write(self, now_s: float) -> None:
        """Write changed conditions, and those that the watch did not confirm in time."""
        changed, self._changed = self._changed, {}
        for key in (*changed, *self._patches.lost(now_s)):
            self._write(key)

    def _note(self, gang: Gang, wanted: _Wanted) -> None:
        if self._enabled and gang.pod_group:
            self._wanted[gang.pod_group] = wanted
            self._changed[gang.pod_group] = None

    def _write(self, key: str) -> None:
        wanted, stored = self._wanted.get(key), self._stored(key)
        if wanted is None or stored is None or not self._differs(stored, wanted):
            self._wanted.pop(key, None)
            self._patches.arrived(key)
            return
        known = _condition(stored)
        now = to_datetime(self._clock.now_s())
        condition = StandardCondition(
            type=_kind(stored),
            status=wanted.status,
            reason=wanted.reason,
            message=wanted.message,
            observed_generation=stored.metadata.generation,
            last_transition_time=(
                known.last_transition_time
                if known is not None and known.status == wanted.status
                else now
            ),
        )
        others = (one for one in stored.status.conditions if one is not known)
        status = replace(stored.status, conditions=(*others, condition))
        self._patches.send(stored, replace(stored, status=status), "status")

    def _stored(self, key: str) -> SchedulingPodGroup | None:
        found = (cache.pod_group(key) for cache in self._caches)
        return next((one for one in found if one is not None), None)

    @staticmethod
    def _differs(stored: SchedulingPodGroup, wanted: _Wanted) -> bool:
        known = _condition(stored)
        if known is None:
            return True
        if known.status == "True":
            return False
        return (known.status, known.reason, known.message) != (
            wanted.status,
            wanted.reason,
            wanted.message,
        )


def _kind(stored: SchedulingPodGroup) -> str:
    return SCHEDULED_1_36 if isinstance(stored, SchedulingPodGroupV1Alpha2) else SCHEDULED_1_37


def _condition(stored: SchedulingPodGroup) -> StandardCondition | None:
    kind = _kind(stored)
    return next((one for one in stored.status.conditions if one.type == kind), None)
