"""Sums over the steps of services and batch pods that share nodes.

Core seconds are sums over all nodes; node seconds count the nodes with services.
"""

from dataclasses import dataclass, field, fields

from koordinator.simulator.colocation_report import (
    ColocationColumns,
    ColocationReport,
    ColocationTotals,
    YarnReport,
)

_HOUR_S = 3600.0


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
class Tally:
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
