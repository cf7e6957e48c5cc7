"""Strategies of nodes from slo-controller-config; invalid sections have no effect."""

from typing import Any

import pytest
from tests.unit.manager.configuration.test_checks import config, selected
from tests.unit.manager.node_resources.nodes import amounts, node

from koordinator.api.codec import to_manifest
from koordinator.api.meta import ObjectMeta
from koordinator.api.node_slo import NodeSlo, NodeSloSpec
from koordinator.manager.configuration.reader import SloConfig, read_config
from koordinator.manager.configuration.strategies import (
    colocation_strategy,
    is_colocated,
    render_slo,
    resolved,
)


def read(last: SloConfig | None = None, **sections: Any) -> SloConfig:
    """Return the configuration; nothing in it is wrong."""
    decoded, problems = read_config(config(**sections), last)
    assert problems == []
    return decoded


def strategy(slo_config: SloConfig, **meta: Any) -> Any:
    """Return the colocation strategy of a node."""
    assert slo_config.colocation is not None
    return colocation_strategy(slo_config.colocation, node(amounts(1, 1), **meta).metadata)


def rendered(slo_config: SloConfig, old: NodeSloSpec | None = None, **meta: Any) -> Any:
    """Return the spec of a node's NodeSLO as JSON."""
    spec = render_slo(slo_config, node(amounts(1, 1), **meta), old).spec
    return to_manifest(NodeSlo(metadata=ObjectMeta(name="n"), spec=spec)).get("spec")


DEFAULT_SLO: dict[str, Any] = {
    "resourceUsedThresholdWithBE": {
        "enable": False,
        "cpuSuppressThresholdPercent": 65,
        "cpuSuppressPolicy": "cpuset",
        "memoryEvictThresholdPercent": 70,
        "cpuEvictPolicy": "evictByRealLimit",
    },
    "resourceQOSStrategy": {},
    "cpuBurstStrategy": {
        "policy": "none",
        "cpuBurstPercent": 1000,
        "cfsQuotaBurstPercent": 300,
        "cfsQuotaBurstPeriodSeconds": -1,
        "sharePoolThresholdPercent": 50,
    },
    "systemStrategy": {"totalNetworkBandwidth": "0"},
}


def test_without_a_config_map_all_is_default() -> None:
    """Colocation is disabled by default."""
    decoded, problems = read_config(None)

    assert not problems
    assert rendered(decoded) == DEFAULT_SLO
    assert not is_colocated(decoded.colocation, strategy(decoded))  # type: ignore[arg-type]
    assert resolved(strategy(decoded)).cpu_reclaim_percent == 60


def test_case_of_field_names_does_not_matter() -> None:
    """As for Go's decoder: of several spellings of a name, the last one counts."""
    threshold = {
        "ClusterStrategy": {"Enable": True, "CPUEvictTimeWindowSeconds": 30, "colour": 1},
        "nodestrategies": [
            {"NodeSelector": {"MATCHLABELS": {"Pool": "a"}}, "cpuevicttimewindowseconds": 40}
        ],
    }
    text = '{"enable": true, "cpuReclaimThresholdPercent": 50, "CPUReclaimThresholdPercent": 70}'
    result = read(resource_threshold=threshold, colocation=text)
    of = {
        pool: rendered(result, labels={"Pool": pool})["resourceUsedThresholdWithBE"]
        for pool in ("a", "b")
    }

    assert (of["b"]["enable"], of["b"]["cpuEvictTimeWindowSeconds"]) == (True, 30)
    assert (of["a"]["enable"], of["a"]["cpuEvictTimeWindowSeconds"]) == (True, 40)
    assert strategy(result).cpu_reclaim_threshold_percent == 70


def test_range_is_checked_in_any_case_of_the_field_name() -> None:
    """A number out of range is found under each spelling."""
    wrong = {"clusterStrategy": {"CPUEvictTimeWindowSeconds": 0}}
    _, problems = read_config(config(resource_threshold=wrong))

    assert "CPUEvictTimeWindowSeconds must be greater than 0" in problems[0].message


def test_deleted_config_map_stays_in_effect() -> None:
    """An accidental deletion does not remove the strategies."""
    before = read(colocation={"enable": True})

    assert read_config(None, before)[0] is before


