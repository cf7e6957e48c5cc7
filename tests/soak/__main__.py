"""Run the soak: ``python -m tests.soak [churn|fuzz …] [--scale F]``; exits 1 if anything fails."""

import argparse
import sys
import time

from tests.fuzz.__main__ import fuzz
from tests.soak import churn

FUZZ_S = 3 * 3600.0


def fuzz_soak(scale: float) -> bool:
    """Play random worlds for hours, from a seed that no other day has."""
    return fuzz(seconds=FUZZ_S * scale, seed=int(time.time_ns() // 10**9) * 1000)


#: Each takes the scale and returns whether all went well.
SOAKS = {"churn": churn.soak, "fuzz": fuzz_soak}


def main() -> int:
    """Run the named soaks, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("names", nargs="*", choices=[*SOAKS, []], metavar="NAME")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full amounts")
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.alone:
        churn.run_alone(arguments.alone, arguments.scale)
        return 0
    passed = [SOAKS[name](arguments.scale) for name in arguments.names or SOAKS]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
