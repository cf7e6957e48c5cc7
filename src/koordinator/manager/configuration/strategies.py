"""Strategies of one node, resolved from the configuration.

Source: koordinator pkg/util/sloconfig/colocation_config.go, ``GetNodeColocationStrategy``,
``UpdateColocationStrategyForNode``; pkg/slo-controller/nodeslo/resource_strategy.go.
"""

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from koordinator.api import labels as keys
from koordinator.api import node_slo
from koordinator.api.annotations.node import (
    COLOCATION_STRATEGY,
    ColocationStrategy,
    read_network_bandwidth,
)
from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node
from koordinator.api.node_slo import (
    CpuBurstStrategy,
    NodeSloSpec,
    ResourceThresholdStrategy,
    SystemStrategy,
    overlaid,
)
from koordinator.api.resource_qos import ResourceQosStrategy
from koordinator.api.slo_config import (
    ColocationConfig,
    CpuNormalizationConfig,
    CpuNormalizationStrategy,
    ResourceAmplificationConfig,
    ResourceAmplificationStrategy,
)
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.manager.configuration import ranges
from koordinator.manager.configuration.ranges import (
    MINUTE_S,
    STATIC,
    USAGE,
    NodeEntry,
    Strategy,
    entry_for,
    range_problems,
)
from koordinator.manager.configuration.reader import SloConfig

_RATIO_LABELS = (
    (keys.CPU_RECLAIM_RATIO, "cpu_reclaim_threshold_percent"),
    (keys.MEMORY_RECLAIM_RATIO, "memory_reclaim_threshold_percent"),
    (keys.MID_STATIC_CPU_RESERVED_RATIO, "mid_static_cpu_reserved_percent"),
    (keys.MID_STATIC_MEMORY_RESERVED_RATIO, "mid_static_memory_reserved_percent"),
)
_PERCENT = 100
_MOST_KINDS = 1 << 12  # size of the cache of resolved strategies

StrategyT = TypeVar("StrategyT", bound=msgspec.Struct)


def colocation_strategy(config: ColocationConfig, meta: ObjectMeta) -> ColocationStrategy:
    """Return the strategy of a node: cluster < first matching entry < annotation < ratio labels.

    An annotation that can't be parsed is ignored.
    """
    strategy = overlaid(ranges.COLOCATION, config)
    entry = entry_for(config.node_configs, meta.labels)
    if entry is not None:
        strategy = overlaid(strategy, entry)
    try:
        annotated = COLOCATION_STRATEGY.read(meta)
    except InputError:
        annotated = None
    if annotated is not None:
        strategy = overlaid(strategy, annotated)
    percents = {
        name: percent
        for label, name in _RATIO_LABELS
        if (percent := _percent(meta.labels.get(label, ""))) is not None
    }
    return replace(strategy, **percents) if percents else strategy


def is_colocated(config: ColocationConfig, strategy: ColocationStrategy) -> bool:
    """Return whether the node offers batch and mid resources: cluster and node both enable it."""
    return bool(config.enable) and bool(strategy.enable)


def resolved(strategy: ColocationStrategy) -> Strategy:
    """Return a strategy with defaults for all fields that it does not set."""
    known = overlaid(ranges.COLOCATION, strategy)
    return Strategy(
        cpu_reclaim_percent=known.cpu_reclaim_threshold_percent or 0,
        memory_reclaim_percent=known.memory_reclaim_threshold_percent or 0,
        cpu_policy=known.cpu_calculate_policy or USAGE,
        memory_policy=known.memory_calculate_policy or USAGE,
        batch_cpu_percent=known.batch_cpu_threshold_percent,
        batch_memory_percent=known.batch_memory_threshold_percent,
        mid_is_static=known.mid_reclaim_mode == STATIC,
        mid_cpu_percent=known.mid_cpu_threshold_percent or 0,
        mid_memory_percent=known.mid_memory_threshold_percent or 0,
        mid_unallocated_percent=known.mid_unallocated_percent or 0,
        mid_static_cpu_percent=known.mid_static_cpu_reserved_percent or 0,
        mid_static_memory_percent=known.mid_static_memory_reserved_percent or 0,
        degrade_s=(known.degrade_time_minutes or 0) * MINUTE_S,
        update_s=known.update_time_threshold_seconds or 0,
        difference=known.resource_diff_threshold or 0.0,
    )


def is_valid(strategy: ColocationStrategy) -> bool:
    """Return whether all numbers of the strategy are within their ranges."""
    numbers = {
        "metricAggregateDurationSeconds": strategy.metric_aggregate_duration_seconds,
        "metricReportIntervalSeconds": strategy.metric_report_interval_seconds,
        "cpuReclaimThresholdPercent": strategy.cpu_reclaim_threshold_percent,
        "memoryReclaimThresholdPercent": strategy.memory_reclaim_threshold_percent,
        "degradeTimeMinutes": strategy.degrade_time_minutes,
        "updateTimeThresholdSeconds": strategy.update_time_threshold_seconds,
    }
    return not range_problems(numbers, "", one_sided=False)


def normalization_strategy(
    config: CpuNormalizationConfig, meta: ObjectMeta
) -> CpuNormalizationStrategy:
    """Return the CPU normalization strategy of a node."""
    strategy = overlaid(CpuNormalizationStrategy(enable=False), config)
    entry = entry_for(config.node_configs, meta.labels)
    return strategy if entry is None else overlaid(strategy, entry)


