"""Controller of NodeMetrics: the manager writes the collect policy, koordlet the measurements.

Source: koordinator pkg/slo-controller/nodemetric/nodemetric_controller.go, collect_policy.go.
"""

from collections.abc import Sequence

from koordinator.api.annotations.node import ColocationStrategy
from koordinator.api.codec import merge_patch
from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node
from koordinator.api.node_metric import MetricCollectPolicy, NodeMetric, NodeMetricSpec
from koordinator.api.slo_config import COLOCATION
from koordinator.manager.configuration import defaults
from koordinator.manager.configuration.strategies import Strategies, is_valid
from koordinator.manager.writes import Create, Delete, Patch, Write


def reconcile_node_metric(
    node: Node | None, metric: NodeMetric | None, strategies: Strategies
) -> Sequence[Write]:
    """Return the writes that create, update or delete the NodeMetric of a node.

    While the configuration is invalid, existing NodeMetrics keep their spec.
    """
    config = strategies.config
    if node is None:
        if metric is None or config.colocation is None:
            return ()
        return (Delete(NodeMetric, metric.metadata.name, metric.metadata.uid),)
    strategy = strategies.of(node.metadata).written
    if strategy is None:
        return ()
    spec = NodeMetricSpec(metric_collect_policy=_collect_policy(strategy))
    if metric is None:
        return (Create(NodeMetric(metadata=ObjectMeta(name=node.metadata.name), spec=spec)),)
    if COLOCATION in config.rejected or spec == metric.spec:
        return ()
    wanted = NodeMetric(metadata=metric.metadata, spec=spec, status=metric.status)
    return (Patch(NodeMetric, metric.metadata.name, merge_patch(metric, wanted)),)


def _collect_policy(strategy: ColocationStrategy) -> MetricCollectPolicy:
    if not strategy.enable or not is_valid(strategy):
        strategy = defaults.COLOCATION
    return MetricCollectPolicy(
        aggregate_duration_seconds=strategy.metric_aggregate_duration_seconds,
        report_interval_seconds=strategy.metric_report_interval_seconds,
        node_aggregate_policy=strategy.metric_aggregate_policy,
        node_memory_collect_policy=strategy.metric_memory_collect_policy,
    )
