"""All or nothing, whatever happens: members and rooms come and go, bindings fail."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.unit.scheduler.test_gangs import config, group, member
from tests.worlds import START_S, embedded, node, pod

from koordinator.api.pod import Pod
from koordinator.foundation.errors import NotFoundError
from koordinator.scheduler.app import Bound
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
        st.tuples(st.just("wait"), st.just(""), st.integers(1, 30)),
    ),
    max_size=40,
)


def bound_members(one: Embedded) -> dict[str, set[str]]:
    """Return the members of each gang that have a node."""
    found: dict[str, set[str]] = {name: set() for name in LEAST}
    for stored in one.cluster.list(Pod).items:
        gang = stored.metadata.labels.get("pod-group.scheduling.sigs.k8s.io", "")
        if gang and stored.spec.node_name:
            found[gang].add(stored.key)
    return found


def check(one: Embedded) -> None:
    one.state.validate()
    one.scheduler.queue.validate()
    for active in one.scheduler.cycles["default-scheduler"].profile.gangs:
        active.plugin.gangs.validate()


def decide(one: Embedded) -> None:
    """Make one step; a gang that had no member bound has enough of them afterwards, or none."""
    before = bound_members(one)
    outcomes = one.scheduler.step()
    started = Counter(
        one.cluster.get(Pod, o.pod.partition("/")[2], "default").metadata.labels.get(
            "pod-group.scheduling.sigs.k8s.io", ""
        )
        for o in outcomes
        if isinstance(o, Bound)
    )
    for gang, least in LEAST.items():
        together = GROUPS.get(gang, (gang,))
        if started[gang] and not any(before[other] for other in together):
            assert started[gang] >= least, (gang, started)
            assert all(started[other] >= LEAST[other] for other in together), started
    check(one)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(events=steps, mode=st.sampled_from(["Strict", "NonStrict"]))
def test_a_gang_starts_with_enough_members_or_not_at_all(
    events: list[tuple[str, str, int]], mode: str
) -> None:
    """No step binds fewer members of a gang that hasn't started than it needs."""
    one: Any = embedded(
        node("first", cpu=4),
        *(group(name, least, GROUPS.get(name, ()), mode=mode) for name, least in LEAST.items()),
        config=config(defaultTimeout="20s"),
    )
    now_s = START_S
    for number, (kind, gang, size) in enumerate(events):
        pods = one.cluster.list(Pod).items
        match kind:
            case "member":
                priority = 10 * (size % 2)
                one.load([member(f"m{number}", gang, cpu=size, priority=priority)])
            case "pod":
                one.load([pod(f"p{number}", size, priority=5 * (number % 3))])
            case "node":
                one.load([node(f"n{number}", cpu=size)])
            case "delete" if pods:
                meta = pods[size % len(pods)].metadata
                one.cluster.delete(Pod, meta.name, meta.namespace, grace_period_s=0)
            case "break" if pods:  # its labels change while it waits
                stored = pods[size % len(pods)]
                labels = stored.metadata.labels | {"changed": str(number)}
                one.cluster.update(
                    replace(stored, metadata=replace(stored.metadata, labels=labels))
                )
            case "wait":
                now_s += size
                one.clock.advance_to(now_s)
        try:
            decide(one)
        except NotFoundError:
            check(one)  # a pod was preempted in the step that bound it
