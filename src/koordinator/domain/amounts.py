"""Amounts of several resources by name, in canonical units: milli-CPU, bytes, whole units.

``go_amounts`` returns them in the fields of kube-scheduler's ``Resource``, for debugging pages.

Source: koordinator apis/extension/node_resource_amplification.go, ``Amplify``;
pkg/scheduler/plugins/elasticquota/core/runtime_quota_calculator.go, ``getQuantityValue``,
``createQuantity``; k8s.io/apiserver pkg/quota/v1/resources.go, ``SubtractWithNonNegativeResult``;
kubernetes pkg/scheduler/framework/types.go ``Resource``.
"""

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from koordinator.api.core import ResourceList
from koordinator.api.resource_names import CPU, MEMORY
from koordinator.foundation.quantity import NANOS, NANOS_PER_MILLI, Quantity

#: Upper bound of a parsed amount (1 Pi), above any node's capacity: the sum over a node's pods must
#: not overflow 64 bits.
LARGEST: Final = 1 << 50
#: Upper bound of the amounts of a NUMA node or device (256 Ti): sums that are amplified and
#: multiplied by 100 must not overflow 64 bits.
LARGEST_OF_PART: Final = 1 << 48

#: Canonical amounts by resource name.
Amounts = Mapping[str, int]
#: Amounts by NUMA node.
ZoneAmounts = Mapping[int, Amounts]

_FIELDS = {
    "cpu": "MilliCPU",
    "memory": "Memory",
    "ephemeral-storage": "EphemeralStorage",
    "pods": "AllowedPodNumber",
}

NOTHING: Amounts = MappingProxyType({})


def canonical(name: str, quantity: Quantity) -> int:
    """Return milli-CPU for ``cpu``, whole units (rounded up) for everything else."""
    return quantity.milli() if name == "cpu" else quantity.value()


def nanos_of_one(name: str) -> int:
    """Return the nanos of one canonical unit of a resource."""
    return NANOS_PER_MILLI if name == "cpu" else NANOS


def bounded(name: str, quantity: Quantity) -> int:
    """Return the canonical amount, clipped to 0..LARGEST."""
    return max(min(canonical(name, quantity), LARGEST), 0)


def value_of(resources: ResourceList, name: str) -> int:
    """Return a quantity in whole units; 0 if it is missing or negative."""
    quantity = resources.get(name)
    return max(quantity.value(), 0) if quantity is not None else 0


def canonical_amounts(resources: ResourceList | None) -> dict[str, int]:
    """Return the canonical amounts of a resource list, each clipped to 0..LARGEST."""
    return {name: bounded(name, quantity) for name, quantity in (resources or {}).items()}


def read_amounts(resources: Mapping[str, Quantity]) -> dict[str, int]:
    """Return the amounts of a NUMA node or device, each clipped to 0..LARGEST_OF_PART."""
    return {
        name: min(max(canonical(name, quantity), 0), LARGEST_OF_PART)
        for name, quantity in resources.items()
    }


def add(total: dict[str, int], more: Amounts) -> None:
    """Add amounts in place."""
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def subtract(total: dict[str, int], less: Amounts) -> None:
    """Subtract amounts in place; entries that become 0 are removed."""
    for name, amount in less.items():
        rest = total.get(name, 0) - amount
        if rest:
            total[name] = rest
        else:
            total.pop(name, None)


def remaining(amounts: Amounts, used: Amounts) -> dict[str, int]:
    """Return amounts minus usage, at least 0 each."""
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
    """Return the amount multiplied by a node's amplification ratio, rounded up."""
    return math.ceil(amount * ratio) if ratio > 1 else amount


def amounts_of(resources: ResourceList) -> dict[str, int]:
    """Convert quantities to amounts; fractions of a unit are rounded up."""
    return {name: canonical(name, quantity) for name, quantity in resources.items()}


def to_quantities(amounts: Amounts) -> ResourceList:
    """Convert amounts to quantities in the original's notation."""
    return {name: _to_quantity(name, amount) for name, amount in amounts.items()}


def to_texts(amounts: Amounts) -> dict[str, str]:
    """Format each amount as a quantity in its shortest form."""
    return {name: quantity.canonical() for name, quantity in to_quantities(amounts).items()}


def to_text(amounts: Amounts) -> str:
    """Format amounts as ``cpu:2,memory:4Gi``, as the original's messages do, in order of name."""
    if not amounts:
        return "<empty>"
    return ",".join(f"{name}:{_to_quantity(name, amounts[name])}" for name in sorted(amounts))


def exceeded(amounts: Amounts, limit: Amounts) -> list[str]:
    """Return the resources whose amount is above the limit, in order of name.

    A resource that only one of the two names is not limited.
    """
    over = [name for name, amount in amounts.items() if amount > limit.get(name, amount)]
    over.sort()
    return over


def plus(amounts: Amounts, more: Amounts) -> dict[str, int]:
    """Return the sum of two sets of amounts."""
    total = dict(amounts)
    add(total, more)
    return total


def multiple(amounts: Amounts, times: int) -> dict[str, int]:
    """Return the amounts multiplied by ``times``."""
    return {name: amount * times for name, amount in amounts.items()}


def named_by(amounts: Amounts, names: Amounts) -> dict[str, int]:
    """Return the amounts of the resources that ``names`` contains too."""
    return {name: amount for name, amount in amounts.items() if name in names}


def _to_quantity(name: str, amount: int) -> Quantity:
    if name == CPU:
        return Quantity.from_milli(amount)
    return Quantity.from_int(amount, binary=name == MEMORY)


def go_amounts(amounts: Mapping[str, int]) -> dict[str, Any]:
    """Return amounts by resource in canonical units, old resource names in a field of their own."""
    scalars = {name: amount for name, amount in amounts.items() if name not in _FIELDS}
    return {
        **{spelt: amounts.get(name, 0) for name, spelt in _FIELDS.items()},
        "ScalarResources": scalars or None,
    }
