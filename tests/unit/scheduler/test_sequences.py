"""Sequences of pods with devices and CPUs: the same outcome as deciding the pods one by one."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.equipped_nodes import (
    CORE,
    NUMA_SPEC,
    PLACES,
    POLICY,
    RATIO,
    bound_pod,
    machine,
    machine_pods,
    machines,
)
from tests.examples import examples
from tests.worlds import embedded, pod, renamed

from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.scheduler.cycle import NodeChoice, SchedulingCycle
from koordinator.scheduler.cycle import run as run_decisions
from koordinator.scheduler.cycle.batch import Batch
from koordinator.scheduler.loop import Bound, units
from koordinator.scheduler.snapshot import PodClass
from koordinator.scheduler.snapshot import nodes as node_table
from koordinator.simulator import Embedded

GPU = "nvidia.com/gpu"
quickly = settings(
    max_examples=examples(20), deadline=None, derandomize=True, suppress_health_check=[*HealthCheck]
)
#: pods without devices; a port and an affinity are not decided by amounts alone
OTHERS = [
    pod("plain", cpu="500m", memory="1Gi"),
    pod("port", cpu="200m", ports=[80]),
    pod("huge", cpu=99),
]


@pytest.fixture(params=["arrays", "compiled", "compiled after a long sequence"])
def compiled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Use the compiled kernels for small clusters, do not, or after a sequence of five pods."""
    if request.param == "compiled":
        monkeypatch.setattr(node_table, "LARGE", 1)
    elif request.param != "arrays":
        monkeypatch.setattr(run_decisions, "COMPILED_FROM", 5)
    return bool(request.param != "arrays")


