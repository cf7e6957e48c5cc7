"""Metrics of the YARN operator; the gauges of nodes have the original's names.

Source: yarn-copilot pkg/yarn/metrics.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from koordinator.hadoop.amounts import BYTES_PER_MIB
from koordinator.hadoop.port import YarnNode

NodesByCluster = Mapping[str, Mapping[str, YarnNode]]  # by cluster, then by id
_LABELS = ("instance", "cluster")


class YarnMetrics(Collector):
    """Gauges of NodeManagers, collected at each scrape, and counters of writes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._nodes: NodesByCluster = MappingProxyType({})
        self._readable: Mapping[str, bool] = MappingProxyType({})
        registry.register(self)
        self._limits = Counter(
            "koord_yarn_operator_limits",
            "Limits of NodeManagers: settled, refused, or failed, which may still take effect.",
            ("cluster", "status"),
            registry=registry,
        )
        self._promises = Counter(
            "koord_yarn_operator_promises",
            "Writes of the annotation thirdPartyAllocations.",
            ("status",),
            registry=registry,
        )

    def show(self, nodes: NodesByCluster, readable: Mapping[str, bool]) -> None:
        """Set the nodes to export; the caller must not modify them afterwards."""
        self._nodes, self._readable = nodes, readable

    def limited(self, cluster: str, status: str) -> None:
        """Count a limit."""
        self._limits.labels(cluster, status).inc()

    def promised(self, *, succeeded: bool) -> None:
        """Count a write of an annotation."""
        self._promises.labels("succeeded" if succeeded else "failed").inc()

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Return the metric families for a scrape."""
        cpu = _gauge("yarn_node_cpu_resource", "vcores that the NodeManager has")
        memory = _gauge("yarn_node_memory_resource", "bytes that the NodeManager has")
        used_cpu = _gauge("yarn_node_cpu_allocated_resource", "vcores that containers have")
        used = _gauge("yarn_node_memory_allocated_resource", "bytes that containers have")
        for cluster, nodes in self._nodes.items():
            for node in tuple(nodes.values()):
                labels = (node.node_id.rpartition(":")[0], cluster)
                cpu.add_metric(labels, node.limit.vcores)
                memory.add_metric(labels, node.limit.memory_mb * BYTES_PER_MIB)
                used_cpu.add_metric(labels, node.used.vcores)
                used.add_metric(labels, node.used.memory_mb * BYTES_PER_MIB)
        up = GaugeMetricFamily(
            "koord_yarn_operator_cluster_up",
            "Whether the cluster's active ResourceManager was read at the last attempt.",
            labels=("cluster",),
        )
        for cluster, readable in self._readable.items():
            up.add_metric((cluster,), float(readable))
        return (cpu, memory, used_cpu, used, up)


def _gauge(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=_LABELS)
