"""Check of documentation pages: the files, folders, modules and links that they name exist.

The rules in the page of the architecture are the import contracts of ``pyproject.toml``, and its
list of the scheduler's parts has every module.
``python -m tests.pages_check`` prints each name that does not exist, and exits 1 if there is one;
``make check`` runs it.  Decisions record the past, so that only their links are checked.
"""

import ast
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src/koordinator"

#: A path in back quotes: a file of the repository by its ending, or a folder with a final slash.
_PATH = re.compile(r"(?<!`)`((?:[\w.-]+/)+(?:[\w-]+\.(?:py|md|toml|txt|ts|tsx|sh))?)`(?!`)")
_LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\s#]+)(?:#[^)\s]*)?\)")
#: A dotted name in back quotes, such as ``cycle.batch``.
_DOTTED = re.compile(r"(?<!`)`([a-z_]+(?:\.\w+)+)`(?!`)")
#: Start of a line about a part of a component.
_PART = re.compile(r"^     (\w+)", re.MULTILINE)
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


#: Pages that name modules by the end of their dotted path.
OF_MODULES = ("architecture.md", "glossary.md")


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


def modules(source: Path = SOURCE) -> Mapping[str, list[Path]]:
    """Return the files of the package by every end of their dotted path."""
    ends: dict[str, list[Path]] = defaultdict(list)
    for path in source.rglob("*.py"):
        parts = path.relative_to(source).with_suffix("").parts
        if parts[-1] == "__init__":
            parts = parts[:-1]
        for start in range(len(parts)):
            ends[".".join(parts[start:])].append(path)
    return ends


def missing_modules(text: str, ends: Mapping[str, list[Path]]) -> Iterator[str]:
    """Yield the dotted names of a text that begin like a package and name nothing in one."""
    packages = {end for end, paths in ends.items() if any(p.stem == "__init__" for p in paths)}
    for name in _DOTTED.findall(_CODE_BLOCK.sub("", text)):
        path = name.removeprefix("koordinator.")
        module, _, leaf = path.rpartition(".")
        is_ours = path.partition(".")[0] in packages
        if (
            is_ours
            and path not in ends
            and not any(_defines(p, leaf) for p in ends.get(module, ()))
        ):
            yield name


def _defines(path: Path, name: str) -> bool:
    """Return whether a module defines a name, or imports it."""
    for node in ast.parse(path.read_text("utf-8")).body:
        targets = getattr(node, "targets", [getattr(node, "target", node)])
        names = [getattr(each, "id", getattr(each, "name", "")) for each in targets]
        if isinstance(node, ast.ImportFrom):
            names = [each.asname or each.name for each in node.names]
        if name in names:
            return True
    return False


def outdated_parts(text: str, folder: Path) -> Iterator[str]:
    """Yield the modules of a folder that its list in a page lacks, and those listed in vain.

    The list follows a line that opens with the folder's name, up to an empty line.
    """
    _, _, after = text.partition(f"\n   {folder.name} ──")
    listed = set(_PART.findall(after.partition("\n\n")[0]))
    parts = {path.stem for path in folder.iterdir() if not path.name.startswith("_")}
    yield from (f"{name} is not listed" for name in sorted(parts - listed))
    yield from (f"{name} does not exist" for name in sorted(listed - parts))


def missing_layers(text: str, contracts: list[dict[str, object]]) -> Iterator[str]:
    """Yield the orders of layers in import contracts that the row of their rule does not have."""
    for contract in contracts:
        rule, _, title = str(contract["name"]).partition(" ")
        layers = contract.get("layers")
        if isinstance(layers, list):
            order = " > ".join(layer.replace(" | ", ", ") for layer in layers)
            rows = [line for line in text.splitlines() if line.startswith(f"| {rule} |")]
            if not any(order in row for row in rows):
                yield f"{rule} {title}: {order}"


def main() -> int:
    """Print every name of nothing, and every outdated order and list; return the exit status."""
    wrong = [
        f"{page.relative_to(ROOT)}: {path} does not exist"
        for page in pages()
        for path in missing_paths(page)
    ]
    ends = modules()
    for name in OF_MODULES:
        text = (ROOT / "docs" / name).read_text("utf-8")
        wrong += [f"docs/{name}: {each} does not exist" for each in missing_modules(text, ends)]
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    architecture = (ROOT / "docs/architecture.md").read_text("utf-8")
    contracts = settings["tool"]["importlinter"]["contracts"]
    wrong += [
        f"docs/architecture.md: has no {order}" for order in missing_layers(architecture, contracts)
    ]
    wrong += [
        f"docs/architecture.md: {part}"
        for part in outdated_parts(architecture, SOURCE / "scheduler")
    ]
    sys.stdout.write("".join(f"{line}\n" for line in wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