def test_precedence_of_strategies_of_a_node() -> None:
    """Cluster < first entry that fits < annotation < label."""
    result = read(
        colocation={
            "enable": True,
            "cpuReclaimThresholdPercent": 61,
            "nodeConfigs": [
                selected("a", pool="a")
                | {"cpuReclaimThresholdPercent": 62, "memoryCalculatePolicy": "request"},
                selected("b", pool="b") | {"cpuReclaimThresholdPercent": 63},
            ],
        }
    )
    annotations = {"node.koordinator.sh/colocation-strategy": '{"cpuReclaimThresholdPercent":90}'}
    label = "node.koordinator.sh/cpu-reclaim-ratio"

    def percent(**meta: Any) -> int:
        return resolved(strategy(result, **meta)).cpu_reclaim_percent

    assert percent() == 61
    assert percent(labels={"pool": "a"}) == 62
    assert percent(labels={"pool": "b"}, annotations=annotations) == 90
    assert percent(labels={label: "0.75"}, annotations=annotations) == 75
    assert strategy(result, labels={"pool": "a"}).memory_calculate_policy == "request"
    assert percent(annotations={"node.koordinator.sh/colocation-strategy": "{"}) == 61


@pytest.mark.parametrize(
    ("text", "percent"),
    [("0.7", 70), ("0.29", 28), ("1.5", 150), ("-1", 60), ("x", 60), ("nan", 60), ("", 60)],
)
def test_ratio_labels_are_cut_to_percentages(text: str, percent: int) -> None:
    """Floating-point rounding applies; invalid values are ignored."""
    result = read()
    labels = {"node.koordinator.sh/cpu-reclaim-ratio": text}

    assert resolved(strategy(result, labels=labels)).cpu_reclaim_percent == percent


@pytest.mark.parametrize(
    ("cluster", "own", "is_on"), [(False, True, False), (True, False, False), (True, True, True)]
)
def test_only_the_cluster_switches_on(cluster: bool, own: bool, is_on: bool) -> None:
    """A node can be excepted from it, but not be the only one: so the original."""
    entry = selected("a", pool="a") | {"enable": own}
    result = read(colocation={"enable": cluster, "nodeConfigs": [entry]})

    assert result.colocation is not None
    assert is_colocated(result.colocation, strategy(result, labels={"pool": "a"})) is is_on


def test_a_node_has_the_first_strategy_that_fits_over_that_of_the_cluster() -> None:
    """Objects are merged field by field, lists are replaced."""
    result = read(
        resource_threshold={
            "clusterStrategy": {"enable": True, "cpuSuppressThresholdPercent": 60},
            "nodeStrategies": [selected("a", pool="a") | {"cpuSuppressThresholdPercent": 40}],
        },
        resource_qos={
            "clusterStrategy": {
                "beClass": {"cpuQOS": {"enable": True, "groupIdentity": -1}},
                "policies": {"cpuPolicy": "groupIdentity"},
            },
            "nodeStrategies": [
                selected("a", pool="a") | {"beClass": {"cpuQOS": {"groupIdentity": 0}}}
            ],
        },
        system={
            "clusterStrategy": {"totalNetworkBandwidth": "100M", "schedFeatures": {"A": True}},
            "nodeStrategies": [selected("a", pool="a") | {"schedFeatures": {"B": False}}],
        },
    )

    plain, own = rendered(result), rendered(result, labels={"pool": "a"})

    assert plain["resourceUsedThresholdWithBE"]["cpuSuppressThresholdPercent"] == 60
    assert own["resourceUsedThresholdWithBE"] == {
        **DEFAULT_SLO["resourceUsedThresholdWithBE"],
        "enable": True,
        "cpuSuppressThresholdPercent": 40,
    }
    assert own["resourceQOSStrategy"] == {
        "policies": {"cpuPolicy": "groupIdentity"},
        "beClass": {"cpuQOS": {"enable": True, "groupIdentity": 0}},
    }
    assert plain["systemStrategy"]["totalNetworkBandwidth"] == "100M"
    assert own["systemStrategy"] == {  # a bandwidth is always written, 0 if none is named
        "totalNetworkBandwidth": "0",
        "schedFeatures": {"A": True, "B": False},
    }


def test_host_applications_of_a_node_replace_all_others() -> None:
    """Lists of host applications are not merged."""
    one = {"name": "one", "priority": "koord-prod"}
    two = {"name": "two", "qos": "BE", "cgroupPath": {"base": "CgroupRoot"}}
    result = read(
        host_application={
            "applications": [one],
            "nodeConfigs": [selected("a", pool="a") | {"applications": [two]}],
        }
    )

    assert rendered(result)["hostApplications"] == [one]
    assert rendered(result, labels={"pool": "a"})["hostApplications"] == [two]


