"""Simulated YARN: the ResourceManager, NodeManagers and applications.

Applications of a YARN queue: arrivals, requests of containers and their durations.

ApplicationMasters are not simulated: they are small, and YARN preempts tasks before them.

The behaviour is that observed with Hadoop 3.3.6 and the CapacityScheduler (tests/e2e/yarn runs a
real one).  The queue with the lowest dominant share of its capacity gets the next container, on the
node with the most free vcores; a queue is served in order of arrival.  Queues may exceed their
capacity while there is room, without preemption between queues.

A limit below the usage ends the newest containers after the over-commit timeout.  The timeout is
kept per node until its NodeManager registers again; a negative timeout does not clear it.  A node
without heartbeats gets no containers, and after ``EXPIRY_S`` its containers are lost.
"""

import math
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from enum import StrEnum
from functools import partial
from itertools import count
from typing import Protocol

import numpy as np

from koordinator.foundation.clock import Clock
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.hadoop.amounts import BYTES_PER_MIB, YarnResource
from koordinator.hadoop.port import UnknownYarnNodeError, YarnLimit, YarnNode, YarnRefusedError
from koordinator.simulator.colocation_report import YarnQueueTotals
from koordinator.simulator.job_metrics import waiting_times
from koordinator.simulator.pod_streams import arrival_times, usage_curve
from koordinator.simulator.usage import UsageCurve
from koordinator.simulator.workload import YarnQueueConfig

_NODE_MANAGER_PORT = 8041
_CLUSTER = 0  # number of the cluster in container ids
_MASTER = 1  # number of the ApplicationMaster's container, which is not simulated

#: Hadoop's default of yarn.nm.liveness-monitor.expiry-interval-ms.
EXPIRY_S = 600.0
_MILLIS = 1000


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


class ContainerEnd(StrEnum):
    """Reason of a container's early end."""

    PREEMPTED = "preempted"
    EVICTED = "evicted"
    LOST = "lost"


class ContainerHosts(Protocol):
    """Observer of the start and end of containers.

    Rule R7: ``colocation``, which implements it, imports this module.
    """

    def container_started(self, container: SimulatedContainer) -> None:
        """Add a container that starts its work."""

    def container_ended(self, container: SimulatedContainer) -> None:
        """Remove a container; its node may be down."""


class DelayedCalls(Protocol):
    """Scheduler of delayed calls, such as ``World.at``."""

    def __call__(self, time_s: float, action: Callable[[], None]) -> None: ...


@dataclass(slots=True)
class _SimulatedNodeManager:
    node_id: str
    row: int
    is_registered: bool = True
    timeout_s: float | None = None  # None before the first one
    preempts_at_s: float | None = None
    silent: int = 0  # number of losses of heartbeats; identifies stale expiry events
    containers: dict[str, SimulatedContainer] = field(default_factory=dict)


@dataclass(slots=True)
class _YarnQueue:
    queue: YarnQueue
    waiting: deque[SimulatedContainer] = field(default_factory=deque)
    vcores: int = 0
    memory_mb: int = 0
    applications: int = 0
    applications_finished: int = 0
    requested: int = 0
    finished: int = 0
    ends: Counter[ContainerEnd] = field(default_factory=Counter)
    waits_s: list[float] = field(default_factory=list)

    def take(self, sign: int) -> None:
        """Add (1) or remove (-1) a container's resources."""
        self.vcores += sign * self.queue.resource.vcores
        self.memory_mb += sign * self.queue.resource.memory_mb

    def totals(self) -> YarnQueueTotals:
        return YarnQueueTotals(
            queue=self.queue.name,
            applications=self.applications,
            applications_finished=self.applications_finished,
            containers=self.requested,
            started=len(self.waits_s),
            finished=self.finished,
            preempted=self.ends[ContainerEnd.PREEMPTED],
            evicted=self.ends[ContainerEnd.EVICTED],
            lost=self.ends[ContainerEnd.LOST],
            waiting=waiting_times(self.waits_s),
        )


