"""Amounts of several resources: milli-CPU of cpu, whole units of everything else.

Source: koordinator pkg/scheduler/plugins/elasticquota/core/runtime_quota_calculator.go,
``getQuantityValue``, ``createQuantity``; k8s.io/apiserver pkg/quota/v1/resources.go.
"""

from collections.abc import Mapping
from types import MappingProxyType

from koordinator.api.core import ResourceList
from koordinator.api.resource_names import CPU, MEMORY
from koordinator.domain.pod_requests import canonical
from koordinator.foundation.quantity import Quantity

Amounts = Mapping[str, int]

NOTHING: Amounts = MappingProxyType({})


def amounts_of(resources: ResourceList) -> dict[str, int]:
    """Return the amounts of quantities, fractions of a unit rounded up."""
    return {name: canonical(name, quantity) for name, quantity in resources.items()}


def to_quantities(amounts: Amounts) -> ResourceList:
    """Return the quantities, in the notation in which the original writes them."""
    return {name: _to_quantity(name, amount) for name, amount in amounts.items()}


def to_texts(amounts: Amounts) -> dict[str, str]:
    """Return the quantities as texts, each in its shortest form."""
    return {name: quantity.canonical() for name, quantity in to_quantities(amounts).items()}


def to_text(amounts: Amounts) -> str:
    """Return ``cpu:2,memory:4Gi`` as messages of the original have it, in order of name."""
    if not amounts:
        return "<empty>"
    return ",".join(f"{name}:{_to_quantity(name, amounts[name])}" for name in sorted(amounts))


def exceeded(amounts: Amounts, limit: Amounts) -> list[str]:
    """Return the resources of which there is more than the limit, in order of name.

    A resource that only one of the two names is not limited.
    """
    over = [name for name, amount in amounts.items() if amount > limit.get(name, amount)]
    over.sort()
    return over


def add(total: dict[str, int], more: Amounts) -> None:
    """Add to the total."""
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def plus(amounts: Amounts, more: Amounts) -> dict[str, int]:
    """Return the sum."""
    total = dict(amounts)
    add(total, more)
    return total


def multiple(amounts: Amounts, times: int) -> dict[str, int]:
    """Return so many times the amounts."""
    return {name: amount * times for name, amount in amounts.items()}


def named_by(amounts: Amounts, names: Amounts) -> dict[str, int]:
    """Return the amounts of those resources that ``names`` has too."""
    return {name: amount for name, amount in amounts.items() if name in names}


def _to_quantity(name: str, amount: int) -> Quantity:
    if name == CPU:
        return Quantity.from_milli(amount)
    return Quantity.from_int(amount, binary=name == MEMORY)
