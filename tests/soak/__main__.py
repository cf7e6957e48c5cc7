"""Run the soak: ``python -m tests.soak [churn] [--scale F]``; exits 1 if anything fails."""

import argparse
import sys

from tests.soak import churn

#: Each takes the scale and returns whether all went well.
SOAKS = {"churn": churn.soak}


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
