"""System usage: the usage of the node outside of pods and host applications.

It is derived from samples of the same round, and omitted while one of them is missing.
Source: koordinator pkg/koordlet/metricsadvisor/collectors/sysresource.
"""

from collections.abc import Iterable

from koordinator.koordlet.collectors.context import CollectionContext
from koordinator.koordlet.metrics import Metric
from koordinator.koordlet.metrics.names import MEMORY_METRICS


class SystemCollector:
    """Collector of system usage; ``outdated_s`` is the maximum age of an input."""

    def __init__(self, outdated_s: float) -> None:
        self._outdated_s = outdated_s

    def collect(self, context: CollectionContext, now_s: float) -> None:
        cpu = self._rest(context, Metric.NODE_CPU, Metric.POD_CPU, Metric.HOST_APP_CPU, now_s)
        memory = {
            series.system: self._rest(
                context, series.node, series.pod, series.host_application, now_s
            )
            for series in MEMORY_METRICS.values()
        }
        if cpu is None or memory[Metric.SYSTEM_MEMORY] is None:
            return
        context.store.add(Metric.SYSTEM_CPU, "", now_s, cpu)
        for metric, rest in memory.items():
            if rest is not None:
                context.store.add(metric, "", now_s, rest)
        self._numa(context, cpu, now_s)

    def _rest(
        self,
        context: CollectionContext,
        node: Metric,
        pods: Metric,
        applications: Metric,
        now_s: float,
    ) -> float | None:
        total = context.store.last(node, "", now_s - self._outdated_s)
        if total is None:
            return None
        taken = self._sum(context, pods, (pod.uid for pod in context.active_pods), now_s)
        names = (application.name for application in context.slo.host_applications)
        return max(total - taken - self._sum(context, applications, names, now_s), 0.0)

    def _sum(
        self, context: CollectionContext, metric: Metric, owners: Iterable[str], now_s: float
    ) -> float:
        oldest_s = now_s - self._outdated_s
        values = (context.store.last(metric, owner, oldest_s) for owner in owners)
        return sum(value for value in values if value is not None)

    def _numa(self, context: CollectionContext, system_cpu: float, now_s: float) -> None:
        """Distribute the system's CPU usage over NUMA nodes by their usage; measure memory."""
        store, oldest_s = context.store, now_s - self._outdated_s
        nodes = [str(node) for node in context.machine.numa_nodes]
        busy = {node: store.last(Metric.NUMA_CPU, node, oldest_s) for node in nodes}
        total = sum(value for value in busy.values() if value is not None)
        for node in nodes:
            used = busy[node]
            if used is not None:
                share = system_cpu * used / total if total > 0 else 0.0
                store.add(Metric.SYSTEM_NUMA_CPU, node, now_s, share)
            memory = store.last(Metric.NUMA_MEMORY, node, oldest_s)
            if memory is None:
                continue
            owners = (f"{pod.uid}/{node}" for pod in context.active_pods)
            of_pods = self._sum(context, Metric.POD_NUMA_MEMORY, owners, now_s)
            store.add(Metric.SYSTEM_NUMA_MEMORY, node, now_s, max(memory - of_pods, 0.0))
