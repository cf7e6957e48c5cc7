"""CPUs and NUMA nodes: filter, allocation and annotations."""

import json
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from tests.equipped_nodes import (
    AMPLIFICATION,
    BIND,
    HINT,
    NUMA_SPEC,
    PLACES,
    POLICY,
    SPEC,
    STATUS,
    bound_pod,
    machine,
)
from tests.keywords import as_keywords
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.questions import built, hopeless, refused, scored
from tests.worlds import add, configuration, embedded, made, node, pod, renamed

from koordinator.api.device import Device, DeviceTopology, DeviceType
from koordinator.api.node import NodeResourceTopology
from koordinator.api.pod import Pod
from koordinator.scheduler.contract import AllocationResult, Refusal
from koordinator.scheduler.cycle import NodeChoice, SchedulingCycle
from koordinator.scheduler.plugins.node_numa_resource import PLUGIN
from koordinator.scheduler.profile import build_profiles
from koordinator.scheduler.snapshot import ClusterState, Snapshot

FULL = {SPEC: {"requiredCPUBindPolicy": "FullPCPUs"}}
SINGLE = {NUMA_SPEC: {"numaTopologyPolicy": "SingleNUMANode"}}


def status(state: ClusterState, pending: Pod, on: str = "m", **args: Any) -> Any:
    """Return the ``resource-status`` of the pod, or why it has none."""
    view = Snapshot(state)[np.array([state.nodes.rows[on]])]
    in_use: AllocationResult | Refusal = built(PLUGIN, state, **args).reserve(
        view, state.classes.of(pending), None
    )
    if isinstance(in_use, Refusal):
        return in_use.reason
    return json.loads(in_use.annotations[STATUS]) if STATUS in in_use.annotations else None


def running(name: str, on: str = "m", **in_use: Any) -> Pod:
    """Return a pod with the allocation in its ``resource-status``."""
    return bound_pod(name, 1, on=on, annotations={STATUS: in_use})


# -- whose CPUs are bound --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pending", "cpuset"),
    [
        (bound_pod("p", 2), "0,8"),
        (bound_pod("p", 2, qos="LSE"), "0,8"),
        (
            bound_pod("p", 2, annotations={SPEC: {"preferredCPUBindPolicy": "SpreadByPCPUs"}}),
            "0-1",
        ),
        (bound_pod("p", 2, qos="LS"), None),
        (bound_pod("p", 2, priority=5500), None),
    ],
)
def test_lse_and_lsr_pods_get_exclusive_cpus(
    world: World, pending: Pod, cpuset: str | None
) -> None:
    """LSE and LSR pods are of the band prod, and get whole cores unless they specify otherwise."""
    result = status(world(*machine("m")), pending)

    assert (result or {}).get("cpuset") == cpuset


def test_fraction_of_a_cpu_cannot_be_bound(world: World) -> None:
    """The request is rejected on every node."""
    state = world(*machine("m"))
    pending = state.classes.of(bound_pod("p", 1, requests={"cpu": "1500m"}))

    assert built(PLUGIN, state).prefilter(Snapshot(state), pending) == Refusal(
        "the requested CPUs must be integer"
    )


def test_node_may_bind_the_cpus_of_every_pod(world: World) -> None:
    """A label of the node selects the policy, which is written to the pods."""
    state = world(*machine("m", labels={BIND: "SpreadByPCPUs"}))
    plugin = built(PLUGIN, state)
    view, pending = Snapshot(state)[np.array([0])], state.classes.of(pod("p", cpu=2))
    in_use = plugin.reserve(view, pending, None)

    assert json.loads(in_use.annotations[STATUS])["cpuset"] == "0-1"
    assert json.loads(in_use.annotations[SPEC])["requiredCPUBindPolicy"] == "SpreadByPCPUs"
    assert refused(plugin, state, pod("p", cpu="1500m")) == {
        "m": "the requested CPUs must be integer"
    }
    conflict = "node(s) cpu bind policy conflicts with pod's required cpu bind policy"
    assert refused(plugin, state, bound_pod("p", 2, annotations=FULL)) == {"m": conflict}