class SimulatedResourceManager:
    """ResourceManager for one thread; ``registered`` are the resources of a new NodeManager."""

    def __init__(
        self,
        queues: Sequence[YarnQueue],
        node_ids: Sequence[str],
        *,
        registered: YarnResource,
        clock: Clock,
        at: DelayedCalls,
        hosts: ContainerHosts,
    ) -> None:
        self._clock, self._at, self._hosts = clock, at, hosts
        self._registered = registered
        self._queues = {queue.name: _YarnQueue(queue) for queue in queues}
        self._managers = {i: _SimulatedNodeManager(i, row) for row, i in enumerate(node_ids)}
        self._rows = tuple(self._managers.values())
        # A row per node: vcores and MiB; 0 for a node that is not registered.
        self._limits = np.tile(np.array(registered, np.int64), (len(node_ids), 1))
        self._used = np.zeros_like(self._limits)
        self._has_heartbeat = np.ones(len(node_ids), bool)
        self._starts = count(1)

    # -- applications ------------------------------------------------------------------------

    def submit(self, application: SimulatedApplication) -> None:
        """Request the containers of an application."""
        state, now_s = self._queues[application.queue.name], self._clock.now_s()
        state.applications += 1
        state.requested += len(application.work_s)
        application.unfinished = len(application.work_s)
        for work_s in application.work_s:
            state.waiting.append(SimulatedContainer(application.queue, application, work_s, now_s))
        self._grant()

    def finish(self, container: SimulatedContainer) -> None:
        """Record that the work of a container is done."""
        self._remove(container)
        state, application = self._queues[container.queue.name], container.application
        state.finished += 1
        application.unfinished -= 1
        state.applications_finished += not application.unfinished
        self._grant()

    def end(self, containers: Sequence[SimulatedContainer], why: ContainerEnd) -> None:
        """End containers early and requeue them at the head of their queues."""
        now_s = self._clock.now_s()
        for container in reversed(containers):
            self._remove(container)
            state = self._queues[container.queue.name]
            state.ends[why] += 1
            container.node_id, container.waiting_since_s = "", now_s
            state.waiting.appendleft(container)
        self._grant()

    # -- NodeManagers ------------------------------------------------------------------------

    def lose_heartbeat(self, node_id: str) -> None:
        """Stop the heartbeats of a NodeManager, whose containers have ended with it."""
        manager = self._managers[node_id]
        manager.silent += 1
        self._has_heartbeat[manager.row] = False
        expired = partial(self._expire, node_id, manager.silent)
        self._at(self._clock.now_s() + EXPIRY_S, expired)

    def register(self, node_id: str) -> None:
        """Register a restarted NodeManager, which has no containers."""
        manager = self._managers[node_id]
        manager.silent += 1
        lost = tuple(manager.containers.values())
        manager.is_registered = True
        manager.timeout_s = manager.preempts_at_s = None
        self._limits[manager.row] = self._registered
        self._has_heartbeat[manager.row] = True
        self.end(lost, ContainerEnd.LOST)

    def containers_of(self, node_id: str) -> Sequence[SimulatedContainer]:
        """Return the containers of a node, oldest first."""
        return tuple(self._managers[node_id].containers.values())

    def _expire(self, node_id: str, silent: int) -> None:
        manager = self._managers[node_id]
        if manager.silent == silent:
            manager.is_registered = False
            self._limits[manager.row] = 0
            self.end(tuple(manager.containers.values()), ContainerEnd.LOST)

    # -- hadoop.port.ResourceManager ---------------------------------------------------------

    def nodes(self) -> list[YarnNode]:
        return [self._node(each) for each in self._rows if each.is_registered]

    def node(self, node_id: str) -> YarnNode:
        return self._node(self._registered_one(node_id))

    def set_limit(self, limit: YarnLimit) -> None:
        manager = self._registered_one(limit.node_id)
        if limit.overcommit_timeout_ms >= 0:
            manager.timeout_s = limit.overcommit_timeout_ms / _MILLIS
        self._limits[manager.row] = limit.resource
        manager.preempts_at_s = None
        if manager.timeout_s is not None and self._over(manager) != YarnResource():
            manager.preempts_at_s = at_s = self._clock.now_s() + manager.timeout_s
            self._at(at_s, partial(self._preempt, limit.node_id, at_s))
        self._grant()

    def signal_container(self, container_id: str) -> None:
        for manager in self._managers.values():
            if container_id in manager.containers:
                self.end((manager.containers[container_id],), ContainerEnd.EVICTED)
                return
        raise YarnRefusedError(f"{container_id}: unknown")

    def is_active(self) -> bool:
        return True

    def close(self) -> None:
        """Do nothing: there are no connections."""

    # -- figures -----------------------------------------------------------------------------

    @property
    def limit_vcores(self) -> int:
        """Sum of the vcore limits of all nodes."""
        return int(self._limits[:, 0].sum())

    @property
    def waiting(self) -> int:
        """Number of pending containers."""
        return sum(len(state.waiting) for state in self._queues.values())

    def totals(self) -> tuple[YarnQueueTotals, ...]:
        """Return the outcomes of the containers by queue."""
        return tuple(state.totals() for state in self._queues.values())

    # -- allocation --------------------------------------------------------------------------

    def _grant(self) -> None:
        while True:
            waiting = [state for state in self._queues.values() if state.waiting]
            for state in sorted(waiting, key=self._share):
                manager = self._roomiest(state.queue.resource)
                if manager is not None:
                    self._start(state, manager)
                    break
            else:
                return

    def _share(self, state: _YarnQueue) -> float:
        """Return the dominant share of a queue relative to its capacity."""
        has = np.array((state.vcores, state.memory_mb))
        dominant = (has / np.maximum(self._limits.sum(axis=0), 1)).max()
        return float(dominant) / state.queue.capacity

    def _roomiest(self, resource: YarnResource) -> _SimulatedNodeManager | None:
        """Return the node with the most free vcores that fits a container."""
        free = self._limits - self._used
        fits = self._has_heartbeat & (free >= np.array(resource)).all(axis=1)
        if not fits.any():
            return None
        return self._rows[int(np.where(fits, free[:, 0], -1).argmax())]

    def _start(self, state: _YarnQueue, manager: _SimulatedNodeManager) -> None:
        container = state.waiting.popleft()
        container.node_id = manager.node_id
        container.container_id = container.application.next_container_id()
        container.started = next(self._starts)
        state.waits_s.append(self._clock.now_s() - container.waiting_since_s)
        state.take(1)
        manager.containers[container.container_id] = container
        self._used[manager.row] += container.queue.resource
        self._hosts.container_started(container)

    def _remove(self, container: SimulatedContainer) -> None:
        manager = self._managers[container.node_id]
        del manager.containers[container.container_id]
        self._used[manager.row] -= container.queue.resource
        self._queues[container.queue.name].take(-1)
        self._hosts.container_ended(container)

    def _preempt(self, node_id: str, at_s: float) -> None:
        """End the newest containers above the limit, unless the limit has changed since."""
        manager = self._managers[node_id]
        if manager.preempts_at_s != at_s:
            return
        manager.preempts_at_s = None
        left, ended = self._over(manager), []
        for container in sorted(manager.containers.values(), key=lambda c: -c.started):
            if left == YarnResource():
                break
            resource = container.queue.resource
            left = YarnResource(
                max(left.vcores - resource.vcores, 0), max(left.memory_mb - resource.memory_mb, 0)
            )
            ended.append(container)
        self.end(ended, ContainerEnd.PREEMPTED)

    def _over(self, manager: _SimulatedNodeManager) -> YarnResource:
        """Return the usage above the limit."""
        beyond = np.maximum(self._used[manager.row] - self._limits[manager.row], 0)
        return YarnResource(*beyond.tolist())

    def _registered_one(self, node_id: str) -> _SimulatedNodeManager:
        manager = self._managers.get(node_id)
        if manager is None or not manager.is_registered:
            raise UnknownYarnNodeError(f"{node_id}: unknown")
        return manager

    def _node(self, manager: _SimulatedNodeManager) -> YarnNode:
        limit, used = self._limits[manager.row].tolist(), self._used[manager.row].tolist()
        return YarnNode(
            manager.node_id,
            "RUNNING",
            YarnResource(*limit),
            YarnResource(*used),
            len(manager.containers),
        )
