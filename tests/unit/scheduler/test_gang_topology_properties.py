"""Gangs with network topology requirements under churn.

Rules hold, starts are complete, caches are current.
"""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.domain.quota.quotas import PREFIX
from tests.unit.scheduler.plugins.test_elastic_quota import team
from tests.unit.scheduler.test_gang_topology import gather, nodes, topology
from tests.unit.scheduler.test_gangs import condition, group, member, members, placed
from tests.worlds import configuration, embedded, node, pod

from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.simulator import Embedded

CONFIG = configuration(
    plugins={
        "multiPoint": {"enabled": [{"name": "ElasticQuota"}, {"name": "Coscheduling"}]},
        "queueSort": {"disabled": [{"name": "*"}], "enabled": [{"name": "Coscheduling"}]},
    },
    pluginConfig=[{"name": "Coscheduling", "args": {"awareNetworkTopology": True}}],
)
#: Gang -> least number, must-gather layer; the last two start together.
GANGS = {
    "rack": (3, "RackLayer"),
    "hall": (4, "HallLayer"),
    "free": (3, ""),
    "one": (2, "RackLayer"),
    "two": (1, "RackLayer"),
}
TOGETHER = {"one": ("one", "two"), "two": ("one", "two")}

events = st.lists(
    st.one_of(
        st.tuples(st.just("member"), st.sampled_from(sorted(GANGS)), st.integers(1, 3)),
        st.tuples(st.just("node"), st.just(""), st.integers(0, 23)),
        st.tuples(st.just("pod"), st.just(""), st.integers(1, 4)),
        st.tuples(st.just("delete"), st.just(""), st.integers(0, 50)),
    ),
    max_size=30,
)


def groups() -> list[Any]:
    return [
        group(name, least, TOGETHER.get(name, ()), **gather(**({"must": layer} if layer else {})))
        for name, (least, layer) in GANGS.items()
    ]


def happen(one: Embedded, number: int, event: tuple[str, str, int]) -> None:
    match event:
        case "member", gang, size:
            one.load([member(f"{gang}-{number}", gang, cpu=size)])
        case "node", _, size:
            labels = {"hall": f"p{size % 2}", "rack": f"r{size % 4}"}
            one.load([node(f"n{number}", 1 + size // 4, labels=labels)])
        case "pod", _, size:
            one.load([pod(f"p{number}", size)])
        case "delete", _, size:
            pods = one.cluster.list(Pod).items
            if pods:
                meta = pods[size % len(pods)].metadata
                one.cluster.delete(Pod, meta.name, meta.namespace, grace_period_s=0)


def running(one: Embedded) -> dict[str, list[Node]]:
    """Return the nodes of the members of each gang."""
    by_name = {each.metadata.name: each for each in one.cluster.list(Node).items}
    each: dict[str, list[Node]] = {name: [] for name in GANGS}
    for name, where in placed(one).items():
        gang = name.partition("-")[0]
        if gang in GANGS:
            each[gang].append(by_name[where])
    return each


@pytest.mark.slow
@settings(max_examples=examples(25), deadline=None)
@given(happened=events)
def test_must_gather_holds_and_starts_are_complete(
    happened: list[tuple[str, str, int]],
) -> None:
    """After every step each must-gather gang is in one domain, and each start was complete."""
    one = embedded(topology(), *nodes(2, 2), *groups(), config=CONFIG)
    for number, event in enumerate(happened):
        happen(one, number, event)
        before = running(one)
        one.scheduler.step()
        after = running(one)
        for gang, (least, layer) in GANGS.items():
            together = TOGETHER.get(gang, (gang,))
            if after[gang] and not any(before[other] for other in together):
                assert all(len(after[other]) >= GANGS[other][0] for other in together)
            label = {"RackLayer": "rack", "HallLayer": "hall"}.get(layer)
            domains = {
                (n.metadata.labels["hall"], n.metadata.labels["rack"] if label == "rack" else "")
                for other in together
                for n in after[other]
            }
            assert label is None or len(domains) <= 1, (gang, domains, least)
        one.scheduler.validate()
        tree = one.state.network.tree
        assert tree is not None
        tree.validate()


@settings(max_examples=examples(20), deadline=None)
@given(happened=events, size=st.integers(1, 5))
def test_restarted_scheduler_decides_the_same(
    happened: list[tuple[str, str, int]], size: int
) -> None:
    """Cached nodes, labels and headroom equal the cluster's."""
    one = embedded(topology(), *nodes(2, 2), *groups(), config=CONFIG)
    for number, event in enumerate(happened):
        happen(one, number, event)
        one.scheduler.step()
    bound = [p for p in one.cluster.list(Pod).items if p.spec.node_name]
    fresh = embedded(topology(), *one.cluster.list(Node).items, *groups(), *bound, config=CONFIG)
    for obj in one.cluster.list(Pod).items:
        if not obj.spec.node_name:
            meta = obj.metadata
            one.cluster.delete(Pod, meta.name, meta.namespace, grace_period_s=0)
    for world in (one, fresh):
        world.load([group("new", size, **gather()), *members("new", size)])
        world.scheduler.step()

    assert placed(one) == placed(fresh)


@pytest.mark.parametrize("merge_runs", [True, False])
def test_quota_applies_to_gathered_gangs(merge_runs: bool) -> None:
    """A rack fits all four, the quota three: no member starts, and the quota is the reason."""
    one = embedded(
        topology(),
        *nodes(4, 4),
        team("team", most=3),
        group("g", 4, **gather(must="RackLayer")),
        *members("g", 4, labels={PREFIX + "name": "team"}),
        config=CONFIG,
        merge_runs=merge_runs,
    )

    one.run_to_fixed_point()

    assert placed(one) == {}
    assert all("Insufficient quotas" in condition(one, f"g-{i}")[1] for i in range(4))
    one.state.validate()