def test_required_full_cores_must_be_free(world: World) -> None:
    """The number of CPUs must fill cores, and the cores must be free."""
    state = world(*machine("m", cores=2), running("a", cpuset="0"), running("b", cpuset="1"))
    plugin = built(PLUGIN, state)
    odd = bound_pod("p", 3, annotations=FULL)
    much = bound_pod("p", 6, annotations=FULL)

    assert refused(plugin, state, odd) == {"m": "node(s) requested cpus not multiple cpus per core"}
    assert hopeless(plugin, state, odd) == {"m"}
    assert refused(plugin, state, much) == {"m": "not enough cpus available to satisfy request"}
    assert hopeless(plugin, state, much) == set()
    assert status(state, bound_pod("p", 4, annotations=FULL))["cpuset"] == "2-3,6-7"


def test_nodes_without_topology_bind_no_cpus(world: World) -> None:
    """A malformed topology counts as missing, and its event gives the reason."""
    broken = machine("b", topology={"node.koordinator.sh/cpu-topology": "{"})
    state = world(node("n"), *broken)

    assert refused(built(PLUGIN, state), state, bound_pod("p", 2)) == dict.fromkeys(
        "nb", "node(s) invalid CPU Topology"
    )


def test_reserved_cpus_are_not_allocated(world: World) -> None:
    """The node's reservation lists the reserved CPUs."""
    reserved = {"node.koordinator.sh/reservation": json.dumps({"reservedCPUs": "0-1"})}
    state = world(*machine("m", topology=reserved))

    assert status(state, bound_pod("p", 2))["cpuset"] == "4,12"


# -- NUMA policies -----------------------------------------------------------------------------


def test_single_numa_node_provides_cpu_and_memory(world: World) -> None:
    """CPU and memory come from one NUMA node and are charged there."""
    full = running("a", numaNodeResources=[{"node": 0, "resources": {"memory": "15Gi"}}])
    state = world(*machine("m"), full)
    pending = pod("p", cpu=4, memory="4Gi", annotations={NUMA_SPEC: json.dumps(SINGLE[NUMA_SPEC])})

    assert status(state, pending) == {
        "numaNodeResources": [{"node": 1, "resources": {"cpu": "4", "memory": "4Gi"}}]
    }


def test_no_numa_node_has_enough(world: World) -> None:
    """The reason names the resource, or the preferred sets of each provider."""
    state = world(*machine("m", labels={POLICY: "SingleNUMANode"}))
    plugin = built(PLUGIN, state)

    assert refused(plugin, state, pod("p", cpu=10)) == {
        "m": "Unaligned NUMA Hint cause cpu prefer [11] among [11]"
    }
    assert refused(plugin, state, pod("p", cpu=20)) == {"m": "Unsatisfied NUMA cpu"}
    assert hopeless(plugin, state, pod("p", cpu=10)) == set()


def test_conflicting_policies_are_rejected(world: World) -> None:
    """The policies of pod and node differ."""
    state = world(*machine("m", labels={POLICY: "Restricted"}))
    pending = bound_pod("p", 2, annotations=SINGLE)

    assert refused(built(PLUGIN, state), state, pending) == {
        "m": "node(s) NUMA Topology policy not match"
    }


def test_of_many_numa_nodes_a_pod_gets_one_or_all(world: World) -> None:
    """Other sets are not considered on nodes with more than eight NUMA nodes."""
    state = world(*machine("m", zones=12, cores=1, labels={POLICY: "Restricted"}))
    plugin = built(PLUGIN, state)
    small, large = pod("small", cpu=2, memory="1Gi"), pod("large", cpu=12, memory="12Gi")

    assert refused(plugin, state, small) == refused(plugin, state, large) == {}
    assert len(status(state, small)["numaNodeResources"]) == 1
    assert len(status(state, large)["numaNodeResources"]) == 12


@pytest.mark.parametrize("policy", ["Restricted", "SingleNUMANode"])
@pytest.mark.parametrize("spec", [FULL, {}])
def test_clusters_without_cpu_topology(world: World, policy: str, spec: Any) -> None:
    """There is no topology at all, or there are zones of memory only."""
    pending = bound_pod("p", 2, annotations={**spec, NUMA_SPEC: {"numaTopologyPolicy": policy}})
    whole, topology = machine("m")
    assert isinstance(topology, NodeResourceTopology)
    memory = tuple(
        replace(zone, resources=tuple(r for r in zone.resources if r.name != "cpu"))
        for zone in topology.zones
    )
    bare, poor = world(whole), world(whole, replace(topology, zones=memory))

    assert refused(built(PLUGIN, bare), bare, pending) == {"m": "node(s) invalid CPU Topology"}
    assert set(refused(built(PLUGIN, poor), poor, pending)) == {"m"}
    assert scored(built(PLUGIN, poor), poor, pending) == {"m": 0}


