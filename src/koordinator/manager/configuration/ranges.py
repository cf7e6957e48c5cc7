"""Validation of numbers: values out of range, and pairs of them in the wrong order.

The JSON is validated before it is decoded: decoding fails at the first invalid number, validation
reports all.  Messages and paths reproduce the original's validator, which uses Go's field names.
Source: koordinator apis/configuration/slo_controller_config.go and
apis/slo/v1alpha1/nodeslo_types.go, the validate tags; go-playground/validator translations/en.
"""

from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from typing import Any

from koordinator.api.annotations.node import ColocationStrategy
from koordinator.api.bounds import Accepted, Bounds, accepted_within
from koordinator.api.node_slo import CpuBurstStrategy, ResourceThresholdStrategy, SystemStrategy
from koordinator.api.resource_qos import ResourceQosStrategy

Tree = Mapping[str, Any]  # decoded JSON


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


@cache
def declared() -> Mapping[str, Accepted]:
    """Return the accepted values of the fields of all strategies, by their unique JSON name."""
    return {
        name: accepted
        for kind in _STRATEGIES
        for name, accepted in accepted_within(kind, _UNCHECKED)
    }


def range_problems(strategy: Tree, path: str, *, one_sided: bool) -> dict[str, str]:
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


def _problems(strategy: Tree, path: str, one_sided: bool) -> Iterator[tuple[str, str]]:
    for name, value in strategy.items():
        go = go_name(name)
        if isinstance(value, Mapping) and name not in _UNCHECKED:
            inner = f"{path}.{go}.{go}" if name in _EMBEDDED else f"{path}.{go}"
            yield from _problems(value, inner, one_sided)
        elif name in declared() and _is_number(value):
            bounds = declared()[name].configured
            problem = _problem(bounds, value) or _pair_problem(strategy, name, one_sided)
            if problem:
                where = f"{path}.CPUBurstConfig" if name in _BURST_CONFIG else path
                yield f"{where}.{go}", f"{go} {problem}"


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


def _pair_problem(strategy: Tree, name: str, one_sided: bool) -> str:
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
