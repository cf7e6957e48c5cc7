"""Tables and charts of results, and the notebook of the examples."""

import json
from pathlib import Path
from typing import Any

import pytest

from koordinator.foundation.errors import InputError, library
from koordinator.simulator import SimulationResult, plot_runs, simulate

NOTEBOOK = Path("examples/policy.ipynb")


@pytest.fixture(scope="module")
def result() -> SimulationResult:
    return simulate("examples/small-gpu-cluster.yaml")


def test_a_missing_library_is_named_with_what_installs_it() -> None:
    with pytest.raises(InputError, match=r"no_such: is not installed; .*koordinator\[research\]"):
        library("no_such.module")


@pytest.mark.parametrize("table", ["pods", "jobs", "samples"])
def test_frames_have_the_columns_of_the_table(result: SimulationResult, table: Any) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    columns = result.table(table)

    assert list(result.to_pandas(table).columns) == list(columns)
    assert result.to_arrow(table).num_rows == len(next(iter(columns.values())))


def test_another_table_is_refused(result: SimulationResult) -> None:
    with pytest.raises(InputError, match="must be pods, jobs or samples, got 'nodes'"):
        result.table("nodes")  # type: ignore[arg-type]


def test_charts_have_a_line_per_run(result: SimulationResult) -> None:
    pytest.importorskip("matplotlib")
    arrivals = simulate("examples/small-gpu-cluster.yaml", protocol="arrivals", policy="fgd")
    plots = plot_runs([result, result])

    for figure in (
        plots.allocation(),
        plots.fragmentation(),
        plots.pending(),
        plots.waiting_cdf(),
        plots.completion_cdf(),
    ):
        assert len(figure.axes[0].lines) == 2
    (line,) = arrivals.plot.allocation().axes[0].lines
    assert line.get_ydata()[-1] == pytest.approx(
        100 * sum(p.gpu_milli for p in arrivals.placements if p.node) / 16_000
    )


def test_the_cells_of_the_notebook_run(capsys: pytest.CaptureFixture[str]) -> None:
    """In order and in one namespace, as a fresh kernel would run them."""
    for name in ("matplotlib", "pandas"):
        pytest.importorskip(name)
    namespace: dict[str, Any] = {"__name__": "notebook"}
    for cell in json.loads(NOTEBOOK.read_text("utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), namespace)  # noqa: S102 -- our own notebook

    printed = capsys.readouterr().out
    assert "policy FirstNode" in printed
    assert "plugin Broken: failed in score" in printed
    assert len(namespace["results"]) == 6
