"""``koord simulate --trace openb``, on a trace small enough to follow by hand."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from koordinator.cli.main import app
from koordinator.foundation.errors import InputError

NODES = """sn,cpu_milli,memory_mib,gpu,model
node-0,16000,65536,2,T4
node-1,16000,65536,1,P100
"""
PODS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec
half,1000,1024,1,500,
other-half,1000,1024,1,500,
whole,1000,1024,1,1000,P100
pair,1000,1024,2,1000,
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "openb_node_list_gpu_node.csv").write_text(NODES)
    (tmp_path / "openb_pod_list_default.csv").write_text(PODS)
    return tmp_path


def simulate(folder: Path, *more: str) -> Result:
    command = ["simulate", "--trace", "openb", "--data", str(folder), *more]
    return CliRunner().invoke(app, command, catch_exceptions=False)


def test_a_list_without_tuning_arrives_once(folder: Path) -> None:
    """Four pods request 4 of 3 GPUs: something fails, at most a GPU is left."""
    figures = json.loads(simulate(folder, "--policy", "fgd", "-o", "json").stdout)

    assert (figures["arrivals"], figures["gpuArrivedPercent"]) == (4, 133)
    assert 66 <= figures["gpuAllocatedPercent"] <= 100


def test_placements_name_every_arrival_with_its_gpus(folder: Path) -> None:
    """No GPU is given more than its 1000 milli; a failed arrival has neither node nor GPUs."""
    file = folder / "placements.csv"
    simulate(folder, "--tune", "2.5", "--seed", "3", "--placements", str(file))

    header, *lines = file.read_text().splitlines()
    assert header == "arrival,pod,node,gpus"
    allocated: dict[tuple[str, str], int] = {}
    for number, line in enumerate(lines):
        arrival, pod, node, gpus = line.split(",")
        assert int(arrival) == number
        assert pod.split("-clone-")[0] in {"half", "other-half", "whole", "pair"}
        assert bool(node) == bool(gpus)
        for part in filter(None, gpus.split(";")):
            minor, milli = part.split(":")
            allocated[node, minor] = allocated.get((node, minor), 0) + int(milli)
    assert allocated
    assert max(allocated.values()) <= 1000


def test_the_same_seed_repeats_and_the_bound_is_not_exceeded(folder: Path) -> None:
    """Only the measured speed may differ between two runs."""
    runs = [json.loads(simulate(folder, "--bound", "-o", "json").stdout) for _ in range(2)]
    for figures in runs:
        figures.pop("podsPerSecond")

    assert runs[0] == runs[1]
    assert runs[0]["gpuAllocatedPercent"] <= runs[0]["bound"]["gpuAllocatedPercent"]


def test_bound_of_work_conserving_policies_is_between(folder: Path) -> None:
    """A descheduler could free room for pods that arrive later, so there is none with moves."""
    figures = json.loads(simulate(folder, "--bound", "-o", "json").stdout)
    moved = json.loads(simulate(folder, "--bound", "--migrate", "50", "-o", "json").stdout)

    bound = figures["bound"]
    assert figures["gpuAllocatedPercent"] <= bound["workConservingPercent"]
    assert bound["workConservingPercent"] <= bound["gpuAllocatedPercent"]
    assert "workConservingPercent" not in moved["bound"]
    assert "places every pod that fits a node can exceed" in simulate(folder, "--bound").stdout


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--policy", "best"), "--policy: must be one of random"),
        (("--tune", "0"), "--tune: must be a ratio over 0, got 0.0"),
        (("--workload", "other"), "openb_pod_list_other.csv: cannot be read"),
    ],
)
def test_wrong_options_are_refused(folder: Path, more: tuple[str, ...], message: str) -> None:
    """The message names the option or file, what was found and what is accepted."""
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        simulate(folder, *more)
