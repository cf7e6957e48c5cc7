"""Topology of a node, from its NodeResourceTopology."""

import json

import pytest
from tests.machines import GIB, cpu_infos

from koordinator.api.annotations.numa import CPU_TOPOLOGY, CpuTopology, NumaTopologyPolicy
from koordinator.api.codec import decode
from koordinator.api.node import NodeResourceTopology
from koordinator.foundation.cpu_list import format_cpu_list
from koordinator.foundation.errors import InputError
from koordinator.scheduler.rules.numa.node import read_topology

DETAIL = CPU_TOPOLOGY.entry(CpuTopology(detail=tuple(cpu_infos(2, 1, 4, 2))))


def topology(
    annotations: dict[str, str] | None = None, *policies: str, zones: tuple[str, ...] = ()
) -> NodeResourceTopology:
    """Return an object with NUMA nodes of 8 CPUs and 16Gi each."""
    resources = [
        {"name": name, "capacity": amount, "allocatable": amount, "available": amount}
        for name, amount in (("cpu", "8"), ("memory", "16Gi"))
    ]
    return decode(
        json.dumps(
            {
                "apiVersion": "topology.node.k8s.io/v1alpha1",
                "kind": "NodeResourceTopology",
                "metadata": {"name": "n", "annotations": {**DETAIL, **(annotations or {})}},
                "topologyPolicies": policies,
                "zones": [
                    {"name": name, "type": "Node", "resources": resources}
                    for name in zones or ("node-1", "node-0")
                ],
            }
        ).encode(),
        NodeResourceTopology,
    )


def test_cpus_out_of_bounds_are_removed_from_their_numa_node() -> None:
    """CPUs of kubelet's pods, of kubelet, of a reservation, of system pods; each counts once."""
    result = read_topology(
        topology(
            {
                "node.koordinator.sh/pod-cpu-allocs": json.dumps(
                    [
                        {"uid": "a", "cpuset": "0-3", "managedByKubelet": True},
                        {"uid": "b", "cpuset": "15", "managedByKubelet": False},
                    ]
                ),
                "kubelet.koordinator.sh/cpu-manager-policy": '{"reservedCPUs":"0-1"}',
                "node.koordinator.sh/system-qos-resource": '{"cpuset":"4-5"}',
                "node.koordinator.sh/reservation": '{"reservedCPUs":"6-7,8"}',
            }
        )
    )

    assert format_cpu_list(result.unusable) == "0-8"
    assert result.zones == {
        0: {"cpu": 0, "memory": 16 * GIB},
        1: {"cpu": 7_000, "memory": 16 * GIB},
    }
    assert list(result.zones) == [0, 1]


def test_system_pods_may_share_their_cpus() -> None:
    """Shared system CPUs rank like other CPUs."""
    shared = '{"cpuset":"4-5","cpusetExclusive":false}'

    assert not read_topology(topology({"node.koordinator.sh/system-qos-resource": shared})).unusable


@pytest.mark.parametrize(
    ("reported", "policy"),
    [
        ("SingleNUMANodePodLevel", NumaTopologyPolicy.SINGLE_NUMA_NODE),
        ("SingleNUMANodeContainerLevel", NumaTopologyPolicy.SINGLE_NUMA_NODE),
        ("Restricted", NumaTopologyPolicy.RESTRICTED),
        ("RestrictedPodLevel", NumaTopologyPolicy.RESTRICTED),
        ("RestrictedContainerLevel", NumaTopologyPolicy.RESTRICTED),
        ("BestEffort", NumaTopologyPolicy.BEST_EFFORT),
        ("BestEffortPodLevel", NumaTopologyPolicy.BEST_EFFORT),
        ("BestEffortContainerLevel", NumaTopologyPolicy.BEST_EFFORT),
        ("SingleNUMANodeSomeLevel", NumaTopologyPolicy.NONE),
        ("None", NumaTopologyPolicy.NONE),
    ],
)
def test_policy_of_the_kubelet_counts_in_both_scopes(
    reported: str, policy: NumaTopologyPolicy
) -> None:
    """A policy of either scope counts; unknown names mean no policy."""
    assert read_topology(topology(None, "None", reported)).policy is policy


def test_other_zones_are_left_out() -> None:
    """A NUMA node is called node- and a number."""
    result = read_topology(topology(zones=("node-10", "socket-1", "node-x", "node-2")))

    assert list(result.zones) == [2, 10]


def test_amounts_are_amplified_once() -> None:
    """By the ratios of the Node, unless the object carries its own."""
    ratios = {"cpu": 1.3, "memory": 1.0}
    key = "node.koordinator.sh/resource-amplification-ratio"
    plain, own = read_topology(topology()), read_topology(topology({key: '{"cpu":1.5}'}))

    assert plain.amplified_zones(ratios)[0] == {"cpu": 10_400, "memory": 16 * GIB}
    assert plain.amplified_zones(None) == plain.zones
    assert plain.ratios(ratios) == ratios
    assert plain.ratios(None) == {}
    assert own.amplified_zones(ratios) == own.zones
    assert own.ratios(ratios) == {"cpu": 1.5}


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("node.koordinator.sh/cpu-topology", "{"),
        ("node.koordinator.sh/reservation", '{"reservedCPUs":"x"}'),
        (
            "node.koordinator.sh/pod-cpu-allocs",
            '[{"uid":"a","cpuset":"9-","managedByKubelet":true}]',
        ),
        ("node.koordinator.sh/resource-amplification-ratio", '{"cpu":"a"}'),
    ],
)
def test_what_cannot_be_read_is_named(key: str, text: str) -> None:
    """A node whose reservations are unknown must not be given out."""
    with pytest.raises(InputError) as refusal:
        read_topology(topology({key: text}))

    assert refusal.value.subject == "NodeResourceTopology n"
    assert refusal.value.path.startswith(f"metadata.annotations[{key}]")


def test_a_node_without_cpu_details_has_zones_all_the_same() -> None:
    """Reserved CPUs can't be counted there."""
    result = topology({"node.koordinator.sh/reservation": '{"reservedCPUs":"0-1"}'})
    del result.metadata.annotations[CPU_TOPOLOGY.key]

    assert read_topology(result).layout is None
    assert read_topology(result).zones[0]["cpu"] == 8_000


@pytest.mark.parametrize("number", ["1024", "99999999999", "9" * 5000])
def test_a_numa_node_with_an_impossible_number_is_named(number: str) -> None:
    """The number of a NUMA node is a bit of a mask, which has to stay small."""
    with pytest.raises(InputError, match="must be node- and a number from 0 to 1023"):
        read_topology(topology(zones=("node-0", f"node-{number}")))
