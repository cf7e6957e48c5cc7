"""The monitor and HAMi-core's real library: blocking and throttling as a task feels them."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.vgpu.hami import HamiCore, missing
from tests.e2e.waiting import eventually
from tests.unit.vgpu_monitor.test_monitor import Node

from koordinator.foundation.clock import WallClock
from koordinator.vgpu_monitor.feedback import ACTIVE_S

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

Task = subprocess.Popen[bytes]


class RealNode(Node):
    """A node whose containers are real tasks; rounds of the monitor come four times a second."""

    def __init__(self, folder: Path, hami: HamiCore) -> None:
        super().__init__(folder, WallClock())
        self._hami = hami
        self.tasks: list[Task] = []

    def run(self, name: str, priority: str, wanted_percent: int) -> Task:
        """Start a pod whose container launches kernels, and wait for the first."""
        self.pod(name, priority)
        task = self._hami.start(self.regions.file(name), wanted_percent)
        self.tasks.append(task)
        eventually(lambda: self._hami.launches(task))
        return task

    def rates(self, *tasks: Task, seconds: float = 3.0) -> list[float]:
        """Return kernels per second of each task, while the monitor works."""
        before = [self._hami.launches(task) for task in tasks]
        self.watch(seconds)
        return [
            (self._hami.launches(task) - count) / seconds
            for task, count in zip(tasks, before, strict=True)
        ]

    def watch(self, seconds: float) -> None:
        """Run the monitor for a while."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.rounds()
            time.sleep(0.25)


@pytest.fixture(scope="module")
def hami(tmp_path_factory: pytest.TempPathFactory) -> HamiCore:
    return HamiCore(tmp_path_factory.mktemp("hami"))


@pytest.fixture
def node(tmp_path: Path, hami: HamiCore) -> Iterator[RealNode]:
    made = RealNode(tmp_path, hami)
    yield made
    for task in made.tasks:
        task.kill()
        task.wait()


def test_a_less_important_task_stands_still_until_the_other_has_ended(node: RealNode) -> None:
    """50 kernels a second, none, 50 again."""
    batch = node.run("batch", "1", wanted_percent=10)
    assert node.rates(batch)[0] > 40
    service = node.run("service", "0", wanted_percent=10)
    node.watch(1.5)

    assert node.rates(batch)[0] == 0
    assert node.rates(service)[0] > 40

    service.kill()
    service.wait()
    node.watch(ACTIVE_S + 2)  # until its last kernel is long ago
    assert node.rates(batch)[0] > 40


def test_cores_are_limited_only_while_they_are_wanted_by_two(node: RealNode) -> None:
    """Alone a task has three times its 30 %; with a neighbour it is held to them."""
    first = node.run("first", "1", wanted_percent=90)
    node.watch(3)
    assert node.rates(first)[0] > 40
    node.run("second", "1", wanted_percent=90)
    node.watch(4)

    assert node.rates(first)[0] < 30
