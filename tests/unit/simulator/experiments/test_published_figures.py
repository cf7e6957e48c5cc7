"""Figures of FGD's paper, against its published numbers; and on the small sample, without them.

KOORD_SHARED is a folder with ``data/openb``: Alibaba's CSV files, and ``published.csv`` with the
columns trace, policy, seed, and the allocation at percentages of demand.  KOORD_FIGURES is a folder
of ``make figures OPENB=FOLDER``: all figures that are there are compared.
"""

import csv
import os
from pathlib import Path
from statistics import fmean

import pytest
import yaml

from koordinator.simulator import proven_bound, simulate
from koordinator.simulator.api import build_simulation
from koordinator.simulator.experiments import experiment, read_experiment
from koordinator.simulator.research.openb import read_trace
from koordinator.simulator.sources.openb import arriving_openb

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[4]
EXAMPLES = ROOT / "examples" / "experiments"
SHARED = Path(os.environ.get("KOORD_SHARED", ROOT.parent / "shared"))
OPENB = SHARED / "data" / "openb"
FIGURES = Path(os.environ.get("KOORD_FIGURES", "none"))
MARKS = (80, 90, 100, 110, 120, 130)
#: Points by which a policy differs from the published allocation on a list of pods; elsewhere it
#: equals it.  test_fgd_arithmetic.py has the causes for FGD; DotProd differs by one unit of the
#: last published digit.
KNOWN_DIFFERENCES = {
    ("cpu250", "FGD"): 0.08,
    ("gpuspec10", "FGD"): 0.08,
    ("gpuspec20", "FGD"): 0.06,
    ("gpuspec25", "FGD"): 0.15,
    ("gpuspec33", "FGD"): 0.2,
    ("multigpu50", "DotProd"): 0.01,
}
PAPER = ["FGD", "BestFit", "Packing", "Clustering", "DotProd", "Random"]
NAMES = {
    "01-Random": "Random",
    "02-DotProd": "DotProd",
    "03-GpuClustering": "Clustering",
    "04-GpuPacking": "Packing",
    "05-BestFit": "BestFit",
    "06-FGD": "FGD",
}
needs_openb = pytest.mark.skipif(
    not (OPENB / "published.csv").exists(),
    reason=f"Alibaba's files and published.csv are not in {OPENB}; KOORD_SHARED names the folder",
)


def published() -> dict[tuple[str, str, int], dict[int, float]]:
    """Return the published allocation by trace, policy, seed and percentage of demand."""
    with (OPENB / "published.csv").open() as file:
        return {
            (row["trace"], NAMES[row["policy"]], int(row["seed"])): {
                mark: float(row[f"alloc{mark}"]) for mark in MARKS
            }
            for row in csv.DictReader(file)
        }


@needs_openb
@pytest.mark.slow
@pytest.mark.parametrize("pods", ["default", "multigpu50"])  # figures 9 and 12
def test_fgd_reproduces_the_published_allocation(pods: str, tmp_path: Path) -> None:
    """From the CSV files alone, without a file that lists the order of arrival."""
    source = arriving_openb(read_trace(OPENB, pods), 1.3, tmp_path)

    result = simulate(source, policy="fgd", seed=42)

    assert result.order == "generated from seed 42"
    assert result.curve is not None
    by_mark = {mark: result.curve.allocation_at(mark) for mark in MARKS}
    assert by_mark == published()[pods, "FGD", 42]


@needs_openb
@pytest.mark.slow
def test_no_published_policy_exceeds_the_bound(tmp_path: Path) -> None:
    """At 130 % demand, where policies have most choice; it is closer than half of the old gap."""
    source = arriving_openb(read_trace(OPENB), 1.3, tmp_path)
    simulation = build_simulation(source, policy="fgd", seed=42)

    bound = proven_bound(simulation, conserving=True)

    percent = 100 * bound.gpu_milli / read_trace(OPENB).gpu_milli
    assert max(published()["default", policy, 42][130] for policy in PAPER) <= percent < 97


@needs_openb
@pytest.mark.skipif(
    not list(FIGURES.glob("fgd-*/arrivals.csv")),
    reason="KOORD_FIGURES names no folder of make figures OPENB=FOLDER",
)
@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("fgd-*.yaml")))
def test_drawn_figures_have_the_published_numbers(name: str) -> None:
    """Policies without chance per seed, to the digit; Random on average, within 0.5 points."""
    if not (FIGURES / name / "arrivals.csv").exists():
        pytest.skip(f"{name} is not in {FIGURES}")
    sources = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())["sources"]
    lists = {each.get("name", each["trace"]): each.get("pods", "default") for each in sources}
    expected = published()
    chance: list[float] = []
    with (FIGURES / name / "arrivals.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if int(row["gpu_arrived_percent"]) in MARKS]
    compared = 0
    for row in rows:
        key = (lists[row["source"]], row["policy"], int(row["seed"]))
        if key not in expected:  # price
            continue
        compared += 1
        theirs = expected[key][int(row["gpu_arrived_percent"])]
        ours = float(row["gpu_allocated_percent"])
        if row["policy"] == "Random":
            chance.append(ours - theirs)
        else:
            difference = round(abs(ours - theirs), 6)
            assert difference <= KNOWN_DIFFERENCES.get(key[:2], 0), (key, theirs, ours)
    assert compared
    assert abs(fmean(chance)) <= 0.5


@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("fgd-*.yaml")))
def test_definitions_of_figures_have_the_policies_of_the_paper(name: str, tmp_path: Path) -> None:
    """The definitions add our policies, with the published seeds and demand."""
    text = (EXAMPLES / f"{name}.yaml").read_text()
    (tmp_path / "openb").mkdir()
    (tmp_path / "figure.yaml").write_text(text)

    read = read_experiment(tmp_path / "figure.yaml")

    assert [policy.name for policy in read.policies] == [*PAPER, "price"]
    assert read.seeds == tuple(range(42, 52))
    assert read.parameters.demand == (1.3,)
    assert "gpu_unallocated_at_100" in read.bars


@pytest.mark.slow
def test_figure_on_the_sample(tmp_path: Path) -> None:
    """Every policy places what it can; only Random leaves more than twice what FGD leaves."""
    text = (EXAMPLES / "fgd-default.yaml").read_text()
    text = text.replace("data: openb", f"data: {ROOT / 'examples/traces/openb'}")
    text = text.replace("[42, 43, 44, 45, 46, 47, 48, 49, 50, 51]", "[42]")
    (tmp_path / "figure.yaml").write_text(text)

    result = experiment(tmp_path / "figure.yaml", tmp_path / "drawn")

    summary = result.summary
    left = {
        policy: mean
        for policy, figure, mean in zip(
            summary["policy"], summary["figure"], summary["mean"], strict=True
        )
        if figure == "gpu_unallocated_at_100"
    }
    assert [*left] == [*PAPER, "price"]
    assert left["Random"] > 2 * left["FGD"]
    assert all(0 <= left[policy] < 50 for policy in PAPER[:-1])
    assert not result.failures
