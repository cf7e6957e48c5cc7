"""The Python API: one call for every source, with policies and plugins of one's own."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from koordinator import simulator
from koordinator.foundation.arrays import IntArray
from koordinator.foundation.errors import InputError
from koordinator.scheduler.contract import NoArgs, PluginSpec, Reads
from koordinator.scheduler.snapshot import PodClass, ResourceAxis, Snapshot
from koordinator.scheduler.snapshot.axis import CPU
from koordinator.simulator import PluginError, load_plugins, load_source, simulate
from koordinator.simulator.stages import PodStage

WORKLOAD = "examples/small-gpu-cluster.yaml"

PLUGIN = '''
import numpy as np
from koordinator.scheduler.contract import NoArgs, PluginSpec, Reads


class LastNode:
    """Prefer the node that comes last."""

    reads = Reads.NODE

    def score(self, snapshot, pod):
        return np.arange(len(snapshot.label('kubernetes.io/hostname')[0])) * 10


class Broken:
    """Fail at the first pod."""

    reads = Reads.NODE

    def score(self, snapshot, pod):
        return 1 / 0


def last(args: NoArgs, axis) -> LastNode:
    return LastNode()


def broken(args: NoArgs, axis) -> Broken:
    return Broken()


PLUGIN = PluginSpec("LastNode", NoArgs, last)
OTHER = PluginSpec("Broken", NoArgs, broken)
'''


class LargestNode:
    """Prefer nodes with many CPUs."""

    reads = Reads.NODE

    def score(self, snapshot: Snapshot, _pod: PodClass) -> IntArray:
        cpus: IntArray = np.clip(snapshot.allocatable[:, CPU] // 1000, 0, 100)
        return cpus


def largest(_args: NoArgs, _axis: ResourceAxis) -> LargestNode:
    return LargestNode()


LARGEST = PluginSpec("LargestNode", NoArgs, largest)


@pytest.fixture
def plugin_file(tmp_path: Path) -> str:
    file = tmp_path / "own.py"
    file.write_text(PLUGIN, "utf-8")
    return str(file)


@pytest.mark.parametrize("name", simulator.__all__)
def test_every_name_of_the_package_loads(name: str) -> None:
    """Each name is imported from its module when it is used first."""
    assert getattr(simulator, name) is not None


def test_a_policy_of_a_file_decides_where_pods_go(plugin_file: str) -> None:
    """The first job goes to the last of four nodes, where the profile packs the first one."""
    plugins = load_plugins(f"{plugin_file}:LastNode")
    ours = simulate(WORKLOAD, policy="LastNode", plugins=plugins)
    usual = simulate(WORKLOAD)

    assert ours.placements[0].node == "gpu-3"
    assert usual.placements[0].node == "gpu-0"
    assert ours.policy == "LastNode"


def test_a_broken_plugin_names_itself_and_ends_its_run_only(plugin_file: str) -> None:
    with pytest.raises(PluginError, match=r"plugin Broken: failed in score .*ZeroDivisionError"):
        simulate(WORKLOAD, plugins=f"{plugin_file}:OTHER")

    assert simulate(WORKLOAD, plugins=f"{plugin_file}:PLUGIN").report.total.finished > 0


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("missing.py", "missing.py: must be a Python file, as FILE.py or FILE.py:NAME"),
        ("{file}:Nothing", "must be one of PLUGIN (LastNode), OTHER (Broken), got 'Nothing'"),
    ],
)
def test_a_plugin_that_is_not_there_is_refused(given: str, problem: str, plugin_file: str) -> None:
    with pytest.raises(InputError) as error:
        load_plugins(given.format(file=plugin_file))

    assert problem in str(error.value)


def test_arrivals_come_one_by_one_and_do_not_wait() -> None:
    """Every pod is tried once; what is placed stays, and what is not is counted by reason."""
    result = simulate(WORKLOAD, protocol="arrivals", policy="packing")
    curve = result.curve

    assert curve is not None
    assert [p.submitted_s for p in result.placements] == list(range(len(result.placements)))
    assert {p.stage for p in result.placements} == {PodStage.RUNNING, PodStage.LOST}
    assert sum(result.failed_by_reason().values()) == sum(not p.node for p in result.placements)
    assert curve.arrived_milli[-1] == sum(p.gpu_milli for p in result.placements)
    assert curve.allocated_milli[-1] == sum(p.gpu_milli for p in result.placements if p.node)


def test_until_is_refused_where_arrivals_have_no_times() -> None:
    with pytest.raises(InputError, match="--until: cannot be used with --protocol arrivals"):
        simulate(WORKLOAD, protocol="arrivals", until="1h")


def test_unknown_policies_are_refused_with_the_accepted_ones(plugin_file: str) -> None:
    with pytest.raises(InputError, match=r"must be one of random, .*price-online, Last"):
        simulate(WORKLOAD, policy="best", plugins=f"{plugin_file}:PLUGIN")


def test_result_is_one_line_and_an_html_table() -> None:
    result = simulate(WORKLOAD, until=600)

    assert "\n" not in repr(result)
    assert repr(result).startswith("<SimulationResult A small GPU cluster")
    assert result._repr_html_().startswith("<table>")


def test_tables_have_a_row_per_pod_job_and_sample() -> None:
    result = simulate(WORKLOAD)

    assert len(result.table("pods")["pod"]) == len(result.placements)
    assert len(result.table("jobs")["job"]) == len(result.jobs)
    assert len(result.table("samples")["time_s"]) == len(result.report.samples.time_s)
    assert result.figures()["jobs"] == len(result.jobs)


def test_a_loaded_source_runs_again() -> None:
    source = load_source(WORKLOAD)

    assert simulate(source).placements == simulate(source).placements


EVERY_SOURCE: dict[str, tuple[str, dict[str, Any]]] = {
    "workload": ("examples/small-gpu-cluster.yaml", {"until": "30m"}),
    "arrivals of a workload": ("examples/small-gpu-cluster.yaml", {"protocol": "arrivals"}),
    "recording": ("examples/small-gpu-cluster.jsonl.gz", {"until": "30m"}),
    "manifests": ("examples/topology.yaml", {"until": "30m"}),
    "Kueue": ("examples/kueue.yaml", {"until": "30m"}),
    "Volcano": ("examples/volcano.yaml", {"until": "30m"}),
    "openb": ("examples/traces/openb", {"trace": "openb"}),
    "openb at its times": ("examples/traces/openb", {"trace": "openb", "protocol": "times"}),
    **{
        trace: (f"examples/traces/{trace}", {"trace": trace})
        for trace in ("alibaba-2025", "philly", "helios", "google-2019")
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY_SOURCE)
def test_a_policy_of_one_s_own_runs_on_every_source(name: str) -> None:
    """As an object, without a file; it scores all pods that are placed."""
    source, arguments = EVERY_SOURCE[name]

    result = simulate(source, policy="LargestNode", plugins=[LARGEST], seed=1, **arguments)

    assert result.policy == "LargestNode"
    assert any(placement.node for placement in result.placements)
