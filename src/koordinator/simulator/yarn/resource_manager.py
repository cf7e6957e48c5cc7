"""A ResourceManager over virtual time: ``hadoop.port.ResourceManager`` for the operator.

It behaves as one of Hadoop 3.3.6 with the CapacityScheduler was seen to (tests/e2e/yarn asks a real
one).  The next container is that of the queue which has least of its capacity, by the resource of
which it has most; within a queue first come, first served; on the node with most vcores free.
Queues may grow over their capacity as long as there is room, and no queue takes from another one.

A limit below what containers have ends the newest of them when the over-commit timeout has passed;
the timeout is kept per node until its NodeManager registers anew, and a negative one does not
clear it.  A node without heartbeats gets nothing more; after ``EXPIRY_S`` its containers are lost.
"""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from itertools import count
from typing import Protocol

import numpy as np

from koordinator.foundation.clock import Clock
from koordinator.hadoop.amounts import YarnResource
from koordinator.hadoop.port import UnknownYarnNodeError, YarnLimit, YarnNode, YarnRefusedError
from koordinator.simulator.colocation_report import YarnQueueTotals
from koordinator.simulator.waiting_times import waiting_times
from koordinator.simulator.yarn.applications import (
    SimulatedApplication,
    SimulatedContainer,
    YarnQueue,
)

#: yarn.nm.liveness-monitor.expiry-interval-ms, as Hadoop has it.
EXPIRY_S = 600.0
_MILLIS = 1000


class ContainerEnd(StrEnum):
    """Why a container ended before its work was done."""

    PREEMPTED = "preempted"
    EVICTED = "evicted"
    LOST = "lost"


class ContainerHosts(Protocol):
    """Where containers run."""

    def container_started(self, container: SimulatedContainer) -> None:
        """Take in a container that begins its work."""

    def container_ended(self, container: SimulatedContainer) -> None:
        """Forget a container that works no more; its node may be down."""


class DelayedCalls(Protocol):
    """Has something done at a later time; ``World.at`` does."""

    def __call__(self, time_s: float, action: Callable[[], None]) -> None: ...


@dataclass(slots=True)
class _NodeManager:
    node_id: str
    row: int
    is_registered: bool = True
    timeout_s: float | None = None  # None: none was ever set
    preempts_at_s: float | None = None
    silent: int = 0  # how often its heartbeats have ceased
    containers: dict[str, SimulatedContainer] = field(default_factory=dict)


@dataclass(slots=True)
class _QueueState:
    queue: YarnQueue
    waiting: deque[SimulatedContainer] = field(default_factory=deque)
    vcores: int = 0
    memory_mb: int = 0
    applications: int = 0
    applications_finished: int = 0
    asked: int = 0
    finished: int = 0
    ends: Counter[ContainerEnd] = field(default_factory=Counter)
    waits_s: list[float] = field(default_factory=list)

    def take(self, sign: int) -> None:
        """Count a container that starts (1) or ends (-1)."""
        self.vcores += sign * self.queue.resource.vcores
        self.memory_mb += sign * self.queue.resource.memory_mb

    def totals(self) -> YarnQueueTotals:
        return YarnQueueTotals(
            queue=self.queue.name,
            applications=self.applications,
            applications_finished=self.applications_finished,
            containers=self.asked,
            started=len(self.waits_s),
            finished=self.finished,
            preempted=self.ends[ContainerEnd.PREEMPTED],
            evicted=self.ends[ContainerEnd.EVICTED],
            lost=self.ends[ContainerEnd.LOST],
            waiting=waiting_times(self.waits_s),
        )


