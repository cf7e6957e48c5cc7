"""Conditions of PodGroups of ``scheduling.k8s.io``, and their messages.

Source: kubernetes pkg/scheduler/schedule_one_podgroup.go ``updatePodGroupCondition``; kubernetes
1.36 and 1.37 pkg/scheduler/schedule_one_podgroup.go ``submitPodGroupAlgorithmResult``,
framework/plugins/gangscheduling ``PlacementFeasible`` and ``Permit``,
framework/preemption/podgrouppreemption.go ``Preempt``.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Literal

from msgspec.structs import replace

from koordinator.api.conditions import find_condition
from koordinator.api.crd import StandardCondition
from koordinator.api.kube_version import V1_37
from koordinator.api.kubescheduler import FeatureGates
from koordinator.api.kubescheduler.gates import (
    POD_GROUP_PREEMPTION_POLICY,
    TOPOLOGY_PLACEMENTS,
    WORKLOAD_AWARE_PREEMPTION,
)
from koordinator.api.pod import Pod
from koordinator.api.pod_groups import (
    SCHEDULED_1_36,
    SCHEDULED_1_37,
    SchedulingPodGroup,
    SchedulingPodGroupV1Alpha2,
)
from koordinator.cluster.port import Cluster
from koordinator.domain.gangs import Gang, GangCache, PodGroupTerms
from koordinator.foundation.clock import Clock, to_datetime
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.features.gangs.preemption import GangHeadroom
from koordinator.scheduler.loop.reporter import Patches
from koordinator.scheduler.preemption.single_node import NEVER, PREEMPT_LOWER_PRIORITY

UNSCHEDULABLE: Final = "pod group is unschedulable"
NO_VICTIMS: Final = "No preemption victims found for incoming preemptor"
ONGOING: Final = "ongoing preemption on nominated nodes"
_WAITS: Final = "waiting for minCount pods from a gang to be scheduled"
_NOT_REJECTED: Final = "one or more plugins asked to wait and no plugin rejected pod"


@dataclass(frozen=True, slots=True)
class _Wanted:
    status: Literal["True", "False"]
    reason: str
    message: str


class PodGroupConditions:
    """Writer of PodGroup conditions; a condition that is True is final."""

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
        for key in (*changed, *self._patches.overdue(now_s)):
            self._write(key)

    def _note(self, gang: Gang, wanted: _Wanted) -> None:
        if self._enabled and gang.pod_group:
            self._wanted[gang.pod_group] = wanted
            self._changed[gang.pod_group] = None

    def _write(self, key: str) -> None:
        wanted, stored = self._wanted.get(key), self._stored(key)
        if wanted is None or stored is None or not self._differs(stored, wanted):
            self._wanted.pop(key, None)
            self._patches.confirm(key)
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
        stored = (cache.pod_group(key) for cache in self._caches)
        return next((one for one in stored if one is not None), None)

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
    return find_condition(stored.status.conditions, _kind(stored))


@dataclass(frozen=True, slots=True)
class GroupRejection:
    """Messages about a failed attempt of a PodGroup.

    ``refused`` follows the reason of a member that fits no node; ``others`` is for members that had
    a node, ``untried`` for the rest; ``group`` is for the PodGroup.
    """

    refused: str
    others: str
    group: str
    untried: str


def rejection(
    gates: FeatureGates,
    least: int,
    scheduled: int,
    preemption: str,
    post_filter: Sequence[str],
    *,
    placements: int | None = None,
) -> GroupRejection:
    """Return the messages if ``scheduled`` of ``least`` members of a PodGroup have nodes.

    ``preemption`` is the result of group preemption, empty if it was not tried; ``post_filter`` has
    the names of the profile's PostFilter plugins; ``placements`` is the number of placements tried.
    """
    if gates.level >= V1_37:
        text = shortage(least, scheduled)
        if placements is not None:
            text = placement_shortage(placements, text)
        elif TOPOLOGY_PLACEMENTS in gates:
            text = placement_shortage(1, text)
        untried = text  # kube-scheduler writes it before preemption
        if preemption:
            text = f"{text}, pod group preemption: {preemption}"
        return GroupRejection("", f"{UNSCHEDULABLE}, {text}", text, untried)
    eligible = "workload aware preemption enabled"
    if placements is not None:
        eligible = "placement-based pod group scheduling limitation"
    parts = []
    if "DynamicResources" in post_filter:
        parts.append("no new claims to deallocate")
    groups_preempt = WORKLOAD_AWARE_PREEMPTION in gates
    parts.append(f"preemption: not eligible due to {eligible}")
    refused = ", ".join(parts) if groups_preempt or placements is not None else ""
    others = f"{UNSCHEDULABLE}, {_WAITS}, {_NOT_REJECTED}"
    group = UNSCHEDULABLE
    if groups_preempt and preemption in (NO_VICTIMS, NEVER):
        group = f"{UNSCHEDULABLE}, {preemption}"
    return GroupRejection(refused, others, group, others)


def placement_shortage(placements: int, text: str) -> str:
    """Return why a group has no placement; ``text`` is about the first one."""
    available = f"0/{placements} placements are available"
    return f"{UNSCHEDULABLE}, {available}, first placement status: {text}"


def shortage(least: int, scheduled: int) -> str:
    """Return why the attempt of a PodGroup failed.

    Members are tried until the remaining ones are one too few.
    """
    remaining = max(least - 1 - scheduled, 0)
    return f"minCount ({least}) cannot be satisfied: {scheduled} scheduled, {remaining} remaining"


def preemption_result(
    headroom: GangHeadroom,
    least: int,
    scheduled: int | None,
    *,
    has_victims: bool,
    is_eligible: bool,
    again: str = "",
) -> str:
    """Return the result of group preemption.

    ``is_eligible``: the pods may preempt; ``has_victims``: pods of lower priority exist;
    ``scheduled``: number of members that fit without those pods, None if unknown; ``again``: why
    a tree fails without those pods.
    """
    if headroom.pods:
        count = len(headroom.victims)
        return f"found a placement for podgroup, preempting {count} victims" if count else ONGOING
    if not is_eligible:
        return NEVER
    if not has_victims or scheduled is None:
        return NO_VICTIMS
    return again or shortage(least, min(scheduled, least - 1))


def inconsistency(terms: PodGroupTerms, gates: FeatureGates, members: Iterable[Pod]) -> str:
    """Return how members contradict their group or each other; empty if they are consistent."""
    if gates.level < V1_37:
        return ""
    is_stated = POD_GROUP_PREEMPTION_POLICY in gates
    stated = terms.preemption_policy or PREEMPT_LOWER_PRIORITY
    scheduler, policy = "", stated if is_stated else ""
    for pod in members:
        scheduler = scheduler or pod.spec.scheduler_name
        if pod.spec.scheduler_name != scheduler:
            return (
                "all pods in a single pod group should have the same .spec.schedulerName set, "
                f'got: "{pod.spec.scheduler_name}" and "{scheduler}"'
            )
        priority = pod.spec.priority or 0
        if priority != terms.priority:
            return (
                "all pods in a single pod group should have the same priority as the pod group's "
                f"priority, got {priority} and {terms.priority}"
            )
        own = pod.spec.preemption_policy or PREEMPT_LOWER_PRIORITY
        policy = policy or own
        if own != policy:
            of_group = " as the pod group's preemption policy" if is_stated else ""
            return (
                f"all pods in a single pod group should have the same preemption policy{of_group}, "
                f"got {own} and {policy}"
            )
    return ""
