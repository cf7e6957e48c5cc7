"""Execution of experiments: equal tables in any number of attempts, and failing runs."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from koordinator.cli import experiment as command
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.errors import InputError
from koordinator.simulator.experiments import experiment, sweep
from koordinator.simulator.experiments.definition import planned_runs, read_experiment
from koordinator.simulator.experiments.pool import execute, failed
from koordinator.simulator.experiments.store import RunStore
from koordinator.simulator.experiments.sweep import SweepProgress

ROOT = Path(__file__).parents[4]
TABLES = ("runs", "samples", "summary")
PATIENCE_S = 600
#: Background jobs of a shell ignore SIGINT, and their children would as well.
COMMAND = """
import signal, sys
from koordinator.cli.main import main
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main())
"""
#: Policies that fail, with an exception or the process, and one that waits for a file ``open``.
PLUGINS = """
import os, time
from pathlib import Path
import numpy as np
from koordinator.scheduler.contract import NoArgs, PluginSpec, Reads


class Broken:
    reads = Reads.NODE

    def score(self, snapshot, pod):
        return 1 / 0


class Fatal:
    reads = Reads.NODE

    def score(self, snapshot, pod):
        os._exit(9)


class Gated:
    reads = Reads.NODE

    def score(self, snapshot, pod):
        while not Path(__file__).with_name("open").exists():
            time.sleep(0.05)
        return np.arange(len(snapshot.label("kubernetes.io/hostname")[0])) * 10


def gated(args: NoArgs, axis) -> Gated:
    return Gated()


def broken(args: NoArgs, axis) -> Broken:
    return Broken()


def fatal(args: NoArgs, axis) -> Fatal:
    return Fatal()


PLUGIN = PluginSpec("Broken", NoArgs, broken)
FATAL = PluginSpec("Fatal", NoArgs, fatal)
GATED = PluginSpec("Gated", NoArgs, gated)
"""


@pytest.fixture
def _without_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the charts, which take longer than these runs."""
    monkeypatch.setattr(sweep, "draw_charts", lambda *_: ())


@pytest.fixture
def definition(tmp_path: Path) -> Path:
    """Write a grid of a tiny source; its second run waits for the file ``open``."""
    gated: dict[str, object] = {"policy": "Gated", "plugins": ["own.py:GATED"]}
    return _write(tmp_path, [{"policy": "fgd"}, gated, {"policy": "packing"}])


def _write(folder: Path, policies: list[dict[str, object]]) -> Path:
    (folder / "own.py").write_text(PLUGINS)
    path = folder / "tiny.yaml"
    source = {"workload": str(ROOT / "examples/small-gpu-cluster.yaml"), "until": "20m"}
    path.write_text(yaml.safe_dump({"sources": [source], "policies": policies, "seeds": [1]}))
    return path


def tables(folder: Path) -> dict[str, bytes]:
    return {name: (folder / f"{name}.csv").read_bytes() for name in TABLES}


