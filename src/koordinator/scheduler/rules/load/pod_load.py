"""Estimated usage of a pod, and its contribution to the load of its node.

A pod that is not measured, or not fully yet, counts with its estimate minus the measured usage, if
that is positive. Source: koordinator pkg/scheduler/plugins/loadaware:
estimator/default_estimator.go, pod_assign_cache.go (``addPod``, ``shouldEstimatePodDeadline``);
apis/extension/load_aware.go.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from koordinator.api.annotations.pod_qos import (
    ESTIMATED_SCALING_FACTORS,
    ESTIMATED_SECONDS_AFTER_INITIALIZED,
    ESTIMATED_SECONDS_AFTER_SCHEDULED,
)
from koordinator.api.annotations.reservation import RESERVE_POD
from koordinator.api.conditions import find_condition
from koordinator.api.meta import ObjectMeta
from koordinator.api.node_metric import PodUsage
from koordinator.api.pod import Pod, PodSpec
from koordinator.api.qos import PriorityBand, band_of
from koordinator.api.resource_names import (
    BATCH_CPU,
    BATCH_MEMORY,
    CPU,
    MEMORY,
    resource_of_band,
)
from koordinator.domain.pod_requests import pod_limits, pod_requests
from koordinator.domain.resized_pods import EffectiveAmounts
from koordinator.foundation.clock import to_epoch_s
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.rules.curves import round_half_away
from koordinator.scheduler.rules.load.rules import LoadAmounts, LoadRules, NodeMeasurement

#: Estimated usage of a pod without requests: milli-CPU, bytes.
DEFAULT_USE: Mapping[str, int] = {
    CPU: 250,
    BATCH_CPU: 250,
    MEMORY: 200 * 1024 * 1024,
    BATCH_MEMORY: 200 * 1024 * 1024,
}


_PROD: Final = str(PriorityBand.PROD)


class Sum(IntEnum):
    """Sums over the pods of a node."""

    DELTA = 0  # estimates beyond measured usage
    PROD_DELTA = 1  # estimates of prod pods beyond measured prod usage
    ESTIMATED = 2  # whole estimates
    PROD_USAGE = 3  # measured usage of pods that are, and were, prod


#: Contribution of a pod to the sums of its node: by Sum, then by resource of the rules.
Addends = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PodLoad:
    """Load parameters shared by pods of one kind."""

    estimate: LoadAmounts
    is_prod: bool
    counts: bool = True  # False: a reserve pod, without usage of its own
    after_scheduled_s: int = 0  # minimum time of estimation; 0: unset
    after_initialized_s: int = 0

    def unreported(self) -> Addends:
        """Return the contribution of an unmeasured pod."""
        use, nothing = self.estimate, (0,) * len(self.estimate)
        if not self.counts:
            return nothing * len(Sum)
        return use + (use if self.is_prod else nothing) + use + nothing

    def measured_addends(self) -> Addends | None:
        """Return the contribution of a fully measured pod.

        None if it depends on the measurement, or on the time of scheduling.
        """
        nothing = (0,) * len(self.estimate)
        if not self.counts:
            return nothing * len(Sum)
        if self.is_prod or self.after_scheduled_s or self.after_initialized_s:
            return None
        return nothing + nothing + self.estimate + nothing

    def reported(
        self,
        measured: NodeMeasurement,
        report: PodUsage,
        rules: LoadRules,
        pod: Pod,
        since_s: float,
    ) -> Addends:
        """Return the contribution of a measured pod that has had its node since ``since_s``."""
        nothing, estimate = (0,) * len(self.estimate), self.estimate
        if not self.counts:
            return nothing * len(Sum)
        is_estimated = self._counts_as_estimated(measured, pod, since_s)
        if not (is_estimated or self.is_prod):
            return nothing + nothing + estimate + nothing
        usage = rules.amounts(report.pod_usage.resources)
        delta = tuple(map(_beyond, estimate, usage)) if is_estimated else nothing
        if not self.is_prod:
            return delta + nothing + estimate + nothing
        if report.priority != _PROD:
            return delta + estimate + estimate + nothing
        return delta + delta + estimate + usage

    def _counts_as_estimated(self, measured: NodeMeasurement, pod: Pod, since_s: float) -> bool:
        """Return whether the measurement is too old for the pod, or configured to count as such."""
        if since_s > measured.updated_s - measured.interval_s:
            return True
        if self.after_initialized_s > 0:
            initialized_s = _true_since(pod, "Initialized")
            if initialized_s is not None:
                return initialized_s + self.after_initialized_s > measured.updated_s
        deadline_s = since_s + self.after_scheduled_s
        return self.after_scheduled_s > 0 and deadline_s > measured.updated_s


def scheduled_s(pod: Pod) -> float | None:
    """Return the time of the PodScheduled condition, None if there is none."""
    return _true_since(pod, "PodScheduled")


def pod_load(
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    spec: PodSpec,
    rules: LoadRules,
    effective: EffectiveAmounts | None = None,
) -> PodLoad:
    """Return the load parameters of a pod; invalid annotations are ignored.

    ``effective`` are the amounts of a pod during a resize, in place of the spec's.
    """
    requests = pod_requests(spec) if effective is None else effective.requests
    limits = pod_limits(spec) if effective is None else effective.limits
    band = band_of(Pod(metadata=ObjectMeta(labels=dict(labels)), spec=spec))
    factors, after_scheduled_s, after_initialized_s = dict(rules.factors), None, None
    if rules.customised:
        meta = ObjectMeta(annotations=dict(annotations))
        factors |= _custom_factors(meta)
        after_scheduled_s = _seconds(annotations, ESTIMATED_SECONDS_AFTER_SCHEDULED)
        after_initialized_s = _seconds(annotations, ESTIMATED_SECONDS_AFTER_INITIALIZED)
    if after_scheduled_s is None:
        after_scheduled_s = rules.after_scheduled_s
    if after_initialized_s is None:
        after_initialized_s = rules.after_initialized_s
    return PodLoad(
        estimate=rules.numbers(estimated_use(requests, limits, band, factors)),
        is_prod=band is PriorityBand.PROD,
        counts=annotations.get(RESERVE_POD) != "true",
        after_scheduled_s=max(after_scheduled_s or 0, 0),
        after_initialized_s=max(after_initialized_s or 0, 0),
    )


def estimated_use(
    requests: Mapping[str, int],
    limits: Mapping[str, int],
    band: PriorityBand,
    factors: Mapping[str, int],
) -> dict[str, int]:
    """Return the estimated usage by resource, from requests or limits and factors.

    Pods of bands batch and mid request their own kinds of CPU and memory; batch and mid CPU is in
    thousandths already.
    """
    used: dict[str, int] = {}
    for resource, factor in factors.items():
        name = resource_of_band(band, resource)
        if name is None:
            used[resource] = 0
            continue
        limit = limits.get(name, 0)
        amount = max(limit, requests.get(name, 0))
        if not amount:
            used[resource] = DEFAULT_USE.get(name, 0)
            continue
        use = max(round_half_away(float(amount) * float(factor) / 100), 0)
        used[resource] = min(use, limit) if limit > 0 else use
    return used


def _custom_factors(meta: ObjectMeta) -> Mapping[str, int]:
    try:
        return ESTIMATED_SCALING_FACTORS.read(meta) or {}
    except InputError:
        return {}


def _seconds(annotations: Mapping[str, str], key: str) -> int | None:
    """Parse a number of seconds; None if it is missing, invalid or negative."""
    try:
        seconds = int(annotations.get(key, ""))
    except ValueError:
        return None
    return seconds if seconds >= 0 else None


def _beyond(estimate: int, usage: int) -> int:
    return estimate - usage if estimate > usage else 0


def _true_since(pod: Pod, kind: str) -> float | None:
    condition = find_condition(pod.status.conditions, kind)
    if condition is None or condition.status != "True" or condition.last_transition_time is None:
        return None
    return to_epoch_s(condition.last_transition_time)
