"""An agent that can't read which CPUs the kubelet's CPU manager has allocated."""

import pytest
from msgspec.structs import replace
from tests.nodes import pod, slo
from tests.unit.koordlet.app.world import World, ls_and_be

from koordinator.api.annotations.numa import (
    CPU_SHARED_POOLS,
    KUBELET_CPU_MANAGER_POLICY,
    POD_CPU_ALLOCATIONS,
)
from koordinator.api.event import Event
from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node, NodeResourceTopology
from koordinator.api.node_slo import NodeSlo
from koordinator.domain.cgroups.files import CgroupFile

FILE = "/var/lib/kubelet/cpu_manager_state"
STATIC = '{"policyName": "static", "entries": {"uid-other": {"main": "4-7"}}}'
BOUND = {"scheduling.koordinator.sh/resource-status": '{"cpuset":"2-3"}'}
TWO: dict[str, str | int] = {"cpu": 2}
PROTECTED = slo(
    resourceQOSStrategy={"lsClass": {"memoryQOS": {"enable": True, "minLimitPercent": 100}}},
    resourceUsedThresholdWithBE={"enable": True, "cpuSuppressThresholdPercent": 70},
)


@pytest.fixture
def world() -> World:
    return World()


def topology(world: World) -> NodeResourceTopology | None:
    """Return the reported topology."""
    world.outbox.deliver(world.cluster)
    return next(iter(world.cluster.list(NodeResourceTopology).items), None)


def allocated(world: World) -> list[tuple[str, str]]:
    """Return UID and CPUs of the pods that are reported to have CPUs of the kubelet."""
    reported = topology(world)
    assert reported is not None
    entries = POD_CPU_ALLOCATIONS.read(reported.metadata) or ()
    return [(each.uid, each.cpuset) for each in entries]


def reported_problems(world: World) -> set[str]:
    """Return the notes of the events about CPUs."""
    world.outbox.deliver(world.cluster)
    events = world.cluster.list(Event).items
    return {each.note for each in events if each.reason == "CPUsNotReadable"}


def test_last_reading_stays_in_effect(world: World) -> None:
    """The kubelet still holds those CPUs; an event on the node names the file."""
    for state in (STATIC, "{"):
        world.tree.host.put(FILE, state)
        world.seconds(70)
        assert allocated(world) == [("uid-other", "4-7")]
    (problem,) = reported_problems(world)
    assert FILE in problem


def test_agent_that_starts_meanwhile_measures_and_enforces(world: World) -> None:
    """The agent does what needs no CPU of the kubelet; an event names the file."""
    world.tree.host.put(FILE, "{")
    world.cluster.create(NodeSlo(metadata=ObjectMeta(name="n1"), spec=PROTECTED))
    ls, be = ls_and_be(world)
    web = world.add(pod("web", "LS", requests={"memory": 1 << 30}, limits={"memory": 1 << 30}))
    own = world.add(pod("own", "LSR", requests=TWO, limits=TWO, annotations=BOUND))

    world.seconds(70, {ls.folder: 3.5, be.folder: 2.0})

    assert world.agent.is_ready
    assert world.tree.get(CgroupFile.MEMORY_MIN, web.containers[0].folder) == str(1 << 30)
    assert world.tree.get(CgroupFile.CPUSET, own.containers[0].folder) == "2-3"
    suppressed = world.tree.get(CgroupFile.CPUSET, be.containers[0].folder)
    assert len(suppressed) == len("0,4")
    (problem,) = reported_problems(world)
    assert FILE in problem


def test_agent_that_starts_meanwhile_leaves_shared_cpus_to_the_kubelet(world: World) -> None:
    """A service keeps the CPUs that it has, and gets the shared ones once they are known."""
    world.tree.host.put(FILE, "{")
    service = world.add(pod("service", "LS", requests={"cpu": 1}))
    (container,) = service.containers
    world.tree.set(CgroupFile.CPUSET, container.folder, "0-1")

    world.seconds(70)
    assert world.tree.get(CgroupFile.CPUSET, container.folder) == "0-1"

    world.tree.host.put(FILE, STATIC)
    world.seconds(70)
    assert world.tree.get(CgroupFile.CPUSET, container.folder) == "0-3"


def test_agent_that_starts_meanwhile_reports_no_guess(world: World) -> None:
    """A report of an earlier agent stays; without one the scheduler gets none yet."""
    world.tree.host.put(FILE, "{")
    world.seconds(70)
    assert topology(world) is None

    world.tree.host.put(FILE, STATIC)
    world.seconds(70)
    before = topology(world)
    assert before is not None

    world.tree.host.put(FILE, "{")
    world.agent = world.start()
    node = world.cluster.get(Node, "n1")
    reservation = {"node.koordinator.sh/reservation": '{"reservedCPUs":"0"}'}
    metadata = replace(node.metadata, annotations=node.metadata.annotations | reservation)
    world.cluster.update(replace(node, metadata=metadata))
    world.seconds(70)
    after = topology(world)
    assert after is not None
    for each in (CPU_SHARED_POOLS, KUBELET_CPU_MANAGER_POLICY, POD_CPU_ALLOCATIONS):
        assert each.read(after.metadata) == each.read(before.metadata)
    assert '"reservedCPUs":"0"' in after.metadata.annotations["node.koordinator.sh/reservation"]
