"""The ResourceManager of simulations: who gets the next container, and whose end."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from koordinator.foundation.clock import VirtualClock
from koordinator.hadoop.amounts import YarnResource
from koordinator.hadoop.port import UnknownYarnNodeError, YarnLimit, YarnRefusedError
from koordinator.simulator.usage import WHOLE
from koordinator.simulator.yarn import (
    EXPIRY_S,
    ContainerEnd,
    SimulatedApplication,
    SimulatedContainer,
    SimulatedResourceManager,
    YarnQueue,
)

NODES = ("n1:8041", "n2:8041")
REGISTERED = YarnResource(1, 1024)
ETL = YarnQueue("etl", 70.0, YarnResource(2, 2048), WHOLE)
ADHOC = YarnQueue("adhoc", 30.0, YarnResource(1, 512), WHOLE)


class PlayedCluster:
    """Two nodes, two queues, and time that advances on request."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.running: list[SimulatedContainer] = []
        self._due: list[tuple[float, Callable[[], None]]] = []
        self._number = 0
        self.manager = SimulatedResourceManager(
            (ETL, ADHOC),
            NODES,
            registered=REGISTERED,
            clock=self.clock,
            at=lambda time_s, action: self._due.append((time_s, action)),
            hosts=self,
        )

    def container_started(self, container: SimulatedContainer) -> None:
        self.running.append(container)

    def container_ended(self, container: SimulatedContainer) -> None:
        self.running.remove(container)

    def submit(self, queue: YarnQueue, containers: int) -> SimulatedApplication:
        self._number += 1
        application = SimulatedApplication(self._number, 0.0, queue, (60.0,) * containers)
        self.manager.submit(application)
        return application

    def limit(self, node_id: str, vcores: int, memory_mb: int, timeout_ms: int = -1) -> None:
        self.manager.set_limit(YarnLimit(node_id, YarnResource(vcores, memory_mb), timeout_ms))

    def wait(self, seconds: float) -> None:
        """Advance the clock; due events happen in their order."""
        until_s = self.clock.now_s() + seconds
        while due := [each for each in self._due if each[0] <= until_s]:
            first = min(due, key=lambda each: each[0])
            self._due.remove(first)
            self.clock.advance_to(first[0])
            first[1]()
        self.clock.advance_to(until_s)

    def on(self, node_id: str) -> list[str]:
        """Return the ids of the containers of a node, the oldest first."""
        return [each.container_id for each in self.manager.containers_of(node_id)]

    def counts(self) -> dict[str, int]:
        return {
            queue.name: sum(each.queue is queue for each in self.running) for queue in (ETL, ADHOC)
        }

    def validate(self) -> None:
        """Derive what is redundant again."""
        for node in self.manager.nodes():
            has = [each for each in self.running if each.node_id == node.node_id]
            assert node.used == YarnResource(
                sum(each.queue.resource.vcores for each in has),
                sum(each.queue.resource.memory_mb for each in has),
            )
            assert node.containers == len(has)


def test_containers_start_where_there_is_room_and_wait_where_not() -> None:
    """Most free vcores first; nothing beyond a limit, of either resource."""
    it = PlayedCluster()
    it.submit(ADHOC, 5)
    assert it.counts()["adhoc"] == 2  # one vcore each, as they registered

    it.limit(NODES[0], 3, 1024)
    assert it.counts()["adhoc"] == 3  # a third has a vcore, but no memory
    it.limit(NODES[1], 8, 8192)
    assert it.counts()["adhoc"] == 5
    assert it.manager.waiting == 0
    assert it.manager.limit_vcores == 11


def test_queues_have_their_capacities_when_both_want_more() -> None:
    """70 to 30; the resource with the largest share of a queue counts."""
    it = PlayedCluster()
    it.submit(ETL, 100)
    it.submit(ADHOC, 100)
    it.limit(NODES[0], 100, 1 << 20)

    counts = it.counts()

    assert 2 * counts["etl"] / (2 * counts["etl"] + counts["adhoc"]) == pytest.approx(0.7, abs=0.03)


def test_a_queue_alone_has_everything() -> None:
    """Capacities are elastic, and no queue takes from another one."""
    it = PlayedCluster()
    it.limit(NODES[0], 10, 1 << 20)
    it.submit(ETL, 5)
    it.submit(ADHOC, 5)

    assert it.counts() == {"etl": 5, "adhoc": 1}  # the other node's only vcore


@pytest.mark.parametrize("timeout_ms", [0, 30_000])
def test_a_lower_limit_ends_the_newest_when_the_time_is_over(timeout_ms: int) -> None:
    """The application requests new containers, which wait before all later requests."""
    it = PlayedCluster()
    it.limit(NODES[0], 4, 4096)
    application = it.submit(ETL, 2)
    oldest, _newest = it.on(NODES[0])

    it.limit(NODES[0], 2, 2048, timeout_ms)
    if timeout_ms:
        it.wait(timeout_ms / 1000 - 1)
        assert len(it.on(NODES[0])) == 2
    it.wait(1)

    assert it.on(NODES[0]) == [oldest]
    assert it.manager.waiting == 1
    it.limit(NODES[0], 4, 4096)
    assert it.on(NODES[0]) == [oldest, "container_0_0001_01_000004"]
    (etl, _) = it.manager.totals()
    assert (etl.preempted, etl.started, etl.containers, application.unfinished) == (1, 3, 2, 2)


