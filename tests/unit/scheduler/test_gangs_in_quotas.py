"""Gangs whose members share a quota: all required members fit, or none."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.domain.quota.quotas import PREFIX
from tests.unit.scheduler.plugins.test_elastic_quota import put, team
from tests.unit.scheduler.test_gang_topology import gather, nodes, topology
from tests.unit.scheduler.test_gangs import condition, group, members, placed
from tests.worlds import configuration, embedded, node, pod

from koordinator.api.pod import Pod
from koordinator.simulator import Embedded

BOTH = configuration(
    plugins={
        "multiPoint": {"enabled": [{"name": "ElasticQuota"}, {"name": "Coscheduling"}]},
        "queueSort": {"disabled": [{"name": "*"}], "enabled": [{"name": "Coscheduling"}]},
    }
)
LABEL = PREFIX + "name"


def world(*objects: Any, merge_runs: bool = True) -> Embedded:
    return embedded(*objects, config=BOTH, merge_runs=merge_runs)


@pytest.mark.parametrize("merge_runs", [True, False])
def test_a_quota_with_room_for_some_starts_none(merge_runs: bool) -> None:
    """Three of four would be admitted: none is bound, and the quota is the reason."""
    gang = members("g", 4, labels={LABEL: "team"})
    one = world(
        node("a", cpu=100), team("team", most=3), group("g", 4), *gang, merge_runs=merge_runs
    )

    one.run_to_fixed_point()

    assert placed(one) == {}
    messages = [condition(one, f"g-{i}")[1] for i in range(4)]
    assert all("Insufficient quotas" in text for text in messages)
    one.state.validate()


def test_a_raised_quota_lets_the_gang_start() -> None:
    """The cached failure becomes stale."""
    one = world(
        node("a", cpu=100),
        team("team", most=3),
        group("g", 4),
        *members("g", 4, labels={LABEL: "team"}),
    )
    one.run_to_fixed_point()

    put(one, team("team", most=4))
    one.run_to_fixed_point()

    assert len(placed(one)) == 4


def test_a_finished_pod_of_the_quota_lets_the_gang_start() -> None:
    """Capacity in the quota suffices, whatever the state of nodes."""
    one = world(
        node("a", cpu=100),
        team("team", most=4),
        pod("before", 2, labels={LABEL: "team"}, on="a"),
        group("g", 4),
        *members("g", 4, labels={LABEL: "team"}),
    )
    one.run_to_fixed_point()
    assert set(placed(one)) == {"before"}

    one.cluster.delete(Pod, "before", "default")
    one.run_to_fixed_point()

    assert len(placed(one)) == 4


@settings(max_examples=examples(20), deadline=None)
@given(
    cpus=st.lists(st.integers(1, 6), min_size=1, max_size=3),
    quota=st.integers(0, 12),
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=4),
)
def test_neither_quota_nor_gang_is_broken(cpus: list[int], quota: int, sizes: list[int]) -> None:
    """No gang runs in part, no quota is exceeded, and no gang waits that fits in both."""
    one = world(
        *(node(f"n{i}", cpu=cpu) for i, cpu in enumerate(cpus)),
        team("team", most=quota),
        *(group(f"g{i}", size) for i, size in enumerate(sizes)),
        *(
            member
            for i, size in enumerate(sizes)
            for member in members(f"g{i}", size, labels={LABEL: "team"})
        ),
    )
    one.run_to_fixed_point()

    bound = placed(one)
    started = [sum(name.startswith(f"g{i}-") for name in bound) for i in range(len(sizes))]
    assert all(count in (0, size) for count, size in zip(started, sizes, strict=True))
    used = sum(started)
    assert used <= min(quota, sum(cpus))
    waiting = [size for count, size in zip(started, sizes, strict=True) if not count]
    assert all(used + size > min(quota, sum(cpus)) for size in waiting)
    one.scheduler.validate()


def test_a_gathered_gang_respects_its_quota() -> None:
    """Near nodes with capacity do not suffice: the quota must admit all members."""
    config = configuration(
        plugins={
            "multiPoint": {"enabled": [{"name": "ElasticQuota"}, {"name": "Coscheduling"}]},
            "queueSort": {"disabled": [{"name": "*"}], "enabled": [{"name": "Coscheduling"}]},
        },
        pluginConfig=[{"name": "Coscheduling", "args": {"awareNetworkTopology": True}}],
    )
    one = embedded(
        topology(),
        *nodes(2, 2, 2, 2),
        team("team", most=3),
        group("g", 4, **gather(must="RackLayer")),
        *members("g", 4, labels={LABEL: "team"}),
        config=config,
    )
    one.run_to_fixed_point()
    assert placed(one) == {}
    assert "quotaName: team" in condition(one, "g-0")[1]

    put(one, team("team", most=4))
    one.run_to_fixed_point()
    assert len(placed(one)) == 4
