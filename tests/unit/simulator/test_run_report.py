"""The record of a simulation run."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from koordinator.foundation.decoders import decode_json
from koordinator.foundation.errors import BugError
from koordinator.simulator.run_report import (
    OTHER,
    TOP_REASONS,
    UNTRIED,
    AllocatedShares,
    NodeGroup,
    RunRecorder,
    RunReport,
    RunSample,
    to_json,
)

GPU_NODES = NodeGroup(name="gpu", nodes=1, cpu_cores=30, memory_bytes=100, gpus=8)
CPU_NODES = NodeGroup(name="cpu", nodes=2, cpu_cores=10, memory_bytes=300)
START_S = 1_000.0


def recorder() -> RunRecorder:
    return RunRecorder(
        title="test",
        seed=7,
        groups=[GPU_NODES, CPU_NODES],
        started_s=START_S,
        parameters={"a": "b"},
    )


def sample(time_s: float = START_S, **given_figures: object) -> RunSample:
    figures: dict[str, object] = {
        "pending": 0,
        "running": 0,
        "finished": 0,
        "failed": 0,
        "decisions": 0,
        "scheduling_s": 0.0,
        "allocated": {"gpu": AllocatedShares(0.0, 0.0), "cpu": AllocatedShares(0.0, 0.0)},
    }
    return RunSample(time_s=time_s, **(figures | given_figures))  # type: ignore[arg-type] # any figure


def test_columns_have_the_sampled_values() -> None:
    """One row per sample, in the order fed."""
    taker = recorder()
    shares = {"gpu": AllocatedShares(0.1, 0.2, 0.3), "cpu": AllocatedShares(0.4, 0.5)}
    taker.sample(sample())
    taker.sample(
        sample(
            1_010.0,
            pending=1,
            running=2,
            finished=3,
            failed=4,
            decisions=5,
            scheduling_s=0.5,
            allocated=shares,
            gpu_fragmentation=0.25,
        )
    )
    columns = taker.finish(wall_s=2.0).samples

    assert columns.time_s == (1_000.0, 1_010.0)
    assert (columns.pods_pending, columns.pods_running) == ((0, 1), (0, 2))
    assert (columns.pods_finished, columns.pods_failed) == ((0, 3), (0, 4))
    assert (columns.decisions, columns.scheduling_s) == ((0, 5), (0.0, 0.5))
    assert columns.allocated["gpu"].gpu == (0.0, 0.3)
    assert (columns.allocated["cpu"].cpu, columns.allocated["cpu"].memory) == ((0, 0.4), (0, 0.5))
    assert columns.gpu_fragmentation == (None, 0.25)


def test_the_run_is_described() -> None:
    """Title, seed, parameters, wall time; virtual time ends with the last thing known."""
    taker = recorder()
    taker.sample(sample(1_500.0))
    taker.event(1_600.0, "the end")
    report = taker.finish(wall_s=2.5)

    assert (report.title, report.seed, report.parameters) == ("test", 7, {"a": "b"})
    assert (report.started_s, report.finished_s, report.wall_s) == (START_S, 1_600.0, 2.5)
    assert report.groups == (GPU_NODES, CPU_NODES)


def test_totals_count_pods_by_kind() -> None:
    """A resubmitted pod is also a submitted one; the waits of all kinds give the total's."""
    taker = recorder()
    for waited_s in (0.0, 10.0):
        taker.submitted("batch")
        taker.scheduled("batch", waited_s)
    taker.finished("batch")
    taker.failed("batch")
    taker.resubmitted("batch")
    taker.submitted("service")
    taker.scheduled("service", 50.0)
    taker.submitted("stuck")
    report = taker.finish(wall_s=1.0)
    batch, service, stuck = report.kinds

    assert (batch.kind, batch.submitted, batch.scheduled) == ("batch", 3, 2)
    assert (batch.finished, batch.failed, batch.resubmitted) == (1, 1, 1)
    assert batch.waiting is not None
    assert (batch.waiting.mean_s, batch.waiting.p50_s) == (5.0, 5.0)
    assert (batch.waiting.p95_s, batch.waiting.p99_s) == pytest.approx((9.5, 9.9))
    assert service.waiting is not None
    assert service.waiting.p99_s == 50.0
    assert stuck.waiting is None
    assert (report.total.submitted, report.total.scheduled) == (5, 3)
    assert report.total.waiting is not None
    assert report.total.waiting.mean_s == 20.0


def test_waits_over_time_are_those_since_the_sample_before() -> None:
    """A stretch in which nothing was scheduled has no wait."""
    taker = recorder()
    taker.scheduled("batch", 4.0)
    taker.scheduled("batch", 6.0)
    taker.sample(sample())
    taker.sample(sample(1_010.0))
    taker.scheduled("batch", 1.0)
    taker.sample(sample(1_020.0))
    columns = taker.finish(wall_s=1.0).samples

    assert columns.waited_p50_s == (5.0, None, 1.0)
    assert columns.waited_p95_s[0] == pytest.approx(5.9)
    assert columns.waited_p95_s[1:] == (None, 1.0)


def test_events_are_in_order_of_time_and_failures_are_counted() -> None:
    """A late event finds its place."""
    taker = recorder()
    taker.event(1_200.0, "node a is back")
    taker.node_failed(1_100.0, "node a failed")
    report = taker.finish(wall_s=1.0)

    assert [e.text for e in report.events] == ["node a failed", "node a is back"]
    assert report.node_failures == 1


