"""The NodeSLO that counts on a node."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.markdown import code_blocks
from tests.nodes import LAYOUT, slo

from koordinator.api.codec import decode
from koordinator.api.node_slo import NodeSloSpec
from koordinator.foundation.errors import InputError
from koordinator.koordlet.view.slo import (
    DEFAULT_SLO,
    NO_CPU_QOS,
    NO_MEMORY_QOS,
    NO_RESCTRL_QOS,
    effective_slo,
)


def of(**sections: Any) -> NodeSloSpec:
    """Return what counts of a spec."""
    return effective_slo(slo(**sections), LAYOUT)


def test_an_empty_spec_has_the_defaults_and_everything_off() -> None:
    """Nothing is suppressed, evicted or marked, and what was marked is undone."""
    result = of()

    threshold = result.resource_used_threshold_with_be
    assert threshold == DEFAULT_SLO.resource_used_threshold_with_be
    assert result.cpu_burst_strategy == DEFAULT_SLO.cpu_burst_strategy
    classes = result.resource_qos_strategy
    assert classes is not None
    for qos in (classes.lsr_class, classes.ls_class, classes.be_class):
        assert qos is not None
        assert qos.cpu_qos == NO_CPU_QOS
        assert qos.memory_qos == NO_MEMORY_QOS
        assert qos.resctrl_qos == NO_RESCTRL_QOS


def test_given_fields_override_defaults() -> None:
    """A threshold alone keeps the default policy."""
    threshold = of(
        resourceUsedThresholdWithBE={"enable": True, "cpuSuppressThresholdPercent": 50}
    ).resource_used_threshold_with_be

    assert threshold is not None
    assert threshold.enable
    assert threshold.cpu_suppress_threshold_percent == 50
    assert threshold.cpu_suppress_policy == "cpuset"
    assert threshold.memory_evict_threshold_percent == 70


def test_an_enabled_class_gets_its_own_defaults() -> None:
    """Best effort is pushed back, the others are preferred."""
    on = {"cpuQOS": {"enable": True}, "memoryQOS": {"enable": True}, "resctrlQOS": {"enable": True}}
    classes = of(resourceQOSStrategy={"lsClass": on, "beClass": on}).resource_qos_strategy

    assert classes is not None
    assert classes.ls_class is not None
    assert classes.be_class is not None
    assert classes.ls_class.cpu_qos is not None
    assert classes.be_class.cpu_qos is not None
    assert (classes.ls_class.cpu_qos.group_identity, classes.be_class.cpu_qos.group_identity) == (
        2,
        -1,
    )
    assert classes.be_class.memory_qos is not None
    assert classes.be_class.memory_qos.wmark_min_adj == 50
    assert classes.be_class.resctrl_qos is not None
    assert classes.be_class.resctrl_qos.cat_range_end_percent == 30


def test_values_of_a_class_that_is_off_do_not_count() -> None:
    """Switching off restores what the kernel has by itself."""
    off = {
        "cpuQOS": {"enable": False, "groupIdentity": 2},
        "memoryQOS": {"enable": False, "wmarkRatio": 50},
    }
    classes = of(resourceQOSStrategy={"beClass": off, "systemClass": off}).resource_qos_strategy

    assert classes is not None
    for each in (classes.be_class, classes.system_class):
        assert each is not None
        assert each.cpu_qos == NO_CPU_QOS
        assert each.memory_qos == NO_MEMORY_QOS


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        (
            {"resourceUsedThresholdWithBE": {"cpuSuppressPolicy": "cpusets"}},
            r"cpuSuppressPolicy: must be one of cpuset, cfsQuota, got 'cpusets'",
        ),
        (
            {"cpuBurstStrategy": {"policy": "x"}},
            r"cpuBurstStrategy\.policy: must be one of .*, got 'x'",
        ),
        (
            {"resourceQOSStrategy": {"beClass": {"cpuQOS": {"groupIdentity": 3}}}},
            r"beClass\.cpuQOS\.groupIdentity: must be in -1\.\.2, got 3",
        ),
        (
            {"resourceQOSStrategy": {"systemClass": {"cpuQOS": {"groupIdentity": 3}}}},
            r"systemClass\.cpuQOS\.groupIdentity: must be in -1\.\.2, got 3",
        ),
        (
            {
                "resourceQOSStrategy": {
                    "lsClass": {
                        "resctrlQOS": {"catRangeStartPercent": 50, "catRangeEndPercent": 50}
                    }
                }
            },
            r"lsClass\.resctrlQOS\.catRangeEndPercent: must be greater than",
        ),
        (
            {"hostApplications": [{"name": "a", "cgroupPath": {"base": "Here"}}]},
            r"hostApplications\[0\]\.cgroupPath\.base: must be .*, got 'Here'",
        ),
        (
            {"hostApplications": [{"name": "a"}, {"name": "a"}]},
            r"hostApplications\[0\]\.name: must be unique and not empty, got 'a'",
        ),
    ],
)
def test_nonsense_is_refused_and_named(sections: dict[str, Any], message: str) -> None:
    """The node keeps its last valid settings."""
    with pytest.raises(InputError, match=message):
        of(**sections)


def test_the_slo_of_the_page_about_the_agent_is_one_that_a_node_follows() -> None:
    """docs/how-to/run-the-node-agent.md."""
    page = Path(__file__).parents[4] / "docs/how-to/run-the-node-agent.md"
    blocks = code_blocks(page.read_text("utf-8"), "yaml")
    objects = [yaml.load(block, yaml.CSafeLoader) for block in blocks]
    specs = [decode(one["spec"], NodeSloSpec) for one in objects if one.get("kind") == "NodeSLO"]

    effective, *_ = [effective_slo(spec, LAYOUT) for spec in specs]

    assert effective.resource_used_threshold_with_be is not None
    assert effective.resource_used_threshold_with_be.enable
