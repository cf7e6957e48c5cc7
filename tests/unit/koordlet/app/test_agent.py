"""The whole agent on a machine in memory, with a cluster in memory."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from tests.memory_host import MemoryHost
from tests.nodes import GIB, START_S, pod, slo
from tests.unit.koordlet.app.world import ALL, World, ls_and_be

from koordinator.api.event import Event
from koordinator.api.labels import ENABLE_NUMA_RESERVATION
from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node, NodeResourceTopology
from koordinator.api.node_metric import MetricCollectPolicy, NodeMetric, NodeMetricSpec
from koordinator.api.node_slo import NodeSlo
from koordinator.api.pod import Pod
from koordinator.domain.cgroups.files import CgroupFile, CgroupVersion
from koordinator.foundation.cpu_list import parse_cpu_list
from koordinator.foundation.errors import (
    ClusterError,
    HostError,
    MissingFileError,
    NotFoundError,
)
from koordinator.koordlet.app.rounds import Timers
from koordinator.koordlet.metrics import Metric


@pytest.fixture
def world() -> World:
    return World()


def test_best_effort_is_suppressed_within_one_round_of_a_spike(world: World) -> None:
    """The pods get their CPUs back step by step after the spike."""
    world.slo(cpu_suppress_threshold_percent=70)
    ls, be = ls_and_be(world)
    world.seconds(5, {ls.folder: 0.5, be.folder: 4.0})
    assert world.be_cpus() == 5  # 5.6 - 0.5 - 0.3

    world.seconds(1, {ls.folder: 3.5, be.folder: 4.0})
    assert world.be_cpus() == 2

    world.seconds(1, {ls.folder: 0.5, be.folder: 2.0})
    assert world.be_cpus() == 3
    world.seconds(5, {ls.folder: 0.5, be.folder: 2.0})
    assert world.be_cpus() == 5


def test_node_without_slo_suppresses_no_pod(world: World) -> None:
    """Everything is off by default."""
    ls, be = ls_and_be(world)
    world.seconds(5, {ls.folder: 3.5, be.folder: 4.0})

    assert world.be_cpus() == 8


def test_a_restart_is_no_kick(world: World) -> None:
    """Until it has measured, a new agent leaves everything as the old one did."""
    world.slo(cpu_suppress_threshold_percent=70)
    ls, be = ls_and_be(world)
    cores = {ls.folder: 3.5, be.folder: 2.0}
    world.seconds(5, cores)
    assert world.be_cpus() == 2
    world.tree.host.written.clear()

    world.agent = world.start()
    world.seconds(20, cores)

    assert world.tree.host.written == []
    assert world.be_cpus() == 2


def test_foreign_change_is_reverted(world: World) -> None:
    """Within a minute."""
    world.slo(cpu_suppress_threshold_percent=70)
    ls, be = ls_and_be(world)
    cores = {ls.folder: 3.5, be.folder: 2.0}
    world.seconds(5, cores)
    world.tree.set(CgroupFile.CPUSET, be.folder, "0-7")
    world.seconds(65, cores)

    assert parse_cpu_list(world.tree.get(CgroupFile.CPUSET, be.folder)).bit_count() == 2


def test_memory_pressure_ends_the_largest_batch_job(world: World) -> None:
    """At once and on this node; then there is time to cool down."""
    world.slo(memory_evict_threshold_percent=70, memory_evict_lower_percent=60)
    for name, gib, pid in (("small", 1, 11), ("large", 6, 12)):
        view = world.add(pod(name, "BE"))
        world.tree.set(
            CgroupFile.MEMORY_STAT,
            view.folder,
            f"total_inactive_anon {gib * GIB}\ntotal_active_anon 0\ntotal_inactive_file 0\n"
            "total_active_file 0\ntotal_unevictable 0",
        )
        world.tree.set(CgroupFile.PROCS, view.containers[0].folder, pid)
    world.seconds(3)
    assert world.tree.host.killed == []

    world.memory(23)
    world.seconds(1)
    assert world.tree.host.killed == [12]
    world.seconds(2)
    assert world.tree.host.killed == [12]
    assert any(event.type == "eviction" for event in world.agent.audit.events)
    world.outbox.deliver(world.cluster)
    (event,) = world.cluster.list(Event).items
    assert (event.reason, event.regarding.name) == ("evictPodSuccess", "large")


class PlayedCopilot:
    """Ends containers of YARN; has so much to release, in bytes."""

    def __init__(self, has: float) -> None:
        self.has = has
        self.releases: list[Mapping[str, float]] = []

    def release(
        self, amounts: Mapping[str, float], *, node_cpu_ratio: float, node_memory_ratio: float
    ) -> Mapping[str, float]:
        assert (node_cpu_ratio, node_memory_ratio) == (-1, -1)
        self.releases.append(amounts)
        if self.has < 0:
            raise HostError("connection refused")
        return {"kubernetes.io/batch-memory": self.has}


@pytest.mark.parametrize(("has", "is_spared"), [(1.0 * GIB, True), (0.0, False), (-1.0, False)])
def test_containers_of_yarn_end_in_place_of_their_node_manager(
    world: World, has: float, is_spared: bool
) -> None:
    """Other pods go when it is their turn, or when YARN has nothing to release or is not there.

    The NodeManager itself is never ended; what was released is in the audit.
    """
    copilot = PlayedCopilot(has)
    world.agent = world.start(copilot=copilot)
    world.slo(memory_evict_threshold_percent=70, memory_evict_lower_percent=60)
    manager = pod("nm", "BE", labels={"app.kubernetes.io/component": "node-manager"})
    for made, pid in ((manager, 11), (pod("job", "BE"), 12)):
        view = world.add(made)
        world.tree.set(CgroupFile.PROCS, view.containers[0].folder, pid)
    world.seconds(3)
    world.memory(23)
    for _ in range(6):
        world.seconds(1)
        world.outbox.deliver(world.cluster)
    world.seconds(1)

    assert copilot.releases[0].keys() == {"kubernetes.io/batch-memory"}
    assert copilot.releases[0]["kubernetes.io/batch-memory"] > 3 * GIB
    assert world.tree.host.killed == ([] if is_spared else [12])
    events = [each for each in world.agent.audit.events if each.owner == "yarn"]
    assert ("released kubernetes.io/batch-memory" in str(events[0])) is is_spared
    assert len(copilot.releases) == (2 if is_spared else 1)


def test_eviction_by_api_is_requested_once() -> None:
    """A terminating pod counts as released until it is deleted."""
    world = World(evicts_only_by_api=True, memory_evict_cool_s=1)
    world.slo(memory_evict_threshold_percent=70, memory_evict_lower_percent=69)
    view = world.add(pod("large", "BE"))
    other = world.add(pod("other", "BE"))
    for each, gib in ((view, 6), (other, 5)):
        world.tree.set(
            CgroupFile.MEMORY_STAT,
            each.folder,
            f"total_inactive_anon {gib * GIB}\ntotal_active_anon 0\ntotal_inactive_file 0\n"
            "total_active_file 0\ntotal_unevictable 0",
        )
    world.memory(23)
    world.seconds(5)
    assert len(world.cluster.list(Pod).items) == 2

    world.outbox.deliver(world.cluster)
    assert [left.metadata.name for left in world.cluster.list(Pod).items] == ["other"]
    assert world.tree.host.killed == []


def test_usage_is_reported_once_the_manager_asks(world: World) -> None:
    """Every minute; what prod pods will hardly use is in it."""
    ls, be = ls_and_be(world)
    cores = {ls.folder: 2.0, be.folder: 1.0}
    world.seconds(70, cores)
    world.outbox.deliver(world.cluster)
    with pytest.raises(NotFoundError):
        world.cluster.get(NodeMetric, "n1")

    world.cluster.create(NodeMetric(metadata=ObjectMeta(name="n1")))
    world.seconds(61, cores)
    world.outbox.deliver(world.cluster)

    status = world.cluster.get(NodeMetric, "n1").status
    assert status.node_metric is not None
    assert status.node_metric.node_usage.resources["cpu"].milli() == pytest.approx(3300, abs=60)
    assert [usage.name for usage in status.pods_metric] == ["be", "ls"]
    assert status.pods_metric[1].pod_usage.resources["cpu"].milli() == pytest.approx(2000, abs=30)
    assert status.prod_reclaimable_metric is not None


def test_the_topology_is_reported_and_the_parts_of_others_stay(world: World) -> None:
    """CPUs, pools and NUMA nodes."""
    world.seconds(1)
    world.outbox.deliver(world.cluster)
    resource_topology = world.cluster.get(NodeResourceTopology, "n1")

    assert resource_topology.metadata.annotations["node.koordinator.sh/cpu-shared-pools"] == (
        '[{"socket":0,"node":0,"cpuset":"0-7"}]'
    )
    assert [zone.name for zone in resource_topology.zones] == ["node-0"]
    meta = replace(
        resource_topology.metadata,
        annotations={**resource_topology.metadata.annotations, "other": "stays"},
    )
    world.cluster.update(replace(resource_topology, metadata=meta))
    bound = {"scheduling.koordinator.sh/resource-status": '{"cpuset":"0-1"}'}
    world.add(pod("r", "LSR", requests={"cpu": 2}, annotations=bound))
    world.seconds(4)
    world.outbox.deliver(world.cluster)

    annotations = world.cluster.get(NodeResourceTopology, "n1").metadata.annotations
    assert annotations["other"] == "stays"
    assert '"cpuset":"2-7"' in annotations["node.koordinator.sh/cpu-shared-pools"]


def test_topology_loses_what_the_node_no_longer_states() -> None:
    """A stale annotation would exclude CPUs for class SYSTEM permanently."""
    system, numa = "node.koordinator.sh/system-qos-resource", ENABLE_NUMA_RESERVATION
    world = World()

    def reported(labels: Any, annotations: Any) -> NodeResourceTopology:
        stated = {"labels": labels, "annotations": annotations}
        world.cluster.patch(Node, "n1", "", {"metadata": stated})
        world.seconds(61)
        world.outbox.deliver(world.cluster)
        return world.cluster.get(NodeResourceTopology, "n1")

    before = reported({numa: "true"}, {system: '{"cpuset":"0-1"}'}).metadata
    assert numa in before.labels
    assert system in before.annotations
    after = reported({numa: None}, {system: None}).metadata
    assert numa not in after.labels
    assert system not in after.annotations
    assert before.labels.keys() - after.labels.keys() == {numa}
    assert before.annotations.keys() - after.annotations.keys() == {system}


def test_huge_pages_are_reported_if_enabled() -> None:
    """Huge pages are not part of ordinary memory; an unused size has the amount 0."""
    folder = "/sys/bus/node/devices/node0"
    host = MemoryHost(
        {
            f"{folder}/meminfo": "".join(
                f"Node 0 {name}: {32 << 20} kB\n"
                for name in (
                    "MemTotal",
                    "MemFree",
                    "Active(file)",
                    "Inactive(file)",
                    "SReclaimable",
                )
            ),
            f"{folder}/hugepages/hugepages-2048kB/nr_hugepages": "1024\n",
        }
    )
    amounts = {}
    for gates in (ALL, ALL | {"HugePageReport"}):
        world = World(host, gates=gates)
        world.seconds(1)
        world.outbox.deliver(world.cluster)
        (zone,) = world.cluster.get(NodeResourceTopology, "n1").zones
        amounts[len(gates)] = {each.name: str(each.allocatable) for each in zone.resources}

    plain, with_pages = amounts.values()
    assert plain == {"cpu": "8", "memory": "32Gi"}
    assert with_pages == {
        "cpu": "8",
        "memory": "30Gi",
        "hugepages-1Gi": "0",
        "hugepages-2Mi": "2Gi",
    }


def test_invalid_slo_is_rejected_and_reported(world: World) -> None:
    """The last good one counts; an event names the field."""
    world.slo(cpu_suppress_threshold_percent=70)
    ls, be = ls_and_be(world)
    cores = {ls.folder: 3.5, be.folder: 2.0}
    world.seconds(3, cores)
    world.slo(cpu_suppress_policy="cpusets")
    world.seconds(2, cores)

    assert world.be_cpus() == 2
    assert "cpuSuppressPolicy" in world.agent.state.slo_problem
    world.outbox.deliver(world.cluster)
    assert "got 'cpusets'" in world.cluster.list(Event).items[0].note
    world.slo(cpu_suppress_threshold_percent=90)
    world.seconds(5, cores)
    assert world.agent.state.slo_problem == ""
    assert world.be_cpus() == 4


def test_a_node_whose_slo_is_deleted_has_the_defaults_again(world: World) -> None:
    """Settings that outlive their object would have no visible source."""
    world.slo(cpu_suppress_threshold_percent=70)
    ls, be = ls_and_be(world)
    cores = {ls.folder: 3.5, be.folder: 2.0}
    world.seconds(3, cores)
    assert world.be_cpus() == 2
    world.cluster.delete(NodeSlo, "n1")
    world.seconds(30, cores)

    assert world.be_cpus() == 8


def test_a_deleted_slo_that_could_not_be_followed_is_no_problem_any_more(world: World) -> None:
    """The defaults can be."""
    world.slo(cpu_suppress_policy="cpusets")
    world.seconds(1)
    world.cluster.delete(NodeSlo, "n1")
    world.seconds(1)

    assert world.agent.state.slo_problem == ""


class Unreachable:
    """A cluster whose every write fails."""

    def __getattr__(self, verb: str) -> object:
        def fail(*_: object, **__: object) -> None:
            raise ClusterError(f"{verb}: connection refused")

        return fail


@pytest.mark.slow
def test_an_hour_without_api_server_changes_nothing_on_the_node(world: World) -> None:
    """Suppression goes on; reports don't pile up and are current again afterwards."""
    world.slo(cpu_suppress_threshold_percent=70)
    world.cluster.create(NodeMetric(metadata=ObjectMeta(name="n1")))
    ls, be = ls_and_be(world)
    for minute in range(60):
        spike = 3.5 if minute % 2 else 0.5
        world.clock.advance_to(world.clock.now_s() + 50)
        world.seconds(10, {ls.folder: spike, be.folder: 2.0})
        world.outbox.deliver(Unreachable())  # type: ignore[arg-type]
        assert world.be_cpus() == (2 if minute % 2 else 5)
    world.seconds(61, {ls.folder: 1.0, be.folder: 2.0})
    world.outbox.deliver(world.cluster)

    reported = world.cluster.get(NodeMetric, "n1").status.update_time
    assert reported is not None
    assert world.clock.now_s() - reported.timestamp() < 61
    assert world.cluster.get(NodeResourceTopology, "n1")


