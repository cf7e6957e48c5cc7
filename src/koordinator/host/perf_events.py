"""Port to the performance counters of the CPUs.

Source: koordinator pkg/koordlet/util/perf; Linux man 2 perf_event_open.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from koordinator.foundation.errors import HostError


@dataclass(frozen=True, slots=True)
class Counts:
    """Counters of a cgroup's tasks, summed over all CPUs, for the time of counting."""

    cycles: float
    instructions: float


class Counting(Protocol):
    """Counting in progress; ``stop`` must be called."""

    def stop(self) -> Counts:
        """Stop counting and return the counts.  Raises HostError."""


class PerfEvents(Protocol):
    """Performance counters of this machine."""

    def start(self, folder: str, cpus: Sequence[int]) -> Counting:
        """Start counting for a cgroup; ``folder`` is its absolute path.

        Raises MissingFileError for a vanished cgroup, and HostError if counters are missing or not
        permitted.
        """


class NoPerfEvents:
    """Machine without performance counters."""

    def start(self, folder: str, cpus: Sequence[int]) -> Counting:
        raise HostError(f"can't count for {folder} on {len(cpus)} CPUs: no performance counters")
