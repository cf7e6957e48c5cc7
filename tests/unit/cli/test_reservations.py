"""Reservations on the command line: decisions about them, and what is written."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from koordinator.cli.main import app

CONFIG = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [
        {
            "schedulerName": "koord-scheduler",
            "plugins": {
                point: {"enabled": [{"name": "Reservation"}]}
                for point in ("preFilter", "filter", "postFilter", "score", "reserve")
            },
        }
    ],
}
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n"},
    "status": {"allocatable": {"cpu": "4", "pods": "9"}},
}


def spec(cpu: int) -> dict[str, Any]:
    resources = {"requests": {"cpu": str(cpu)}}
    container = {"name": "c", "image": "x", "resources": resources}
    return {"schedulerName": "koord-scheduler", "containers": [container]}


def reservation(name: str, cpu: int) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": name},
        "spec": {
            "owners": [{"labelSelector": {"matchLabels": {"app": "web"}}}],
            "template": {"spec": spec(cpu)},
        },
    }


@pytest.fixture
def given(tmp_path: Path) -> tuple[str, str]:
    """Return a file of manifests and one of configuration."""
    manifests, config = tmp_path / "all.yaml", tmp_path / "config.yaml"
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "labels": {"app": "web"}},
        "spec": spec(2),
    }
    manifests.write_text(
        yaml.safe_dump_all([NODE, reservation("warm", 3), reservation("big", 9), pod])
    )
    config.write_text(yaml.safe_dump(CONFIG))
    return str(manifests), str(config)


def invoke(*arguments: str) -> Any:
    done = CliRunner().invoke(app, [*arguments, "-o", "json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_decisions_about_reservations_are_listed_by_themselves(given: tuple[str, str]) -> None:
    """Pods stay where they always were, with the reservation that they use."""
    manifests, config = given
    result = invoke("schedule", "-f", manifests, "--config", config)

    (placed,) = result["placements"]
    used = json.loads(placed["annotations"]["scheduling.koordinator.sh/reservation-allocated"])
    assert (placed["pod"], placed["node"], used["name"]) == ("default/p", "n", "warm")
    assert result["unschedulable"] == []
    warm, big = result["reservations"]
    assert (warm["reservation"], warm["node"]) == ("warm", "n")
    assert (big["reservation"], big["plugin"]) == ("big", "NodeResourcesFit")
    assert "1 Insufficient cpu" in big["message"]


def test_changed_reservations_are_printed(given: tuple[str, str]) -> None:
    """With their status, as a cluster would have them."""
    manifests, config = given
    written = invoke("scheduler", "--once", "-f", manifests, "--config", config)
    changed = {
        obj["metadata"]["name"]: obj["status"]
        for obj in written["changed"]
        if obj["kind"] == "Reservation"
    }

    assert changed["warm"]["phase"] == "Succeeded"  # it may be used once
    assert changed["warm"]["nodeName"] == "n"
    assert [owner["name"] for owner in changed["warm"]["currentOwners"]] == ["p"]
    (condition,) = changed["big"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("Scheduled", "Unschedulable")
