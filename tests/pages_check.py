"""Check of documentation pages: the files, folders and links that they name exist.

``python -m tests.pages_check`` prints each path that does not exist, and exits 1 if there is one;
``make check`` runs it.  Decisions record the past, so that only their links are checked.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src/koordinator"

#: A path in back quotes: a file of the repository by its ending, or a folder with a final slash.
_PATH = re.compile(r"(?<!`)`((?:[\w.-]+/)+(?:[\w-]+\.(?:py|md|toml|txt|ts|tsx|sh))?)`(?!`)")
_LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\s#]+)(?:#[^)\s]*)?\)")
_CODE_BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)

#: Starts of paths that belong to a machine, to upstream or to the reader, not to this repository.
FOREIGN = (
    "/",
    "~",
    "..",
    "pkg/",
    "cmd/",
    "kubernetes/",
    "kubepods/",
    "koordinator/",
    "koord-queue/",
    "kube-queue/",
)


#: Pages that ``docs/generate`` writes; ``tests/unit/docs`` checks the links to them.
GENERATED = "reference/generated/"

#: Files that the reader of a page creates.
CREATED = frozenset(
    {
        "src/koordinator/scheduler/plugins/cheap_nodes.py",
        "src/my_package/cheap_nodes.py",
        "tests/test_cheap_nodes.py",
        "src/koordinator/koordlet/qos/dirty_pages.py",
        "tests/unit/koordlet/qos/test_dirty_pages.py",
        "src/koordinator/domain/devices/acme.py",
        "src/koordinator/cli/sweeper/flags.py",
        "src/koordinator/cli/sweeper/command.py",
    }
)


def pages() -> Iterator[Path]:
    """Yield every Markdown page of the repository, in order of path."""
    yield from sorted(ROOT.glob("*.md"))
    for folder in ("docs", "tests", "changes", "deploy", "examples"):
        yield from sorted((ROOT / folder).rglob("*.md"))


def missing_paths(page: Path) -> Iterator[str]:
    """Yield the paths and links of a page that name nothing in the repository."""
    text = _CODE_BLOCK.sub("", page.read_text("utf-8"))
    folder = ROOT if page.parent.name == "changes" else page.parent  # notes become CHANGELOG.md
    for target in _LINK.findall(text):
        is_ours = "://" not in target and GENERATED not in target
        if is_ours and not (folder / target).exists():
            yield target
    if "decisions" not in page.parts:
        bases = (ROOT, SOURCE, page.parent, page.parent.parent, ROOT / "tests", ROOT / "docs")
        for path in _PATH.findall(text):
            ours = not path.startswith(FOREIGN) and path not in CREATED
            if ours and not any((base / path).exists() for base in bases):
                yield path


def main() -> int:
    """Print every path that names nothing; return the exit status."""
    wrong = [
        f"{page.relative_to(ROOT)}: {path} does not exist"
        for page in pages()
        for path in missing_paths(page)
    ]
    sys.stdout.write("".join(f"{line}\n" for line in wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
