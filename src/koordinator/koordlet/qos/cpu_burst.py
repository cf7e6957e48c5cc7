"""CPU burst: latency-sensitive pods may exceed their CPU limit while the node has idle CPUs.

With ``cpu.cfs_burst_us`` a container can use CPU time later that it did not use before.  The quota
of a throttled container is raised, and lowered again when the node becomes busy.
Source: koordinator pkg/koordlet/qosmanager/plugins/cpuburst/cpu_burst.go.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import numpy as np

from koordinator.api.node_slo import CpuBurstSettings, CpuBurstStrategy
from koordinator.api.qos import QosClass
from koordinator.domain.cgroups.files import CFS_PERIOD_US, CgroupFile
from koordinator.koordlet.intents import Intent, SetCgroup
from koordinator.koordlet.metrics import Metric
from koordinator.koordlet.qos.cpu_quota import CpuQuotas, QuotaRequest, QuotaRequester
from koordinator.koordlet.qos.eviction import StrategyInputs
from koordinator.koordlet.view.cpus import CpuLimits
from koordinator.koordlet.view.node_view import NodeView
from koordinator.koordlet.view.pods import ContainerView, PodView

_CONSUMING_PERCENT = 100
_SAVING_PERCENT = 60
_INITIAL_SHARE = 0.5

_UP, _DOWN = 1.2, 0.8
_COOLING = 0.9  # of the threshold
_LONGEST_WINDOW_S = 10.0
_NOT_BURSTABLE: Final = frozenset({QosClass.LSE, QosClass.LSR, QosClass.BE})
_NO_LIMITS: Final = CpuLimits(0, {})
_LARGEST_US: Final = 1 << 62
_OWN_CPUS: Final = frozenset({QosClass.LSE, QosClass.LSR})


class BurstLimiter:
    """Bucket of percent times seconds; ``chance`` in [0, 1) determines the initial tokens.

    The bucket fills in ``period_s`` without usage, and is empty after ``period_s`` of usage at
    ``percent`` of the limit.
    """

    def __init__(self, period_s: int, percent: int, now_s: float, chance: float) -> None:
        self.capacity = period_s * (percent - 100)
        self.tokens = int(self.capacity * chance * _INITIAL_SHARE)
        self._period_s = period_s
        self._updated_s = now_s

    def allows(self, usage_percent: int, now_s: float) -> bool:
        """Account the usage since the last call, in percent; return whether tokens remain."""
        elapsed_s = int(now_s - self._updated_s)
        if usage_percent >= _CONSUMING_PERCENT:
            self.tokens -= (usage_percent - 100) * elapsed_s
        elif usage_percent < _SAVING_PERCENT:
            self.tokens += (100 - usage_percent) * elapsed_s
        self.tokens = max(min(self.tokens, self.capacity), -self.capacity)
        self._updated_s = now_s
        return self.tokens > 0

    def is_expired(self, now_s: float) -> bool:
        """Return whether the bucket was not used for two periods."""
        return now_s - self._updated_s > 2 * self._period_s


class SharePoolState(StrEnum):
    """Load of the shared CPUs."""

    OVERLOAD = "overload"
    COOLING = "cooling"
    IDLE = "idle"
    UNKNOWN = "unknown"


class CfsQuotaOperation(StrEnum):
    """Change of a container's quota."""

    UP = "up"
    DOWN = "down"
    REMAIN = "remain"
    RESET = "reset"


#: Operation that replaces another one in a state of the node; other combinations are kept.
OVERRIDES: Final[Mapping[tuple[SharePoolState, CfsQuotaOperation], CfsQuotaOperation]] = {
    (SharePoolState.OVERLOAD, CfsQuotaOperation.UP): CfsQuotaOperation.DOWN,
    (SharePoolState.OVERLOAD, CfsQuotaOperation.REMAIN): CfsQuotaOperation.DOWN,
    (SharePoolState.COOLING, CfsQuotaOperation.UP): CfsQuotaOperation.REMAIN,
    (SharePoolState.UNKNOWN, CfsQuotaOperation.UP): CfsQuotaOperation.REMAIN,
}