def test_the_cluster_is_the_groups_by_size() -> None:
    """30 cores at 20 % and 10 at 100 % are 40 %; GPUs count where there are any."""
    taker = recorder()
    taker.sample(
        sample(
            allocated={"gpu": AllocatedShares(0.2, 0.0, 0.5), "cpu": AllocatedShares(1.0, 1.0, 0.0)}
        )
    )
    cluster = taker.finish(wall_s=1.0).allocated()

    assert cluster.cpu == pytest.approx((0.4,))
    assert cluster.memory == pytest.approx((0.75,))
    assert cluster.gpu == pytest.approx((0.5,))


def test_a_run_without_anything_has_a_report() -> None:
    """No groups, no samples, no pods."""
    report = RunRecorder(title="", seed=0, groups=[]).finish(wall_s=0.0)

    assert report.allocated().cpu == ()
    assert report.decision_rate() is None
    assert report.mean_over_time(()) is None
    assert report.total.waiting is None
    assert decode_json(to_json(report), RunReport) == report


def test_rare_reasons_are_summed_up() -> None:
    """The columns of the reasons add up to the pending pods at every sample."""
    taker = recorder()
    reasons = {f"reason {n}": 20 - n for n in range(TOP_REASONS + 3)}
    taker.sample(sample(pending=sum(reasons.values()), pending_by_reason=reasons))
    columns = taker.finish(wall_s=1.0).samples.pending_by_reason

    assert list(columns) == [*list(reasons)[:TOP_REASONS], OTHER]
    assert columns["reason 0"] == (20,)
    assert columns[OTHER] == (14 + 13 + 12,)


def test_pods_without_a_reason_are_untried() -> None:
    """Three pending, one of them for want of memory: two not tried yet."""
    taker = recorder()
    taker.sample(sample(pending=3, pending_by_reason={"memory": 1}))

    assert taker.finish(wall_s=1.0).samples.pending_by_reason == {UNTRIED: (2,), "memory": (1,)}


@settings(max_examples=examples(30))
@given(st.lists(st.dictionaries(st.sampled_from("abcdefghij"), st.integers(0, 9)), max_size=5))
def test_no_pending_pod_is_lost(rows: list[dict[str, int]]) -> None:
    """The columns of all reasons add up to the pending pods."""
    taker = recorder()
    for row in rows:
        taker.sample(sample(pending=sum(row.values()) + 1, pending_by_reason=row))
    columns = taker.finish(wall_s=1.0).samples
    stacked = np.array(list(columns.pending_by_reason.values())).sum(0)

    assert not rows or stacked.tolist() == list(columns.pods_pending)


def test_the_decision_rate_counts_scheduling_time_only() -> None:
    """100 decisions in 0.5 s, none for no time, then 10 in 0.1 s."""
    taker = recorder()
    for time_s, decisions, scheduling_s in ((1_000.0, 100, 0.5), (1_010.0, 100, 0.5)):
        taker.sample(sample(time_s, decisions=decisions, scheduling_s=scheduling_s))
    taker.sample(sample(1_020.0, decisions=110, scheduling_s=0.6))
    report = taker.finish(wall_s=99.0)

    first, second, third = report.decision_rates([0, 1, 2])

    assert (first, second) == (200.0, None)
    assert third == pytest.approx(100.0)
    assert report.decision_rate() == pytest.approx(110 / 0.6)


def test_the_mean_over_time_is_weighted_by_duration() -> None:
    """1 for 10 s and 2 for 30 s; what is unknown has no weight."""
    taker = recorder()
    for time_s in (1_000.0, 1_010.0, 1_040.0):
        taker.sample(sample(time_s))
    report = taker.finish(wall_s=1.0)

    assert report.mean_over_time((1.0, 2.0, 9.0)) == pytest.approx(1.75)
    assert report.mean_over_time((None, 2.0, 9.0)) == pytest.approx(2.0)
    assert report.mean_over_time((None, None, 9.0)) == 9.0


def test_time_does_not_go_back() -> None:
    """A sample before the start, or before the last sample, is a bug."""
    taker = recorder()
    with pytest.raises(BugError, match=r"Got 999\.0 after 1000\.0"):
        taker.sample(sample(999.0))
    taker.sample(sample(1_010.0))
    with pytest.raises(BugError, match=r"Got 1005\.0 after 1010\.0"):
        taker.sample(sample(1_005.0))


def test_a_sample_has_all_groups() -> None:
    """A group left out or unknown is a mistake of the simulator."""
    with pytest.raises(BugError, match=r"\['cpu', 'gpu'\].*Got \['tpu'\]"):
        recorder().sample(sample(allocated={"tpu": AllocatedShares(0.0, 0.0)}))


def test_the_latest_sample_can_be_watched() -> None:
    """No sample exists before the first."""
    taker = recorder()
    assert taker.latest is None
    first = sample()
    taker.sample(first)
    assert taker.latest is first


def test_json_gives_back_the_report() -> None:
    """NumPy's numbers are taken too; names are in camelCase."""
    taker = recorder()
    taker.sample(
        sample(
            np.float64(1_000.5),
            pending=np.int64(3),
            scheduling_s=np.float64(0.1),
            gpu_fragmentation=np.float64(0.2),
            pending_by_reason={"cpu": np.int64(2)},
        )
    )
    taker.submitted("batch")
    taker.scheduled("batch", np.float64(1.5))
    taker.node_failed(np.float64(1_001.0), "node a failed")
    report = taker.finish(wall_s=1.0)

    assert decode_json(to_json(report), RunReport) == report
    assert decode_json(to_json(report))["samples"]["podsPending"] == [3]
