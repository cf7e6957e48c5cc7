"""CPU and memory together, in nanos: of a CPU, of a byte.

Source: koordinator pkg/util/resource.go; k8s.io/apimachinery pkg/api/resource/quantity.go.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

from koordinator.api.resource_names import CPU, MEMORY
from koordinator.foundation.quantity import Quantity

NANOS = 10**9
NANOS_PER_MILLI = 10**6
_NANOS_PER_GIGA = 10**18
_NOTHING = Quantity(0)


class CpuMemory(NamedTuple):
    """Two amounts; may be negative."""

    cpu: int = 0
    memory: int = 0

    def plus(self, other: "CpuMemory") -> "CpuMemory":
        return CpuMemory(self.cpu + other.cpu, self.memory + other.memory)

    def minus(self, other: "CpuMemory") -> "CpuMemory":
        return CpuMemory(self.cpu - other.cpu, self.memory - other.memory)

    def larger(self, other: "CpuMemory") -> "CpuMemory":
        """Return the larger of each."""
        return CpuMemory(max(self.cpu, other.cpu), max(self.memory, other.memory))

    def divided(self, parts: int) -> "CpuMemory":
        """Return one of so many equal parts, each amount rounded up to thousandths."""
        return CpuMemory(_part(self.cpu, parts), _part(self.memory, parts))


ZERO = CpuMemory()


def cpu_and_memory(resources: Mapping[str, Quantity]) -> CpuMemory:
    """Return the two of a list; what is missing is 0."""
    return CpuMemory(resources.get(CPU, _NOTHING).nanos, resources.get(MEMORY, _NOTHING).nanos)


def milli(nanos: int) -> int:
    """Return thousandths, rounded away from zero."""
    return _away_from_zero(nanos, NANOS_PER_MILLI)


def units(nanos: int) -> int:
    """Return whole units, rounded away from zero."""
    return _away_from_zero(nanos, NANOS)


def giga(nanos: int) -> int:
    """Return units of 10^9, rounded away from zero."""
    return _away_from_zero(nanos, _NANOS_PER_GIGA)


def scaled_milli(nanos: int, factor: float) -> int:
    """Return nanos of the thousandths times a factor, cut to whole thousandths."""
    return int(milli(nanos) * factor) * NANOS_PER_MILLI


def scaled_units(nanos: int, factor: float) -> int:
    """Return nanos of the whole units times a factor, cut to whole units."""
    return int(units(nanos) * factor) * NANOS


def plain(number: float) -> str:
    """Return a float as Go's ``%v`` prints those that occur here: no ``.0``."""
    return str(int(number)) if number == int(number) else repr(number)


def _part(nanos: int, parts: int) -> int:
    return math.ceil(milli(nanos) / parts) * NANOS_PER_MILLI


def _away_from_zero(nanos: int, divisor: int) -> int:
    return -(-nanos // divisor) if nanos >= 0 else nanos // divisor
