"""Pods that wait for room which preemption makes on a node: others must leave it to them.

Source: kubernetes pkg/scheduler/backend/queue/nominator.go.
"""

from koordinator.api.pod import Pod
from koordinator.foundation.errors import BugError


class Nominator:
    """A pod has at most one nomination, known here before the API server knows it."""

    def __init__(self) -> None:
        self._node_of: dict[str, str] = {}
        self.version = 0  # grows with every change
        self._pods_on: dict[str, dict[str, Pod]] = {}  # node -> pod key -> pod; no empty nodes

    def add(self, pod: Pod, node: str = "") -> None:
        """Nominate, in place of an earlier nomination; by default to what the status says."""
        key = pod.key
        self.remove(key)
        node = node or pod.status.nominated_node_name
        if node:
            self.version += 1
            self._node_of[key] = node
            self._pods_on.setdefault(node, {})[key] = pod

    def update(self, old: Pod, new: Pod) -> None:
        """Follow the pod's status; while it has named no node yet, our nomination stays."""
        unheard_of = not old.status.nominated_node_name and not new.status.nominated_node_name
        self.add(new, self.node_of(new.key) if unheard_of else "")

    def remove(self, key: str) -> None:
        """Forget the pod's nomination, if it has one."""
        node = self._node_of.pop(key, None)
        if node is not None:
            self.version += 1
            pods = self._pods_on[node]
            del pods[key]
            if not pods:
                del self._pods_on[node]

    def node_of(self, key: str) -> str:
        """Return the node that the pod is nominated to; empty if none."""
        return self._node_of.get(key, "")

    def on_node(self, name: str) -> tuple[Pod, ...]:
        """Return the pods nominated to the node, in the order of their nomination."""
        return tuple(self._pods_on.get(name, {}).values())

    def nodes(self) -> tuple[str, ...]:
        """Return the nodes that pods are nominated to."""
        return tuple(self._pods_on)

    def validate(self) -> None:
        """Raise BugError unless both directions say the same."""
        derived = {key: node for node, pods in self._pods_on.items() for key in pods}
        if derived != self._node_of:
            raise BugError(f"nominations by node are {derived}. By pod: {self._node_of}.")
        if not all(self._pods_on.values()):
            raise BugError("a node without nominated pods is kept.")
