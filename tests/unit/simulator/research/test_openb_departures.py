"""Weeks with departures on small made-up traces: the scheduler's places, and honest moves."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from koordinator.domain.gpus.mix import WHOLE_GPU
from koordinator.foundation.errors import InputError
from koordinator.simulator import simulate
from koordinator.simulator.research.bound import repacked_bound
from koordinator.simulator.research.node_packing import NodeShape
from koordinator.simulator.research.openb import OpenbTrace, TraceNode, TracePod, arrivals
from koordinator.simulator.research.openb_departures import (
    DepartureWeek,
    DrawnPods,
    RunningPod,
    draw_departing_pods,
)
from koordinator.simulator.research.openb_fleet import FleetClasses, FleetPlace, GpuFleet
from koordinator.simulator.research.openb_moves import LimitedMoves, MoveBudget, RepackedWeek
from koordinator.simulator.research.openb_repack import Repacking
from koordinator.simulator.sources.openb import arriving_openb

HOUR_S = 3600.0
Mover = Callable[[DepartureWeek], None]


def trace(n_nodes: int = 6) -> OpenbTrace:
    """Return nodes of two models, and pods of some sizes, half an hour to four hours long."""
    nodes = tuple(
        TraceNode(f"n{i}", 32_000 if i % 2 else 24_000, 262_144, 4, "A" if i % 3 else "B")
        for i in range(n_nodes)
    )
    sizes = [(4000, 1, 1000), (8000, 1, 1000), (2000, 1, 460), (6000, 1, 540), (3000, 1, 190)]
    sizes += [(8000, 2, 1000), (16_000, 4, 1000), (4000, 0, 0), (2000, 1, 810)]
    pods = tuple(
        TracePod(
            f"p{i:02}",
            cpu,
            8192,
            gpus,
            milli,
            ("A",) if i % 5 == 0 and gpus else (),
            length_s=1800.0 * (1 + i % 8),
        )
        for i, (cpu, gpus, milli) in enumerate(sizes * 3)
    )
    return OpenbTrace("small", nodes, pods)


def week(
    policy: str, drawn: DrawnPods | None = None, of: OpenbTrace | None = None
) -> DepartureWeek:
    """Return a week that has not begun."""
    of = of or trace()
    drawn = drawn or draw_departing_pods(of, 7, span_s=24 * HOUR_S)
    return DepartureWeek(GpuFleet(of, FleetClasses.of(of), drawn.rank, policy), drawn)


def check(run: DepartureWeek, of: OpenbTrace) -> None:
    """Compare what is free with what the pods that run leave."""
    fresh = GpuFleet(of, run.classes, run.drawn.rank, "fgd")
    used = 0
    for number, pod in run.running.items():
        fresh.take(pod.kind, pod.place)
        assert number in run.on_row[pod.place.row]
        assert run.fleet.accepts[pod.kind, pod.place.row]
        used += int(run.classes.mix.total_gpu_milli[pod.kind])
    assert (fresh.gpu_free >= np.where(fresh.gpu_free < 0, -1, 0)).all()
    assert (fresh.cpu_free >= 0).all()
    assert (fresh.memory_free >= 0).all()
    assert np.array_equal(fresh.gpu_free, run.fleet.gpu_free)
    assert np.array_equal(fresh.cpu_free, run.fleet.cpu_free)
    assert used == run.gpu_used_milli
    for row in range(len(fresh)):
        assert not (run.fleet.fitting(row) & (run.n_waiting > 0)).any()


@pytest.mark.integration
@pytest.mark.parametrize("policy", ["price", "fgd"])
def test_pods_get_the_nodes_that_the_scheduler_gives_them(policy: str) -> None:
    """The arrays act as the scheduler: the same arrivals, and none leaves."""
    of = trace()
    made = arrivals(of, seed=3, ratio=1.6)
    real = simulate(arriving_openb(of, 1.6, None), policy=policy, seed=3)
    fleet = GpuFleet(of, FleetClasses.of(of), made.rank, policy)
    placed = []
    for pod in made.order.tolist():
        fleet.arrive()
        kind = int(fleet.classes.of_pod[pod])
        place = fleet.choose(kind)
        if place is not None:
            fleet.take(kind, place)
        placed.append("" if place is None else of.nodes[place.row].name)
    assert "" in placed
    assert [each.node for each in real.placements] == placed


@pytest.mark.integration
@pytest.mark.parametrize(
    "mover",
    [None, LimitedMoves(trace(), MoveBudget(50)), RepackedWeek(trace())],
    ids=["nobody moves", "limited", "anew"],
)
@pytest.mark.parametrize("policy", ["price", "fgd"])
def test_no_pod_is_lost_and_every_fitting_pod_is_placed(policy: str, mover: Mover | None) -> None:
    """Free capacity equals the departed pods', after a day with and without moves."""
    of = trace()
    run = week(policy, of=of)
    hours = run.run(mover, 24 * HOUR_S)
    check(run, of)
    result = run.result(policy, 7, hours)
    assert len(hours) == 24
    assert 0.5 < result.gpu_used <= 1.0
    assert len(run.running) + result.waiting <= len(run.drawn.pod)
    if isinstance(mover, LimitedMoves):
        assert result.moves_per_1000 <= 50


