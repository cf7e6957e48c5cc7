"""``koord gang``: gangs from manifests."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from koordinator.cli.main import app

MANIFEST = """
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: PodGroup
metadata: {name: train, namespace: ml}
spec: {minMember: 2}
---
apiVersion: v1
kind: Pod
metadata: {name: w-0, namespace: ml, labels: {pod-group.scheduling.sigs.k8s.io: train}}
spec: {containers: [{name: c, image: busybox}]}
"""


@pytest.fixture
def manifest(tmp_path: Path) -> str:
    path = tmp_path / "gang.yaml"
    path.write_text(MANIFEST)
    return str(path)


def test_list_has_a_line_per_gang(manifest: str) -> None:
    """With what it needs, what is there, and why it waits."""
    done = CliRunner().invoke(app, ["gang", "list", "-f", manifest])

    assert done.exit_code == 0
    assert "ml/train" in done.stdout
    assert "needs 2 members; there were 1" in done.stdout


def test_show_names_the_members(manifest: str) -> None:
    """As data for programs."""
    done = CliRunner().invoke(app, ["gang", "show", "ml/train", "-f", manifest, "-o", "json"])

    shown = json.loads(done.stdout)
    assert (shown["gang"], shown["minMember"], shown["present"]) == ("ml/train", 2, 1)
    assert [member["pod"] for member in shown["members"]] == ["ml/w-0"]


def test_show_says_which_gangs_there_are(manifest: str) -> None:
    """A name that doesn't exist is wrong input."""
    done = CliRunner().invoke(app, ["gang", "show", "other", "-f", manifest])

    assert done.exit_code != 0
    assert "accepted is one of ml/train" in str(done.exception)
