"""The kubelet's MemoryQoS (on in Kubernetes 1.37) writes files that the agent keeps."""

import pytest
from msgspec.structs import replace
from tests.nodes import LAYOUT, pod, slo
from tests.unit.koordlet.app.world import World

from koordinator.api.event import Event
from koordinator.api.meta import Condition, ObjectMeta
from koordinator.api.node_slo import NodeSlo
from koordinator.api.pod import Pod
from koordinator.domain.cgroups.files import CgroupFile
from koordinator.koordlet.view.pods import PodView

GIB = 1 << 30
PROTECTED = slo(
    resourceQOSStrategy={
        "lsClass": {"memoryQOS": {"enable": True, "minLimitPercent": 100, "lowLimitPercent": 100}}
    }
)
FILES = (CgroupFile.MEMORY_MIN, CgroupFile.MEMORY_LOW)


def protected() -> tuple[World, PodView]:
    """Return a node whose kubelet runs as process 77, and a pod whose memory is protected."""
    world = World()
    start_kubelet(world, 77)
    view = world.add(pod("web", "LS", requests={"memory": GIB}, limits={"memory": GIB}))
    world.cluster.create(NodeSlo(metadata=ObjectMeta(name="n1"), spec=PROTECTED))
    world.seconds(3)
    assert values(world, view.containers[0].folder) == [str(GIB), str(GIB)]
    assert values(world, LAYOUT.burstable)[1] == str(GIB)
    return world, view


def start_kubelet(world: World, pid: int) -> None:
    """Make a process the kubelet."""
    world.tree.host.put(f"/proc/{pid}/comm", "kubelet\n")
    world.tree.host.put(f"/proc/{pid}/cmdline", "kubelet\0")
    fields = " ".join(str(n) for n in range(3, 23))
    world.tree.host.put(f"/proc/{pid}/stat", f"{pid} (kubelet) {fields}{pid} 0")


def values(world: World, folder: str) -> list[str]:
    """Return what a cgroup is protected to."""
    return [world.tree.get(file, folder) for file in FILES]


def clear(world: World, folder: str) -> None:
    """Write what the kubelet writes with the policy None."""
    for file in FILES:
        world.tree.set(file, folder, 0)


def test_protection_is_back_after_a_resize() -> None:
    """The kubelet clears it with the resize, and reports the resize in the status."""
    world, view = protected()
    clear(world, view.containers[0].folder)

    result = world.cluster.get(Pod, "web", namespace="default")
    condition = Condition(type="PodResizeInProgress", status="True")
    world.cluster.update_status(
        replace(result, status=replace(result.status, conditions=(condition,)))
    )
    world.seconds(2)

    assert values(world, view.containers[0].folder) == [str(GIB), str(GIB)]


def test_a_container_that_starts_again_is_protected() -> None:
    """The container's new cgroup has the kubelet's values until the agent writes."""
    world, view = protected()
    result = world.cluster.get(Pod, "web", namespace="default")
    (status,) = result.status.container_statuses
    again = replace(status, container_id="containerd://again")
    live = world.cluster.update_status(
        replace(result, status=replace(result.status, container_statuses=(again,)))
    )
    folder = LAYOUT.container(view.folder, live.status.container_statuses[0].container_id)
    world.tree.add(folder)

    world.seconds(2)

    assert values(world, folder) == [str(GIB), str(GIB)]


def test_tiers_are_protected_again_after_a_start_of_the_kubelet() -> None:
    """The kubelet clears the values of all tiers at its start, seconds after the last one ended."""
    world, _ = protected()
    for name in ("comm", "cmdline", "stat"):
        world.tree.host.vanish(f"/proc/77/{name}")
    world.seconds(5)
    clear(world, LAYOUT.burstable)
    clear(world, LAYOUT.kubepods)
    start_kubelet(world, 99)

    world.seconds(2)

    assert values(world, LAYOUT.burstable)[1] == str(GIB)
    assert values(world, LAYOUT.kubepods)[1] == str(GIB)


@pytest.mark.parametrize(
    ("config", "file"),
    [
        ("memoryReservationPolicy: TieredReservation", "memory.min"),
        ("memoryThrottlingFactor: 0.9", "memory.high"),
        ("{memoryThrottlingFactor: 0.9, featureGates: {MemoryQoS: false}}", ""),
        ("memoryReservationPolicy: None", ""),
    ],
)
def test_a_kubelet_that_protects_memory_itself_is_reported(config: str, file: str) -> None:
    """Once; both write the same files, and the last one wins."""
    world = World()
    world.tree.host.put(f"{world.tree.roots.kubelet}/config.yaml", config)
    world.seconds(130)
    world.outbox.deliver(world.cluster)

    events = world.cluster.list(Event).items
    notes = [event.note for event in events if event.reason == "KubeletMemoryQoS"]
    assert [file in note for note in notes] == ([True] if file else [])
