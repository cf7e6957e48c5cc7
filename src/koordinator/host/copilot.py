"""Port to the agent of another container runtime on the node.

Only that agent knows the runtime's containers, and which of them may be stopped.
"""

from collections.abc import Mapping
from typing import Protocol

Released = Mapping[str, float]  # batch-cpu in milli-CPU, batch-memory in bytes


class Copilot(Protocol):
    """Agent of another runtime; a call may take seconds, so no loop may wait for it."""

    def release(
        self, amounts: Mapping[str, float], *, node_cpu_ratio: float, node_memory_ratio: float
    ) -> Released:
        """Stop containers until the amounts are released; return the released amounts.

        The ratios are the utilization of the node, 0..1; -1 if unknown.
        Raises HostError if the agent does not respond.
        """
