"""Page /apis/v1/plugins/LoadAwareScheduling/node/NAME."""

from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from tests.unit.scheduler.conftest import World
from tests.worlds import START_S, add, configuration, metric, node, pod, used

from koordinator.scheduler.features.metrics import SchedulerMetrics
from koordinator.scheduler.features.nodes import load_page
from koordinator.scheduler.plugins.load_aware import PLUGIN
from koordinator.scheduler.snapshot import ResourceAxis
from koordinator.simulator import Embedded

RULES = PLUGIN.build(PLUGIN.args(), ResourceAxis()).rules


def test_page_has_pods_and_their_estimates(world: World) -> None:
    """Estimates are quantities; pods covered by a measurement are not part of the delta."""
    prod = {"koordinator.sh/priority-class": "koord-prod"}
    state = world(node("n"), pod("old", cpu=1, on="n", labels=prod))
    state.advance(START_S)
    add(state, pod("new", cpu=2, memory="1Gi", on="n"))
    add(state, metric("n", cpu=1, pods={"old": used("300m", "1Gi")}, prod=["old"]))
    page = load_page(state, RULES, "n")

    assert [(it["timestamp"], it["pod"]["metadata"]["name"]) for it in page.pop("pods")] == [
        ("1970-01-01T00:00:00Z", "old"),
        ("2023-11-14T22:13:20Z", "new"),
    ]
    assert page == {
        "prodUsage": {"cpu": "300m", "memory": "1Gi"},
        "nodeDelta": {"cpu": "1700m", "memory": "751619277"},
        "prodDelta": {"cpu": "1700m", "memory": "751619277"},
        "nodeEstimated": {"cpu": "2550m", "memory": "961334477"},
        "nodeDeltaPods": ["default/new"],
        "prodDeltaPods": ["default/new"],
        "nodeEstimatedPods": ["default/new", "default/old"],
    }


def test_page_without_report_has_only_the_pods(world: World) -> None:
    """Fields without a value are left out."""
    state = world(node("n"), pod("p", on="n"), node("idle"), metric("idle", cpu=1))

    assert load_page(state, RULES, "m") == {}
    assert load_page(state, RULES, "n").keys() == {"pods"}
    assert load_page(state, RULES, "idle").keys() == {
        "prodUsage",
        "nodeDelta",
        "prodDelta",
        "nodeEstimated",
    }


@pytest.mark.parametrize("measured", [False, True])
def test_page_exists_before_any_pod_is_scheduled(measured: bool) -> None:
    """The page uses the rules of the first profile with the plugin, timed or not."""
    config = configuration(plugins={"filter": {"enabled": [{"name": PLUGIN.name}]}})
    metrics = SchedulerMetrics(CollectorRegistry()) if measured else None
    one = Embedded(config, now_s=START_S, metrics=metrics)
    one.load([node("n"), metric("n", cpu=1), pod("p", 1, on="n")])
    pages = one.scheduler.pages(lambda question: question())

    shown: Any = pages["/plugins/LoadAwareScheduling/node/{nodeName}"]({"nodeName": "n"})
    assert shown["nodeDeltaPods"] == ["default/p"]
