"""Report of a simulation run: columns over virtual time, totals per workload kind, events.

A simulator feeds a ``RunRecorder``, which produces a ``RunReport``, the content of the JSON
output.  Virtual and wall time are arguments.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from itertools import pairwise

import msgspec
import numpy as np

from koordinator.foundation.errors import BugError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.simulator.colocation_report import ColocationReport
from koordinator.simulator.job_metrics import JobMetrics, WaitingTimes, waiting_times

#: Number of reasons with their own column; the others are summed as ``OTHER``.
TOP_REASONS = 6
OTHER = "other"
#: Reason of pending pods without one.
UNTRIED = "not tried yet"
ALL_KINDS = "all"


class NodeGroup(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Group of nodes in the report; sizes are totals of the group."""

    name: str
    nodes: int
    cpu_cores: float
    memory_bytes: int
    gpus: int = 0


class AllocationColumns(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Allocated shares, 0..1, one entry per sample."""

    cpu: tuple[float, ...]
    memory: tuple[float, ...]
    gpu: tuple[float, ...]


class SampleColumns(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All samples, one entry each in every column; ``time_s`` never goes back."""

    time_s: tuple[float, ...]
    pods_pending: tuple[int, ...]
    pods_running: tuple[int, ...]
    pods_finished: tuple[int, ...]  # so far
    pods_failed: tuple[int, ...]  # so far
    allocated: dict[str, AllocationColumns]  # by node group
    gpu_fragmentation: tuple[float | None, ...]  # see ``RunSample``
    pending_by_reason: dict[str, tuple[int, ...]]  # most pod-samples first, ``OTHER`` last
    decisions: tuple[int, ...]  # so far
    scheduling_s: tuple[float, ...]  # so far, wall time
    waited_p50_s: tuple[float | None, ...]  # of the pods scheduled since the previous sample
    waited_p95_s: tuple[float | None, ...]


class KindTotals(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Outcomes of the pods of one workload kind."""

    kind: str
    submitted: int = 0  # including resubmissions
    scheduled: int = 0
    finished: int = 0
    failed: int = 0
    resubmitted: int = 0
    waiting: WaitingTimes | None = None  # None if no pod was scheduled


class RunEvent(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Event for a mark on the time line."""

    time_s: float
    text: str
    is_node_failure: bool = False


class MoveTotals(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Totals of a descheduler's moves.

    An eviction was in vain if the replacement started on the same node, or waited for a node longer
    than the evicted pod had run.
    """

    moves: int
    in_vain: int
    arrivals: int  # submitted pods, without replacements
    per_1000: float = msgspec.field(name="per1000Arrivals")  # moves; 0 before the first arrival
    at_most_per_1000: float = msgspec.field(name="atMostPer1000Arrivals")


class RunReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Report of a run; times are virtual except ``wall_s``."""

    title: str
    seed: int
    started_s: float
    finished_s: float
    wall_s: float
    parameters: dict[str, str]
    groups: tuple[NodeGroup, ...]
    samples: SampleColumns
    kinds: tuple[KindTotals, ...]
    total: KindTotals  # over all kinds
    node_failures: int
    events: tuple[RunEvent, ...]  # in order of time
    colocation: ColocationReport | None = None  # None without measured usage
    moves: MoveTotals | None = None  # None without a descheduler
    jobs: JobMetrics | None = None  # None for a report of samples only

    def allocated(self) -> AllocationColumns:
        """Return the allocated shares of the cluster: the mean of the groups, weighted by size."""
        by_group = [self.samples.allocated[g.name] for g in self.groups]
        n_samples = len(self.samples.time_s)
        return AllocationColumns(
            cpu=_weighted([a.cpu for a in by_group], [g.cpu_cores for g in self.groups], n_samples),
            memory=_weighted(
                [a.memory for a in by_group], [g.memory_bytes for g in self.groups], n_samples
            ),
            gpu=_weighted([a.gpu for a in by_group], [g.gpus for g in self.groups], n_samples),
        )

    def decision_rates(self, rows: Sequence[int]) -> tuple[float | None, ...]:
        """Return the decisions per second of scheduling between consecutive rows.

        The first rate counts from the start of the run; None where the scheduler spent no time.
        """
        points = [
            (0, 0.0),
            *((self.samples.decisions[r], self.samples.scheduling_s[r]) for r in rows),
        ]
        return tuple(
            (made - made_before) / (spent_s - spent_before_s) if spent_s > spent_before_s else None
            for (made_before, spent_before_s), (made, spent_s) in pairwise(points)
        )

    def decision_rate(self) -> float | None:
        """Return the decisions per second of scheduling over the whole run."""
        last_row = len(self.samples.time_s) - 1
        return self.decision_rates([last_row])[0] if last_row >= 0 else None

    def mean_over_time(self, values: Sequence[float | None]) -> float | None:
        """Return the time-weighted mean of a column, in which a sample lasts until the next."""
        known = np.array([v is not None for v in values], bool)
        if not known.any():
            return None
        numbers = np.array([v for v in values if v is not None])
        lasted_s = np.diff(np.array(self.samples.time_s), append=self.finished_s)[known]
        weights = lasted_s if lasted_s.sum() > 0 else np.ones_like(numbers)
        return float(np.average(numbers, weights=weights))


def to_json(report: RunReport) -> bytes:
    """Return the report as one JSON object with names in camelCase."""
    return msgspec.json.encode(report)


@dataclass(frozen=True, slots=True)
class AllocatedShares:
    """Allocated shares, 0..1, of a group's capacity, including failed nodes."""

    cpu: float
    memory: float
    gpu: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSample:
    """The state of the run at one moment."""

    time_s: float
    pending: int
    running: int
    finished: int  # so far
    failed: int  # so far
    decisions: int  # so far, accepted and rejected
    scheduling_s: float  # so far, wall time spent in the scheduler only
    allocated: Mapping[str, AllocatedShares]  # by node group, all of them
    #: share of the free GPU milli that a typical pod could not use, 0..1 (FGD's definition:
    #: ``domain.gpus.options``); None where no GPU is free
    gpu_fragmentation: float | None = None
    #: one reason per pod; pods without one count as ``UNTRIED``
    pending_by_reason: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Tally:
    submitted: int = 0
    finished: int = 0
    failed: int = 0
    resubmitted: int = 0
    waits_s: list[float] = field(default_factory=list)

    def totals(self, kind: str) -> KindTotals:
        return KindTotals(
            kind=kind,
            submitted=self.submitted,
            scheduled=len(self.waits_s),
            finished=self.finished,
            failed=self.failed,
            resubmitted=self.resubmitted,
            waiting=waiting_times(self.waits_s),
        )


class RunRecorder:
    """Observer that records a run; ``finish`` returns the report."""

    def __init__(
        self,
        *,
        title: str,
        seed: int,
        groups: Iterable[NodeGroup],
        parameters: Mapping[str, str] | None = None,
        started_s: float = 0.0,
    ) -> None:
        self.title = title
        self.groups = tuple(groups)
        self.started_s = started_s
        self._seed = seed
        self._parameters = dict(parameters or {})
        self._samples: list[RunSample] = []
        self._waits_s: list[tuple[float | None, float | None]] = []  # per sample: p50, p95
        self._waits_since_sample: list[float] = []
        self._tallies: dict[str, _Tally] = {}
        self._events: list[RunEvent] = []

    @property
    def latest(self) -> RunSample | None:
        """The last sample; None before the first."""
        return self._samples[-1] if self._samples else None

    @property
    def events(self) -> tuple[RunEvent, ...]:
        """The events so far."""
        return tuple(self._events)

    def sample(self, sample: RunSample) -> None:
        """Add a row to every column.

        Raises BugError if time goes back or if the node groups differ from the run's.
        """
        before_s = self._samples[-1].time_s if self._samples else self.started_s
        if sample.time_s < before_s:
            raise BugError(
                f"samples must not go back in time. Got {sample.time_s} after {before_s}."
            )
        names = {group.name for group in self.groups}
        if names != set(sample.allocated):
            raise BugError(
                f"a sample must have the node groups {sorted(names)}. "
                f"Got {sorted(sample.allocated)}."
            )
        self._samples.append(sample)
        waits_s = self._waits_since_sample
        p50_s, p95_s = np.percentile(waits_s, (50, 95)).tolist() if waits_s else (None, None)
        self._waits_s.append((p50_s, p95_s))
        waits_s.clear()

    def submitted(self, kind: str) -> None:
        """Count a pod that came into the world."""
        self._tally(kind).submitted += 1

    def resubmitted(self, kind: str) -> None:
        """Count a pod that came into the world because another one failed."""
        tally = self._tally(kind)
        tally.submitted += 1
        tally.resubmitted += 1

    def scheduled(self, kind: str, waited_s: float) -> None:
        """Count a pod that got its node after a number of virtual seconds."""
        self._tally(kind).waits_s.append(float(waited_s))
        self._waits_since_sample.append(waited_s)

    def finished(self, kind: str) -> None:
        """Count a pod that did its work."""
        self._tally(kind).finished += 1

    def failed(self, kind: str) -> None:
        """Count a pod that ended before its work was done: evicted, or lost with its node."""
        self._tally(kind).failed += 1

    def event(self, time_s: float, text: str) -> None:
        """Put a mark on the time line."""
        self._events.append(RunEvent(time_s=float(time_s), text=text))

    def node_failed(self, time_s: float, text: str) -> None:
        """Count a node failure and put a mark on the time line."""
        self._events.append(RunEvent(time_s=float(time_s), text=text, is_node_failure=True))

    def finish(
        self,
        wall_s: float,
        colocation: ColocationReport | None = None,
        moves: MoveTotals | None = None,
    ) -> RunReport:
        """Return the report of the run so far; virtual time ends with the last sample or event."""
        times_s = [s.time_s for s in self._samples[-1:]] + [e.time_s for e in self._events]
        return RunReport(
            title=self.title,
            seed=self._seed,
            started_s=self.started_s,
            finished_s=max(times_s, default=self.started_s),
            wall_s=wall_s,
            parameters=self._parameters,
            groups=self.groups,
            samples=self._columns(),
            kinds=tuple(tally.totals(kind) for kind, tally in self._tallies.items()),
            total=_total(self._tallies.values()),
            node_failures=sum(e.is_node_failure for e in self._events),
            events=tuple(sorted(self._events, key=lambda e: e.time_s)),
            colocation=colocation,
            moves=moves,
        )

    def _tally(self, kind: str) -> _Tally:
        return self._tallies.setdefault(kind, _Tally())

    def _columns(self) -> SampleColumns:
        rows = self._samples
        return SampleColumns(
            time_s=_floats(r.time_s for r in rows),
            pods_pending=_ints(r.pending for r in rows),
            pods_running=_ints(r.running for r in rows),
            pods_finished=_ints(r.finished for r in rows),
            pods_failed=_ints(r.failed for r in rows),
            allocated={g.name: _allocation_columns(rows, g.name) for g in self.groups},
            gpu_fragmentation=tuple(
                None if r.gpu_fragmentation is None else float(r.gpu_fragmentation) for r in rows
            ),
            pending_by_reason=_reason_columns(rows),
            decisions=_ints(r.decisions for r in rows),
            scheduling_s=_floats(r.scheduling_s for r in rows),
            waited_p50_s=tuple(p50_s for p50_s, _ in self._waits_s),
            waited_p95_s=tuple(p95_s for _, p95_s in self._waits_s),
        )


# Simulators count in NumPy's numbers, which JSON does not take.


def _floats(values: Iterable[float]) -> tuple[float, ...]:
    return tuple(float(v) for v in values)


def _ints(values: Iterable[int]) -> tuple[int, ...]:
    return tuple(int(v) for v in values)


def _allocation_columns(rows: Sequence[RunSample], group: str) -> AllocationColumns:
    return AllocationColumns(
        cpu=_floats(r.allocated[group].cpu for r in rows),
        memory=_floats(r.allocated[group].memory for r in rows),
        gpu=_floats(r.allocated[group].gpu for r in rows),
    )


def _total(tallies: Iterable[_Tally]) -> KindTotals:
    everything = _Tally()
    for tally in tallies:
        everything.submitted += tally.submitted
        everything.finished += tally.finished
        everything.failed += tally.failed
        everything.resubmitted += tally.resubmitted
        everything.waits_s += tally.waits_s
    return everything.totals(ALL_KINDS)


def _reason_columns(rows: Sequence[RunSample]) -> dict[str, tuple[int, ...]]:
    """Return a column per reason, most pod-samples first; ties keep the order of appearance."""
    counts = [_reasons(row) for row in rows]
    weight: Counter[str] = Counter()
    for row in counts:
        weight.update(row)
    weight.pop(OTHER, None)
    top = [reason for reason, pods in weight.most_common(TOP_REASONS) if pods]
    columns = {reason: _ints(row[reason] for row in counts) for reason in top}
    rest = _ints(sum(n for reason, n in row.items() if reason not in columns) for row in counts)
    return columns | ({OTHER: rest} if any(rest) else {})


def _reasons(row: RunSample) -> Counter[str]:
    """Return the pending pods by reason; all of them."""
    reasons = Counter(row.pending_by_reason)
    untried = row.pending - reasons.total()
    if untried > 0:
        reasons[UNTRIED] += untried
    return reasons


def _weighted(
    columns: Sequence[Sequence[float]], sizes: Sequence[float], n_samples: int
) -> tuple[float, ...]:
    if not sum(sizes):
        return (0.0,) * n_samples
    return tuple(np.average(np.array(columns), axis=0, weights=sizes).tolist())
