"""Check of upstream sources: a file or identifier that a docstring names exists upstream.

``python -m tests.sources_check`` compares the names under ``Source:`` with the list of verified
names in ``verified_sources.txt``, and exits 1 if one is missing there; ``make check`` runs it.
``--verify koordinator=FOLDER kubernetes=FOLDER`` looks names up in checkouts of those repositories
and writes the list again; names that do not exist there are printed.
"""

import argparse
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
VERIFIED = Path(__file__).with_name("verified_sources.txt")

#: Repositories that are checked. A name below ``Source:`` belongs to the last one before it.
REPOSITORIES = ("koordinator", "kubernetes")

_SOURCE = re.compile(r'Source: (.*?)(?:\n\s*\n|"""|\Z)', re.DOTALL)
#: The start of what belongs to one repository. Any other repository's name ends it.
_REPOSITORY = re.compile(
    r"(?:^|(?<=[;,(] )|(?<=and )|(?<=of ))(?P<repository>koordinator|kubernetes|k8s\.io/\S+|"
    r"kubernetes-sigs/\S+|client-go|yarn-copilot|koord-queue|HAMi\S*|Hadoop|Linux|[Tt]he kernel\S*)"
    r"(?=[ ,;:.])"
)
_PATH = re.compile(r"(?<![\w/.-])(?:pkg|apis|cmd|staging)/[\w./-]*\w")
_IDENTIFIER = re.compile(r"``([A-Za-z_][\w.]*)``")


class UpstreamName(NamedTuple):
    """A path or an identifier of an upstream repository."""

    repository: str
    name: str


def upstream_names(text: str) -> Iterator[UpstreamName]:
    """Yield the upstream names under every ``Source:`` of a module's text."""
    for block in _SOURCE.finditer(text):
        source = re.sub(r"\s*\n\s*(?:#:?)?\s*", " ", block.group(1))
        starts = [*_REPOSITORY.finditer(source)]
        ends = [*(each.start() for each in starts), len(source)][1:]
        for start, end in zip(starts, ends, strict=True):
            if start["repository"] in REPOSITORIES:
                part = source[start.end() : end]
                for name in [*_PATH.findall(part), *_IDENTIFIER.findall(part)]:
                    yield UpstreamName(start["repository"], name)


def named_sources(folder: Path = ROOT / "src") -> dict[UpstreamName, str]:
    """Return every upstream name below a folder, and a file that has it."""
    return {
        name: path.relative_to(folder).as_posix()
        for path in sorted(folder.rglob("*.py"))
        for name in upstream_names(path.read_text("utf-8"))
    }


def verified_sources() -> set[UpstreamName]:
    """Return the names of the list."""
    lines = VERIFIED.read_text("utf-8").splitlines() if VERIFIED.exists() else []
    return {UpstreamName(*line.split(" ", 1)) for line in lines}


def verify(names: Sequence[UpstreamName], checkouts: Mapping[str, Path]) -> set[UpstreamName]:
    """Return the names that exist in the checkouts of their repositories."""
    present = set()
    for repository, checkout in checkouts.items():
        words = set()
        for path in checkout.rglob("*.go"):
            words.update(re.findall(r"\w+", path.read_text("utf-8", "replace")))
        for name in names:
            if name.repository == repository:
                exists = (
                    (checkout / name.name).exists()
                    if "/" in name.name
                    else words.issuperset(name.name.split("."))
                )
                present |= {name} if exists else set()
    return present


def main() -> int:
    """Print every name that is not verified; return the exit status."""
    parser = argparse.ArgumentParser(description="Check the upstream names under Source:.")
    parser.add_argument("--verify", nargs="+", default=[], metavar="REPOSITORY=FOLDER")
    checkouts = dict(each.split("=", 1) for each in parser.parse_args().verify)
    named, verified = named_sources(), verified_sources()
    if checkouts:
        folders = {repository: Path(folder) for repository, folder in checkouts.items()}
        verified = verify([*named], folders) | {
            name for name in verified & named.keys() if name.repository not in folders
        }
        lines = (f"{name.repository} {name.name}\n" for name in sorted(verified))
        VERIFIED.write_text("".join(lines), "utf-8")
    wrong = sorted(named.keys() - verified)
    for name in wrong:
        sys.stdout.write(
            f"{named[name]}: {name.name} is not verified in {name.repository}: correct it, or run "
            f"python -m tests.sources_check --verify {name.repository}=CHECKOUT\n"
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