@pytest.fixture
def sequences(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which the length of each sequence is appended."""
    lengths: list[int] = []
    choose = SchedulingCycle.choose_in_sequence

    def counted(cycle: SchedulingCycle, pods: Sequence[PodClass]) -> Iterator[NodeChoice]:
        lengths.append(0)
        for choice in choose(cycle, pods):
            lengths[-1] += 1
            yield choice

    monkeypatch.setattr(SchedulingCycle, "choose_in_sequence", counted)
    return lengths


def step(one: Embedded) -> list[tuple[Any, ...]]:
    """Decide all pods; return the outcomes in order: placed pods, then rejected ones."""
    done = one.run_to_fixed_point()
    one.scheduler.validate()
    outcomes = [
        (isinstance(o, Bound), o.pod, getattr(o, "node", getattr(o, "message", ""))) for o in done
    ]
    return [o for o in outcomes if o[0]] + [o for o in outcomes if not o[0]]


def contents(one: Embedded) -> list[tuple[Any, ...]]:
    """Return the node and the annotations of each pod."""
    pods = one.cluster.list(Pod).items
    return sorted((p.key, p.spec.node_name, sorted(p.metadata.annotations.items())) for p in pods)


@pytest.mark.slow
@pytest.mark.usefixtures("compiled")
@quickly
@given(data=st.data())
def test_sequences_equal_one_by_one(data: st.DataObject) -> None:
    """Placements, allocations, order and messages are equal, with events in between."""
    names = [f"m{at}" for at in range(data.draw(st.integers(1, 3)))]
    cluster = [obj for name in names for obj in data.draw(machines(name))]
    kinds = [data.draw(machine_pods()) for _ in range(3)] + OTHERS
    both = [embedded(*cluster, config=PLACES, merge_runs=m, report=False) for m in (True, False)]
    for attempt in range(data.draw(st.integers(1, 3))):
        drawn = data.draw(st.lists(st.sampled_from(kinds), min_size=2, max_size=9))
        arrivals = [renamed(kind, f"p{attempt}-{at}") for at, kind in enumerate(drawn)]
        deleted = data.draw(st.sets(st.sampled_from([one.key for one in arrivals]), max_size=3))
        cordoned = data.draw(st.sampled_from([*names, ""]))
        outcomes = []
        for one in both:
            one.load(arrivals)
            outcomes.append([step(one)])
            for key in sorted(deleted):
                one.cluster.delete(Pod, key.partition("/")[2], "default")
            if cordoned:
                is_off = {"unschedulable": not one.cluster.get(Node, cordoned).spec.unschedulable}
                one.cluster.patch(Node, cordoned, "", {"spec": is_off})
            outcomes[-1].append(step(one))
            outcomes[-1].append(contents(one))
        assert outcomes[0] == outcomes[1]
    batched, single = (one.state.nodes for one in both)

    assert np.array_equal(batched.requested, single.requested)
    for kind, columns in batched.devices.columns.items():
        assert np.array_equal(columns.left, single.devices.columns[kind].left)


def test_pods_with_devices_and_cpus_are_decided_in_sequence(
    sequences: list[int], compiled: bool
) -> None:
    """Whole GPUs, shares, bound CPUs and plain pods of one priority form one sequence."""
    nodes = [
        obj
        for at in range(3)
        for obj in machine(f"m{at}", gpus=4, nics=2, labels={POLICY: "SingleNUMANode"})
    ]
    kinds = [
        bound_pod("whole", 1, requests={GPU: 1}),
        bound_pod("share", 1, requests={CORE: 50, RATIO: 50}),
        bound_pod("cpus", 2),
        pod("plain", cpu="100m", priority=9500),
    ]
    pending = [renamed(kinds[at % 4], f"p{at:02}") for at in range(16)]
    both = [
        embedded(*nodes, *pending, config=PLACES, merge_runs=m, report=False) for m in (True, False)
    ]

    assert step(both[0]) == step(both[1])
    assert contents(both[0]) == contents(both[1])
    assert sequences == [16]
    assert both[0].state.nodes.uses_kernels is compiled


def aligned(name: str, gpus: int) -> Pod:
    """Return a pod that no batch takes: its GPUs are aligned to NUMA nodes."""
    annotations = {NUMA_SPEC: '{"numaTopologyPolicy": "BestEffort"}'}
    return pod(name, requests={GPU: gpus}, annotations=annotations)


def test_sequence_ends_before_a_long_streak_for_a_batch(sequences: list[int]) -> None:
    """A batch takes the plain pods that follow, which costs less."""
    pending = [pod(f"p{at:03}", cpu="10m", memory="1Mi") for at in range(100)]
    pending.insert(1, aligned("p000-gpu", 1))
    one = embedded(*machine("m", cores=40, gpus=2), *pending, config=PLACES, report=False)

    assert len(step(one)) == 101
    assert sequences == [2]


def test_pod_that_fits_nowhere_ends_a_sequence(sequences: list[int]) -> None:
    """The pod is rejected with its reason, and the pods behind it get their devices."""
    pending = [aligned(f"p{at}", 1 + 3 * (at == 1)) for at in range(3)]
    one = embedded(*machine("m", gpus=2), *pending, config=PLACES, report=False)
    outcomes = step(one)

    assert [(o[0], o[1]) for o in outcomes] == [
        (True, "default/p0"),
        (True, "default/p2"),
        (False, "default/p1"),
    ]
    assert sequences[0] == 1


def pods_read(count: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how many pods all attempts read, where every second of them fits nowhere."""
    read = 0
    choose = SchedulingCycle.choose_batch

    def counted(cycle: SchedulingCycle, pods: Sequence[PodClass]) -> Batch:
        nonlocal read
        read += len(pods)
        return choose(cycle, pods)

    pending = [pod(f"p{at:02}", requests={GPU: 1 + 999 * (at % 2)}) for at in range(count)]
    one = embedded(*machine("m", gpus=count), *pending, config=PLACES, report=False)
    with monkeypatch.context() as patch:
        patch.setattr(SchedulingCycle, "choose_batch", counted)
        assert sum(outcome[0] for outcome in step(one)) == count // 2
    return read


def test_attempts_read_pods_in_proportion_to_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod that fits nowhere ends a sequence; the next attempt does not read all pods behind."""
    monkeypatch.setattr(units, "_LEAST_WINDOW", 2)

    assert pods_read(32, monkeypatch) <= 2.5 * pods_read(16, monkeypatch)
