"""Pods that wait for room which preemption makes on a node: others must leave it to them.

Source: kubernetes pkg/scheduler/backend/queue/nominator.go.
"""

from koordinator.api.pod import Pod
from koordinator.foundation.errors import BugError
from koordinator.foundation.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class NominatedNode:
    """The node for which a pod was nominated; empty: none, and events may still say otherwise."""

    node: str
    is_unconfirmed: bool = False  # our own write, not confirmed by an event yet


class Nominator:
    """A pod has at most one nomination, known here before the API server knows it."""

    def __init__(self) -> None:
        self.known: dict[str, NominatedNode] = {}  # by pod key
        self.version = 0  # grows with every change
        self._pods_on: dict[str, dict[str, Pod]] = {}  # node -> pod key -> pod; no empty nodes

    def add(self, pod: Pod, node: str = "") -> None:
        """Nominate a pod, replacing an earlier nomination; by default to the node in its status."""
        self._put(
            pod, NominatedNode(node or pod.status.nominated_node_name, is_unconfirmed=bool(node))
        )

    def update(self, pod: Pod) -> bool:
        """Follow the pod's status; statuses older than our last write do not count.

        Returns whether it has left the node that it was nominated to.
        """
        reported, key = pod.status.nominated_node_name, pod.key
        before = self.known.get(key)
        if before is None:
            if reported:
                self._put(pod, NominatedNode(reported))
            return False
        if before.is_unconfirmed and before.node != reported:
            if before.node:
                self._put(pod, before)
            return False
        self._put(pod, NominatedNode(reported))
        return before.node not in ("", reported)

    def withdraw(self, key: str) -> None:
        """Take the pod's nomination back, although events still say that it has one."""
        self.remove(key)
        self.known[key] = NominatedNode("", is_unconfirmed=True)

    def remove(self, key: str) -> str:
        """Remove the nomination of a pod; return its node, empty if there was none."""
        known = self.known.pop(key, None)
        if known is None or not known.node:
            return ""
        self.version += 1
        pods = self._pods_on[known.node]
        del pods[key]
        if not pods:
            del self._pods_on[known.node]
        return known.node

    def _put(self, pod: Pod, nomination: NominatedNode) -> None:
        key = pod.key
        self.remove(key)
        if nomination.node:
            self.version += 1
            self.known[key] = nomination
            self._pods_on.setdefault(nomination.node, {})[key] = pod

    def node_of(self, key: str) -> str:
        """Return the node that the pod is nominated to; empty if none."""
        known = self.known.get(key)
        return "" if known is None else known.node

    def on_node(self, name: str) -> tuple[Pod, ...]:
        """Return the pods nominated to the node, in the order of their nomination."""
        return tuple(self._pods_on.get(name, {}).values())

    def nodes(self) -> tuple[str, ...]:
        """Return the nodes that pods are nominated to."""
        return tuple(self._pods_on)

    def validate(self) -> None:
        """Raise BugError unless both directions say the same."""
        derived = {key: node for node, pods in self._pods_on.items() for key in pods}
        nodes = {key: nomination.node for key, nomination in self.known.items() if nomination.node}
        if derived != nodes:
            raise BugError(f"nominations by node are {derived}. By pod: {nodes}.")
        if not all(self._pods_on.values()):
            raise BugError("a node without nominated pods is kept.")
