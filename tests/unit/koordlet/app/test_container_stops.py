"""Victims are given the time of their pods to end, where a container runtime can be asked."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace
from tests.nodes import GIB, pod
from tests.unit.koordlet.app.world import World

from koordinator.domain.cgroups.files import CgroupFile
from koordinator.foundation.errors import HostError
from koordinator.koordlet.app.evictions import MOST_AT_ONCE, ContainerStops
from koordinator.koordlet.intents import EvictPod


@dataclass
class PlayedRuntime:
    """Ends a container as soon as it is asked; or refuses, or has no socket."""

    problem: str = ""
    is_there: bool = True
    stopped: list[tuple[str, str, int]] = field(default_factory=list)

    def reaches(self, container_id: str) -> bool:
        return self.is_there and container_id.startswith("containerd://")

    def stop(self, pod_uid: str, container_id: str, grace_s: int) -> None:
        self.stopped.append((pod_uid, container_id, grace_s))
        if self.problem:
            raise HostError(self.problem)


def victim(containers: int = 1, grace_s: int = 5, uid: str = "u") -> EvictPod:
    """Return a pod that is to go."""
    ids = tuple(f"containerd://{number}" for number in range(containers))
    return EvictPod("default", "a", uid, (), "BEMemoryEvict", "why", "", ids, grace_s)


class Started:
    """Threads that the test runs explicitly."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def __call__(self, work: Callable[[], None]) -> None:
        self.waiting.append(work)

    def run(self) -> None:
        while self.waiting:
            self.waiting.pop()()


def test_all_containers_of_a_pod_are_waited_for() -> None:
    """Containers end side by side in the pod's grace period, or sooner if that is too long."""
    runtime, started = PlayedRuntime(), Started()
    stops = ContainerStops(runtime, longest_s=30)

    assert stops.begin(victim(2), started) == 5
    started.waiting.pop()()
    assert stops.finished() == []
    started.run()

    assert [(done.victim.uid, done.problems) for done in stops.finished()] == [("u", [])]
    assert stops.finished() == []
    assert stops.begin(victim(grace_s=3600), started) == 30
    assert sorted(runtime.stopped) == [("u", f"containerd://{n}", 5) for n in range(2)]


def test_running_stop_is_not_started_again() -> None:
    """A victim that is chosen again meanwhile is left to end."""
    started = Started()
    stops = ContainerStops(PlayedRuntime(), longest_s=30)
    stops.begin(victim(), started)

    assert stops.begin(victim(), started) == 5
    assert len(started.waiting) == 1


def test_stop_without_a_runtime_returns_none() -> None:
    """No containers, no socket, too many at once: processes are ended then."""
    started = Started()
    stops = ContainerStops(PlayedRuntime(), longest_s=30)

    assert stops.begin(victim(0), started) is None
    assert stops.begin(victim(MOST_AT_ONCE + 1), started) is None
    assert stops.begin(victim(MOST_AT_ONCE), started) == 5
    assert stops.begin(victim(uid="other"), started) is None
    assert ContainerStops(PlayedRuntime(is_there=False), 30).begin(victim(), started) is None


def test_an_unforeseen_mistake_of_a_runtime_is_a_problem_of_that_pod() -> None:
    """A container without an answer of the runtime counts as not stopped."""

    class Broken(PlayedRuntime):
        def stop(self, pod_uid: str, container_id: str, grace_s: int) -> None:
            raise RuntimeError(pod_uid, container_id, grace_s)

    started = Started()
    stops = ContainerStops(Broken(), longest_s=30)
    stops.begin(victim(), started)
    with pytest.raises(RuntimeError):
        started.run()

    assert [done.problems for done in stops.finished()] == [["the runtime was not called"]]


def hog(world: World, name: str, pid: int) -> str:
    """Have a batch job run that uses 6 GiB of 32, and has 7 seconds to end; return its UID."""
    made = pod(name, "BE")
    spec = replace(made.spec, termination_grace_period_seconds=7)
    view = world.add(replace(made, spec=spec))
    world.tree.set(
        CgroupFile.MEMORY_STAT,
        view.folder,
        f"total_inactive_anon {6 * GIB}\ntotal_active_anon 0\ntotal_inactive_file 0\n"
        "total_active_file 0\ntotal_unevictable 0",
    )
    world.tree.set(CgroupFile.PROCS, view.containers[0].folder, pid)
    return view.uid


def pressed(runtime: PlayedRuntime) -> tuple[World, str]:
    """Return a node that has just run out of memory, and which of its two jobs has to go."""
    world = World(memory_evict_cool_s=1)
    world.agent = world.start(container_runtime=runtime)
    world.slo(memory_evict_threshold_percent=70, memory_evict_lower_percent=60)
    hog(world, "a", 11)
    goes = hog(world, "b", 12)
    world.seconds(3)
    world.memory(23)
    world.seconds(1)
    for thread in threading.enumerate():
        if thread.name == "stop":
            thread.join()
    return world, goes


def test_runtime_stops_a_victim_without_a_kill() -> None:
    """A terminating pod counts as released: the other one stays."""
    runtime = PlayedRuntime()
    world, goes = pressed(runtime)
    world.memory(17)
    world.seconds(4)

    assert [(uid, grace_s) for uid, _, grace_s in runtime.stopped] == [(goes, 7)]
    assert world.tree.host.killed == []
    done = [event.after for event in world.agent.audit.events if event.type == "eviction"]
    assert done == ["containers are stopped with a grace period of 7 s", "containers have ended"]


@pytest.mark.parametrize(
    "runtime", [PlayedRuntime("ContainerStatus: UNAVAILABLE"), PlayedRuntime(is_there=False)]
)
def test_processes_are_killed_if_the_runtime_fails(runtime: PlayedRuntime) -> None:
    """The node needs the memory in any case."""
    world, _ = pressed(runtime)
    world.memory(17)
    world.seconds(3)

    assert world.tree.host.killed == [12]
