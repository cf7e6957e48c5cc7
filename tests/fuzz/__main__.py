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
    well = fuzz(given.seconds, given.seed, given.count, given.most, given.out)
    return 0 if well else 1


def fuzz(
    seconds: float, seed: int, count: int = 0, most: int = 1, out: Path = Path("fuzz-findings")
) -> bool:
    """Play one seed after the other and write what breaks; return whether nothing did."""
    ends_at, broken, played = time.monotonic() + seconds, 0, 0
    for number in range(seed, seed + count) if count else itertools.count(seed):
        if time.monotonic() >= ends_at or broken >= most:
            break
        played += 1
        finding = search(number)
        if finding is None:
            continue
        broken += 1
        folder = out / str(number)
        write(finding, folder)
        print(f"seed {number}: {finding.error}", flush=True)
        print(
            f"  koord schedule -f {folder}/objects.json --config {folder}/config.yaml", flush=True
        )
    print(f"{played} worlds from seed {seed} on, {broken} broke a rule")
    return not broken


if __name__ == "__main__":
    sys.exit(main())
