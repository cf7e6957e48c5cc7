"""Report on services, batch pods and YARN that share nodes: columns and totals.

Times are virtual; CPU is in shares of the cluster or in core hours.

Sums over the steps of services and batch pods that share nodes.

Core seconds are sums over all nodes; node seconds count the nodes with services.
"""

from dataclasses import field, fields

import msgspec

from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.simulator.job_metrics import WaitingTimes

_HOUR_S = 3600.0


class ColocationColumns(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Columns with the mean since the previous sample; shares are 0..1."""

    services_cpu: tuple[float, ...]  # used by pods that are not best effort, of all CPUs
    best_effort_cpu: tuple[float, ...]
    batch_cpu: tuple[float, ...]  # published as batch-cpu, of all CPUs
    mid_cpu: tuple[float, ...]
    at_risk: tuple[float, ...]  # time above the safe level, of the nodes that have services
    suppressed: tuple[float, ...]  # part of the best-effort CPU demand that was not granted


class ColocationTotals(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Totals of a run."""

    used_cpu: float  # share of all CPUs, mean
    services_cpu: float
    best_effort_cpu: float
    best_effort_core_hours: float  # worked
    lost_core_hours: float  # part of the work, by pods that were evicted or lost before their end
    finished: int  # best-effort pods
    evicted: int  # by the node agent
    at_risk: float  # share of time, see ``ColocationColumns``
    at_risk_hours: float  # summed over nodes
    suppressed: float


class YarnColumns(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One entry per sample of the run; shares are 0..1 of all CPUs."""

    limit_cpu: tuple[float, ...]  # limit of YARN's vcores at the sample
    used_cpu: tuple[float, ...]  # by containers, mean since the previous sample
    waiting: tuple[int, ...]  # containers


class YarnQueueTotals(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Outcomes of the containers of a queue; a container that ends early is restarted."""

    queue: str
    applications: int
    applications_finished: int
    containers: int  # requested by applications
    started: int  # including restarts
    finished: int
    preempted: int  # above a reduced limit
    evicted: int  # by the node agent
    lost: int  # with their node
    waiting: WaitingTimes | None  # None if no container was started


class YarnReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Report on YARN; other figures count its containers as best effort."""

    samples: YarnColumns
    queues: tuple[YarnQueueTotals, ...]
    limit_cpu: float  # share of all CPUs, mean
    used_cpu: float
    core_hours: float  # worked
    lost_core_hours: float  # part of the work, by containers that ended early


class ColocationReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Report on colocation; services are at risk above ``safe_percent`` of a node's CPUs."""

    is_on: bool  # batch resources were published
    safe_percent: int
    samples: ColocationColumns
    totals: ColocationTotals
    yarn: YarnReport | None = None  # None without YARN queues


@dataclass(slots=True)
class Sums:
    """Integrals over a time span."""

    span_s: float = 0.0
    services: float = 0.0  # core seconds
    best_effort: float = 0.0
    yarn: float = 0.0  # of best effort
    wanted: float = 0.0  # by best effort
    serving: float = 0.0  # node seconds
    at_risk: float = 0.0

    def add(self, other: "Sums") -> None:
        """Add the integrals of another span."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

    @property
    def risk(self) -> float:
        """The share of time above the safe level."""
        return self.at_risk / self.serving if self.serving else 0.0

    @property
    def suppressed(self) -> float:
        """The share of the best-effort demand that was not granted."""
        return 1 - self.best_effort / self.wanted if self.wanted else 0.0

    def used(self, core_seconds: float, cores: float) -> float:
        """Return the share of all CPUs."""
        return core_seconds / (cores * self.span_s) if self.span_s else 0.0


@dataclass(slots=True)
class _Row:
    sums: Sums
    batch: float
    mid: float


@dataclass(slots=True)
class ColocationCounters:
    """Counters of a run; ``cores`` is the sum over all nodes."""

    cores: float
    safe_percent: int
    is_on: bool
    finished: int = 0
    evicted: int = 0
    lost_core_s: float = 0.0
    _total: Sums = field(default_factory=Sums)
    _since_sample: Sums = field(default_factory=Sums)
    _rows: list[_Row] = field(default_factory=list)

    def add(self, sums: Sums) -> None:
        """Add the sums of a step."""
        self._total.add(sums)
        self._since_sample.add(sums)

    def sample(self, batch_cores: float, mid_cores: float) -> None:
        """End a row of the columns, with the currently published amounts."""
        row = _Row(self._since_sample, batch_cores / self.cores, mid_cores / self.cores)
        self._rows.append(row)
        self._since_sample = Sums()

    def report(self, yarn: YarnReport | None = None) -> ColocationReport:
        """Return the report, with the report of YARN if given."""
        rows, total, cores = self._rows, self._total, self.cores
        columns = ColocationColumns(
            services_cpu=tuple(r.sums.used(r.sums.services, cores) for r in rows),
            best_effort_cpu=tuple(r.sums.used(r.sums.best_effort, cores) for r in rows),
            batch_cpu=tuple(r.batch for r in rows),
            mid_cpu=tuple(r.mid for r in rows),
            at_risk=tuple(r.sums.risk for r in rows),
            suppressed=tuple(r.sums.suppressed for r in rows),
        )
        totals = ColocationTotals(
            used_cpu=total.used(total.services + total.best_effort, cores),
            services_cpu=total.used(total.services, cores),
            best_effort_cpu=total.used(total.best_effort, cores),
            best_effort_core_hours=total.best_effort / _HOUR_S,
            lost_core_hours=self.lost_core_s / _HOUR_S,
            finished=self.finished,
            evicted=self.evicted,
            at_risk=total.risk,
            at_risk_hours=total.at_risk / _HOUR_S,
            suppressed=total.suppressed,
        )
        return ColocationReport(
            is_on=self.is_on,
            safe_percent=self.safe_percent,
            samples=columns,
            totals=totals,
            yarn=yarn,
        )
