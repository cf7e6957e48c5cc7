"""Gangs as victims of single pods: a broken gang counts, and is evicted, as a whole."""

from typing import Any

import pytest
from tests.unit.domain.quota.quotas import PREFIX
from tests.unit.scheduler.plugins.test_elastic_quota import team
from tests.unit.scheduler.test_gang_topology import gather, nodes, topology
from tests.unit.scheduler.test_gangs import group, member, members, placed
from tests.unit.scheduler.test_job_preemption import HIGH, JOBS, QUOTAS, STOCK, settled, world
from tests.worlds import configuration, embedded, node, pod

from koordinator.api.pod_groups import PodGroup

TEAM = {PREFIX + "name": "team"}
CONFIGS = pytest.mark.parametrize(
    "config", [STOCK, JOBS, QUOTAS], ids=["pods", "jobs", "pods in quotas"]
)
ONLY = {"disabled": [{"name": "*"}], "enabled": [{"name": "Coscheduling"}]}
NETWORK: dict[str, Any] = {"name": "Coscheduling", "args": {"awareNetworkTopology": True}}


def busy(*objects: Any, config: Any) -> Any:
    """Return two nodes, and a gang of two with a member on each."""
    gang = members("g", 2, 4, labels=TEAM)
    one = world(
        team("team", most=100), node("a", 5), node("b", 5), group("g", 2), *gang, config=config
    )
    settled(one)
    one.load(objects)
    return one


@CONFIGS
def test_pod_without_gang_is_preferred_as_victim(config: Any) -> None:
    """All pods are equal, and members are on the first nodes, but evicting one costs both."""
    one = busy(node("c", 4), pod("solo", 4, on="c", labels=TEAM), config=config)
    one.load([pod("high", 4, priority=HIGH, labels=TEAM)])

    assert settled(one) == ["solo"]
    assert placed(one)["high"] == "c"


@CONFIGS
def test_evicting_a_member_evicts_its_gang(config: Any) -> None:
    """An incomplete gang is useless."""
    one = busy(pod("high", 4, priority=HIGH, labels=TEAM), config=config)

    assert settled(one) == ["g-0", "g-1"]
    assert "high" in placed(one)


@CONFIGS
def test_surplus_member_is_evicted_alone(config: Any) -> None:
    """Two run where one suffices."""
    one = world(
        team("team", most=100),
        node("a", 4),
        node("b", 4),
        group("g", 1),
        *members("g", 2, 4, labels=TEAM),
        config=config,
    )
    settled(one)
    one.load([pod("high", 4, priority=HIGH, labels=TEAM)])

    assert len(settled(one)) == 1
    assert set(placed(one)) & {"g-0", "g-1"}


@CONFIGS
def test_gang_with_an_important_member_is_no_victim(config: Any) -> None:
    """If one member is protected, all are."""
    one = world(
        team("team", most=100),
        node("a", 4),
        node("b", 4),
        group("g", 2),
        member("g-0", "g", 4, labels=TEAM),
        member("g-1", "g", 4, labels=TEAM, priority=2 * HIGH),
        config=config,
    )
    settled(one)
    one.load([pod("high", 4, priority=HIGH, labels=TEAM)])

    assert settled(one) == []
    assert set(placed(one)) == {"g-0", "g-1"}


@CONFIGS
def test_lower_minimum_frees_a_surplus_member(config: Any) -> None:
    """The pending pod is retried, because a member has become dispensable."""
    one = world(
        team("team", most=100),
        node("a", 4),
        node("b", 4),
        group("g", 2),
        member("g-0", "g", 4, labels=TEAM),
        member("g-1", "g", 4, labels=TEAM, priority=2 * HIGH),
        config=config,
    )
    settled(one)
    one.load([pod("high", 4, priority=HIGH, labels=TEAM)])
    assert settled(one) == []

    one.cluster.patch(PodGroup, "g", "default", {"spec": {"minMember": 1}})

    assert settled(one) == ["g-0"]
    assert "high" in placed(one)


@pytest.mark.parametrize("jobs", [False, True])
def test_late_member_of_a_gathered_gang_preempts_in_its_rack(jobs: bool) -> None:
    """The gang runs: its late member is decided alone, and must be in the same rack."""
    enabled = [{"name": "Coscheduling"}] + ([] if jobs else [{"name": "DefaultPreemption"}])
    config = configuration(
        plugins={
            "multiPoint": {"enabled": enabled},
            "queueSort": ONLY,
            **({"postFilter": ONLY} if jobs else {}),
        },
        pluginConfig=[{**NETWORK, "args": {**NETWORK["args"], "enablePreemption": jobs}}],
    )
    gang = members("g", 2, 1, priority=HIGH)
    spec = gather(must="RackLayer")
    one = embedded(topology(), *nodes(2, 2, 2, 2), group("g", 2, **spec), *gang, config=config)
    settled(one)
    assert set(placed(one).values()) == {"h1"}
    others = ("h2", "h2", "h3", "h3", "h4", "h4")
    one.load([pod(f"low-{i}", 1, on=name) for i, name in enumerate(others)])
    settled(one)

    one.load([member("g-2", "g", 1, priority=HIGH)])

    assert len(settled(one)) == 1
    assert placed(one)["g-2"] == "h2"
