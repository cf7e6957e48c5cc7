"""``python -m tests.fuzz [--seconds N] [--seed FIRST] [--out FOLDER]``: exit 1 if a rule breaks."""

import argparse
import itertools
import sys
import time
from pathlib import Path

from tests.fuzz.search import search, write


def main() -> int:
    """Play one seed after the other until the time is over."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=180.0, help="how long to look")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=0, help="how many seeds; 0: as time allows")
    parser.add_argument("--most", type=int, default=1, help="findings after which to stop")
    parser.add_argument("--out", type=Path, default=Path("fuzz-findings"), help="where they go")
    given = parser.parse_args()
    ends_at, found, played = time.monotonic() + given.seconds, 0, 0
    seeds = (
        range(given.seed, given.seed + given.count) if given.count else itertools.count(given.seed)
    )
    for seed in seeds:
        if time.monotonic() >= ends_at or found >= given.most:
            break
        played += 1
        finding = search(seed)
        if finding is None:
            continue
        found += 1
        folder = given.out / str(seed)
        write(finding, folder)
        print(f"seed {seed}: {finding.error}", flush=True)
        print(
            f"  koord schedule -f {folder}/objects.json --config {folder}/config.yaml", flush=True
        )
    print(f"{played} worlds from seed {given.seed} on, {found} broke a rule")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
