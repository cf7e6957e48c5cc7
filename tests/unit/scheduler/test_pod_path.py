"""The path of a plain pod: the source files that one step of the scheduler runs through for it.

A pod without gang, quota, devices or reservation must not pay for these features.  The bounds are
the current cost of the path; a change that needs more of it states why.
"""

import sys
from collections import Counter
from types import FrameType
from typing import Any

import pytest
from tests.worlds import node, pod

from koordinator import simulator
from koordinator.api.codec import decode_object
from koordinator.api.meta import KubeObject
from koordinator.simulator import Embedded, default_configuration
from koordinator.simulator.embedded import STOCK

_SOURCE = simulator.__file__.removesuffix("simulator/__init__.py")
_CLUSTER = "cluster/memory/"  # stands in for the API server


class Path:
    """Calls per source file, and the number of moves from one file to another."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.moves = 0
        self._last = ""

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        """Count a call or a return; for ``sys.setprofile``."""
        name = _file_of(frame)
        if name is None:
            return
        if event == "call":
            self.calls[name] += 1
            self._go_to(name)
        elif event == "return":
            caller = frame.f_back
            while caller is not None and (here := _file_of(caller)) is None:
                caller = caller.f_back
            if caller is not None and here is not None:
                self._go_to(here)

    def _go_to(self, name: str) -> None:
        self.moves += name != self._last
        self._last = name


def _file_of(frame: FrameType) -> str | None:
    name = frame.f_code.co_filename
    if not name.startswith(_SOURCE):
        return None
    name = name.removeprefix(_SOURCE)
    return None if name.startswith(_CLUSTER) else name


def report(name: str) -> KubeObject:
    """Return what was measured of a node."""
    usage = {"nodeUsage": {"resources": {"cpu": "1", "memory": "4Gi"}}}
    status = {"updateTime": "1970-01-01T00:00:00Z", "nodeMetric": usage}
    metadata = {"name": name}
    return decode_object(
        {
            "apiVersion": "slo.koordinator.sh/v1alpha1",
            "kind": "NodeMetric",
            "metadata": metadata,
            "spec": {},
            "status": status,
        }
    )


def path_of_a_plain_pod(configuration: Any, scheduler: str, *, measured: bool) -> Path:
    """Return the path of the fourth pod of its kind on twenty nodes."""
    world = Embedded(configuration)
    world.load([node(f"n{i}", 8, "32Gi") for i in range(20)])
    world.load([report(f"n{i}") for i in range(20 if measured else 0)])
    for i in range(3):
        world.cluster.create(pod(f"p{i}", 1, "1Gi", schedulerName=scheduler))
        world.scheduler.step()
        world.scheduler.step()
    world.cluster.create(pod("p", 1, "1Gi", schedulerName=scheduler))
    path = Path()
    before = sys.getprofile()
    sys.setprofile(path.profile)
    try:
        outcomes = world.scheduler.step()
    finally:
        sys.setprofile(before)
    assert [outcome.pod for outcome in outcomes] == ["default/p"]
    return path


@pytest.mark.parametrize(
    ("configuration", "scheduler", "measured", "files", "moves"),
    [
        (default_configuration(), "koord-scheduler", False, 46, 245),
        (default_configuration(), "koord-scheduler", True, 50, 275),
        (STOCK, "default-scheduler", False, 35, 195),
    ],
    ids=["koordinator", "koordinator with load reports", "stock"],
)
def test_plain_pod_runs_through_few_files(
    configuration: Any, scheduler: str, *, measured: bool, files: int, moves: int
) -> None:
    """Features that do not apply to a pod are not called for it."""
    path = path_of_a_plain_pod(configuration, scheduler, measured=measured)

    assert len(path.calls) <= files, sorted(path.calls)
    assert path.moves <= moves, path.calls.most_common(20)
