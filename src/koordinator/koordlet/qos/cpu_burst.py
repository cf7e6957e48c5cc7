"""Latency-sensitive pods may go beyond their CPU limit while the node has CPUs to spare.

``cpu.cfs_burst_us`` lets a container use later what it did not use before; its quota is raised
while it is throttled and lowered again when the node gets busy.
Source: koordinator pkg/koordlet/qosmanager/plugins/cpuburst/cpu_burst.go.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import numpy as np

from koordinator.api.node_slo import CpuBurstSettings, CpuBurstStrategy
from koordinator.api.qos import QosClass
from koordinator.domain.cgroups.files import CFS_PERIOD_US, CgroupFile, quota_of_milli
from koordinator.koordlet.intents import Intent, SetCgroup
from koordinator.koordlet.metrics import Metric
from koordinator.koordlet.qos.burst_limiter import BurstLimiter
from koordinator.koordlet.qos.inputs import StrategyInputs
from koordinator.koordlet.view.pods import ContainerView, PodView

_UP, _DOWN = 1.2, 0.8
_COOLING = 0.9  # of the threshold
_LONGEST_WINDOW_S = 10.0
_NOT_BURSTABLE: Final = frozenset({QosClass.LSE, QosClass.LSR, QosClass.BE})
_OWN_CPUS: Final = frozenset({QosClass.LSE, QosClass.LSR})


class SharePoolState(StrEnum):
    """How busy the CPUs are that pods share."""

    OVERLOAD = "overload"
    COOLING = "cooling"
    IDLE = "idle"
    UNKNOWN = "unknown"


class CfsQuotaOperation(StrEnum):
    """What happens to the quota of a container."""

    UP = "up"
    DOWN = "down"
    REMAIN = "remain"
    RESET = "reset"


#: What the state of the node makes of an operation; what is not here stays as it is.
OVERRIDES: Final[Mapping[tuple[SharePoolState, CfsQuotaOperation], CfsQuotaOperation]] = {
    (SharePoolState.OVERLOAD, CfsQuotaOperation.UP): CfsQuotaOperation.DOWN,
    (SharePoolState.OVERLOAD, CfsQuotaOperation.REMAIN): CfsQuotaOperation.DOWN,
    (SharePoolState.COOLING, CfsQuotaOperation.UP): CfsQuotaOperation.REMAIN,
    (SharePoolState.UNKNOWN, CfsQuotaOperation.UP): CfsQuotaOperation.REMAIN,
}


class CpuBurst:
    """Remembers, by container, how much burst is left.  ``chance`` fills new limiters."""

    def __init__(self, chance: np.random.Generator) -> None:
        self._chance = chance
        self._limiters: dict[str, BurstLimiter] = {}

    def plan(self, inputs: StrategyInputs) -> list[Intent]:
        """Return what burst is to be set, for all pods that may have any."""
        view = inputs.view
        strategy = view.slo.cpu_burst_strategy or CpuBurstStrategy()
        state = node_state(inputs, strategy.share_pool_threshold_percent or 0)
        intents: list[Intent] = []
        for pod in view.active_pods:
            if pod.labelled_qos in _NOT_BURSTABLE:
                continue
            settings = pod.burst_settings(strategy)
            intents += _fixed_burst(pod, settings)
            intents += self._quota_burst(inputs, pod, settings, state)
        self._forget(view.now_s)
        return intents

    def _quota_burst(
        self,
        inputs: StrategyInputs,
        pod: PodView,
        settings: CpuBurstSettings,
        state: SharePoolState,
    ) -> list[Intent]:
        cgroups = inputs.view.cgroups
        changes: list[Intent] = []
        delta = 0
        reason = ""
        for container in pod.containers:
            base = quota_of_milli(container.cpu_limit_milli)
            if base <= 0:
                continue
            current = cgroups.number(CgroupFile.CFS_QUOTA, container.folder)
            if current is None:
                continue
            wish = self._operation(inputs, container, settings)
            operation = OVERRIDES.get((state, wish), wish)
            target = target_quota(current, base, operation, settings.cfs_quota_burst_percent)
            if target == current:
                continue
            delta += target - current
            reason = f"CPU burst: {wish}, node is {state}: quota goes {operation}"
            owner = f"{pod.key}/{container.name}"
            changes.append(
                SetCgroup(CgroupFile.CFS_QUOTA, container.folder, str(target), reason, owner)
            )
        if not changes:
            return []
        of_pod = cgroups.number(CgroupFile.CFS_QUOTA, pod.folder)
        if of_pod is None:
            return []  # the pod has vanished
        if of_pod > 0:
            value = str(of_pod + delta)
            changes.append(SetCgroup(CgroupFile.CFS_QUOTA, pod.folder, value, reason, pod.key))
        return changes

    def _operation(
        self, inputs: StrategyInputs, container: ContainerView, settings: CpuBurstSettings
    ) -> CfsQuotaOperation:
        allowed = self._is_allowed(inputs, container, settings)
        if settings.policy not in {"auto", "cfsQuotaBurstOnly"}:
            return CfsQuotaOperation.RESET
        if not allowed:
            return CfsQuotaOperation.DOWN
        throttled = inputs.last(Metric.CONTAINER_THROTTLED, container.id)
        return (
            CfsQuotaOperation.UP
            if throttled is not None and throttled > 0
            else CfsQuotaOperation.REMAIN
        )

    def _is_allowed(
        self, inputs: StrategyInputs, container: ContainerView, settings: CpuBurstSettings
    ) -> bool:
        period_s, percent = (
            settings.cfs_quota_burst_period_seconds,
            settings.cfs_quota_burst_percent,
        )
        if period_s is None or period_s < 0:
            return True
        if percent is None or percent < 100:  # noqa: PLR2004 -- percent
            return False
        limit = container.cpu_limit_milli / 1000
        used = inputs.last(Metric.CONTAINER_CPU, container.id)
        now_s = inputs.view.now_s
        limiter = self._limiters.get(container.id)
        if limiter is None or limiter.capacity != period_s * (percent - 100):
            limiter = BurstLimiter(period_s, percent, now_s, float(self._chance.random()))
            self._limiters[container.id] = limiter
        return limiter.allows(int((limit if used is None else used) / limit * 100), now_s)

    def _forget(self, now_s: float) -> None:
        for key in [key for key, found in self._limiters.items() if found.is_expired(now_s)]:
            del self._limiters[key]


def node_state(inputs: StrategyInputs, threshold_percent: int) -> SharePoolState:
    """Return how busy the shared CPUs were on average in the last five intervals."""
    view = inputs.view
    window_s = min(5 * inputs.interval_s, _LONGEST_WINDOW_S)
    node = inputs.window(Metric.NODE_CPU, window_s)
    if node is None or not view.machine.cpus:
        return SharePoolState.UNKNOWN
    total, used = float(len(view.machine.cpus)), node.average()
    for pod in view.active_pods:
        if pod.labelled_qos in _OWN_CPUS:
            total -= pod.requests.get("cpu", 0) / 1000
        if pod.labelled_qos in _NOT_BURSTABLE:
            of_pod = inputs.window(Metric.POD_CPU, window_s, pod.uid)
            used -= of_pod.average() if of_pod is not None else 0.0
    ratio = used / total if total > 0 else 1.0
    threshold = threshold_percent / 100
    if ratio >= threshold:
        return SharePoolState.OVERLOAD
    return SharePoolState.COOLING if ratio >= threshold * _COOLING else SharePoolState.IDLE


def target_quota(current: int, base: int, operation: CfsQuotaOperation, percent: int | None) -> int:
    """Return the quota after an operation, from ``base`` to ``percent`` of it."""
    ceiling = base
    if percent is not None and percent > 100:  # noqa: PLR2004 -- percent
        ceiling = int(base * float(percent) / 100)
    match operation:
        case CfsQuotaOperation.UP:
            wanted = int(current * _UP)
        case CfsQuotaOperation.DOWN:
            wanted = int(current * _DOWN)
        case CfsQuotaOperation.RESET:
            wanted = base
        case CfsQuotaOperation.REMAIN:
            wanted = current
    return max(base, min(wanted, ceiling))


def burst_us(limit_milli: int, settings: CpuBurstSettings) -> int:
    """Return ``cpu.cfs_burst_us`` of a container; 0 if its policy has none, or it has no limit.

    Source: ``calcStaticCPUBurstVal``.
    """
    percent = settings.cpu_burst_percent
    if settings.policy not in {"auto", "cpuBurstOnly"} or percent is None or limit_milli <= 0:
        return 0
    return int((limit_milli / 1000) * (percent / 100) * CFS_PERIOD_US)


def _fixed_burst(pod: PodView, settings: CpuBurstSettings) -> list[Intent]:
    reason = f"CPU burst: policy {settings.policy}, {settings.cpu_burst_percent} % of the limit"
    intents: list[Intent] = []
    total = 0
    for container in pod.containers:
        value = burst_us(container.cpu_limit_milli, settings)
        total += value
        owner = f"{pod.key}/{container.name}"
        intents.append(SetCgroup(CgroupFile.CFS_BURST, container.folder, str(value), reason, owner))
    intents.append(SetCgroup(CgroupFile.CFS_BURST, pod.folder, str(total), reason, pod.key))
    return intents
