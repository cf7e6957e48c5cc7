"""Batches of pods of several classes: the same outcome as deciding the pods one by one."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tests.examples import examples
from tests.unit.scheduler.plugins.test_elastic_quota import config, of, team
from tests.worlds import configuration, embedded, metric, node, pod, renamed, used

from koordinator.api.kubescheduler import KubeSchedulerConfiguration
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.foundation.arrays import IntArray
from koordinator.scheduler.contract import REFUSED, UNKNOWN, UNRATED
from koordinator.scheduler.cycle import SchedulingCycle
from koordinator.scheduler.cycle import batch as batch_decisions
from koordinator.scheduler.cycle import run as run_decisions
from koordinator.scheduler.cycle.batch_kernel import DIRTY, choose_rows
from koordinator.scheduler.cycle.score_table import UNFIT
from koordinator.scheduler.loop import Bound
from koordinator.scheduler.profile import build_profiles
from koordinator.scheduler.rules.usage_kernels import (
    FAR,
    FREE_OF_ALL,
    Balance,
    Formula,
    Judgements,
    MeanShare,
    judgements,
)
from koordinator.scheduler.snapshot import ClusterState
from koordinator.scheduler.snapshot import nodes as node_table
from koordinator.simulator import Embedded

quickly = settings(
    max_examples=examples(25),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
STRATEGIES = ("LeastAllocated", "MostAllocated")


def scoring(strategy: str) -> KubeSchedulerConfiguration:
    """Return a configuration that scores resources by a strategy."""
    args = {"scoringStrategy": {"type": strategy}}
    return configuration(
        pluginConfig=[{"name": "NodeResourcesFit", "args": args}],
        plugins={"multiPoint": {"enabled": [{"name": "LoadAwareScheduling"}]}},
    )


@pytest.fixture(params=[False, True], ids=["arrays", "compiled"])
def compiled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Use the compiled kernels for small clusters, or do not."""
    if request.param:
        monkeypatch.setattr(node_table, "LARGE", 1)
    return bool(request.param)


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which the length of each batch is appended."""
    lengths: list[int] = []
    choose = SchedulingCycle.choose_batch

    def counted(cycle: SchedulingCycle, pods: Sequence[Any]) -> Any:
        choice = choose(cycle, pods)
        lengths.append(len(choice.rows))
        return choice

    monkeypatch.setattr(SchedulingCycle, "choose_batch", counted)
    return lengths


# -- the kernel --------------------------------------------------------------------------------


def _with_columns(one: Judgements, amounts: IntArray, first: int) -> Judgements:
    """Return judgements that also check and score columns of a plugin."""
    checks = np.stack((first + np.arange(2), amounts), axis=1)
    terms = np.stack((first + 2 + np.arange(2), amounts, np.arange(2)), axis=1)
    head = np.array([[FREE_OF_ALL, 2, 3, len(one.terms) + 2]])
    return Judgements(
        np.concatenate((one.checks, checks)),
        np.concatenate((one.formulas, head)),
        np.concatenate((one.terms, terms)),
    )


@dataclass(frozen=True)
class Problem:
    """Arguments of the kernel, with the ratings and following states that it may require."""

    arguments: list[Any]
    ratings: IntArray
    following: IntArray

    def decide(self, kernel: Callable[..., int]) -> list[Any]:
        """Return for how many pods a kernel finds rows, and what it writes."""
        used = [one.copy() if isinstance(one, np.ndarray) else one for one in self.arguments]
        n, count, asks = used[-17], 0, used[-1]
        ratings, following = used[_RATINGS], used[_RATINGS + 1]
        while True:
            used[-17:-15] = n + count, count
            count = kernel(*used)
            column, state = asks.tolist()
            if column < 0:
                used[1][count:] = used[_BEFORE][count:] = 0
                return [count, *used[:_RATINGS], used[_RATINGS + 2]]
            if state < 0:
                ratings[:, column] = self.ratings[:, column]
            else:
                following[state, column] = self.following[state, column]


_BEFORE, _RATINGS = -14, -10  # places of arguments


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Draw arguments of the kernel."""
    n, classes, columns = draw(st.integers(1, 12)), draw(st.integers(1, 4)), 4
    pods = draw(st.integers(1, 20))

    def matrix(rows: int, wide: int, most: int, least: int = 0) -> IntArray:
        elements = st.integers(least, most)
        return draw(arrays.arrays(np.int64, (rows, wide), elements=elements))

    demand = matrix(classes, columns, 5)
    added = draw(arrays.arrays(np.int64, (classes, 2, 4), elements=st.integers(0, 5)))
    requested, nonzero, capacity = (
        matrix(n, columns + 4, 9),
        matrix(n, 2, 9),
        matrix(n, columns + 4, 40),
    )
    requested[:, columns : columns + 2] -= draw(st.sampled_from((0, 30, FAR)))
    case = np.array(draw(st.lists(st.integers(0, 1), min_size=n, max_size=n)), np.int64)
    demand = np.concatenate((demand, np.zeros((classes, 4), np.int64)), axis=1)
    fixed = matrix(draw(st.integers(1, classes)), n, 3, UNFIT)
    where = np.arange(columns)
    programs = []
    for number, amounts in enumerate(demand[:, :columns]):
        scores: list[tuple[Formula, int]] = [
            (MeanShare(where, amounts, where + 1, most=bool(number % 2), nonzero=True), 2),
            (Balance(where[:2], amounts[:2]), 1),
            (Balance(where, amounts, change=bool(number % 3)), 1),
        ]
        one = judgements([(where, amounts)], scores[: draw(st.integers(0, 3))])
        programs.append(_with_columns(one, amounts[:2], columns) if number != 1 else one)
    formulas = np.concatenate([one.formulas for one in programs])
    term_ends = np.cumsum([len(one.terms) for one in programs])
    formulas[:, 3] += np.repeat(
        np.concatenate(([0], term_ends[:-1])), [len(one.formulas) for one in programs]
    )
    drawn = st.lists(st.integers(0, classes - 1), min_size=pods, max_size=pods)
    every = np.arange(n)  # in the log: no class has been evaluated on any row yet
    stated = draw(st.lists(st.booleans(), min_size=classes, max_size=classes))
    shown = np.where(stated, np.cumsum(stated) - 1, -1)
    kinds, states = sum(stated), draw(st.integers(1, 4))
    tables = (matrix(states, kinds, 3, -4), matrix(states, kinds, states - 1, REFUSED))
    tables[1][tables[1] == UNKNOWN] = 0
    raws, blocks, log = np.zeros((kinds, n), np.int64), -(-n // int(np.sqrt(n))), n + pods
    arguments: list[Any] = [
        np.array(draw(drawn), np.int64),
        np.zeros(pods, np.int64),
        demand,
        np.ascontiguousarray(demand[:, :2]),
        added,
        np.arange(classes),
        np.arange(classes)[::-1].copy(),
        np.zeros(classes, np.int64),
        np.concatenate([one.checks for one in programs]),
        np.cumsum([len(one.checks) for one in programs]),
        formulas,
        np.cumsum([len(one.formulas) for one in programs]),
        np.concatenate([one.terms for one in programs]),
        np.full((classes, n), UNFIT, np.int64),
        np.arange(classes) % len(fixed),
        fixed,
        requested,
        nonzero,
        capacity,
        case,
        np.array(draw(st.permutations(range(n))), np.int64),
        np.concatenate((every, np.zeros(pods, np.int64))),
        n,
        0,
        np.array(draw(st.lists(st.integers(0, states - 1), min_size=n, max_size=n)), np.int64),
        np.zeros(pods, np.int64),
        shown,  # the columns, too
        shown,
        np.arange(classes),
        np.full((states, kinds), UNRATED, np.int64),
        np.full((states, kinds), UNKNOWN, np.int64),
        raws,
        raws.copy(),
        np.full((kinds, 2), -1, np.int64),
        np.full((classes, blocks), DIRTY, np.int64),
        np.full((classes, blocks), UNFIT, np.int64),
        np.zeros((columns + 6, log)),
        np.zeros((columns + 6, log)),
        np.zeros(2, np.int64),
    ]
    return Problem(arguments, *tables)


@pytest.mark.slow
@settings(quickly, max_examples=examples(100))
@given(problem=problems())
def test_compiled_kernel_equals_array_code(problem: Problem) -> None:
    """Rows, scores, positions, amounts and states are equal."""
    expected = problem.decide(choose_rows.reference)

    for one, other in zip(expected, problem.decide(choose_rows.compiled), strict=True):
        assert np.array_equal(one, other)


# -- the scheduler -----------------------------------------------------------------------------


KINDS = [
    pod("a", cpu="300m", memory="200Mi"),
    pod("b", cpu="1", memory="100Mi"),
    pod("c", memory="1Gi", labels={"app": "c"}),
    pod("d", cpu="2", memory="2Gi", nodeSelector={"disk": "ssd"}),
    pod("e"),
    pod("f", cpu="3", memory="5Gi", tolerations=[{"operator": "Exists"}]),
    pod("g", cpu="100m", ports=[80]),
]
alike: st.SearchStrategy[Pod] = st.sampled_from(KINDS)


def cluster(data: st.DataObject) -> list[Node]:
    """Draw nodes of different sizes; some are tainted."""
    sizes = data.draw(
        st.lists(st.tuples(st.integers(1, 6), st.integers(1, 9)), min_size=1, max_size=8)
    )
    return [
        node(
            f"n{at}",
            cpu=cpu,
            memory=f"{memory}Gi",
            pods=6 + at,
            labels={"disk": "ssd"} if cpu % 2 else {},
            taints=["dedicated=x:NoSchedule"] if memory % 4 == 0 else [],
        )
        for at, (cpu, memory) in enumerate(sizes)
    ]


def events(data: st.DataObject, nodes: Sequence[Node]) -> list[tuple[str, Any]]:
    """Draw what happens between the steps: pods arrive, pods and nodes go, nodes change."""
    deeds: list[tuple[str, Any]] = []
    number = 0
    for _ in range(data.draw(st.integers(1, 6))):
        what = data.draw(st.sampled_from(("pods", "pods", "delete", "cordon", "grow", "load")))
        if what == "pods":
            arrivals: list[Pod] = data.draw(st.lists(alike, min_size=1, max_size=20))
            deeds.append(
                (what, [renamed(one, f"{number + at}") for at, one in enumerate(arrivals)])
            )
            number += len(arrivals)
        elif what == "delete":
            deeds.append((what, data.draw(st.integers(0, max(number, 1)))))
        else:
            deeds.append((what, data.draw(st.sampled_from(nodes))))
    return deeds


def played(one: Embedded, deeds: Sequence[tuple[str, Any]]) -> list[tuple[Any, ...]]:
    """Play events and steps; return the outcomes in order."""
    done = []
    for what, about in deeds:
        if what == "pods":
            one.load(about)
        elif what == "delete":
            for bound in one.cluster.list(Pod).items:
                if bound.metadata.name.endswith(str(about)):
                    one.cluster.delete(Pod, bound.metadata.name, bound.metadata.namespace)
        elif what == "load":
            one.load([metric(about.metadata.name, 1)] if not _has_metric(one, about) else [])
        else:
            changed = node(
                about.metadata.name,
                cpu=8 if what == "grow" else 2,
                memory="16Gi",
                unschedulable=what == "cordon",
            )
            one.cluster.overwrite(changed)
        done += one.run_to_fixed_point()
        one.scheduler.validate()
    return [(type(o).__name__, o.pod, getattr(o, "node", getattr(o, "message", ""))) for o in done]


def _has_metric(one: Embedded, about: Node) -> bool:
    return bool(one.state.load.metrics) and about.metadata.name in one.state.nodes.rows


@pytest.mark.slow
@pytest.mark.usefixtures("compiled")
@settings(quickly, suppress_health_check=[*HealthCheck])
@given(data=st.data(), strategy=st.sampled_from(STRATEGIES))
def test_batches_equal_one_by_one(data: st.DataObject, strategy: str) -> None:
    """Placements, order and messages are equal, and the ledgers contain the placed pods."""
    nodes = cluster(data)
    deeds = events(data, nodes)
    batched, single = (
        embedded(*nodes, config=scoring(strategy), merge_runs=merges, report=False)
        for merges in (True, False)
    )

    assert played(batched, deeds) == played(single, deeds)
    assert np.array_equal(batched.state.nodes.requested, single.state.nodes.requested)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_batches_on_a_large_cluster_equal_one_by_one(strategy: str, batches: list[int]) -> None:
    """There are more classes than the table of scores has slots at first, and pods that don't fit.

    A rejected pod has its outcome at once, a placed one when its bind has ended, so only the order
    of each is the same.
    """
    nodes = [node(f"n{at}", cpu=1 + at % 4, memory=f"{2 + at % 3}Gi") for at in range(2_000)]
    sizes = np.random.default_rng(5).integers(1, 42, 700).tolist()
    pending = [pod(f"p{at}", cpu=f"{100 * size}m", memory="1Gi") for at, size in enumerate(sizes)]
    outcomes = []
    for merges in (True, False):
        one = embedded(*nodes, *pending, config=scoring(strategy), merge_runs=merges, report=False)
        done = one.scheduler.step()
        bound = [(o.pod, o.node) for o in done if isinstance(o, Bound)]
        outcomes.append((bound, [o for o in done if not isinstance(o, Bound)]))
        one.scheduler.validate()

    assert outcomes[0] == outcomes[1]
    assert outcomes[0][1]
    assert sum(batches) > 0.9 * len(outcomes[0][0])


# -- what ends a batch -------------------------------------------------------------------------


def chosen(state: ClusterState, *pods: Pod, **profile: Any) -> tuple[SchedulingCycle, list[int]]:
    """Return the rows of one batch."""
    (built,) = build_profiles(configuration(**profile), state.axis).profiles
    cycle = SchedulingCycle(built, state)
    return cycle, cycle.choose_batch([state.classes.of(one) for one in pods]).rows.tolist()


@pytest.mark.parametrize(
    "last",
    [KINDS[6], pod("huge", cpu=99), pod("near", topologySpreadConstraints=[])],
    ids=["port", "huge", "plain"],
)
def test_batch_ends_before_a_pod_that_is_not_decided_by_amounts(
    last: Pod, compiled: bool, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod that fits nowhere ends it, too; the pods before it have their nodes."""
    del compiled
    monkeypatch.setattr(run_decisions, "_LONG_STREAK", 1)
    state = world(node("a"), node("b"))

    _, rows = chosen(state, KINDS[0], KINDS[1], last, KINDS[0])

    assert len(rows) == (4 if last.metadata.name == "near" else 2)


def test_scores_are_computed_again_unless_the_pods_are_placed(world: Any, compiled: bool) -> None:
    """A batch whose pods could not be placed leaves nothing behind."""
    del compiled
    state = world(node("a"), node("b"))
    cycle, rows = chosen(state, KINDS[0], KINDS[1])
    classes = [state.classes.of(one) for one in KINDS[:2]]

    assert cycle.choose_batch(classes).rows.tolist() == rows
    assert cycle.choose_batch(classes).rows.tolist() == rows


def test_amounts_beyond_exact_arithmetic_are_decided_one_by_one(world: Any) -> None:
    """The kernel computes with floating point numbers."""
    state = world(node("a", memory="40Ti"))

    assert chosen(state, KINDS[0], KINDS[1])[1] == []


@pytest.mark.usefixtures("compiled")
def test_batch_stops_at_the_limit_of_a_quota(batches: list[int]) -> None:
    """Pods of several quotas and classes come together; some quotas and their parent are full."""
    quotas = [
        team("dept", 12, 4, is_parent=True),
        team("a", 5, 1, parent="dept"),
        team("b", 9, 2, parent="dept"),
    ]
    pending = [of(f"p{at}", "ab"[at % 2], 1 + at % 3) for at in range(12)]
    outcomes = []
    for merges in (True, False):
        one = embedded(
            *(node("n", cpu=40), node("m", cpu=20), *quotas, *pending),
            config=config(),
            merge_runs=merges,
            report=False,
        )
        done = one.scheduler.step()
        outcomes.append({o.pod: getattr(o, "node", getattr(o, "message", "")) for o in done})
        one.scheduler.validate()

    assert outcomes[0] == outcomes[1]
    assert len({*outcomes[0].values()}) > 2
    assert max(batches) > 0


def test_pods_within_their_quotas_are_decided_together(batches: list[int]) -> None:
    """A quota that has room for all pods of a batch does not end it."""
    pending = [of(f"p{at}", "a", 1 + at % 3) for at in range(12)]
    one = embedded(node("n", cpu=40), team("a", 30), *pending, config=config(), report=False)
    one.scheduler.step()

    assert batches == [12]


def test_pods_on_measured_nodes_are_decided_together(batches: list[int]) -> None:
    """The usage that nodes report ends no batch; a pod that a report names is decided alone."""
    pending = [pod(f"p{at}", cpu=1 + at % 3) for at in range(12)]
    reports = [metric("n", cpu=3), metric("m", cpu=9, pods={"p5": used(1)})]
    for objects, lengths in ((reports[:1], [12]), (reports, [5])):
        batches.clear()
        nodes = [node("n", cpu=40), node("m", cpu=40)]
        one = embedded(*nodes, *objects, *pending, config=scoring("LeastAllocated"), report=False)
        one.scheduler.step()

        assert batches == lengths
        assert not one.scheduler.handle.state.unbound


def test_fault_of_the_kernel_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """All pods are placed one by one; without the warning only the speed would show the fault."""

    def broken(*_: object) -> None:
        raise IndexError("no such column")

    monkeypatch.setattr(run_decisions, "choose_batch", broken)
    one = embedded(node("n", cpu=40), config=configuration(), report=False)
    with caplog.at_level(logging.WARNING, "koordinator.scheduler"):
        for start in (0, 4):
            for at in range(start, start + 4):
                one.cluster.create(pod(f"p{at}", 1 + at % 2))
            done = one.scheduler.step()
            assert {o.pod for o in done if isinstance(o, Bound)} == {
                f"default/p{at}" for at in range(start, start + 4)
            }

    (warning,) = caplog.records
    assert "one by one" in warning.message
    assert warning.exc_info is not None
    assert isinstance(warning.exc_info[1], IndexError)


@pytest.mark.parametrize(("rows_per_decision", "kernels"), [(0, 0), (1000, 1)])
def test_few_pods_on_many_nodes_are_decided_one_by_one(
    rows_per_decision: int, kernels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch reads every node; a pod on its own reads the nodes that changed.  Both bind all."""
    monkeypatch.setattr(run_decisions, "_ROWS_PER_DECISION", rows_per_decision)
    calls: list[int] = []
    choose = batch_decisions.choose_batch

    def counted(evaluator: Any, members: Any, kinds: IntArray) -> Any:
        calls.append(len(kinds))
        return choose(evaluator, members, kinds)

    monkeypatch.setattr(run_decisions, "choose_batch", counted)
    world = embedded(*(node(f"n{it}", cpu=8) for it in range(20)))
    world.cluster.load([pod(f"p{it}", cpu=1 + it) for it in range(4)])
    world.scheduler.step()

    assert len(calls) == kernels
    assert not world.scheduler.handle.state.unbound
