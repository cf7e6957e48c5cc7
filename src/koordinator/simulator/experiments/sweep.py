"""Execution of an experiment: its missing runs, then tables, charts and report of all.

HTML report of an experiment: one file that needs no other.

Its tables have the figures of ``FIGURE_LABELS``; ``summary.csv`` has all.
"""

from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from html import escape
from math import floor, log10
from pathlib import Path
from typing import Final

from koordinator.api.syntax import numbered
from koordinator.foundation.clock import Clock, SystemClock
from koordinator.foundation.errors import InputError, KoordinatorError, library
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.simulator.experiments.charts import Chart, draw_charts, missing_bars
from koordinator.simulator.experiments.definition import (
    Experiment,
    ExperimentRun,
    planned_runs,
    read_experiment,
)
from koordinator.simulator.experiments.pool import execute_all, source_of
from koordinator.simulator.experiments.store import RunRecord, RunStore
from koordinator.simulator.experiments.tables import (
    FIGURE_LABELS,
    Panel,
    SampleStatistics,
    TableColumns,
    arrivals_table,
    figure_value,
    numeric_figures,
    paired_differences,
    panels,
    runs_table,
    sample_statistics,
    samples_table,
    summary_table,
    write_table,
)
from koordinator.simulator.numerals import UNKNOWN, duration

_LARGE: Final = 1000  # numbers from here on have no decimals
_SMALL: Final = 0.1  # numbers below have two significant digits
_MOST_DECIMALS: Final = 6  # differences that are rounding errors of floats have no digits
_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem;
  color: #1d2329; background: #fff }
