"""A pod that has ended changes nothing that the agent decides, writes or reports."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.examples import examples
from tests.nodes import GIB, START_S, Tree, machine, pod, slo
from tests.unit.koordlet.app.world import World

from koordinator.api.meta import ObjectMeta
from koordinator.api.node_metric import NodeMetric, NodeMetricSpec
from koordinator.api.node_slo import NodeSlo
from koordinator.api.pod import Pod
from koordinator.koordlet.app.object_intents import plan_all
from koordinator.koordlet.app.options import OFF, gates_of
from koordinator.koordlet.app.rounds import PodIsolation
from koordinator.koordlet.metrics import Metric, MetricStore
from koordinator.koordlet.qos.cpu_suppress import suppress
from koordinator.koordlet.qos.eviction import StrategyInputs, choose_with_copilot
from koordinator.koordlet.qos.node_pressure import cpu_tasks, memory_tasks
from koordinator.koordlet.qos.resctrl import ResctrlFacts
from koordinator.koordlet.qos.tc_network import plan_network_shape
from koordinator.koordlet.qos.terway_network import plan_terway
from koordinator.koordlet.view.cpus import cpu_pools
from koordinator.koordlet.view.pods import PodView

ALL_GATES = gates_of({gate: True for gate in OFF if gate != "AuditEventsHTTPHandler"})
ENDED = ("Succeeded", "Failed")
EVICTABLE = {"koordinator.sh/eviction-enabled": "true"}
SETTINGS: dict[str, Any] = {
    "resourceUsedThresholdWithBE": {
        "enable": True,
        "cpuSuppressThresholdPercent": 65,
        "memoryEvictThresholdPercent": 70,
        "cpuEvictBESatisfactionLowerPercent": 30,
        "cpuEvictBESatisfactionUpperPercent": 40,
        "cpuEvictThresholdPercent": 70,
        "cpuAllocatableEvictThresholdPercent": 60,
        "cpuAllocatableEvictLowerPercent": 50,
        "memoryAllocatableEvictThresholdPercent": 60,
        "memoryAllocatableEvictLowerPercent": 50,
        "evictEnabledPriorityThreshold": 7999,
        "allocatableEvictPriorityThreshold": 7999,
    },
    "cpuBurstStrategy": {"policy": "auto", "sharePoolThresholdPercent": 50},
    "resourceQOSStrategy": {
        "policies": {"cpuPolicy": "groupIdentity", "netQOSPolicy": "tc"},
        "lsClass": {"cpuQOS": {"enable": True, "groupIdentity": 2}},
        "beClass": {
            "cpuQOS": {"enable": True, "groupIdentity": -1},
            "memoryQOS": {"enable": True, "minLimitPercent": 100, "lowLimitPercent": 50},
            "resctrlQOS": {"enable": True, "catRangeEndPercent": 30},
        },
    },
    "systemStrategy": {"totalNetworkBandwidth": "10G"},
}


def finished(qos: str, phase: str, priority: int, batch_milli: int, memory_gib: int) -> Pod:
    """Return a pod that has ended; whatever an agent may look at, it has."""
    status = {"cpuset": "0-3", "numaNodeResources": [{"node": 0, "resources": {"cpu": "4"}}]}
    return pod(
        "ended",
        qos,
        priority=priority,
        phase=phase,
        requests={
            "cpu": "3",
            "memory": f"{memory_gib}Gi",
            "kubernetes.io/batch-cpu": batch_milli,
            "kubernetes.io/batch-memory": f"{memory_gib}Gi",
        },
        limits={"cpu": "3", "kubernetes.io/batch-cpu": batch_milli},
        labels=EVICTABLE,
        annotations={
            "scheduling.koordinator.sh/resource-status": json.dumps(status),
            "koordinator.sh/networkQOS": '{"egressLimit": "100M"}',
            "node.koordinator.sh/resctrl": '{"llc": {"schemata": {"range": [0, 30]}}}',
        },
        podIP="10.0.0.9",
    )


ended_pods = st.builds(
    finished,
    st.sampled_from(["LSE", "LSR", "LS", "BE", "SYSTEM", ""]),
    st.sampled_from(ENDED),
    st.sampled_from([0, 3000, 4999, 5000, 9000]),
    st.sampled_from([0, 1000, 64_000]),
    st.sampled_from([0, 1, 64]),
)


def living() -> list[Pod]:
    """Return an online service and two batch jobs that starve."""
    batch: dict[str, str | int] = {
        "kubernetes.io/batch-cpu": 20_000,
        "kubernetes.io/batch-memory": "8Gi",
    }
    return [
        pod("be-a", "BE", requests=batch, limits=batch, priority=5000, labels=EVICTABLE),
        pod("be-b", "BE", requests=batch, limits=batch, priority=5001, labels=EVICTABLE),
        pod("ls", "LS", requests={"cpu": 2, "memory": "8Gi"}, limits={"cpu": 2}, priority=9000),
    ]


def decisions(others: list[Pod]) -> dict[str, Any]:
    """Return what every strategy wants of a busy node on which pods live, and others are."""
    tree, store = Tree(), MetricStore(600, 1)
    views: list[PodView] = [tree.add_pod(each) for each in living()]
    node = {
        Metric.NODE_CPU: 7.5,
        Metric.NODE_MEMORY: 30.0 * GIB,
        Metric.BE_CPU: 3.9,
        Metric.BE_CPU_REQUEST: 40_000.0,
        Metric.BE_CPU_LIMIT: 4000.0,
    }
    for second in range(60):
        time_s = START_S - 59 + second
        for kind, value in node.items():
            store.add(kind, "", time_s, value)
        for view in views:
            store.add(Metric.POD_CPU, view.uid, time_s, 2.0)
            store.add(Metric.POD_MEMORY, view.uid, time_s, 4.0 * GIB)
    views += [tree.add_pod(each) for each in others]
    allocatable = {"kubernetes.io/batch-cpu": 40_000, "kubernetes.io/batch-memory": 20 * GIB}
    where = machine(allocatable=allocatable)
    pods = sorted(views, key=lambda view: view.key)
    inputs = StrategyInputs(tree.view(*pods, machine_=where, slo=slo(**SETTINGS)), store)
    seen = inputs.view
    caches = ResctrlFacts((0,), 0xFFF, "GenuineIntel")
    tasks = cpu_tasks(inputs, ALL_GATES) + memory_tasks(inputs, ALL_GATES)
    no_disks = World().agent._volumes
    return {
        "victims": [victim.name for victim in choose_with_copilot(tasks, (), ())[0]],
        "release": [(task.feature, dict(task.release)) for task in tasks],
        "suppress": suppress(inputs),
        "plans": plan_all(seen, ALL_GATES, no_disks, caches, PodIsolation(None), keep_quota=False),
        "pools": cpu_pools(seen),
        "network": plan_network_shape(seen),
        "terway": plan_terway(seen),
    }


EXPECTED = decisions([])


def test_the_node_of_these_tests_has_something_to_decide() -> None:
    """The fixture has two batch jobs to evict, and suppresses best effort."""
    assert EXPECTED["victims"] == ["be-a", "be-b"]
    assert EXPECTED["suppress"].intents
    assert {feature for feature, _ in EXPECTED["release"]} >= {
        "BECPUEvict",
        "CPUAllocatableEvict",
        "CPUEvict",
        "BEMemoryEvict",
        "MemoryAllocatableEvict",
        "MemoryEvict",
    }


@settings(max_examples=examples(25))
@given(ended_pods)
def test_a_pod_that_has_ended_changes_no_decision(ended: Pod) -> None:
    """The rule holds for any class, priority, requests, CPUs and annotations."""
    assert decisions([ended]) == EXPECTED


def without_priority(each: Pod) -> Pod:
    """Return the pod as an API server without PriorityClass objects admits it."""
    return replace(each, spec=replace(each.spec, priority=None))


def report(others: list[Pod]) -> Any:
    """Return the status of NodeMetric after a while in which a batch job ended."""
    world = World(gates=ALL_GATES)
    world.cluster.create(NodeMetric(metadata=ObjectMeta(name="n1"), spec=NodeMetricSpec()))
    world.cluster.create(NodeSlo(metadata=ObjectMeta(name="n1"), spec=slo(**SETTINGS)))
    for each in [*living(), *others]:
        world.add(without_priority(each))
    world.seconds(61, {"": 1.0})
    world.outbox.deliver(world.cluster)
    store = world.agent.store
    requested = store.last(Metric.BE_CPU_REQUEST, "", world.clock.now_s() - 2)
    return world.cluster.get(NodeMetric, "n1").status, requested


@pytest.mark.parametrize("phase", ENDED)
def test_a_pod_that_has_ended_is_not_measured(phase: str) -> None:
    """Requests and usage of an ended pod are not reported."""
    assert report([finished("BE", phase, 5000, 64_000, 1)]) == report([])


def test_a_pod_that_ends_is_reported_no_more() -> None:
    """Samples from before its end say nothing about the node now."""
    world = World()
    world.cluster.create(NodeMetric(metadata=ObjectMeta(name="n1"), spec=NodeMetricSpec()))
    views = [world.add(without_priority(each)) for each in living()]
    cores = {view.folder: 1.0 for view in views}
    world.seconds(30, cores)
    job = world.cluster.get(Pod, "be-a", namespace="default")
    world.cluster.update_status(replace(job, status=replace(job.status, phase="Succeeded")))
    world.seconds(31, {folder: 1.0 for folder in cores if "be-a" not in folder})
    world.outbox.deliver(world.cluster)

    status = world.cluster.get(NodeMetric, "n1").status
    assert status is not None
    assert [usage.name for usage in status.pods_metric] == ["be-b", "ls"]