def test_no_timeout_ends_nothing_until_there_was_one() -> None:
    """As Hadoop: -1 spares containers, but doesn't clear a timeout that was set before."""
    it = PlayedCluster()
    it.limit(NODES[0], 4, 4096)
    it.submit(ETL, 2)
    it.limit(NODES[0], 0, 0, -1)
    it.wait(3600)
    assert len(it.on(NODES[0])) == 2
    (node, _) = it.manager.nodes()
    assert node.used == YarnResource(4, 4096)

    it.limit(NODES[0], 4, 4096, 1000)
    it.limit(NODES[0], 0, 0, -1)
    it.wait(1)
    assert it.on(NODES[0]) == []


def test_a_higher_limit_in_time_spares_all() -> None:
    """The preemption planned for the lower limit is cancelled."""
    it = PlayedCluster()
    it.limit(NODES[0], 4, 4096)
    it.submit(ETL, 2)
    it.limit(NODES[0], 2, 2048, 10_000)
    it.wait(5)
    it.limit(NODES[0], 4, 4096, 10_000)
    it.wait(60)

    assert len(it.on(NODES[0])) == 2


def test_a_lost_node_loses_its_containers_when_it_expires() -> None:
    """Until then YARN counts them, and gives the node nothing more; then it is not listed."""
    it = PlayedCluster()
    it.limit(NODES[0], 4, 4096)
    it.submit(ETL, 2)
    it.manager.lose_heartbeat(NODES[0])
    it.submit(ETL, 1)
    it.wait(EXPIRY_S - 1)
    assert it.manager.node(NODES[0]).containers == 2

    it.wait(1)

    assert [each.node_id for each in it.manager.nodes()] == [NODES[1]]
    with pytest.raises(UnknownYarnNodeError):
        it.limit(NODES[0], 4, 4096)
    it.limit(NODES[1], 6, 6144)
    assert len(it.on(NODES[1])) == 3
    it.manager.register(NODES[0])
    assert it.manager.node(NODES[0]).limit == REGISTERED
    assert it.manager.totals()[0].lost == 2


def test_a_node_that_is_back_before_it_expires_registers_again() -> None:
    """The node's containers are lost, and only once."""
    it = PlayedCluster()
    it.limit(NODES[0], 4, 4096)
    it.submit(ETL, 2)
    it.manager.lose_heartbeat(NODES[0])
    it.wait(10)
    it.manager.register(NODES[0])
    it.wait(EXPIRY_S)

    assert it.manager.totals()[0].lost == 2
    assert it.manager.waiting == 2


def test_a_container_is_ended_by_its_id() -> None:
    """As the copilot asks; an unknown one is refused."""
    it = PlayedCluster()
    it.submit(ADHOC, 1)
    (container,) = it.running
    it.manager.signal_container(container.container_id)

    assert it.manager.totals()[1].evicted == 1
    with pytest.raises(YarnRefusedError, match="container_0_0009_01_000002: unknown"):
        it.manager.signal_container("container_0_0009_01_000002")


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.sampled_from([ETL, ADHOC]), st.integers(1, 6)),
        st.tuples(
            st.just("limit"), st.integers(0, 12), st.integers(0, 9000), st.sampled_from([-1, 0, 9])
        ),
        st.tuples(st.sampled_from(["finish", "evict", "lose", "register", "wait"])),
    ),
    max_size=40,
)


@given(_STEPS, st.sampled_from(NODES))
@settings(max_examples=examples(60), deadline=None)
def test_books_are_right_whatever_happens(steps: list[tuple[object, ...]], node_id: str) -> None:
    """Used is what runs, and every requested container runs, waits or is done."""
    it = PlayedCluster()
    is_lost, finished = False, 0
    for step in steps:
        match step:
            case ("submit", YarnQueue() as queue, int(count)):
                it.submit(queue, count)
            case ("limit", int(vcores), int(memory_mb), int(timeout)):
                listed = {each.node_id for each in it.manager.nodes()}
                if node_id in listed:
                    it.limit(node_id, vcores, memory_mb, timeout)
            case ("finish",) if it.running:
                it.manager.finish(it.running[0])
                finished += 1
            case ("evict",) if it.running:
                it.manager.end(it.running[:2], ContainerEnd.EVICTED)
            case ("lose",) if not is_lost:
                it.manager.lose_heartbeat(node_id)
                is_lost = True
            case ("register",) if is_lost:
                it.manager.register(node_id)
                is_lost = False
            case ("wait",):
                it.wait(400)
        it.validate()
        totals = it.manager.totals()
        assert sum(q.containers for q in totals) == finished + len(it.running) + it.manager.waiting
        ended = sum(q.finished + q.preempted + q.evicted + q.lost for q in totals)
        assert sum(q.started for q in totals) == len(it.running) + ended


def test_applications_are_done_when_all_their_containers_are() -> None:
    """An application counts as finished with its last container."""
    it = PlayedCluster()
    it.limit(NODES[0], 4, 4096)
    application = it.submit(ETL, 2)
    for container in tuple(it.running):
        assert it.manager.totals()[0].applications_finished == 0
        it.manager.finish(container)
    assert application.unfinished == 0
    assert it.manager.totals()[0].applications_finished == 1