table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto }
th, td { padding: .25rem .75rem; border-bottom: 1px solid #d5dbe1; text-align: left }
th { vertical-align: bottom }
td { white-space: nowrap }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
.charts { display: flex; flex-wrap: wrap; gap: 1rem }
.charts img { width: 34rem; max-width: 100%; height: auto }
.note { color: #59636e }
"""

_LINE_EVERY_S: Final = 2.0
REPORT: Final = "report.html"


def experiment_page(
    title: str, panels: Sequence[Panel], failures: Sequence[RunRecord], charts: Sequence[Chart]
) -> str:
    """Return the report: failed runs, and tables and charts of each comparison."""
    body = "\n".join(_body(title, panels, failures, charts))
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def _body(
    title: str, panels: Sequence[Panel], failures: Sequence[RunRecord], charts: Sequence[Chart]
) -> Iterator[str]:
    yield f"<h1>{escape(title)}</h1>"
    finished = sum(len(records) for panel in panels for records in panel.policies.values())
    yield f"<p>{finished} runs finished, {len(failures)} failed.</p>"
    if failures:
        heads = [*failures[0].labels, "error"]
        rows = [[*map(str, record.labels.values()), record.error] for record in failures]
        yield f"<h2>Failed runs</h2>{_table(heads, rows)}"
    yield (
        '<p class="note">Cells have mean ± standard deviation over the seeds. Differences are '
        "paired by seed, with the 95 % confidence interval of Student's t. A difference whose "
        "interval has 0 may be chance. summary.csv has all figures.</p>"
    )
    yield _images([chart for chart in charts if not chart.panel])
    for panel in panels:
        yield f"<h2>{escape(panel.name)}</h2>"
        yield from _tables(panel)
        yield _images([chart for chart in charts if chart.panel == panel.name])


def _images(charts: Sequence[Chart]) -> str:
    images = (
        f'<img src="data:image/svg+xml;base64,{b64encode(chart.svg).decode()}" '
        f'alt="{escape(chart.title)}">'
        for chart in charts
    )
    return f'<div class="charts">{"".join(images)}</div>'


def _tables(panel: Panel) -> Iterator[str]:
    names = [name for name in numeric_figures(panel) if name in FIGURE_LABELS]
    baseline, *others = panel.policies
    heads = ["policy", *(FIGURE_LABELS[name][0] for name in names)]
    yield _table(
        heads,
        [
            [policy, *(_mean(records, name) for name in names)]
            for policy, records in panel.policies.items()
        ],
    )
    if others:
        yield f"<h3>Difference to {escape(baseline)}</h3>"
        rows = [
            [policy, *(_interval(paired_differences(panel, policy, baseline, n), n) for n in names)]
            for policy in others
        ]
        yield _table(heads, rows)


def _mean(records: Sequence[RunRecord], name: str) -> str:
    values = [v for record in records if (v := figure_value(record, name)) is not None]
    statistics = sample_statistics(values)
    if statistics.mean is None:
        return UNKNOWN
    factor = FIGURE_LABELS[name][1]
    mean = _number(factor * statistics.mean)
    if statistics.deviation is None:
        return mean
    return f"{mean} ± {_number(factor * statistics.deviation)}"


def _interval(statistics: SampleStatistics, name: str) -> str:
    if statistics.mean is None:
        return UNKNOWN
    factor = FIGURE_LABELS[name][1]
    mean = _number(factor * statistics.mean, "+")
    if statistics.low is None or statistics.high is None:
        return mean
    low, high = (_number(factor * bound, "+") for bound in (statistics.low, statistics.high))
    return f"{mean} [{low}, {high}]"


def _number(value: float, sign: str = "") -> str:
    """Return a number without an exponent, with three or more significant digits.

    Below 0.1 it has two digits and at most six decimals.
    """
    size = abs(value)
    if value.is_integer() or size >= _LARGE:
        decimals = 0
    elif size < _SMALL:
        decimals = min(1 - floor(log10(size)), _MOST_DECIMALS)
    else:
        decimals = 2 if size >= 1 else 3
    return f"{value:{sign},.{decimals}f}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; all columns but the first have numbers, unless there is an error column."""
    kind = "" if "error" in heads else ' class="n"'
    head = "".join(
        f"<th{kind if number else ''}>{escape(text)}</th>" for number, text in enumerate(heads)
    )
    lines = "".join(
        "<tr>"
        + "".join(
            f"<td{kind if number else ''}>{escape(cell)}</td>" for number, cell in enumerate(row)
        )
        + "</tr>\n"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{lines}</tbody></table>"


class ExperimentInterrupted(KoordinatorError):  # noqa: N818 -- not an error of the program
    """Ctrl-C ended the experiment; finished runs are kept."""


@dataclass(frozen=True, slots=True)
class ExperimentResult:
    """Tables and files of an experiment; ``notices`` describe omitted parts."""

    experiment: Experiment
    folder: Path
    records: tuple[RunRecord, ...]
    files: tuple[Path, ...]
    notices: tuple[str, ...]
    summary: TableColumns

    @property
    def failures(self) -> tuple[RunRecord, ...]:
        """Records of the runs that failed."""
        return tuple(record for record in self.records if record.error)


def experiment(
    definition: Path | str,
    folder: Path | str,
    *,
    workers: int = 1,
    on_line: Callable[[str], object] | None = None,
    clock: Clock | None = None,
) -> ExperimentResult:
    """Execute the runs of a definition that ``folder`` has no result of, and write all tables.

    ``workers`` is the number of processes; ``on_line`` receives lines about the progress.  A script
    that calls this needs the guard ``if __name__ == "__main__":``, as processes import it.
    Raises InputError for a wrong definition or a source that can't be read, before the first run;
    ExperimentInterrupted for Ctrl-C.
    """
    if workers < 1:
        raise InputError(f"must be at least 1, got {workers}", source="--workers")
    read = read_experiment(Path(definition))
    runs = planned_runs(read)
    store = RunStore(Path(folder))
    with store.exclusive():
        missing = store.missing(runs)
        _check_sources(read, missing, str(definition))
        progress = SweepProgress(len(runs), len(missing), on_line, clock or SystemClock())
        progress.start()
        try:
            execute_all(missing, store.folder, workers, progress.update)
            records = store.records(runs)
            all_panels = panels(runs, records)
            summary = summary_table(all_panels)
            ordered = tuple(records.values())
            charts, notices = _charts(lambda: list(draw_charts(all_panels, read.bars)))
            notices += tuple(
                f"bars: no run has the figure {name}; summary.csv lists all"
                for name in missing_bars(all_panels, read.bars)
            )
            tables = {
                "runs": runs_table(ordered),
                "samples": samples_table(ordered),
                "arrivals": arrivals_table(ordered),
                "summary": summary,
            }
            files = _write_tables(tables, store.folder)
            for chart in charts:
                (store.folder / chart.file_name).write_bytes(chart.svg)
            failures = [record for record in ordered if record.error]
            page = store.folder / REPORT
            page.write_text(experiment_page(read.title, all_panels, failures, charts), "utf-8")
        except KeyboardInterrupt:
            done = len(runs) - len(store.missing(runs))
            text = f"interrupted by Ctrl-C: {done} of {len(runs)} runs are done and kept"
            text = f"{text}; run the same command again to execute the others"
            raise ExperimentInterrupted(text) from None
        except OSError as error:
            text = f"{error.filename or store.folder}: cannot be written: {error.strerror}"
            raise KoordinatorError(text) from None
    names = [*files, *(store.folder / chart.file_name for chart in charts), page]
    return ExperimentResult(read, store.folder, ordered, tuple(names), notices, summary)


def _check_sources(read: Experiment, missing: Sequence[ExperimentRun], definition: str) -> None:
    """Load each source that a run needs, so that none is missing after hours of other runs.

    Raises InputError with the definition and the place of the source.
    """
    needed = [run.source for run in missing]
    for place, source in numbered(read.sources, "sources"):
        if source in needed:
            try:
                source_of(source)
            except InputError as error:
                raise InputError(str(error), source=definition, path=place) from None


def _charts(draw: Callable[[], list[Chart]]) -> tuple[list[Chart], tuple[str, ...]]:
    """Return charts, or none and a sentence if matplotlib is missing."""
    try:
        library("matplotlib")
    except InputError as error:
        return [], (f"charts are left out: {error}",)
    return draw(), ()


def _write_tables(tables: dict[str, TableColumns], folder: Path) -> list[Path]:
    files = []
    for name, columns in tables.items():
        path = folder / name
        if columns:
            files += write_table(columns, path, parquet=name in {"runs", "samples"})
        else:  # of a former definition
            path.with_suffix(".csv").unlink(missing_ok=True)
            path.with_suffix(".parquet").unlink(missing_ok=True)
    return files


class SweepProgress:
    """Lines about the progress of an experiment, with the expected time to its end."""

    def __init__(
        self, total: int, missing: int, on_line: Callable[[str], object] | None, clock: Clock
    ) -> None:
        self._total, self._missing = total, missing
        self._on_line, self._clock = on_line, clock
        self._started_s = self._printed_s = clock.now_s()
        self._executed = self._failed = 0

    def start(self) -> None:
        """Print the number of runs."""
        done = self._total - self._missing
        kept = f", {done} of them done before" if done else ""
        self._print(f"{self._total} runs{kept}")

    def update(self, records: Sequence[RunRecord]) -> None:
        """Count finished runs; print failures, and a line of progress at intervals."""
        self._executed += len(records)
        for record in records:
            if record.error:
                self._failed += 1
                labels = ", ".join(f"{name} {value}" for name, value in record.labels.items())
                self._print(f"failed: {labels}: {record.error}")
        now_s = self._clock.now_s()
        is_last = self._executed == self._missing and len(records) > 0
        if is_last or now_s - self._printed_s >= _LINE_EVERY_S:
            self._printed_s = now_s
            self._print(self._line(now_s - self._started_s))

    def _line(self, elapsed_s: float) -> str:
        done = self._total - self._missing + self._executed
        parts = [f"{done} of {self._total} runs", duration(elapsed_s)]
        left = self._missing - self._executed
        if left and self._executed:
            parts.append(f"ETA {duration(elapsed_s / self._executed * left)}")
        if self._failed:
            parts.append(f"{self._failed} failed")
        return " · ".join(parts)

    def _print(self, line: str) -> None:
        if self._on_line is not None:
            self._on_line(line)
