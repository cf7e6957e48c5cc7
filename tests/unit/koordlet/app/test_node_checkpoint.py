"""An agent that starts while the API server is away."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.nodes import LAYOUT, pod
from tests.unit.koordlet.app.world import ALL, World

from koordinator.api.meta import KubeObject
from koordinator.api.node_slo import NodeSlo
from koordinator.api.pod import Pod
from koordinator.cluster.port import EventType, WatchEvent
from koordinator.domain.cgroups.files import CgroupFile
from koordinator.domain.cgroups.layout import CgroupLayout
from koordinator.host.gpus import Gpu, Gpus, GpusOnDemand, NoGpus
from koordinator.koordlet.adjustments import LinuxResources
from koordinator.koordlet.app import node_state
from koordinator.koordlet.app.agent import Koordlet
from koordinator.koordlet.app.node_state import PREPARED_CLAIMS, NodeCheckpoint, NodeState
from koordinator.koordlet.app.options import gates_of
from koordinator.koordlet.runtime_hooks.outcomes import StartingContainer, StartingPod
from koordinator.koordlet.runtime_hooks.runtime_hooks import RuntimeHooks
from koordinator.koordlet.view.pods import PodView, pod_view

FOLDER = "/checkpoints"
BOOKMARK = WatchEvent(EventType.BOOKMARK, KubeObject())
BATCH: dict[str, str | int] = {"kubernetes.io/batch-cpu": 500, "kubernetes.io/batch-memory": "64Mi"}
CPUS = {"scheduling.koordinator.sh/resource-status": '{"cpuset":"2-3"}'}
EXTENDED = {
    "node.koordinator.sh/extended-resource-spec": json.dumps(
        {"containers": {"c0": {"requests": BATCH, "limits": BATCH}}}, default=str
    )
}


class NoNews:
    """A watch whose server does not answer."""

    def poll(self) -> list[WatchEvent]:
        """Return no event, not even that the list is complete."""
        return []

    def refresh(self) -> None:
        """Nothing is owed."""

    def close(self) -> None:
        """End nothing."""


class News(NoNews):
    """A watch with these events."""

    def __init__(self, *events: WatchEvent) -> None:
        self._events = list(events)

    def poll(self) -> list[WatchEvent]:
        """Return the events once."""
        events, self._events = self._events, []
        return events


class Away:
    """A cluster that can't be reached."""

    def watch(self, kinds: object, selectors: Mapping[type[KubeObject], str]) -> NoNews:
        """Return a watch that stays silent."""
        del kinds, selectors
        return NoNews()


class Node:
    """A node with batch jobs and a pod that has CPUs of its own."""

    def __init__(self, gates: frozenset[str] = ALL) -> None:
        self.world = World(checkpoint_folder=FOLDER, gates=gates)
        two: dict[str, str | int] = {"cpu": 2}
        self.own = self.world.add(pod("own", "LSR", requests=two, limits=two, annotations=CPUS))
        self.job = self.world.add(pod("job", "BE", requests=BATCH, limits=BATCH))
        self.world.slo(cpu_suppress_threshold_percent=65)

    def restart(self, *, away: bool) -> tuple[Koordlet, RuntimeHooks]:
        """Kill the agent and start another one, in the order in which the process starts it."""
        world = self.world
        hooks = RuntimeHooks(world.clock, world.tree.host, world.tree.roots, world.tree.cgroups)
        world.agent = world.start(is_connected=False, runtime_hooks=hooks)
        world.agent.serve_from_checkpoint()
        cluster: Any = Away() if away else world.cluster
        world.agent.connect(cluster)
        return world.agent, hooks


def starting(view: PodView, annotations: Mapping[str, str] | None = None) -> StartingPod:
    """Return a pod as the runtime shows it."""
    meta = view.pod.metadata
    return StartingPod(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        labels=meta.labels,
        annotations=meta.annotations if annotations is None else annotations,
        cgroup_parent=f"/{view.folder}",
    )


