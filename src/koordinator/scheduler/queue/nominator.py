"""Pods that wait for room which preemption makes on a node: others must leave it to them.

Source: kubernetes pkg/scheduler/backend/queue/nominator.go.
"""

from koordinator.api.pod import Pod
from koordinator.foundation.errors import BugError


class Nominator:
    """A pod has at most one nomination, known here before the API server knows it."""

    def __init__(self) -> None:
        self._node_of: dict[str, str] = {}
        self._unheard: dict[str, str] = {}  # what we said last, no event says it yet; "": no node
        self.version = 0  # grows with every change
        self._pods_on: dict[str, dict[str, Pod]] = {}  # node -> pod key -> pod; no empty nodes

    def add(self, pod: Pod, node: str = "") -> None:
        """Nominate, in place of an earlier nomination; by default to what the status says."""
        self._put(pod, node or pod.status.nominated_node_name)
        if node:
            self._unheard[pod.key] = node

    def update(self, pod: Pod) -> bool:
        """Follow the pod's status; what is older than our last word does not count.

        Returns whether it has left the node that it was nominated to.
        """
        told = pod.status.nominated_node_name
        if not (told or self._node_of or self._unheard):
            return False
        key = pod.key
        before = self.node_of(key)
        said = self._unheard.get(key)
        if said is not None and said != told:
            told = said
        else:
            self._unheard.pop(key, None)
        if told or key in self._node_of:
            self._put(pod, told)
        return before not in ("", told)

    def withdraw(self, key: str) -> None:
        """Take the pod's nomination back, although events still say that it has one."""
        self._remove(key)
        self._unheard[key] = ""

    def remove(self, key: str) -> str:
        """Forget a pod that has its place or is gone; return its node, empty if it had none."""
        self._unheard.pop(key, None)
        return self._remove(key)

    def _put(self, pod: Pod, node: str) -> None:
        key = pod.key
        self._remove(key)
        if node:
            self.version += 1
            self._node_of[key] = node
            self._pods_on.setdefault(node, {})[key] = pod

    def _remove(self, key: str) -> str:
        node = self._node_of.pop(key, "")
        if node:
            self.version += 1
            pods = self._pods_on[node]
            del pods[key]
            if not pods:
                del self._pods_on[node]
        return node

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