def amplification_strategy(
    config: ResourceAmplificationConfig, meta: ObjectMeta
) -> ResourceAmplificationStrategy:
    """Return the resource amplification strategy of a node."""
    strategy = overlaid(ResourceAmplificationStrategy(enable=False), config)
    entry = entry_for(config.node_configs, meta.labels)
    return strategy if entry is None else overlaid(strategy, entry)


@dataclass(frozen=True, slots=True)
class NodeStrategies:
    """Strategies of one node; None for a section that was never valid."""

    written: ColocationStrategy | None
    colocation: Strategy | None  # ``written``, resolved
    is_colocated: bool
    normalization: CpuNormalizationStrategy | None
    amplification: ResourceAmplificationStrategy | None


class Strategies:
    """A configuration with the resolved strategies of nodes, cached by the labels that it reads."""

    def __init__(self, config: SloConfig) -> None:
        self.config: Final = config
        lists: list[Iterable[NodeEntry]] = [
            section.node_configs
            for section in (config.colocation, config.normalization, config.amplification)
            if section is not None
        ]
        selected = {key for entries in lists for entry in entries for key in _keys_read(entry)}
        self._labels = tuple(sorted(selected | {label for label, _ in _RATIO_LABELS}))
        self._resolved = lru_cache(_MOST_KINDS)(self._resolve)

    def of(self, meta: ObjectMeta) -> NodeStrategies:
        """Return the strategies of a node with this metadata."""
        values = tuple(map(meta.labels.get, self._labels))
        return self._resolved(values, meta.annotations.get(COLOCATION_STRATEGY.key, ""))

    def _resolve(self, values: tuple[str | None, ...], annotation: str) -> NodeStrategies:
        labels = {key: v for key, v in zip(self._labels, values, strict=True) if v is not None}
        meta = ObjectMeta(labels=labels, annotations={COLOCATION_STRATEGY.key: annotation})
        config = self.config
        written, strategy, is_on = None, None, False
        if config.colocation is not None:
            written = colocation_strategy(config.colocation, meta)
            strategy, is_on = resolved(written), is_colocated(config.colocation, written)
        normalization, amplification = config.normalization, config.amplification
        return NodeStrategies(
            written=written,
            colocation=strategy,
            is_colocated=is_on,
            normalization=normalization and normalization_strategy(normalization, meta),
            amplification=amplification and amplification_strategy(amplification, meta),
        )


@dataclass(frozen=True, slots=True)
class RenderedSlo:
    """A NodeSLO spec, and the problem of the node's annotations; empty if there is none."""

    spec: NodeSloSpec
    problem: str = ""


def render_slo(config: SloConfig, node: Node, old: NodeSloSpec | None) -> RenderedSlo:
    """Return the NodeSLO spec of a node.

    A section that was never valid keeps its value of the old spec, by default the default.
    """
    labels = node.metadata.labels
    before = old or NodeSloSpec(
        resource_used_threshold_with_be=node_slo.THRESHOLD,
        resource_qos_strategy=ranges.RESOURCE_QOS,
        cpu_burst_strategy=node_slo.CPU_BURST,
        system_strategy=node_slo.SYSTEM,
    )
    spec, problem = before, ""
    if (threshold := config.threshold) is not None:
        chosen = _chosen(
            ResourceThresholdStrategy(),
            threshold.cluster_strategy,
            entry_for(threshold.node_strategies, labels),
        )
        spec = replace(spec, resource_used_threshold_with_be=chosen)
    if (qos := config.resource_qos) is not None:
        own = entry_for(qos.node_strategies, labels)
        strategy = _chosen(ResourceQosStrategy(), qos.cluster_strategy, own)
        spec = replace(spec, resource_qos_strategy=strategy)
    if (burst := config.cpu_burst) is not None:
        entry = entry_for(burst.node_strategies, labels)
        spec = replace(
            spec, cpu_burst_strategy=_chosen(CpuBurstStrategy(), burst.cluster_strategy, entry)
        )
    if (system := config.system) is not None:
        picked = entry_for(system.node_strategies, labels)
        kernel = _chosen(SystemStrategy(), system.cluster_strategy, picked)
        try:
            bandwidth = read_network_bandwidth(node.metadata)
            if bandwidth is not None:
                kernel = replace(kernel, total_network_bandwidth=bandwidth)
            spec = replace(spec, system_strategy=kernel)
        except InputError as error:
            spec, problem = replace(spec, system_strategy=None), str(error)
    if (applications := config.host_applications) is not None:
        listed = entry_for(applications.node_configs, labels)
        spec = replace(
            spec,
            host_applications=(applications if listed is None else listed).applications,
        )
    return RenderedSlo(spec, problem)


def _chosen(
    blank: StrategyT, cluster: msgspec.Struct | None, entry: msgspec.Struct | None
) -> StrategyT:
    """Return the strategy of the entry, by default the cluster's, as the type of ``blank``."""
    strategy = entry if entry is not None else cluster
    return blank if strategy is None else overlaid(blank, strategy)


def _keys_read(entry: NodeEntry) -> Iterable[str]:
    selector = entry.node_selector
    if selector is not None:
        yield from selector.match_labels
        yield from (requirement.key for requirement in selector.match_expressions)


def _percent(text: str) -> int | None:
    try:
        ratio = float(text)
    except ValueError:
        return None
    return int(ratio * _PERCENT) if ratio >= 0 and math.isfinite(ratio) else None
