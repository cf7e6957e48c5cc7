"""``koord koordlet``: flags, and what ``audit`` shows."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from koordinator.cli.commands import COMMANDS
from koordinator.cli.component.original_flags import OF_KOORDLET
from koordinator.cli.main import app
from koordinator.foundation.clock import to_datetime
from koordinator.foundation.errors import HostError, InputError
from koordinator.host.linux.host import LinuxHost
from koordinator.koordlet.executor.audit import AgentAuditTrail, AuditEvent

RUNNER = CliRunner()
#: One per line.  Source: koordinator cmd/koordlet/options, pkg/koordlet: every InitFlags.
ORIGINAL = set(Path(__file__).with_name("koordlet_flags.txt").read_text().split())


def trail(folder: Path) -> None:
    """Leave three events in a folder."""
    written = AgentAuditTrail(LinuxHost(), str(folder))
    events = [("cgroup", "default/a", ""), ("cgroup", "default/ab", "no"), ("file", "node", "")]
    for second, (kind, owner, error) in enumerate(events):
        written.add(
            AuditEvent(
                created_at=to_datetime(1_700_000_000 + second),
                type=kind,
                owner=owner,
                target="/x",
                before="1",
                after="2",
                reason="because",
                error=error,
            )
        )
    written.flush(0.0)


def shown(folder: Path, *flags: str) -> list[str]:
    """Return the lines that the command prints."""
    command = ["koordlet", "audit", f"--audit-log-dir={folder}", *flags]
    return RUNNER.invoke(app, command, catch_exceptions=False).output.splitlines()


def test_the_audit_is_one_line_per_change_the_newest_first(tmp_path: Path) -> None:
    """A line has the owner, the file, the old and new value, and the reason."""
    trail(tmp_path)

    assert shown(tmp_path) == [
        "2023-11-14T22:13:22Z file node /x: 1 -> 2 (because)",
        "2023-11-14T22:13:21Z cgroup default/ab /x: 1 -> 2 FAILED: no (because)",
        "2023-11-14T22:13:20Z cgroup default/a /x: 1 -> 2 (because)",
    ]


def test_the_audit_can_be_narrowed_down(tmp_path: Path) -> None:
    """A pod's name is not the beginning of another's."""
    trail(tmp_path)

    assert len(shown(tmp_path, "--owner=default/a")) == 1
    assert len(shown(tmp_path, "--type=cgroup")) == 2
    assert len(shown(tmp_path, "--failed")) == 1
    assert len(shown(tmp_path, "--size=1")) == 1
    events = json.loads("\n".join(shown(tmp_path, "--output=json")))["events"]
    assert [event["owner"] for event in events] == ["node", "default/ab", "default/a"]


def test_a_disabled_audit_is_reported(tmp_path: Path) -> None:
    """The folder is named."""
    with pytest.raises(HostError, match=f"no audit log in {tmp_path}"):
        shown(tmp_path)


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ([], "--node-name: is required"),
        (["--node-name=n", "--feature-gates=Typo=true"], "unknown feature gate 'Typo'"),
        (["--node-name=n", "--feature-gates=BECPUEvict=yes"], "must be BECPUEvict=true or"),
    ],
)
def test_wrong_flags_are_named(
    flags: list[str], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is started."""
    monkeypatch.delenv("NODE_NAME", raising=False)
    with pytest.raises(InputError, match=problem):
        RUNNER.invoke(app, ["koordlet", *flags], catch_exceptions=False)


def test_no_flag_of_the_original_is_unknown() -> None:
    """Each flag exists or has a reason for its absence, never both."""
    command = COMMANDS["koordlet"].load()
    declared = {
        option.removeprefix("--") for parameter in command.params for option in parameter.opts
    }

    assert not ORIGINAL - declared - OF_KOORDLET.keys()
    assert not declared & OF_KOORDLET.keys()
