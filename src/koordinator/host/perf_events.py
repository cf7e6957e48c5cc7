"""What a node agent asks of the performance counters of its CPUs.

Source: koordinator pkg/koordlet/util/perf; Linux man 2 perf_event_open.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from koordinator.foundation.errors import HostError


@dataclass(frozen=True, slots=True)
class Counts:
    """What the tasks of a cgroup took, all CPUs together, while they were counted."""

    cycles: float
    instructions: float


class Counting(Protocol):
    """Goes on until ``stop``, which has to be called."""

    def stop(self) -> Counts:
        """End it, and return what was counted.  Raises HostError."""


class PerfEvents(Protocol):
    """The counters of this machine."""

    def start(self, folder: str, cpus: Sequence[int]) -> Counting:
        """Count for a cgroup from now on; ``folder`` is its absolute path.

        Raises MissingFileError for a cgroup that has vanished, and HostError where there are no
        counters, or none for this process.
        """


class NoPerfEvents:
    """A machine without counters."""

    def start(self, folder: str, cpus: Sequence[int]) -> Counting:
        raise HostError(f"can't count for {folder} on {len(cpus)} CPUs: no performance counters")
