"""Formulas of the metrics of jobs, against four jobs that were computed by hand.

``alone`` is one pod, ``gang`` has two pods, ``again`` loses its pod and gets another one, and
``late`` finds no node.  The run ends at 400 s.
"""

from pathlib import Path

import pytest

from koordinator.simulator import simulate
from koordinator.simulator.job_metrics import (
    JobMetrics,
    NodeRates,
    PodLifeTimes,
    PoolCapacity,
    job_metrics,
    job_runs,
)

RATES = NodeRates(hourly_price=2.0, idle_watts=100.0, cpu_watts=50.0, gpu_watts=200.0)
POOLS = {
    "a": PoolCapacity(("n0",), cpu_milli=2000, gpu_milli=1000, rates=RATES),
    "b": PoolCapacity(("n1",), cpu_milli=2000, gpu_milli=1000, rates=RATES),
}


def life(
    job: str,
    times: tuple[float, float | None, float | None],
    *,
    node: str = "n0",
    amounts: tuple[int, int] = (1000, 1000),  # CPU and GPU milli
    pod: str = "",
    finished: bool = True,
    restart: bool = False,
) -> PodLifeTimes:
    """Return a pod; ``times`` are submission, bind and end."""
    submitted_s, bound_s, ended_s = times
    return PodLifeTimes(
        job=job,
        pod=pod or job,
        submitted_s=submitted_s,
        bound_s=bound_s,
        ended_s=ended_s,
        is_finished=finished,
        is_restart=restart,
        node=node if bound_s is not None else "",
        cpu_milli=amounts[0],
        gpu_milli=amounts[1],
    )


PODS = [
    life("alone", (0, 10, 110), amounts=(1000, 500)),
    life("gang", (0, 20, 220), amounts=(500, 500), pod="gang-0"),
    life("gang", (5, 40, 240), amounts=(500, 500), pod="gang-1", node="n1"),
    life("again", (100, 100, 150), finished=False),
    life("again", (160, 200, 300), restart=True),
    life("late", (350, None, None), finished=False),
]


@pytest.fixture
def metrics() -> JobMetrics:
    return job_metrics(PODS, POOLS, 400.0)


def test_jobs_are_counted_with_their_replacements(metrics: JobMetrics) -> None:
    """Six pods are four jobs. Three of them finish, one with a second pod."""
    assert (metrics.jobs, metrics.finished, metrics.restarts) == (4, 3, 1)
    assert [run.job for run in job_runs(PODS)] == ["alone", "gang", "again", "late"]


def test_completion_is_from_the_first_submission_to_the_last_end(metrics: JobMetrics) -> None:
    """110, 240 and 200 s; percentiles interpolate: 200 + 0.98 * 40."""
    completion = metrics.completion
    assert completion is not None
    assert completion.mean_s == pytest.approx(550 / 3)
    assert completion.p50_s == pytest.approx(200)
    assert completion.p95_s == pytest.approx(236)
    assert completion.p99_s == pytest.approx(239.2)


def test_queueing_is_until_all_pods_ran_for_the_first_time(metrics: JobMetrics) -> None:
    """10, 40 and 0 s; the wait of a replacement does not count, nor that of a job without start."""
    queueing = metrics.queueing
    assert queueing is not None
    assert queueing.mean_s == pytest.approx(50 / 3)
    assert queueing.p50_s == pytest.approx(10)
    assert queueing.p99_s == pytest.approx(39.4)


def test_fairness_compares_with_an_equal_share(metrics: JobMetrics) -> None:
    """Jobs there, and shares: alone 230/110 and 1/4, gang 490/240 and 1/2, again 350/200 and 1/2.

    Only the gang's equal share, of 490/480, would be too small.
    """
    alone, gang, again = 110 / 100, 240 / (200 * 490 / 480), 200 / 100
    fairness = metrics.fairness
    assert fairness is not None
    assert fairness.mean == pytest.approx((alone + gang + again) / 3)
    assert fairness.worst == pytest.approx(again)
    assert fairness.p99 == pytest.approx(gang + 0.98 * (again - gang))
    assert fairness.unfair_share == 1.0


