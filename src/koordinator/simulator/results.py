"""Result of a simulation, and its tables for analysis and notebooks."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any, Final, Literal

import msgspec
import numpy as np

from koordinator.cluster.port import Reader
from koordinator.foundation.arrays import FloatArray, IntArray
from koordinator.foundation.errors import InputError, library
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.simulator.device_bars import DeviceBars
from koordinator.simulator.job_metrics import JobRun, PodLifeTimes, job_runs
from koordinator.simulator.run_report import RunReport
from koordinator.simulator.stages import PodStage

TableName = Literal["pods", "jobs", "samples"]
MARKS: Final = (80, 90, 95, 100, 110, 120, 130)  # reported points, in percent of requested GPUs
_UNALLOCATED_MARKS: Final = (100, 130)  # marks whose unallocated part is a figure, too
DEMAND_AXIS: Final = "GPU demand that has arrived, % of the cluster"
_HOUR_S = 3600.0
_SIZE = (7.0, 3.6)  # inches


@dataclass(frozen=True, slots=True)
class PodPlacement:
    """Outcome of one pod object; times are virtual, None if the event did not occur."""

    pod: str  # namespace/name
    kind: str
    node: str  # empty if never placed
    submitted_s: float
    bound_s: float | None
    ended_s: float | None
    stage: PodStage
    message: str  # condition message of a pending pod
    reason: str = ""  # of the last failed attempt, equal for similar pods
    job: str = ""  # the gang, or the pod itself
    first_pod: str = ""  # the pod that this one replaces, or itself
    is_restart: bool = False
    cpu_milli: int = 0
    gpu_milli: int = 0  # over all GPUs
    gpus: tuple[tuple[int, int], ...] = ()  # assigned devices: (minor, milli)

    def run(self) -> PodLifeTimes:
        """Return the pod's life, as metrics of jobs count it."""
        return PodLifeTimes(
            job=self.job or self.pod,
            pod=self.first_pod or self.pod,
            submitted_s=self.submitted_s,
            bound_s=self.bound_s,
            ended_s=self.ended_s,
            is_finished=self.stage is PodStage.FINISHED,
            is_restart=self.is_restart,
            node=self.node,
            cpu_milli=self.cpu_milli,
            gpu_milli=self.gpu_milli,
        )


@dataclass(frozen=True)
class ArrivalCurve:
    """GPU allocation over the GPU demand that has arrived: ``(n_arrivals,)`` milli each.

    ``sampled`` are numbers of arrivals at which the free GPU milli that a typical pod could not use
    were measured; the last one is the end.
    """

    arrived_milli: IntArray
    allocated_milli: IntArray
    capacity_milli: int
    sampled: IntArray  # (n_samples,)
    unusable_milli: FloatArray  # (n_samples,)

    @property
    def fragmentation(self) -> float:
        """Share of the capacity that a typical pod could not use, at the end."""
        return float(self.unusable_milli[-1]) / self.capacity_milli

    def allocation_at(self, percent: int) -> float | None:
        """Return the mean allocation in percent while the demand rounds to that percentage.

        If a pod skips it, the allocation before that pod.  None: not reached.
        """
        demand = np.round(self.arrived_milli / self.capacity_milli * 100)
        ratio = np.round(self.allocated_milli / self.capacity_milli * 100, 2)
        is_at_percent = demand == percent
        if is_at_percent.any():
            return round(float(ratio[is_at_percent].mean()), 2)
        after = int(np.searchsorted(demand, percent))
        if after == len(demand):
            return None
        return float(ratio[after - 1]) if after else 0.0

    def fragmentation_over_demand(self) -> dict[int, tuple[float, float | None]]:
        """Return fragmented GPUs by percent of demand, in percent of all and of the free GPUs.

        The latest sample of each percentage counts; the second number is None without free GPUs.
        """
        by_percent: dict[int, tuple[float, float | None]] = {}
        for arrivals, unusable in zip(self.sampled.tolist(), self.unusable_milli, strict=True):
            if not arrivals:
                continue
            free = self.capacity_milli - int(self.allocated_milli[arrivals - 1])
            percent = round(100 * int(self.arrived_milli[arrivals - 1]) / self.capacity_milli)
            of_free = round(100 * float(unusable) / free, 2) if free else None
            by_percent[percent] = round(100 * float(unusable) / self.capacity_milli, 2), of_free
        return by_percent