def test_a_swap_places_a_pod_short_of_cpu() -> None:
    """One node has a GPU and no CPU, the other CPU and no GPU: two pods change places."""
    nodes = tuple(
        TraceNode(f"n{i}", cpu, 262_144, 2, "A") for i, cpu in enumerate((16_000, 24_000))
    )
    pods = (
        TracePod("a-heavy", 12_000, 1024, 1, 1000, length_s=90_000.0),
        TracePod("b-light", 5000, 1024, 1, 1000, length_s=90_000.0),
        TracePod("c-next", 6000, 1024, 1, 1000, length_s=90_000.0),
    )
    of = OpenbTrace("swap", nodes, pods)
    drawn = DrawnPods(
        pod=np.array([2]),
        time_s=np.zeros(1),
        left_s=np.full(1, 90_000.0),
        n_there=0,
        rank=np.array([0, 1]),
    )
    run = week("fgd", drawn, of)
    there = [(0, FleetPlace(0, (0,))), (1, FleetPlace(1, (0,))), (1, FleetPlace(1, (1,)))]
    for number, (pod, place) in enumerate(there, start=1):
        kind = int(run.classes.of_pod[pod])
        run.fleet.take(kind, place)
        run.running[number] = RunningPod(kind, place)
        run.on_row[place.row].add(number)
        run.gpu_used_milli += WHOLE_GPU
    run.run(None, 1.0)
    assert run.n_waiting.sum() == 1
    LimitedMoves(of, MoveBudget(None))(run)
    assert run.moves == 2
    assert run.n_waiting.sum() == 0
    assert run.running[1].place.row == 1
    check(run, of)


def halves_and_one_who_waits() -> tuple[OpenbTrace, DepartureWeek]:
    """Return a week with a share on each of two nodes, and a pod that waits for a whole GPU."""
    nodes = tuple(TraceNode(f"n{i}", 32_000, 262_144, 1, "A") for i in range(2))
    pods = (
        TracePod("a-share", 4000, 1024, 1, 460, length_s=90_000.0),
        TracePod("b-whole", 4000, 1024, 1, 1000, length_s=90_000.0),
    )
    of = OpenbTrace("halves", nodes, pods)
    drawn = DrawnPods(np.array([1]), np.zeros(1), np.full(1, 90_000.0), 0, np.array([0, 1]))
    run = week("price", drawn, of)
    for number in (1, 2):
        place = FleetPlace(number - 1, (0,))
        run.fleet.take(0, place)
        run.running[number] = RunningPod(0, place)
        run.on_row[place.row].add(number)
        run.gpu_used_milli += 460
    run.run(None, 1.0)
    assert run.n_waiting.sum() == 1
    return of, run


