"""``koord explain`` on manifests: pods with known causes, every one named and none invented."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.deploy.installed import ROOT, scheduler_configuration
from typer.testing import CliRunner

from koordinator.cli.main import app

PENDING = ROOT / "tests/golden/explain/pending.yaml"
NOW = "2026-01-01T12:00:10Z"

SELECTOR = "node(s) didn't match Pod's node affinity/selector"
CPU, TAINTED = "Insufficient cpu", "node(s) had untolerated taint(s)"
NO_RESERVATION = "node(s) no reservations match reservation affinity"

#: By pod: what is against it on the node it asks for, or on all of them; what is said of it.
ON_NODE: dict[str, tuple[str, set[str], str]] = {
    "resources": ("web-2", {CPU}, "cpu: asks for 2, 1 of 4 free"),
    "taint": ("infra", {TAINTED}, "dedicated=infra:NoSchedule"),
    "taint-and-resources": ("infra", {TAINTED, CPU}, "cpu: asks for 3, 2 of 4 free"),
    "affinity": ("gpu", {SELECTOR}, "disk In ssd"),
    "nodename": ("gpu", {SELECTOR}, "metadata.name In gone"),
    "spread": (
        "web-1",
        {"node(s) didn't match pod topology spread constraints"},
        "zone=a has 2 such pods, another domain 0, maxSkew is 1",
    ),
    "anti-affinity": (
        "web-1",
        {"node(s) didn't match pod anti-affinity rules"},
        "2 pods that it keeps off are in its kubernetes.io/hostname",
    ),
    "port": (
        "web-1",
        {"node(s) didn't have free ports for the requested pod ports"},
        "TCP 8080 is taken",
    ),
    "load": (
        "hot",
        {"node(s) cpu usage exceed threshold"},
        "cpu: 7600m in use and 850m of the pod, of 5239m at most",
    ),
    "device-broken": (
        "gpu",
        {"Insufficient gpu devices"},
        "gpu: asks for 2, 1 of 2 have so much left, 1 is not healthy (minor 1)",
    ),
    "numa": (
        "numa",
        {"Unaligned NUMA Hint cause cpu prefer [11] among [11],memory prefer [11] among [11]"},
        "Unaligned NUMA Hint",
    ),
    "reservation-small": (
        "infra",
        {"Reservation(s) Insufficient cpu, requested: 3000, used: 0, capacity: 2000"},
        "capacity: 2000",
    ),
}
WHATEVER_THE_NODE = {
    "volume": ("VolumeRestrictions, VolumeBinding, VolumeZone", 'claim "data" not found'),
    "gate": ("SchedulingGates", "waiting for scheduling gates: [example.com/approval]"),
    "quota": ("ElasticQuota", "exceedDimensions: [cpu]"),
    "gang-short": ("Coscheduling", "gang default/short needs 3 members"),
    "reservation-other": ("Reservation", NO_RESERVATION),
    "near-0": ("Coscheduling", "best was BlockLayer/b4 with room for 1 of 2"),
    "near-1": ("Coscheduling", "best was BlockLayer/b4 with room for 1 of 2"),
    "other-scheduler": ("", "spec.schedulerName is 'volcano'"),
}
ALONE = set(WHATEVER_THE_NODE) - {"near-0", "near-1"}  # a node takes them but for that


@pytest.fixture(scope="module")
def explained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Ask about all of them at once, with the configuration that is installed."""
    configuration = scheduler_configuration()
    del configuration["leaderElection"]
    configuration["profiles"][0]["schedulerName"] = "default-scheduler"
    path = tmp_path_factory.mktemp("explain") / "config.yaml"
    path.write_text(yaml.safe_dump(configuration))
    done = CliRunner().invoke(app, asking(path, "-o", "json"))
    assert done.exception is None, done.exception
    return {one["pod"].removeprefix("default/"): one for one in json.loads(done.stdout)["pods"]}


def asking(config: Path, *more: str) -> list[str]:
    return ["explain", "pod", "-f", str(PENDING), "--config", str(config), "--now", NOW, *more]


def test_exactly_these_pods_wait(explained: dict[str, Any]) -> None:
    """Each for a cause that is known."""
    assert set(explained) == {*ON_NODE, *WHATEVER_THE_NODE}
    assert {one["verdict"] for one in explained.values()} == {"waits"}


@pytest.mark.parametrize("name", ON_NODE)
def test_every_cause_on_a_node_is_named_and_none_is_invented(
    explained: dict[str, Any], name: str
) -> None:
    """The node that the pod is meant for comes first of those with the same obstacles."""
    on, reasons, detail = ON_NODE[name]
    found = explained[name]

    (near,) = (it for it in found["nearest"] if it["node"] == on)
    assert set(near["reasons"]) == reasons
    assert detail in "; ".join(near["details"])
    decisive = {it["reason"] for it in found["causes"] if it.get("decisive", True)}
    assert reasons <= decisive
    assert not [it for it in found["causes"] if not it.get("nodes")]


@pytest.mark.parametrize("name", WHATEVER_THE_NODE)
def test_a_cause_that_holds_everywhere_is_the_only_one(
    explained: dict[str, Any], name: str
) -> None:
    """What some node has against the pod is no cause while another would take it."""
    plugin, reason = WHATEVER_THE_NODE[name]
    everywhere = [it for it in explained[name]["causes"] if not it.get("nodes")]

    assert [it["plugin"] for it in everywhere] == [plugin]
    assert reason in everywhere[0]["reason"]
    if name in ALONE:
        assert explained[name]["causes"] == everywhere


def test_remedies_are_those_that_somebody_can_follow(explained: dict[str, Any]) -> None:
    """Nobody can make a node another one, or preempt what no priority reaches."""
    told = {name: [it["text"] for it in one.get("remedies", ())] for name, one in explained.items()}

    assert told["gate"] == [
        "open the scheduling gates [example.com/approval]: whoever closed them has to"
    ]
    assert "take the taint off infra (dedicated=infra:NoSchedule)" in told["taint"]
    assert told["quota"][0].startswith("raise the max of quota team by cpu:500m")
    assert told["nodename"] == []
    assert told["reservation-small"] == []
    assert all("add a node" not in text for text in told["spread"])


def test_the_same_for_people(tmp_path: Path) -> None:
    """Causes, nodes and remedies as text."""
    config = tmp_path / "config.yaml"
    config.write_text(
        "{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration}"
    )
    done = CliRunner().invoke(app, asking(config, "taint"))

    assert "default/taint waits: none of 6 nodes takes it" in done.stdout
    assert "TaintToleration: 1 node(s) had untolerated taint(s) (dedicated=infra:NoSchedule)" in (
        done.stdout
    )
    assert "- take the taint off infra" in done.stdout
