"""Room for pods of whole GPUs: what is found is really room, with no more moves than needed."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from koordinator.descheduler.plugins.gpu_defragmentation.room import (
    RoomCluster,
    RoomPlan,
    RoomPod,
    RoomRequest,
    fewest_moves,
    find_room,
    solve_room,
)
from koordinator.domain.gpus.mix import WHOLE_GPU


def cluster(*nodes: Sequence[RoomPod], slots: int = 4, cpu: int = 32) -> RoomCluster:
    """Return nodes with GPUs and cores, and the pods of each row that fit on its node."""
    gpu_free = np.full((len(nodes), slots), WHOLE_GPU)
    free = np.full((len(nodes), 1), cpu)
    pods = []
    for row, own in enumerate(nodes):
        for pod in own:
            assert pod.row == row
            free[row] -= pod.requests
            gpu_free[row, list(pod.gpus)] -= pod.gpu_milli
            pods.append(pod)
    assert (gpu_free >= 0).all()
    return RoomCluster(free, gpu_free, tuple(pods))


def pod(row: int, *gpus: int, milli: int = WHOLE_GPU, cpu: int = 1, **given: object) -> RoomPod:
    """Return a pod that holds these GPUs."""
    fields = {"key": f"p{row}-{gpus}", "may_move": True, "cost": 1.0} | given
    return RoomPod(
        row=row,
        requests=np.array([cpu]),
        gpus=gpus,
        gpu_milli=milli if gpus else 0,
        **fields,  # type: ignore[arg-type]  # what tests give
    )


def request(members: int = 1, gpus: int = 4, cpu: int = 4, **given: object) -> RoomRequest:
    """Return room for members that take so much each."""
    return RoomRequest(members, gpus, np.array([cpu]), **given)  # type: ignore[arg-type]


def find(where: RoomCluster, wanted: RoomRequest) -> RoomPlan | None:
    """Search with one seed."""
    return find_room(where, wanted, np.random.default_rng(0))


def check(where: RoomCluster, wanted: RoomRequest, plan: RoomPlan) -> None:
    """Make the moves one by one on a cluster of our own, and put the members there."""
    free, gpu_free = where.free.copy(), where.gpu_free.copy()
    moved = set()
    for move in plan.moves:
        origin = where.pods[move.pod]
        assert origin.may_move
        assert move.pod not in moved
        moved.add(move.pod)
        assert move.row != origin.row
        assert origin.accepts is None or origin.accepts[move.row]
        assert len(move.gpus) == len(origin.gpus)
        free[move.row] -= origin.requests
        gpu_free[move.row, list(move.gpus)] -= origin.gpu_milli
        assert (free[move.row] >= 0).all()
        assert (gpu_free[move.row, list(move.gpus)] >= 0).all()
        free[origin.row] += origin.requests
        gpu_free[origin.row, list(origin.gpus)] += origin.gpu_milli
    assert len(plan.places) == wanted.members
    for place in plan.places:
        assert len(set(place.gpus)) == wanted.gpus
        assert wanted.accepts is None or wanted.accepts[place.row]
        if wanted.groups is not None:
            assert any(set(place.gpus) <= set(group) for group in wanted.groups[place.row])
        free[place.row] -= wanted.requests
        gpu_free[place.row, list(place.gpus)] -= WHOLE_GPU
        assert (free[place.row] >= 0).all()
        assert (gpu_free[place.row, list(place.gpus)] == 0).all()
    if wanted.domain is not None:
        assert len({int(wanted.domain[place.row]) for place in plan.places}) == 1


def test_existing_room_needs_no_moves() -> None:
    """A gang that fits already needs no moves."""
    where = cluster([pod(0, 0)], [])
    plan = find(where, request())
    assert plan is not None
    assert plan.moves == ()
    assert [place.row for place in plan.places] == [1]


def test_node_with_the_fewest_pods_is_cleared() -> None:
    """One move clears the node; other nodes would need two or three."""
    where = cluster([pod(0, 0), pod(0, 1)], [pod(1, 2)], [pod(2, 0), pod(2, 1), pod(2, 2)])
    plan = find(where, request())
    assert plan is not None
    assert [where.pods[move.pod].key for move in plan.moves] == ["p1-(2,)"]
    check(where, request(), plan)


def test_cheapest_of_equally_many_moves_are_chosen() -> None:
    """The pod of the lower cost goes."""
    where = cluster([pod(0, 0, cost=5.0)], [pod(1, 0, cost=1.0)], [pod(2, 0, cost=5.0)])
    for plan in (find(where, request()), solve_room(where, request())):
        assert plan is not None
        assert [where.pods[move.pod].row for move in plan.moves] == [1]


def test_protected_pod_is_not_moved() -> None:
    """Two other pods are moved, or none."""
    stuck = pod(0, 0, may_move=False)
    where = cluster([stuck], [pod(1, 0), pod(1, 1)], [pod(2, 0, may_move=False)])
    plan = find(where, request())
    assert plan is not None
    assert {where.pods[move.pod].row for move in plan.moves} == {1}
    check(where, request(), plan)
    immovable = cluster([stuck], [pod(1, 0, may_move=False)])
    assert find(immovable, request()) is None
    assert fewest_moves(immovable, request()) is None


def test_pod_moves_only_to_accepting_nodes() -> None:
    """``accepts`` represents node selectors, taints and cordons."""
    own = pod(0, 0, accepts=np.array([True, False, True]))
    where = cluster([own], [pod(1, 0, may_move=False)], [pod(2, 0, may_move=False)])
    plan = find(where, request())
    assert plan is not None
    assert [(move.pod, move.row) for move in plan.moves] == [(0, 2)]


def test_members_are_placed_in_one_domain() -> None:
    """Two nodes with one move each in one spine, instead of two free ones in two spines."""
    where = cluster([], [pod(1, 0)], [], [pod(3, 0), pod(3, 1)], slots=4)
    wanted = request(members=2, domain=np.array([0, 0, 1, 1]))
    plan = find(where, wanted)
    assert plan is not None
    check(where, wanted, plan)
    assert len(plan.moves) == 1 == fewest_moves(where, wanted)
    free = find(where, request(members=2))
    assert free is not None
    assert free.moves == ()


def test_room_is_within_one_numa_node() -> None:
    """Two free GPUs on two NUMA nodes are not enough for who wants two of one."""
    groups = tuple([((0, 1), (2, 3))] * 2)
    where = cluster([pod(0, 0), pod(0, 2)], [pod(1, 0), pod(1, 2), pod(1, 3)])
    wanted = request(gpus=2, groups=groups)
    plan = find(where, wanted)
    assert plan is not None
    assert len(plan.moves) == 1 == fewest_moves(where, wanted)
    check(where, wanted, plan)


def test_other_pods_move_first_for_a_pod_that_fits_nowhere() -> None:
    """A pod of two GPUs moves to a node that a pod of one GPU left."""
    where = cluster(
        [pod(0, 0, 1)],
        [pod(1, 0, 1, may_move=False), pod(1, 2)],
        [pod(2, 0, 1, 2, may_move=False)],
        slots=4,
    )
    wanted = request(gpus=4, accepts=np.array([True, False, False]))
    plan = find(where, wanted)
    assert plan is not None
    assert [where.pods[move.pod].key for move in plan.moves] == ["p1-(2,)", "p0-(0, 1)"]
    check(where, wanted, plan)


def test_gpus_not_allocated_to_pods_are_not_freed() -> None:
    """A GPU that is broken or reserved is not freed by moving pods."""
    where = cluster([pod(0, 0)], [])
    taken = RoomCluster(where.free, where.gpu_free.copy(), where.pods)
    taken.gpu_free[0, 1] = 0
    taken.gpu_free[1, 1] = 400
    assert find(taken, request()) is None
    assert fewest_moves(taken, request()) is None


@st.composite
def worlds(draw: st.DrawFn) -> tuple[RoomCluster, RoomRequest]:
    """Draw a small cluster with whatever fits, and a wish."""
    slots = draw(st.sampled_from([2, 4]))
    nodes = draw(st.integers(2, 5))
    gpu_free = np.full((nodes, slots), WHOLE_GPU)
    free = np.full((nodes, 1), 16)
    pods: list[RoomPod] = []
    sizes = st.sampled_from([(0, 0), (1, 1000), (1, 500), (1, 300), (2, 1000)])
    for index in range(draw(st.integers(0, 10))):
        count, milli = draw(sizes)
        cpu = draw(st.integers(0, 6))
        row = draw(st.integers(0, nodes - 1))
        able = np.flatnonzero(gpu_free[row] >= max(milli, 1))
        if len(able) < count or free[row, 0] < cpu:
            continue
        minors = tuple(able[:count].tolist())
        gpu_free[row, list(minors)] -= milli
        free[row, 0] -= cpu
        accepts = np.array(draw(st.lists(st.booleans(), min_size=nodes, max_size=nodes)))
        pods.append(
            RoomPod(
                key=f"p{index}",
                row=row,
                requests=np.array([cpu]),
                gpus=minors,
                gpu_milli=milli,
                accepts=draw(st.sampled_from([None, accepts])),
                may_move=draw(st.integers(0, 4)) > 0,
                cost=float(draw(st.integers(0, 3))),
            )
        )
    halves = (tuple(range(slots // 2)), tuple(range(slots // 2, slots)))
    groups = draw(st.sampled_from([None, tuple([halves] * nodes)]))
    gpus = slots // 2 if groups is not None else draw(st.integers(1, slots))
    domain = draw(st.sampled_from([None, np.arange(nodes) % 2]))
    accepts = np.array(draw(st.lists(st.booleans(), min_size=nodes, max_size=nodes)))
    room_request = RoomRequest(
        members=draw(st.integers(1, 3)),
        gpus=gpus,
        requests=np.array([draw(st.integers(0, 8))]),
        accepts=draw(st.sampled_from([None, accepts])),
        groups=groups,
        domain=domain,
    )
    return RoomCluster(free, gpu_free, tuple(pods)), room_request


@pytest.mark.slow
@settings(max_examples=examples(25), deadline=None)
@given(worlds())
def test_plan_is_valid_and_has_at_least_the_minimum_of_moves(
    world: tuple[RoomCluster, RoomRequest],
) -> None:
    """Plans come true move by move; the program's number is a lower bound, its plans reach it."""
    where, wanted = world
    fewest = fewest_moves(where, wanted)
    result = find(where, wanted)
    if result is not None:
        check(where, wanted, result)
        assert fewest is not None
        assert len(result.moves) >= fewest
    exact = solve_room(where, wanted)
    if exact is not None:
        check(where, wanted, exact)
        assert len(exact.moves) == fewest
