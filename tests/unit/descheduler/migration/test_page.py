"""Examples of the page about moving pods."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from koordinator.cli.main import app

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs/how-to/move-pods.md").read_text("utf-8")


@pytest.mark.slow
def test_the_command_of_the_page_moves_the_pod_of_the_example(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The job succeeds, and the new pod runs on the other node."""
    monkeypatch.chdir(ROOT)
    (command,) = re.findall(r"```sh\nkoord (.*)\n```", PAGE)
    done = CliRunner().invoke(app, [*command.split(), "-o", "json"], catch_exceptions=False)

    written = [each["object"] for each in json.loads(done.stdout)]
    (move,) = (each for each in written if each["kind"] == "PodMigrationJob")
    assert move["status"]["phase"] == "Succeeded"
    pods = {
        each["metadata"]["name"]: each["spec"]["nodeName"]
        for each in written
        if each["kind"] == "Pod"
    }
    assert pods == {"cart-7d9-a": "n1", move["status"]["podRef"]["name"]: "n2"}


def test_the_page_shows_the_job_of_the_example() -> None:
    """Word by word."""
    shown = re.findall(r"^spec: (.*)$", PAGE, re.MULTILINE)
    assert shown[0] in (ROOT / "examples/move.yaml").read_text("utf-8")
