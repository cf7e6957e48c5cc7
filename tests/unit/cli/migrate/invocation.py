"""Runs of ``koord migrate`` on files, for its tests."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from typer.testing import CliRunner, Result

from koordinator.cli.main import app
from koordinator.cli.migrate.documents import Document, MigrationFinding

RUNNER = CliRunner()


@dataclass(frozen=True, slots=True)
class Report:
    """Exit status and JSON of a check."""

    status: int
    summary: dict[str, int]
    findings: list[dict[str, Any]]

    def of(self, field: str) -> dict[str, Any]:
        """Return the only finding about a field."""
        (finding,) = [each for each in self.findings if each.get("field", "") == field]
        return finding


def run(*arguments: str) -> Result:
    """Run ``koord migrate``."""
    return RUNNER.invoke(app, ["migrate", *arguments])


def check(*arguments: str) -> Report:
    """Run ``koord migrate check -o json``."""
    result = run("check", *arguments, "--output=json")
    assert isinstance(result.exception, SystemExit | None), result.exception
    return Report(result.exit_code, **json.loads(result.stdout))


def check_trees(folder: Path, *trees: Any) -> Report:
    """Check documents written to one file."""
    file = folder / "input.yaml"
    file.write_text(yaml.safe_dump_all(trees))
    return check("-f", str(file))


def document(tree: Any) -> Document:
    """Return a document of a file."""
    return Document("values.yaml", tree)


def by_field(findings: list[MigrationFinding]) -> dict[str, MigrationFinding]:
    """Return findings by their field."""
    return {each.field: each for each in findings}
