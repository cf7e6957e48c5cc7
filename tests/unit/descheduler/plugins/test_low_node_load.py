"""LowNodeLoad: anomalous nodes, order of evictions, and reasons."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.descheduler.world import DeschedulerWorld, profile_of
from tests.worlds import metric, node, pod, used

from koordinator.api.event import Event
from koordinator.api.meta import KubeObject
from koordinator.api.node_metric import NodeMetric
from koordinator.api.pod import Pod
from koordinator.foundation.clock import to_datetime
from koordinator.foundation.errors import InputError

AT_ONCE = {"consecutiveAbnormalities": 1, "consecutiveNormalities": 1}
THRESHOLDS = {"lowThresholds": {"cpu": 30}, "highThresholds": {"cpu": 60}}
PROD, BATCH = 9500, 5500
OWNER = ("ReplicaSet", "r")


def measured(name: str, on: str, priority: int = BATCH, **more: Any) -> Pod:
    return pod(name, "100m", on=on, priority=priority, owner=OWNER, **more)


def load(on: str, system: str = "0", **pods: str) -> NodeMetric:
    """Return a report of CPU that pods use, and the system."""
    return metric(on, pods={name: used(cpu) for name, cpu in pods.items()}, system=used(system))


def world(*objects: KubeObject, condition: Any = AT_ONCE, **args: Any) -> DeschedulerWorld:
    configuration = args.pop("configuration", {})
    whole = {"anomalyCondition": condition, **THRESHOLDS, **args}
    profile = profile_of("balance", "LowNodeLoad", whole)
    return DeschedulerWorld(*objects, profile=profile, **configuration)


def two_nodes() -> list[KubeObject]:
    """Return a hot node with two batch pods and a prod pod, and a cool one."""
    return [
        node("n1", 10),
        node("n2", 10),
        measured("a", "n1"),
        measured("b", "n1"),
        measured("c", "n1", PROD),
        load("n1", "2", a="1500m", b="1500m", c="3000m"),
        load("n2", "2"),
    ]


def reasons(one: DeschedulerWorld) -> set[str]:
    return {event.note for event in one.cluster.list(Event).items}


def test_pods_are_evicted_until_usage_is_below_the_high_threshold() -> None:
    """Batch before prod, and none more than needed."""
    assert world(*two_nodes()).evicted() == {"a", "b"}


def test_reason_has_the_usage_at_the_time_of_the_eviction() -> None:
    """The second pod goes from a node that is cooler by the first."""
    one = world(*two_nodes())
    one.evicted()
    assert reasons(one) == {
        "pod evicted by node is overutilized, node cpu usage(80.00%)>threshold(60.00%)",
        "pod evicted by node is overutilized, node cpu usage(65.00%)>threshold(60.00%)",
    }


def test_pod_with_the_largest_relief_is_evicted_first() -> None:
    """With two resources above, the usage that just covers the excess counts most."""
    thresholds = {
        "lowThresholds": {"cpu": 30, "memory": 30},
        "highThresholds": {"cpu": 50, "memory": 50},
    }
    usage = {
        "a": used(2, "8Gi"),
        "b": used(4, "2Gi"),
        "c": used(8, "16Gi"),
    }
    objects: list[KubeObject] = [
        node("n1", 20, "40Gi"),
        *(node(f"n{i}", 20, "40Gi") for i in (2, 3)),
        *(measured(name, "n1") for name in usage),
        metric("n1", pods=usage, system=used(0, "2Gi")),
        *(metric(f"n{i}") for i in (2, 3)),
    ]
    # The excess is 4 cores and 8Gi: c scores 1.5, a 1.25, b 1.125.
    assert world(*objects, **thresholds).evicted() == {"c"}
    usage["c"] = used(0, 0)
    usage["d"] = used(8, "16Gi")
    objects = [*objects[:3], *(measured(n, "n1") for n in "abd"), *objects[7:]]
    objects += [metric("n1", pods={k: usage[k] for k in "abd"}, system=used(0, "2Gi"))]
    assert world(*objects, **thresholds).evicted() == {"d"}


@pytest.mark.parametrize(
    ("args", "evicted"),
    [
        ({"numberOfNodes": 1}, set()),
        ({"paused": True}, set()),
        ({"dryRun": True}, set()),
        ({"highThresholds": {"cpu": 85}}, set()),
        ({"lowThresholds": {"cpu": 10}}, set()),
        ({"evictableNamespaces": {"exclude": ["default"]}}, set()),
        ({"evictableNamespaces": {"include": ["default"]}}, {"a", "b"}),
        ({"podSelectors": [{"selector": {"matchLabels": {"x": "y"}}}]}, set()),
        ({"nodeMetricExpirationSeconds": 20}, set()),
        ({"nodeMetricExpirationSeconds": 21}, {"a", "b"}),
        # Without a low percentage a high one does not count.
        ({"lowThresholds": {"memory": 50}, "highThresholds": {"cpu": 60, "memory": 60}}, set()),
    ],
)
def test_conditions_that_prevent_evictions(args: Mapping[str, Any], evicted: set[str]) -> None:
    """One condition suffices to prevent the eviction."""
    assert world(*two_nodes(), **args).evicted() == evicted


def test_cordoned_node_is_no_target() -> None:
    """A cordoned node is excluded even if it is nearly empty."""
    objects = two_nodes()
    objects[1] = node("n2", 10, unschedulable=True)
    assert world(*objects).evicted() == set()


@pytest.mark.parametrize(
    ("change", "fits"),
    [
        ({"taints": ["x=y:NoSchedule"]}, False),
        ({"taints": ["x=y:PreferNoSchedule"]}, True),
        ({"cpu": "50m"}, False),
    ],
)
def test_pod_without_a_fitting_target_is_not_evicted(change: Any, fits: bool) -> None:
    """With nodeFit false it is evicted."""
    objects = two_nodes()
    objects[1] = node("n2", **{"cpu": 10, **change})
    objects[-1] = load("n2", "0")
    evicted = world(*objects).evicted()
    assert bool(evicted) is fits
    if change.get("cpu") is None:
        assert world(*objects, nodeFit=False).evicted() == {"a", "b"}


def test_target_is_not_filled_beyond_its_threshold() -> None:
    """The usage of a moved pod counts on its target before the next pod is considered."""
    objects: list[KubeObject] = [
        node("n1", 10),
        node("n2", 10),
        *(measured(name, "n1") for name in "abc"),
        load("n1", a="3", b="3", c="3"),
        load("n2", "2500m"),
    ]
    assert world(*objects).evicted() == {"a"}


def test_pod_without_a_report_is_not_evicted_with_node_fit() -> None:
    """The usage of a pod without a report is unknown."""
    objects = two_nodes()
    objects[5] = load("n1", "5", b="1500m", c="3000m")
    assert world(*objects).evicted() == {"b"}
    # Without a check of fit it moves, after known pods of its kind; nothing is won by it.
    assert world(*objects, nodeFit=False).evicted() == {"a", "b", "c"}


def test_prod_pods_are_balanced_by_their_own_usage() -> None:
    """A node may be cool enough, and its prod pods not."""
    thresholds = {
        "highThresholds": {"cpu": 80},
        "prodHighThresholds": {"cpu": 40},
        "prodLowThresholds": {"cpu": 20},
    }
    objects = [*two_nodes()[:5], measured("d", "n1", PROD + 1)]
    objects += [load("n1", "0", a="1", b="1", c="3", d="2"), load("n2", "1")]
    one = world(*objects, **thresholds)
    assert one.evicted() == {"c"}
    assert reasons(one) == {
        "pod evicted by node is overutilized, prod cpu usage(50.00%)>threshold(40.00%)"
    }


def test_thresholds_may_be_deviations_from_the_mean() -> None:
    """Hot is what uses so much more than all use on average."""
    deviation = {
        "useDeviationThresholds": True,
        "lowThresholds": {"cpu": 10},
        "highThresholds": {"cpu": 25},
    }
    # The mean is 50 %: up to 40 % is little, above 75 % too much.
    one = world(*two_nodes(), **deviation)
    assert one.evicted() == {"a"}
    assert reasons(one) == {
        "pod evicted by node is overutilized, node cpu usage(80.00%)>threshold(25.00%)"
    }


def test_node_is_anomalous_after_more_marks_than_configured() -> None:
    """Three abnormalities mean that something happens at the fourth look."""
    condition = {"timeout": "1m", "consecutiveAbnormalities": 3, "consecutiveNormalities": 1}
    one = world(*two_nodes(), condition=condition, configuration={"deschedulingInterval": "30s"})
    for _ in range(3):
        assert one.evicted() == set()
        one.clock.advance_to(one.clock.now_s() + 30)
        for name in ("n1", "n2"):
            status = {"updateTime": to_datetime(one.clock.now_s()).isoformat()}
            one.cluster.patch(NodeMetric, name, "", {"status": status}, "status")
    assert one.evicted() == {"a", "b"}


def test_detector_expires_without_marks() -> None:
    """The marks before a pause longer than the cache's time don't count."""
    condition = {"timeout": "1m", "consecutiveAbnormalities": 2, "consecutiveNormalities": 1}
    one = world(
        *two_nodes(),
        condition=condition,
        detectorCacheTimeout="60s",
        nodeMetricExpirationSeconds=10_000,
        configuration={"deschedulingInterval": "30s"},
    )
    for wait_s in (30, 100, 30):
        assert one.evicted() == set()
        hidden = wait_s == 100
        if hidden:
            one.cluster.delete(NodeMetric, "n1")
        one.clock.advance_to(one.clock.now_s() + wait_s)
        if hidden:
            one.evicted()
            one.cluster.load([two_nodes()[5]])
            one.descheduler.request_cycle()
    assert one.evicted() == set()


def test_pools_have_their_own_thresholds() -> None:
    """A pool takes what it does not say from outside, and only its nodes."""
    objects: list[KubeObject] = [
        *(node(f"{pool}{i}", 10, labels={"pool": pool}) for pool in "xy" for i in (1, 2)),
        *(measured(f"p{pool}", f"{pool}1") for pool in "xy"),
        *(load(f"{pool}1", **{f"p{pool}": "7"}) for pool in "xy"),
        *(load(f"{pool}2") for pool in "xy"),
    ]
    pool = {"name": "x", "nodeSelector": {"matchLabels": {"pool": "x"}}}
    # Outside of the pools nothing is selected; 7 cores do not fit under 6 elsewhere.
    nothing = {"matchLabels": {"pool": "z"}}
    args: dict[str, Any] = {"nodeSelector": nothing, "nodePools": [pool], "nodeFit": False}
    assert world(*objects, **args).evicted() == {"px"}
    args["nodePools"] = [{**pool, "highThresholds": {"cpu": 75}}]
    assert world(*objects, **args).evicted() == set()


def test_percentages_are_of_the_raw_allocatable() -> None:
    """Percentages are of the raw allocatable."""
    objects = two_nodes()
    raw = {"node.koordinator.sh/raw-allocatable": '{"cpu":"10","memory":"32Gi"}'}
    objects[0] = node("n1", 20, annotations=raw)
    assert world(*objects).evicted() == {"a", "b"}
    objects[0] = node("n1", 20)
    assert world(*objects).evicted() == set()


def test_finished_and_deleted_pods_are_ignored() -> None:
    """A report may contain deleted pods, and a node may have finished pods."""
    objects = two_nodes()
    objects.append(measured("done", "n1", phase="Failed"))
    objects.append(replace(load("gone"), metadata=load("gone").metadata))
    objects[5] = load("n1", "2", a="1500m", b="1500m", c="3000m", done="1", never="0")
    assert "done" not in world(*objects).evicted()


@pytest.mark.parametrize(
    ("args", "path", "message"),
    [
        ({"numberOfNodes": -1}, "numberOfNodes", "must be greater than or equal to 0"),
        ({"nodeMetricExpirationSeconds": 0}, "nodeMetricExpirationSeconds", "a positive value"),
        ({"highThresholds": {"cpu": -1}}, "highThresholds[cpu]", "greater than or equal to 0"),
        ({"highThresholds": {"cpu": 20}}, "lowThresholds[cpu]", "equal to highThresholds"),
        ({"prodHighThresholds": {"cpu": 70}}, "prodHighThresholds[cpu]", "prodHighThresholds"),
        (
            {"prodHighThresholds": {"cpu": 10}, "prodLowThresholds": {"cpu": 20}},
            "prodLowThresholds[cpu]",
            "less than or equal to prodHighThresholds",
        ),
        (
            {"evictableNamespaces": {"include": ["a"], "exclude": ["b"]}},
            "evictableNamespaces",
            "only one of Include/Exclude namespaces can be set",
        ),
        (
            {"nodePools": [{"name": "x", "highThresholds": {"cpu": 20}}]},
            "nodePools[0].lowThresholds[cpu]",
            "equal to highThresholds",
        ),
        (
            {"condition": {"consecutiveAbnormalities": -2}},
            "anomalyCondition.consecutiveAbnormalities",
            "must be greater than 0",
        ),
        ({"highTresholds": {"cpu": 20}}, "highTresholds", 'did you mean "highThresholds"'),
        ({"lowThresholds": {"cpu": "30%"}}, "lowThresholds.cpu", "a number"),
    ],
)
def test_invalid_arguments_are_rejected(args: Any, path: str, message: str) -> None:
    """The message has the path in the file and what would be accepted."""
    with pytest.raises(InputError, match=message) as refused:
        world(**args)
    assert refused.value.path == f"profiles[0].pluginConfig[0].args.{path}"


def test_condition_inherits_missing_counts_from_the_defaults() -> None:
    """With only a timeout the counts are 5 and 3, so the first cycle evicts nothing."""
    assert world(*two_nodes(), condition={"timeout": "2m"}).evicted() == set()