def test_node_without_numa_nodes_satisfies_no_policy(world: World) -> None:
    """Can't keep any policy."""
    state = world(node("n", labels={POLICY: "Restricted"}))

    assert refused(built(PLUGIN, state), state, pod("p", cpu=1)) == {
        "n": "node(s) missing NUMA resources"
    }


@pytest.mark.parametrize("annotation", ['{"numaTopologyPolicy": "Best"}', "{"])
def test_malformed_annotation_is_reported_on_the_pod(world: World, annotation: str) -> None:
    """The reason names the annotation."""
    state = world(*machine("m"))
    pending = state.classes.of(pod("p", cpu=1, annotations={NUMA_SPEC: annotation}))
    refusal = built(PLUGIN, state).prefilter(Snapshot(state), pending)

    assert NUMA_SPEC in refusal.reason


def test_devices_and_cpus_come_from_one_numa_node(world: World) -> None:
    """GPU 0 of NUMA node 0 is taken: CPU and memory follow the GPU to the other one."""
    state = world(*machine("m", gpus=2), *machine("n"))
    (profile,) = build_profiles(PLACES, state.axis).profiles
    cycle, annotations = SchedulingCycle(profile, state), {NUMA_SPEC: json.dumps(SINGLE[NUMA_SPEC])}
    first = pod("p", cpu=2, memory="1Gi", requests={"nvidia.com/gpu": 1}, annotations=annotations)
    zones = []
    for name in "pq":
        pending = renamed(first, name)
        choice = cycle.choose(pending, state.classes.of(pending), {})
        assert isinstance(choice, NodeChoice)
        state.place(
            pending.key,
            pending,
            state.classes.of(pending),
            choice.row,
            choice.allocation.pod_allocation,
        )
        pod_allocation = choice.allocation.pod_allocation
        assert pod_allocation.numa is not None
        zones.append(
            (
                [*pod_allocation.numa.zones],
                [taken.minor for taken in pod_allocation.devices[DeviceType.GPU]],
            )
        )

    assert zones == [([0], [0]), ([1], [1])]
    assert cycle.choose(renamed(first, "r"), state.classes.of(first), {}) is None


@pytest.mark.parametrize(
    ("place", "zones", "wanted", "reasons"),
    [
        (None, 2, SINGLE, {"m": "Insufficient gpu devices"}),
        (None, 2, {}, {}),
        (None, 1, SINGLE, {}),
        (-1, 2, SINGLE, {}),
    ],
    ids=["unknown", "no policy", "one NUMA node", "on none in particular"],
)
def test_devices_without_numa_node_are_not_aligned(
    world: World, place: int | None, zones: int, wanted: Any, reasons: dict[str, str]
) -> None:
    """The filter rejects the node; if Reserve did, the pod would be stuck with it."""
    *others, report = machine("m", zones=zones, gpus=2)
    assert isinstance(report, Device)
    topology = DeviceTopology(socket_id=-1, node_id=place, pcie_id="a") if place else None
    devices = tuple(replace(each, topology=topology) for each in report.spec.devices)
    state = world(*others, replace(report, spec=replace(report.spec, devices=devices)))
    (profile,) = build_profiles(PLACES, state.axis).profiles
    (plugin,) = (each.plugin for each in profile.filter if each.name == "DeviceShare")
    annotations = {key: json.dumps(value) for key, value in wanted.items()}
    pending = pod("p", cpu=2, memory="1Gi", requests={"nvidia.com/gpu": 1}, annotations=annotations)

    assert refused(plugin, state, pending) == reasons
    assert (
        SchedulingCycle(profile, state).choose(pending, state.classes.of(pending), {}) is None
    ) == bool(reasons)


# -- amplification ---------------------------------------------------------------------------


