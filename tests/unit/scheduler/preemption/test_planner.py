"""Preemption plans for jobs against an exhaustive search of victims, on small clusters."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from hypothesis import given, note, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.scheduler.test_gangs import group, member
from tests.unit.scheduler.test_job_preemption import JOBS
from tests.worlds import budget, embedded, node, pod

from koordinator.api.kubescheduler import KubeSchedulerConfiguration
from koordinator.api.policy import PodDisruptionBudget
from koordinator.domain.gangs import GangCache
from koordinator.scheduler.preemption import (
    PreemptionPlan,
    PreemptionProblem,
    Shape,
    make_plan,
    victims_of,
)
from koordinator.scheduler.preemption.victims import NO_LIMIT
from koordinator.scheduler.snapshot import ClusterState, PlacedPod
from koordinator.scheduler.snapshot.axis import CPU, PODS

PRIORITY = 10


@dataclass(frozen=True)
class Cluster:
    """State with gangs, and a job that needs capacity."""

    state: ClusterState
    cache: GangCache
    sizes: Sequence[int]  # CPUs of the members

    def __str__(self) -> str:
        gangs = {key: g for g in self.cache.gangs.values() for key in g.members}
        pods = [
            f"{p.key[8:]} on {p.row}: {p.pod_class.amount(CPU) // 1000} of priority {p.priority}"
            + (f" in {gangs[p.key].id[8:]}" if p.key in gangs else "")
            for p in self.state.pods.by_key.values()
        ]
        least = {g.id[8:]: g.terms.min_member for g in self.cache.gangs.values() if g.terms}
        return f"{self.sizes} into {pods}, {least}"

    @property
    def budgets(self) -> list[PodDisruptionBudget]:
        return list(self.state.objects.all(PodDisruptionBudget))

    def problem(self) -> PreemptionProblem:
        state, columns = self.state, np.array([CPU, PODS])
        rows = np.arange(len(state.nodes))
        free = (state.nodes.allocatable - state.nodes.requested)[columns][:, rows].T.copy()
        some = state.classes.of(pod("any"))
        shapes = tuple(
            Shape(pod("any"), some, count, np.array([1000 * size, 1]), np.full(len(rows), NO_LIMIT))
            for size, count in sorted(Counter(self.sizes).items(), reverse=True)
        )
        victims = victims_of(
            state, rows, columns, PRIORITY, gangs=[self.cache], budgets=self.budgets
        )
        return PreemptionProblem(rows, free, shapes, victims)

    def left(self, removed: Sequence[PlacedPod]) -> list[int]:
        """Return the free CPUs of each node without these pods."""
        nodes = self.state.nodes
        free = (nodes.allocatable - nodes.requested)[CPU, : len(nodes)].tolist()
        for placed in removed:
            free[placed.row] += placed.pod_class.amount(CPU)
        return [amount // 1000 for amount in free]

    def fits(self, removed: Sequence[PlacedPod]) -> bool:
        """Return whether all members fit without these pods, by exhaustive search."""
        return _packs(tuple(sorted(self.sizes, reverse=True)), self.left(removed))

    def closed(self, removed: Sequence[PlacedPod]) -> list[PlacedPod] | None:
        """Return the pods with the gang members lost with them; None if one is protected."""
        keys = {placed.key for placed in removed}
        for gang in self.cache.gangs.values():
            there = [p for p in self.state.pods.by_key.values() if p.key in gang.members]
            least = gang.terms.min_member if gang.terms else 0
            lost = [p for p in there if p.key in keys]
            if lost and len(there) - len(lost) < least:
                if any(p.priority >= PRIORITY for p in there):
                    return None
                keys.update(p.key for p in there)
        return [p for p in self.state.pods.by_key.values() if p.key in keys]

    def choices(self) -> Iterator[list[PlacedPod]]:
        """Yield every sufficient set of victims."""
        some = [p for p in self.state.pods.by_key.values() if p.priority < PRIORITY]
        for count in range(len(some) + 1):
            for chosen in combinations(some, count):
                closed = self.closed(chosen)
                if closed is not None and len(closed) == count and self.fits(closed):
                    yield closed


def _packs(sizes: tuple[int, ...], left: list[int]) -> bool:
    if not sizes:
        return True
    for row in {amount: row for row, amount in enumerate(left)}.values():
        if left[row] >= sizes[0]:
            left[row] -= sizes[0]
            rest_packs = _packs(sizes[1:], left)
            left[row] += sizes[0]
            if rest_packs:
                return True
    return False


@st.composite
def clusters(draw: st.DrawFn, shapes: int = 1, *, elastic: bool = False) -> Cluster:
    """Draw up to four nodes with up to ten pods, some of them of two gangs, and a job.

    Only ``elastic`` gangs have members to spare.
    """
    count = draw(st.integers(1, 4))
    objects: list[Any] = [node(f"n{i}", cpu=6) for i in range(count)]
    sizes_of = Counter[str]()
    headroom = dict.fromkeys(range(count), 6)
    for index in range(draw(st.integers(0, 9))):
        row, cpu = draw(st.integers(0, count - 1)), draw(st.integers(1, 4))
        if headroom[row] < cpu:
            continue
        headroom[row] -= cpu
        priority = draw(st.sampled_from([0, 0, 5, PRIORITY]))
        gang = draw(st.sampled_from(["", "", "a", "b"]))
        common: dict[str, Any] = {"cpu": cpu, "on": f"n{row}", "priority": priority}
        sizes_of[gang] += 1
        name = f"p{index}"
        objects.append(member(name, gang, **common) if gang else pod(name, **common))
    for gang in ("a", "b"):
        spare = draw(st.integers(0, sizes_of[gang])) if elastic else 0
        objects.append(group(gang, max(sizes_of[gang] - spare, 1)))
    if draw(st.booleans()):
        objects.append(budget("few", draw(st.integers(0, 2)), app="x"))
    one = embedded(*objects, config=_config())
    one.scheduler.step(limit=0)
    cache = one.scheduler.cycles["default-scheduler"].profile.gangs[0].plugin.gangs
    size = draw(st.integers(1, 6))
    sizes = [size] * draw(st.integers(1, 4))
    if shapes > 1:
        sizes += [draw(st.integers(1, 6))] * draw(st.integers(1, 3))
    return Cluster(one.state, cache, sizes)


def _config() -> KubeSchedulerConfiguration:
    return JOBS


def check(cluster: Cluster, plan: PreemptionPlan) -> None:
    """Check that all members fit, and victims are few, unimportant and whole gangs."""
    victims = list(plan.victims)
    keys = {placed.key for placed in victims}
    assert len(keys) == len(victims)
    assert all(placed.priority < PRIORITY for placed in victims)
    closed = cluster.closed(victims)
    assert closed is not None
    assert {placed.key for placed in closed} == keys
    left = cluster.left(victims)
    for shape, rows in zip(cluster.problem().shapes, plan.places, strict=True):
        assert len(rows) == shape.count
        for row in rows.tolist():
            left[row] -= int(shape.amounts[0]) // 1000
    assert min(left) >= 0
    gangs = {key: g.id for g in cluster.cache.gangs.values() for key in g.members}
    for placed in victims:
        job = gangs.get(placed.key)
        others = [p for p in victims if p is not placed]
        if cluster.closed(others) != others:  # it went with its gang: then all of that stay
            others = [p for p in victims if gangs.get(p.key) != job]
        spared = [p for p in victims if p not in others]
        back = list(left)
        for other in spared:
            back[other.row] -= other.pod_class.amount(CPU) // 1000
        assert min(back) < 0, f"{placed.key} need not go"


@settings(max_examples=examples(60), deadline=None)
@given(cluster=clusters())
def test_a_plan_is_found_if_there_is_one(cluster: Cluster) -> None:
    """The most important victim has the lowest possible priority, for equal members."""
    note(str(cluster))
    plan = make_plan(cluster.problem())
    best = min(
        (max((p.priority for p in victims), default=-1) for victims in cluster.choices()),
        default=None,
    )

    assert (plan is None) == (best is None)
    if plan is not None:
        check(cluster, plan)
        assert max((p.priority for p in plan.victims), default=-1) == best


@settings(max_examples=examples(60), deadline=None)
@given(cluster=clusters(shapes=2, elastic=True))
def test_a_plan_for_several_shapes_and_elastic_gangs_holds(cluster: Cluster) -> None:
    """A plan that is found is valid; packing is hard, so some plans are missed."""
    plan = make_plan(cluster.problem())

    if plan is not None:
        check(cluster, plan)


@settings(max_examples=examples(25), deadline=None)
@given(cluster=clusters())
def test_plan_has_few_victims(cluster: Cluster) -> None:
    """The plan has at most twice the minimum number of victims of that priority."""
    plan = make_plan(cluster.problem())
    if plan is not None and plan.victims:
        top = max(p.priority for p in plan.victims)
        fewest = min(
            len(victims)
            for victims in cluster.choices()
            if max((p.priority for p in victims), default=-1) <= top
        )
        assert len(plan.victims) <= 2 * fewest