def test_the_bandwidth_of_a_node_goes_before_all() -> None:
    """An unreadable annotation omits the whole strategy and is a problem."""
    key = "node.koordinator.sh/network-bandwidth"
    result = read(system={"clusterStrategy": {"totalNetworkBandwidth": "100M"}})

    good = rendered(result, annotations={key: "5M"})
    bad = render_slo(result, node(amounts(1, 1), annotations={key: "fast"}), None)

    assert good["systemStrategy"]["totalNetworkBandwidth"] == "5M"
    assert bad.spec.system_strategy is None
    assert key in bad.problem


@pytest.mark.parametrize(
    ("name", "good", "bad", "reason"),
    [
        ("colocation", {"enable": True}, "{", "ColocationCfgUnmarshalFailed"),
        ("colocation", {"enable": True}, {"cpuReclaimThresholdPercent": -1}, "ColocationCfg"),
        ("colocation", {"enable": True}, {"resourceDiffThreshold": 1.5}, "ColocationCfg"),
        ("colocation", {"enable": True}, {"nodeConfigs": [{"name": "x"}]}, "ColocationCfg"),
        (
            "resource_threshold",
            {"clusterStrategy": {"enable": True}},
            {"clusterStrategy": {"cpuSuppressThresholdPercent": 130}},
            "SLOCfgUnmarshalFailed",
        ),
        (
            "resource_threshold",
            {"clusterStrategy": {"enable": True}},
            {"clusterStrategy": {"memoryEvictLowerPercent": 75}},
            "SLOCfgUnmarshalFailed",
        ),
        (
            "resource_threshold",
            {"clusterStrategy": {"enable": True}},
            {"nodeStrategies": [selected("a", p="x"), selected("b", p="x", q="y")]},
            "SLOCfgUnmarshalFailed",
        ),
        (
            "resource_qos",
            {"clusterStrategy": {"beClass": {"cpuQOS": {"enable": True}}}},
            {"clusterStrategy": {"beClass": {"networkQOS": {"ingressRequest": 120}}}},
            "SLOCfgUnmarshalFailed",
        ),
        (
            "system",
            {"clusterStrategy": {"totalNetworkBandwidth": "1M"}},
            {"clusterStrategy": {"watermarkScaleFactor": 500}},
            "SLOCfgUnmarshalFailed",
        ),
        (
            "cpu_normalization",
            {"enable": True},
            {"defaultRatio": "much"},
            "CPUNormalizationCfgUnmarshalFailed",
        ),
        (
            "resource_amplification",
            {"enable": True},
            "nonsense",
            "ResourceAmplificationCfgUnmarshalFailed",
        ),
    ],
)
def test_invalid_section_has_no_effect(name: str, good: Any, bad: Any, reason: str) -> None:
    """The last valid section stays in effect, and a problem is returned.

    This applies to all that the webhook rejects, also if the webhook is off.
    """
    before = read(**{name: good})
    decoded, problems = read_config(config(**{name: bad}, cpu_burst={}), before)

    (problem,) = problems
    assert problem.reason.startswith(reason)
    assert problem.key in decoded.rejected
    fields = [each for each in SloConfig.__slots__ if each != "rejected"]
    assert [getattr(decoded, each) for each in fields] == [getattr(before, each) for each in fields]


def test_invalid_section_at_the_start_keeps_the_node_slo() -> None:
    """The last valid section is unknown, so the existing NodeSLO is kept."""
    decoded, _ = read_config(config(resource_threshold="{", colocation="{"))
    old = render_slo(
        read(resource_threshold={"clusterStrategy": {"enable": True}}), node(amounts(1, 1)), None
    ).spec

    assert decoded.colocation is None
    assert rendered(decoded, old)["resourceUsedThresholdWithBE"]["enable"] is True
    assert rendered(decoded) == DEFAULT_SLO


def test_a_refused_strategy_of_nodes_leaves_them_to_the_cluster() -> None:
    """The rest of the section applies, and a problem names the strategy."""
    entries = [selected("a", pool="a") | {"degradeTimeMinutes": 0, "midUnallocatedPercent": 7}]
    section = {"enable": True, "midUnallocatedPercent": 5, "nodeConfigs": entries}
    decoded, (problem,) = read_config(config(colocation=section))

    assert resolved(strategy(decoded, labels={"pool": "a"})).mid_unallocated_percent == 5
    assert "'a'" in problem.message


def test_one_number_of_a_pair_is_enough() -> None:
    """The original's webhook wants both, which can't be meant: without the webhook one counts."""
    result = read(resource_threshold={"clusterStrategy": {"memoryEvictThresholdPercent": 80}})

    strategy_ = rendered(result)["resourceUsedThresholdWithBE"]
    assert strategy_["memoryEvictThresholdPercent"] == 80
