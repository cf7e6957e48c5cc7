"""Placement quality and speed on the openb GPU trace, if its data is present.

The environment variable ``KOORD_OPENB`` names the folder, by default ``../shared/data/openb``
beside the checkout.
"""

import functools
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.benchmark import Benchmark
from koordinator.simulator import simulate
from koordinator.simulator.research.bound import repacked_bound
from koordinator.simulator.research.node_packing import NodeShape
from koordinator.simulator.research.openb import OpenbTrace, read_trace
from koordinator.simulator.research.openb_departures import (
    WEEK_S,
    DepartureResult,
    DepartureWeek,
    draw_departing_pods,
)
from koordinator.simulator.research.openb_fleet import FleetClasses, GpuFleet
from koordinator.simulator.research.openb_moves import LimitedMoves, MoveBudget, RepackedWeek
from koordinator.simulator.research.openb_order import PUBLISHED_RATIO
from koordinator.simulator.results import ArrivalCurve
from koordinator.simulator.sources.openb import arriving_openb

FOLDER = Path(os.environ.get("KOORD_OPENB", Path(__file__).parents[2] / "shared/data/openb"))
SEEDS = range(42, 52)
MISSING = {"skipped": f"no trace in {FOLDER}; set KOORD_OPENB"}
VARIANTS = {
    "multigpu20": "96.6",
    "multigpu50": "97.7",
    "gpushare40": "94.8",
    "gpushare100": "88.4",
    "gpuspec10": "96.2",
    "gpuspec33": "96.0, at 100 %: 93.5",
    "cpu050": "96.1",
    "cpu250": "above FGD",
}
#: Run once more with PCIe roots, NUMA nodes and NVLink groups.
WIRED = ("default", "multigpu50", "gpushare40", "gpuspec33")


def allocation(workload: str, policy: str, scale: float) -> dict[str, Any]:
    """Report the mean and the lowest allocation of the seeds at 100 and 130 % arrivals."""
    if not FOLDER.is_dir():
        return MISSING
    trace = read_trace(FOLDER, workload)
    seeds = list(SEEDS)[: max(1, round(len(SEEDS) * scale))]
    at: dict[int, list[float]] = {100: [], 130: []}
    for seed in seeds:
        curve = _curve(trace, policy, seed)
        for mark, values in at.items():
            allocated = curve.allocation_at(mark)
            values.append(math.nan if allocated is None else allocated)
    return {
        "at 100 %": round(float(np.mean(at[100])), 2),
        "at 130 %": round(float(np.mean(at[130])), 2),
        "lowest": min(at[130]),
        "seeds": len(seeds),
    }


def ahead(workload: str, scale: float, *, with_topology: bool = False) -> dict[str, Any]:
    """Report the default policy, and its least lead over FGD on any seed at 130 %.

    ``with_topology``: GPUs have PCIe roots, NUMA nodes and NVLink groups, and are chosen by them.
    """
    if not FOLDER.is_dir():
        return MISSING
    trace = read_trace(FOLDER, workload)
    seeds = list(SEEDS)[: max(1, round(len(SEEDS) * scale))]
    rows = []
    for seed in seeds:
        ours, fgd = (
            _curve(trace, policy, seed, with_topology=with_topology) for policy in ("price", "fgd")
        )
        rows.append((ours.allocation_at(100), ours.allocation_at(130), fgd.allocation_at(130)))
    table = np.array(rows, float)
    return {
        "at 100 %": round(float(table[:, 0].mean()), 2),
        "at 130 %": round(float(table[:, 1].mean()), 2),
        "FGD": round(float(table[:, 2].mean()), 2),
        "least lead": round(float((table[:, 1] - table[:, 2]).min()), 2),
        "seeds": len(seeds),
    }


def _curve(
    trace: OpenbTrace, policy: str, seed: int, *, with_topology: bool = False
) -> ArrivalCurve:
    """Return the allocation over all arrivals, as ``koord simulate --trace openb`` has it."""
    source = arriving_openb(trace, PUBLISHED_RATIO, FOLDER, with_topology=with_topology)
    curve = simulate(source, policy=policy, seed=seed).curve
    assert curve is not None  # the cluster has GPUs
    return curve


