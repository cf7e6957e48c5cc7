"""Ranges and defaults of configured values, and entries for groups of nodes.

The JSON is validated before it is decoded: decoding fails at the first invalid number, validation
reports all.  Messages and paths reproduce the original's validator, which uses Go's field names.

Defaults that the node agent shares are in ``api.node_slo``.

Source: koordinator apis/configuration/slo_controller_config.go; pkg/util/sloconfig/
colocation_config.go, ``DefaultColocationStrategy``; nodeslo_config.go; the validate tags of
apis/configuration/slo_controller_config.go and apis/slo/v1alpha1/nodeslo_types.go;
go-playground/validator translations/en; koordinator pkg/webhook/cm/plugins/sloconfig/checker.go,
selector.go, result.go; pkg/webhook/util/err/json_error.go.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, Final, Protocol, TypeVar

import msgspec

from koordinator.api.annotations.node import ColocationStrategy
from koordinator.api.bounds import AcceptedValues, Bounds, accepted_within
from koordinator.api.meta import LabelSelector
from koordinator.api.node import Node
from koordinator.api.node_metric import AggregatePolicy
from koordinator.api.node_slo import CpuBurstStrategy, ResourceThresholdStrategy, SystemStrategy
from koordinator.api.resource_qos import ResourceQosStrategy
from koordinator.api.selectors import check_label_selector, matches
from koordinator.foundation.clock import Duration
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass

USAGE: Final = "usage"
REQUEST: Final = "request"
MAX_USAGE_REQUEST: Final = "maxUsageRequest"
STATIC: Final = "static"  # the mode of mid resources that uses no metric
MINUTE_S: Final = 60
JsonTree = Mapping[str, Any]  # decoded JSON


_STRATEGIES = (
    ColocationStrategy,
    ResourceThresholdStrategy,
    CpuBurstStrategy,
    SystemStrategy,
    ResourceQosStrategy,
)
_INITIALISMS = ("cpu", "cfs", "cat", "mba", "lsr", "ls", "be")
#: Go embeds these structs into others: their names appear twice in the path.
_EMBEDDED = frozenset(("cpuQOS", "memoryQOS", "resctrlQOS"))
_BURST_CONFIG = frozenset(("cpuBurstPercent", "cfsQuotaBurstPercent", "cfsQuotaBurstPeriodSeconds"))
_UNCHECKED = frozenset(("nodeSelector", "extensions", "blkioQOS", "networkQOS", "schedFeatures"))

PARSE: Final = "ParseConfigFail"
INVALID: Final = "ConfigParamInvalid"
OVERLAP: Final = "NodeStrategiesOverlap"
NODE_CONFLICT: Final = "ExistNodeConfict"  # so spelt on the wire

_MAX_SAMPLES = 4096  # label sets generated per selector: bounds the work one text can cause

COLOCATION: Final = ColocationStrategy(
    enable=False,
    metric_aggregate_duration_seconds=300,
    metric_report_interval_seconds=60,
    metric_aggregate_policy=AggregatePolicy(
        durations=tuple(Duration(minutes=minutes) for minutes in (5, 10, 30))
    ),
    metric_memory_collect_policy="usageWithoutPageCache",
    cpu_reclaim_threshold_percent=60,
    memory_reclaim_threshold_percent=65,
    cpu_calculate_policy=USAGE,
    memory_calculate_policy=USAGE,
    degrade_time_minutes=15,
    update_time_threshold_seconds=300,
    resource_diff_threshold=0.1,
    mid_cpu_threshold_percent=100,
    mid_memory_threshold_percent=100,
    mid_unallocated_percent=0,
    mid_static_cpu_reserved_percent=0,
    mid_static_memory_reserved_percent=0,
)
RESOURCE_QOS: Final = ResourceQosStrategy()


@cache
def declared() -> Mapping[str, AcceptedValues]:
    """Return the accepted values of the fields of all strategies, by their unique JSON name."""
    return {
        name: accepted
        for kind in _STRATEGIES
        for name, accepted in accepted_within(kind, _UNCHECKED)
    }


def range_problems(strategy: JsonTree, path: str, *, one_sided: bool) -> dict[str, str]:
    """Return problems by the path of the field, in Go's names.

    ``one_sided``: a number without its counterpart is a problem, too, as in the original.
    """
    return dict(_problems(strategy, path, one_sided))


@lru_cache(maxsize=1 << 10)
def go_name(name: str) -> str:
    """Return the Go name of a JSON field: CPUSuppressPolicy for cpuSuppressPolicy."""
    for short in _INITIALISMS:
        rest = name[len(short) :]
        if name.startswith(short) and (not rest or rest[0].isupper()):
            return short.upper() + rest
    return name[:1].upper() + name[1:]


def _problems(strategy: JsonTree, path: str, one_sided: bool) -> Iterator[tuple[str, str]]:
    for name, value in strategy.items():
        go = go_name(name)
        if isinstance(value, Mapping) and name not in _UNCHECKED:
            inner = f"{path}.{go}.{go}" if name in _EMBEDDED else f"{path}.{go}"
            yield from _problems(value, inner, one_sided)
        elif name in declared() and _is_number(value):
            bounds = declared()[name].configured
            problem = _problem(bounds, value) or _pair_problem(strategy, name, one_sided)
            if problem:
                field_path = f"{path}.CPUBurstConfig" if name in _BURST_CONFIG else path
                yield f"{field_path}.{go}", f"{go} {problem}"


def _problem(bounds: Bounds, number: float) -> str:
    """Return the bound that a number violates; empty if it is within the bounds."""
    if bounds.least is not None and number < bounds.least:
        return f"must be {bounds.least:,} or greater"
    if bounds.above is not None and number <= bounds.above:
        return f"must be greater than {bounds.above:,}"
    if bounds.most is not None and number > bounds.most:
        return f"must be {bounds.most:,} or less"
    return ""


@cache
def _exceeded_by() -> Mapping[str, str]:
    """Return the upper field of each pair by the lower field."""
    return {each.exceeds: name for name, each in declared().items() if each.exceeds}


def _pair_problem(strategy: JsonTree, name: str, one_sided: bool) -> str:
    lower, upper = declared()[name].exceeds, _exceeded_by().get(name, "")
    other = lower or upper
    if not other:
        return ""
    number, counterpart = strategy[name], strategy.get(other)
    is_wrong, word = one_sided, "greater" if lower else "less"
    if _is_number(counterpart):
        is_wrong = number <= counterpart if lower else number >= counterpart
    return f"must be {word} than {go_name(other)}" if is_wrong else ""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


Message = str | Mapping[str, str | Sequence[str]]


def refused(reason: str, message: Message) -> InputError:
    """Return the error whose text is ``___{"reason": …, "message": …}___``."""
    text = msgspec.json.encode({"reason": reason, "message": message}).decode()
    return InputError(f"___{text}___")


class NodeEntry(Protocol):
    """An entry of a list of strategies."""

    @property
    def name(self) -> str: ...

    @property
    def node_selector(self) -> LabelSelector | None: ...


EntryT = TypeVar("EntryT", bound=NodeEntry)


def entry_for(entries: Iterable[EntryT], labels: Mapping[str, str]) -> EntryT | None:
    """Return the first entry that selects these labels; an invalid selector selects nothing."""
    return next((entry for entry in entries if _picks(entry, labels)), None)


def check_entries(entries: Sequence[NodeEntry], key: str, *, needs_names: bool) -> None:
    """Raise InputError for a selector that is missing, invalid, or overlaps another one.

    ``needs_names`` is the flag node-strategy-name-need-check.
    """
    for entry in entries:
        selector = entry.node_selector
        if selector is None or not (selector.match_labels or selector.match_expressions):
            raise refused(
                INVALID,
                "nodeConfigs NodeSelector must not empty error! "
                f"configType: {key},nodeConfig name:{entry.name}",
            )
        try:
            check_label_selector(selector, "nodeSelector")
        except InputError as error:
            raise refused(
                INVALID,
                f"failed to parse node selector,configType: {key},"
                f"nodeConfig name:{entry.name}, err: {error}",
            ) from None
    if needs_names:
        _check_names(entries, key)
    for entry in entries:
        for labels in _samples(entry.node_selector):
            _check_single([e.name for e in entries if _picks(e, labels)], key)


def check_nodes(entries: Sequence[NodeEntry], key: str, nodes: Iterable[Node]) -> None:
    """Raise InputError if two entries select the same node."""
    if len(entries) < 2:  # noqa: PLR2004 -- two make a conflict
        return
    for node in nodes:
        names = [entry.name for entry in entries if _picks(entry, node.metadata.labels)]
        _check_single(names, key, node.metadata.name)


def _check_single(names: list[str], key: str, node: str = "") -> None:
    if len(names) > 1:
        message: dict[str, str | Sequence[str]] = {"config": key, "strategies": names}
        if node:
            raise refused(NODE_CONFLICT, {**message, "exampleNodes": [node]})
        raise refused(OVERLAP, message)


def _check_names(entries: Sequence[NodeEntry], key: str) -> None:
    seen: set[str] = set()
    for entry in entries:
        if not entry.name:
            raise refused(INVALID, f"nodeConfig Name need! configType:{key}")
        if entry.name in seen:
            raise refused(
                INVALID,
                f"nodeConfig Name confilict, configType:{key},nodeConfig Name:{entry.name}! ",
            )
        seen.add(entry.name)


def _picks(entry: NodeEntry, labels: Mapping[str, str]) -> bool:
    try:
        return matches(entry.node_selector, labels)
    except InputError:
        return False


def _samples(selector: LabelSelector | None) -> Iterable[Mapping[str, str]]:
    """Yield labels that a selector matches; as in the original, not every combination."""
    if selector is None:
        return
    count = 1
    for requirement in selector.match_expressions:
        count = min(count * max(len(requirement.values), 1), _MAX_SAMPLES)
    for index in range(count):
        labels = dict(selector.match_labels)
        for requirement in selector.match_expressions:
            if requirement.values:
                labels[requirement.key] = requirement.values[index % len(requirement.values)]
        yield labels


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """Resolved colocation strategy of a node.

    Percentages are of the capacity, except ``mid_unallocated_percent``, which is of the
    unallocated amount.
    """

    cpu_reclaim_percent: int = 60  # may be above 100
    memory_reclaim_percent: int = 65
    cpu_policy: str = USAGE  # anything but maxUsageRequest is usage
    memory_policy: str = USAGE
    batch_cpu_percent: int | None = None  # upper limit; None: unlimited
    batch_memory_percent: int | None = None
    mid_is_static: bool = False
    mid_cpu_percent: int = 100  # upper limit
    mid_memory_percent: int = 100
    mid_unallocated_percent: int = 0
    mid_static_cpu_percent: int = 0
    mid_static_memory_percent: int = 0
    degrade_s: int = 15 * MINUTE_S  # age at which a NodeMetric expires
    update_s: int = 300  # age at which an unchanged node is written again
    difference: float = 0.1  # smallest change that is written, as a fraction of the old value
