"""Growth: pods per CPU second over nodes and over classes of pods, and Python calls per pod.

Measured is ``Scheduler.step`` as in ``benchmarks.throughput``, by processor time.  Before that,
pods are placed that warm up caches: what is left is the cost of one more pod.  Where each pod is a
class of its own there is nothing to warm up.  The plots are written as SVG into the folder of the
environment variable ``KOORD_CURVES``, else ``build/curves``.
"""

import cProfile
import gc
import itertools
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from benchmarks.benchmark import Benchmark
from benchmarks.throughput import PROFILE, all_different, in_runs, interleaved, nodes
from koordinator.api.pod import Pod
from koordinator.cli.main import tune_garbage_collector
from koordinator.scheduler.loop import Bound, SchedulerOptions
from koordinator.simulator import Embedded

NODES = (1_000, 3_000, 10_000, 30_000, 130_000)
CLASSES = (1, 10, 100, 300, 1_000, 3_000, 10_000)
CLASS_NODES = 5_000
_BEFORE = 5_000  # pods that fill caches and load the compiler
_WARM_UP = 100  # pods of the measured kind before those that count
_FOLDER = Path(os.environ.get("KOORD_CURVES", "build/curves"))

Make = Callable[[int], Iterator[Pod]]
Curve = Sequence[tuple[int, float]]  # size, pods per CPU second


def over_nodes(scale: float) -> dict[str, Any]:
    """Return pods per CPU second for each number of nodes, and draw them.

    Pods with affinity come last: as soon as there are any, all others are checked against them.
    """
    kinds: dict[str, tuple[Make, int]] = {
        "runs of 500 pods": (in_runs, 20_000),
        "200 classes at random": (interleaved, 20_000),
        "every pod a class of its own": (all_different, 500),
    }
    curves: dict[str, list[tuple[int, float]]] = {title: [] for title in kinds}
    for count in NODES:
        world = _world(count, list(interleaved(_BEFORE)))
        first = _BEFORE
        for title, (make, most) in kinds.items():
            last = first + _WARM_UP + max(int(most * scale), 100)
            pods = list(itertools.islice(make(last), first, None))
            curves[title].append((count, _rate(world, pods)))
            first = last
    return _drawn("throughput-nodes.svg", "nodes", curves)


def over_classes(scale: float) -> dict[str, Any]:
    """Return pods per CPU second for each number of classes on 5,000 nodes, and draw them."""
    points = []
    for classes in CLASSES:
        pods = list(interleaved(5_000 + max(int(20_000 * scale), 100), classes))
        points.append((classes, _rate(_world(CLASS_NODES, pods[:5_000]), pods[5_000:])))
    return _drawn("throughput-classes.svg", "classes of pods", {"classes at random": points})


def _world(count: int, pods: Sequence[Pod]) -> Embedded:
    """Return a cluster of so many nodes that has placed the pods."""
    gc.unfreeze()  # and so free the cluster before
    gc.collect()
    world = Embedded(PROFILE, options=SchedulerOptions(report=False))
    world.load(nodes(count))
    world.load(pods)
    world.scheduler.step()
    return world


def _rate(world: Embedded, pods: Sequence[Pod]) -> float:
    """Return how many pods are placed in a CPU second, after the first ones."""
    world.load(pods[:_WARM_UP])
    world.scheduler.step()
    world.load(pods[_WARM_UP:])
    gc.collect()
    tune_garbage_collector()
    started = time.process_time()
    outcomes = world.scheduler.step()
    seconds = time.process_time() - started
    return sum(isinstance(outcome, Bound) for outcome in outcomes) / seconds


def _drawn(file: str, across: str, curves: Mapping[str, Curve]) -> dict[str, Any]:
    """Draw the curves with logarithmic axes, and return them as text."""
    mpl.rcParams["svg.hashsalt"] = file  # the same figures give the same file
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.add_subplot()
    for title, points in curves.items():
        axes.plot(*zip(*points, strict=True), marker="o", label=title)
    axes.set(xscale="log", yscale="log", xlabel=across, ylabel="pods per CPU second")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    _FOLDER.mkdir(parents=True, exist_ok=True)
    figure.savefig(_FOLDER / file, metadata={"Date": None})
    return {
        title: "; ".join(f"{size:,}: {rate:,.0f}" for size, rate in points)
        for title, points in curves.items()
    }


# -- calls -----------------------------------------------------------------------------------


def calls(make: Make, measured: int, scale: float) -> dict[str, Any]:
    """Return Python calls per pod on 1,000 nodes, in all and by package."""
    world = _world(1_000, list(interleaved(_BEFORE)))
    last = _BEFORE + _WARM_UP + max(int(measured * scale), 100)
    pods = list(itertools.islice(make(last), _BEFORE, None))
    world.load(pods[:_WARM_UP])
    world.scheduler.step()
    world.load(pods[_WARM_UP:])
    profile = cProfile.Profile(builtins=False)
    outcomes = profile.runcall(world.scheduler.step)
    bound = sum(isinstance(outcome, Bound) for outcome in outcomes)
    counts: Counter[str] = Counter()
    for entry in profile.getstats():
        file = entry.code if isinstance(entry.code, str) else entry.code.co_filename
        counts[_package(file)] += entry.callcount
    total = {"calls per pod": f"{counts.total() / bound:.1f}"}
    largest = itertools.takewhile(lambda item: item[1] >= bound / 20, counts.most_common(12))
    return total | {package: f"{count / bound:.1f}" for package, count in largest}


def _package(file: str) -> str:
    """Return the folder of a module below ``koordinator``; other files are ``others``."""
    _, separator, inside = file.rpartition("/koordinator/")
    return inside.rpartition("/")[0] or "foundation" if separator else "others"


BENCHMARKS = {
    "curve-nodes": Benchmark("pods/s over nodes", "near-constant", over_nodes),
    "curve-classes": Benchmark("pods/s over classes, 5,000 nodes", "-", over_classes),
} | {
    f"calls-{name}": Benchmark(f"Python calls per pod, {what}", "-", partial(calls, make, measured))
    for name, what, make, measured in (
        ("runs", "runs of 500", in_runs, 10_000),
        ("interleaved", "200 classes at random", interleaved, 10_000),
        ("different", "every pod a class of its own", all_different, 1_000),
    )
}
