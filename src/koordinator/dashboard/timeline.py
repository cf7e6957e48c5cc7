"""What a cluster was like over time, as far as a dashboard has watched it; bounded."""

from collections import Counter
from dataclasses import dataclass
from itertools import islice
from typing import Any

from koordinator.dashboard.overview import ClusterOverview
from koordinator.dashboard.waiting_pods import WaitingPods

MOST_SAMPLES = 1200  # when there are more, every second one is forgotten
MOST_CAUSES = 8
MOST_COUNTED = 32  # causes of a sample
OTHERS = "other causes"


@dataclass(frozen=True, slots=True)
class TimelineSample:
    """One moment; shares in thousandths, -1 where there is nothing to share."""

    at_s: float
    cpu: int
    memory: int
    gpu: int
    placed: int
    waiting: dict[str, int]  # pods by cause


class Timeline:
    """Samples in order of time, evenly thinned out as they grow older.

    A source whose time goes back begins anew from there.
    """

    def __init__(self, most: int = MOST_SAMPLES) -> None:
        self._most = most
        self._samples: list[TimelineSample] = []
        self._every_s = 0.0

    def __len__(self) -> int:
        return len(self._samples)

    def add(self, overview: ClusterOverview) -> None:
        """Take down what an overview shows, in place of the last if that was just before it."""
        at_s = overview.status.now_s
        while self._samples and self._samples[-1].at_s > at_s:
            self._samples.pop()
        before = self._samples[-2:]
        is_close = len(before) > 1 and before[1].at_s < before[0].at_s + self._every_s
        if before and (is_close or before[-1].at_s == at_s):
            self._samples.pop()  # the newest is always there; it makes room for the next one
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
        """Return columns; waiting pods by the causes of the most, all others together."""
        samples = self._samples
        summed: Counter[str] = Counter()
        for one in samples:
            summed.update(one.waiting)
        named = [cause for cause, _ in summed.most_common(MOST_CAUSES)]
        others = [
            sum(n for cause, n in one.waiting.items() if cause not in named) for one in samples
        ]
        causes = {cause: [one.waiting.get(cause, 0) for one in samples] for cause in named}
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
    """Return how many wait for what; where there are very many causes, for others than the most."""
    counts = {cause: len(pods) for cause, pods in islice(waiting.by_cause.items(), MOST_COUNTED)}
    left = len(waiting) - sum(counts.values())
    return {**counts, OTHERS: left} if left else counts
