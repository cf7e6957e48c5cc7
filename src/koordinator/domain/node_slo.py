"""Defaults of a NodeSLO that manager and node agent share, and one strategy laid over another.

The defaults contain no QoS classes: the manager renders none, the node agent has its own.
Source: koordinator pkg/util/sloconfig/nodeslo_config.go; pkg/util/utils.go, ``MergeCfg``.
"""

from typing import Final, TypeVar

import msgspec

from koordinator.api.node_slo import CpuBurstStrategy, ResourceThresholdStrategy, SystemStrategy
from koordinator.foundation.quantity import Quantity

StrategyT = TypeVar("StrategyT", bound=msgspec.Struct)


def overlaid(base: StrategyT, over: msgspec.Struct) -> StrategyT:
    """Return ``base`` with the fields that ``over`` sets.

    A field of ``over`` that has its default is not set.  Structs are overlaid recursively,
    dictionaries by key; lists are replaced.  Fields that only one of the two has are ignored.
    """
    changes = {}
    for name in base.__struct_fields__:
        new, old = getattr(over, name, None), getattr(base, name)
        if new is None or new in ("", {}, ()):
            continue
        if isinstance(new, msgspec.Struct) and isinstance(old, msgspec.Struct):
            new = overlaid(old, new)
        elif isinstance(new, dict):
            new = {**old, **new}
        changes[name] = new
    return msgspec.structs.replace(base, **changes) if changes else base


THRESHOLD: Final = ResourceThresholdStrategy(
    enable=False,
    cpu_suppress_threshold_percent=65,
    cpu_suppress_policy="cpuset",
    memory_evict_threshold_percent=70,
    cpu_evict_policy="evictByRealLimit",
)
CPU_BURST: Final = CpuBurstStrategy(
    policy="none",
    cpu_burst_percent=1000,
    cfs_quota_burst_percent=300,
    cfs_quota_burst_period_seconds=-1,
    share_pool_threshold_percent=50,
)
SYSTEM: Final = SystemStrategy(total_network_bandwidth=Quantity(0))
