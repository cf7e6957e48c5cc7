"""Batches of pods with devices: the same outcome as deciding the pods one by one."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.equipped_nodes import CORE, HINT, JOINT, PLACES, RATIO, machine
from tests.examples import examples
from tests.unit.scheduler.test_sequences import contents, step
from tests.worlds import embedded, node, pod, renamed

from koordinator.api.device import Device
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.scheduler.cycle import SchedulingCycle
from koordinator.scheduler.cycle import run as run_decisions
from koordinator.scheduler.cycle.batch import Batch
from koordinator.scheduler.plugins.device_share import states
from koordinator.scheduler.snapshot import nodes as node_table

GPU, RDMA = "nvidia.com/gpu", "koordinator.sh/rdma"
JOINTLY = '{"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"}'
FUNCTION = '{"rdma": {"vfSelector": {}}}'
ON_ONE_ROOT = '{"gpu": {"requiredTopologyScope": "PCIe"}}'
KINDS = [
    pod("plain", cpu="500m", memory="1Gi"),
    pod("small", cpu="200m"),
    pod("whole", cpu="1", requests={GPU: 1}),
    pod("two", cpu="300m", memory="2Gi", requests={GPU: 2}),
    pod("half", cpu="500m", requests={CORE: 50, RATIO: 50}),
    pod("third", cpu="100m", requests={CORE: 30, RATIO: 30}),
    pod("tenth", memory="1Gi", requests={CORE: 10, RATIO: 10}),
    pod(
        "network", cpu="100m", requests={RDMA: 1}, annotations={HINT: '{"rdma":{"vfSelector":{}}}'}
    ),
    pod("joint", cpu="200m", requests={GPU: 1, RDMA: 1}, annotations={JOINT: JOINTLY}),
    pod("huge", cpu=99, requests={GPU: 1}),
    pod("many", requests={GPU: 9}),
    pod(
        "scoped", requests={GPU: 2}, annotations={HINT: '{"gpu":{"requiredTopologyScope":"PCIe"}}'}
    ),
]


@pytest.fixture(params=["arrays", "compiled"])
def compiled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Use the compiled kernels for small clusters, or do not."""
    if request.param == "compiled":
        monkeypatch.setattr(node_table, "LARGE", 1)
    return bool(request.param == "compiled")