def test_a_sleep_of_the_machine_makes_no_absurd_samples(world: World) -> None:
    """Counters that stood still, or ran on, for an hour are not usage of a second."""
    ls, be = ls_and_be(world)
    world.seconds(5, {ls.folder: 1.0, be.folder: 1.0})
    world.clock.advance_to(world.clock.now_s() + 3600)
    world.busy_ticks += 1e7
    world.seconds(3, {ls.folder: 1.0, be.folder: 1.0})

    newest = world.agent.store.between(
        Metric.NODE_CPU, "", world.clock.now_s() - 10, world.clock.now_s()
    )
    assert newest is not None
    assert newest.values.max() < 3


def test_pods_of_other_nodes_are_not_seen(world: World) -> None:
    """The API server selects them."""
    made = pod("elsewhere", "BE")
    world.cluster.create(replace(made, spec=replace(made.spec, node_name="n2")))
    world.add(pod("here", "BE"))
    world.seconds(1)

    assert [view.pod.metadata.name for view in world.agent.state.pods] == ["here"]


def test_nothing_happens_before_the_node_is_known() -> None:
    """The agent waits for its Node object."""
    world = World()
    world.cluster.delete(Node, "n1")
    fresh = world.start()
    fresh.step()

    assert not fresh.is_ready
    assert len(fresh.store) == 0


