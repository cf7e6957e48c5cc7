"""Reservations of a node."""

from typing import Any

import pytest
from tests.nodes import Tree, cpus, machine, pod

from koordinator.foundation.cpu_list import format_cpu_list
from koordinator.koordlet.view.cpus import cpu_pools, pool_entries

RESERVATION = "node.koordinator.sh/reservation"


@pytest.mark.parametrize(
    ("text", "allocatable", "milli", "reserved"),
    [
        ('{"reservedCPUs":"0,8"}', "16", 2000, "0,8"),
        ('{"resources":{"cpu":"1500m"}}', "16", 1500, "0,8"),
        ('{"resources":{"cpu":"9"},"reservedCPUs":"3"}', "16", 1000, "3"),
        ('{"resources":{"cpu":"1"}}', "13", 3000, "0"),
        ("broken", "16", 0, ""),
        ("{}", "16", 0, ""),
    ],
)
def test_cpus_that_are_reserved(text: str, allocatable: str, milli: int, reserved: str) -> None:
    """Named ones go before an amount; the kubelet's part counts if it is larger."""
    where = machine(
        16,
        allocatable={"cpu": allocatable},
        annotations={RESERVATION: text},
        topology=cpus(16, sockets=2, threads=2),
    )

    assert where.reserved_milli == milli
    assert format_cpu_list(where.reserved_cpus) == reserved


def test_amplified_node_counts_its_real_resources() -> None:
    """The kubelet's part is not what the node shows more than it has."""
    raw = {"node.koordinator.sh/raw-allocatable": '{"cpu":"7"}'}
    where = machine(8, allocatable={"cpu": 16}, annotations=raw)

    assert where.raw_allocatable["cpu"] == 7000
    assert where.reserved_milli == 1000


def test_pools_exclude_bound_cpus() -> None:
    """Best effort uses CPUs of LSR pods, but not of LSE pods."""
    status = "scheduling.koordinator.sh/resource-status"
    tree = Tree("0-15")
    requests: dict[str, Any] = {"requests": {"cpu": 2}}
    lse = tree.add_pod(pod("e", "LSE", annotations={status: '{"cpuset":"0-1"}'}, **requests))
    lsr = tree.add_pod(pod("r", "LSR", annotations={status: '{"cpuset":"4-5"}'}, **requests))
    own = {status: '{"cpuset":"7"}'}
    succeeded = tree.add_pod(pod("g", "LSE", annotations=own, phase="Succeeded", **requests))
    view = tree.view(lse, lsr, succeeded, machine_=machine(16, topology=cpus(16, sockets=2)))

    pools = cpu_pools(view)

    assert [entry.cpuset for entry in pool_entries(view, pools.shared)] == ["2-3,6-7", "8-15"]
    assert [entry.cpuset for entry in pool_entries(view, pools.best_effort)] == ["2-7", "8-15"]
    assert [entry.socket for entry in pool_entries(view, pools.shared)] == [0, 1]
