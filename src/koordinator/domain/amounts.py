"""Amounts of resources per NUMA node, in canonical units (milli-CPU, bytes, whole units).

Source: koordinator apis/extension/node_resource_amplification.go, ``Amplify``; k8s.io/apiserver
pkg/quota/v1/resources.go, ``SubtractWithNonNegativeResult``.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Final

from koordinator.domain.pod_requests import canonical
from koordinator.foundation.quantity import Quantity

#: More than any NUMA node or device has (256 Ti): what others write must not overflow 64 bits once
#: it is summed, amplified and taken times 100.
LARGEST: Final = 1 << 48

Amounts = Mapping[str, int]  # by resource
ZoneAmounts = Mapping[int, Amounts]  # by NUMA node


def read_amounts(resources: Mapping[str, Quantity]) -> dict[str, int]:
    """Return amounts that somebody has written down, none below 0 or above LARGEST."""
    return {
        name: min(max(canonical(name, quantity), 0), LARGEST)
        for name, quantity in resources.items()
    }


def add(total: dict[str, int], more: Amounts) -> None:
    """Add in place."""
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def subtract(total: dict[str, int], less: Amounts) -> None:
    """Take off in place; what becomes 0 is left out."""
    for name, amount in less.items():
        rest = total.get(name, 0) - amount
        if rest:
            total[name] = rest
        else:
            total.pop(name, None)


def remaining(amounts: Amounts, used: Amounts) -> dict[str, int]:
    """Return what is left of each, at least 0."""
    left = {}
    for name, amount in amounts.items():
        rest = amount - used.get(name, 0)
        left[name] = max(0, rest)
    return left


def total(of: Iterable[Amounts]) -> dict[str, int]:
    """Return the sum."""
    summed: dict[str, int] = {}
    for amounts in of:
        add(summed, amounts)
    return summed


def amplified(amount: int, ratio: float) -> int:
    """Return what an amount counts for on a node that shows more than it has, rounded up."""
    return math.ceil(amount * ratio) if ratio > 1 else amount
