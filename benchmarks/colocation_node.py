"""A server's answers beside batch jobs on a real node, with the agent and without, in turn.

The server has a CPU limit that is enough for its load on average, and not at all times; two batch
jobs, placed by the scheduler on what the manager published, compute without a pause.  Without the
agent the kernel holds the server to its limit, and jobs to nothing.  All programs are real.
"""

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from tests.e2e import network, real_node
from tests.e2e.controlplane import ControlPlane
from tests.e2e.koord_process import KOORD
from tests.e2e.manager_process import ManagerProcess
from tests.e2e.node.conftest import NodeAgent
from tests.e2e.real_node.colocation import (
    LIMIT_MILLI,
    TIER,
    Load,
    QuietMachine,
    address_of,
    batch_cpu_milli,
    batch_pod,
    cgroup_of,
    configure,
    create_priorities,
    install,
    percentile_ms,
    quota_us,
    scheduling,
    server_pod,
)
from tests.e2e.real_node.node import CGROUPS, Manifest
from tests.e2e.scheduler_process import SchedulerProcess
from tests.e2e.waiting import eventually

from benchmarks.benchmark import Benchmark
from benchmarks.markup import Markup, element

ROUNDS, PHASE_S, SETTLE_S = 4, 20.0, 8.0
REQUESTS_PER_S = 25.0
DRAWING = Path("colocation-node.svg")
_JOB_MILLI = 400
_PATIENCE_S = 120.0
_WIDTH, _HEIGHT, _MARGIN = 640, 320, 48
_SLOWEST_MS, _QUICKEST_MS = 2000.0, 5.0


def _story(scale: float) -> dict[str, Any]:
    problem = real_node.missing() or ("" if (CGROUPS / "cpuset").is_dir() else "needs cgroup v1")
    if problem:
        return {"skipped": problem}
    programs = real_node.find_programs()
    if not network.enter():
        return {"skipped": "a real node needs a network namespace"}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as parts:
        state = Path(folder)
        cluster = parts.enter_context(ControlPlane(state / "cluster"))
        node = parts.enter_context(real_node.RealNode(cluster, programs, state / "node"))
        install(cluster)
        node.start_kubelet()
        configure(cluster)
        create_priorities(cluster)
        machine = parts.enter_context(QuietMachine(state / "stat"))
        parts.enter_context(ManagerProcess(cluster))
        parts.enter_context(SchedulerProcess(cluster, scheduling()))
        agent = NodeAgent(cluster, node, state, program=[*machine.program, str(KOORD)])
        parts.callback(agent.kill)
        with agent:
            (server,) = node.run(server_pod())
            eventually(lambda: batch_cpu_milli(cluster, node) >= 2 * _JOB_MILLI, _PATIENCE_S)
            jobs = [batch_pod(f"job-{number}", _JOB_MILLI) for number in range(2)]
            node.create(*jobs)
            for job in jobs:
                node.wait_for(job, "Running", _PATIENCE_S)
        taken = _in_turn(node, agent, server, max(int(ROUNDS * scale), 1))
        node.stop_kubelet()
    DRAWING.write_text(_drawn(taken))
    return {
        f"{name}_{percent}_ms": round(percentile_ms(times, percent), 1)
        for name, times in taken.items()
        for percent in (50, 99)
    } | {"requests": sum(map(len, taken.values())), "drawn": str(DRAWING)}


def _in_turn(
    node: real_node.RealNode, agent: NodeAgent, server: Manifest, rounds: int
) -> dict[str, list[float]]:
    """Return how long requests took, in seconds, without and with the agent."""
    place = cgroup_of(node, server)
    taken: dict[str, list[float]] = {"without": [], "with": []}
    with Load(address_of(node, server), REQUESTS_PER_S) as load:
        for _ in range(rounds):
            for name in taken:
                with _agent(agent, place, runs=name == "with"):
                    time.sleep(SETTLE_S)
                    since_s = time.monotonic()
                    time.sleep(PHASE_S)
                    until_s = time.monotonic() - 2.0  # those sent later may not be answered yet
                taken[name] += [each for due_s, each in load.taken if since_s <= due_s < until_s]
    return taken


