"""Port to the programs that configure the network: ip, tc, ipset, iptables."""

from typing import Protocol


class NetworkTools(Protocol):
    """Programs in the network namespace of the machine; each may take milliseconds or block."""

    def run(self, *words: str, text: str = "") -> str:
        """Run a program with ``text`` as its input; return its output.

        Raises HostError with the program's error output, and if it is missing or hangs.
        """
