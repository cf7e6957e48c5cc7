"""slo-controller-config in effect: every section as it was last valid.

A section that the webhook would deny never takes effect: the last valid one stays, and a Warning
event reports the problem.  The exception is one number of a pair without the other, which is read
with the default of the other.  A section that was never valid is None, and its objects are not
changed.
Source: koordinator pkg/slo-controller/config/colocation_cm_event_handler.go;
nodeslo/resource_strategy.go; noderesource/plugins/{cpunormalization,resourceamplification}.
"""

from collections.abc import Sequence
from dataclasses import field, replace
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace as with_fields

from koordinator.api import node_slo
from koordinator.api.annotations.node import ColocationStrategy
from koordinator.api.codec import decode, encode_part
from koordinator.api.core import ConfigMap
from koordinator.api.field_case import with_declared_case
from koordinator.api.node_slo import overlaid
from koordinator.api.slo_config import (
    COLOCATION,
    CPU_BURST,
    CPU_NORMALIZATION,
    HOST_APPLICATION,
    RESOURCE_AMPLIFICATION,
    RESOURCE_QOS,
    RESOURCE_THRESHOLD,
    SECTIONS,
    SYSTEM,
    ColocationConfig,
    CpuBurstConfig,
    CpuNormalizationConfig,
    HostApplicationConfig,
    ResourceAmplificationConfig,
    ResourceQosConfig,
    SystemConfig,
    ThresholdConfig,
)
from koordinator.foundation.decoders import decode_json
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.quantity import Quantity
from koordinator.manager.configuration import ranges
from koordinator.manager.configuration.checks import CHECKED, check_network_qos, check_section
from koordinator.manager.configuration.ranges import INVALID, range_problems, refused

SectionT = TypeVar("SectionT", bound=msgspec.Struct)
StrategyT = TypeVar("StrategyT", bound=msgspec.Struct)

#: ConfigMap slo-controller-config: a section of a NodeSLO is invalid.
SLO_FAILED: Final = "SLOCfgUnmarshalFailed"
#: ConfigMap slo-controller-config: its CPU normalization is invalid.
NORMALIZATION_FAILED: Final = "CPUNormalizationCfgUnmarshalFailed"
#: ConfigMap slo-controller-config: its resource amplification is invalid.
AMPLIFICATION_FAILED: Final = "ResourceAmplificationCfgUnmarshalFailed"
#: ConfigMap slo-controller-config: its colocation-config is invalid.
COLOCATION_FAILED: Final = "ColocationCfgUnmarshalFailed"
#: ConfigMap slo-controller-config: a node strategy of its colocation-config is invalid.
COLOCATION_NODE_FAILED: Final = "ColocationNodeCfgInvalid"


@dataclass(frozen=True, slots=True)
class ConfigurationProblem:
    """A rejected section; it is reported as a Warning event on the ConfigMap."""

    key: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SloConfig:
    """Sections: cluster strategies laid over the defaults, and node strategies laid over both.

    None is a section that was never valid.  ``rejected`` are the keys whose last text was
    rejected.
    """

    colocation: ColocationConfig | None = None
    threshold: ThresholdConfig | None = None
    resource_qos: ResourceQosConfig | None = None
    cpu_burst: CpuBurstConfig | None = None
    system: SystemConfig | None = None
    host_applications: HostApplicationConfig | None = None
    normalization: CpuNormalizationConfig | None = None
    amplification: ResourceAmplificationConfig | None = None
    rejected: frozenset[str] = field(default_factory=frozenset)


def read_config(
    config_map: ConfigMap | None, last: SloConfig | None = None
) -> tuple[SloConfig, Sequence[ConfigurationProblem]]:
    """Return the configuration of a ConfigMap, and its rejected sections.

    Without a ConfigMap, the last configuration stays; by default all sections are defaults.
    """
    if config_map is None and last is not None:
        return last, ()
    data = config_map.data if config_map is not None else {}
    source = config_map.key if config_map is not None else ""
    reader = _Reader(data, source, last or SloConfig())
    return reader.read(), reader.problems


