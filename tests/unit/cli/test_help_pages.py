"""Output of ``koord … -h``: everything, whole, at any width."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from koordinator.cli.commands import COMMANDS, SECTIONS
from koordinator.cli.main import app

RUNNER = CliRunner()
DURATION = re.compile(r"[0-9]+(ms|s|m|h)")


def commands() -> Iterator[tuple[list[str], Any]]:
    """Yield every command and group of commands with the words that run it."""
    for name, source in COMMANDS.items():
        loaded = source.load()
        yield [name], loaded
        for inner, command in getattr(loaded, "commands", {}).items():
            yield [name, inner], command


ALL = list(commands())


def page(words: list[str], width: int) -> str:
    done = RUNNER.invoke(app, [*words, "-h"], env={"COLUMNS": str(width)}, terminal_width=width)
    assert done.exit_code == 0
    return done.output


@pytest.mark.parametrize(
    ("words", "command"), ALL, ids=lambda it: "-".join(it) if type(it) is list else ""
)
@pytest.mark.parametrize("width", [40, 80])
def test_every_flag_is_shown_in_full_with_its_help(
    words: list[str], command: Any, width: int
) -> None:
    """Names are never cut; what stands in brackets is text, not markup."""
    text = page(words, width)
    flat = "".join(text.split())

    for parameter in command.params:
        if getattr(parameter, "hidden", False):
            continue
        help_text = getattr(parameter, "help", None)
        assert help_text, f"{words} {parameter.name} has no help"
        assert "".join(help_text.split()) in flat
        for name in (*parameter.opts, *parameter.secondary_opts):
            assert name in text
        assert not DURATION.fullmatch(parameter.metavar or ""), "a default, not what it takes"


def test_every_command_stands_in_one_section() -> None:
    """With its whole summary."""
    listed = [name for names in SECTIONS.values() for name in names]
    assert sorted(listed) == sorted(COMMANDS)

    flat = "".join(page([], 80).split())
    assert all("".join(source.summary.split()) in flat for source in COMMANDS.values())


def test_the_version_and_the_completion_of_a_shell_are_commands() -> None:
    """Beside the flags of the same meaning."""
    version = RUNNER.invoke(app, ["version"])
    assert version.output == RUNNER.invoke(app, ["--version"]).output

    script = RUNNER.invoke(app, ["completion", "bash"])
    assert script.exit_code == 0
    assert "_KOORD_COMPLETE=complete_bash" in script.output


@pytest.mark.parametrize("command", ["scheduler", "descheduler"])
def test_a_configuration_is_written_to_standard_output(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a dash, as everywhere; no file of that name is made."""
    monkeypatch.chdir(tmp_path)

    done = RUNNER.invoke(app, [command, "--write-config-to", "-"], catch_exceptions=False)

    assert yaml.load(done.stdout, yaml.CSafeLoader)["kind"].endswith("Configuration")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["schedule", "-o", "xml"], "must be one of json, yaml, table, got 'xml'"),
        (["completion", "csh"], "must be one of bash, zsh, fish, powershell, got 'csh'"),
    ],
)
def test_another_choice_is_refused_with_those_that_exist(
    arguments: list[str], message: str
) -> None:
    """In the words of every other message."""
    done = RUNNER.invoke(app, arguments)

    assert done.exit_code == 2
    assert message in " ".join(done.output.split())
    assert "Value error" not in done.output
