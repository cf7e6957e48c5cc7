"""Parallel processes that execute the runs of an experiment."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from koordinator.foundation.clock import SystemClock
from koordinator.foundation.errors import KoordinatorError
from koordinator.simulator.api import load_source, simulate
from koordinator.simulator.experiments.definition import ExperimentRun, ExperimentSource
from koordinator.simulator.experiments.store import RunRecord, RunStore
from koordinator.simulator.results import SimulationResult
from koordinator.simulator.sources.source import Source

#: Figures and columns that measure the machine, not the schedule.
_REAL_TIME: Final = frozenset({"wall_s", "scheduling_s"})
_LONGEST: Final = 500  # characters of an error
_MOST_PERCENT: Final = 1000  # of arrived demand
_HEARTBEAT_S: Final = 10.0  # between calls of ``on_progress`` while no run finishes
_KILLED: Final = "the process of the run was killed, perhaps for lack of memory"


def execute_all(
    runs: Sequence[ExperimentRun],
    folder: Path,
    workers: int,
    on_progress: Callable[[Sequence[RunRecord]], object],
) -> None:
    """Execute runs; ``on_progress`` receives the records of runs since its last call.

    A run that kills its process fails alone: the runs beside it are repeated one by one.
    KeyboardInterrupt ends the processes and is raised again; results so far are kept.
    """
    suspects = _execute(deque(runs), folder, workers, on_progress)
    for run in suspects:
        if _execute(deque([run]), folder, 1, on_progress):
            record = failed(run, _KILLED)
            RunStore(folder).write(record)
            on_progress([record])


def _execute(
    waiting: deque[ExperimentRun],
    folder: Path,
    workers: int,
    on_progress: Callable[[Sequence[RunRecord]], object],
) -> list[ExperimentRun]:
    """Execute runs; return those that were running when a process died."""
    suspects: list[ExperimentRun] = []
    others = multiprocessing.active_children()
    while waiting:
        pool = ProcessPoolExecutor(
            min(workers, len(waiting)),
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_prepare_worker,
        )
        running: dict[Future[RunRecord], ExperimentRun] = {}
        is_broken = False
        try:
            while (waiting and not is_broken) or running:
                # No more than one run per process, so that few are suspects.
                while waiting and not is_broken and len(running) < workers:
                    try:
                        future = pool.submit(execute, waiting[0], folder)
                    except BrokenProcessPool:
                        is_broken = True
                        break
                    running[future] = waiting.popleft()
                done, _ = wait(running, _HEARTBEAT_S, return_when=FIRST_COMPLETED)
                records = []
                for future in done:
                    run = running.pop(future)
                    try:
                        records.append(future.result())
                    except BrokenProcessPool:
                        is_broken = True
                        suspects.append(run)
                on_progress(records)
        except BaseException:
            for process in multiprocessing.active_children():
                if process not in others:
                    process.terminate()
            raise
        finally:
            pool.shutdown(cancel_futures=True)
    return suspects


def _prepare_worker() -> None:
    """Leave Ctrl-C to the parent, and end this process when the parent is killed.

    Workers hold both ends of the queue of runs, so that the end of the parent does not close it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def follow() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def execute(run: ExperimentRun, folder: Path) -> RunRecord:
    """Simulate a run, write its record, and return the record without tables.

    An exception of the run is its error: it ends only this run.
    """
    clock = SystemClock()
    started_s = clock.now_s()
    try:
        record = _record(run, _simulated(run))
    except Exception as error:  # noqa: BLE001 -- plugins raise any
        record = failed(run, _text(error))
    record = replace(record, wall_s=clock.now_s() - started_s)
    RunStore(folder).write(record)
    return RunRecord(key=run.key, labels=record.labels, error=record.error, wall_s=record.wall_s)


def failed(run: ExperimentRun, error: str) -> RunRecord:
    """Return the record of a run that failed."""
    return RunRecord(key=run.key, labels=run.labels, error=error)


def _simulated(run: ExperimentRun) -> SimulationResult:
    parameters, until = run.parameters, run.source.until
    return simulate(
        source_of(run.source, parameters.get("demand")),
        run.policy.config or None,
        policy=run.policy.policy,
        plugins=run.policy.plugins,
        seed=run.seed,
        until=None if until is None else until.total_seconds(),
        migrate=parameters.get("migrate"),
        colocates=parameters.get("colocation", True),
    )


@lru_cache(maxsize=1)  # runs of one source follow each other
def source_of(source: ExperimentSource, demand: float | None = None) -> Source:
    """Load a source.  Raises InputError for files that can't be read."""
    return load_source(
        source.data if source.trace else source.workload,
        trace=source.trace,
        pods=source.pods,
        demand=demand,
        protocol=source.protocol,
        topology=source.topology,
    )


def _record(run: ExperimentRun, result: SimulationResult) -> RunRecord:
    labels = run.labels | {"seed": result.seed}
    figures = {
        name: value
        for name, value in result.figures().items()
        if value is not None and name not in labels and name not in _REAL_TIME
    }
    samples = {
        name: values for name, values in result.table("samples").items() if name not in _REAL_TIME
    }
    jobs, curve = result.jobs, result.curve
    fragmented = {} if curve is None else curve.fragmentation_over_demand()
    return RunRecord(
        key=run.key,
        labels=labels,
        figures=figures,
        samples=samples,
        allocation=_allocation(result),
        fragmented={percent: of_all for percent, (of_all, _) in fragmented.items()},
        fragmented_of_free={
            percent: of_free for percent, (_, of_free) in fragmented.items() if of_free is not None
        },
        queued_s=[job.queued_s for job in jobs if job.queued_s is not None],
        completion_s=[job.completion_s for job in jobs if job.completion_s is not None],
    )


def _allocation(result: SimulationResult) -> dict[int, float]:
    curve = result.curve
    if curve is None:
        return {}
    percents = ((p, curve.allocation_at(p)) for p in range(1, _MOST_PERCENT + 1))
    return {percent: value for percent, value in percents if value is not None}


def _text(error: Exception) -> str:
    text = str(error) if isinstance(error, KoordinatorError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())[:_LONGEST]