def test_bound_cpus_count_for_more_on_an_amplified_node(world: World) -> None:
    """16 CPUs show as 32; 4 bound ones count as 8, a pod that binds 12 as 24: they just fit."""
    (whole, topology) = machine("m", annotations={AMPLIFICATION: '{"cpu":2.0}'})
    shown = node("m", cpu=32, memory="32Gi")
    shown.metadata.annotations.update(whole.metadata.annotations)
    state = world(
        shown, topology, bound_pod("a", 4, on="m", annotations={STATUS: {"cpuset": "0-3"}})
    )
    plugin = built(PLUGIN, state)

    assert refused(plugin, state, bound_pod("p", 12)) == {}
    assert refused(plugin, state, bound_pod("p", 13)) == {"m": "Insufficient amplified cpu"}
    assert refused(plugin, state, pod("p", cpu=24)) == {}
    assert refused(plugin, state, pod("p", cpu=25)) == {"m": "Insufficient amplified cpu"}


@pytest.mark.parametrize(
    "nonsense",
    [
        {"annotations": {AMPLIFICATION: '{"cpu": 1e300}'}},
        {"annotations": {AMPLIFICATION: '{"cpu": 1.5, "memory": 2}'}, "memory": 1 << 33},
    ],
    ids=["ratio", "amount"],
)
def test_impossible_amounts_do_not_stop_the_scheduler(world: World, nonsense: Any) -> None:
    """Foreign annotations, or two pods that hold one whole node, are not fatal."""
    everything = [{"node": 0, "resources": {"cpu": "9E", "memory": "9E"}}]
    state = world(
        *machine("bad", labels={POLICY: "Restricted"}, **nonsense),
        *machine("m", labels={POLICY: "SingleNUMANode"}),
        running("a", numaNodeResources=everything),
        running("b", numaNodeResources=everything),
        running("c", numaNodeResources=[{"node": 1, "resources": {"cpu": "-9", "memory": "0"}}]),
    )

    assert "m" not in refused(built(PLUGIN, state), state, pod("p", cpu=2))
    (taken,) = status(state, pod("p", cpu=2))["numaNodeResources"]
    assert taken["node"] == 1
    state.validate()


def test_malformed_amplification_rejects_pods_with_cpu(world: World) -> None:
    """Keeps pods with CPU away."""
    state = world(*machine("m", annotations={AMPLIFICATION: "much"}))

    assert refused(built(PLUGIN, state), state, pod("p", cpu=1)) == {
        "m": "node(s) invalid CPU amplification ratio"
    }


# -- scores, runs ------------------------------------------------------------------------------


def test_nodes_are_scored_by_free_capacity(world: World) -> None:
    """The score prefers free nodes, or packed ones."""
    state = world(*machine("m"), *machine("n"), pod("a", cpu=8, memory="16Gi", on="m"))
    most = {
        "scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}]}
    }

    assert scored(built(PLUGIN, state), state, pod("p", cpu=4)) == {"m": 37, "n": 87}
    assert scored(built(PLUGIN, state, **most), state, pod("p", cpu=4)) == {"m": 75, "n": 25}


def test_pods_without_requirements_are_decided_in_runs(world: World) -> None:
    """As soon as one node has a policy they are decided one by one."""
    state = world(*machine("m"), *machine("n"))
    (profile,) = build_profiles(PLACES, state.axis).profiles
    cycle, classes = (
        SchedulingCycle(profile, state),
        [state.classes.of(pod(n, cpu=1)) for n in "ab"],
    )
    assert cycle.choose_run(classes) is not None

    add(state, machine("n", labels={POLICY: "Restricted"})[0])
    assert cycle.choose_run(classes) is None


# -- preemption ------------------------------------------------------------------------------

EVICTING = configuration(
    plugins={
        point: {"enabled": [{"name": "NodeNUMAResource"}, {"name": "DeviceShare"}]}
        for point in ("preFilter", "filter", "score", "reserve", "preBind")
    }
)


