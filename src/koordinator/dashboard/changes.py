"""What has changed in a cluster while a dashboard has watched it: pods and nodes; bounded.

Looks at the scheduler's state now and then and compares; what came and went in between is not seen.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from koordinator.dashboard.node_facts import NodeHealth
from koordinator.dashboard.overview import COLUMNS, ClusterOverview
from koordinator.dashboard.sources import TimelineMark
from koordinator.scheduler.snapshot import ClusterState, PlacedPod
from koordinator.simulator.disruptions import why_disrupted

MOST_MARKS = 2000
NAMED = 20  # pods or nodes of a kind, each time
LEAST_INTERVAL_S = 2.0  # it takes some 20 ms with 100,000 pods
FLAPS = 4  # changes between ready and not ready
FLAPPING_WITHIN_S = 3600.0

_STATE = COLUMNS.index("state")
_HEALTH = {
    NodeHealth.READY: "is ready",
    NodeHealth.CORDONED: "is cordoned",
    NodeHealth.UNHEALTHY_DEVICE: "has an unhealthy device",
    NodeHealth.NOT_READY: "is not ready",
}


@dataclass(slots=True)
class ClusterChanges:
    """Marks of what has changed, oldest first; belongs to the thread that owns the scheduler."""

    _marks: deque[TimelineMark] = field(default_factory=lambda: deque(maxlen=MOST_MARKS))
    _nodes: dict[str, NodeHealth] = field(default_factory=dict)
    _pods: dict[str, PlacedPod] = field(default_factory=dict)  # by key, as seen last
    _turns: dict[str, deque[float]] = field(default_factory=dict)  # ready or not, by node
    _looked_s: float | None = None

    def marks(self) -> Sequence[TimelineMark]:
        """Return what has changed so far."""
        return tuple(self._marks)

    def flapping(self, now_s: float) -> Mapping[str, tuple[int, float]]:
        """Return nodes that came and went often within the last hour: how often, since when."""
        recent = {
            name: [at for at in turns if now_s - at <= FLAPPING_WITHIN_S]
            for name, turns in self._turns.items()
        }
        return {name: (len(at), at[0]) for name, at in recent.items() if len(at) >= FLAPS}

    def look(self, state: ClusterState, overview: ClusterOverview, *, pods: bool) -> None:
        """Compare with what was there at the last look; ``pods``: also which pods came and went.

        Where time goes back, as in a recording, all begins anew.
        """
        now_s = overview.status.now_s
        is_first = self._looked_s is None or now_s < self._looked_s
        if self._looked_s is not None and 0 <= now_s - self._looked_s < LEAST_INTERVAL_S:
            return
        self._looked_s = now_s
        nodes = {
            one.name: NodeHealth(int(health))
            for one, health in zip(
                overview.nodes.facts, overview.nodes.values[:, _STATE], strict=True
            )
        }
        placed = dict(state.pods.by_key) if pods else {}
        if is_first:
            self._marks.clear()
            self._turns.clear()
        else:
            self._compare_nodes(nodes, now_s)
            self._compare_pods(placed, state, now_s)
        self._nodes, self._pods = nodes, placed

    def _compare_nodes(self, nodes: Mapping[str, NodeHealth], now_s: float) -> None:
        old = self._nodes
        self._tell(now_s, "node {} is there", sorted(nodes.keys() - old.keys()))
        self._tell(now_s, "node {} is gone", sorted(old.keys() - nodes.keys()))
        for health, words in _HEALTH.items():
            new = [n for n, h in nodes.items() if h is health and old.get(n, h) is not health]
            is_lost = health is NodeHealth.NOT_READY
            self._tell(now_s, f"node {{}} {words}", new, is_failure=is_lost)
        for name, health in nodes.items():
            before = old.get(name, health)
            if (before is NodeHealth.NOT_READY) is not (health is NodeHealth.NOT_READY):
                self._turns.setdefault(name, deque(maxlen=4 * FLAPS)).append(now_s)
        self._turns = {name: turns for name, turns in self._turns.items() if name in nodes}

    def _compare_pods(
        self, placed: Mapping[str, PlacedPod], state: ClusterState, now_s: float
    ) -> None:
        names = state.nodes.names
        came = [key for key in placed if key not in self._pods]
        self._tell(
            now_s, "pod {}", [f"{key} has got the node {names[placed[key].row]}" for key in came]
        )
        left: list[str] = []
        had_to_go: list[str] = []
        for key in (key for key in self._pods if key not in placed):
            why = why_disrupted(self._pods[key].pod)
            if key in state.unbound:
                had_to_go.append(f"{key} waits again" + (f": {why}" if why else ""))
            elif why:
                had_to_go.append(f"{key} had to go: {why}")
            else:
                left.append(key)
        self._tell(now_s, "pod {}", had_to_go, is_failure=True)
        self._tell(now_s, "pod {} has left", left)

    def _tell(
        self, now_s: float, words: str, names: Iterable[str], *, is_failure: bool = False
    ) -> None:
        listed = list(names)
        for name in listed[:NAMED]:
            self._marks.append(TimelineMark(now_s, words.format(name), is_failure))
        if len(listed) > NAMED:
            others = f"{len(listed) - NAMED} others"
            self._marks.append(TimelineMark(now_s, words.format(others), is_failure))
