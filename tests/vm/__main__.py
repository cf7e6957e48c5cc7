"""``python -m tests.vm COMMAND…``: run a shell command in a virtual machine with cgroup v2."""

import argparse
import sys

from tests.vm.machine import VirtualMachine
from tests.vm.packages import find_packages

_LONGEST_END = 4  # bytes of NUL and an exit status, which follow the output


def main() -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cpus", type=int, default=4)
    parser.add_argument("--memory", type=int, default=4096, help="in MiB")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if not options.command:
        parser.error("a command is required")
    left = b""  # what may belong to the end
    with VirtualMachine(find_packages(), options.cpus, options.memory) as machine:
        for data in machine.stream(" ".join(options.command)):
            left += data
            sys.stdout.buffer.write(left[:-_LONGEST_END])
            sys.stdout.flush()
            left = left[-_LONGEST_END:]
        output, _, status = left.rpartition(b"\0")
        sys.stdout.buffer.write(output)
        sys.stdout.flush()
    return int(status or 1)


if __name__ == "__main__":
    raise SystemExit(main())