class _Reader:
    """Reader of one ConfigMap; ``problems`` collects the rejected sections."""

    def __init__(self, data: dict[str, str], source: str, last: SloConfig) -> None:
        self._data = {
            key: with_declared_case(text, SECTIONS[key]) if key in SECTIONS else text
            for key, text in data.items()
        }
        self._source, self._last = source, last
        self.problems: list[ConfigurationProblem] = []

    def read(self) -> SloConfig:
        last = self._last
        config = replace(
            last,
            colocation=self._colocation(),
            threshold=self._strategies(
                RESOURCE_THRESHOLD, ThresholdConfig, node_slo.THRESHOLD, last.threshold, "Threshold"
            ),
            resource_qos=self._resource_qos(),
            cpu_burst=self._strategies(
                CPU_BURST, CpuBurstConfig, node_slo.CPU_BURST, last.cpu_burst, "CPUBurst"
            ),
            system=self._system(),
            host_applications=self._plain(
                HOST_APPLICATION,
                HostApplicationConfig,
                last.host_applications,
                SLO_FAILED,
                "HostApplicationCfg",
            ),
            normalization=self._plain(
                CPU_NORMALIZATION,
                CpuNormalizationConfig,
                last.normalization,
                NORMALIZATION_FAILED,
                "CPUNormalizationCfg",
            ),
            amplification=self._plain(
                RESOURCE_AMPLIFICATION,
                ResourceAmplificationConfig,
                last.amplification,
                AMPLIFICATION_FAILED,
                "ResourceAmplificationCfg",
            ),
        )
        return replace(config, rejected=frozenset(problem.key for problem in self.problems))

    def _colocation(self) -> ColocationConfig | None:
        """Read the section; nodes of an invalid entry get the strategy of the cluster."""
        text = self._data.get(COLOCATION, "")
        if not text:
            return cluster_fields(ranges.COLOCATION)
        try:
            document = decode(text.encode(), ColocationConfig)
            cluster = overlaid(ranges.COLOCATION, document)
            check_section(CHECKED[COLOCATION], _without_numbers(document), self._source)
            _check_strategy(cluster, "ColocationCfg.ColocationStrategy")
        except InputError as error:
            message = f"failed to unmarshal colocation config, err: {error}"
            self.problems.append(ConfigurationProblem(COLOCATION, COLOCATION_FAILED, message))
            return self._last.colocation
        entries = []
        for index, entry in enumerate(document.node_configs):
            merged = overlaid(cluster, entry)
            try:
                _check_strategy(merged, f"ColocationCfg.NodeConfigs[{index}].ColocationStrategy")
            except InputError as error:
                message = f"the strategy of the cluster counts for {entry.name!r}, err: {error}"
                self.problems.append(
                    ConfigurationProblem(COLOCATION, COLOCATION_NODE_FAILED, message)
                )
                merged = cluster
            entries.append(overlaid(entry, merged))
        return with_fields(cluster_fields(cluster), node_configs=tuple(entries))

    def _strategies(
        self,
        key: str,
        kind: type[SectionT],
        default: msgspec.Struct,
        last: SectionT | None,
        title: str,
    ) -> SectionT | None:
        try:
            return self._merged(key, kind, default)
        except InputError as error:
            message = f"failed to unmarshal {title}Cfg, err: {error}"
            self.problems.append(ConfigurationProblem(key, SLO_FAILED, message))
            return last

    def _merged(self, key: str, kind: type[SectionT], default: msgspec.Struct) -> SectionT:
        text = self._data.get(key, "")
        if not text:
            return kind(cluster_strategy=default)
        checked = CHECKED[key]
        check_section(checked, text, self._source)
        document = decode(text.encode(), kind)
        written = document.cluster_strategy  # type: ignore[attr-defined]  # all four have it
        cluster = default if written is None else overlaid(default, written)
        _check_strategy(cluster, f"{checked.root}.ClusterStrategy")
        entries = []
        for index, entry in enumerate(checked.entries(document)):
            merged = overlaid(cluster, entry)  # type: ignore[arg-type]  # entries are structs
            _check_strategy(merged, f"{checked.root}.NodeStrategies[{index}].{checked.strategy}")
            entries.append(overlaid(entry, merged))  # type: ignore[type-var]
        return kind(cluster_strategy=cluster, node_strategies=tuple(entries))

    def _resource_qos(self) -> ResourceQosConfig | None:
        last = self._last.resource_qos
        count = len(self.problems)
        config = self._strategies(
            RESOURCE_QOS, ResourceQosConfig, ranges.RESOURCE_QOS, last, "ResourceQOS"
        )
        text = self._data.get(RESOURCE_QOS, "")
        if len(self.problems) > count or not text:
            return config
        try:
            system = decode(self._data.get(SYSTEM, "{}").encode() or b"{}", SystemConfig)
        except InputError:
            system = SystemConfig()  # its own section reports the problem
        try:
            check_network_qos(decode(text.encode(), ResourceQosConfig), system)
        except InputError as error:
            message = f"failed to unmarshal ResourceQOSCfg, err: {error}"
            self.problems.append(ConfigurationProblem(RESOURCE_QOS, SLO_FAILED, message))
            return last
        return config

    def _system(self) -> SystemConfig | None:
        """Read the section; as in the original, an entry without bandwidth gets bandwidth 0."""
        config = self._strategies(
            SYSTEM, SystemConfig, node_slo.SYSTEM, self._last.system, "System"
        )
        text = self._data.get(SYSTEM, "")
        if config is None or SYSTEM in {problem.key for problem in self.problems} or not text:
            return config
        written = decode(text.encode(), SystemConfig).node_strategies
        entries = tuple(
            entry
            if before.total_network_bandwidth is not None
            else with_fields(entry, total_network_bandwidth=Quantity(0))
            for entry, before in zip(config.node_strategies, written, strict=True)
        )
        return with_fields(config, node_strategies=entries)

    def _plain(
        self, key: str, kind: type[SectionT], last: SectionT | None, reason: str, title: str
    ) -> SectionT | None:
        text = self._data.get(key, "")
        if not text:
            return kind()
        try:
            return decode(text.encode(), kind)
        except InputError as error:
            message = f"failed to unmarshal {title}, err: {error}"
            self.problems.append(ConfigurationProblem(key, reason, message))
            return last


def cluster_fields(strategy: ColocationStrategy) -> ColocationConfig:
    """Return a strategy as the section of a cluster without strategies of nodes."""
    names = ColocationStrategy.__struct_fields__
    return ColocationConfig(**{name: getattr(strategy, name) for name in names})


def _check_strategy(strategy: msgspec.Struct, path: str) -> None:
    problems = range_problems(decode_json(encode_part(strategy)), path, one_sided=False)
    if problems:
        raise refused(INVALID, problems)


def _without_numbers(document: ColocationConfig) -> str:
    """Return the JSON of a section with the selectors only."""
    entries = [
        type(entry)(name=entry.name, node_selector=entry.node_selector)
        for entry in document.node_configs
    ]
    return encode_part(ColocationConfig(node_configs=tuple(entries))).decode()