@dataclass(frozen=True, repr=False)
class SimulationResult:
    """Report, placements and jobs for analysis, and the final state of the cluster.

    ``curve`` is the allocation over arrivals, for the protocol arrivals on a cluster with GPUs.
    ``policy`` is empty for the scores of the configuration.
    """

    report: RunReport
    placements: tuple[PodPlacement, ...]  # in the order of submission
    cluster: Reader
    devices: DeviceBars  # allocation of GPUs over time
    source: str = ""  # name of the source
    policy: str = ""
    order: str = ""  # where the order of arrival comes from, if it is drawn
    curve: ArrivalCurve | None = None
    labels: Mapping[str, str] = field(default_factory=dict)  # of a comparison

    @property
    def seed(self) -> int:
        """Seed of all random draws."""
        return self.report.seed

    @cached_property
    def jobs(self) -> tuple[JobRun, ...]:
        """Jobs in order of their first submission."""
        return tuple(job_runs([placement.run() for placement in self.placements]))

    def figures(self) -> dict[str, Any]:
        """Return the key figures by name: one row of a table of runs."""
        report, figures = self.report, dict[str, Any](self.labels)
        jobs = {} if report.jobs is None else msgspec.to_builtins(report.jobs)
        figures |= {"source": self.source, "policy": self.policy, "seed": self.seed}
        total = msgspec.to_builtins(report.total)
        figures |= {f"pods_{_snake(k)}": v for k, v in total.items() if isinstance(v, int)}
        for name, value in jobs.items():
            if isinstance(value, dict):
                figures |= {f"{_snake(name)}_{_snake(k)}": v for k, v in value.items()}
            else:
                figures[_snake(name)] = value
        if report.colocation is not None:
            totals = msgspec.to_builtins(report.colocation.totals)
            figures |= {f"colocation_{_snake(k)}": v for k, v in totals.items()}
        if report.moves is not None:
            figures |= {"moves": report.moves.moves, "moves_in_vain": report.moves.in_vain}
        if self.curve is not None:
            marks = {mark: self.curve.allocation_at(mark) for mark in MARKS}
            reached = {mark: value for mark, value in marks.items() if value is not None}
            figures |= {f"gpu_allocated_at_{mark}": value for mark, value in reached.items()}
            figures |= {
                f"gpu_unallocated_at_{mark}": round(100 - reached[mark], 2)
                for mark in _UNALLOCATED_MARKS
                if mark in reached
            }
            figures["gpu_fragmented"] = self.curve.fragmentation
        return figures | {"node_failures": report.node_failures, "wall_s": report.wall_s}

    def table(self, name: TableName = "pods") -> dict[str, list[Any]]:
        """Return the columns of a table: the pods, the jobs, or the samples over time.

        Raises InputError for another name.
        """
        if name == "samples":
            return self._samples()
        if name not in {"pods", "jobs"}:
            raise InputError(f"must be pods, jobs or samples, got {name!r}", source="table")
        rows: Sequence[Any] = self.placements if name == "pods" else self.jobs
        kind = PodPlacement if name == "pods" else JobRun
        columns = {c: [getattr(row, c) for row in rows] for c in kind.__dataclass_fields__}
        if name == "pods":
            columns["stage"] = [str(stage) for stage in columns["stage"]]
            columns["gpus"] = [format_gpus(gpus) for gpus in columns["gpus"]]
        else:
            columns["completion_s"] = [row.completion_s for row in rows]
            columns["queued_s"] = [row.queued_s for row in rows]
        return columns

    def _samples(self) -> dict[str, list[Any]]:
        samples, allocated = self.report.samples, self.report.allocated()
        columns = {
            name: list(value)
            for name in samples.__struct_fields__
            if isinstance(value := getattr(samples, name), tuple)
        }
        for name in ("cpu", "memory", "gpu"):
            columns[f"{name}_allocated"] = list(getattr(allocated, name))
        return columns

    def to_pandas(self, table: TableName = "pods") -> Any:
        """Return a table as a pandas DataFrame.  Raises InputError without pandas."""
        return library("pandas").DataFrame(self.table(table))

    def to_arrow(self, table: TableName = "pods") -> Any:
        """Return a table as a pyarrow Table.  Raises InputError without pyarrow."""
        return library("pyarrow").table(self.table(table))

    @property
    def plot(self) -> "RunPlots":
        """Charts of the run, drawn by matplotlib.  Raises InputError without it."""
        return RunPlots((self,))

    def failed_by_reason(self) -> dict[str, int]:
        """Return the number of pods that gave up, by the reason of their attempt."""
        return dict(
            Counter(p.reason for p in self.placements if p.stage is PodStage.LOST and not p.node)
        )

    def arrival_figures(self) -> dict[str, Any]:
        """Return the figures of a replay of arrivals.  Raises InputError for another protocol."""
        curve = self.curve
        if curve is None:
            text = "requires the protocol arrivals, and a cluster with GPUs"
            raise InputError(text, source="arrival_figures")
        last, allocated_percent = 0, 0.0
        if len(curve.arrived_milli):
            last = round(float(curve.arrived_milli[-1]) / curve.capacity_milli * 100)
            allocated_percent = 100 * float(curve.allocated_milli[-1]) / curve.capacity_milli
        at = {str(mark): curve.allocation_at(mark) for mark in MARKS}
        failed = self.failed_by_reason()
        return {
            "trace": self.source,
            "policy": self.policy,
            "seed": self.seed,
            "order": self.order,
            "arrivals": len(self.placements),
            "failed": sum(failed.values()),
            "failedByReason": failed,
            "gpuCapacityMilli": curve.capacity_milli,
            "gpuArrivedPercent": last,
            "gpuAllocatedPercentAt": {mark: a for mark, a in at.items() if a is not None},
            "gpuAllocatedPercent": round(allocated_percent, 2),
            "gpuFragmentedPercent": round(100 * curve.fragmentation, 2),
        }

    def __repr__(self) -> str:
        total, jobs = self.report.total, self.report.jobs
        gpu = jobs.gpu_utilization if jobs is not None else None
        parts = [
            f"{total.scheduled} of {total.submitted} pods scheduled",
            f"{total.finished} finished",
            *([f"{100 * gpu:.1f} % of the GPUs used"] if gpu is not None else ()),
        ]
        policy = f", policy {self.policy}" if self.policy else ""
        name = self.report.title
        return f"<SimulationResult {name}{policy}, seed {self.seed}: {', '.join(parts)}>"

    def _repr_html_(self) -> str:
        """Return the table of a notebook: totals by workload kind, and the key figures."""
        from koordinator.simulator.report import summary_html  # noqa: PLC0415 -- for notebooks

        return summary_html(self.report)


