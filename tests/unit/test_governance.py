"""Files of the project that a contributor meets: they parse, and what they name exists."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from koordinator.cli.main import app

ROOT = Path(__file__).parents[2]


def test_every_package_has_an_area() -> None:
    """Paths of areas exist, and a new package is added to one."""
    areas = _areas()

    for path in areas:
        assert (ROOT / path.strip("/")).is_dir(), path
    for package in (ROOT / "src/koordinator").iterdir():
        if package.is_dir() and package.name != "__pycache__":
            assert f"/src/koordinator/{package.name}/" in areas


def test_code_owners_are_the_owners_of_the_areas() -> None:
    """An area without owners has no entry, since an entry needs an existing account."""
    lines = (ROOT / ".github/CODEOWNERS").read_text("utf-8").splitlines()
    entries = dict(line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))

    assert entries == {path: owners for path, owners in _areas().items() if owners}
    assert all(each.startswith("@") for owners in entries.values() for each in owners.split())


def _areas() -> dict[str, str]:
    """Return the owners of each path in the table of GOVERNANCE.md."""
    table = re.findall(
        r"^\| [^|]+ \| (`/[^|]+) \| ?([^|]*)\|$",
        (ROOT / "GOVERNANCE.md").read_text("utf-8"),
        re.MULTILINE,
    )
    return {path: owners.strip() for row, owners in table for path in re.findall("`(.+?)`", row)}


@pytest.mark.parametrize("name", ["bug", "feature"])
def test_issue_forms_have_a_question_that_must_be_answered(name: str) -> None:
    """Fields have unique ids."""
    form: Any = yaml.load(
        (ROOT / f".github/ISSUE_TEMPLATE/{name}.yaml").read_text("utf-8"), yaml.CSafeLoader
    )
    fields = form["body"]

    assert len({each["id"] for each in fields}) == len(fields)
    assert any(each.get("validations", {}).get("required") for each in fields)


def test_hooks_before_a_commit_are_checks_of_make_check() -> None:
    """A commit that passes the hooks passes the check, since they run the same programs."""
    config: Any = yaml.load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"), yaml.CSafeLoader)
    makefile = (ROOT / "Makefile").read_text("utf-8").replace("$(BIN)", ".venv/bin")

    for hook in (hook for repo in config["repos"] for hook in repo["hooks"]):
        program, *words = shlex.split(hook["entry"])
        command = " ".join([program, *(word for word in words if not word.startswith("--"))])
        assert command in makefile, json.dumps(hook)


def test_commands_of_the_first_contribution_work() -> None:
    """Files that they name exist, and ``koord`` prints what waits in the example."""
    page = (ROOT / "docs/development/first-contribution.md").read_text("utf-8")
    commands = re.findall(r"^ *\$ (.+)$", page, re.MULTILINE)

    assert len(commands) == 3
    for command in commands:
        for word in shlex.split(command):
            if word.startswith(("examples/", "tests/")):
                assert (ROOT / word).exists(), word
    (koord,) = (each for each in commands if each.startswith(".venv/bin/koord "))
    arguments = [
        str(ROOT / word) if word.startswith("examples/") else word
        for word in shlex.split(koord)[1:]
    ]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0
    assert "4 pods wait, for 2 reasons" in done.stdout
