"""Numbers that are out of range, and pairs of them in the wrong order.

Looks at the JSON as written, before types do: types refuse the first wrong number, here all are
found.  Messages and paths are those of the original's validator, whose paths have Go's names.
Source: koordinator apis/configuration/slo_controller_config.go and
apis/slo/v1alpha1/nodeslo_types.go, the validate tags; go-playground/validator translations/en.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

Tree = Mapping[str, Any]  # decoded JSON


@dataclass(frozen=True, slots=True)
class Range:
    """``above`` excludes, ``least`` and ``most`` include; None bounds nothing."""

    least: float | None = None
    most: float | None = None
    above: float | None = None

    def problem(self, number: float) -> str:
        """Return what a number must be instead; empty if it is in the range."""
        if self.least is not None and number < self.least:
            return f"must be {self.least:,} or greater"
        if self.above is not None and number <= self.above:
            return f"must be greater than {self.above:,}"
        if self.most is not None and number > self.most:
            return f"must be {self.most:,} or less"
        return ""


_PERCENT = Range(0, 100)
_FLAG = Range(0, 1)
_NOT_NEGATIVE = Range(0)
_AT_LEAST_ONE = Range(1)

RANGES: Final[Mapping[str, Range]] = MappingProxyType(
    {
        "metricAggregateDurationSeconds": _AT_LEAST_ONE,
        "metricReportIntervalSeconds": _AT_LEAST_ONE,
        "cpuReclaimThresholdPercent": _NOT_NEGATIVE,
        "memoryReclaimThresholdPercent": _NOT_NEGATIVE,
        "degradeTimeMinutes": _AT_LEAST_ONE,
        "updateTimeThresholdSeconds": _AT_LEAST_ONE,
        "resourceDiffThreshold": Range(most=1, above=0),
        "midCPUThresholdPercent": _PERCENT,
        "midMemoryThresholdPercent": _PERCENT,
        "midUnallocatedPercent": _PERCENT,
        "midStaticCPUReservedPercent": _PERCENT,
        "midStaticMemoryReservedPercent": _PERCENT,
        "batchCPUThresholdPercent": _NOT_NEGATIVE,
        "batchMemoryThresholdPercent": _NOT_NEGATIVE,
        "cpuSuppressThresholdPercent": _PERCENT,
        "cpuSuppressMinPercent": _PERCENT,
        "memoryEvictThresholdPercent": _PERCENT,
        "memoryEvictLowerPercent": _PERCENT,
        "memoryAllocatableEvictThresholdPercent": _NOT_NEGATIVE,
        "memoryAllocatableEvictLowerPercent": _NOT_NEGATIVE,
        "cpuEvictBESatisfactionUpperPercent": _PERCENT,
        "cpuEvictBESatisfactionLowerPercent": _PERCENT,
        "cpuEvictBEUsageThresholdPercent": _PERCENT,
        "cpuEvictTimeWindowSeconds": Range(above=0),
        "cpuEvictThresholdPercent": _PERCENT,
        "cpuEvictLowerPercent": _PERCENT,
        "cpuAllocatableEvictThresholdPercent": _NOT_NEGATIVE,
        "cpuAllocatableEvictLowerPercent": _NOT_NEGATIVE,
        "allocatableEvictPriorityThreshold": Range(0, 7999),
        "cpuBurstPercent": Range(1, 10_000),
        "cfsQuotaBurstPercent": Range(100),
        "cfsQuotaBurstPeriodSeconds": Range(-1),
        "sharePoolThresholdPercent": _PERCENT,
        "minFreeKbytesFactor": Range(above=0),
        "watermarkScaleFactor": Range(most=400, above=0),
        "memcgReapBackGround": _FLAG,
        "pageCacheLimitEnabled": _FLAG,
        "groupIdentity": Range(-1, 2),
        "schedIdle": _FLAG,
        "minLimitPercent": _PERCENT,
        "lowLimitPercent": _PERCENT,
        "throttlingPercent": _PERCENT,
        "wmarkRatio": _PERCENT,
        "wmarkScalePermill": Range(1, 1000),
        "wmarkMinAdj": Range(-25, 50),
        "priorityEnable": _FLAG,
        "priority": Range(0, 12),
        "oomKillGroup": _FLAG,
        "pageCacheLimitPercent": _PERCENT,
        "catRangeStartPercent": _PERCENT,
        "catRangeEndPercent": _PERCENT,
        "mbaPercent": _PERCENT,
    }
)
#: The first must be above the second.
PAIRS: Final = (
    ("memoryEvictThresholdPercent", "memoryEvictLowerPercent"),
    ("memoryAllocatableEvictThresholdPercent", "memoryAllocatableEvictLowerPercent"),
    ("cpuEvictBESatisfactionUpperPercent", "cpuEvictBESatisfactionLowerPercent"),
    ("cpuEvictThresholdPercent", "cpuEvictLowerPercent"),
    ("cpuAllocatableEvictThresholdPercent", "cpuAllocatableEvictLowerPercent"),
    ("catRangeEndPercent", "catRangeStartPercent"),
)
_LOWER = dict(PAIRS)
_UPPER = {lower: upper for upper, lower in PAIRS}
_INITIALISMS = ("cpu", "cfs", "cat", "mba", "lsr", "ls", "be")
#: Go embeds these structs into others: their names stand in the path twice.
_EMBEDDED = frozenset(("cpuQOS", "memoryQOS", "resctrlQOS"))
_BURST_CONFIG = frozenset(("cpuBurstPercent", "cfsQuotaBurstPercent", "cfsQuotaBurstPeriodSeconds"))
_UNCHECKED = frozenset(("nodeSelector", "extensions", "blkioQOS", "networkQOS", "schedFeatures"))


def range_problems(strategy: Tree, path: str, *, one_sided: bool) -> dict[str, str]:
    """Return what is wrong by the path of the field, in Go's names.

    ``one_sided``: a number without its pair is wrong, too.  So the original; it can't mean it.
    """
    return dict(_problems(strategy, path, one_sided))


@lru_cache(maxsize=1 << 10)
def go_name(name: str) -> str:
    """Return what Go calls a JSON field: cpuSuppressPolicy is CPUSuppressPolicy."""
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
        elif name in RANGES and _is_number(value):
            problem = RANGES[name].problem(value) or _pair_problem(strategy, name, one_sided)
            if problem:
                where = f"{path}.CPUBurstConfig" if name in _BURST_CONFIG else path
                yield f"{where}.{go}", f"{go} {problem}"


def _pair_problem(strategy: Tree, name: str, one_sided: bool) -> str:
    number, word = strategy[name], "greater" if name in _LOWER else "less"
    other = _LOWER.get(name) or _UPPER.get(name)
    if other is None:
        return ""
    found = strategy.get(other)
    if not _is_number(found):
        is_wrong = one_sided
    else:
        is_wrong = number <= found if name in _LOWER else number >= found
    return f"must be {word} than {go_name(other)}" if is_wrong else ""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
