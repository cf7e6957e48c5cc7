"""The port to the agent of another runtime on the node, whose containers are no pods.

Only that runtime's own agent knows its containers, and which of them may end.
"""

from collections.abc import Mapping
from typing import Protocol

Released = Mapping[str, float]  # batch-cpu in milli-CPU, batch-memory in bytes


class Copilot(Protocol):
    """An agent; may take seconds to answer, so that no loop waits for it."""

    def release(
        self, amounts: Mapping[str, float], *, node_cpu_ratio: float, node_memory_ratio: float
    ) -> Released:
        """Have containers ended until so much is released; return how much was.

        The ratios say how busy the node is, 0..1; -1 says nothing.
        Raises HostError if nobody answers.
        """
