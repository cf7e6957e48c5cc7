"""Cost of a dashboard: 5,000 nodes, 100,000 pods, 500 changes a second, 50 readers.

A world changes as fast as that; each quarter of a second an overview is made, encoded, and sent to
readers in another process, over real connections.  Costs are CPU time: of making overviews, which
the feed does in a twentieth of its time at most, and of the server's thread.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

from msgspec.structs import replace

from benchmarks.benchmark import Benchmark
from benchmarks.explain import NOW_S, _pod
from benchmarks.throughput import PROFILE, nodes
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.dashboard.access import (
    EVERYTHING,
    NOTHING_PRIVATE,
    AccessPolicy,
    NamespaceLister,
    OpenAccess,
    ViewRights,
    ViewScope,
)
from koordinator.dashboard.feed import TIME_SHARE, Feed
from koordinator.dashboard.frames import FrameEncoder
from koordinator.dashboard.overview import OverviewBuilder
from koordinator.dashboard.server import dashboard_application
from koordinator.dashboard.sources import Pause, SourcePhase, SourceStatus
from koordinator.dashboard.sources.cluster import LiveClusterSource
from koordinator.foundation.clock import SystemClock, VirtualClock
from koordinator.process.connections import ConnectionLimits
from koordinator.process.http_server import HttpServer

NODES, PODS, WAITING = 5_000, 100_000, 2_000
CHANGES, FRAMES_PER_S, FRAMES = 125, 4, 24  # changes are those between two frames
WAITING_CHANGES = 10  # of those: pods that wait for a node
READERS = 50
MOVE_THE_MAP = Path(__file__).parents[1] / "tests/browser/move_the_map.js"
STATUS = SourceStatus(phase=SourcePhase.LIVE, now_s=NOW_S)

_LOOK_AT_THE_MAP = """async () => {
  const between = []
  let before = await new Promise(requestAnimationFrame)
  for (let n = 0; n < 180; n += 1) {
    const now = await new Promise(requestAnimationFrame)
    between.push(now - before)
    before = now
  }
  return between
}"""
_READER = """
import selectors, socket, sys
port, count = int(sys.argv[1]), int(sys.argv[2])
chosen = selectors.DefaultSelector()
for number in range(count):
    one = socket.create_connection(("127.0.0.1", port))
    who = b"\\r\\nAuthorization: Bearer team-%d" % number
    one.sendall(b"GET /api/events HTTP/1.1\\r\\nHost: localhost" + who + b"\\r\\n\\r\\n")
    one.setblocking(False)
    chosen.register(one, selectors.EVENT_READ)
print("connected", flush=True)
while True:
    for key, _ in chosen.select():
        if not key.fileobj.recv(1 << 20):
            chosen.unregister(key.fileobj)
