"""Timeline of a cluster, and changes that it marks.

Compares the scheduler's state at intervals; changes that are undone within one are not seen.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from itertools import islice
from typing import Any

from koordinator.dashboard.node_facts import NodeHealth
from koordinator.dashboard.overview import COLUMNS, ClusterOverview
from koordinator.dashboard.sources import TimelineMark
from koordinator.dashboard.waiting_pods import WaitingPods
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.explanations.sentences import without_names
from koordinator.scheduler.snapshot import ClusterState, PlacedPod
from koordinator.simulator.device_bars import why_disrupted

MAX_SAMPLES = 1200  # beyond it every second sample is dropped
MAX_CAUSES = 8
MAX_SAMPLE_CAUSES = 32
OTHERS = "other causes"

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


@dataclass(frozen=True, slots=True)
class TimelineSample:
    """State at one moment; shares in thousandths, -1 without capacity."""

    at_s: float
    cpu: int
    memory: int
    gpu: int
    placed: int
    waiting: dict[str, int]  # pods by cause


class Timeline:
    """Samples ordered by time, thinned out evenly beyond a maximum.

    A sample at an earlier time, as after a seek, removes the later ones.
    """

    def __init__(self, most: int = MAX_SAMPLES) -> None:
        self._most = most
        self._samples: list[TimelineSample] = []
        self._every_s = 0.0

    def __len__(self) -> int:
        return len(self._samples)

    def add(self, overview: ClusterOverview) -> None:
        """Add a sample of an overview; replace the last sample if the interval has not passed."""
        at_s = overview.status.now_s
        while self._samples and self._samples[-1].at_s > at_s:
            self._samples.pop()
        before = self._samples[-2:]
        is_close = len(before) > 1 and before[1].at_s < before[0].at_s + self._every_s
        if before and (is_close or before[-1].at_s == at_s):
            self._samples.pop()  # the newest state is always the last sample
        cpu, memory, gpu = overview.totals.shares
        waiting = _counted(overview.waiting)
        self._samples.append(
            TimelineSample(at_s, cpu, memory, gpu, overview.totals.placed, waiting)
        )
        if len(self._samples) > self._most:
            span_s = self._samples[-1].at_s - self._samples[0].at_s
            self._every_s = 2 * span_s / self._most
            self._samples = self._samples[::2]

    def as_data(self) -> dict[str, Any]:
        """Return the samples as columns, with pending pods by the most frequent causes.

        Sums causes that differ only in names or numbers, such as the causes of many gangs.
        """
        samples = self._samples
        kinds = _kinds({cause for one in samples for cause in one.waiting})
        waiting = [Counter[str]() for _ in samples]
        for counted, one in zip(waiting, samples, strict=True):
            for cause, pods in one.waiting.items():
                counted[kinds[cause]] += pods
        summed: Counter[str] = Counter()
        for counted in waiting:
            summed.update(counted)
        # A page with one curve per cause is unreadable, so rare causes become one curve.
        named = [cause for cause, _ in summed.most_common(MAX_CAUSES)]
        others = [sum(n for cause, n in one.items() if cause not in named) for one in waiting]
        causes = {cause: [one[cause] for one in waiting] for cause in named}
        if any(others):
            causes[OTHERS] = [
                before + more
                for before, more in zip(causes.get(OTHERS, [0] * len(others)), others, strict=True)
            ]
        return {
            "atS": [one.at_s for one in samples],
            "cpu": [one.cpu for one in samples],
            "memory": [one.memory for one in samples],
            "gpu": [one.gpu for one in samples],
            "placed": [one.placed for one in samples],
            "causes": causes,
        }


def _counted(waiting: WaitingPods) -> dict[str, int]:
    """Return pods by cause, for the most frequent causes; the others are summed."""
    causes = islice(waiting.by_cause.items(), MAX_SAMPLE_CAUSES)
    counts = {cause: len(pods) for cause, pods in causes}
    left = len(waiting) - sum(counts.values())
    return {**counts, OTHERS: left} if left else counts


def _kinds(causes: Iterable[str]) -> dict[str, str]:
    """Return the label of each cause: its text, or the common part of similar causes."""
    kind_of = {cause: without_names(cause) for cause in causes}
    alike = Counter(kind_of.values())
    return {cause: kind if alike[kind] > 1 else cause for cause, kind in kind_of.items()}


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
