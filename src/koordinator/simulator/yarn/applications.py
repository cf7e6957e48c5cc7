"""Applications of a YARN queue: arrivals, requests of containers and their durations.

ApplicationMasters are not simulated: they are small, and YARN preempts tasks before them.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from koordinator.hadoop.amounts import BYTES_PER_MIB, YarnResource
from koordinator.simulator.pod_streams import arrival_times, usage_curve
from koordinator.simulator.usage import UsageCurve
from koordinator.simulator.workload import YarnQueueConfig

_NODE_MANAGER_PORT = 8041
_CLUSTER = 0  # number of the cluster in container ids
_MASTER = 1  # number of the ApplicationMaster's container, which is not simulated


@dataclass(frozen=True, slots=True)
class YarnQueue:
    """Leaf queue; ``capacity`` is its weight, ``resource`` the request of each container."""

    name: str
    capacity: float
    resource: YarnResource
    usage: UsageCurve


@dataclass(slots=True, eq=False)
class SimulatedContainer:
    """Container with its attempts; ``node_id`` is empty while it is pending."""

    queue: YarnQueue
    application: "SimulatedApplication"
    work_s: float  # at full speed
    waiting_since_s: float
    node_id: str = ""
    container_id: str = ""  # of this attempt
    started: int = 0  # sequence number of the start, over all containers


@dataclass(slots=True, eq=False)
class SimulatedApplication:
    """Application that requests all its containers at its start; ``number`` is unique."""

    number: int
    at_s: float
    queue: YarnQueue
    work_s: tuple[float, ...]  # of its containers
    unfinished: int = 0
    attempts: int = 0  # containers started so far
    containers: list[SimulatedContainer] = field(default_factory=list)

    def next_container_id(self) -> str:
        """Return the id of the next container attempt."""
        self.attempts += 1
        return f"container_{_CLUSTER}_{self.number:04}_01_{self.attempts + _MASTER:06}"


def node_manager_id(node: str) -> str:
    """Return the id with which the NodeManager of a node registers."""
    return f"{node}:{_NODE_MANAGER_PORT}"


def queue_of(config: YarnQueueConfig) -> YarnQueue:
    """Return the queue of a configuration."""
    memory_mb = math.ceil(config.container.memory.value() / BYTES_PER_MIB)
    return YarnQueue(
        config.name,
        float(config.capacity or 1),
        YarnResource(config.container.vcores, memory_mb),
        usage_curve(config.container.usage),
    )


def applications_of(
    config: YarnQueueConfig, until_s: float, rng: np.random.Generator
) -> Iterator[SimulatedApplication]:
    """Draw the applications that arrive up to ``until_s``, in order of time, unnumbered."""
    queue, duration = queue_of(config), config.duration.build()
    for at_s in arrival_times(config.arrival, until_s, rng).tolist():
        work_s = tuple(duration.draw(rng) for _ in range(config.containers))
        yield SimulatedApplication(0, at_s, queue, work_s)
