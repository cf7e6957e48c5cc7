"""Denials of slo-controller-config by the webhook, with the messages of the original."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.manager.node_resources.nodes import amounts, node

from koordinator.api.core import ConfigMap
from koordinator.api.meta import ObjectMeta
from koordinator.foundation.errors import InputError
from koordinator.manager.configuration.checks import check_config, check_node


def config(**sections: Any) -> ConfigMap:
    """Return a ConfigMap; underscores in names become dashes."""
    data = {
        f"{name.replace('_', '-')}-config": each if isinstance(each, str) else json.dumps(each)
        for name, each in sections.items()
    }
    meta = ObjectMeta(name="slo-controller-config", namespace="koordinator-system")
    return ConfigMap(metadata=meta, data=data)


def refusal(new: ConfigMap, **more: Any) -> Any:
    """Return reason and message of the refusal."""
    with pytest.raises(InputError) as caught:
        check_config(new, more.pop("old", None), more.pop("nodes", ()), **more)
    return json.loads(str(caught.value).removeprefix("___").removesuffix("___"))


def selected(name: str, **labels: str) -> dict[str, Any]:
    """Return the beginning of a strategy for nodes."""
    return {"name": name, "nodeSelector": {"matchLabels": labels}}


@pytest.mark.parametrize(
    ("sections", "path", "problem"),
    [
        (
            {"colocation": {"degradeTimeMinutes": 0}},
            "ColocationCfg.ColocationStrategy.DegradeTimeMinutes",
            "DegradeTimeMinutes must be 1 or greater",
        ),
        (
            {"colocation": {"resourceDiffThreshold": 1.5}},
            "ColocationCfg.ColocationStrategy.ResourceDiffThreshold",
            "ResourceDiffThreshold must be 1 or less",
        ),
        (
            {
                "colocation": {
                    "nodeConfigs": [selected("a", a="b") | {"midCPUThresholdPercent": 101}]
                }
            },
            "ColocationCfg.NodeConfigs[0].ColocationStrategy.MidCPUThresholdPercent",
            "MidCPUThresholdPercent must be 100 or less",
        ),
        (
            {"resource_threshold": {"clusterStrategy": {"cpuSuppressThresholdPercent": 130}}},
            "ResourceThresholdCfg.ClusterStrategy.CPUSuppressThresholdPercent",
            "CPUSuppressThresholdPercent must be 100 or less",
        ),
        (
            {"resource_threshold": {"clusterStrategy": {"cpuEvictTimeWindowSeconds": 0}}},
            "ResourceThresholdCfg.ClusterStrategy.CPUEvictTimeWindowSeconds",
            "CPUEvictTimeWindowSeconds must be greater than 0",
        ),
        (
            {
                "resource_threshold": {
                    "clusterStrategy": {"allocatableEvictPriorityThreshold": 8000}
                }
            },
            "ResourceThresholdCfg.ClusterStrategy.AllocatableEvictPriorityThreshold",
            "AllocatableEvictPriorityThreshold must be 7,999 or less",
        ),
        (
            {"resource_threshold": {"clusterStrategy": {"memoryEvictThresholdPercent": 70}}},
            "ResourceThresholdCfg.ClusterStrategy.MemoryEvictThresholdPercent",
            "MemoryEvictThresholdPercent must be greater than MemoryEvictLowerPercent",
        ),
        (
            {"cpu_burst": {"clusterStrategy": {"cfsQuotaBurstPercent": 99}}},
            "CPUBurstCfg.ClusterStrategy.CPUBurstConfig.CFSQuotaBurstPercent",
            "CFSQuotaBurstPercent must be 100 or greater",
        ),
        (
            {"system": {"clusterStrategy": {"watermarkScaleFactor": 401}}},
            "SystemCfg.ClusterStrategy.WatermarkScaleFactor",
            "WatermarkScaleFactor must be 400 or less",
        ),
        (
            {
                "resource_qos": {"clusterStrategy": {"beClass": {"cpuQOS": {"groupIdentity": 3}}}},
                "system": {},
            },
            "ResourceQOSCfg.ClusterStrategy.BEClass.CPUQOS.CPUQOS.GroupIdentity",
            "GroupIdentity must be 2 or less",
        ),
    ],
)
def test_numbers_out_of_range(sections: dict[str, Any], path: str, problem: str) -> None:
    """The denial has the path of the field as the original's validator spells it."""
    assert refusal(config(**sections)) == {
        "reason": "ConfigParamInvalid",
        "message": {path: problem},
    }