def test_shares_move_together_when_someone_waits_for_a_whole_gpu() -> None:
    """One move frees a GPU, which the waiting pod gets."""
    of, run = halves_and_one_who_waits()
    LimitedMoves(of, MoveBudget(1000))(run)
    assert (run.moves, run.n_waiting.sum()) == (1, 0)
    assert run.running[1].place.row == run.running[2].place.row
    check(run, of)


def test_no_moves_without_a_budget() -> None:
    of, run = halves_and_one_who_waits()
    LimitedMoves(of, MoveBudget(0))(run)
    assert (run.moves, run.n_waiting.sum()) == (0, 1)


@pytest.mark.integration
@settings(max_examples=examples(10), deadline=None)
@given(st.integers(0, 1000), st.integers(0, 12))
def test_a_plan_keeps_its_limit_and_every_pod(seed: int, most: int) -> None:
    """Running pods keep a node with room for them; moves stay within the limit."""
    of = trace()
    run = week("fgd", draw_departing_pods(of, seed, span_s=3 * HOUR_S), of)
    run.run(None, 2 * HOUR_S)
    before, used = set(run.running), run.gpu_used_milli
    assert Repacking(of).improve(run, run.n_waiting, most, 1.0) == run.moves <= most
    assert before <= set(run.running)
    assert run.gpu_used_milli >= used
    check(run, of)


def test_no_move_beyond_the_budget() -> None:
    """A swap is two moves."""
    run = week("fgd")
    run.arrived = 20
    assert MoveBudget(50).left(run) == 1
    run.moves = 1
    assert MoveBudget(50).left(run) == 0


def test_a_list_without_times_is_refused() -> None:
    """Departures need lengths."""
    of = trace()
    pods = tuple(TracePod(p.name, p.cpu_milli, p.memory_mib, 1, 1000) for p in of.pods)
    with pytest.raises(InputError, match="creation_time"):
        draw_departing_pods(OpenbTrace("none", of.nodes, pods), 1)


def test_the_week_starts_with_its_steady_demand() -> None:
    """Five percent more than there is, up to chance."""
    of = trace(400)
    drawn = draw_departing_pods(of, 1, span_s=HOUR_S)
    gpu = np.array([pod.total_gpu_milli for pod in of.pods])
    assert gpu[drawn.pod[: drawn.n_there]].sum() / of.gpu_milli == pytest.approx(1.05, abs=0.1)
    assert (np.diff(drawn.time_s) >= 0).all()


@pytest.mark.integration
@settings(max_examples=examples(15), deadline=None)
@given(st.integers(0, 1000), st.sampled_from(["price", "fgd"]))
def test_repacking_never_exceeds_the_bound(seed: int, policy: str) -> None:
    """The solver's bound holds for what moves without limit reach."""
    of = trace()
    run = week(policy, draw_departing_pods(of, seed, span_s=6 * HOUR_S), of)
    run.run(None, 5 * HOUR_S)
    shapes = [NodeShape(n.gpu, n.cpu_milli, 1 << of.models.index(n.model)) for n in of.nodes]
    requests = run.classes.requests
    nodes = [
        (shape, [requests[run.running[number].kind] for number in run.on_row[row]])
        for row, shape in enumerate(shapes)
    ]
    waiting = np.repeat(np.arange(len(requests)), run.n_waiting).tolist()
    bound = repacked_bound([requests[kind] for kind in waiting], nodes)
    assert bound.gpu_milli >= run.gpu_used_milli
    RepackedWeek(of)(run)
    check(run, of)
    assert run.gpu_used_milli <= bound.gpu_milli + 1e-6
    assert bound.gpu_milli <= WHOLE_GPU * sum(node.gpu for node in of.nodes)
