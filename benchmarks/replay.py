"""An hour of a cluster, recorded and run again: whole seconds of ``koord replay`` on the file.

Pods come evenly over the hour; each comes, gets its node, runs and ends, which is four events, as a
watch shows them.  Making the recording is not part of it.
"""

import datetime as dt
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from benchmarks.benchmark import Benchmark
from benchmarks.throughput import interleaved, nodes
from koordinator.api.codec import encode
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.domain.recording import RecordedBatch, RecordingHeader, to_line
from koordinator.domain.recording.batch import FORMAT, RecordedEvent
from koordinator.foundation.clock import UTC
from koordinator.simulator.recorder import RecordingFile

NODES = 5_000
POD_EVENTS = 50_000
HOUR_S = 3_600
START_S = 1_700_000_000.0
LIFE_S = 900
PODS_PER_EVENT = 1 / 3.75  # the last quarter of the pods doesn't end within the hour
CONFIGURATION = Path(__file__).with_name("koordinator.yaml")


def replay(scale: float) -> dict[str, Any]:
    """Return the seconds that the whole command takes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "hour.gz"
        events = _record(path, int(POD_EVENTS * scale * PODS_PER_EVENT))
        command = [
            sys.executable,
            "-c",
            "from koordinator.cli.main import main; main()",
            "replay",
            str(path),
        ]
        command += ["--config", str(CONFIGURATION), "--output", "json"]
        started = time.perf_counter()
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        seconds = time.perf_counter() - started
        found = msgspec.json.decode(done.stdout)
        return {
            "s": round(seconds, 1),
            "events": events,
            "placed": found["after"]["placed"],
            "MB": round(path.stat().st_size / 1e6, 1),
        }


def _record(path: Path, pods: int) -> int:
    """Write the recording of an hour; return the number of its events."""
    everyone = nodes(NODES)
    count = 0
    with RecordingFile(path) as file:
        file.write(to_line(RecordingHeader(FORMAT, START_S)))
        file.write(_line(START_S, [("ADDED", node) for node in everyone]))
        for at_s, kind, pod in sorted(_lives(pods), key=lambda it: it[0]):
            file.write(_line(at_s, [(kind, pod)]))
            count += 1
    return count


def _lives(count: int) -> Iterator[tuple[float, str, Pod]]:
    for number, pod in enumerate(interleaved(count)):
        came_s = START_S + 1 + number * (HOUR_S - 2) / count
        created = dt.datetime.fromtimestamp(int(came_s), UTC)
        meta = replace(pod.metadata, uid=f"u{number}", creation_timestamp=created)
        pending = replace(pod, metadata=meta, status=replace(pod.status, phase="Pending"))
        node = f"n{number * 7919 % NODES:05d}"
        bound = replace(pending, spec=replace(pending.spec, node_name=node))
        running = replace(bound, status=replace(bound.status, phase="Running"))
        for after_s, kind, state in (
            (0.0, "ADDED", pending),
            (0.01, "MODIFIED", bound),
            (1.5, "MODIFIED", running),
            (LIFE_S, "DELETED", running),
        ):
            if came_s + after_s <= START_S + HOUR_S:
                yield came_s + after_s, kind, state


def _line(at_s: float, events: list[tuple[str, KubeObject]]) -> bytes:
    texts = [RecordedEvent(kind, msgspec.Raw(encode(obj))) for kind, obj in events]
    return to_line(RecordedBatch(at_s, texts))


BENCHMARKS = {
    "replay": Benchmark("replay of an hour, 5,000 nodes, 50,000 pod events", "30 s", replay),
}