def test_a_pair_must_be_in_order() -> None:
    """The denial names both fields."""
    strategy = {"cpuEvictThresholdPercent": 50, "cpuEvictLowerPercent": 60}
    problems = refusal(config(resource_threshold={"clusterStrategy": strategy}))["message"]

    assert sorted(problems.values()) == [
        "CPUEvictLowerPercent must be less than CPUEvictThresholdPercent",
        "CPUEvictThresholdPercent must be greater than CPUEvictLowerPercent",
    ]


@pytest.mark.parametrize(
    ("sections", "title"),
    [
        ({"colocation": "{"}, "colocation"),
        ({"colocation": {"enable": "yes"}}, "colocation"),
        ({"cpu_burst": {"clusterStrategy": []}}, "CPUBurst"),
        ({"resource_qos": {}}, "System"),
    ],
)
def test_texts_that_are_no_configuration(sections: dict[str, Any], title: str) -> None:
    """A changed resource-qos-config needs a system-config, too: so the original."""
    result = refusal(config(**sections))

    assert result["reason"] == "ParseConfigFail"
    where = "in configmap koordinator-system/slo-controller-config, err: "
    assert result["message"].startswith(f"Failed to parse {title} config {where}")


def test_what_did_not_change_is_not_checked() -> None:
    """An old mistake doesn't keep a section from being corrected, and empty keys are not read."""
    wrong = {"degradeTimeMinutes": 0}
    old = config(colocation=wrong)

    check_config(config(colocation=wrong, cpu_burst={}, system=""), old, ())


def test_selector_of_a_node_strategy_is_required() -> None:
    """A missing and an empty selector are refused."""
    selectors: tuple[dict[str, Any] | None, ...] = (None, {})
    for selector in selectors:
        entry = {"name": "n1", "nodeSelector": selector}
        assert refusal(config(colocation={"nodeConfigs": [entry]}))["message"] == (
            "nodeConfigs NodeSelector must not empty error! "
            "configType: colocation-config,nodeConfig name:n1"
        )


def test_names_are_checked_if_configured() -> None:
    """By the flag node-strategy-name-need-check."""
    unnamed = config(system={"nodeStrategies": [selected("", a="1")]})
    twice = config(system={"nodeStrategies": [selected("x", a="1"), selected("x", b="1")]})

    check_config(unnamed, None, ())
    assert "Name need!" in refusal(unnamed, needs_names=True)["message"]
    assert "confilict" in refusal(twice, needs_names=True)["message"]


def test_strategies_that_one_selector_makes_overlap() -> None:
    """The narrower one is always picked by the wider one as well."""
    entries = [selected("a", pool="x"), selected("b", pool="x", zone="1")]

    assert refusal(config(system={"nodeStrategies": entries})) == {
        "reason": "NodeStrategiesOverlap",
        "message": {"config": "system-config", "strategies": ["a", "b"]},
    }


def test_strategies_that_a_node_makes_overlap() -> None:
    """Named with the node, whether the configuration changes or the node."""
    entries = [selected("a", pool="x"), selected("b", zone="1")]
    both = node(amounts(1, 1), labels={"pool": "x", "zone": "1"})
    one = node(amounts(1, 1), labels={"pool": "x"})
    new = config(resource_threshold={"nodeStrategies": entries})
    expected = {
        "reason": "ExistNodeConfict",
        "message": {
            "config": "resource-threshold-config",
            "strategies": ["a", "b"],
            "exampleNodes": ["n"],
        },
    }

    check_config(new, None, [one])
    assert refusal(new, nodes=[one, both]) == expected
    check_node(one, new)
    with pytest.raises(InputError, match="ExistNodeConfict"):
        check_node(both, new)


