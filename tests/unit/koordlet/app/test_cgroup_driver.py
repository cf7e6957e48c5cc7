"""An agent that is there before the kubelet: nothing is guessed that the next minute tells."""

from msgspec.structs import replace
from tests.nodes import pod
from tests.unit.koordlet.app.world import World

from koordinator.api.pod import Pod
from koordinator.domain.cgroups.files import CgroupFile
from koordinator.domain.cgroups.layout import CgroupDriver, CgroupLayout
from koordinator.domain.cpus.cpu_list import parse_cpu_list
from koordinator.host.roots import HOST
from koordinator.koordlet.app.agent import LONGEST_WAIT_FOR_CGROUPS_S
from koordinator.koordlet.cgroup_tree import find_pod_uids
from koordinator.koordlet.view.pods import pod_view

CGROUPFS = CgroupLayout(CgroupDriver.CGROUPFS)


def without_kubelet() -> World:
    """Return a node on which no kubelet has made cgroups yet, with an agent."""
    world = World()
    for hierarchy in HOST.hierarchies:
        for layout in map(CgroupLayout, CgroupDriver):
            world.tree.host.vanish(f"{hierarchy}/{layout.kubepods}")
    world.agent = world.start()
    return world


def start_kubelet(world: World) -> None:
    """Make the cgroups above all pods."""
    for folder in (CGROUPFS.kubepods, CGROUPFS.burstable, CGROUPFS.besteffort):
        world.tree.add(folder)


def place(world: World, made: Pod) -> str:
    """Have a pod run; return its folder."""
    status = made.status
    stored = world.cluster.create(made)
    view = pod_view(world.cluster.update_status(replace(stored, status=status)), CGROUPFS)
    world.tree.add(view.folder)
    for container in view.containers:
        world.tree.add(container.folder)
    return view.folder


def be_cpus(world: World) -> int:
    """Return how many CPUs best effort has."""
    text = world.tree.get(CgroupFile.CPUSET, CGROUPFS.besteffort)
    return parse_cpu_list(text).bit_count()


def test_a_kubelet_that_comes_later_decides_how_cgroups_are_called() -> None:
    """Folders of cgroupfs are looked after though those of systemd would be the guess."""
    world = without_kubelet()
    world.slo(cpu_suppress_threshold_percent=70)
    world.cluster.create(pod("early", "LS", requests={"cpu": 1}))
    world.seconds(20)
    assert not world.agent.is_ready
    assert len(world.agent.store) == 0

    start_kubelet(world)
    ls = place(world, pod("ls", "LS", requests={"cpu": 1}))
    be = place(world, pod("be", "BE"))
    world.seconds(5, {ls: 3.5, be: 2.0})

    assert world.agent.is_ready
    assert be_cpus(world) == 2
    assert {view.folder.partition("/")[0] for view in world.agent.state.pods} == {"kubepods"}


def test_a_kubelet_without_cgroups_is_not_waited_for_for_ever() -> None:
    """The node is measured after a minute; a kubelet that does make some is still noticed."""
    world = without_kubelet()
    world.seconds(int(LONGEST_WAIT_FOR_CGROUPS_S) + 2)
    assert world.agent.is_ready

    world.slo(cpu_suppress_threshold_percent=70)
    start_kubelet(world)
    ls = place(world, pod("ls", "LS", requests={"cpu": 1}))
    be = place(world, pod("be", "BE"))
    world.seconds(5, {ls: 3.5, be: 2.0})
    assert be_cpus(world) == 2


def test_a_node_with_cgroups_is_looked_after_at_once() -> None:
    """Nobody waits where there is nothing to wait for."""
    world = World()
    world.seconds(1)
    assert world.agent.is_ready


def test_pods_with_cgroups_are_found_whoever_named_them() -> None:
    """By their UIDs; anything else in these folders is none."""
    tree = World().tree
    for folder in (
        "kubepods/burstable/pod0a-1b",
        "kubepods/pod2c",
        "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod3d_4e.slice",
        "kubepods.slice/kubepods-pod5f_60.slice",
        "kubepods/burstable/crio-conmon",
        "kubepods/burstable/pod0a-1b/pod99",
        "system.slice/pod98",
    ):
        tree.add(folder)
    assert find_pod_uids(tree.cgroups) == {"0a-1b", "2c", "3d-4e", "5f-60"}