def limits(hooks: RuntimeHooks, starting: StartingPod) -> LinuxResources:
    """Return the limits that the runtime gets for a new container of a pod."""
    starting_container = StartingContainer(name="c0", id="new", env={})
    return hooks.create_container(starting, starting_container).resources


def test_containers_start_right_though_the_server_is_away() -> None:
    """From the local copy, within the first step; the batch job has its limits."""
    node = Node()
    node.world.seconds(12)

    agent, hooks = node.restart(away=True)
    agent.step()

    job = limits(hooks, starting(node.job))
    assert (job.cpu_quota_us, job.memory_limit_bytes) == (50_000, 64 << 20)
    assert limits(hooks, starting(node.own)).cpuset_cpus == "2-3"


def test_a_line_separator_of_a_pod_costs_no_checkpoint() -> None:
    """JSON has U+2028 and U+0085 as they are; a tenant may write them into annotations."""
    host = World().tree.host
    pods = [pod("odd", annotations={"text": "a\u2028b\u0085c"}), pod("other")]
    NodeCheckpoint(host, FOLDER).save(pods, 0)

    assert NodeCheckpoint(host, FOLDER).read() == pods


def test_the_runtime_is_served_before_the_agent_connects() -> None:
    """The checkpoint serves the hooks alone: a NodeSLO in it has no effect on the machine.

    What has changed since counts from the first step on.
    """
    node = Node()
    world = node.world
    world.seconds(12)
    world.cluster.delete(Pod, "job", namespace="default")
    world.tree.set(CgroupFile.CPUSET, LAYOUT.besteffort, "0-7")
    files = world.tree.host.snapshot()
    hooks = RuntimeHooks(world.clock, world.tree.host, world.tree.roots, world.tree.cgroups)
    agent = world.agent = world.start(is_connected=False, runtime_hooks=hooks)

    agent.serve_from_checkpoint()

    assert limits(hooks, starting(node.own)).cpuset_cpus == "2-3"
    assert limits(hooks, starting(node.job)).memory_limit_bytes == 64 << 20
    assert world.tree.host.snapshot() == files
    assert not agent.is_ready

    agent.connect(world.cluster)
    world.seconds(10, {node.own.folder: 4.0})

    assert agent.is_ready
    assert [view.key for view in agent.state.pods] == ["default/own"]
    assert world.be_cpus() == 2


def test_the_driver_of_gpus_starts_after_the_runtime_is_served() -> None:
    """The driver may take seconds to start, and no container waits for that."""
    node = Node(gates=gates_of({"Accelerators": True}))
    world = node.world
    world.seconds(12)
    uses: list[str] = []

    class SlowDriver(NoGpus):
        def devices(self) -> Sequence[Gpu]:
            uses.append("devices")
            return ()

    def start_driver() -> Gpus:
        uses.append("start")
        return SlowDriver()

    hooks = RuntimeHooks(world.clock, world.tree.host, world.tree.roots, world.tree.cgroups)
    agent = world.agent = world.start(
        is_connected=False, runtime_hooks=hooks, gpus=GpusOnDemand(start_driver)
    )
    agent.serve_from_checkpoint()

    assert hooks.is_published
    assert not uses

    agent.connect(world.cluster)
    world.seconds(2)

    assert uses[:2] == ["start", "devices"]
    assert uses.count("start") == 1


def test_node_is_managed_while_the_api_server_is_unreachable() -> None:
    """Best effort is suppressed by the last NodeSLO; the agent is ready."""
    node = Node()
    node.world.seconds(12)
    node.restart(away=True)

    node.world.seconds(10, {node.own.folder: 4.0, node.job.folder: 1.0})

    assert node.world.agent.is_ready
    assert node.world.be_cpus() == 2


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"apiVersion":"v1","kind":"Pod"}'])
def test_runtime_data_suffices_without_a_checkpoint(text: str | None) -> None:
    """The annotations that the kubelet passes on: batch limits, and CPUs of its own."""
    node = Node()
    if text is not None:
        node.world.tree.host.put(f"{FOLDER}/node-state.json", text)

    agent, hooks = node.restart(away=True)
    agent.step()

    job = limits(hooks, starting(node.job, EXTENDED))
    assert (job.cpu_quota_us, job.memory_limit_bytes) == (50_000, 64 << 20)
    assert limits(hooks, starting(node.own)).cpuset_cpus == "2-3"
    assert not agent.is_ready


