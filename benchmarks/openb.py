"""Placement quality and speed on the openb GPU trace, for whoever has the data.

The folder is that of the environment variable ``KOORD_OPENB``, else ``../shared/data/openb`` beside
the checkout.
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
from koordinator.simulator.research.bound import NodeShape, repacked_bound
from koordinator.simulator.research.openb import OpenbTrace, arrivals, read_trace
from koordinator.simulator.research.openb_departures import DepartureWeek, draw_departing_pods
from koordinator.simulator.research.openb_fleet import FleetClasses, GpuFleet
from koordinator.simulator.research.openb_moves import LimitedMoves, MoveBudget, RepackedWeek
from koordinator.simulator.research.openb_replay import replay

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
    """Report the mean allocation at 100 and 130 % arrivals, and that of the lowest seed."""
    if not FOLDER.is_dir():
        return MISSING
    trace = read_trace(FOLDER, workload)
    seeds = list(SEEDS)[: max(1, round(len(SEEDS) * scale))]
    at: dict[int, list[float]] = {100: [], 130: []}
    for seed in seeds:
        result = replay(trace, arrivals(trace, seed, folder=FOLDER), seed, policy)
        for mark, values in at.items():
            found = result.allocation_at(mark)
            values.append(math.nan if found is None else found)
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
        order = arrivals(trace, seed, folder=FOLDER)
        run = functools.partial(replay, trace, order, seed, with_topology=with_topology)
        ours, fgd = run(), run("fgd")
        rows.append((ours.allocation_at(100), ours.allocation_at(130), fgd.allocation_at(130)))
    table = np.array(rows, float)
    return {
        "at 100 %": round(float(table[:, 0].mean()), 2),
        "at 130 %": round(float(table[:, 1].mean()), 2),
        "FGD": round(float(table[:, 2].mean()), 2),
        "least lead": round(float((table[:, 1] - table[:, 2]).min()), 2),
        "seeds": len(seeds),
    }


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


def departures(per_1000: float | None, policy: str, scale: float) -> dict[str, Any]:
    """Report weeks with departures: GPUs in use without moves, within a budget, and anew.

    ``anew`` is everything packed anew each hour; ``bound`` is what the solver proves that no
    packing of the pods there are could exceed, at the end of the week with the budget.
    """
    if not FOLDER.is_dir():
        return MISSING
    trace = read_trace(FOLDER)
    figures: dict[str, Any] = {}
    for seed in list(SEEDS)[: max(1, round(3 * scale))]:
        still, stays_s, _ = _week(trace, seed, policy, None)
        moved, waits_s, week = _week(trace, seed, policy, LimitedMoves(MoveBudget(per_1000)))
        anew, _, _ = _week(trace, seed, policy, RepackedWeek(np.random.default_rng(seed)))
        figures[f"seed {seed}"] = {
            "in use, nobody moves %": round(100 * still, 3),
            "with moves %": round(100 * moved, 3),
            "anew %": round(100 * anew, 3),
            "bound at the end %": round(100 * _bound_of(trace, week), 3),
            "in use at the end %": round(100 * week.gpu_used_milli / trace.gpu_milli, 3),
            "gap closed %": round(100 * (moved - still) / max(anew - still, 1e-9)),
            "moves per 1,000": round(1000 * week.moves / week.arrived, 1),
            "mean wait h": [round(stays_s / 3600, 2), round(waits_s / 3600, 2)],
        }
    return figures


def _week(
    trace: OpenbTrace,
    seed: int,
    policy: str,
    mover: Callable[[DepartureWeek], None] | None,
) -> tuple[float, float, DepartureWeek]:
    """Return the share of GPUs in use, the mean wait in seconds, and the week at its end."""
    drawn = draw_departing_pods(trace, seed)
    week = DepartureWeek(GpuFleet(trace, FleetClasses.of(trace), drawn.rank, policy), drawn)
    result = week.result(policy, seed, week.run(mover))
    return result.gpu_used, result.mean_wait_s, week


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
    "openb-departures": Benchmark(
        "openb, a week with departures, price, at most 50 moves per 1,000 arrivals",
        "60 % of the gap to packing anew, no longer wait",
        functools.partial(departures, 50.0, "price"),
    ),
    "openb-departures-fgd": Benchmark(
        "as above, FGD", "beside it", functools.partial(departures, 50.0, "fgd")
    ),
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