def test_resctrl_is_mounted_when_needed(world: World) -> None:
    """The groups get their cache ways once it is mounted."""
    host = world.tree.host
    host.put("/sys/fs/resctrl/.keep", "")
    host.mountable["resctrl"] = {
        "schemata": "    L3:0=fff\n    MB:0=100\n",
        "info/L3/cbm_mask": "fff\n",
        **{
            f"{group}/{file}": "" for group in ("LSR", "LS", "BE") for file in ("tasks", "schemata")
        },
    }
    world.add(pod("be", "BE"))
    world.seconds(3)
    assert not host.exists("/sys/fs/resctrl/schemata")

    on = {"enable": True}
    strategy = slo(resourceQOSStrategy={"beClass": {"resctrlQOS": on}})
    world.cluster.create(NodeSlo(metadata=ObjectMeta(name="n1"), spec=strategy))
    world.seconds(3)
    assert host.read("/sys/fs/resctrl/BE/schemata") == "MB:0=100\n"
    assert ("/sys/fs/resctrl/BE/schemata", "L3:0=f\n") in host.written


def test_the_same_on_cgroup_v2() -> None:
    """Cgroup v2 has one hierarchy, other names and other units."""
    world = World(version=CgroupVersion.V2)
    world.slo(cpu_suppress_threshold_percent=70)
    ls, be = ls_and_be(world)
    batch: dict[str, str | int] = {
        "kubernetes.io/batch-cpu": 500,
        "kubernetes.io/batch-memory": "1Gi",
    }
    limited = world.add(pod("limited", "BE", requests=batch, limits=batch))
    cores = {ls.folder: 0.5, be.folder: 4.0, limited.folder: 0.2}
    world.seconds(5, cores)
    assert world.be_cpus() == 5
    world.seconds(2, cores | {ls.folder: 3.5})
    assert world.be_cpus() == 2

    container = f"/sys/fs/cgroup/{limited.containers[0].folder}"
    read = world.tree.host.read
    assert read(f"{container}/cpu.max") == "50000 100000\n"
    assert read(f"{container}/cpu.weight") == "20\n"
    assert read(f"{container}/memory.max") == f"{GIB}\n"
    assert read("/sys/fs/cgroup/kubepods/besteffort/cpu.max") == "max 100000\n"
    failed = [event for event in world.agent.audit.events if event.error]
    assert failed == []

    world.slo(cpu_suppress_threshold_percent=70, cpu_suppress_policy="cfsQuota")
    world.seconds(2, cores)
    assert read("/sys/fs/cgroup/kubepods/besteffort/cpu.max").endswith(" 100000\n")
    assert int(read("/sys/fs/cgroup/kubepods/besteffort/cpu.max").split()[0]) > 400_000
    assert world.be_cpus() == 8


