"""Bounded time series of a cluster while a dashboard watches it."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

from koordinator.dashboard.overview import ClusterOverview
from koordinator.dashboard.waiting_pods import WaitingPods
from koordinator.scheduler.explain.sentences import without_names

MAX_SAMPLES = 1200  # beyond it every second sample is dropped
MAX_CAUSES = 8
MAX_SAMPLE_CAUSES = 32
OTHERS = "other causes"


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