def test_preemption_releases_cpus_and_amounts_of_numa_nodes() -> None:
    """The pod on NUMA node 1 is the victim, because only there its eviction suffices."""
    one = embedded(*machine("m", labels={POLICY: "SingleNUMANode"}), config=EVICTING)
    one.load([bound_pod("a", 4, annotations=FULL, priority=9600)])
    one.scheduler.step()
    one.load([bound_pod("b", 6, annotations=FULL, priority=9100)])
    one.scheduler.step()
    one.load([bound_pod("c", 8, annotations=FULL, priority=9500)])
    outcomes = one.run_to_fixed_point()

    assert [o.pod for o in outcomes if type(o).__name__ == "Evicted"] == ["default/b"]
    numa = one.state.pods.by_key["default/c"].pod_allocation.numa
    assert numa is not None
    assert [*numa.zones] == [1]


def test_preemption_knows_which_gpus_make_a_group_whole() -> None:
    """GPUs are in partitions of four: a pod in the upper half is evicted, not one in each half."""
    table = {
        "annotations": {
            "scheduling.koordinator.sh/gpu-partitions": json.dumps(
                {
                    "1": [{"minors": [m]} for m in range(4)],
                    "2": [{"minors": [0, 1]}, {"minors": [2, 3]}],
                }
            )
        },
        "labels": {"node.koordinator.sh/gpu-partition-policy": "Honor"},
    }
    one = embedded(*machine("m", gpus=4, device=table), config=EVICTING)
    gpu = {"nvidia.com/gpu": 1}
    for name, priority in (("a", 9900), ("b", 9100), ("c", 9200)):
        one.load([pod(name, requests=gpu, priority=priority)])
        one.scheduler.step()
    one.load([pod("pair", requests={"nvidia.com/gpu": 2}, priority=9500)])
    outcomes = one.run_to_fixed_point()
    minors = [
        t.minor
        for t in one.state.pods.by_key["default/pair"].pod_allocation.devices[DeviceType.GPU]
    ]

    assert [o.pod for o in outcomes if type(o).__name__ == "Evicted"] == ["default/c"]
    assert minors == [2, 3]


# -- what others write -------------------------------------------------------------------------


def test_changed_annotations_of_bound_pods_are_charged(world: World) -> None:
    """A change by any client is charged."""
    state = world(*machine("m"), running("a", cpuset="0-1"))
    add(state, running("a", cpuset="2-3"))

    assert state.nodes.numa.ledger(0).cpus.in_use == 0b1100


def test_vendors_table_of_templates() -> None:
    """A virtual NPU has a size of the ConfigMap, and the template name is written."""
    requests: dict[str, str | int] = {
        "koordinator.sh/gpu.shared": 1,
        "huawei.com/npu-core": 5,
        "huawei.com/npu-cpu": 1,
        "koordinator.sh/gpu-memory": "16Gi",
    }
    template = {
        "huawei.com/npu-core": 5,
        "huawei.com/npu-cpu": 1,
        "koordinator.sh/gpu-memory": "16Gi",
    }
    resources = {
        "huawei.com/npu-core": "20",
        "huawei.com/npu-cpu": "7",
        "koordinator.sh/gpu-memory": "64Gi",
        "koordinator.sh/gpu-memory-ratio": "100",
    }
    labels = {
        "node.koordinator.sh/gpu-vendor": "huawei",
        "node.koordinator.sh/gpu-model": "Ascend-910B3",
    }
    amounts = {"huawei.com/npu-core": 20, "huawei.com/npu-cpu": 7, **requests}
    one = embedded(
        node("n", labels=labels, **as_keywords({**amounts, "koordinator.sh/gpu-memory": "64Gi"})),
        made(
            "Device",
            "n",
            "scheduling.koordinator.sh/v1alpha1",
            metadata={"labels": labels},
            spec={"devices": [{"type": "gpu", "minor": 0, "health": True, "resources": resources}]},
        ),
        pod("p", requests=requests, annotations={HINT: "{}"}),
        config=PLACES,
    )
    (refusal,) = one.scheduler.step()
    assert "no matched GPU shared resource template" in getattr(refusal, "message", "")

    one.load(
        [
            made(
                "ConfigMap",
                "gpu-shared-resource-templates",
                metadata={"namespace": "koordinator-system"},
                data={"data.yaml": json.dumps({"huawei-Ascend-910B3": {"vir05": template}})},
            )
        ]
    )
    one.run_to_fixed_point()
    (taken,) = one.state.pods.by_key["default/p"].pod_allocation.devices[DeviceType.GPU]
    assert taken.template == "vir05"
