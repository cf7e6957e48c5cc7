"""What load-aware scheduling is told to count; with it, a cluster's load is determined.

Source: koordinator pkg/scheduler/plugins/loadaware/helper.go.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from koordinator.domain.pod_requests import LARGEST, nanos_of_one
from koordinator.foundation.quantity import Quantity

#: One number per resource of the rules, canonical units (milli-CPU, bytes) or percent.
Amounts = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Window:
    """A statistic of a node's usage; a duration of 0 is the longest that is reported."""

    statistic: str  # an AggregationType
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Percent of what a node has, above which it takes no pods; 0 is not checked.

    ``prod`` counts for prod pods if it checks anything.  Otherwise, ``usage`` is of ``window``, or
    of the latest measurement where there is none.
    """

    usage: Amounts
    prod: Amounts
    window: Window | None = None


@dataclass(frozen=True, kw_only=True)
class LoadRules:
    """Equal rules see equal loads."""

    resources: tuple[str, ...]  # in alphabetical order
    factors: tuple[tuple[str, int], ...]  # percent of its request that a pod is taken to use
    limits: Limits
    scored: Window | None = None  # the usage that scores look at; None: the latest
    expiration_s: float
    customised: bool = False  # whether annotations of pods change their estimates
    after_scheduled_s: int | None = None  # how long a pod counts at least as estimated …
    after_initialized_s: int | None = None  # … since it was scheduled, or initialized
    includes_system: bool = False  # in what prod pods use

    @cached_property
    def key(self) -> str:
        """Equal for equal rules; text, for its hash is computed once."""
        return repr(self)

    @cached_property
    def nothing(self) -> Amounts:
        """Zeros."""
        return (0,) * len(self.resources)

    def amounts(self, quantities: Mapping[str, Quantity]) -> Amounts:
        """Return quantities in canonical units, 0 where there is none or less."""
        found = []
        for name, unit in self._units:
            quantity = quantities.get(name)
            amount = 0 if quantity is None else -(-quantity.nanos // unit)
            found.append(max(0, min(amount, LARGEST)))
        return tuple(found)

    @cached_property
    def _units(self) -> tuple[tuple[str, int], ...]:
        """The resources, each with what one unit of it is in nanos."""
        return tuple((name, nanos_of_one(name)) for name in self.resources)

    def numbers(self, of: Mapping[str, int]) -> Amounts:
        """Return plain numbers by resource, 0 where there is none."""
        return tuple(of.get(name, 0) for name in self.resources)


def tracked_resources(*named: Iterable[str]) -> tuple[str, ...]:
    """Return all resources that are named anywhere, CPU and memory in any case."""
    return tuple(sorted({"cpu", "memory"}.union(*named)))
