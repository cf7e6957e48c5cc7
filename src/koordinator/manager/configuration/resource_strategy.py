"""How much of what is idle on a node is given away, with every choice made.

Source: koordinator apis/configuration/slo_controller_config.go; pkg/util/sloconfig/
colocation_config.go, ``DefaultColocationStrategy``.
"""

from dataclasses import dataclass
from typing import Final

USAGE: Final = "usage"
REQUEST: Final = "request"
MAX_USAGE_REQUEST: Final = "maxUsageRequest"
STATIC: Final = "static"  # the mode of mid resources that looks at no metric

MINUTE_S: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """Percentages are of the capacity, but for that of what is unallocated."""

    cpu_reclaim_percent: int = 60  # may be above 100
    memory_reclaim_percent: int = 65
    cpu_policy: str = USAGE  # anything but maxUsageRequest is usage
    memory_policy: str = USAGE
    batch_cpu_percent: int | None = None  # at most so much; None: as it comes
    batch_memory_percent: int | None = None
    mid_is_static: bool = False
    mid_cpu_percent: int = 100  # at most
    mid_memory_percent: int = 100
    mid_unallocated_percent: int = 0
    mid_static_cpu_percent: int = 0
    mid_static_memory_percent: int = 0
    degrade_s: int = 15 * MINUTE_S  # the age at which a report says nothing any more
    update_s: int = 300  # the age at which what was written is written again
    difference: float = 0.1  # the least change worth a write, as a part of the old value