@pytest.fixture
def in_batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which the number of pods with devices of each batch is appended."""
    counts: list[int] = []
    choose = SchedulingCycle.choose_batch

    def counted(cycle: SchedulingCycle, pods: Sequence[Any]) -> Batch:
        batch = choose(cycle, pods)
        counts.append(sum(bool(result.annotations) for result in batch.results))
        return batch

    monkeypatch.setattr(SchedulingCycle, "choose_batch", counted)
    return counts


@st.composite
def equipped(draw: st.DrawFn, name: str) -> list[KubeObject]:
    """Return a machine without a NUMA policy, with or without devices, or a node without report."""
    if draw(st.integers(0, 5)) == 0:
        more: dict[str, Any] = {GPU: 2}
        return [node(name, cpu=4, memory="8Gi", **more)]
    gpus = draw(st.sampled_from((0, 2, 4)))
    honors = gpus == 4 and draw(st.booleans())
    table = '{"1":[{"minors":[0]},{"minors":[1]},{"minors":[3]}],"2":[{"minors":[0,1]}]}'
    labels = {"node.koordinator.sh/gpu-partition-policy": "Honor"}
    annotations = {"scheduling.koordinator.sh/gpu-partitions": table}
    return machine(
        name,
        cores=draw(st.sampled_from((2, 4))),
        memory=draw(st.sampled_from((4, 16))),
        gpus=gpus,
        nics=draw(st.sampled_from((0, gpus // 2))),
        unhealthy=draw(st.sampled_from(((), (), (0,)))) if gpus else (),
        device={"labels": labels, "annotations": annotations} if honors else None,
    )


@pytest.mark.slow
@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("most", [2, 1 << 15], ids=["few states", "many states"])
@settings(
    max_examples=examples(25),
    deadline=None,
    derandomize=True,
    suppress_health_check=[*HealthCheck],
)
@given(data=st.data())
def test_batches_with_devices_equal_one_by_one(data: st.DataObject, most: int) -> None:
    """Placements, devices, order, messages and ledgers are equal, with events in between."""
    names = [f"m{at}" for at in range(data.draw(st.integers(1, 5)))]
    machines = {name: data.draw(equipped(name)) for name in names}
    cluster = [obj for each in machines.values() for obj in each]
    both = [embedded(*cluster, config=PLACES, merge_runs=m, report=False) for m in (True, False)]
    pods: list[Pod] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(states, "MOST_STATES", most)
        patch.setattr(states, "MOST_PER_ROW", 0)
        patch.setattr(run_decisions, "_LONG_STREAK", 1)
        for attempt in range(data.draw(st.integers(1, 4))):
            drawn = data.draw(st.lists(st.sampled_from(KINDS), min_size=2, max_size=12))
            arrivals = [renamed(kind, f"p{attempt}-{at}") for at, kind in enumerate(drawn)]
            pods += arrivals
            deleted = sorted(
                data.draw(st.sets(st.sampled_from([one.metadata.name for one in pods]), max_size=3))
            )
            event, name = data.draw(
                st.tuples(
                    st.sampled_from(("", "cordon", "devices", "node")), st.sampled_from(names)
                )
            )
            other = data.draw(equipped(name))
            for one in both:
                one.load(arrivals)
            assert step(both[0]) == step(both[1])
            for one in both:
                there = {each.metadata.name for each in one.cluster.list(Pod).items}
                for key in deleted:
                    if key in there:
                        one.cluster.delete(Pod, key, "default")
                _happen(one, event, name, other)
            assert step(both[0]) == step(both[1])
            assert contents(both[0]) == contents(both[1])
    batched, single = (one.state.nodes for one in both)

    assert np.array_equal(batched.requested, single.requested)
    for kind, columns in batched.devices.columns.items():
        assert np.array_equal(columns.left, single.devices.columns[kind].left)


def _happen(one: Any, event: str, name: str, other: Sequence[KubeObject]) -> None:
    """Cordon a node, report other devices for it, or delete it and create another one."""
    if name not in {each.metadata.name for each in one.cluster.list(Node).items}:
        return
    if event == "cordon":
        is_off = {"unschedulable": not one.cluster.get(Node, name).spec.unschedulable}
        one.cluster.patch(Node, name, "", {"spec": is_off})
    elif event == "devices":
        known = {each.metadata.name for each in one.cluster.list(Device).items}
        for obj in other:
            if isinstance(obj, Device) and name in known:
                one.cluster.overwrite(obj)
    elif event == "node":
        one.cluster.delete(Node, name)
        one.load([obj for obj in other if isinstance(obj, Node)])


def test_pods_with_devices_are_decided_in_a_batch(in_batches: list[int], compiled: bool) -> None:
    """Whole GPUs, shares, NICs and plain pods are one batch; shares fill GPUs in use."""
    del compiled
    nodes = [obj for at in range(4) for obj in machine(f"m{at}", gpus=4, nics=2)]
    kinds = [kind for kind in KINDS if kind.metadata.name not in {"huge", "many", "scoped"}]
    pending = [renamed(kinds[at % len(kinds)], f"p{at:02}") for at in range(18)]
    both = [
        embedded(*nodes, *pending, config=PLACES, merge_runs=m, report=False) for m in (True, False)
    ]

    assert step(both[0]) == step(both[1])
    assert contents(both[0]) == contents(both[1])
    assert in_batches == [14]


def test_devices_of_many_machines_run_out(in_batches: list[int], compiled: bool) -> None:
    """The scale of the scores of devices changes when the emptiest nodes are full."""
    del compiled
    nodes = [
        obj
        for at in range(24)
        for obj in machine(f"m{at:02}", gpus=2 + 2 * (at % 2), nics=1, cores=4 + 8 * (at % 3))
    ]
    drawn = np.random.default_rng(3).integers(0, len(KINDS), 160).tolist()
    pending = [renamed(KINDS[kind], f"p{at:03}") for at, kind in enumerate(drawn)]
    both = [
        embedded(*nodes, *pending, config=PLACES, merge_runs=m, report=False) for m in (True, False)
    ]

    assert step(both[0]) == step(both[1])
    assert contents(both[0]) == contents(both[1])
    assert sum(in_batches) > 30


def test_states_differ_by_virtual_functions(in_batches: list[int], compiled: bool) -> None:
    """A node with as much left, but of other functions, does not give a function twice."""
    del compiled
    network = next(kind for kind in KINDS if kind.metadata.name == "network")
    both = [
        embedded(
            *machine("m", gpus=2, nics=1, functions=3), config=PLACES, merge_runs=m, report=False
        )
        for m in (True, False)
    ]
    for one in both:
        one.load([renamed(network, name) for name in ("a", "b")])
        step(one)
        one.cluster.delete(Pod, "a", "default")
        one.load([renamed(network, name) for name in ("c", "d")])
        step(one)

    assert contents(both[0]) == contents(both[1])
    assert in_batches == [2, 2]


def test_pod_that_is_aligned_to_numa_nodes_ends_a_batch(in_batches: list[int]) -> None:
    """Where a node has a NUMA policy, more than the states of devices decides."""
    nodes = machine("m", gpus=4, labels={"node.koordinator.sh/numa-topology-policy": "BestEffort"})
    pending = [renamed(KINDS[2], f"p{at}") for at in range(3)]
    one = embedded(*nodes, *pending, config=PLACES, report=False)

    assert [outcome[0] for outcome in step(one)] == [True] * 3
    assert not any(in_batches)


def test_states_of_a_cluster_larger_than_their_bound_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fleet without two equal nodes does not compute every state again for each batch."""
    monkeypatch.setattr(states, "MOST_STATES", 4)
    cleared: list[int] = []
    clear = states.DeviceStates._clear

    def counted(self: states.DeviceStates, cluster: Any) -> None:
        cleared.append(1)
        clear(self, cluster)

    monkeypatch.setattr(states.DeviceStates, "_clear", counted)
    nodes = [obj for at in range(6) for obj in machine(f"m{at}", gpus=2 + at)]
    one = embedded(*nodes, config=PLACES, report=False)
    counts = []
    for attempt in range(3):
        one.load([renamed(KINDS[2], f"p{attempt}-{at}") for at in range(2)])
        step(one)
        counts.append(len(cleared))

    assert counts[0] == counts[1] == counts[2]