@contextmanager
def _agent(agent: NodeAgent, server: Path, *, runs: bool) -> Iterator[None]:
    """Start the agent, or stop it and undo its settings."""
    if runs:
        with agent:
            eventually(lambda: quota_us(server) > LIMIT_MILLI * 100, _PATIENCE_S)
            yield
        return
    (server / "cpu.cfs_quota_us").write_text(str(LIMIT_MILLI * 100))
    (TIER / "cpu.cfs_quota_us").write_text("-1")
    yield


def _drawn(taken: dict[str, list[float]]) -> str:
    """Return an SVG: which share of requests took at least so long."""
    tones = {"without": "#c0392b", "with": "#2471a3"}
    shapes = [_axis(), *(_curve(times, tones[name]) for name, times in taken.items())]
    for row, (name, times) in enumerate(taken.items()):
        text = f"{name} the agent: p50 {percentile_ms(times, 50):.0f} ms, "
        text += f"p99 {percentile_ms(times, 99):.0f} ms"
        shapes.append(_text(_WIDTH - _MARGIN, _MARGIN + 18 * row, text, tones[name], "end"))
    view = f"0 0 {_WIDTH} {_HEIGHT}"
    whole = element("rect", width=_WIDTH, height=_HEIGHT, fill="white")
    return element("svg", whole, *shapes, xmlns="http://www.w3.org/2000/svg", viewBox=view)


def _curve(times: Sequence[float], tone: str) -> Markup:
    ordered = np.sort(np.array(times)) * 1000
    shares = 1 - np.arange(len(ordered)) / len(ordered)
    points = " ".join(
        f"{_x(each):.1f},{_y(share):.1f}" for each, share in zip(ordered, shares, strict=True)
    )
    return element("polyline", points=points, fill="none", stroke=tone, stroke_width=2)


def _axis() -> Markup:
    marks = [
        element("line", x1=_x(ms), x2=_x(ms), y1=_MARGIN, y2=_HEIGHT - _MARGIN, stroke="#ddd")
        + _text(_x(ms), _HEIGHT - _MARGIN + 16, f"{ms:g} ms", "#555", "middle")
        for ms in (5, 10, 20, 50, 100, 200, 500, 1000, 2000)
    ]
    levels = [
        element("line", x1=_MARGIN, x2=_WIDTH - _MARGIN, y1=_y(share), y2=_y(share), stroke="#ddd")
        + _text(_MARGIN - 4, _y(share) + 4, f"{share:.1%}", "#555", "end")
        for share in (1.0, 0.1, 0.01, 0.001)
    ]
    title = _text(_MARGIN, 24, "requests that took at least so long", "#222", "start")
    return Markup("".join((*marks, *levels, title)))


def _text(x: float, y: float, text: str, tone: str, anchor: str) -> Markup:
    place = {"x": round(x, 1), "y": round(y, 1)}
    style = {"font-family": "sans-serif", "fill": tone, "text-anchor": anchor}
    return element("text", text, font_size=12, **place, **style)


def _x(ms: float) -> float:
    """Return where a time is, on a logarithmic axis."""
    part = np.log(np.clip(ms, _QUICKEST_MS, _SLOWEST_MS) / _QUICKEST_MS)
    return float(_MARGIN + (_WIDTH - 2 * _MARGIN) * part / np.log(_SLOWEST_MS / _QUICKEST_MS))


def _y(share: float) -> float:
    """Return where a share is, on a logarithmic axis from 0.1 %."""
    part = -np.log10(max(share, 0.001)) / 3
    return float(_MARGIN + (_HEIGHT - 2 * _MARGIN) * part)


BENCHMARKS = {
    "colocation-node": Benchmark(
        "a server beside batch jobs on a real node", "p99 shorter with the agent", _story
    ),
}
