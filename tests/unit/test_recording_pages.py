"""The pages about audits and replays are followed literally, where they need no cluster."""

import gzip
import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest
from tests.markdown import code_blocks
from typer.testing import CliRunner

from koordinator.cli.main import app
from koordinator.simulator.recording import RecordingHeader, read_recording

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "examples/small-gpu-cluster.jsonl.gz"


def shown(page: str) -> list[tuple[list[str], str]]:
    """Return the commands before the chapter on clusters, and what the page prints below each."""
    text = (ROOT / "docs/how-to" / page).read_text("utf-8").split("## On a cluster")[0]
    blocks = code_blocks(text, "console")
    commands = [
        part for block in blocks for part in re.split(r"^\$ koord ", block, flags=re.MULTILINE)[1:]
    ]
    return [(shlex.split(line), rest) for line, _, rest in (c.partition("\n") for c in commands)]


def as_pattern(printed: str) -> str:
    """Return what matches a page's output: a line … is any lines, at the end of one any text."""
    lines = [
        "(?:.*\n)*?" if line == "…" else rf"{re.escape(line).replace('…', '.*')}\n"
        for line in printed.splitlines()
    ]
    return "".join(lines)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go where the examples are, and nothing else."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
@pytest.mark.usefixtures("checkout")
@pytest.mark.parametrize("page", ["audit.md", "replay.md"])
def test_page_shows_the_output_of_its_commands(page: str) -> None:
    """In their order, in one folder; but for spaces at the ends of lines."""
    commands = shown(page)
    assert len(commands) == 3

    for arguments, expected in commands:
        done = CliRunner().invoke(app, arguments)

        assert done.exit_code == 0, done.output
        printed = "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())
        assert re.fullmatch(as_pattern(expected), printed), printed


@pytest.mark.slow
def test_the_shipped_recording_is_that_of_the_command(checkout: Path) -> None:
    """Pods come, are placed and end in it as they do today; it is small and has no clock time."""
    command, _ = shown("replay.md")[1]
    assert CliRunner().invoke(app, command).exit_code == 0

    def story(path: Path) -> tuple[RecordingHeader, list[object]]:
        recording = read_recording(
            gzip.decompress(path.read_bytes()).splitlines(keepends=True), "it"
        )
        return recording.header, [(b.at_s, list(b.objects())) for b in recording.batches]

    assert story(SHIPPED) == story(checkout / "run.jsonl.gz")
    assert SHIPPED.stat().st_size < 10_000


def test_batches_of_the_shipped_recording_are_in_order() -> None:
    """From the beginning of virtual time."""
    lines = gzip.decompress(SHIPPED.read_bytes()).splitlines(keepends=True)
    times = [batch.at_s for batch in read_recording(lines, "it").batches]

    assert times[0] == 0.0
    assert all(earlier <= later for earlier, later in pairwise(times))
