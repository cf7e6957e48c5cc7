"""CPU usage, requests and limit of the best-effort tier.

Source: koordinator pkg/koordlet/metricsadvisor/collectors/beresource.
"""

from koordinator.api.qos import QosClass
from koordinator.api.resource_names import BATCH_CPU
from koordinator.domain.cgroups.files import CFS_PERIOD_US, CgroupFile
from koordinator.foundation.errors import HostError, InputError
from koordinator.koordlet.cgroup_readings import cpu_usage_ns
from koordinator.koordlet.collectors.context import CollectionContext, Counters
from koordinator.koordlet.metrics import Metric

_NANOS = 1e9
_MILLI = 1000


class BestEffortCollector:
    """Collector over the cgroups of the best-effort tier and of its containers."""

    def __init__(self, interval_s: float) -> None:
        self._counters = Counters(interval_s)

    def collect(self, context: CollectionContext, now_s: float) -> None:
        cgroups, store, folder = context.cgroups, context.store, context.layout.besteffort
        limit_milli = self._limit_milli(context)
        if limit_milli is not None:
            store.add(Metric.BE_CPU_LIMIT, "", now_s, limit_milli)
        pods = (pod for pod in context.active_pods if pod.qos is QosClass.BE)
        requested = (pod.requests.get(BATCH_CPU, 0) for pod in pods)
        store.add(Metric.BE_CPU_REQUEST, "", now_s, sum(requested))
        try:
            used_ns = cpu_usage_ns(cgroups.read(CgroupFile.CPU_USAGE, folder), cgroups.version)
        except (HostError, InputError):
            return
        rate = context.add_rate(self._counters, (Metric.BE_CPU, ""), now_s, used_ns / _NANOS)
        if rate is not None:
            store.add(Metric.BE_CPU, "", now_s, rate)

    @staticmethod
    def _limit_milli(context: CollectionContext) -> int | None:
        """Return the smaller of the smallest CPU set and the quota; None without a CPU set."""
        cgroups, tier = context.cgroups, context.layout.besteffort
        folders = [tier]
        for pod in cgroups.below(tier):
            folders += cgroups.below(pod)
        sizes = [mask.bit_count() for f in folders if (mask := cgroups.cpus(f))]
        if not sizes:
            return None
        by_set = min(sizes) * _MILLI
        quota_us = cgroups.number(CgroupFile.CFS_QUOTA, tier)
        if quota_us is None or quota_us <= 0:
            return by_set
        period_us = cgroups.number(CgroupFile.CFS_PERIOD, tier) or CFS_PERIOD_US
        return min(by_set, quota_us * _MILLI // period_us)
