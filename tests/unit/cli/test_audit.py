"""``koord audit`` on files."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from koordinator.cli.main import app
from koordinator.domain.audit import AuditedPod, AuditEntry, AuditOutcome, to_lines
from koordinator.foundation.errors import InputError


@pytest.fixture
def trail(tmp_path: Path) -> str:
    """Write a trail of two files."""
    bound = AuditEntry(
        at_s=2.0, outcome=AuditOutcome.BOUND, pods=(AuditedPod("a/x", "n1", 2),), plugin="Fit"
    )
    refused = AuditEntry(
        at_s=1.0,
        outcome=AuditOutcome.UNSCHEDULABLE,
        pods=(AuditedPod("a/x", "", 1),),
        plugin="Fit",
        reason="Insufficient cpu",
        job="a/job",
    )
    (tmp_path / "audit.jsonl.1").write_bytes(to_lines([refused]))
    (tmp_path / "audit.jsonl").write_bytes(to_lines([bound]))
    return str(tmp_path)


def test_a_folder_is_read_oldest_first(trail: str) -> None:
    """The list shows what happened in order."""
    done = CliRunner().invoke(app, ["audit", trail, "--list", "-o", "json"])

    outcomes = [it["outcome"] for it in json.loads(done.stdout)["entries"]]
    assert outcomes == ["unschedulable", "bound"]


def test_the_summary_for_people(trail: str) -> None:
    """Rejected jobs with the reason."""
    done = CliRunner().invoke(app, ["audit", trail])

    assert "1 unschedulable, 1 bound" in done.stdout
    assert "a/job" in done.stdout
    assert "Insufficient cpu" in done.stdout


def test_filters_restrict_list_and_summary(trail: str) -> None:
    """Entries that are filtered out of the list are not in the summary, either."""
    arguments = ["audit", trail, "--outcome", "bound", "-o", "json"]
    done = CliRunner().invoke(app, arguments)

    document = json.loads(done.stdout)
    assert document["pods"] == {"bound": 1}
    assert document["rejected"] == []


@pytest.mark.parametrize(
    ("flag", "shown"),
    [
        ("--pod=a/x", ["a/x"]),
        ("--pod=a/*", ["a/x", "a/y"]),
        ("--node=n2", ["a/y", "b/z"]),
        ("--pod=c/*", []),
    ],
)
def test_pods_and_nodes_are_chosen_one_by_one(tmp_path: Path, flag: str, shown: list[str]) -> None:
    """Other pods that were decided together with them are neither listed nor counted."""
    together = (AuditedPod("a/x", "n1", 1), AuditedPod("a/y", "n2", 1), AuditedPod("b/z", "n2", 1))
    entry = AuditEntry(at_s=2.0, outcome=AuditOutcome.BOUND, pods=together)
    file = tmp_path / "audit.jsonl"
    file.write_bytes(to_lines([entry]))
    arguments = ["audit", str(file), flag, "-o", "json"]
    listed = json.loads(CliRunner().invoke(app, [*arguments, "--list"]).stdout)["entries"]
    counted = json.loads(CliRunner().invoke(app, arguments).stdout)["pods"]

    assert [pod[0] for entry in listed for pod in entry["pods"]] == shown
    assert counted == ({"bound": len(shown)} if shown else {})


def test_files_or_a_server() -> None:
    """A command without files and server is an error that lists the accepted values."""
    done = CliRunner().invoke(app, ["audit"])

    assert isinstance(done.exception, InputError)
    assert "must be given either files or --server, got neither" in str(done.exception)


def test_a_folder_without_a_trail_is_a_mistake(tmp_path: Path) -> None:
    """The folder is an error, and not taken for a scheduler without decisions."""
    done = CliRunner().invoke(app, ["audit", str(tmp_path)])

    assert isinstance(done.exception, InputError)
    assert "has no audit.jsonl" in str(done.exception)


def test_lines_that_are_torn_are_left_out(trail: str) -> None:
    """A line that is being written yields nothing yet; other torn lines are reported."""
    former, current = Path(trail) / "audit.jsonl.1", Path(trail) / "audit.jsonl"
    former.write_bytes(b'{"atS":0,"outc\n' + former.read_bytes())
    current.write_bytes(current.read_bytes() + b'{"atS":3,"outc')
    (Path(trail) / "audit.jsonl.gz").write_bytes(b"not ours")
    done = CliRunner().invoke(app, ["audit", trail, "--list", "-o", "json"])

    assert len(json.loads(done.stdout)["entries"]) == 2
    assert done.stderr.startswith("warning: 1 lines are left out, the first: ")
    assert "audit.jsonl.1:1" in done.stderr
