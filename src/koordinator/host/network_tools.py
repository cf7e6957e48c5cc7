"""The port to the programs that shape the network of this machine: ip, tc, ipset, iptables."""

from typing import Protocol


class NetworkTools(Protocol):
    """Run in the network of the machine; each takes some milliseconds, or waits for a lock."""

    def run(self, *words: str, text: str = "") -> str:
        """Run a program with a text as its input; return what it printed.

        Raises HostError with what it complained of, and if it is missing or hangs.
        """