class RunPlots:
    """Charts with a line per run; each method returns a matplotlib Figure.

    ``label`` names a run in the legend; by default by its policy and seed.
    """

    def __init__(
        self,
        results: Sequence[SimulationResult],
        label: Callable[[SimulationResult], str] | None = None,
    ) -> None:
        self._results, self._label = tuple(results), label or _label

    def allocation(self) -> Any:
        """Draw the GPU allocation: over the arrived demand if pods arrive, otherwise over time."""
        if all(result.curve is not None for result in self._results):
            return self._allocation_over_arrivals()
        return self._over_time("GPUs allocated", lambda r: r.report.allocated().gpu, percent=True)

    def fragmentation(self) -> Any:
        """Draw the share of the free GPUs that a typical pod could not use, over time."""
        return self._over_time(
            "free GPUs that a typical pod cannot use",
            lambda r: r.report.samples.gpu_fragmentation,
            percent=True,
        )

    def pending(self) -> Any:
        """Draw the number of pending pods over time."""
        return self._over_time("pending pods", lambda r: r.report.samples.pods_pending)

    def waiting_cdf(self) -> Any:
        """Draw the share of jobs that started within a time, of all started ones."""
        return self._cdf("time until all pods run, h", lambda r: [j.queued_s for j in r.jobs])

    def completion_cdf(self) -> Any:
        """Draw the share of jobs that were completed within a time, of all finished ones."""
        return self._cdf("completion time, h", lambda r: [j.completion_s for j in r.jobs])

    def _allocation_over_arrivals(self) -> Any:
        figure, axes = blank_chart(DEMAND_AXIS, "GPUs allocated, %")
        for result in self._results:
            curve = result.curve
            if curve is None:
                continue
            percent = 100.0 / curve.capacity_milli
            axes.plot(
                curve.arrived_milli * percent,
                curve.allocated_milli * percent,
                label=self._label(result),
            )
        return self._finished(figure, axes)

    def _over_time(
        self,
        label: str,
        column: Callable[[SimulationResult], Sequence[float | None]],
        *,
        percent: bool = False,
    ) -> Any:
        figure, axes = blank_chart("virtual time, h", f"{label}, %" if percent else label)
        for result in self._results:
            values = [np.nan if v is None else v for v in column(result)]
            hours = np.array(result.report.samples.time_s) / _HOUR_S
            scaled = np.array(values, float) * (100.0 if percent else 1.0)
            axes.plot(hours, scaled, label=self._label(result))
        return self._finished(figure, axes)

    def _cdf(self, label: str, times: Callable[[SimulationResult], Sequence[float | None]]) -> Any:
        figure, axes = blank_chart(label, "share of the jobs, %")
        for result in self._results:
            known = np.sort([0.0, *(t for t in times(result) if t is not None)]) / _HOUR_S
            shares = 100.0 * np.arange(len(known)) / max(len(known) - 1, 1)
            axes.step(known, shares, where="post", label=self._label(result))
        return self._finished(figure, axes)

    def _finished(self, figure: Any, axes: Any) -> Any:
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        if len(self._results) > 1:
            axes.legend()
        return figure


