"""Invariants of a tree: equal to one built from scratch, and no quota gets what isn't there."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.domain.quota.quotas import CHIP
from tests.unit.domain.quota.reference import Reference

from koordinator.api.elastic_quota import DEFAULT_QUOTA, ROOT_QUOTA
from koordinator.domain.quota import QuotaPod, QuotaSpec, QuotaTree, figures_of
from koordinator.foundation.errors import InputError

NAMES = tuple("abcdefg")
RESOURCES = ("cpu", CHIP)
UNSHARED = QuotaSpec(name=DEFAULT_QUOTA, parent=ROOT_QUOTA, max=dict.fromkeys(RESOURCES, 1 << 60))

small = st.integers(0, 40)
amounts = st.dictionaries(st.sampled_from(RESOURCES), small)


@st.composite
def specs(draw: st.DrawFn) -> QuotaSpec:
    """Return a quota that keeps the rules for one object: minimum below maximum."""
    most = draw(st.dictionaries(st.sampled_from(RESOURCES), small, min_size=1))
    return QuotaSpec(
        name=draw(st.sampled_from(NAMES)),
        parent=draw(st.sampled_from((ROOT_QUOTA, ROOT_QUOTA, *NAMES))),
        max=most,
        min={name: draw(st.integers(0, amount)) for name, amount in most.items()},
        weight=draw(st.one_of(st.just(most), amounts)),
        lends=draw(st.booleans()),
    )


@st.composite
def quota_pods(draw: st.DrawFn) -> QuotaPod:
    key = f"ns/{draw(st.integers(0, 2))}"
    return QuotaPod(key, "ns", draw(amounts), is_preemptible=draw(st.booleans()))


class Model:
    """The tree, and beside it all that the reference needs."""

    def __init__(self, *, scales: bool, guarantees: bool) -> None:
        self.options = {"scales": scales, "guarantees": guarantees}
        self.tree = QuotaTree(
            {DEFAULT_QUOTA: UNSHARED.max}, scales_min=scales, guarantees_usage=guarantees
        )
        self.specs = {DEFAULT_QUOTA: UNSHARED}
        self.pods: dict[tuple[str, str], QuotaPod] = {}
        self.assigned: set[tuple[str, str]] = set()
        self.total: dict[str, int] = {}

    def follow(self, history: Iterable[tuple[Any, ...]]) -> None:
        """Take every step, and read every runtime in between."""
        for operation, *arguments in history:
            getattr(self, operation)(*arguments)
            for name in self.tree.names:
                self.tree.runtime(name)

    def put(self, spec: QuotaSpec) -> None:
        try:
            self.tree.put(spec)
        except InputError:
            return
        self.specs[spec.name] = spec

    def remove(self, name: str) -> None:
        if name not in self.tree or name == DEFAULT_QUOTA:
            return
        removed = {(name, one.key) for one in self.tree.remove(name)}
        assert removed == {place for place in self.pods if place[0] == name}
        del self.specs[name]
        self.assigned -= removed
        for place in removed:
            del self.pods[place]

    def put_pod(self, index: int, pod: QuotaPod, assigned: bool) -> None:
        name = sorted(self.specs)[index % len(self.specs)]
        self.tree.put_pod(name, pod)
        self.pods[name, pod.key] = pod
        if assigned:
            self.tree.assign(name, pod.key)
            self.assigned.add((name, pod.key))

    def change_pod(self, index: int, operation: str) -> None:
        """Assign, unassign or remove one of the pods."""
        if not self.pods:
            return
        place = sorted(self.pods)[index % len(self.pods)]
        getattr(self.tree, operation)(*place)
        if operation == "assign":
            self.assigned.add(place)
        else:
            self.assigned.discard(place)
        if operation == "remove_pod":
            del self.pods[place]

    def set_total(self, total: dict[str, int]) -> None:
        self.tree.set_total(total)
        self.total = total

    def reference(self) -> Reference:
        shared = {name: spec for name, spec in self.specs.items() if name != DEFAULT_QUOTA}
        pods = [(name, pod, (name, key) in self.assigned) for (name, key), pod in self.pods.items()]
        whole = Reference(self.specs, pods)
        unshared = {name: whole.used(DEFAULT_QUOTA, name) for name in RESOURCES}
        return Reference(shared, pods, self.total, unshared, **self.options)

    def check(self) -> None:
        reference = self.reference()
        for name in reference.specs:
            self.check_quota(reference, name)
        for name in RESOURCES:
            below = sum(reference.limited_request(c, name) for c in reference.children(ROOT_QUOTA))
            stray = {**reference.specs, DEFAULT_QUOTA: UNSHARED}
            strays = Reference(stray, reference.pods).request(DEFAULT_QUOTA, name)
            assert figures_of(self.tree, ROOT_QUOTA).request.get(name, 0) == below + strays

    def check_quota(self, reference: Reference, name: str) -> None:
        expected: dict[str, Callable[[str, str], int]] = {
            "child_request": reference.child_request,
            "request": reference.request,
            "used": reference.used,
            "allocated": reference.allocated,
            "guaranteed": reference.guaranteed,
            "non_preemptible_request": reference.protected_request,
            "non_preemptible_used": lambda n, r: reference.used(n, r, protected=True),
            "self_request": reference.of_pods,
            "self_used": lambda n, r: reference.of_pods(n, r, assigned=True),
        }
        figures = figures_of(self.tree, name)
        for resource in RESOURCES:
            for field, compute in expected.items():
                actual = getattr(figures, field).get(resource, 0)
                assert (name, resource, field, actual) == (
                    (name, resource, field, compute(name, resource))
                )
        for resource in reference.specs[name].max:
            assert figures.runtime[resource] == reference.runtime(name, resource)


index = st.integers(0, 99)
puts = st.tuples(st.just("put"), specs())
steps = st.one_of(
    puts,
    puts,
    st.tuples(st.just("remove"), st.sampled_from(NAMES)),
    st.tuples(st.just("put_pod"), index, quota_pods(), st.booleans()),
    st.tuples(st.just("put_pod"), index, quota_pods(), st.booleans()),
    st.tuples(st.just("change_pod"), index, st.sampled_from(("assign", "unassign", "remove_pod"))),
    st.tuples(st.just("set_total"), amounts),
)
histories = st.tuples(st.lists(puts, min_size=3, max_size=8), st.lists(steps, max_size=12)).map(
    lambda both: both[0] + both[1]
)


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(25))
@given(histories, st.booleans(), st.booleans())
def test_a_changed_tree_equals_one_built_from_scratch(
    history: list[tuple[Any, ...]], scales: bool, guarantees: bool
) -> None:
    """Sums and runtimes, for quotas and pods moved anywhere, though runtimes are kept all along."""
    model = Model(scales=scales, guarantees=guarantees)
    model.follow([("set_total", {"cpu": 60, CHIP: 30}), *history])
    model.check()


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(25))
@given(histories)
def test_no_quota_gets_more_than_its_parent_has(history: list[tuple[Any, ...]]) -> None:
    """A runtime is at most the maximum, and the children's sum is what their parent has.

    Every quota gets its request up to the scaled minimum.
    """
    model = Model(scales=True, guarantees=False)
    model.follow(step for step in history if step[0] != "set_total")
    model.set_total({"cpu": 60, CHIP: 30})
    tree = model.tree
    for name, spec in model.specs.items():
        figures = figures_of(tree, name)
        for resource, runtime in figures.runtime.items():
            assert runtime <= spec.max[resource]
            if name != DEFAULT_QUOTA:
                least = min(figures.scaled_min.get(resource, 0), figures.request[resource])
                assert least <= runtime
    for parent in (ROOT_QUOTA, *model.specs):
        there = tree.runtime(parent)
        for resource, most in there.items():
            children = [
                tree.runtime(c).get(resource, 0) for c in model.reference().children(parent)
            ]
            assert sum(children) <= most
