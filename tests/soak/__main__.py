"""Soaks: ``python -m tests.soak [churn|fuzz|properties …] [--scale F]``; exit 1 if one fails."""

import argparse
import subprocess
import sys
import time
from functools import partial

from tests.fuzz.__main__ import fuzz
from tests.soak import age, churn

FUZZ_S = 3 * 3600.0
PROPERTIES_S = 3600.0


def fuzz_soak(scale: float) -> bool:
    """Play random worlds for hours, from a seed that no other day has."""
    return fuzz(seconds=FUZZ_S * scale, seed=int(time.time_ns() // 10**9) * 1000)


def properties_soak(scale: float) -> bool:
    """Run every property test again and again, with new examples each time."""
    tests = ["-q", "-n", "auto", "-m", "hypothesis", "--hypothesis-profile=explore"]
    ends_at = time.monotonic() + PROPERTIES_S * scale
    while True:
        command = [sys.executable, "-m", "pytest", *tests, "--hypothesis-seed", str(time.time_ns())]
        if subprocess.run(command, check=False).returncode != 0:
            return False
        if time.monotonic() >= ends_at:
            return True


#: Each takes the scale and returns whether all went well.
SOAKS = {"churn": churn.soak, "fuzz": fuzz_soak, "properties": properties_soak, "age": age.soak}


def main() -> int:
    """Run the named soaks, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("names", nargs="*", choices=[*SOAKS, []], metavar="NAME")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full amounts")
    parser.add_argument(
        "--rest", type=float, default=0.0, help="seconds without load in each round of age"
    )
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.alone:
        churn.run_alone(arguments.alone, arguments.scale)
        return 0
    soaks = SOAKS | {"age": partial(age.soak, rest_s=arguments.rest)}
    passed = [soaks[name](arguments.scale) for name in arguments.names or soaks]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