def plot_runs(
    results: Sequence[SimulationResult],
    label: Callable[[SimulationResult], str] | None = None,
) -> RunPlots:
    """Return charts with a line per run.  Raises InputError without a run."""
    if not results:
        raise InputError("must be at least one run", source="results")
    return RunPlots(results, label)


def _label(result: SimulationResult) -> str:
    parts = [*result.labels.values()] or [result.policy or "configuration"]
    return f"{', '.join(parts)}, seed {result.seed}"


def blank_chart(x_label: str, y_label: str) -> tuple[Any, Any]:
    """Return a matplotlib Figure and its axes.  Raises InputError without matplotlib."""
    figure = library("matplotlib.figure").Figure(figsize=_SIZE, layout="constrained")
    axes = figure.add_subplot()
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    return figure, axes


def arrival_curve(
    placements: Sequence[PodPlacement],
    capacity_milli: int,
    unusable_milli: Sequence[tuple[int, float]],
) -> ArrivalCurve:
    """Return the curve of pods that arrived one after another and never left.

    ``unusable_milli`` has samples: number of arrivals, and milli.
    """
    gpu = np.array([p.gpu_milli for p in placements], np.int64)
    placed = np.array([p.bound_s is not None for p in placements], np.int64)
    return ArrivalCurve(
        np.cumsum(gpu),
        np.cumsum(gpu * placed),
        capacity_milli,
        np.array([arrivals for arrivals, _ in unusable_milli], np.int64),
        np.array([milli for _, milli in unusable_milli], np.float64),
    )


def format_gpus(gpus: Sequence[tuple[int, int]]) -> str:
    """Return devices as ``minor:milli`` joined by ``;``."""
    return ";".join(f"{minor}:{milli}" for minor, milli in gpus)


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name)
