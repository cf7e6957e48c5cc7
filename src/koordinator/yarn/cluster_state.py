"""The operator's state of one YARN cluster, with limits that may still take effect."""

from dataclasses import dataclass, field

from koordinator.hadoop.amounts import BatchAmounts, YarnResource, whole_units
from koordinator.hadoop.port import YarnNode
from koordinator.yarn.follower import DOUBT_S, YarnFollower


@dataclass(slots=True)
class YarnClusterState:
    """State of a cluster according to its follower."""

    follower: YarnFollower
    nodes: dict[str, YarnNode] = field(default_factory=dict)
    by_host: dict[str, set[str]] = field(default_factory=dict)
    owners: dict[str, set[str]] = field(default_factory=dict)  # Kubernetes nodes by NodeManager
    pending: dict[str, YarnResource] = field(default_factory=dict)  # requested, not settled
    #: Limits that may still take effect, with the time until which they may.
    doubted: dict[str, tuple[YarnResource, float]] = field(default_factory=dict)
    shrinking: dict[str, float] = field(default_factory=dict)  # start of a limit below the usage
    paused: dict[str, float] = field(default_factory=dict)  # after a refusal: time of the retry
    met: set[str] = field(default_factory=set)  # NodeManagers settled since this replica leads
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
        """Record a limit that may still take effect."""
        self.doubted[node_id] = self.in_doubt(node_id, now_s).larger(sent), now_s + DOUBT_S

    def set_problem(self, problem: str, now_s: float) -> None:
        """Record the read error; after a recovery, sent limits may still take effect for a time."""
        if not problem:
            again_s = now_s + DOUBT_S
            self.doubted = {node_id: (sent, again_s) for node_id, (sent, _) in self.doubted.items()}
        self.problem = problem

    def drop_old_doubts(self, now_s: float) -> None:
        """Remove expired limits, also of NodeManagers without a node."""
        for node_id in [each for each, (_, until_s) in self.doubted.items() if until_s <= now_s]:
            self.in_doubt(node_id, now_s)

    def meet(self, node_id: str, promised: BatchAmounts, now_s: float) -> None:
        """Record the first settlement of a NodeManager by this leader.

        The previous leader may just have requested a limit up to the promise.
        """
        if node_id not in self.met:
            self.met.add(node_id)
            self.doubt(node_id, whole_units(promised), now_s)

    def forget(self, node_id: str) -> None:
        """Remove the state of a NodeManager without a node."""
        self.owners.pop(node_id, None)
        self.shrinking.pop(node_id, None)
        self.paused.pop(node_id, None)
        self.met.discard(node_id)

    def put(self, node_id: str, node: YarnNode | None) -> None:
        """Set the state of a NodeManager; None removes it."""
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
