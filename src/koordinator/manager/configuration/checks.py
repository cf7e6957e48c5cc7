"""Validation of slo-controller-config, by the webhook and by the manager that reads it.

Source: koordinator pkg/webhook/cm/plugins/sloconfig.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import msgspec

from koordinator.api.codec import decode, without_nulls
from koordinator.api.core import ConfigMap
from koordinator.api.node import Node
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
from koordinator.manager.configuration.network_qos import check_network_qos
from koordinator.manager.configuration.ranges import (
    INVALID,
    PARSE,
    NodeEntry,
    Tree,
    check_entries,
    check_nodes,
    range_problems,
    refused,
)


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
        if isinstance(section, ResourceQosConfig):
            parse_section(CHECKED[SYSTEM], new.data.get(SYSTEM, ""), new.key)
        _check_numbers(checked, text, one_sided=True)
        if isinstance(section, ResourceQosConfig):
            system = decode(new.data.get(SYSTEM, "").encode(), SystemConfig)
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
    """Return a section.  Raises InputError if it is no JSON, or doesn't match the type.

    If only numbers are out of range, the error lists these numbers.
    """
    try:
        return decode(text.encode(), checked.type)
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
        tree = without_nulls(decode_json(text))
    except msgspec.DecodeError:
        return {}
    problems: dict[str, str] = {}
    for path, strategy in _strategies(checked, tree):
        problems |= range_problems(strategy, path, one_sided=one_sided)
    return dict(sorted(problems.items()))


def _strategies(checked: CheckedKey, tree: Any) -> list[tuple[str, Tree]]:
    if not isinstance(tree, dict):
        return []
    strategies: list[tuple[str, Tree]] = []
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
