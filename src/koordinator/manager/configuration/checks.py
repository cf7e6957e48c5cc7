"""Validation of slo-controller-config, by the webhook and by the manager that reads it.

Network bandwidths of a resource QoS configuration may not exceed the total.

Source: koordinator pkg/webhook/cm/plugins/sloconfig; koordinator
pkg/webhook/cm/plugins/sloconfig/resource_qos_checker.go.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec

from koordinator.api.codec import decode, without_nulls
from koordinator.api.core import ConfigMap
from koordinator.api.field_case import with_declared_case
from koordinator.api.meta import LabelSelector
from koordinator.api.node import Node
from koordinator.api.resource_qos import NetworkQos, ResourceQosStrategy
from koordinator.api.slo_config import (
    COLOCATION,
    CPU_BURST,
    RESOURCE_QOS,
    RESOURCE_THRESHOLD,
    SYSTEM,
    ColocationConfig,
    CpuBurstConfig,
    ResourceQosConfig,
    SystemConfig,
    ThresholdConfig,
)
from koordinator.foundation.decoders import decode_json
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.quantity import Quantity
from koordinator.manager.configuration.ranges import (
    INVALID,
    PARSE,
    JsonTree,
    NodeEntry,
    check_entries,
    check_nodes,
    range_problems,
    refused,
)

_WHOLE = 100
Bandwidth = int | str | None


@dataclass(frozen=True, slots=True)
class CheckedKey:
    """A validated key of the ConfigMap: its type, and its names in messages."""

    key: str
    type: type[msgspec.Struct]
    title: str  # in the message about a text that can't be parsed
    root: str  # the Go type: the beginning of every path
    strategy: str  # the Go type of a strategy

    def entries(self, section: msgspec.Struct) -> Sequence[NodeEntry]:
        """Return the strategies of nodes."""
        name = "node_configs" if self.key == COLOCATION else "node_strategies"
        entries: Sequence[NodeEntry] = getattr(section, name)
        return entries


CHECKED: Final[Mapping[str, CheckedKey]] = MappingProxyType(
    {
        each.key: each
        for each in (
            CheckedKey(
                COLOCATION, ColocationConfig, "colocation", "ColocationCfg", "ColocationStrategy"
            ),
            CheckedKey(
                RESOURCE_THRESHOLD,
                ThresholdConfig,
                "ResourceThreshold",
                "ResourceThresholdCfg",
                "ResourceThresholdStrategy",
            ),
            CheckedKey(
                RESOURCE_QOS,
                ResourceQosConfig,
                "ResourceQOS",
                "ResourceQOSCfg",
                "ResourceQOSStrategy",
            ),
            CheckedKey(SYSTEM, SystemConfig, "System", "SystemCfg", "SystemStrategy"),
            CheckedKey(CPU_BURST, CpuBurstConfig, "CPUBurst", "CPUBurstCfg", "CPUBurstStrategy"),
        )
    }
)


def check_config(
    new: ConfigMap, old: ConfigMap | None, nodes: Iterable[Node], *, needs_names: bool = False
) -> None:
    """Raise InputError for a ConfigMap that the webhook denies; only changed keys are checked.

    ``nodes`` is iterated only if two strategies could select the same node.
    """
    changed: list[tuple[CheckedKey, Sequence[NodeEntry]]] = []
    for checked in CHECKED.values():
        text = new.data.get(checked.key, "")
        if not text or (old is not None and old.data.get(checked.key) == text):
            continue
        section = parse_section(checked, text, new.key)
        system = None
        if isinstance(section, ResourceQosConfig):
            system = parse_section(CHECKED[SYSTEM], new.data.get(SYSTEM, ""), new.key)
        _check_numbers(checked, text, one_sided=True)
        if isinstance(section, ResourceQosConfig) and isinstance(system, SystemConfig):
            check_network_qos(section, system)
        check_entries(checked.entries(section), checked.key, needs_names=needs_names)
        changed.append((checked, checked.entries(section)))
    if any(len(entries) > 1 for _, entries in changed):
        known = tuple(nodes)
        for checked, entries in changed:
            check_nodes(entries, checked.key, known)


def check_node(node: Node, config: ConfigMap) -> None:
    """Raise InputError if two strategies of one section select the node.

    Sections that can't be parsed are skipped.
    """
    for checked in CHECKED.values():
        text = config.data.get(checked.key, "")
        if not text:
            continue
        try:
            section = parse_section(checked, text, config.key)
        except InputError:
            continue
        check_nodes(checked.entries(section), checked.key, (node,))


def check_section(checked: CheckedKey, text: str, source: str) -> None:
    """Raise InputError for a section that the manager rejects, independent of other sections.

    Unlike the webhook, the manager accepts one number of a pair without the other.
    """
    section = parse_section(checked, text, source)
    _check_numbers(checked, text, one_sided=False)
    check_entries(checked.entries(section), checked.key, needs_names=False)


def parse_section(checked: CheckedKey, text: str, source: str) -> msgspec.Struct:
    """Return a section; the case of field names does not matter.

    Raises InputError if it is no JSON, or doesn't match the type.  If only numbers are out of
    range, the error lists these numbers.
    """
    try:
        return decode(with_declared_case(text, checked.type).encode(), checked.type)
    except InputError as error:
        problems = _number_problems(checked, text, one_sided=False)
        if problems:
            raise refused(INVALID, problems) from None
        message = f"Failed to parse {checked.title} config in configmap {source}, err: {error}"
        raise refused(PARSE, message) from None


def _check_numbers(checked: CheckedKey, text: str, *, one_sided: bool) -> None:
    problems = _number_problems(checked, text, one_sided=one_sided)
    if problems:
        raise refused(INVALID, problems)


def _number_problems(checked: CheckedKey, text: str, *, one_sided: bool) -> dict[str, str]:
    try:
        tree = without_nulls(decode_json(with_declared_case(text, checked.type)))
    except msgspec.DecodeError:
        return {}
    problems: dict[str, str] = {}
    for path, strategy in _strategies(checked, tree):
        problems |= range_problems(strategy, path, one_sided=one_sided)
    return dict(sorted(problems.items()))


def _strategies(checked: CheckedKey, tree: Any) -> list[tuple[str, JsonTree]]:
    if not isinstance(tree, dict):
        return []
    strategies: list[tuple[str, JsonTree]] = []
    if checked.key == COLOCATION:
        cluster: Any = {k: v for k, v in tree.items() if k != "nodeConfigs"}
        strategies.append((f"{checked.root}.{checked.strategy}", cluster))
        name, entries = "NodeConfigs", tree.get("nodeConfigs")
    else:
        cluster = tree.get("clusterStrategy")
        if isinstance(cluster, dict):
            strategies.append((f"{checked.root}.ClusterStrategy", cluster))
        name, entries = "NodeStrategies", tree.get("nodeStrategies")
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        if isinstance(entry, dict):
            strategies.append((f"{checked.root}.{name}[{index}].{checked.strategy}", entry))
    return strategies


def check_network_qos(config: ResourceQosConfig, system: SystemConfig) -> None:
    """Raise InputError for invalid bandwidths, mixed units, or sums above the total.

    Percentages may add up to 100, and quantities to the bandwidth of the nodes.  The original
    counts quantities as percentages, too, and therefore denies all of them.
    """
    strategies = [
        *([("ClusterStrategy", config.cluster_strategy)] if config.cluster_strategy else []),
        *((f"nodeStrategy.{i}", each) for i, each in enumerate(config.node_strategies)),
    ]
    for path, strategy in strategies:
        _check_each(strategy, f"ResourceQOSCfg.{path}")
    for index, strategy in _numbered(config):
        if len({type(each) for each in (*_ingress(strategy), *_egress(strategy))}) > 1:
            strategy_path = "clusterStrategy" if index is None else f"nodeStrategy[{index}]"
            raise InputError(
                f"only one type can be used for percentages or quantity in {strategy_path}"
            )
    for index, strategy in _numbered(config):
        if _exceeds_whole(strategy):
            strategy_path = "ClusterStrategy" if index is None else f"cfg.NodeStrategies[{index}]"
            raise InputError(f"{strategy_path} total net bandwidth percentage already over 100")
    _check_totals(config, system)


def _check_totals(config: ResourceQosConfig, system: SystemConfig) -> None:
    cluster = system.cluster_strategy
    if config.cluster_strategy is not None and cluster is not None:
        total = cluster.total_network_bandwidth or Quantity(0)
        if _exceeds(config.cluster_strategy, total.value()):
            raise InputError("total net bandwidth over total network bandwidth in clusterStrategy")
    for index, strategy in enumerate(config.node_strategies):
        if _exceeds(strategy, _bandwidth_of(strategy.node_selector, system)):
            raise InputError(
                "total net bandwidth quantity already over total network bandwidth "
                f"in cfg.NodeStrategies[{index}]"
            )


def _bandwidth_of(selector: LabelSelector | None, system: SystemConfig) -> int:
    """Return the bandwidth of the nodes of a selector, by default the cluster's."""
    bandwidth: Quantity | None = None
    for each in system.node_strategies:
        if each.node_selector == selector:
            bandwidth = each.total_network_bandwidth
            break
    if bandwidth is None and system.cluster_strategy is not None:
        bandwidth = system.cluster_strategy.total_network_bandwidth
    return bandwidth.value() if bandwidth is not None else 0


