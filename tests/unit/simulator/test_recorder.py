"""Length of a recording."""

import gzip
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.worlds import START_S, node, pod

from koordinator.api.meta import KubeObject
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.cluster.memory.store import MemoryWatch
from koordinator.cluster.port import NO_TRANSFORMS, Transform
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.errors import ClusterError
from koordinator.simulator.recorder import FLUSH_INTERVAL_S, SYNC_TIMEOUT_S, Recorder, RecordingFile
from koordinator.simulator.recording import read_recording


class Living(MemoryCluster):
    """A cluster in which a pod is created after every wait."""

    def __init__(self) -> None:
        self.clock = VirtualClock(START_S)
        super().__init__(self.clock)
        self.load([node("n")])

    def wait(self, timeout_s: float) -> bool:
        self.clock.advance_to(self.clock.now_s() + timeout_s)
        self.create(pod(f"p{self.clock.now_s():.2f}"))
        return True


class _Silent(MemoryWatch):
    def poll(self) -> Sequence[Any]:
        return []


class Unreachable(Living):
    """A cluster from which no answer comes."""

    def watch(
        self,
        kind_types: Sequence[type[KubeObject]],
        field_selectors: Mapping[type[KubeObject], str] | None = None,  # noqa: ARG002 -- the port's
        transforms: Mapping[type[KubeObject], Transform] = NO_TRANSFORMS,  # noqa: ARG002 -- the port
    ) -> MemoryWatch:
        watch = super().watch(kind_types)
        watch.__class__ = _Silent
        return watch


def recorded(lines: list[bytes]) -> list[float]:
    """Return when what was written happened, in seconds since the start."""
    return [batch.at_s - START_S for batch in read_recording(lines, "here").batches]


def test_a_recording_ends_after_its_time() -> None:
    """Counted from when all that exists has been read; the last changes are in it."""
    cluster, lines, begun = Living(), list[bytes](), list[float]()
    recorder = Recorder(cluster, cluster.clock, lines.append)
    recorder.follow(threading.Event(), 1.2, lambda: begun.append(cluster.clock.now_s()))

    assert begun == [START_S]
    assert recorded(lines) == pytest.approx([0, 0.5, 1.0, 1.2])


def test_a_recording_without_an_end_continues_until_it_is_stopped() -> None:
    """By a signal."""
    cluster, lines, stopping = Living(), list[bytes](), threading.Event()

    def write(line: bytes) -> None:
        lines.append(line)
        if cluster.clock.now_s() > START_S + 2 * SYNC_TIMEOUT_S:
            stopping.set()

    Recorder(cluster, cluster.clock, write).follow(stopping)

    assert recorded(lines)[-1] > 2 * SYNC_TIMEOUT_S


def test_a_cluster_that_does_not_answer_ends_the_recording() -> None:
    """A job that records for an hour does not hang."""
    cluster = Unreachable()
    recorder = Recorder(cluster, cluster.clock, lambda _: None)

    with pytest.raises(ClusterError, match="could not be read within 120 s"):
        recorder.follow(threading.Event(), 3600)


def test_old_batches_are_flushed_to_the_file(tmp_path: Path) -> None:
    """A crash of the process loses only the newest batch."""
    clock = VirtualClock(START_S)
    path = tmp_path / "r.gz"
    with RecordingFile(path, clock) as file:
        file.write(b"first\n")
        clock.advance_to(START_S + FLUSH_INTERVAL_S)
        file.write(b"second\n")

        with gzip.open(path) as lines:
            assert [next(lines), next(lines)] == [b"first\n", b"second\n"]