@pytest.mark.parametrize(
    ("request_", "problem"),
    [
        ([60, 50], "ClusterStrategy total net bandwidth percentage already over 100"),
        ([10, "20"], "only one type can be used for percentages or quantity in clusterStrategy"),
        ([101, None], "must be percentage value just in 0-100'"),
        (["40M", None], "total net bandwidth over total network bandwidth in clusterStrategy"),
        ([10, None], "total net bandwidth over total network bandwidth in clusterStrategy"),
        (["x", None], "Invalid value"),
    ],
)
def test_bandwidths_that_cannot_be_kept(request_: list[Any], problem: str) -> None:
    """Percentages beyond 100, or of no known total; quantities beyond the total."""
    first, second = ({"networkQOS": {"ingressRequest": each}} for each in request_)
    qos = {"clusterStrategy": {"lsClass": first, "beClass": second}}

    with pytest.raises(InputError, match=problem):
        check_config(config(resource_qos=qos, system={"clusterStrategy": {}}), None, ())


def test_bandwidths_that_can_be_kept() -> None:
    """Percentages, with a total to which they apply."""
    qos = {"clusterStrategy": {"beClass": {"networkQOS": {"egressRequest": 30}}}}
    system = {"clusterStrategy": {"totalNetworkBandwidth": "10"}}

    check_config(config(resource_qos=qos, system=system), None, ())


@settings(max_examples=examples(30))
@given(
    st.lists(st.integers(0, 60), min_size=3, max_size=3),
    st.sampled_from(["egressRequest", "ingressRequest"]),
    st.booleans(),
    st.booleans(),
)
def test_bandwidths_of_classes_fit_in_the_total(
    megabits: list[int], field: str, per_node: bool, has_own_total: bool
) -> None:
    """Bandwidths of classes may add up to 100M, the nodes' total; other nodes do not matter."""
    classes = ("lsrClass", "lsClass", "beClass")
    qos: dict[str, Any] = {
        name: {"networkQOS": {field: f"{amount}M", field.replace("Request", "Limit"): "5G"}}
        for name, amount in zip(classes, megabits, strict=True)
    }
    selector = {"name": "a", "nodeSelector": {"matchLabels": {"pool": "a"}}}
    other = {"name": "b", "nodeSelector": {"matchLabels": {"pool": "b"}}}
    whole = {"totalNetworkBandwidth": "100M"}
    system: dict[str, Any] = {"clusterStrategy": whole}
    if per_node:
        tiny = {"totalNetworkBandwidth": "1"}
        nodes = [{**other, **tiny}, *([{**selector, **whole}] if has_own_total else [])]
        system = {"clusterStrategy": tiny if has_own_total else whole, "nodeStrategies": nodes}
    wanted = {"nodeStrategies": [{**selector, **qos}]} if per_node else {"clusterStrategy": qos}
    made = config(resource_qos=wanted, system=system)

    if sum(megabits) <= 100:
        check_config(made, None, ())
    else:
        with pytest.raises(InputError, match="over total network bandwidth"):
            check_config(made, None, ())


def test_the_bandwidths_of_the_page_of_the_node_agent_are_taken() -> None:
    """The values of the chart that the page shows."""
    page = Path(__file__).parents[4] / "docs/how-to/run-the-node-agent.md"
    (text,) = re.findall(r"```yaml\n(manager:.*?)```", page.read_text(), re.DOTALL)
    sections = yaml.load(text, yaml.CSafeLoader)["manager"]["config"]
    made = config(resource_qos=sections["resource-qos-config"], system=sections["system-config"])

    check_config(made, None, ())
