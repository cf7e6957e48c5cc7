"""Pages on Spark and on CPUs: their commands print what they show, with the files of the pages."""

import re
from pathlib import Path

import pytest
import yaml
from tests.markdown import code_blocks
from tests.unit.docs.console import ROOT, assert_shows, blocks, run

from koordinator.foundation.quantity import Quantity

PAGES = ("how-to/bind-cpus.md", "how-to/run-spark.md")


@pytest.fixture(autouse=True)
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Go where the examples are, and where files can be written."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_commands_print_what_the_page_shows(page: str) -> None:
    """In the order of the page, as one may read what another wrote."""
    done = 0
    for block in blocks(page):
        assert_shows(block, page)
        done += 1
    assert done >= 2


@pytest.mark.parametrize("page", PAGES)
def test_manifests_of_the_page_are_those_of_the_examples(page: str) -> None:
    """A reader who copies either has the same."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    examples = "".join(
        (ROOT / name).read_text("utf-8")
        for name in sorted(set(re.findall(r"examples/[\w-]+\.yaml", text)))
    )
    shown = code_blocks(text, "yaml")

    assert shown
    for manifest in shown:
        for document in re.split(r"^---\n", manifest, flags=re.MULTILINE):
            assert document in examples


def test_pods_of_the_spark_job_request_what_its_application_states(tmp_path: Path) -> None:
    """As the manager counts it when it holds the job back: with the memory overhead of Spark."""
    application = (ROOT / "examples/spark-application.yaml").read_text("utf-8")
    suspended = tmp_path / "held.yaml"
    suspended.write_text(application.replace("spec:\n", "spec:\n  suspend: true\n", 1))
    printed = run(f"koord manager --once --enabled-extensions=sparkapp -f {suspended}")
    (unit,) = yaml.load(printed, yaml.CSafeLoader)["created"]
    pods = yaml.load_all((ROOT / "examples/spark-pods.yaml").read_text("utf-8"), yaml.CSafeLoader)
    requests = [pod["spec"]["containers"][0]["resources"]["requests"] for pod in pods]

    for name, amount in unit["spec"]["resource"].items():
        total = sum(Quantity.parse(each[name]).milli() for each in requests)
        assert Quantity.parse(amount).milli() == total


def test_executors_are_created_in_one_batch() -> None:
    """Spark waits for one batch before the next: a larger gang would never be complete."""
    text = (ROOT / "examples/spark-application.yaml").read_text("utf-8")
    spec = yaml.load(text, yaml.CSafeLoader)["spec"]
    needed = spec["executor"]["annotations"]["gang.scheduling.koordinator.sh/min-available"]

    assert int(needed) <= spec["executor"]["instances"]
    assert int(needed) <= int(spec["sparkConf"]["spark.kubernetes.allocation.batch.size"])
