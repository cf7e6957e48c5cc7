"""Record the releases of names: ``python -m docs.since``.

Without a folder, new names are unreleased.  With ``--upstream FOLDER`` names of upstream are looked
up: FOLDER has clones with tags, named koordinator, descheduler, api, apiserver, component-base and
kube-scheduler; Kubernetes itself is read from the cache of Go's modules.  ``--release VERSION``
sets the version of unreleased names.
"""

import argparse
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from docs.generate.__main__ import pages
from docs.generate.dated import SINCE
from docs.since.repositories import read_histories
from docs.since.table import UNRELEASED, read_names, write_names
from docs.since.upstream import introduced


def main() -> None:
    """Update ``docs/since/names.json``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--upstream", type=Path)
    parser.add_argument("--release")
    arguments = parser.parse_args()
    pages()
    recorded = read_names()
    names = {key: recorded.get(key, UNRELEASED) for key in SINCE.shown}
    if arguments.upstream is not None:
        names |= dict(_looked_up(names, arguments.upstream))
    if arguments.release is not None:
        released = {
            key: arguments.release for key, release in names.items() if release == UNRELEASED
        }
        names |= released
    write_names(names)
    new, removed = names.keys() - recorded.keys(), recorded.keys() - names.keys()
    print(f"{len(names)} names, {len(new)} of them new, {len(removed)} removed")


def _looked_up(
    names: Mapping[tuple[str, str], str], upstream: Path
) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield the names that a release of upstream has."""
    command = ("go", "env", "GOMODCACHE")
    cache = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    sources = read_histories(upstream, Path(cache) / "k8s.io")
    for scope, name in sorted(names):
        found = (introduced(history, scope, name) for history in sources)
        release = next(filter(None, found), None)
        if release is not None:
            yield (scope, name), release


if __name__ == "__main__":
    main()