class FaultyHost(MemoryHost):
    """Half of what is read is missing, cut, or nonsense; half of what is written is refused."""

    chance: np.random.Generator | None = None

    def read(self, path: str) -> str:
        text = super().read(path)
        if self.chance is None:
            return text
        match int(self.chance.integers(8)):
            case 0:
                raise MissingFileError(f"cannot read {path}: gone")
            case 1:
                raise HostError(f"cannot read {path}: Input/output error")
            case 2:
                return text[: len(text) // 2]
            case 3:
                return "-99999999999999 nonsense\n\x00"
            case _:
                return text

    def write(self, path: str, text: str) -> None:
        if self.chance is not None and self.chance.random() < 0.5:
            raise HostError(f"cannot write {path}: Read-only file system")
        super().write(path, text)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_whatever_the_machine_does_the_agent_lives_and_puts_things_right(seed: int) -> None:
    """The agent reports no impossible sample."""
    faulty = FaultyHost()
    world = World(host=faulty)
    world.slo(cpu_suppress_threshold_percent=70, memory_evict_threshold_percent=70)
    world.cluster.create(NodeMetric(metadata=ObjectMeta(name="n1")))
    ls, be = ls_and_be(world)
    batch: dict[str, str | int] = {
        "kubernetes.io/batch-cpu": 500,
        "kubernetes.io/batch-memory": "1Gi",
    }
    limited = world.add(pod("limited", "BE", requests=batch, limits=batch))
    cores = {ls.folder: 3.5, be.folder: 2.0, limited.folder: 0.3}
    world.seconds(5, cores)

    faulty.chance = np.random.default_rng(seed)
    world.seconds(100, cores)
    world.outbox.deliver(world.cluster)
    faulty.chance = None
    world.seconds(130, cores)

    assert world.be_cpus() == 2
    assert world.tree.get(CgroupFile.CFS_QUOTA, limited.folder) == "50000"
    assert world.tree.get(CgroupFile.MEMORY_LIMIT, limited.folder) == str(GIB)
    for metric, most in (
        (Metric.NODE_CPU, 8),
        (Metric.POD_CPU, 12),
        (Metric.NODE_MEMORY, 32 * GIB),
    ):
        for owner in world.agent.store.owners(metric):
            result = world.agent.store.between(metric, owner, START_S, world.clock.now_s())
            assert result is not None
            assert 0 <= result.values.min() <= result.values.max() <= most


def test_timers_keep_step_and_do_not_catch_up() -> None:
    """Runs missed while the machine slept are made up for by one run."""
    ran: list[float] = []
    timers = Timers()
    timers.add("a", 10.0, ran.append, first_s=100.0)
    for now_s in (99.0, 100.0, 105.0, 112.0, 119.9, 120.0, 500.0, 505.0, 510.0):
        timers.run(now_s)

    assert ran == [100.0, 112.0, 120.0, 500.0, 510.0]
    assert timers.next_s() == 520.0


def test_a_round_that_fails_stops_no_other() -> None:
    """The failure is reported by name, and the round is retried when it is due."""
    errors: list[str] = []
    ran: list[float] = []

    def fail(_: float) -> None:
        raise ZeroDivisionError

    timers = Timers(lambda name, error: errors.append(f"{name}: {type(error).__name__}"))
    timers.add("bad", 1.0, fail)
    timers.add("good", 1.0, ran.append)
    timers.run(5.0)
    timers.run(6.0)

    assert errors == ["bad: ZeroDivisionError"] * 2
    assert ran == [5.0, 6.0]
    plain = Timers()
    plain.add("bad", 1.0, fail)
    with pytest.raises(ZeroDivisionError):
        plain.run(5.0)


def test_intervals_that_are_too_short_are_named() -> None:
    """Once for each; the least possible ones count."""
    world = World()
    policy = MetricCollectPolicy(report_interval_seconds=10, aggregate_duration_seconds=300)
    spec = NodeMetricSpec(metric_collect_policy=policy)
    made = world.cluster.create(NodeMetric(metadata=ObjectMeta(name="n1"), spec=spec))
    world.seconds(40)
    world.outbox.deliver(world.cluster)

    (event,) = [
        each for each in world.cluster.list(Event).items if each.reason == "NodeMetricPolicyRaised"
    ]
    assert event.note == (
        "spec.metricCollectPolicy.reportIntervalSeconds: must be at least 30, got 10: 30 is used"
    )
    assert world.cluster.get(NodeMetric, made.metadata.name).status is not None
