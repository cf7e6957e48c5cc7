"""Bounded log of changes to pods and nodes while a dashboard watches a cluster.

Compares the scheduler's state at intervals; changes that are undone within one are not seen.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from koordinator.dashboard.node_facts import NodeHealth
from koordinator.dashboard.overview import COLUMNS, ClusterOverview
from koordinator.dashboard.sources import TimelineMark
from koordinator.scheduler.snapshot import ClusterState, PlacedPod
from koordinator.simulator.device_bars import why_disrupted

MAX_MARKS = 2000
MAX_NAMED = 20  # pods or nodes in one comparison, per kind of change
MIN_INTERVAL_S = 2.0  # a comparison takes about 20 ms with 100,000 pods
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
    """Timeline marks of changes, oldest first; owned by the thread that owns the scheduler."""

    _marks: deque[TimelineMark] = field(default_factory=lambda: deque(maxlen=MAX_MARKS))
    _nodes: dict[str, NodeHealth] = field(default_factory=dict)
    _pods: dict[str, PlacedPod] = field(default_factory=dict)  # by key, at the last comparison
    _transitions: dict[str, deque[float]] = field(default_factory=dict)  # of readiness, by node
    _compared_s: float | None = None

    def marks(self) -> Sequence[TimelineMark]:
        """Return the recorded changes, oldest first."""
        return tuple(self._marks)

    def flapping(self, now_s: float) -> Mapping[str, tuple[int, float]]:
        """Return the nodes that flapped in the last hour, with the count and the first time."""
        recent = {
            name: [at for at in times if now_s - at <= FLAPPING_WITHIN_S]
            for name, times in self._transitions.items()
        }
        return {name: (len(at), at[0]) for name, at in recent.items() if len(at) >= FLAPS}

    def update(self, state: ClusterState, overview: ClusterOverview, *, pods: bool) -> None:
        """Record the changes since the last call, of pods only if ``pods`` is true.

        Clears the log where time goes back, as in a recording.
        """
        now_s = overview.status.now_s
        is_first = self._compared_s is None or now_s < self._compared_s
        if self._compared_s is not None and 0 <= now_s - self._compared_s < MIN_INTERVAL_S:
            return
        self._compared_s = now_s
        nodes = {
            one.name: NodeHealth(int(health))
            for one, health in zip(
                overview.nodes.facts, overview.nodes.values[:, _STATE], strict=True
            )
        }
        placed = dict(state.pods.by_key) if pods else {}
        if is_first:
            self._marks.clear()
            self._transitions.clear()
        else:
            self._compare_nodes(nodes, now_s)
            self._compare_pods(placed, state, now_s)
        self._nodes, self._pods = nodes, placed

    def _compare_nodes(self, nodes: Mapping[str, NodeHealth], now_s: float) -> None:
        old = self._nodes
        self._add(now_s, "node {} was added", sorted(nodes.keys() - old.keys()))
        self._add(now_s, "node {} was removed", sorted(old.keys() - nodes.keys()))
        for health, words in _HEALTH.items():
            new = [n for n, h in nodes.items() if h is health and old.get(n, h) is not health]
            is_lost = health is NodeHealth.NOT_READY
            self._add(now_s, f"node {{}} {words}", new, is_failure=is_lost)
        for name, health in nodes.items():
            before = old.get(name, health)
            if (before is NodeHealth.NOT_READY) is not (health is NodeHealth.NOT_READY):
                self._transitions.setdefault(name, deque(maxlen=4 * FLAPS)).append(now_s)
        self._transitions = {n: times for n, times in self._transitions.items() if n in nodes}

    def _compare_pods(
        self, placed: Mapping[str, PlacedPod], state: ClusterState, now_s: float
    ) -> None:
        names = state.nodes.names
        new = [key for key in placed if key not in self._pods]
        assigned = [f"{key} was assigned to node {names[placed[key].row]}" for key in new]
        self._add(now_s, "pod {}", assigned)
        ended: list[str] = []
        evicted: list[str] = []
        for key in (key for key in self._pods if key not in placed):
            why = why_disrupted(self._pods[key].pod)
            if key in state.unbound:
                evicted.append(f"{key} is pending again" + (f": {why}" if why else ""))
            elif why:
                evicted.append(f"{key} was evicted: {why}")
            else:
                ended.append(key)
        self._add(now_s, "pod {}", evicted, is_failure=True)
        self._add(now_s, "pod {} ended", ended)

    def _add(
        self, now_s: float, words: str, names: Iterable[str], *, is_failure: bool = False
    ) -> None:
        listed = list(names)
        for name in listed[:MAX_NAMED]:
            self._marks.append(TimelineMark(now_s, words.format(name), is_failure))
        if len(listed) > MAX_NAMED:
            others = f"{len(listed) - MAX_NAMED} others"
            self._marks.append(TimelineMark(now_s, words.format(others), is_failure))
