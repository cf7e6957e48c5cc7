"""The curve of GPUs in use over moves: a day of openb with departures, drawn as SVG.

Written to the file of the environment variable ``KOORD_CURVE``, else ``openb-moves.svg``.
"""

import functools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.benchmark import Benchmark
from benchmarks.openb import FOLDER, MISSING
from koordinator.simulator.research.openb import read_trace
from koordinator.simulator.research.openb_departures import DepartureWeek, draw_departing_pods
from koordinator.simulator.research.openb_fleet import FleetClasses, GpuFleet
from koordinator.simulator.research.openb_moves import LimitedMoves, MoveBudget

_FILE = Path(os.environ.get("KOORD_CURVE", "openb-moves.svg"))
_BUDGETS = (0, 1, 2, 5, 10, 20, 50)
_DAY_S = 86_400.0
_SEED = 42
_WIDTH, _HEIGHT, _LEFT, _FLOOR = 640, 360, 70, 310
_COLOURS = {"price": "#1b6ca8", "fgd": "#b5551d"}

_ACROSS = "moves made per 1,000 arrivals"

Points = Sequence[tuple[float, float]]


def curve(_scale: float) -> dict[str, Any]:
    """Measure both policies with each budget and draw them."""
    if not FOLDER.is_dir():
        return MISSING
    points = {policy: [_point(policy, budget) for budget in _BUDGETS] for policy in _COLOURS}
    _FILE.write_text(drawing(points))
    return {policy: [(round(x, 1), round(y, 2)) for x, y in points[policy]] for policy in points}


@functools.cache
def _point(policy: str, budget: int) -> tuple[float, float]:
    """Return moves per 1,000 arrivals, and the percentage of the GPUs in use over a day."""
    trace = read_trace(FOLDER)
    drawn = draw_departing_pods(trace, _SEED)
    week = DepartureWeek(GpuFleet(trace, FleetClasses.of(trace), drawn.rank, policy), drawn)
    hours = week.run(LimitedMoves(trace, MoveBudget(budget)), _DAY_S)
    result = week.result(policy, _SEED, hours)
    return result.moves_per_1000, 100 * result.gpu_used


def drawing(points: Mapping[str, Points]) -> str:
    """Return the SVG: a line per policy, moves made to the right, GPUs in use upwards."""
    everything = [point for each in points.values() for point in each]
    most = max(1.0, *(x for x, _ in everything))
    low, high = min(y for _, y in everything), max(y for _, y in everything)
    span = max(high - low, 0.01)

    def place(x: float, y: float) -> tuple[float, float]:
        across = _LEFT + x / most * (_WIDTH - _LEFT - 70)
        return round(across, 1), round(_FLOOR - (y - low) / span * (_FLOOR - 40), 1)

    parts = [
        f'<line x1="{_LEFT}" y1="{_FLOOR}" x2="{_WIDTH - 20}" y2="{_FLOOR}" stroke="#888"/>',
        f'<text x="{_LEFT}" y="20">GPUs in use, %</text>',
        f'<text x="{_WIDTH - 20}" y="{_FLOOR + 40}" text-anchor="end">{_ACROSS}</text>',
    ]
    for value in (low, (low + high) / 2, high):
        _, height = place(0, value)
        parts.append(f'<text x="{_LEFT - 8}" y="{height}" text-anchor="end">{value:.2f}</text>')
    for value in (0.0, most / 2, most):
        across, _ = place(value, low)
        where = f'x="{across}" y="{_FLOOR + 18}"'
        parts.append(f'<text {where} text-anchor="middle">{value:.0f}</text>')
    for policy, own in points.items():
        placed = [place(x, y) for x, y in own]
        line = " ".join(f"{x},{y}" for x, y in placed)
        colour = _COLOURS[policy]
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in placed]
        x, y = placed[-1]
        parts.append(f'<text x="{x + 8}" y="{y}" fill="{colour}">{policy}</text>')
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'font-family="sans-serif" font-size="13">\n{body}\n</svg>\n'
    )


BENCHMARKS = {
    "openb-curve": Benchmark(
        "openb, a day with departures: GPUs in use over moves, as SVG", "drawn", curve
    )
}