class CpuBurst:
    """Planner of CPU quotas and bursts of all pods on shared CPUs.

    It remembers the remaining burst by container, and the written quotas.  ``chance`` fills new
    limiters.  ``bursts`` and ``normalizes`` are the feature gates; ``frees_bound`` means that the
    CPU set hook lifts the quotas of pods with bound CPUs.
    """

    def __init__(
        self,
        chance: np.random.Generator,
        *,
        bursts: bool = True,
        normalizes: bool = False,
        frees_bound: bool = False,
    ) -> None:
        self._chance = chance
        self._bursts = bursts
        self._normalizes = normalizes
        self._frees_bound = frees_bound
        self._limiters: dict[str, BurstLimiter] = {}
        self._quotas = CpuQuotas()

    def plan(self, inputs: StrategyInputs) -> list[Intent]:
        """Return the quotas and bursts of all pods that the features apply to."""
        view = inputs.view
        strategy = view.slo.cpu_burst_strategy or CpuBurstStrategy()
        state = node_state(inputs, strategy.share_pool_threshold_percent or 0)
        intents: list[Intent] = []
        for pod in view.active_pods:
            if self._frees_bound and pod.bound_cpus:
                continue
            bursts = self._bursts and pod.labelled_qos not in _NOT_BURSTABLE
            ratio = view.cpu_ratio(pod) if self._normalizes else None
            if not bursts and ratio is None and not self._quotas.knows(pod):
                continue
            settings = pod.burst_settings(strategy) if bursts else CpuBurstSettings(policy="none")
            observed = self._quotas.observe(view, pod)
            if observed is None:
                continue
            limits, is_changing = observed
            if bursts:
                intents += _fixed_burst(pod, settings, _NO_LIMITS if is_changing else limits)
            if is_changing:
                intents += self._quotas.make_room(view, pod)
            else:
                requester = self._requester(inputs, settings, state, limits, ratio)
                intents += self._quotas.plan(view, pod, ratio, requester)
        self._forget(view)
        return intents

    def _requester(
        self,
        inputs: StrategyInputs,
        settings: CpuBurstSettings,
        state: SharePoolState,
        limits: CpuLimits,
        ratio: float | None,
    ) -> QuotaRequester:
        """Return the function that computes the quota requests of one pod's containers."""
        percent = settings.cfs_quota_burst_percent
        is_normalized = ratio is not None and ratio > 1
        normal = f"CPU normalization: ratio {ratio:g}" if is_normalized else ""

        def request(container: ContainerView, base: int, present: int) -> QuotaRequest:
            limit = limits.of(container.name) / 1000
            requested = self._operation(inputs, container, limit, settings)
            operation = OVERRIDES.get((state, requested), requested)
            quota = target_quota(present, base, operation, percent)
            burst = f"CPU burst: {requested}, node is {state}: quota operation {operation}"
            is_plain = operation is CfsQuotaOperation.RESET and is_normalized
            reason = normal if is_plain else ", ".join(filter(None, (normal, burst)))
            ceiling = target_quota(_LARGEST_US, base, CfsQuotaOperation.REMAIN, percent)
            return QuotaRequest(quota, ceiling, reason)

        return request

    def _operation(
        self,
        inputs: StrategyInputs,
        container: ContainerView,
        limit: float,
        settings: CpuBurstSettings,
    ) -> CfsQuotaOperation:
        """Return the operation for a container with a limit in cores."""
        allowed = self._is_allowed(inputs, container, limit, settings)
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
        self,
        inputs: StrategyInputs,
        container: ContainerView,
        limit: float,
        settings: CpuBurstSettings,
    ) -> bool:
        period_s, percent = (
            settings.cfs_quota_burst_period_seconds,
            settings.cfs_quota_burst_percent,
        )
        if period_s is None or period_s < 0:
            return True
        if percent is None or percent < 100:  # noqa: PLR2004 -- percent
            return False
        used = inputs.last(Metric.CONTAINER_CPU, container.id)
        now_s = inputs.view.now_s
        limiter = self._limiters.get(container.id)
        if limiter is None or limiter.capacity != period_s * (percent - 100):
            limiter = BurstLimiter(period_s, percent, now_s, float(self._chance.random()))
            self._limiters[container.id] = limiter
        return limiter.allows(int((limit if used is None else used) / limit * 100), now_s)

    def _forget(self, view: NodeView) -> None:
        self._quotas.forget([pod.uid for pod in view.active_pods])
        expired = [key for key, each in self._limiters.items() if each.is_expired(view.now_s)]
        for key in expired:
            del self._limiters[key]


def node_state(inputs: StrategyInputs, threshold_percent: int) -> SharePoolState:
    """Return the state from the average usage of the shared CPUs in the last five intervals."""
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
    """Return the quota after an operation, between ``base`` and ``percent`` of it."""
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
    """Return ``cpu.cfs_burst_us`` of a container; 0 without burst policy or without a limit.

    Source: ``calcStaticCPUBurstVal``.
    """
    percent = settings.cpu_burst_percent
    if settings.policy not in {"auto", "cpuBurstOnly"} or percent is None or limit_milli <= 0:
        return 0
    return int((limit_milli / 1000) * (percent / 100) * CFS_PERIOD_US)


def _fixed_burst(pod: PodView, settings: CpuBurstSettings, limits: CpuLimits) -> list[Intent]:
    """Return the bursts of a pod and its containers.

    The kernel rejects a quota below the burst, so the burst is 0 while limits change.
    """
    reason = f"CPU burst: policy {settings.policy}, {settings.cpu_burst_percent} % of the limit"
    intents: list[Intent] = []
    total = 0
    for container in pod.containers:
        value = burst_us(limits.of(container.name), settings)
        total += value
        owner = f"{pod.key}/{container.name}"
        intents.append(SetCgroup(CgroupFile.CFS_BURST, container.folder, str(value), reason, owner))
    if limits.pod:
        total = burst_us(limits.pod, settings)
    intents.append(SetCgroup(CgroupFile.CFS_BURST, pod.folder, str(total), reason, pod.key))
    return intents
