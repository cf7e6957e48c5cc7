"""Parallel processes that execute the runs of an experiment."""

import multiprocessing
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Final

from koordinator.simulator.experiments.definition import ExperimentRun
from koordinator.simulator.experiments.store import RunRecord, RunStore
from koordinator.simulator.experiments.worker import execute, failed, prepare_worker

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
            initializer=prepare_worker,
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
