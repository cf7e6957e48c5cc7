"""CPU quotas of pods: the combination of CPU normalization and CPU burst.

The base of a quota is the kubelet's quota, divided by the node's CPU ratio; burst is added to it.
The kernel (cgroup v1) rejects a quota of a parent below that of a child.  The kubelet does not know
the burst, so its writes must succeed in any order: while limits change, quotas only make room for
them.
Source: koordinator pkg/koordlet/qosmanager/plugins/cpuburst, runtimehooks/hooks/cpunormalization;
Linux kernel/sched/core.c ``tg_set_cfs_bandwidth``; kubernetes
pkg/kubelet/kuberuntime/kuberuntime_manager.go ``doPodResizeAction``.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import field
from typing import Final

from koordinator.domain.cgroups.files import (
    CFS_PERIOD_US,
    MIN_QUOTA_US,
    UNLIMITED,
    CgroupFile,
    normalized_quota,
    quota_of_milli,
)
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.koordlet.intents import Intent, SetCgroup
from koordinator.koordlet.view.cpus import (
    CpuLimits,
    applied_cpu_limits,
    is_resize_in_progress,
    is_resize_pending,
    is_whole_resize_pending,
    startable_containers,
    stated_cpu_limits,
    stated_cpu_requests,
)
from koordinator.koordlet.view.node_view import NodeView
from koordinator.koordlet.view.pods import ContainerView, PodView

#: Time in which the kubelet writes all quotas of a pod after its limits have changed.
SETTLE_S: Final = 10.0
_NEVER: Final = float("-inf")
_ROOM: Final = "CPU quota: makes room for the kubelet's change of the limits"


@dataclass(frozen=True, slots=True)
class QuotaRequest:
    """Requested quota of a container, at least its base, and the reason."""

    quota_us: int
    ceiling_us: int
    reason: str


#: Returns the request for a container, its base and its present quota, in microseconds.
QuotaRequester = Callable[[ContainerView, int, int], QuotaRequest]


@dataclass(slots=True)
class _Written:
    """Last quota written to a cgroup, with its base and the quota before."""

    base: int
    quota: int
    before: int


@dataclass(slots=True)
class _PodQuotas:
    """Limits of one pod, and the quotas of its cgroups.

    ``foreign`` are quotas that another writer, such as the kubelet, set after the limits changed.
    ``requests`` are the CPU requests by container.  Without ``is_known`` the limit in force of the
    whole pod is unknown: a resize of it was pending when the pod was first seen, and the kubelet
    reports the quota of the cgroup, which has what an earlier agent added.
    """

    old: CpuLimits
    new: CpuLimits
    requests: Mapping[str, int]
    changed_s: float = _NEVER
    is_known: bool = True
    written: dict[str, _Written] = field(default_factory=dict)
    foreign: dict[str, int] = field(default_factory=dict)


class CpuQuotas:
    """Limits and quotas of pods by UID, to detect a change of either."""

    def __init__(self) -> None:
        self._pods: dict[str, _PodQuotas] = {}

    def knows(self, pod: PodView) -> bool:
        """Return whether quotas of the pod were planned before."""
        return pod.uid in self._pods

    def forget(self, uids: Collection[str]) -> None:
        """Drop all pods except these."""
        for uid in self._pods.keys() - set(uids):
            del self._pods[uid]

    def observe(self, view: NodeView, pod: PodView) -> tuple[CpuLimits, bool] | None:
        """Return the limits in force, and whether the kubelet may be writing others.

        None if the limits are unknown, so that quotas have to stay as they are.
        """
        known = self._pods.get(pod.uid)
        if known is None:
            limits = applied_cpu_limits(pod.pod)
            known = self._pods[pod.uid] = _PodQuotas(limits, limits, stated_cpu_requests(pod.pod))
            known.is_known = not is_whole_resize_pending(pod.pod)
        if not known.is_known:
            if is_resize_pending(pod.pod):
                return None
            known.is_known = True
        self._update_limits(known, pod, view.now_s)
        self._detect_foreign(known, view, pod)
        is_changing = view.now_s - known.changed_s < SETTLE_S or is_resize_in_progress(pod.pod)
        return known.new, is_changing

    def make_room(self, view: NodeView, pod: PodView) -> Iterator[Intent]:
        """Yield quotas with which the kubelet can write old or new limits in any order."""
        known = self._pods[pod.uid]
        for container in pod.containers:
            current = view.cgroups.number(CgroupFile.CFS_QUOTA, container.folder)
            limits = [known.old.of(container.name), known.new.of(container.name)]
            if current is None or container.folder in known.foreign or not all(limits):
                continue
            most = _quota(view, container.folder, min(limits))
            if current > most:
                yield self._set(known, pod, container.folder, (most, most, current), _ROOM)
        current = view.cgroups.number(CgroupFile.CFS_QUOTA, pod.folder)
        if current is None or current <= 0 or pod.folder in known.foreign:
            return
        least = _quota(view, pod.folder, max(known.new.containers.values(), default=0))
        wanted = max(current, least)
        if known.old.pod and known.new.pod:
            most = _quota(view, pod.folder, max(known.old.pod, known.new.pod))
            wanted = min(wanted, max(most, least))
        if wanted != current:
            yield self._set(known, pod, pod.folder, (wanted, wanted, current), _ROOM)

    def plan(
        self, view: NodeView, pod: PodView, ratio: float | None, requester: QuotaRequester
    ) -> Iterator[Intent]:
        """Yield the quotas of a pod and its containers while the limits do not change."""
        known = self._pods[pod.uid]
        cgroups = view.cgroups
        extra = highest = 0
        most = 1.0  # largest ratio of a ceiling to its base
        reason = ""
        intents = []
        for container in pod.containers:
            current = cgroups.number(CgroupFile.CFS_QUOTA, container.folder)
            if current is None or not _is_limited(view, known.new, container, current):
                continue
            granted = known.foreign.get(container.folder) or _quota(
                view, container.folder, known.new.of(container.name)
            )
            base = normalized_quota(granted, ratio)
            if base <= 0:
                continue
            present = _present(known.written.get(container.folder), current, base, granted)
            requested = requester(container, base, present)
            extra += requested.quota_us - base
            most = max(most, requested.ceiling_us / base)
            highest = max(highest, requested.quota_us)
            quotas = (base, requested.quota_us, current)
            intent = self._set(known, pod, container.folder, quotas, requested.reason)
            if requested.quota_us != current:
                intents.append(intent)
                reason = requested.reason
        current = cgroups.number(CgroupFile.CFS_QUOTA, pod.folder)
        if current is None:
            return  # the pod has vanished
        base, quota = self._of_pod(view, pod, ratio, current, highest)
        if base > 0:
            quota = max(min(base + extra, math.ceil(base * most)), quota)
        why = reason or "CPU quota: the kubelet's value"
        intent = self._set(known, pod, pod.folder, (base, quota, current), why)
        yield from intents
        if quota != current:
            yield intent

    def _of_pod(
        self, view: NodeView, pod: PodView, ratio: float | None, current: int, highest: int
    ) -> tuple[int, int]:
        """Return the base of a pod's quota, and the minimum that its containers need."""
        known = self._pods[pod.uid]
        if not known.new.pod:
            return UNLIMITED, UNLIMITED
        if current < 0 and (ratio is None or ratio <= 1):
            return UNLIMITED, UNLIMITED  # the kubelet sets no quotas
        granted = known.foreign.get(pod.folder) or _quota(view, pod.folder, known.new.pod)
        running = {
            each.name
            for each in pod.containers
            if view.cgroups.number(CgroupFile.CFS_QUOTA, each.folder) is not None
        }
        starting = (known.new.of(name) for name in startable_containers(pod.pod, running))
        least = _quota(view, pod.folder, max(starting, default=0))
        return normalized_quota(granted, ratio), max(highest, least)

    @staticmethod
    def _update_limits(known: _PodQuotas, pod: PodView, now_s: float) -> None:
        stated, is_pending = stated_cpu_limits(pod.pod), is_resize_pending(pod.pod)
        if not is_pending:
            new = stated
        elif stated == known.new:  # assumed to be accepted before the kubelet decided
            new = known.old
        else:
            new = known.new
        requests = known.requests if is_pending else stated_cpu_requests(pod.pod)
        # Of a resize of requests alone, the kubelet writes the pod's quota, too.
        if new != known.new or requests != known.requests:
            known.old, known.new, known.changed_s = known.new, new, now_s
            known.requests = requests
            known.foreign.clear()

    @staticmethod
    def _detect_foreign(known: _PodQuotas, view: NodeView, pod: PodView) -> None:
        """Record the quotas that differ from the last round's."""
        limits = {each.folder: known.new.of(each.name) for each in pod.containers}
        limits[pod.folder] = known.new.pod
        known.written = {f: last for f, last in known.written.items() if f in limits}
        known.foreign = {f: quota for f, quota in known.foreign.items() if f in limits}
        foreign = {}
        for folder, last in known.written.items():
            current = view.cgroups.number(CgroupFile.CFS_QUOTA, folder)
            if current is None or current in {last.quota, last.before}:
                continue
            if current != _quota(view, folder, limits[folder]):
                foreign[folder] = current
        if foreign:
            known.changed_s = view.now_s
            known.foreign |= foreign
            known.written = {f: last for f, last in known.written.items() if f not in foreign}

    @staticmethod
    def _set(
        known: _PodQuotas, pod: PodView, folder: str, quotas: tuple[int, int, int], reason: str
    ) -> SetCgroup:
        base, quota, before = quotas
        known.written[folder] = _Written(base, quota, before)
        names = {each.folder: f"{pod.key}/{each.name}" for each in pod.containers}
        owner = names.get(folder, pod.key)
        value = str(quota)
        return SetCgroup(CgroupFile.CFS_QUOTA, folder, value, reason, owner, is_observed=True)


