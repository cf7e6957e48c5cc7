"""The report of a run: what its page shows, and a table."""

import re
from io import StringIO

import msgspec
import numpy as np
import pytest
from rich.console import Console

from koordinator.simulator.page import PageChart, PageSection, ResultPage
from koordinator.simulator.report import run_page, summary_table
from koordinator.simulator.run_report import (
    AllocatedShares,
    NodeGroup,
    RunRecorder,
    RunReport,
    RunSample,
)

START_S = 5_000.0


def run_report(
    *, n_samples: int = 50, name: str = "GPU servers", started_s: float = START_S
) -> RunReport:
    """Return the report of a run with one group of each sort, a peak in the middle."""
    groups = [
        NodeGroup(name=name, nodes=4, cpu_cores=100, memory_bytes=100 << 30, gpus=32),
        NodeGroup(name="CPU servers", nodes=6, cpu_cores=100, memory_bytes=300 << 30),
    ]
    taker = RunRecorder(
        title=f"Run of {name}",
        seed=42,
        groups=groups,
        parameters={"policy": name},
        started_s=started_s,
    )
    for n in range(n_samples):
        taker.submitted(name)
        taker.scheduled(name, 30.0 + n)
        share = 0.5 if n == n_samples // 2 else 0.25
        taker.sample(
            RunSample(
                time_s=started_s + 10 * n,
                pending=7 + n,
                running=1_234 + n,
                finished=n,
                failed=0,
                decisions=100 * (n + 1),
                scheduling_s=0.05 * (n + 1),
                allocated={
                    name: AllocatedShares(share, 0.1, 0.8),
                    "CPU servers": AllocatedShares(0.75, 0.5),
                },
                gpu_fragmentation=0.4 if n else None,
                pending_by_reason={"Insufficient cpu": 4, "too many pods": 3 + n},
            )
        )
    taker.node_failed(started_s + 61, f"node of {name} failed")
    taker.event(started_s + 130, "node is back")
    return taker.finish(wall_s=12.0)


@pytest.fixture(scope="module")
def page() -> ResultPage:
    return run_page(run_report())


def charts(page: ResultPage) -> dict[str, PageChart]:
    return {chart.title: chart for section in page.sections for chart in section.charts}


def section(page: ResultPage, title: str) -> PageSection:
    return next(one for one in page.sections if one.title == title)


def last(chart: PageChart) -> dict[str, float | None]:
    """Return the last value of every series."""
    return {one.name: one.values[-1] for one in chart.series}


def test_key_figures_are_those_fed(page: ResultPage) -> None:
    """Pods, waits, allocated GPUs, fragmentation, failures; not how fast the simulator is."""
    figures = {one.label: one.value for one in page.figures}

    assert figures == {
        "Pods scheduled": "50",
        "Median wait": "55 s",
        "GPU allocated": "80.0%",
        "GPU fragmentation": "40.0%",
        "CPU allocated": "50.3%",
        "Node failures": "1",
    }
    assert "2,000/s" in section(page, "The simulator").text
    assert section(page, "The simulator").is_folded


def test_charts_show_the_samples(page: ResultPage) -> None:
    """Of the cluster and of each group."""
    by_title = charts(page)

    assert last(by_title["Allocation"]) == {"GPU": 0.8, "CPU": 0.5, "memory": 0.4}
    assert last(by_title["GPU servers"]) == {"GPU": 0.8, "CPU": 0.25, "memory": 0.1}
    assert last(by_title["CPU servers"]) == {"CPU": 0.75, "memory": 0.5}
    assert last(by_title["GPU fragmentation"]) == {"of the free GPUs": 0.4, "of all GPUs": 0.08}
    waiting = by_title["Pending pods by cause"]
    assert waiting.is_stacked
    assert last(waiting) == {"too little cpu is free": 4, "too many pods": 52}
    assert last(by_title["Running pods"]) == {"running": 1_283}
    assert last(by_title["Waiting time"]) == {"median": 79, "95th percentile": 79}


def test_times_count_from_the_start_of_the_run() -> None:
    """Of curves and of what happened."""
    page = run_page(run_report(n_samples=3))
    allocation = charts(page)["Allocation"]

    assert allocation.at_s == (0, 10, 20)
    assert allocation.series[1].values == (0.5, 0.625, 0.5)
    assert [one.at_s for one in section(page, "Events").marks] == [61, 130]


def test_long_runs_are_thinned_out_without_losing_peaks() -> None:
    """At most 600 points, times ascend, first and last and the peak stay."""
    by_title = charts(run_page(run_report(n_samples=1_500)))

    for chart in by_title.values():
        assert len(chart.at_s) <= 600
        assert (np.diff(chart.at_s) > 0).all()
        assert chart.at_s[-1] == 14_990
    cpu = by_title["Allocation"].series[1].values
    assert (max(filter(None, cpu)), cpu[0], cpu[-1]) == (0.625, 0.5, 0.5)


def test_workloads_and_events_are_listed(page: ResultPage) -> None:
    """A row per kind and one for all; what happened, failures marked as such."""
    figures = ("50", "50", "0", "0", "0", "55 s", "55 s", "1 min 17 s", "1 min 19 s")
    (table,) = section(page, "Workloads").tables

    assert (table.rows, table.foot) == ((("GPU servers", *figures),), ("all", *figures))
    assert [(one.text, one.is_failure) for one in section(page, "Events").marks] == [
        ("node of GPU servers failed", True),
        ("node is back", False),
    ]


@pytest.mark.parametrize("n_groups", [0, 1])
def test_a_run_in_which_nothing_happened_has_a_page(n_groups: int) -> None:
    """No samples, no pods, no events: dashes and sentences, and no empty charts."""
    group = NodeGroup(name="a", nodes=0, cpu_cores=0, memory_bytes=0)
    report = RunRecorder(title="empty", seed=0, groups=[group] * n_groups).finish(wall_s=0.0)
    page = run_page(report)

    assert charts(page) == {}
    assert section(page, "Events").text == "No node failed, and no pod was evicted."


def test_a_page_has_no_cards_of_what_the_run_has_not() -> None:
    """A cluster of CPUs without pending pods and failures: no GPUs, causes, failures."""
    group = NodeGroup(name="a", nodes=1, cpu_cores=1, memory_bytes=1)
    taker = RunRecorder(title="t", seed=0, groups=[group])
    taker.sample(
        RunSample(
            time_s=1,
            pending=0,
            running=1,
            finished=0,
            failed=0,
            decisions=1,
            scheduling_s=0.1,
            allocated={"a": AllocatedShares(0.5, 0.5)},
        )
    )
    page = run_page(taker.finish(wall_s=0.0))

    assert set(charts(page)) == {"Allocation", "Running pods", "Speed of the scheduler"}
    assert [one.label for one in page.figures] == ["Pods scheduled", "Median wait", "CPU allocated"]
    assert "GPU" not in msgspec.json.encode(page).decode()


def test_the_table_has_a_row_per_kind_and_one_for_all() -> None:
    """Text in brackets is no style instruction."""
    out = StringIO()
    Console(file=out, width=160).print(summary_table(run_report(name="[red]kind")))
    shown = out.getvalue()

    assert "Run of [red]kind" in shown
    assert re.search(r"\[red\]kind +│ +50 │ +50 │ +0 │ +0 │ +0 │ +55 s │ +55 s", shown)
    assert re.search(r"all +│ +50 │ +50", shown)
    assert "GPU allocated: 80.0%" in shown