"""


class _World:
    """A cluster in which pods end and others come, and a source that follows it."""

    def __init__(self, scale: float) -> None:
        self.clock = VirtualClock(NOW_S)
        self.cluster = MemoryCluster(self.clock)
        machines = nodes(max(int(NODES * scale), 10))
        names = [machine.metadata.name for machine in machines]
        pods = max(int(PODS * scale), 100)
        self._waiting = waiting = max(int(WAITING * scale), READERS) // READERS * READERS
        self._placed = [(f"p{n}", names[n % len(names)]) for n in range(pods)]
        objects: list[KubeObject] = [*machines]
        objects += [_pod(name, {"cpu": "100m"}, node_name=node) for name, node in self._placed]
        objects += [_waiting(n) for n in range(waiting)]
        self.cluster.load(objects)
        self.source = LiveClusterSource("bench", self.cluster, PROFILE, self.clock)
        self.source._step()  # noqa: SLF001 -- what ``follow`` does in its thread
        self._next = self._came = 0

    def change(self) -> None:
        """Replace as many pods as in a quarter of a second, and apply the changes."""
        for _ in range(WAITING_CHANGES // 2):
            team = f"team-{self._came % READERS}"
            self.cluster.delete(Pod, f"w{self._came}", team, grace_period_s=0)
            self.cluster.load([_waiting(self._came + self._waiting)])
            self._came += 1
        for _ in range((CHANGES - WAITING_CHANGES) // 2):
            place = self._next % len(self._placed)
            name, node = self._placed[place]
            self.cluster.delete(Pod, name, "default", grace_period_s=0)
            other = _pod(f"{name.partition('-')[0]}-{self._next}", {"cpu": "200m"}, node_name=node)
            self.cluster.load([replace(other, metadata=other.metadata)])
            self._placed[place] = (other.metadata.name, node)
            self._next += 7919  # all over the cluster
        self.source._step()  # noqa: SLF001 -- as above


def _waiting(number: int) -> Pod:
    """Return a pod that finds no node, of one of so many tenants as there are readers."""
    made = _pod(f"w{number}", {"cpu": "1000"})
    return replace(made, metadata=replace(made.metadata, namespace=f"team-{number % READERS}"))


def overviews(scale: float) -> dict[str, Any]:
    """Return what one overview takes, and how large it is."""
    world = _World(scale)
    assert world.source.handle is not None
    builder, encoder = OverviewBuilder(world.source.handle), FrameEncoder(EVERYTHING, {})
    built_s, encoded_s, sizes = [], [], []
    for _ in range(FRAMES):
        world.change()
        began_s = time.process_time()
        overview = builder.build(STATUS)
        made_s = time.process_time()
        published, frame = encoder.next(overview, {}, NOTHING_PRIVATE)
        built_s.append(made_s - began_s)
        encoded_s.append(time.process_time() - made_s)
        sizes.append(len(frame))
    steady = slice(2, None)  # the first is whole
    cost_s = sorted(map(sum, zip(built_s, encoded_s, strict=True)))[len(built_s) // 2]
    return {
        "overview": f"{min(built_s[steady]) * 1e3:.1f} ms",
        "frame": f"{min(encoded_s[steady]) * 1e3:.1f} ms, {sizes[-1] / 1024:.0f} KiB",
        "whole": f"{len(encoder.full(published)) / 1024:.0f} KiB",
        "share of a core": f"{100 * FRAMES_PER_S * cost_s:.1f} %",
    }


def readers(scale: float) -> dict[str, Any]:
    """Return the share of a core of all that 50 readers take who see everything."""
    return _serve(scale, OpenAccess())


def tenants(scale: float) -> dict[str, Any]:
    """Return the same costs for 50 readers with different views."""
    return _serve(scale, _OwnNamespaces())


class _OwnNamespaces:
    """Authorizer that shows the owner of a token the pods of the namespace of its name."""

    def rights_of(self, token: str, namespaces: NamespaceLister) -> ViewRights:  # noqa: ARG002 -- not asked
        return ViewRights(ViewScope(frozenset({token}), sees_nodes=False), token)


def _serve(scale: float, policy: AccessPolicy) -> dict[str, Any]:
    world = _World(scale)
    handle = world.source.handle
    assert handle is not None
    feed = Feed(world.source, SystemClock())  # not started: frames are published here
    app = dashboard_application(feed, lambda _: (), SystemClock(), policy)
    spent = _ThreadTime()
    limits = ConnectionLimits(connections=256)
    server = HttpServer(app, "127.0.0.1", 0, limits=limits, periodic=spent.look)
    server.start()
    command = [sys.executable, "-c", _READER, str(server.port), str(READERS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as client:
        try:
            assert client.stdout is not None
            client.stdout.readline()
            while feed.broadcast.readers < READERS:
                time.sleep(0.05)
            builder = OverviewBuilder(handle)
            feed.broadcast.publish(builder.build(STATUS), {})
            time.sleep(0.5)
            before_s, began_s, made_s = spent.seconds, time.monotonic(), 0.0
            for number in range(FRAMES):
                world.change()
                began_making_s = time.thread_time()
                feed.publish(builder.build(STATUS), handle.state)
                made_s += time.thread_time() - began_making_s
                due_s = began_s + (number + 1) / FRAMES_PER_S
                time.sleep(max(due_s - time.monotonic(), 0.0))
            time.sleep(0.5)  # the last look at what was spent
            sent_s = spent.seconds - before_s
        finally:
            client.kill()
            server.stop()
    made_s, sent_s = made_s / FRAMES, sent_s / FRAMES
    frames_per_s = 1 / max(1 / FRAMES_PER_S, TIME_SHARE * made_s)  # as the feed has it
    return {
        "made": f"{1e3 * made_s:.1f} ms",
        "sent": f"{1e3 * sent_s:.1f} ms",
        "a second": f"{frames_per_s:.1f} frames",
        f"{READERS} readers": f"{100 * frames_per_s * (made_s + sent_s):.1f} % of a core",
    }


def frames(scale: float) -> dict[str, Any]:
    """Return what the map costs a Chromium, and its frames a second: looked at only, and zoomed.

    Where there are several cores one is for the cluster and the server, the others for Chromium.
    Costs are CPU time of the page's main thread, for each frame that the server sent, and for each
    that the browser drew.
    """
    try:
        from playwright.sync_api import sync_playwright  # noqa: PLC0415 -- of few machines
    except ImportError:
        return {"skipped": "needs make .venv/.ready-browser"}
    path = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
    if path is None:
        return {"skipped": "needs a Chromium on PATH"}
    world = _World(scale)
    source = _Changing(world)
    feed = Feed(source, SystemClock())
    server = HttpServer(dashboard_application(feed, lambda _: (), SystemClock()), "127.0.0.1", 0)
    cores = sorted(os.sched_getaffinity(0))
    try:
        with sync_playwright() as playwright, ExitStack() as cleanup:
            browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
            cleanup.callback(browser.close)
            if len(cores) > 1:
                _keep_to(os.getpid(), {cores[0]})
                for child in _descendants(os.getpid()):
                    _keep_to(child, set(cores[1:]))
            feed.start()
            server.start()
            page = browser.new_page(viewport={"width": 1600, "height": 1000})
            page.goto(f"http://127.0.0.1:{server.port}/#/map")
            page.get_by_text("live", exact=True).wait_for(timeout=120_000)
            _wait_for_overviews(feed, 5)  # all is derived, and frames follow each other
            spent = _MainThread(page)
            before, began_s = source.rounds, time.monotonic()
            _wait_for_overviews(feed, FRAMES)
            delta = spent.look(FRAMES)
            looked_at = page.evaluate(_LOOK_AT_THE_MAP)
            spent.look(1)
            shown = page.evaluate(MOVE_THE_MAP.read_text())
            moved = spent.look(len(shown))
            changes = CHANGES * (source.rounds - before) / (time.monotonic() - began_s)
    finally:
        _keep_to(os.getpid(), set(cores))
        server.stop()
        feed.stop()
    return {
        "changes": f"{changes:.0f} a second",
        "a change": delta,
        "moved": moved,
        "looked at": f"{1000 * len(looked_at) / sum(looked_at):.0f} a second",
        "frames": f"{1000 * len(shown) / sum(shown):.0f} a second",
        "median": f"{shown[len(shown) // 2]:.1f} ms",
        "95 of 100": f"{shown[len(shown) * 19 // 20]:.1f} ms",
    }


class _MainThread:
    """The CPU time of a page's main thread, as Chromium counts it."""

    PARTS: ClassVar = {"ScriptDuration": "script", "LayoutDuration": "layout"}

    def __init__(self, page: Any) -> None:
        self._session = page.context.new_cdp_session(page)
        self._session.send("Performance.enable", {"timeDomain": "threadTicks"})
        self._last = self._read()

    def look(self, count: int) -> str:
        """Return the milliseconds for each of so many since the last look."""
        last, self._last = self._last, self._read()
        spent = {name: 1e3 * (self._last[name] - last[name]) / count for name in self._last}
        parts = ", ".join(f"{words} {spent[name]:.1f}" for name, words in self.PARTS.items())
        return f"{spent['TaskDuration']:.1f} ms ({parts})"

    def _read(self) -> dict[str, float]:
        metrics = self._session.send("Performance.getMetrics")["metrics"]
        return {one["name"]: one["value"] for one in metrics}


