"""All-or-nothing scheduling of gangs under churn and failing binds."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.scheduler.test_gangs import config, group, member
from tests.worlds import embedded, node, pod

from koordinator.api.labels import POD_GROUP
from koordinator.api.pod import Pod
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.cluster.port import Binding
from koordinator.foundation.errors import ClusterError, NotFoundError
from koordinator.scheduler.loop import Bound
from koordinator.simulator import Embedded

LEAST = {"g0": 3, "g1": 2, "g2": 4, "g3": 2, "g4": 2}
GROUPS = {"g3": ("g3", "g4"), "g4": ("g3", "g4")}

steps = st.lists(
    st.one_of(
        st.tuples(st.just("member"), st.sampled_from(sorted(LEAST)), st.integers(1, 3)),
        st.tuples(st.just("pod"), st.just(""), st.integers(1, 4)),
        st.tuples(st.just("node"), st.just(""), st.integers(1, 6)),
        st.tuples(st.just("delete"), st.just(""), st.integers(0, 50)),
        st.tuples(st.just("break"), st.just(""), st.integers(0, 50)),
        st.tuples(st.just("refuse"), st.just(""), st.integers(1, 3)),
        st.tuples(st.just("wait"), st.just(""), st.integers(1, 30)),
    ),
    max_size=40,
)


def bound_members(one: Embedded) -> dict[str, set[str]]:
    """Return the members of each gang that have a node."""
    members: dict[str, set[str]] = {name: set() for name in LEAST}
    for stored in one.cluster.list(Pod).items:
        gang = stored.metadata.labels.get(POD_GROUP, "")
        if gang and stored.spec.node_name:
            members[gang].add(stored.key)
    return members


class Refusing(MemoryCluster):
    """Cluster that refuses a number of binds."""

    refused: Counter[str]
    refuse = 0

    def bind(self, bindings: Sequence[Binding]) -> Any:
        lost, self.refuse = bindings[: self.refuse], max(0, self.refuse - len(bindings))
        for binding in lost:
            stored = self.get(Pod, binding.name, binding.namespace)
            self.refused[stored.metadata.labels.get(POD_GROUP, "")] += 1
        return Answers(len(lost), super().bind(bindings[len(lost) :]))


@dataclass
class Answers:
    """Responses that are refusals first."""

    lost: int
    rest: Any
    is_reported: bool = False

    def finished(self) -> list[tuple[int, ClusterError | None]]:
        first = [] if self.is_reported else [(i, ClusterError("refused")) for i in range(self.lost)]
        self.is_reported = True
        return [*first, *((i + self.lost, error) for i, error in self.rest.finished())]

    def results(self) -> list[ClusterError | None]:
        return [ClusterError("refused")] * self.lost + list(self.rest.results())


def check(one: Embedded) -> None:
    one.scheduler.validate()
    for active in one.scheduler.cycles["default-scheduler"].profile.gangs:
        active.plugin.gangs.validate()


def check_no_reserved_capacity(one: Embedded) -> None:
    """Check that members of a strict gang that did not start hold no capacity."""
    waiting = {
        key for key, placed in one.state.pods.by_key.items() if not placed.pod.spec.node_name
    }
    bound = {p.key for p in one.cluster.list(Pod).items if p.spec.node_name}
    assert waiting <= bound, "a place is kept for a pod that is not bound"


def decide(one: Any) -> None:
    """Make one step; a gang without bound members has enough of them afterwards, or none."""
    before = bound_members(one)
    one.cluster.refused = Counter()
    outcomes = one.scheduler.step()
    started = Counter(
        one.cluster.get(Pod, o.pod.partition("/")[2], "default").metadata.labels.get(POD_GROUP, "")
        for o in outcomes
        if isinstance(o, Bound)
    )
    started += one.cluster.refused  # decided, but the cluster would not have it
    for gang, least in LEAST.items():
        together = GROUPS.get(gang, (gang,))
        if started[gang] and not any(before[other] for other in together):
            assert started[gang] >= least, (gang, started)
            assert all(started[other] >= LEAST[other] for other in together), started
    check(one)


def happen(one: Any, number: int, *event: Any) -> None:
    """Change the cluster."""
    pods = one.cluster.list(Pod).items
    match event:
        case "member", gang, size:
            one.load([member(f"m{number}", gang, cpu=size, priority=10 * (size % 2))])
        case "pod", _, size:
            one.load([pod(f"p{number}", size, priority=5 * (number % 3))])
        case "node", _, size:
            one.load([node(f"n{number}", cpu=size)])
        case "delete", _, size if pods:
            meta = pods[size % len(pods)].metadata
            one.cluster.delete(Pod, meta.name, meta.namespace, grace_period_s=0)
        case "break", _, size if pods:  # its labels change while it waits
            meta = pods[size % len(pods)].metadata
            labels = {"labels": {"changed": str(number)}}
            one.cluster.patch(Pod, meta.name, meta.namespace, {"metadata": labels})
        case "refuse", _, size:
            one.cluster.refuse = size
        case "wait", _, size:
            one.clock.advance_to(one.clock.now_s() + size)


@pytest.mark.slow
@settings(max_examples=examples(25), deadline=None)
@given(events=steps, mode=st.sampled_from(["Strict", "NonStrict"]))
def test_a_gang_starts_with_enough_members_or_not_at_all(
    events: list[tuple[str, str, int]], mode: str
) -> None:
    """No step binds fewer members of a gang that has not started than it needs."""
    one: Any = embedded(
        node("first", cpu=4),
        *(group(name, least, GROUPS.get(name, ()), mode=mode) for name, least in LEAST.items()),
        config=config(defaultTimeout="20s"),
    )
    one.cluster.__class__ = Refusing
    for number, (kind, gang, size) in enumerate(events):
        happen(one, number, kind, gang, size)
        try:
            decide(one)
            if mode == "Strict":
                check_no_reserved_capacity(one)
        except NotFoundError:
            check(one)  # a pod was preempted in the step that bound it
