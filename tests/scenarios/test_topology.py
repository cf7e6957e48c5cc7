"""Example of gathered jobs, compared with its description."""

import json
from pathlib import Path

from typer.testing import CliRunner

from koordinator.cli.main import app

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_example_gathers_its_jobs() -> None:
    """Six in the block of four and two, in order; twelve in the other spine, four to a node."""
    files = ["-f", str(EXAMPLES / "topology.yaml")]
    config = ["--config", str(EXAMPLES / "topology-scheduler.yaml")]

    done = CliRunner().invoke(app, ["schedule", *files, *config, "-o", "json"])

    placed = {one["pod"]: one["node"] for one in json.loads(done.stdout)["placements"]}
    near = [placed[f"default/near-{index}"] for index in range(6)]
    far = [placed[f"default/far-{index}"] for index in range(12)]
    assert near == ["n2"] * 4 + ["n3"] * 2
    assert far == ["n4"] * 4 + ["n5"] * 4 + ["n6"] * 4
