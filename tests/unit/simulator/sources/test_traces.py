"""Published formats of traces, and queues of Kueue and Volcano, as sources of a simulation."""

import json
import os
from math import inf
from pathlib import Path

import pytest

from koordinator.foundation.errors import InputError
from koordinator.simulator import SimulationResult, load_source, simulate
from koordinator.simulator.stages import PodStage

SAMPLES = Path("examples/traces")
OPENB = Path(os.environ.get("KOORD_OPENB", "../shared/data/openb"))


def total_gpu_milli(result: SimulationResult) -> int:
    return sum(placement.gpu_milli for placement in result.placements)


def test_philly_jobs_have_a_pod_per_server_and_run_for_all_attempts() -> None:
    jobs = [
        job
        for job in json.loads((SAMPLES / "philly/cluster_job_log").read_text("utf-8"))
        if job["attempts"]
    ]
    result = simulate(SAMPLES / "philly", trace="philly")

    assert [job.pods for job in result.jobs] == [len(job["attempts"][-1]["detail"]) for job in jobs]
    gpus_of_jobs = [sum(len(d["gpus"]) for d in job["attempts"][-1]["detail"]) for job in jobs]
    assert [job.gpu_milli for job in result.jobs] == [1000 * gpus for gpus in gpus_of_jobs]
    submissions = result.placements
    assert sum(p.stage is PodStage.FINISHED for p in submissions) > len(submissions) / 2
    assert "1 job is left out: no attempt" in " ".join(
        load_source(SAMPLES / "philly", trace="philly").notices
    )


def test_helios_jobs_stay_in_their_virtual_cluster() -> None:
    """Each cluster has as many nodes as it ever had GPUs; a cluster without GPUs is left out."""
    source = load_source(SAMPLES / "helios", trace="helios")
    plan = source.generate(0, inf)
    result = simulate(source)

    assert {pool: len(nodes) for pool, nodes in plan.nodes.items()} == {"vca": 3, "vcb": 2}
    for placement, submission in zip(result.placements, plan.submissions, strict=True):
        pool = submission.pod.spec.node_selector["koordinator.sh/node-pool"]
        assert placement.node.startswith(pool) or not placement.node
    assert any("never had GPUs" in notice for notice in source.notices)


def test_alibaba_2025_has_room_for_its_largest_demand() -> None:
    """Instances of both roles; those without a creation time are there from the beginning."""
    result = simulate(SAMPLES / "alibaba-2025", trace="alibaba-2025")

    assert {p.node.partition("-")[0] for p in result.placements if p.node} == {"cn", "hn"}
    assert sum(p.submitted_s == 0 for p in result.placements) >= 6
    assert result.report.total.scheduled == len(result.placements)


def test_google_tasks_run_as_long_as_in_the_trace_and_removed_machines_are_down() -> None:
    source = load_source(SAMPLES / "google-2019", trace="google-2019")
    plan = source.generate(0, inf)
    result = simulate(source)

    assert len(plan.submissions) == 30  # the one inside of an alloc set is left out
    (outage,) = plan.outages
    assert (outage.node, outage.repaired_after_s) == ("m2", 1800)
    assert result.report.node_failures == 1
    assert result.report.total.scheduled >= 30


def test_openb_follows_its_times_or_arrives_pod_by_pod() -> None:
    times = simulate(
        SAMPLES / "openb", trace="openb", protocol="times", policy="packing", until="30h"
    )
    arrivals = simulate(SAMPLES / "openb", trace="openb", policy="packing", demand=1.3)

    assert len(times.placements) == 60
    assert times.report.jobs is not None
    assert times.report.jobs.finished == 60
    assert arrivals.curve is not None
    assert arrivals.arrival_figures()["gpuArrivedPercent"] == pytest.approx(130, abs=5)


@pytest.mark.parametrize("trace", ["philly", "helios", "alibaba-2025", "google-2019"])
def test_policies_and_arrivals_work_on_every_trace(trace: str) -> None:
    result = simulate(SAMPLES / trace, trace=trace, policy="bestfit", protocol="arrivals")

    assert result.policy == "bestfit"
    assert {p.stage for p in result.placements} <= {
        PodStage.RUNNING,
        PodStage.LOST,
        PodStage.PENDING,
    }


@pytest.mark.parametrize(
    ("trace", "where"),
    [
        ("philly", "github.com/msr-fiddle/philly-traces"),
        ("helios", "github.com/S-Lab-System-Group/HeliosData"),
        ("alibaba-2025", "github.com/alibaba/clusterdata"),
        ("google-2019", "github.com/google/cluster-data"),
        ("openb", "github.com/alibaba/clusterdata"),
    ],
)
def test_a_folder_without_the_trace_names_where_to_get_it(
    trace: str, where: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=where):
        load_source(tmp_path, trace=trace)


@pytest.mark.parametrize(
    ("file", "old", "new", "problem"),
    [
        ("helios/Venus/cluster_log.csv", ",COMPLETED,", ",COMPLETED,x", "must be a time such as"),
        ("helios/Venus/cluster_log.csv", "gpu_num", "gpus", "must have the column 'gpu_num'"),
        ("alibaba-2025/disaggregated_DLRM_trace.csv", ",HN,", ",XX,", "must be CN or HN, got 'XX'"),
        ("philly/cluster_job_log", '"jobid"', '"id"', "must be a JSON list of jobs"),
        ("google-2019/instance_events-000000000000.json", '"time"', '"at"', "must be a row of"),
    ],
)
def test_a_wrong_line_is_named(file: str, old: str, new: str, problem: str, tmp_path: Path) -> None:
    trace = file.partition("/")[0]
    for path in (SAMPLES / trace).rglob("*"):
        if path.is_file():
            copy = tmp_path / path.relative_to(SAMPLES / trace)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(path.read_text("utf-8"), "utf-8")
    wrong = tmp_path / Path(file).relative_to(trace)
    wrong.write_text(wrong.read_text("utf-8").replace(old, new, 1), "utf-8")

    with pytest.raises(InputError, match=problem) as error:
        load_source(tmp_path, trace=trace)

    assert wrong.name in str(error.value)


def test_jobs_of_kueue_run_within_the_quota_of_their_queue() -> None:
    """Two of three pods fit the two GPUs of the ClusterQueue, on a node with four."""
    result = simulate("examples/kueue.yaml", until="10m")
    later = simulate("examples/kueue.yaml", until="45m")

    assert sum(p.bound_s is not None for p in result.placements) == 2
    assert [p.stage for p in later.placements] == [PodStage.FINISHED] * 3


def test_jobs_of_volcano_start_together_within_their_queue() -> None:
    """The second one waits for the first, which holds the queue's six CPUs, of the node's eight."""
    result = simulate("examples/volcano.yaml", until="30m")
    first, second = result.jobs

    assert (first.pods, first.queued_s) == (3, 0)
    assert (second.pods, second.completion_s) == (2, pytest.approx(480 + 600, abs=15))


@pytest.mark.skipif(
    not OPENB.is_dir(), reason="Alibaba's openb trace is not there: KOORD_OPENB names its folder"
)
@pytest.mark.slow
def test_the_real_openb_trace_is_read_with_both_protocols() -> None:
    arrivals = load_source(OPENB, trace="openb", demand=0.01)
    times = load_source(OPENB, trace="openb", protocol="times")

    assert arrivals.generate(42, inf).submissions
    assert times.horizon_s > 0
    assert len(times.generate(0, inf).submissions) == 8152
