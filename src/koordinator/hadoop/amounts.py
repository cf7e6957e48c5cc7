"""Batch resources of Kubernetes, resources of YARN, and conversions between them.

Kubernetes counts milli-CPU and bytes, YARN whole vcores and MiB.  ``whole_units`` rounds down, so
that YARN never gets more than there is; ``original_units`` is the original's conversion, which
rounds up and divides memory by 10^6, about 4.9 % more memory than there is.
Source: yarn-copilot pkg/yarn/cache and controller/noderesource, ``calculate``.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from koordinator.api.resource_names import BATCH_CPU, BATCH_MEMORY
from koordinator.domain.amounts import LARGEST, bounded
from koordinator.foundation.quantity import Quantity

MILLI_PER_VCORE: Final = 1000
BYTES_PER_MIB: Final = 1 << 20
_BYTES_PER_MEGABYTE: Final = 10**6
_NOTHING = Quantity(0)
#: Of one node: the ResourceManager sums up the vcores of all nodes in 32 bits.
_MOST_VCORES: Final = 1 << 16


class BatchAmounts(NamedTuple):
    """Batch resources: milli-CPU and bytes."""

    cpu_milli: int = 0
    memory_bytes: int = 0

    def plus(self, other: "BatchAmounts") -> "BatchAmounts":
        return BatchAmounts(
            self.cpu_milli + other.cpu_milli, self.memory_bytes + other.memory_bytes
        )

    def minus(self, other: "BatchAmounts") -> "BatchAmounts":
        """Return the difference, each amount at least 0."""
        return BatchAmounts(
            max(self.cpu_milli - other.cpu_milli, 0),
            max(self.memory_bytes - other.memory_bytes, 0),
        )

    def larger(self, other: "BatchAmounts") -> "BatchAmounts":
        """Return the larger of each amount."""
        return BatchAmounts(*map(max, self, other))

    def smaller(self, other: "BatchAmounts") -> "BatchAmounts":
        """Return the smaller of each amount."""
        return BatchAmounts(*map(min, self, other))

    def percent(self, percent: int) -> "BatchAmounts":
        """Return a percentage of each amount, rounded up."""
        return BatchAmounts(*(-(-amount * percent // 100) for amount in self))

    def covers(self, other: "BatchAmounts") -> bool:
        """Return whether nothing of the other is more."""
        return all(mine >= theirs for mine, theirs in zip(self, other, strict=True))

    def resources(self) -> dict[str, Quantity]:
        """Return the amounts as an annotation or a node states them."""
        return {
            BATCH_CPU: Quantity.from_int(self.cpu_milli),
            BATCH_MEMORY: Quantity.from_int(self.memory_bytes, binary=True),
        }


class YarnResource(NamedTuple):
    """Resources of YARN: vcores and MiB, never negative."""

    vcores: int = 0
    memory_mb: int = 0

    def batch(self) -> BatchAmounts:
        """Return the equivalent batch resources."""
        return BatchAmounts(self.vcores * MILLI_PER_VCORE, self.memory_mb * BYTES_PER_MIB)

    def larger(self, other: "YarnResource") -> "YarnResource":
        """Return the larger of each amount."""
        return YarnResource(*map(max, self, other))

    def smaller(self, other: "YarnResource") -> "YarnResource":
        """Return the smaller of each amount."""
        return YarnResource(*map(min, self, other))

    def covers(self, other: "YarnResource") -> bool:
        """Return whether nothing of the other is more."""
        return all(mine >= theirs for mine, theirs in zip(self, other, strict=True))


NOTHING: Final = BatchAmounts()


def batch_amounts(resources: Mapping[str, Quantity]) -> BatchAmounts:
    """Return the batch resources of a list, each from 0 to ``LARGEST``; missing ones are 0."""
    return BatchAmounts(
        bounded(BATCH_CPU, resources.get(BATCH_CPU, _NOTHING)),
        bounded(BATCH_MEMORY, resources.get(BATCH_MEMORY, _NOTHING)),
    )


def whole_units(amounts: BatchAmounts) -> YarnResource:
    """Return the whole vcores and MiB in an amount."""
    vcores = min(amounts.cpu_milli // MILLI_PER_VCORE, _MOST_VCORES)
    return YarnResource(vcores, amounts.memory_bytes // BYTES_PER_MIB)


def units_that_cover(amounts: BatchAmounts, bytes_per_mb: int = BYTES_PER_MIB) -> YarnResource:
    """Return the fewest whole vcores and MiB that are not less than an amount."""
    vcores = min(-(-amounts.cpu_milli // MILLI_PER_VCORE), _MOST_VCORES)
    return YarnResource(vcores, -(-amounts.memory_bytes // bytes_per_mb))


def original_units(amounts: BatchAmounts) -> YarnResource:
    """Return the original's conversion: both rounded up, memory in megabytes of 10^6 bytes."""
    return units_that_cover(amounts, _BYTES_PER_MEGABYTE)


__all__ = [
    "BYTES_PER_MIB",
    "LARGEST",
    "MILLI_PER_VCORE",
    "NOTHING",
    "BatchAmounts",
    "YarnResource",
    "batch_amounts",
    "original_units",
    "units_that_cover",
    "whole_units",
]
