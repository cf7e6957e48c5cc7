"""Decisions on a state: ties, runs, transactions, orphans, kernels."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tests.examples import examples
from tests.keywords import as_keywords
from tests.unit.scheduler.conftest import World
from tests.worlds import add, configuration, device, gpu_pod, near, node, pod, spread

from koordinator.api.device import DeviceType
from koordinator.api.kubescheduler import KubeSchedulerConfiguration
from koordinator.api.pod import Pod
from koordinator.domain.devices.allocation import TakenDevice
from koordinator.foundation.arrays import IntArray
from koordinator.foundation.errors import BugError
from koordinator.scheduler.cycle import NodeChoice, SchedulingCycle
from koordinator.scheduler.profile import build_profiles
from koordinator.scheduler.rules.numa.ledger import NumaAllocation
from koordinator.scheduler.rules.usage_kernels import (
    Balance,
    MeanShare,
    judge,
    judgements,
    shortfalls,
)
from koordinator.scheduler.snapshot import ClusterState, PodAllocation
from koordinator.scheduler.transaction import Transaction
from koordinator.testing.scheduler_plugins import fingerprint

MOST = configuration(
    pluginConfig=[
        {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}}
    ]
)


def cycle_on(
    state: ClusterState, config: KubeSchedulerConfiguration | None = None
) -> SchedulingCycle:
    (profile,) = build_profiles(config or configuration(), state.axis).profiles
    return SchedulingCycle(profile, state)


def chosen(cycle: SchedulingCycle, pending: Pod) -> str | None:
    choice = cycle.choose(pending, cycle.state.classes.of(pending), {})
    return choice.node if isinstance(choice, NodeChoice) else None


def chosen_run(cycle: SchedulingCycle, pending: Pod, count: int) -> list[str] | None:
    pods = [cycle.state.classes.of(pending)] * count
    rows = cycle.choose_run(pods)
    return None if rows is None else [cycle.state.nodes.names[row] for row in rows]


# -- one pod ---------------------------------------------------------------------------------


def test_the_first_of_equally_scored_nodes_is_chosen(world: World) -> None:
    """The order is that of rows, unless ranks are given."""
    state = world(*(node(name) for name in "abc"))
    cycle = cycle_on(state)
    assert chosen(cycle, pod("p", cpu=1)) == "a"

    state.set_ranks({"a": 2, "b": 0, "c": 1})
    assert chosen(cycle, pod("p", cpu=1)) == "b"
    assert chosen_run(cycle, pod("p", cpu=1), 3) == ["b", "c", "a"]


def test_a_change_of_a_node_is_seen_by_the_next_pod(world: World) -> None:
    """Changes of labels, taints or images alone are seen, too."""
    state = world(node("a"), node("b"))
    cycle, pending = cycle_on(state), pod("p", cpu=1)
    assert chosen(cycle, pending) == "a"

    add(state, node("a", taints=["x=1:PreferNoSchedule"]))
    assert chosen(cycle, pending) == "b"
    add(state, node("b", unschedulable=True))
    assert chosen(cycle, pending) == "a"
    state.drop_node("a")
    assert chosen(cycle, pending) is None
    add(state, node("c"))
    assert chosen(cycle, pending) == "c"


def test_new_resource_is_scheduled(world: World) -> None:
    """The resource axis grows while results are cached."""
    state = world(node("a"), node("b"))
    cycle, pending = cycle_on(state), pod("p", cpu=1, requests={"example.com/new": 1})
    assert chosen(cycle, pod("q", cpu=1)) == "a"
    assert chosen(cycle, pending) is None

    add(state, node("b", **as_keywords({"example.com/new": 1})))
    assert chosen(cycle, pending) == "b"


def test_more_changes_than_the_log_holds_are_not_lost(world: World) -> None:
    """A reader that falls behind starts from scratch."""
    state = world(node("a"), node("b"))
    cycle, pending = cycle_on(state), pod("p", cpu=1)
    assert chosen(cycle, pending) == "a"
    other, pod_class = pod("other", cpu=4), state.classes.of(pod("other", cpu=4))
    state.place("default/other", other, pod_class, 0)
    for _ in range(70_000):
        state.usage_log.extend(np.array([1, 1]))

    assert chosen(cycle, pending) == "b"


# -- runs ------------------------------------------------------------------------------------


def test_a_run_spreads_over_equal_nodes(world: World) -> None:
    """With LeastAllocated each node gets one pod per round until nothing fits."""
    state = world(*(node(name, cpu=2) for name in "abc"))

    assert chosen_run(cycle_on(state), pod("p", cpu=1), 9) == ["a", "b", "c", "a", "b", "c"]


def test_a_run_packs_where_nodes_get_better(world: World) -> None:
    """With MostAllocated a node with a pod is filled first."""
    state = world(*(node(name, cpu=3, memory="3Gi") for name in "ab"))
    pending = pod("p", cpu=1, memory="1Gi")

    assert chosen_run(cycle_on(state, MOST), pending, 5) == ["a", "a", "a", "b", "b"]


def test_a_long_run_on_few_nodes(world: World) -> None:
    """Nodes get more pods than the first blocks of trajectories have."""
    state = world(node("a", cpu=64, memory="64Gi"), node("b", cpu=64, memory="64Gi"))
    rows = chosen_run(cycle_on(state), pod("p", cpu="1", memory="1Gi"), 200)

    assert rows is not None
    assert rows == ["a", "b"] * 64


@pytest.mark.parametrize(
    "pending",
    [
        pod("p", labels={"app": "web"}, topologySpreadConstraints=[spread()]),
        pod("p", labels={"app": "web"}, affinity={"podAntiAffinity": near("web")}),
        pod("p", ports=[80]),
    ],
    ids=["spread", "affinity", "port"],
)
def test_pods_that_change_more_than_amounts_are_decided_individually(
    world: World, pending: Pod
) -> None:
    """Each decision must see the previous one."""
    state = world(node("a", zone="a"), node("b", zone="b"))

    assert chosen_run(cycle_on(state), pending, 2) is None


# -- transactions ----------------------------------------------------------------------------


def test_rolled_back_transaction_leaves_no_trace(world: World) -> None:
    """Pods were placed and removed, with ports, devices and objects."""
    state = world(
        node("n"),
        device("n", gpus=2),
        gpu_pod("g", "n", gpu=50, minors=[1]),
        pod("b", ports=[80], on="n"),
    )
    pending = pod("p", cpu=1, ports=[443])
    pod_class, before = state.classes.of(pending), _content(state)
    with Transaction(state) as transaction:
        transaction.displace(state.pods.by_key["default/g"])
        transaction.displace(state.pods.by_key["default/b"])
        gpus = {DeviceType.GPU: (TakenDevice(0, (10, 1024, 10, 0, 0, 0)),)}
        allocation = PodAllocation(gpus, NumaAllocation(cpus=0b110, zones={0: {"cpu": 2000}}))
        transaction.place(pending.key, pending, pod_class, 0, allocation)
        transaction.put_object(device("m", gpus=1))
        assert _content(state) != before
        state.validate()

    assert _content(state) == before


def test_a_committed_transaction_stays(world: World) -> None:
    """An error before the commit undoes all of it."""
    state = world(node("n"))
    pending = pod("p", cpu=1)
    with Transaction(state) as transaction:
        transaction.place(pending.key, pending, state.classes.of(pending), 0)
        transaction.commit()
    assert list(state.pods.by_key) == [pending.key]

    other, before = pod("q", cpu=1), _content(state)
    with pytest.raises(BugError, match="default/q is placed twice"):
        _place_twice(state, other)
    assert _content(state) == before


def _place_twice(state: ClusterState, pending: Pod) -> None:
    with Transaction(state) as transaction:
        for _ in range(2):
            transaction.place(pending.key, pending, state.classes.of(pending), 0)


def _content(state: ClusterState) -> object:
    """Return the state without log positions and the order of pods."""
    arrays_, rows, ports, images, pods, *_, ledgers = fingerprint(state)
    allocations = {key: placed.pod_allocation for key, placed in state.pods.by_key.items()}
    taken = {port: counts for port, counts in ports.items() if any(counts)}
    objects = {kind: dict(by_key) for kind, by_key in state.objects._by_kind.items() if by_key}
    return arrays_, rows, taken, images, sorted(pods), allocations, objects, ledgers


# -- orphans ---------------------------------------------------------------------------------


def test_pod_may_arrive_before_its_node(world: World) -> None:
    """The pod counts once its node appears."""
    state = world(pod("p", cpu=1, on="n"), pod("q", cpu=1, on="n"))
    state.displace("default/q")
    add(state, node("n", cpu=2))

    assert list(state.pods.by_key) == ["default/p"]
    assert chosen(cycle_on(state), pod("new", cpu=1)) == "n"


def test_reused_row_has_nothing_of_the_previous_node(world: World) -> None:
    """The row keeps no labels, taints, images, devices or pods of the previous node."""
    state = world(
        node("old", labels={"disk": "ssd"}, taints=["a=1:NoSchedule"], images={"web:1": 900}),
        device("old", gpus=2),
        gpu_pod("g", "old", gpu=50, minors=[0]),
    )
    cycle, picky = cycle_on(state), pod("p", nodeSelector={"disk": "ssd"})
    assert chosen(cycle, picky) is None
    state.drop_node("old")
    add(state, node("new"))

    assert state.nodes.rows == {"new": 0}
    assert chosen(cycle, pod("p", images=["web:1"])) == "new"
    assert chosen(cycle, picky) is None
    assert not state.nodes.gpus.used.any()
    assert not state.nodes.devices.known[0]


# -- kernels ---------------------------------------------------------------------------------

N_RESOURCES = 4
amounts = st.sampled_from((0, 1, 2, 3, 99, 100, 1000, 4_000, 2**31, 2**44 - 1, 2**45, 2**52)) | (
    st.integers(0, 2**50)
)


def matrices(width: int) -> st.SearchStrategy[IntArray]:
    return arrays.arrays(np.int64, st.tuples(st.integers(1, 6), st.just(width)), elements=amounts)


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(requested=matrices(N_RESOURCES), data=st.data())
def test_compiled_kernels_equal_their_references(requested: IntArray, data: st.DataObject) -> None:
    """Inputs include zeros, excesses, and sizes where floating point is inexact."""
    n = len(requested)

    def draw(*shape: int) -> IntArray:
        return data.draw(arrays.arrays(np.int64, shape, elements=amounts))

    def terms() -> tuple[IntArray, IntArray]:
        columns = data.draw(st.lists(st.integers(0, N_RESOURCES - 1), unique=True))
        return np.array(columns, np.int64), draw(len(columns))

    def mean() -> MeanShare:
        columns, asks = terms()
        weights = np.array([data.draw(st.integers(1, 100)) for _ in columns], np.int64)
        most, nonzero = data.draw(st.booleans()), data.draw(st.booleans())
        return MeanShare(columns, asks, weights, most, nonzero)

    allocatable = draw(n, N_RESOURCES)
    arguments = (requested, allocatable, *terms())
    codes = shortfalls.reference(*arguments)
    assert shortfalls.compiled(*arguments).tolist() == codes.tolist()

    formulas: list[tuple[Any, int]] = [(mean(), 2), (Balance(*terms()), 3), (mean(), 1)]
    formulas.append((Balance(*terms(), change=True), 2))
    some = data.draw(arrays.arrays(np.int64, n, elements=st.integers(0, n - 1)))
    times = data.draw(arrays.arrays(np.int64, n, elements=st.integers(0, 9)))
    tables = [np.ascontiguousarray(table.T) for table in (requested, draw(n, 2), allocatable)]
    runs: tuple[Any, ...] = (np.zeros(0, np.int64),) * 3, (times, draw(N_RESOURCES), draw(2))
    places = some, np.zeros(0, np.int64)
    for rows, more, checks in itertools.product(places, runs, ([], [arguments[2:]])):
        usage: Any = (*tables, rows, *more)
        outcomes = []
        ways: tuple[Any, ...] = (judge.compiled, judge.reference)
        for how in ways:
            fits, total = np.arange(n) % 3 != 1, np.arange(n)
            how(*usage, *judgements(checks, formulas), fits, total)
            outcomes.append((fits.tolist(), total.tolist()))
        assert outcomes[0] == outcomes[1]
        short = (codes[rows] if len(rows) else codes) != 0 if checks and not len(more[0]) else None
        assert short is None or not (np.array(outcomes[0][0]) & short).any()
