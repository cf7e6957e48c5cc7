"""What a cluster was like over time, as far as a dashboard has watched it; bounded."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from koordinator.dashboard.overview import ClusterOverview

MOST_SAMPLES = 1200  # when there are more, every second one is forgotten
MOST_CAUSES = 8


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
        waiting = Counter(one.cause for one in overview.waiting)
        self._samples.append(
            TimelineSample(at_s, cpu, memory, gpu, overview.totals.placed, dict(waiting))
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
            causes["other causes"] = others
        return {
            "atS": [one.at_s for one in samples],
            "cpu": [one.cpu for one in samples],
            "memory": [one.memory for one in samples],
            "gpu": [one.gpu for one in samples],
            "placed": [one.placed for one in samples],
            "causes": causes,
        }
