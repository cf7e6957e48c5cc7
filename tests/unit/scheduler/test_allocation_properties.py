"""Devices, CPUs and NUMA nodes under churn: none is allocated twice or lost, also after a restart.

Allocations are read from the pods' annotations, not from the scheduler's state.
"""

import json
from collections import Counter
from collections.abc import Iterator

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.equipped_nodes import ALLOCATED, PLACES, STATUS, machine_pods, machines
from tests.examples import examples
from tests.worlds import embedded, renamed, world

from koordinator.api.device import Device
from koordinator.api.meta import JsonObject, KubeObject
from koordinator.api.node import Node, NodeResourceTopology
from koordinator.api.pod import Pod
from koordinator.domain.amounts import canonical
from koordinator.foundation.cpu_list import parse_cpu_list
from koordinator.foundation.quantity import Quantity
from koordinator.scheduler.rules.numa.node import read_topology
from koordinator.scheduler.snapshot import ClusterState
from koordinator.simulator import Embedded

quickly = settings(
    max_examples=examples(20),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


@st.composite
def clusters(draw: st.DrawFn) -> list[KubeObject]:
    return [obj for name in ("m0", "m1") for obj in draw(machines(name))]


@quickly
@given(cluster=clusters(), data=st.data())
def test_nothing_is_allocated_twice_or_lost(cluster: list[KubeObject], data: st.DataObject) -> None:
    """After each round of changes all invariants hold, and a new scheduler has the same state."""
    one = embedded(*cluster, config=PLACES, report=False)
    kinds = [data.draw(machine_pods()) for _ in range(4)]
    for attempt in range(data.draw(st.integers(1, 4))):
        for index in range(data.draw(st.integers(0, 5))):
            kind = data.draw(st.sampled_from(kinds))
            one.load([renamed(kind, f"p{attempt}-{index}")])
        one.scheduler.step()
        check_everything(one)
        running = sorted(pod.key for pod in bound(one))
        for key in data.draw(st.lists(st.sampled_from(running), unique=True)) if running else ():
            one.cluster.delete(Pod, key.partition("/")[2], "default")
        one.scheduler.step()
        check_everything(one)
    for pod in one.cluster.list(Pod).items:
        one.cluster.delete(Pod, pod.metadata.name, "default")
    one.scheduler.step()

    assert pod_allocation(one.state) == {}
    for columns in one.state.nodes.devices.columns.values():
        assert not columns.used.any()
        assert not columns.holders.any()
        assert columns.functions == {}
    assert not one.state.nodes.numa.arrays.used.any()


def check_everything(one: Embedded) -> None:
    one.scheduler.step(limit=0)  # victims of preemptions have terminated
    one.state.validate()
    for node in one.cluster.list(Node).items:
        pods = [pod for pod in bound(one) if pod.spec.node_name == node.metadata.name]
        check_devices(
            one.cluster.get(Device, node.metadata.name) if _has(one, node) else None, pods
        )
        topology = one.cluster.get(NodeResourceTopology, node.metadata.name)
        check_cpus(topology, pods)
        check_zones(topology, pods)
    objects = [
        obj for kind in (Node, Device, NodeResourceTopology) for obj in one.cluster.list(kind).items
    ]
    again = world(*objects, *bound(one))
    assert pod_allocation(again) == pod_allocation(one.state)
    for name, row in one.state.nodes.rows.items():
        other = again.nodes.rows[name]
        for kind, columns in one.state.nodes.devices.columns.items():
            width = columns.used.shape[1]
            there = again.nodes.devices.columns[kind].used[other]
            assert columns.used[row][: len(there)].tolist() == there[:width].tolist()
        numa = one.state.nodes.numa.ledger(row)
        assert again.nodes.numa.ledger(other).allocations == numa.allocations


def check_devices(device: Device | None, pods: list[Pod]) -> None:
    """Check that no device is overcommitted and each virtual function has one holder."""
    given_out: Counter[tuple[str, int, str]] = Counter()
    functions: Counter[str] = Counter()
    for entry, kind in _devices(pods):
        for name, amount in entry["resources"].items():
            given_out[kind, entry["minor"], name] += Quantity.parse(amount).value()
        functions.update(vf["busID"] for vf in entry.get("extension", {}).get("vfs", ()))
    assert all(times == 1 for times in functions.values())
    there = {(info.type, info.minor): info for info in device.spec.devices} if device else {}
    for (kind, minor, name), amount in given_out.items():
        info = there[kind, minor]
        assert info.health
        assert amount <= info.resources[name].value()


def check_cpus(topology: NodeResourceTopology, pods: list[Pod]) -> None:
    """Check that no CPU has two holders, and that no reserved one has any."""
    taken = read_topology(topology).unusable
    for pod in pods:
        cpus = parse_cpu_list(_status(pod).get("cpuset", ""))
        assert not cpus & taken
        taken |= cpus


def check_zones(topology: NodeResourceTopology, pods: list[Pod]) -> None:
    """Check that no NUMA node is overcommitted by pods with amounts of it."""
    left = {
        (zone, name): amount
        for zone, amounts in read_topology(topology).zones.items()
        for name, amount in amounts.items()
    }
    for pod in pods:
        for part in _status(pod).get("numaNodeResources", ()):
            for name, amount in part["resources"].items():
                left[part["node"], name] -= canonical(name, Quantity.parse(amount))
    # Nodes amplified by 1.5 allocate that much.
    assert all(
        amount >= 0 or (name == "cpu" and 2 * amount >= -1 * _whole(topology, zone))
        for (zone, name), amount in left.items()
    )


def _whole(topology: NodeResourceTopology, zone: int) -> int:
    return read_topology(topology).zones[zone]["cpu"]


def pod_allocation(state: ClusterState) -> dict[str, object]:
    """Return the devices, CPUs and NUMA amounts of each pod."""
    return {
        key: (placed.pod_allocation.devices, placed.pod_allocation.numa)
        for key, placed in state.pods.by_key.items()
        if placed.pod_allocation.devices or placed.pod_allocation.numa
    }


def bound(one: Embedded) -> list[Pod]:
    return [pod for pod in one.cluster.list(Pod).items if pod.spec.node_name]


def _has(one: Embedded, node: Node) -> bool:
    return any(d.metadata.name == node.metadata.name for d in one.cluster.list(Device).items)


def _devices(pods: list[Pod]) -> Iterator[tuple[JsonObject, str]]:
    for pod in pods:
        for kind, entries in json.loads(pod.metadata.annotations.get(ALLOCATED, "{}")).items():
            for entry in entries:
                yield entry, kind


def _status(pod: Pod) -> JsonObject:
    status: JsonObject = json.loads(pod.metadata.annotations.get(STATUS, "{}"))
    return status