class Child:
    """Process of ``koord experiment``; its workers are children of it."""

    def __init__(self, definition: Path, folder: Path, workers: int) -> None:
        words = ["experiment", str(definition), "-o", str(folder), "--workers", str(workers)]
        self.process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, *words], stderr=subprocess.PIPE, text=True
        )
        self._folder = folder

    def wait_for_runs(self, count: int) -> None:
        """Wait until so many runs are done, or the process has ended."""
        while len(list(self._folder.glob("runs/*.json"))) < count and self.process.poll() is None:
            time.sleep(0.05)

    def workers(self) -> list[int]:
        """Return the process ids of the children."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(text) for text in path.read_text().split()]


def _ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.slow
@pytest.mark.usefixtures("_without_charts")
@pytest.mark.integration
def test_killed_and_resumed_experiment_has_the_same_tables(
    definition: Path, tmp_path: Path
) -> None:
    """Ctrl-C, kill -9 and the number of processes leave no trace in the tables."""
    runs = planned_runs(read_experiment(definition))
    resumed = tmp_path / "resumed"

    child = Child(definition, resumed, workers=1)
    child.wait_for_runs(1)  # the second one waits
    child.process.send_signal(signal.SIGINT)
    _, errors = child.process.communicate(timeout=PATIENCE_S)
    assert child.process.returncode == 1, errors
    assert "1 of 3 runs are done and kept; run the same command again" in errors
    assert not (resumed / "runs.csv").exists()

    child = Child(definition, resumed, workers=2)
    child.wait_for_runs(2)
    workers = child.workers()
    child.process.kill()
    child.process.communicate(timeout=PATIENCE_S)
    deadline_s = time.monotonic() + PATIENCE_S
    while not all(map(_ended, workers)) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert len(workers) >= 2
    assert all(map(_ended, workers)), "workers outlive the killed parent"

    (tmp_path / "open").touch()
    done = {path: path.stat().st_mtime_ns for path in resumed.glob("runs/*.json")}
    lines: list[str] = []
    result = experiment(definition, resumed, on_line=lines.append)
    assert lines[0] == "3 runs, 2 of them done before"
    assert not result.failures
    assert {path: path.stat().st_mtime_ns for path in done} == done, "a finished run was repeated"

    whole = tmp_path / "whole"
    RunStore(whole)
    for run in runs:
        assert not execute(run, whole).error
    experiment(definition, whole)
    assert tables(resumed) == tables(whole)


@pytest.mark.slow
@pytest.mark.usefixtures("_without_charts")
@pytest.mark.integration
def test_run_that_kills_its_process_fails_alone(tmp_path: Path) -> None:
    """The run is repeated once, has an error in the tables, and is missing for the next call."""
    definition = _write(tmp_path, [{"policy": "Fatal", "plugins": ["own.py:FATAL"]}])
    (record,) = experiment(definition, tmp_path / "out").failures

    assert "the process of the run was killed" in record.error
    assert "was killed" in (tmp_path / "out/runs.csv").read_text("utf-8")
    assert RunStore(tmp_path / "out").missing(planned_runs(read_experiment(definition)))


def test_exception_of_a_plugin_is_the_error_of_its_run(tmp_path: Path) -> None:
    """The process goes on with other runs."""
    broken: dict[str, object] = {"policy": "Broken", "plugins": ["own.py:PLUGIN"]}
    first, second = planned_runs(read_experiment(_write(tmp_path, [broken, {"policy": "fgd"}])))
    store = RunStore(tmp_path)
    execute(first, tmp_path)
    execute(second, tmp_path)
    record = store.read(first.key)

    assert record is not None
    assert "plugin Broken: failed in" in record.error
    assert "ZeroDivisionError" in record.error
    assert store.missing([first, second]) == [first]


def test_source_that_cannot_be_read_ends_an_experiment_before_its_first_run(tmp_path: Path) -> None:
    """The message names the source and the file; no run is executed."""
    path = _write(tmp_path, [{"policy": "fgd"}])
    folder = tmp_path / "trace"
    folder.mkdir()
    grid = yaml.safe_load(path.read_text())
    grid["sources"].append({"trace": "openb", "data": "trace", "pods": "gpushare60"})
    path.write_text(yaml.safe_dump(grid))

    with pytest.raises(
        InputError, match=r"tiny\.yaml: sources\[1\]: .*openb_node_list.* is missing"
    ):
        experiment(path, tmp_path / "out")

    assert RunStore(tmp_path / "out").missing(planned_runs(read_experiment(path)))[0].seed == 1


def test_damaged_file_of_a_run_counts_as_missing(definition: Path, tmp_path: Path) -> None:
    """The run is executed again."""
    runs = planned_runs(read_experiment(definition))[::2]
    store = RunStore(tmp_path)
    record = execute(runs[0], tmp_path)
    path = tmp_path / f"runs/{record.key}.json"

    assert store.missing(runs) == runs[1:]
    path.write_bytes(path.read_bytes()[:-1])
    assert store.missing(runs) == runs


def test_folder_has_one_experiment_at_a_time(definition: Path, tmp_path: Path) -> None:
    """Two would execute each run twice."""
    with RunStore(tmp_path / "out").exclusive(), pytest.raises(InputError, match="is running"):
        experiment(definition, tmp_path / "out")


def test_results_are_in_a_folder_named_after_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extension alone: two versions of a definition do not share a folder."""
    folders: list[Path] = []

    def noted(_: Path, output: Path, **__: object) -> None:
        folders.append(output)
        raise InputError("stop")

    monkeypatch.setattr(command, "experiment", noted)
    for name in ("grid.v2.yaml", "grid.v3.yaml"):
        with pytest.raises(InputError, match="stop"):
            command.run_experiment(Path("definitions") / name)

    assert folders == [Path("grid.v2"), Path("grid.v3")]


def test_progress_has_the_expected_time_to_the_end(definition: Path) -> None:
    """From the runs of this call; runs done before took no time of it."""
    clock, lines = VirtualClock(), list[str]()
    runs = planned_runs(read_experiment(definition))
    progress = SweepProgress(8, 6, lines.append, clock)
    progress.start()
    clock.advance_to(1.0)
    progress.update([failed(runs[0], "broken")])
    clock.advance_to(4.0)
    progress.update([failed(runs[1], "")])
    clock.advance_to(12.0)
    progress.update([failed(run, "") for run in (*runs[1:], *runs[1:])])

    assert lines == [
        "8 runs, 2 of them done before",
        "failed: source small-gpu-cluster, policy fgd, seed 1: broken",
        "4 of 8 runs · 4 s · ETA 8 s · 1 failed",
        "8 of 8 runs · 12 s · 1 failed",
    ]
