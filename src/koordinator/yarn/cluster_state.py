"""What the operator knows of one YARN cluster, and which limits may still take effect there."""

from dataclasses import dataclass, field

from koordinator.hadoop.amounts import BatchAmounts, YarnResource, whole_units
from koordinator.hadoop.port import YarnNode
from koordinator.yarn.follower import DOUBT_S, YarnFollower


@dataclass(slots=True)
class YarnClusterState:
    """A cluster as its follower has told of it."""

    follower: YarnFollower
    nodes: dict[str, YarnNode] = field(default_factory=dict)
    by_host: dict[str, set[str]] = field(default_factory=dict)
    owners: dict[str, set[str]] = field(default_factory=dict)  # Kubernetes nodes by NodeManager
    pending: dict[str, YarnResource] = field(default_factory=dict)  # requested, not settled
    doubted: dict[str, tuple[YarnResource, float]] = field(default_factory=dict)  # and until when
    shrinking: dict[str, float] = field(default_factory=dict)  # since when below use
    paused: dict[str, float] = field(default_factory=dict)  # refused: until when nothing is sent
    met: set[str] = field(default_factory=set)  # whose accounts were looked at since we lead
    is_known: bool = False
    problem: str = ""

    def in_doubt(self, node_id: str, now_s: float) -> YarnResource:
        """Return the largest limit that was sent and may still take effect."""
        doubted, until_s = self.doubted.get(node_id, (YarnResource(), 0.0))
        if until_s <= now_s and not self.problem:
            self.doubted.pop(node_id, None)
            doubted = YarnResource()
        return doubted.larger(self.pending.get(node_id, YarnResource()))

    def doubt(self, node_id: str, sent: YarnResource, now_s: float) -> None:
        """Note that a limit may still take effect."""
        self.doubted[node_id] = self.in_doubt(node_id, now_s).larger(sent), now_s + DOUBT_S

    def set_problem(self, problem: str, now_s: float) -> None:
        """Note why the cluster can't be read; what was sent may still wait when it can be again."""
        if not problem:
            again_s = now_s + DOUBT_S
            self.doubted = {node_id: (sent, again_s) for node_id, (sent, _) in self.doubted.items()}
        self.problem = problem

    def drop_old_doubts(self, now_s: float) -> None:
        """Forget what can't take effect any more, also of NodeManagers that no node has."""
        for node_id in [each for each, (_, until_s) in self.doubted.items() if until_s <= now_s]:
            self.in_doubt(node_id, now_s)

    def meet(self, node_id: str, promised: BatchAmounts, now_s: float) -> None:
        """Look at a NodeManager for the first time since we lead.

        Whoever led before may just have requested up to what is promised.
        """
        if node_id not in self.met:
            self.met.add(node_id)
            self.doubt(node_id, whole_units(promised), now_s)

    def forget(self, node_id: str) -> None:
        """Forget what was done about a NodeManager: no node has it any more."""
        self.owners.pop(node_id, None)
        self.shrinking.pop(node_id, None)
        self.paused.pop(node_id, None)
        self.met.discard(node_id)

    def put(self, node_id: str, node: YarnNode | None) -> None:
        """Take in a NodeManager as it is now; None: it is gone."""
        host = node_id.rpartition(":")[0]
        if node is not None:
            self.nodes[node_id] = node
            self.by_host.setdefault(host, set()).add(node_id)
            return
        self.nodes.pop(node_id, None)
        ids = self.by_host.get(host, set())
        ids.discard(node_id)
        if not ids:
            self.by_host.pop(host, None)