def _numbered(config: ResourceQosConfig) -> Iterator[tuple[int | None, ResourceQosStrategy]]:
    if config.cluster_strategy is not None:
        yield None, config.cluster_strategy
    yield from enumerate(config.node_strategies)


def _classes(strategy: ResourceQosStrategy) -> Iterator[tuple[str, NetworkQos]]:
    named = (
        ("LSRClass", strategy.lsr_class),
        ("LSClass", strategy.ls_class),
        ("BEClass", strategy.be_class),
    )
    for name, qos in named:
        if qos is not None and qos.network_qos is not None:
            yield name, qos.network_qos


def _ingress(strategy: ResourceQosStrategy) -> list[int | str]:
    requests = (qos.ingress_request for _, qos in _classes(strategy))
    return [each for each in requests if each is not None]


def _egress(strategy: ResourceQosStrategy) -> list[int | str]:
    requests = (qos.egress_request for _, qos in _classes(strategy))
    return [each for each in requests if each is not None]


def _exceeds_whole(strategy: ResourceQosStrategy) -> bool:
    return any(
        sum(each for each in requests if isinstance(each, int)) > _WHOLE
        for requests in (_ingress(strategy), _egress(strategy))
    )


def _exceeds(strategy: ResourceQosStrategy, total: int) -> bool:
    """Return whether requests exceed a bandwidth; with a total of 0, any request does."""
    return any(
        sum(_amount(each, total) for each in requests) > total
        for requests in (_ingress(strategy), _egress(strategy))
    )


def _amount(bandwidth: int | str, total: int) -> int:
    if isinstance(bandwidth, int):
        return total * bandwidth // _WHOLE if total else bandwidth
    return Quantity.parse(bandwidth).value()


def _check_each(strategy: ResourceQosStrategy, path: str) -> None:
    for name, qos in _classes(strategy):
        fields: tuple[tuple[str, Bandwidth], ...] = (
            ("IngressRequest", qos.ingress_request),
            ("IngressLimit", qos.ingress_limit),
            ("EgressRequest", qos.egress_request),
            ("EgressLimit", qos.egress_limit),
        )
        for field, value in fields:
            prefix = f"{path}.{name}.{field}: Invalid value:"
            if isinstance(value, int) and not 0 <= value <= _WHOLE:
                raise InputError(f"{prefix} {value}: must be percentage value just in 0-100'")
            if isinstance(value, str):
                try:
                    Quantity.parse(value)
                except InputError as error:
                    raise InputError(f'{prefix} "{value}": {error}') from None