def whole_replay(policy: str, _scale: float) -> dict[str, Any]:
    """Time ``koord simulate --trace openb`` as a whole process."""
    if not FOLDER.is_dir():
        return MISSING
    koord = str(Path(sys.executable).parent / "koord")
    command = [
        koord,
        "simulate",
        "--trace",
        "openb",
        "--data",
        str(FOLDER),
        "--policy",
        policy,
        "--tune",
        "1.3",
    ]
    started = time.perf_counter()
    subprocess.run([*command, "--seed", "42", "-o", "json"], stdout=subprocess.DEVNULL, check=True)
    return {"s": round(time.perf_counter() - started, 1)}


def departures(per_1000: float, policy: str, seed: int, scale: float) -> dict[str, Any]:
    """Report a week with departures: GPUs in use without moves, within a budget, and repacked.

    ``anew`` repacks all pods each hour by the solver, without a limit; ``bound`` is a proven upper
    bound of any packing of the same pods, every sixth hour of that week.
    """
    if not FOLDER.is_dir():
        return MISSING
    trace = read_trace(FOLDER)
    drawn = draw_departing_pods(trace, seed)
    repacked_week, bounds = RepackedWeek(trace), []

    def repacked(week: DepartureWeek) -> None:
        repacked_week(week)
        if round(week.now_s / 3600) % 6 == 0:
            bounds.append(_bound_of(trace, week))

    def result(mover: Callable[[DepartureWeek], None] | None) -> DepartureResult:
        week = DepartureWeek(GpuFleet(trace, FleetClasses.of(trace), drawn.rank, policy), drawn)
        return week.result(policy, seed, week.run(mover, scale * WEEK_S))

    still, best = result(None), result(repacked)
    moved = result(LimitedMoves(trace, MoveBudget(per_1000)))
    return {
        "in use, nobody moves %": round(100 * still.gpu_used, 3),
        "with moves %": round(100 * moved.gpu_used, 3),
        "anew %": round(100 * best.gpu_used, 3),
        "bound %": round(100 * float(np.mean(bounds)), 3) if bounds else None,
        "gap closed %": round(
            100 * (moved.gpu_used - still.gpu_used) / max(best.gpu_used - still.gpu_used, 1e-9)
        ),
        "moves per 1,000": [round(each.moves_per_1000, 1) for each in (moved, best)],
        "mean wait h": [round(each.mean_wait_s / 3600, 2) for each in (still, moved, best)],
    }


def _bound_of(trace: OpenbTrace, week: DepartureWeek) -> float:
    """Return the share of the GPUs that no packing of the pods of a week now could exceed."""
    requests = week.classes.requests
    bits = {model: 1 << bit for bit, model in enumerate(trace.models)}
    nodes = [
        (
            NodeShape(node.gpu, node.cpu_milli, bits[node.model]),
            [requests[week.running[number].kind] for number in week.on_row[row]],
        )
        for row, node in enumerate(trace.nodes)
    ]
    waiting = np.repeat(np.arange(len(requests)), week.n_waiting).tolist()
    bound = repacked_bound([requests[kind] for kind in waiting], nodes)
    return bound.gpu_milli / trace.gpu_milli


BENCHMARKS = {
    **{
        f"openb-departures-{policy}-{seed}": Benchmark(
            f"openb, a week with departures, seed {seed}, {policy}, 50 moves per 1,000 arrivals",
            "60 % of the gap to packing anew, no longer wait",
            functools.partial(departures, 50.0, policy, seed),
        )
        for policy in ("price", "fgd")
        for seed in SEEDS[:3]
    },
    "fgd": Benchmark(
        "openb default, FGD",
        "95.39 +- 0.1 at 130 %",
        functools.partial(allocation, "default", "fgd"),
    ),
    "price": Benchmark(
        "openb default, price", "96.1 at 130 %, above FGD", functools.partial(ahead, "default")
    ),
    **{
        name: Benchmark(f"openb {name}, price", target, functools.partial(ahead, name))
        for name, target in VARIANTS.items()
    },
    **{
        f"wired-{name}": Benchmark(
            f"openb {name}, price, GPUs with topology",
            "above FGD",
            functools.partial(ahead, name, with_topology=True),
        )
        for name in WIRED
    },
    "replay-fgd": Benchmark(
        "whole openb replay, FGD", "10 s", functools.partial(whole_replay, "fgd")
    ),
    "replay-price": Benchmark(
        "whole openb replay, price", "30 s", functools.partial(whole_replay, "price")
    ),
}
