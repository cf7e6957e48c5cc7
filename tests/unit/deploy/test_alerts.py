"""Alerts: their metrics exist with the labels they select, and each has a runbook page."""

import re
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry
from tests.unit.deploy.installed import CHART, ROOT, VALUES
from tests.unit.scheduler.watches import restarted
from tests.worlds import START_S, node

from koordinator.cli.component.election import MASTER_STATUS
from koordinator.cli.component.process import RequestMetrics
from koordinator.cli.manager.process import IS_LEADER
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.descheduler.metrics import DeschedulerMetrics
from koordinator.foundation.clock import VirtualClock
from koordinator.koordlet.app.metrics import NodeGauges
from koordinator.manager.metrics import ManagerMetrics
from koordinator.process.admission_reviews import ReviewMetrics
from koordinator.process.termination import FaultMetrics
from koordinator.scheduler.features.metrics import SchedulerMetrics

GROUPS = yaml.load((CHART / "files/alerts.yaml").read_text("utf-8"), yaml.CSafeLoader)["groups"]
ALERTS: dict[str, Any] = {rule["alert"]: rule for group in GROUPS for rule in group["rules"]}
RUNBOOKS = ROOT / "docs/runbooks"
COMPONENTS = ("koord_scheduler", "koord_manager", "koord_descheduler", "koordlet")
SUFFIXES = {"histogram": ("_bucket", "_count", "_sum"), "counter": ("_total",), "gauge": ("",)}
#: Labels and a metric that Prometheus adds to what it scrapes.
OF_PROMETHEUS = frozenset({"instance", "job", "le"})
WORDS = frozenset(
    {"absent", "by", "histogram_quantile", "increase", "max", "min", "or", "rate", "sum"}
)
NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
SELECTED = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\s*\{([^}]*)\}")


@pytest.fixture(scope="module")
def labels() -> dict[str, frozenset[str]]:
    """Return the labels of every series that the components export, by name."""
    registry, clock = CollectorRegistry(), VirtualClock(START_S)
    cluster = MemoryCluster(clock)
    cluster.load([node("n")])
    restarted(cluster, clock, metrics=SchedulerMetrics(registry))
    RequestMetrics(registry).observe("GET", "200", "host", 0.1)
    ManagerMetrics(registry)
    ReviewMetrics(registry)
    DeschedulerMetrics(registry)
    NodeGauges(registry, "n", START_S)
    for component in COMPONENTS:
        FaultMetrics(component, registry)
    result = {
        MASTER_STATUS: frozenset({"name"}),
        IS_LEADER: frozenset[str](),
        "up": frozenset[str](),
    }
    for family in registry.collect():
        own = getattr(family, "_labelnames", ())
        for collector in registry._names_to_collectors.items():
            if collector[0] == family.name:
                own = getattr(collector[1], "_labelnames", own)
        of_samples = {label for sample in family.samples for label in sample.labels}
        for suffix in SUFFIXES.get(family.type, ("",)):
            result[family.name + suffix] = frozenset(own) | of_samples
    return result


def series(expression: str) -> set[str]:
    """Return the names of the series that an expression reads."""
    bare = re.sub(r"\[[^\]]*\]|\{[^}]*\}|\b(?:by|without)\s*\([^)]*\)", "", expression)
    return set(NAME.findall(bare)) - WORDS


@pytest.mark.parametrize("name", ALERTS)
def test_every_metric_of_an_alert_is_exported_with_its_labels(
    name: str, labels: dict[str, frozenset[str]]
) -> None:
    """A renamed metric would make an alert silent for ever."""
    expression = ALERTS[name]["expr"]

    assert series(expression)
    assert series(expression) <= labels.keys()
    for metric, selector in SELECTED.findall(expression):
        selected = set(re.findall(r"([a-z_]+)\s*(?:=~|!~|!=|=)", selector))
        assert selected <= labels[metric] | OF_PROMETHEUS
    for group in re.findall(r"\bby\s*\(([^)]*)\)", expression):
        grouped = {each.strip() for each in group.split(",")}
        for metric in series(expression):
            assert grouped <= labels[metric] | OF_PROMETHEUS


def test_every_alert_has_a_runbook_page_and_every_page_an_alert() -> None:
    """The annotation ``runbook_url`` names it."""
    pages = {path.stem for path in RUNBOOKS.glob("*.md")} - {"index"}

    assert pages == ALERTS.keys()
    index = (RUNBOOKS / "index.md").read_text("utf-8")
    for name, rule in ALERTS.items():
        assert rule["annotations"]["runbook_url"] == f"docs/runbooks/{name}.md"
        assert rule["annotations"]["summary"].endswith(".")
        page = (RUNBOOKS / f"{name}.md").read_text("utf-8")
        assert f"\nSeverity: {rule['labels']['severity']}.\n" in page
        for title in ("Meaning", "Impact", "Diagnosis", "Remedy"):
            assert f"\n## {title}\n" in page
        assert f"\n{name}\n" in index


def test_plain_manifest_has_the_rules_of_the_chart() -> None:
    """The manifest is for installations without Helm."""
    plain = yaml.load((ROOT / "deploy/alerts.yaml").read_text("utf-8"), yaml.CSafeLoader)

    assert (plain["kind"], plain["spec"]["groups"]) == ("PrometheusRule", GROUPS)


def test_chart_installs_the_rule_only_on_request() -> None:
    """The definition of PrometheusRules belongs to the Prometheus operator."""
    assert VALUES["alerts"] == {"enabled": False, "labels": {}, "runbooks": "docs/runbooks"}