def test_a_job_that_never_waits_is_not_treated_unfairly() -> None:
    """The completion time of the job is its run time."""
    fairness = job_metrics([life("job", (0, 0, 100))], POOLS, 100.0).fairness

    assert fairness is not None
    assert (fairness.mean, fairness.unfair_share) == (1.0, 0.0)


def test_utilization_is_what_pods_hold_of_the_whole_run(metrics: JobMetrics) -> None:
    """GPU: 100 * 0.5 + 2 * 200 * 0.5 + 150 * 1 of 2 * 400; CPU: 100 + 2 * 200 / 2 + 150 of 1600."""
    assert metrics.gpu_utilization == pytest.approx(400 / 800)
    assert metrics.cpu_utilization == pytest.approx(450 / 1600)


def test_cost_is_of_all_nodes_or_of_those_with_pods(metrics: JobMetrics) -> None:
    """Two nodes for 400 s; n0 has pods from 10 to 300 s, n1 from 40 to 240 s; three jobs finish."""
    assert metrics.cost == pytest.approx(2 * 2 * 400 / 3600)
    assert metrics.used_node_cost == pytest.approx(2 * (290 + 200) / 3600)
    assert metrics.cost_per_job == pytest.approx(2 * 2 * 400 / 3600 / 3)


def test_energy_grows_from_idle_power_with_the_allocation(metrics: JobMetrics) -> None:
    """Idle 80 kJ; CPU 25 W * 100 s + 2 * 12.5 W * 200 s + 25 W * 150 s; GPU 10 + 40 + 30 kJ."""
    joules = 80_000 + (2_500 + 5_000 + 3_750) + (10_000 + 40_000 + 30_000)

    assert metrics.energy_kwh == pytest.approx(joules / 3.6e6)


def test_a_gang_counts_the_pools_of_its_nodes(metrics: JobMetrics) -> None:
    """Jobs of one pod do not count."""
    assert metrics.pools_per_gang == 2.0


def test_what_has_no_meaning_is_none() -> None:
    """Without GPUs, prices, power, gangs and finished jobs."""
    pools = {"a": PoolCapacity(("n0",), cpu_milli=2000, gpu_milli=0)}
    figures = job_metrics(
        [life("job", (0, 0, None), amounts=(500, 0), finished=False)], pools, 10.0
    )

    assert (figures.completion, figures.fairness, figures.gpu_utilization) == (None, None, None)
    assert (figures.cost, figures.cost_per_job, figures.energy_kwh) == (None, None, None)
    assert figures.pools_per_gang is None
    assert figures.cpu_utilization == pytest.approx(0.25)


def test_fragmentation_counts_unusable_gpu_parts_over_the_demand(tmp_path: Path) -> None:
    """Pods take 600 of 1000 milli each, on two GPUs: what is left of a GPU is of no use.

    After the first, 400 of 2000 and of 1400 free milli; after the second, 800 and all.
    """
    nodes = "sn,cpu_milli,memory_mib,gpu,model\nn0,8000,8192,2,A\n"
    pods = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np0,1000,1,1,600\np1,1000,1,1,600\n"
    (tmp_path / "openb_node_list_gpu_node.csv").write_text(nodes)
    (tmp_path / "openb_pod_list_default.csv").write_text(pods)

    curve = simulate(tmp_path, trace="openb", policy="fgd", demand=0.6).curve

    assert curve is not None
    assert curve.fragmentation_over_demand() == {30: (20.0, 28.57), 60: (40.0, 100.0)}
    assert curve.fragmentation == pytest.approx(0.4)
    assert [curve.allocation_at(percent) for percent in (29, 30, 45, 60, 61)] == [
        0.0,
        30.0,
        30.0,
        60.0,
        None,
    ]
