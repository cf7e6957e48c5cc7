"""Execution of an experiment: its missing runs, then tables, charts and report of all."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from koordinator.foundation.clock import Clock, SystemClock
from koordinator.foundation.errors import InputError, KoordinatorError, library
from koordinator.simulator.experiments.charts import Chart, draw_charts, missing_bars
from koordinator.simulator.experiments.definition import Experiment, planned_runs, read_experiment
from koordinator.simulator.experiments.page import experiment_page
from koordinator.simulator.experiments.pool import execute_all
from koordinator.simulator.experiments.store import RunRecord, RunStore
from koordinator.simulator.experiments.tables import (
    Columns,
    arrivals_table,
    panels,
    runs_table,
    samples_table,
    summary_table,
    write_table,
)
from koordinator.simulator.numerals import duration

_LINE_EVERY_S: Final = 2.0
REPORT: Final = "report.html"


class ExperimentInterrupted(KoordinatorError):  # noqa: N818 -- not an error of the program
    """Ctrl-C ended the experiment; finished runs are kept."""


@dataclass(frozen=True, slots=True)
class ExperimentResult:
    """Tables and files of an experiment; ``notices`` are about what was left out."""

    experiment: Experiment
    folder: Path
    records: tuple[RunRecord, ...]
    files: tuple[Path, ...]
    notices: tuple[str, ...]
    summary: Columns

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
    Raises InputError for a wrong definition, ExperimentInterrupted for Ctrl-C.
    """
    if workers < 1:
        raise InputError(f"must be at least 1, got {workers}", source="--workers")
    read = read_experiment(Path(definition))
    runs = planned_runs(read)
    store = RunStore(Path(folder))
    with store.exclusive():
        missing = store.missing(runs)
        progress = SweepProgress(len(runs), len(missing), on_line, clock or SystemClock())
        progress.start()
        try:
            execute_all(missing, store.folder, workers, progress.update)
            records = store.records(runs)
            found = panels(runs, records)
            summary = summary_table(found)
            ordered = tuple(records.values())
            charts, notices = _charts(lambda: list(draw_charts(found, read.bars)))
            notices += tuple(
                f"bars: no run has the figure {name}; summary.csv lists all"
                for name in missing_bars(found, read.bars)
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
            page.write_text(experiment_page(read.title, found, failures, charts), "utf-8")
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


def _charts(draw: Callable[[], list[Chart]]) -> tuple[list[Chart], tuple[str, ...]]:
    """Return charts, or none and a sentence if matplotlib is missing."""
    try:
        library("matplotlib")
    except InputError as error:
        return [], (f"charts are left out: {error}",)
    return draw(), ()


def _write_tables(tables: dict[str, Columns], folder: Path) -> list[Path]:
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