class SimulatedResourceManager:
    """Belongs to one thread.  ``registered`` is what a NodeManager has when it registers."""

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
        self._queues = {queue.name: _QueueState(queue) for queue in queues}
        self._managers = {i: _NodeManager(i, row) for row, i in enumerate(node_ids)}
        self._rows = tuple(self._managers.values())
        # A row per node, vcores and MiB; what is not registered has nothing to hand out.
        self._limits = np.tile(np.array(registered, np.int64), (len(node_ids), 1))
        self._used = np.zeros_like(self._limits)
        self._is_heard = np.ones(len(node_ids), bool)
        self._starts = count(1)

    # -- what applications do ----------------------------------------------------------------

    def submit(self, application: SimulatedApplication) -> None:
        """Ask for the containers of an application."""
        state, now_s = self._queues[application.queue.name], self._clock.now_s()
        state.applications += 1
        state.asked += len(application.work_s)
        application.unfinished = len(application.work_s)
        for work_s in application.work_s:
            state.waiting.append(SimulatedContainer(application.queue, application, work_s, now_s))
        self._grant()

    def finish(self, container: SimulatedContainer) -> None:
        """Take note that the work of a container is done."""
        self._remove(container)
        state, application = self._queues[container.queue.name], container.application
        state.finished += 1
        application.unfinished -= 1
        state.applications_finished += not application.unfinished
        self._grant()

    def end(self, containers: Sequence[SimulatedContainer], why: ContainerEnd) -> None:
        """End containers early; their applications ask for others at once, before all others."""
        now_s = self._clock.now_s()
        for container in reversed(containers):
            self._remove(container)
            state = self._queues[container.queue.name]
            state.ends[why] += 1
            container.node_id, container.waiting_since_s = "", now_s
            state.waiting.appendleft(container)
        self._grant()

    # -- what NodeManagers do ----------------------------------------------------------------

    def lose_heartbeat(self, node_id: str) -> None:
        """Hear no more of a NodeManager, whose containers are gone with it."""
        manager = self._managers[node_id]
        manager.silent += 1
        self._is_heard[manager.row] = False
        expired = partial(self._expire, node_id, manager.silent)
        self._at(self._clock.now_s() + EXPIRY_S, expired)

    def register(self, node_id: str) -> None:
        """Take in a NodeManager that has begun anew, without containers."""
        manager = self._managers[node_id]
        manager.silent += 1
        lost = tuple(manager.containers.values())
        manager.is_registered = True
        manager.timeout_s = manager.preempts_at_s = None
        self._limits[manager.row] = self._registered
        self._is_heard[manager.row] = True
        self.end(lost, ContainerEnd.LOST)

    def containers_of(self, node_id: str) -> Sequence[SimulatedContainer]:
        """Return the containers of a node, the oldest first."""
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
        """Nothing is kept open."""

    # -- what reports say --------------------------------------------------------------------

    @property
    def limit_vcores(self) -> int:
        """What may be handed out on all nodes."""
        return int(self._limits[:, 0].sum())

    @property
    def waiting(self) -> int:
        """How many containers wait."""
        return sum(len(state.waiting) for state in self._queues.values())

    def totals(self) -> tuple[YarnQueueTotals, ...]:
        """Return what became of the containers, by queue."""
        return tuple(state.totals() for state in self._queues.values())

    # -- who gets what -----------------------------------------------------------------------

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

    def _share(self, state: _QueueState) -> float:
        """Return what a queue has of its capacity."""
        has = np.array((state.vcores, state.memory_mb))
        dominant = (has / np.maximum(self._limits.sum(axis=0), 1)).max()
        return float(dominant) / state.queue.capacity

    def _roomiest(self, resource: YarnResource) -> _NodeManager | None:
        """Return the node with most vcores free among those with room."""
        free = self._limits - self._used
        fits = self._is_heard & (free >= np.array(resource)).all(axis=1)
        if not fits.any():
            return None
        return self._rows[int(np.where(fits, free[:, 0], -1).argmax())]

    def _start(self, state: _QueueState, manager: _NodeManager) -> None:
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
        """End the newest containers beyond the limit, unless another one has been set since."""
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

    def _over(self, manager: _NodeManager) -> YarnResource:
        """Return by how much containers are beyond the limit."""
        beyond = np.maximum(self._used[manager.row] - self._limits[manager.row], 0)
        return YarnResource(*beyond.tolist())

    def _registered_one(self, node_id: str) -> _NodeManager:
        manager = self._managers.get(node_id)
        if manager is None or not manager.is_registered:
            raise UnknownYarnNodeError(f"{node_id}: unknown")
        return manager

    def _node(self, manager: _NodeManager) -> YarnNode:
        limit, used = self._limits[manager.row].tolist(), self._used[manager.row].tolist()
        return YarnNode(
            manager.node_id,
            "RUNNING",
            YarnResource(*limit),
            YarnResource(*used),
            len(manager.containers),
        )
