"""An agent that starts before the kubelet does not guess the layout of cgroups."""

from dataclasses import replace as replace_options

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.memory_host import MemoryHost
from tests.nodes import pod
from tests.unit.koordlet.app.world import World

from koordinator.api.event import Event
from koordinator.api.pod import Pod
from koordinator.api.qos import KubeQos
from koordinator.domain.cgroups.files import CgroupFile
from koordinator.domain.cgroups.layout import CgroupDriver, CgroupLayout, layout_of
from koordinator.foundation.cpu_list import parse_cpu_list
from koordinator.foundation.files import path_component
from koordinator.host.port import HOST
from koordinator.koordlet.app.discovery import LONGEST_WAIT_FOR_CGROUPS_S
from koordinator.koordlet.cgroup_tree import find_pod_uids
from koordinator.koordlet.collectors.kubelet import read_kubelet_config
from koordinator.koordlet.metrics import Metric
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


def test_later_kubelet_determines_the_names_of_cgroups() -> None:
    """Folders of cgroupfs are used although the default is systemd."""
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


def test_node_with_cgroups_is_managed_immediately() -> None:
    """The agent does not wait if cgroups exist."""
    world = World()
    world.seconds(1)
    assert world.agent.is_ready


def test_pods_with_cgroups_are_found_for_each_driver() -> None:
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


SYSTEMD_KIND = CgroupLayout(CgroupDriver.SYSTEMD, ("kubelet",))
ROOTS = [
    SYSTEMD_KIND,
    CgroupLayout(CgroupDriver.CGROUPFS, ("kubelet",)),
    CgroupLayout(CgroupDriver.CGROUPFS, ("system", "pods")),
    CgroupLayout(CgroupDriver.SYSTEMD, ("my-root",)),
    CgroupLayout(CgroupDriver.SYSTEMD, ("a", "b")),
    CgroupLayout(CgroupDriver.CGROUPFS, ("docker", "0123abcd", "kubelet")),
]


def with_root(layout: CgroupLayout, stated: tuple[str, ...] | None = None) -> World:
    """Return a node whose kubelet has a ``cgroupRoot``, with an agent that suppresses."""
    world = without_kubelet()
    for folder in ("system.slice", "user.slice", layout.kubepods, layout.burstable):
        world.tree.add(folder)
    world.tree.add(layout.besteffort)
    world.options = replace_options(world.options, kubelet_cgroup_root=stated)
    world.agent = world.start()
    world.slo(cpu_suppress_threshold_percent=70)
    return world


def warnings(world: World) -> list[str]:
    """Return the notes of the events about cgroups that are missing."""
    world.outbox.deliver(world.cluster)
    events = world.cluster.list(Event).items
    return [event.note for event in events if event.reason == "PodCgroupsNotFound"]


def lives(world: World, layout: CgroupLayout) -> bool:
    """Return whether best effort is suppressed, and its pods are seen, in this layout."""
    made = [pod("ls", "LS", requests={"cpu": 1}), pod("be", "BE")]
    views = []
    for each in made:
        stored = world.cluster.create(each)
        live = world.cluster.update_status(replace(stored, status=each.status))
        views.append(pod_view(live, layout))
        for folder in (views[-1].folder, *(it.folder for it in views[-1].containers)):
            world.tree.add(folder)
    ls, be = (view.folder for view in views)
    world.seconds(10, {ls: 3.5, be: 2.0})
    text = world.tree.get(CgroupFile.CPUSET, layout.besteffort)
    measured = world.agent.store.owners(Metric.POD_CPU)
    return parse_cpu_list(text).bit_count() == 2 and len(set(measured)) == 2


@pytest.mark.parametrize("layout", ROOTS, ids=lambda layout: layout.kubepods)
def test_a_cgroup_root_of_the_kubelet_is_found(layout: CgroupLayout) -> None:
    """As of KinD, which runs the kubelet with cgroupRoot /kubelet."""
    world = with_root(layout)

    assert lives(world, layout)
    assert warnings(world) == []
    assert find_pod_uids(world.tree.cgroups) == {
        view.uid.replace("_", "-") for view in world.agent.state.pods
    }


@pytest.mark.parametrize("source", ["config", "command line", "flag"])
def test_configured_cgroup_root_takes_precedence(source: str) -> None:
    """A folder of that name that another program made is left alone."""
    layout = CgroupLayout(CgroupDriver.CGROUPFS, ("deep", "in", "there"))
    world = with_root(layout, layout.root if source == "flag" else None)
    world.tree.add("kubepods")
    if source == "config":
        world.tree.host.put(f"{HOST.kubelet}/config.yaml", "cgroupRoot: /deep/in/there\n")
    elif source == "command line":
        world.tree.host.put("/proc/77/comm", "kubelet\n")
        world.tree.host.put("/proc/77/cmdline", "kubelet\0--cgroup-root\0/deep/in/there\0")

    assert lives(world, layout)


@pytest.mark.parametrize(
    ("arguments", "root"),
    [
        ("--cgroup_root=/deep", ("deep",)),
        ("--cgroup-root=/a\0--cgroup-root=/deep", ("deep",)),
        ("--cgroup-root=", ()),
    ],
)
def test_flags_of_the_kubelet_are_read_as_it_reads_them(
    arguments: str, root: tuple[str, ...]
) -> None:
    """Underscores are dashes, the last value counts, and an empty one overrides the file."""
    host = MemoryHost(
        {
            f"{HOST.kubelet}/config.yaml": "cgroupRoot: /kubelet\n",
            "/proc/77/comm": "kubelet\n",
            "/proc/77/cmdline": f"kubelet\0{arguments}\0",
        }
    )

    assert read_kubelet_config(host, HOST).cgroup_root == root


def test_cgroups_that_are_not_found_are_reported() -> None:
    """Once, after a minute, with the places that were searched."""
    layout = CgroupLayout(CgroupDriver.CGROUPFS, ("too", "deep", "to", "find"))
    world = with_root(layout)
    world.cluster.create(pod("a", "LS"))
    world.seconds(int(LONGEST_WAIT_FOR_CGROUPS_S) + 30)

    (note,) = warnings(world)
    assert "kubepods.slice" in note
    assert "--kubelet-cgroup-root" in note


def test_pods_without_any_cgroup_are_reported() -> None:
    """The folder of all pods is there, but it is another kubelet's."""
    world = World()
    made = pod("a", "LS")
    stored = world.cluster.create(made)
    world.cluster.update_status(replace(stored, status=made.status))
    world.seconds(150)

    (note,) = warnings(world)
    assert note.startswith("none of 1 pods has a cgroup, for example kubepods/")


@given(
    st.sampled_from(CgroupDriver),
    st.lists(st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True), max_size=3),
)
def test_a_layout_follows_from_its_folder(driver: CgroupDriver, root: list[str]) -> None:
    """The root has no influence; systemd's slices are nested by their names."""
    layout = CgroupLayout(driver, tuple(root))

    assert layout_of(layout.kubepods) == layout
    assert layout.level(layout.pod(KubeQos.BURSTABLE, path_component("u-1"))) == "pod"


def test_a_slice_of_another_place_is_no_folder_of_pods() -> None:
    """A slice's name has to follow from the slices above it."""
    assert layout_of("other.slice/kubelet-kubepods.slice") is None
    assert SYSTEMD_KIND.besteffort == (
        "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice"
    )
