"""Tutorials: their commands are run with the files that they name, and print what they show."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from koordinator.cli.main import app

ROOT = Path(__file__).parents[3]
PAGES = ("gangs", "quotas", "gpu-shares")
BUSY = ROOT / "examples/tutorials/busy-node.yaml"
GANG = ROOT / "examples/tutorials/gang.yaml"


def commands() -> Iterator[tuple[str, str, str]]:
    """Yield page, command and shown output of every console block."""
    for name in PAGES:
        text = (ROOT / f"docs/tutorials/{name}.md").read_text("utf-8")
        for command, output in re.findall(
            r"```console\n\$ koord ([^\n]+)\n(.*?)```", text, re.DOTALL
        ):
            yield name, command, output


def squeezed(text: str) -> str:
    """Return a text with single spaces, as tables have other widths and are wrapped."""
    return " ".join(text.split())


def run(command: str) -> str:
    """Run ``koord`` with the words of a command, from the root of the repository."""
    words = [str(ROOT / it) if it.startswith("examples/") else it for it in command.split()]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    return squeezed(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize(("page", "command", "output"), list(commands()))
def test_command_prints_what_the_tutorial_shows(page: str, command: str, output: str) -> None:
    """``…`` replaces omitted text; all other text is there, in its order."""
    printed = run(command)
    position = 0
    for part in filter(None, map(squeezed, output.split("…"))):
        found = printed.find(part, position)
        assert found >= 0, f"{page}: {part!r} is not in {printed[position:]!r}"
        position = found + len(part)
    assert printed.startswith(squeezed(output.split("…", maxsplit=1)[0]))
    if not output.rstrip().endswith("…"):
        assert position == len(printed)


def test_every_tutorial_has_commands() -> None:
    """Blocks that are written otherwise would not be run."""
    for name in PAGES:
        text = (ROOT / f"docs/tutorials/{name}.md").read_text("utf-8")
        shown = len(re.findall(r"^\$ koord ", text, re.MULTILINE))
        assert shown == len([page for page, _, _ in commands() if page == name]) > 0


def test_smaller_minimum_starts_a_part_of_the_gang(tmp_path: Path) -> None:
    """Step 5 of the tutorial on gangs, which the reader does by hand."""
    changed = tmp_path / "gang.yaml"
    changed.write_text(GANG.read_text("utf-8").replace("minMember: 3", "minMember: 2"))

    assert "2 placed, 1 unschedulable" in run(f"schedule -f {changed} -f {BUSY}")
