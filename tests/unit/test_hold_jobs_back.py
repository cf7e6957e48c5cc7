"""``docs/how-to/hold-jobs-back.md`` is true."""

from pathlib import Path

import yaml
from tests.markdown import code_blocks
from typer.testing import CliRunner

from koordinator.cli.main import app
from koordinator.manager.queue_units.kinds import JOB_KINDS

PAGE = (Path(__file__).parents[2] / "docs/how-to/hold-jobs-back.md").read_text("utf-8")


def test_job_of_the_page_is_admitted(tmp_path: Path) -> None:
    """By the command of the page."""
    (manifest,) = code_blocks(PAGE, "yaml")
    file = tmp_path / "jobs.yaml"
    file.write_text(manifest)
    arguments = ["manager", "--once", "--enabled-extensions=job", "-f", str(file)]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    shown = yaml.load(done.stdout, yaml.CSafeLoader)

    (unit,) = [it for it in shown["created"] if it["kind"] == "QueueUnit"]
    assert (unit["status"]["phase"], unit["spec"]["resource"]) == ("Dequeued", {"cpu": "32"})
    (job,) = [it for it in shown["changed"] if it["kind"] == "Job"]
    assert job["spec"]["suspend"] is False


def test_the_page_names_every_kind() -> None:
    """A new one needs a line."""
    assert all(f"`{kind.name}`" in PAGE for kind in JOB_KINDS)
