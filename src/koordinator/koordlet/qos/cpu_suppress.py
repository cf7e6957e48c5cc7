"""CPU suppress: limit best-effort pods to the CPU that others leave, by CPU set or by quota.

Source: koordinator pkg/koordlet/qosmanager/plugins/cpusuppress/cpu_suppress.go;
pkg/koordlet/qosmanager/helpers/calculator.go, ``CalculateFilterPodsUsed``.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from koordinator.api.annotations.numa import CpuInfo
from koordinator.api.node_slo import HostApplication
from koordinator.api.qos import QosClass
from koordinator.domain.cgroups.files import CFS_PERIOD_US, UNLIMITED, CgroupFile
from koordinator.domain.cgroups.layout import BESTEFFORT_BASE
from koordinator.foundation.cpu_list import format_cpu_list
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.koordlet.intents import Intent, SetCgroup
from koordinator.koordlet.metrics import Metric
from koordinator.koordlet.qos.eviction import StrategyInputs
from koordinator.koordlet.view.machine import infos_of
from koordinator.koordlet.view.node_view import CFS_QUOTA_POLICY, NodeView

MIN_CPUS: Final = 2
MIN_QUOTA_US: Final = 2000
MAX_GROWTH: Final = 0.1  # share of all CPUs, per round
MIN_CHANGE: Final = 0.01  # share of all CPUs; smaller changes of the quota are not written
_OWNER = "besteffort"
_MILLI = 1000
_CPUS_OFF = "CPU suppress by CPU set is off"


def choose_cpus(count: int, among: Sequence[CpuInfo]) -> list[int]:
    """Return ``count`` CPU ids in order of choice; none if there are too few CPUs.

    CPUs are grouped by NUMA node and socket, the largest group first, then the group with the
    lowest CPU.  In round-robin order, each group contributes two threads of one core while two
    are needed; then single CPUs follow from the group at which that ended.
    """
    if count <= 0 or len(among) < count:
        return []
    groups = _groups(among)
    chosen: list[int] = []
    place = _take_pairs(groups, count, chosen)
    for step in range(len(among) * len(groups)):
        if len(chosen) == count:
            break
        group = groups[(place + step) % len(groups)]
        if group:
            chosen.append(group.pop(0).id)
    return chosen


def _take_pairs(groups: list[list[CpuInfo]], count: int, chosen: list[int]) -> int:
    """Take pairs of threads of one core; return the group at which that ended."""
    place = idle = 0
    while count - len(chosen) > 1 and idle < len(groups):
        pair = _pair(groups[place])
        if pair is None:
            idle += 1
        else:
            idle = 0
            chosen += [cpu.id for cpu in pair]
            for cpu in pair:
                groups[place].remove(cpu)
        place = (place + 1) % len(groups)
    # If no group has a pair left, the original starts again at its first group.
    return 0 if idle == len(groups) else place


def _pair(group: list[CpuInfo]) -> tuple[CpuInfo, CpuInfo] | None:
    for first, second in pairwise(group):
        if first.core == second.core:
            return first, second
    return None


def _groups(among: Sequence[CpuInfo]) -> list[list[CpuInfo]]:
    by_place: dict[tuple[int, int], list[CpuInfo]] = defaultdict(list)
    for cpu in among:
        by_place[cpu.node, cpu.socket].append(cpu)
    groups = [sorted(group, key=lambda cpu: (cpu.core, cpu.id)) for group in by_place.values()]
    return sorted(groups, key=lambda group: (-len(group), group[0].id))


@dataclass(frozen=True, slots=True)
class Suppression:
    """Intents, and the figures behind them in cores (None: not suppressed)."""

    intents: tuple[Intent, ...] = ()
    policy: str = ""
    be_cores: float | None = None
    ls_used_cores: float | None = None


@dataclass(frozen=True, slots=True)
class CpuDemand:
    """CPU in milli-CPU: capacity, and usage of pods and host applications above best effort.

    ``system`` is the usage of the rest of the node, at least its reservation.
    """

    capacity: int
    pods: int
    host_applications: int
    system: int

    def headroom_milli(self, threshold_percent: int, min_percent: int | None) -> int:
        """Return the CPU that the threshold leaves for best effort; may be negative."""
        headroom = self.capacity * threshold_percent // 100
        headroom -= self.pods + self.host_applications + self.system
        if min_percent is not None:
            headroom = max(headroom, self.capacity * min_percent // 100)
        return headroom


def suppress(inputs: StrategyInputs, *, cpus_are_managed: bool = False) -> Suppression:
    """Return the suppression of best effort, and undo the policy that is not in use.

    Change nothing without samples of the node or without pods.  With ``cpus_are_managed`` the CPU
    sets of containers belong to the CPU set hook, and only quotas suppress.  While pods of class
    LSE have all CPUs, best effort gets the least quota, since no CPU set can be empty.
    """
    view = inputs.view
    threshold = view.threshold
    if view.lse_has_all_cpus:
        return _least(view)
    by_quota = threshold.enable and threshold.cpu_suppress_policy == CFS_QUOTA_POLICY
    if not threshold.enable or (cpus_are_managed and not by_quota):
        return Suppression((*_free_quota(view), *_all_cpus(view, are_managed=cpus_are_managed)))
    demand = measure_demand(inputs)
    if demand is None or threshold.cpu_suppress_threshold_percent is None:
        return Suppression()
    headroom = demand.headroom_milli(
        threshold.cpu_suppress_threshold_percent, threshold.cpu_suppress_min_percent
    )
    reason = (
        f"CPU suppress: {threshold.cpu_suppress_threshold_percent} % of {demand.capacity}m less "
        f"pods {demand.pods}m, host applications {demand.host_applications}m, "
        f"system {demand.system}m leaves {headroom}m"
    )
    ls_used = demand.pods / _MILLI
    if by_quota:
        quota, cores = _by_quota(view, headroom, reason)
        cpus = _all_cpus(view, are_managed=cpus_are_managed)
        return Suppression((*quota, *cpus), CFS_QUOTA_POLICY, cores, ls_used)
    sets, cores = _by_cpus(view, headroom, reason)
    return Suppression((*sets, *_free_quota(view)), "cpuset", cores, ls_used)


def measure_demand(inputs: StrategyInputs) -> CpuDemand | None:
    """Return the current CPU usage; None while it is unknown."""
    view = inputs.view
    node = inputs.last(Metric.NODE_CPU)
    if node is None or not view.active_pods:
        return None
    best_effort = {pod.uid for pod in view.active_pods if pod.is_best_effort}
    all_pods = other_pods = 0.0
    for uid in tuple(inputs.store.owners(Metric.POD_CPU)):
        used = inputs.last(Metric.POD_CPU, uid)
        if used is None:
            continue
        all_pods += used
        if uid not in best_effort:  # includes pods that have ended or were deleted
            other_pods += used
    all_apps = other_apps = 0.0
    for application in view.slo.host_applications:
        used = inputs.last(Metric.HOST_APP_CPU, application.name)
        if used is None:
            continue
        all_apps += used
        if not _is_best_effort(application):
            other_apps += used
    system = max(node - all_pods - all_apps, 0.0, view.machine.reserved_milli / _MILLI)
    return CpuDemand(
        capacity=view.machine.capacity_milli,
        pods=int(other_pods * _MILLI),
        host_applications=int(other_apps * _MILLI),
        system=int(system * _MILLI),
    )


def wanted_cpus(view: NodeView, headroom_milli: int, current: int) -> list[int]:
    """Return the CPUs for best effort, which has ``current`` many; none if there are none.

    CPUs of LSR pods contribute in proportion; CPUs of LSE pods and reserved ones are excluded.
    """
    machine, eligible = view.machine, view.best_effort_cpus
    lsr = 0
    for pod in view.active_pods:
        if pod.labelled_qos is QosClass.LSR:
            lsr |= pod.bound_cpus
    shared = infos_of(eligible & ~lsr, machine.cpus)
    owned = infos_of(eligible & lsr, machine.cpus)
    if not shared and not owned:
        return []
    count = max(-(-headroom_milli // _MILLI), MIN_CPUS)
    growth = math.ceil(len(machine.cpus) * MAX_GROWTH)
    count = min(count, current + growth, len(shared) + len(owned))
    of_owned = count * len(owned) // (len(owned) + len(shared))
    return choose_cpus(of_owned, owned) + choose_cpus(count - of_owned, shared)


def wanted_quota_us(capacity_milli: int, headroom_milli: int, current_us: int) -> int | None:
    """Return the quota for best effort; None to keep the present one."""
    quota = max(headroom_milli * CFS_PERIOD_US // _MILLI, MIN_QUOTA_US)
    all_cpus = -(-capacity_milli // _MILLI) * CFS_PERIOD_US
    if current_us == UNLIMITED:
        return quota
    if abs(quota - current_us) < all_cpus * MIN_CHANGE and quota != MIN_QUOTA_US:
        return None
    return min(quota, current_us + int(all_cpus * MAX_GROWTH))


def _by_cpus(view: NodeView, headroom: int, reason: str) -> tuple[list[Intent], float | None]:
    tier = view.layout.besteffort
    current = view.cgroups.cpus(tier)
    if current is None:
        return [], None
    chosen = wanted_cpus(view, headroom, current.bit_count())
    if not chosen:
        return [], None
    mask = sum(1 << cpu for cpu in chosen)
    if view.machine.kubelet_policy == "static":
        folders = [c for pod in view.cgroups.below(tier) for c in view.cgroups.below(pod)]
        return [*_free_cpus(view, depth=1), *_cpu_sets(folders, mask, reason)], float(len(chosen))
    return list(_cpu_sets(_tree(view, depth=2), mask, reason)), float(len(chosen))


def _by_quota(view: NodeView, headroom: int, reason: str) -> tuple[list[Intent], float | None]:
    tier = view.layout.besteffort
    current_us = view.cgroups.number(CgroupFile.CFS_QUOTA, tier)
    if current_us is None:
        return [], None
    quota_us = wanted_quota_us(view.machine.capacity_milli, headroom, current_us)
    if quota_us is None:
        return [], current_us / CFS_PERIOD_US
    return _limit_tier(view, quota_us, current_us, reason), quota_us / CFS_PERIOD_US


def _least(view: NodeView) -> Suppression:
    current_us = view.cgroups.number(CgroupFile.CFS_QUOTA, view.layout.besteffort)
    if current_us is None:
        return Suppression()
    reason = "CPU suppress: pods of class LSE have all CPUs"
    intents = _limit_tier(view, MIN_QUOTA_US, current_us, reason)
    return Suppression(tuple(intents), CFS_QUOTA_POLICY, MIN_QUOTA_US / CFS_PERIOD_US)


def _limit_tier(view: NodeView, quota_us: int, current_us: int, reason: str) -> list[Intent]:
    tier = view.layout.besteffort
    intent = SetCgroup(CgroupFile.CFS_QUOTA, tier, str(quota_us), reason, _OWNER)
    freed = _free_quotas_below(view) if current_us == UNLIMITED else []
    return [*freed, intent]


def _free_quota(view: NodeView) -> list[Intent]:
    tier, reason = view.layout.besteffort, "CPU suppress by quota is off"
    return [SetCgroup(CgroupFile.CFS_QUOTA, tier, str(UNLIMITED), reason, _OWNER)]


def _free_quotas_below(view: NodeView) -> list[Intent]:
    """Lift the quotas of pods and containers: cgroup v1 rejects a lower quota above them."""
    reason = "CPU suppress by quota limits the tier as a whole"
    return [
        SetCgroup(CgroupFile.CFS_QUOTA, folder, str(UNLIMITED), reason, _OWNER)
        for folder in _tree(view, depth=2)[1:]
        if (view.cgroups.number(CgroupFile.CFS_QUOTA, folder) or UNLIMITED) > 0
    ]


def _all_cpus(view: NodeView, *, are_managed: bool) -> list[Intent]:
    """Undo CPU sets, except in containers whose CPU sets another part of the agent manages."""
    return [*_free_cpus(view, depth=1), *_within_free(view)] if are_managed else _free_cpus(view)


def _free_cpus(view: NodeView, depth: int = 2) -> list[Intent]:
    free = view.best_effort_cpus
    return _cpu_sets(_tree(view, depth), free, _CPUS_OFF) if free else []


def _within_free(view: NodeView) -> list[Intent]:
    """Take CPUs that are not free from containers: the kernel rejects a tier without them."""
    free = view.best_effort_cpus
    intents = []
    for folder in _levels(view, depth=2)[-1] if free else ():
        current = view.cgroups.cpus(folder) or 0
        if current & ~free:
            intents += _cpu_sets([folder], current & free or free, _CPUS_OFF)
    return intents


def _cpu_sets(folders: list[str], mask: int, reason: str) -> list[Intent]:
    text = format_cpu_list(mask)
    return [SetCgroup(CgroupFile.CPUSET, folder, text, reason, _OWNER) for folder in folders]


def _tree(view: NodeView, depth: int) -> list[str]:
    """Return the best-effort folder and its descendants, to pods (1) or containers (2)."""
    return [folder for level in _levels(view, depth) for folder in level]


def _levels(view: NodeView, depth: int) -> list[list[str]]:
    levels = [[view.layout.besteffort]]
    for _ in range(depth):
        levels.append([child for folder in levels[-1] for child in view.cgroups.below(folder)])
    return levels


def _is_best_effort(application: HostApplication) -> bool:
    path = application.cgroup_path
    return application.qos == QosClass.BE and path is not None and path.base == BESTEFFORT_BASE