class _Changing(LiveClusterSource):
    """A source whose cluster changes while it is followed."""

    def __init__(self, world: "_World") -> None:
        self.__dict__.update(world.source.__dict__)
        self._world = world
        self.rounds = 0  # of ``CHANGES`` each

    def follow(self, pause: Pause) -> None:
        due_s = time.monotonic()
        while pause(max(due_s - time.monotonic(), 0.0)):
            self._world.change()
            self.rounds += 1
            due_s = max(due_s, time.monotonic() - 1.0) + 1 / FRAMES_PER_S


def _wait_for_overviews(feed: Feed, wanted: int) -> None:
    """Return once so many different ones were made.  Raises TimeoutError after two minutes."""
    seen, until_s = feed.overview, time.monotonic() + 120
    while wanted:
        if time.monotonic() > until_s:
            raise TimeoutError("the dashboard makes no overviews")
        time.sleep(0.02)
        if feed.overview is not seen:
            seen, wanted = feed.overview, wanted - 1


def _keep_to(pid: int, cores: set[int]) -> None:
    """Pin all threads of a process to some cores."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), cores)


def _descendants(pid: int) -> Iterator[int]:
    for thread in Path(f"/proc/{pid}/task").iterdir():
        for child in (thread / "children").read_text().split():
            yield int(child)
            yield from _descendants(int(child))


class _ThreadTime:
    """The CPU seconds of the server's thread, as of its last look."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def look(self) -> None:
        self.seconds = time.thread_time()


BENCHMARKS = {
    "dashboard-overview": Benchmark(
        "overview of 5,000 nodes, 100,000 pods, 500 changes a second", "5 % of a core", overviews
    ),
    "dashboard-frames": Benchmark(
        "frames in Chromium while the map of these is zoomed", "60 a second", frames
    ),
    "dashboard-readers": Benchmark(
        "overviews and frames to 50 readers, four a second", "5 % of a core", readers
    ),
    "dashboard-tenants": Benchmark(
        "overviews and frames to 50 readers who all see something else", "5 % of a core", tenants
    ),
}