def _quota(view: NodeView, folder: str, limit_milli: int) -> int:
    """Return the quota of a limit in the cgroup's period; unlimited without a limit."""
    quota = quota_of_milli(limit_milli)
    period = view.cgroups.number(CgroupFile.CFS_PERIOD, folder) or CFS_PERIOD_US
    if period == CFS_PERIOD_US or quota <= 0:
        return quota
    return max(limit_milli * period // 1000, MIN_QUOTA_US)


def _is_limited(
    view: NodeView, limits: CpuLimits, container: ContainerView, current_us: int
) -> bool:
    """Return whether the kubelet sets a quota for a container.

    Its CPU manager sets none for exclusive CPUs; kubelets up to 1.33 set none for a container
    that is only limited by its pod.
    """
    if not limits.of(container.name):
        return False
    if current_us >= 0:
        return True
    return container.cpu_limit_milli > 0 and view.machine.kubelet_policy != "static"


def _present(last: _Written | None, current_us: int, base_us: int, granted_us: int) -> int:
    """Return the present quota relative to the base; the part above the base is burst.

    A quota that was not written here is the kubelet's, unless it exceeds the kubelet's value: in
    that case the agent raised it before a restart.
    """
    if last is None or current_us not in {last.quota, last.before}:
        return current_us if current_us > granted_us else base_us
    if last.base == base_us or last.base <= 0:
        return current_us
    return current_us * base_us // last.base