def test_changes_during_the_outage_apply_after_it() -> None:
    """Deleted pods are dropped, new ones known, and a deleted NodeSLO is forgotten."""
    node = Node()
    world = node.world
    world.seconds(12)
    world.cluster.delete(Pod, "job", namespace="default")
    world.cluster.delete(NodeSlo, "n1")
    new = world.add(pod("new", "LS"))

    node.restart(away=False)
    world.seconds(2)

    fresh = world.start()
    fresh.step()
    assert world.agent.state.pods == fresh.state.pods
    assert [view.folder for view in world.agent.state.pods] == [new.folder, node.own.folder]
    assert world.agent.state.slo == fresh.state.slo


def test_a_deleted_node_slo_leaves_the_checkpoint() -> None:
    """The NodeSLO was deleted while the agent was down; the next outage must not restore it."""
    node = Node()
    world = node.world
    world.seconds(12)
    world.cluster.delete(NodeSlo, "n1")
    node.restart(away=False)
    world.seconds(12)
    latest = world.agent.state.slo

    agent, _ = node.restart(away=True)
    agent.step()

    assert agent.state.is_known
    assert agent.state.slo == latest


def test_a_checkpoint_does_not_replace_what_the_server_has_listed() -> None:
    """Cgroups of pods may appear after the first events, before the lists are complete."""
    node = Node()
    world = node.world
    world.seconds(12)
    old = world.agent.state.objects
    world.slo(cpu_suppress_threshold_percent=40)
    fresh = world.start()
    fresh.step()
    (listed,) = (each for each in fresh.state.objects if isinstance(each, NodeSlo))
    others = [each for each in fresh.state.objects if each is not listed]
    state = NodeState(LAYOUT)

    state.update(News(WatchEvent(EventType.ADDED, listed)))
    state.restore(old, lambda _: True)
    assert state.slo == fresh.state.slo
    state.update(News(*(WatchEvent(EventType.ADDED, each) for each in others), BOOKMARK))

    assert state.slo == fresh.state.slo
    assert state.pods == fresh.state.pods


def test_an_object_of_the_checkpoint_that_causes_a_fault_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The agent starts even if it cannot use an object of its checkpoint."""
    node = Node()
    world = node.world
    world.seconds(12)

    def pod_view_with_fault(made: Pod, layout: CgroupLayout) -> PodView:
        if made.metadata.name == "job":
            raise ArithmeticError("a fault of the agent")
        return pod_view(made, layout)

    monkeypatch.setattr(node_state, "pod_view", pod_view_with_fault)
    faults: list[str] = []
    agent = world.start(is_connected=False, on_failure=lambda part, _: faults.append(part))
    agent.serve_from_checkpoint()

    assert faults == ["checkpoint"]
    assert [view.key for view in agent.state.pods] == ["default/own"]


def test_pods_without_cgroup_are_not_restored() -> None:
    """Pods whose cgroups are missing would be evicted in place of others."""
    node = Node()
    node.world.seconds(12)
    for hierarchy in ("cpu", "cpuacct", "cpuset", "memory"):
        node.world.tree.host.vanish(f"/sys/fs/cgroup/{hierarchy}/{node.job.folder}")

    agent, _ = node.restart(away=True)
    agent.step()

    assert [view.key for view in agent.state.pods] == ["default/own"]


@pytest.mark.slow
def test_the_copy_outlives_the_predictions() -> None:
    """Predictions share the folder with the copy, and remove files that belong to no pod."""
    node = Node()
    node.world.seconds(200)
    claims = f"{FOLDER}/{PREPARED_CLAIMS}"
    node.world.tree.host.put(claims, "{}")

    agent, _ = node.restart(away=True)
    node.world.seconds(100)

    assert node.world.tree.host.exists(f"{FOLDER}/node-state.json")
    assert node.world.tree.host.exists(claims)
    assert agent.state.is_known
