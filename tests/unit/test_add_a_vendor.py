"""``docs/how-to/add-a-vendor.md`` is followed to the letter, in a copy of the package."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from tests.markdown import code_blocks

import koordinator

pytestmark = pytest.mark.integration

HOW_TO = Path(__file__).parents[2] / "docs/how-to/add-a-vendor.md"
DEVICES = "koordinator/domain/devices"
KOORD = "from koordinator.cli.main import main; main()"
COMMAND = re.compile(r"^koord (.*)$", re.MULTILINE)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the package and change the copy as the page describes."""
    folder = tmp_path_factory.mktemp("vendor")
    source = Path(koordinator.__file__).parent
    shutil.copytree(source, folder / "koordinator", ignore=shutil.ignore_patterns("__pycache__"))
    vendor, test = code_blocks(HOW_TO.read_text("utf-8"), "python")
    (folder / DEVICES / "acme.py").write_text(vendor)
    (folder / "test_acme.py").write_text(test)
    (folder / "acme.yaml").write_text(code_blocks(HOW_TO.read_text("utf-8"), "yaml")[0])
    (folder / "devices.yaml").write_text(code_blocks(HOW_TO.read_text("utf-8"), "json")[0])
    listing = folder / DEVICES / "vendors.py"
    text = listing.read_text()
    for before, after in changes(code_blocks(HOW_TO.read_text("utf-8"), "diff")[0].splitlines()):
        assert before in text
        text = text.replace(before, after)
    listing.write_text(text)
    return folder


def changes(diff: Sequence[str]) -> list[tuple[str, str]]:
    """Return (before, after) of a diff: a line added before another, a line replaced."""
    (added,) = (line[1:] for line in diff[:1])
    kept, replaced, new = (line[1:] for line in diff[1:])
    return [(kept, f"{added}\n{kept}"), (replaced, new)]


def run(folder: Path, *command: str) -> str:
    """Return what Python prints when it runs with the changed package."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_test_of_the_page_passes(package: Path) -> None:
    """With the vendor's file and the two lines."""
    assert "1 passed" in run(package, "-m", "pytest", "-q", "-p", "no:cacheprovider")


@pytest.mark.slow
def test_the_pods_of_the_page_get_the_documented_annotations(package: Path) -> None:
    """A whole card, three slots of the other, and the annotation for the device plugin."""
    command = COMMAND.search(HOW_TO.read_text("utf-8"))
    assert command is not None
    printed = yaml.load(run(package, "-c", KOORD, *command[1].split()), yaml.CSafeLoader)
    pods = {it["pod"].partition("/")[2]: it["annotations"] for it in printed["placements"]}
    allocated = {
        name: json.loads(annotations["scheduling.koordinator.sh/device-allocated"])["gpu"]
        for name, annotations in pods.items()
    }

    assert [(e["minor"], e["id"]) for e in allocated["whole"]] == [(0, "acme-0")]
    assert [(e["minor"], e["resources"]["acme.example/npu-slots"]) for e in allocated["part"]] == [
        (1, "3")
    ]
    assert pods["part"]["acme.example/cards"] == "A1:1"
    assert pods["whole"]["scheduling.koordinator.sh/gpu-minors"] == "0"
