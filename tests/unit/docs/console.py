"""Console blocks of pages: their ``koord`` commands, run in-process, and what the page shows."""

import json
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from typer.testing import CliRunner

from koordinator.cli.main import app

ROOT: Final = Path(__file__).parents[3]
#: jq need not be installed: its filters on the pages, as functions of the input.
_AS_LIST: Final = """jq '{apiVersion: "v1", kind: "List", items: .changed}'"""


class Block(NamedTuple):
    """A command without its prompt, and the output that the page shows."""

    command: str
    output: str


def blocks(page: str) -> Iterator[Block]:
    """Yield the ``koord`` commands of a page, a path below ``docs``."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    for fenced in re.findall(r"^```console\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        for part in re.split(r"^\$ ", fenced, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            if command.startswith("koord "):
                yield Block(command, output)


def squeezed(text: str) -> str:
    """Return a text with single spaces, as tables have other widths and are wrapped."""
    return " ".join(text.split())


def run(command: str) -> str:
    """Run a command, with ``| filter`` and ``> file``, and return its output."""
    command, _, file = command.partition(" > ")
    first, *filters = command.split(" | ")
    done = CliRunner().invoke(app, shlex.split(first)[1:])
    assert done.exit_code == 0, done.output
    printed = done.stdout
    for each in filters:
        printed = _filtered(each, printed)
    if file:
        Path(file).write_text(printed, "utf-8")
        return ""
    return printed


def assert_shows(block: Block, page: str) -> None:
    """Run a block, and compare: ``…`` replaces omitted text; all other text is there, in order."""
    printed, output = squeezed(run(block.command)), block.output
    position = 0
    for part in filter(None, map(squeezed, output.split("…"))):
        start = printed.find(part, position)
        assert start >= 0, f"{page}: {part!r} is not in {printed[position:]!r}"
        position = start + len(part)
    assert printed.startswith(squeezed(output.split("…", maxsplit=1)[0]))
    if not output.rstrip().endswith("…"):
        assert position == len(printed)


def _filtered(command: str, text: str) -> str:
    if command == _AS_LIST:
        items = json.loads(text)["changed"]
        as_list: Mapping[str, object] = {"apiVersion": "v1", "kind": "List", "items": items}
        return json.dumps(as_list)
    words = shlex.split(command)
    assert words[0] == "grep", f"no such filter: {command}"
    return subprocess.run(words, input=text, stdout=subprocess.PIPE, text=True, check=True).stdout
