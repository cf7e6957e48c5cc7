"""Summary of an experiment: paired differences, failed runs, and what a page shows."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from koordinator.simulator.experiments.charts import _over_seeds, draw_charts, missing_bars
from koordinator.simulator.experiments.store import RunRecord
from koordinator.simulator.experiments.sweep import experiment_page
from koordinator.simulator.experiments.tables import (
    Panel,
    arrivals_table,
    runs_table,
    summary_table,
    write_table,
)


def record(policy: str, seed: int, **figures: Any) -> RunRecord:
    labels = {"source": "s", "policy": policy, "seed": seed}
    return RunRecord(
        key=f"{policy}{seed}",
        labels=labels,
        figures=figures,
        allocation={99: 90.0 + seed, 100: 91.0 + seed},
        completion_s=[600.0 * seed, 1200.0],
    )


def panel(**policies: list[RunRecord]) -> Panel:
    return Panel("s", {}, policies)


def row(columns: dict[str, list[Any]], number: int) -> dict[str, Any]:
    return {name: column[number] for name, column in columns.items()}


def test_differences_are_paired_by_seed() -> None:
    """Seeds vary by 100, the policies by 1: pairs show the difference, means don't."""
    base = [record("a", seed, cost=100.0 * seed) for seed in (1, 2, 3)]
    other = [record("b", seed, cost=100.0 * seed + 1) for seed in (3, 1, 2)]
    second = row(summary_table([panel(a=base, b=other)]), 1)

    assert (second["policy"], second["baseline"], second["pairs"]) == ("b", "a", 3)
    assert (second["mean"], second["standard_deviation"]) == (201.0, 100.0)
    assert [second[f"difference{end}"] for end in ("", "_low_95", "_high_95")] == [1.0, 1.0, 1.0]


def test_seed_that_failed_for_one_policy_has_no_pair() -> None:
    """The other run of the seed still counts in the mean."""
    base = [record("a", seed, cost=float(seed)) for seed in (1, 2, 3)]
    columns = summary_table([panel(a=base, b=[record("b", 2, cost=5.0)], c=[])])

    assert [row(columns, n)["pairs"] for n in range(3)] == [None, 1, 0]
    assert row(columns, 1)["difference"] == 3.0
    assert (row(columns, 2)["runs"], row(columns, 2)["mean"]) == (0, None)


def test_table_of_runs_has_all_figures_and_errors(tmp_path: Path) -> None:
    """A figure that a run lacks is an empty cell."""
    failed = RunRecord(key="x", labels={"source": "s", "policy": "b", "seed": None}, error="broken")
    columns = runs_table([record("a", 1, cost=0.1 + 0.2), failed])
    (file,) = write_table(columns, tmp_path / "runs")

    assert file.read_text("utf-8") == (
        "run,source,policy,seed,error,cost\na1,s,a,1,,0.30000000000000004\nx,s,b,,broken,\n"
    )


def test_parquet_has_the_same_columns(tmp_path: Path) -> None:
    """With pyarrow installed."""
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = arrivals_table([record("a", 1), record("a", 2)])
    _, file = write_table(columns, tmp_path / "arrivals", parquet=True)

    assert parquet.read_table(file).to_pydict() == columns


def test_page_contains_charts_and_escapes_names() -> None:
    """Nothing is loaded from elsewhere, and a name cannot become markup."""
    pytest.importorskip("matplotlib")
    runs = [record("<b>", 1, cost=1.0), record("<b>", 2, cost=2.0)]
    own = Panel("<script>", {"demand": 1.3}, {"<b>": runs, "other": runs})
    charts = list(draw_charts([own]))
    page = experiment_page("<title>", [own], [record("<i>", 3)], charts)

    assert [chart.kind for chart in charts] == ["allocation", "unallocated", "completion"]
    assert charts[0].file_name == "allocation-script-demand-1.3.svg"
    assert page.count("data:image/svg+xml;base64,") == 3
    assert "http" not in page
    for name in ("<script>", "<b>", "<i>", "<title><"):
        assert name not in page
    assert [chart.svg for chart in draw_charts([own])] == [chart.svg for chart in charts]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1234.5, "1,234"),
        (2.0, "2"),
        (1.5, "1.50"),
        (0.25, "0.250"),
        (0.05, "0.050"),
        (0.0012, "0.0012"),
        (-0.00034, "-0.00034"),
        (3e-17, "0.000000"),
    ],
)
def test_page_shows_small_numbers_with_two_digits(value: float, shown: str) -> None:
    """Not as 0.001; what is left of a sum of floats has no digits."""
    page = experiment_page("title", [panel(a=[record("a", 1, cost=value)])], [], [])

    assert f'<td class="n">{shown}</td>' in page


def test_bars_and_the_page_name_a_figure_alike() -> None:
    """A share is in percent in both."""
    pytest.importorskip("matplotlib")
    own = panel(a=[record("a", 1, gpu_fragmented=0.25, pools_per_gang=1.0)])
    bars = ["gpu_fragmented", "pools_per_gang"]
    charts = [chart for chart in draw_charts([own], bars) if not chart.panel]
    page = experiment_page("title", [own], [], [])

    assert [chart.title for chart in charts] == [
        "GPUs fragmented at the end, %",
        "node pools per gang, mean",
    ]
    assert all(f'<th class="n">{chart.title}</th>' in page for chart in charts)


def test_bars_compare_sources_by_policy() -> None:
    """A bar per policy in a group per source; a figure that no run has is named."""
    pytest.importorskip("matplotlib")
    runs = [
        Panel(source, {"demand": 1.3}, {policy: [record(policy, 1, cost=cost)] for policy in "ab"})
        for source, cost in (("10 %", 3.0), ("20 %", 4.0))
    ]

    (chart,) = (each for each in draw_charts(runs, ["cost"]) if not each.panel)

    assert chart.file_name == "cost.svg"
    assert b"<!-- 20 % -->" in chart.svg
    assert missing_bars(runs, ["cost", "none"]) == ["none"]


def test_a_run_that_ends_early_counts_as_complete_later() -> None:
    """Of two runs one completes all jobs in 1 h, the other half of them: 75 % on average."""
    first, second = (
        (np.array([1.0]), np.array([100.0])),
        (np.array([1.0, 3.0]), np.array([50.0, 100.0])),
    )

    x, mean, low, high = _over_seeds([first, second], outside=(0.0, 100.0))

    assert x.tolist() == [1.0, 3.0]
    assert mean.tolist() == [75.0, 100.0]
    assert (low.tolist(), high.tolist()) == ([50.0, 100.0], [100.0, 100.0])


def test_a_cluster_without_gpus_has_no_chart_of_them() -> None:
    pytest.importorskip("matplotlib")
    samples = {"time_s": [0.0, 3600.0], "gpu_allocated": [0.0, 0.0], "cpu_allocated": [0.1, 0.2]}
    run = RunRecord(key="k", labels={"seed": 1}, figures={}, samples=samples)
    panel = Panel("source", {}, {"policy": [run]})

    assert [chart.kind for chart in draw_charts([panel])] == ["cpu-allocation"]
