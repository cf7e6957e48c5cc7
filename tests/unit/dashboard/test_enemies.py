"""Hostile readers, names and amounts: time and memory stay bounded; no reader delays another."""

import asyncio
import itertools
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.unit.dashboard.dashboards import (
    Browser,
    crowded,
    followed,
    gpu_node,
    manifests,
    overview,
    served,
    settled,
)
from tests.worlds import configuration, made, node, pod

from koordinator.dashboard.access import ViewScope
from koordinator.dashboard.broadcast import (
    MAX_READERS,
    MAX_READERS_PER_USER,
    Broadcast,
    OverviewReader,
)
from koordinator.dashboard.feed import ANSWER_SLICE_S, RUN_SHARE, Feed
from koordinator.dashboard.frames import MAX_CAUSES, SCOPES_PER_FRAME
from koordinator.dashboard.overview import OverviewBuilder
from koordinator.dashboard.sources import Pause, SourcePhase, SourceStatus
from koordinator.dashboard.sources.manifests import ManifestSource
from koordinator.dashboard.timeline import MAX_SAMPLE_CAUSES, OTHERS, Timeline
from koordinator.dashboard.waiting_pods import SLICE
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.errors import InputError
from koordinator.simulator.embedded import STOCK

NOW = SourceStatus(phase=SourcePhase.LIVE, now_s=2e9)
QUOTAS = configuration(plugins={"multiPoint": {"enabled": [{"name": "ElasticQuota"}]}})


def stuck(count: int, **given: Any) -> list[Any]:
    """Return pending pods, each with a reason of its own."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    return [
        made(
            "Pod",
            f"w{number}",
            "v1",
            metadata={"namespace": f"team-{number % 100}"},
            spec={"schedulerName": "foreign", "containers": []},
            status={"conditions": [{**condition, "message": f"waits for gang g{number}"}]},
            **given,
        )
        for number in range(count)
    ]


# -- readers ---------------------------------------------------------------------------------


def test_number_of_streams_is_bounded_per_user_and_in_total() -> None:
    """All streams together leave connections free for queries."""

    async def run() -> None:
        broadcast = Broadcast({})
        scope = ViewScope(frozenset({"blue"}))
        greedy = [broadcast.open(scope, "greedy") for _ in range(MAX_READERS_PER_USER + 1)]
        assert greedy[-1] is None
        others = [broadcast.open(scope, f"user-{n}") for n in range(MAX_READERS)]
        assert broadcast.readers == MAX_READERS
        assert others[-1] is None
        assert greedy[0] is not None
        broadcast.close(scope, greedy[0])
        assert broadcast.open(scope, "late") is not None

    asyncio.run(run())


def test_readers_that_never_read_keep_no_frames() -> None:
    """The queue of such a reader is dropped; a later read returns a full frame."""

    async def run() -> None:
        broadcast = Broadcast({})
        readers = [broadcast.open() for _ in range(50)]
        for _ in range(100):
            broadcast.publish(base, {})
            await asyncio.sleep(0)
        queued = sum(len(frame) for one in readers if one is not None for frame in one.queued)
        first = await readers[0].next(5.0) if readers[0] is not None else None
        assert first is not None
        assert queued < 50 * len(first)

    base = overview(settled(*crowded()))
    asyncio.run(run())


def test_pods_of_fifty_tenants_are_updated_in_turn() -> None:
    """A frame updates the pods of some tenants, and after some frames all are updated."""

    async def run() -> None:
        broadcast = Broadcast({})
        scopes = [ViewScope(frozenset({f"t{n}"}), sees_nodes=False) for n in range(50)]
        readers = [broadcast.open(scope) for scope in scopes]
        broadcast.publish(before, {})
        await _next(readers)
        seen: set[int] = set()
        for _ in range(50 // SCOPES_PER_FRAME + 1):
            broadcast.publish(after, {})
            frames = await _next(readers)
            updated = {n for n, frame in enumerate(frames) if '/new"' in frame}
            assert len(updated) <= SCOPES_PER_FRAME
            seen |= updated
        assert len(seen) == 50

    async def _next(readers: list[OverviewReader | None]) -> list[str]:
        frames = [await one.next(5.0) for one in readers if one is not None]
        return [(frame or b"").decode() for frame in frames]

    before = overview(settled(node("a", cpu=1)))
    waiting = [pod("new", cpu=9, namespace=f"t{n}") for n in range(50)]
    after = overview(settled(node("a", cpu=1), *waiting))
    asyncio.run(run())


@pytest.fixture
def browser() -> Iterator[Browser]:
    """Show two full nodes and pending pods."""
    with served(manifests(crowded())) as server:
        yield server


def test_silent_connections_leave_room_for_others(browser: Browser) -> None:
    """Silent connections are closed first."""
    silent = [socket.create_connection(("127.0.0.1", browser.port)) for _ in range(300)]
    try:
        for half in silent[::3]:
            half.sendall(b"GET /api/events HTTP/1.1\r\nHost: loc")
        assert browser.get("/api/quotas").status == 200
        frames = browser.frames()
        assert next(frames)["kind"] == "full"
        frames.close()  # type: ignore[attr-defined]  # a generator
    finally:
        for one in silent:
            one.close()


@pytest.mark.parametrize(
    "path",
    [
        "/api/waiting?cause=" + "x" * 7000,
        "/api/pod?name=" + "%F0%9F%90%B4" * 500,
        "/api/node?name=" + "%E2%80%AE" * 500,
        "/api/devices?text=" + "y" * 7000,
        "/api/pod?name=%00%0d%0a%ff",
    ],
)
def test_huge_and_malformed_queries_are_answered(browser: Browser, path: str) -> None:
    assert browser.get(path).status in {200, 400, 404}
    assert browser.get("/api/pod?name=" + "z" * 9000).status == 414


# -- names and amounts -----------------------------------------------------------------------


def test_number_of_named_causes_is_bounded() -> None:
    """Frames and the timeline count the other causes together."""

    async def run() -> None:
        broadcast = Broadcast({})
        reader = broadcast.open()
        assert reader is not None
        broadcast.publish(base, {})
        frame = json.loads((await reader.next(5.0) or b"").removeprefix(b"data: "))
        assert len(frame["waiting"]) == MAX_CAUSES
        assert frame["totals"]["waiting"] == frame["totals"]["causes"] == 500

    base = overview(settled(node("a", cpu=1), *stuck(500)))
    asyncio.run(run())
    timeline = Timeline()
    timeline.add(base)
    (sample,) = timeline._samples
    assert len(sample.waiting) == MAX_SAMPLE_CAUSES + 1
    assert sample.waiting[OTHERS] == 500 - MAX_SAMPLE_CAUSES
    assert sum(counts[0] for counts in timeline.as_data()["causes"].values()) == 500


def test_thousands_of_pending_pods_are_examined_in_slices() -> None:
    """A new pod appears after as many overviews as there are slices."""
    world = settled(node("a", cpu=1), *stuck(3 * SLICE))
    builder = OverviewBuilder(world.scheduler.handle)
    first = builder.build(NOW).waiting
    assert len(first) == 3 * SLICE
    assert builder.build(NOW).waiting is first

    world.cluster.load(stuck(3 * SLICE + 1)[-1:])
    world.run_to_fixed_point()
    counts = [len(builder.build(NOW).waiting) for _ in range(8)]
    assert counts == sorted(counts)
    assert counts[-1] == 3 * SLICE + 1
    assert len(builder.build(of_run(NOW)).waiting) == 3 * SLICE + 1


def of_run(status: SourceStatus) -> SourceStatus:
    """Return the status of a run, whose overviews examine all pods."""
    return SourceStatus(phase=status.phase, now_s=status.now_s, speed=60.0)


def test_quota_tree_of_depth_200_is_served() -> None:
    objects: list[Any] = [node("n", cpu=10)]
    for depth in range(200):
        labels = {"quota.scheduling.koordinator.sh/is-parent": str(depth < 199).lower()}
        if depth:
            labels["quota.scheduling.koordinator.sh/parent"] = f"q{depth - 1}"
        meta = {"namespace": f"team-{depth}", "labels": labels}
        amounts = {"min": {"cpu": "1"}, "max": {"cpu": "9"}}
        group = "scheduling.sigs.k8s.io/v1alpha1"
        objects.append(made("ElasticQuota", f"q{depth}", group, metadata=meta, spec=amounts))
    with served(manifests(objects, QUOTAS)) as server:
        reply = server.get("/api/quotas")
        assert reply.status == 200
        assert reply.text.count('"name":"q') == 200


def test_longest_names_and_bidirectional_texts_are_served() -> None:
    long = "n" * 253
    strange = "\u202egnp.exe \U0001f434 <script>alert(1)</script>"
    objects = [
        *gpu_node(long, 2, labels={"koordinator.sh/node-pool": strange}),
        pod("p" * 253, cpu=900, namespace="s" * 63),
    ]
    with served(manifests(objects)) as server:
        frames = server.frames()
        first = next(frames)
        frames.close()  # type: ignore[attr-defined]  # a generator
        assert first["nodes"]["names"] == [long]
        assert first["nodes"]["pools"] == [strange]
        assert server.get(f"/api/node?name={long}").status == 200


# -- the loop --------------------------------------------------------------------------------


@dataclass
class BusySource(ManifestSource):
    """Run that always has work; each step takes a tenth of a second."""

    clock: VirtualClock = field(default_factory=VirtualClock)
    steps: int = 0
    started: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        super().__init__("busy", crowded, lambda: 1, STOCK, self.clock.now_s)
        self.load()

    @property
    def status(self) -> SourceStatus:
        """Status of a run."""
        return SourceStatus(phase=SourcePhase.LIVE, now_s=self.clock.now_s(), speed=1.0)

    def follow(self, pause: Pause) -> None:
        """Make steps after the test has queued its queries."""
        self.started.wait(30)
        while pause(0.0):
            self.steps += 1
            self.clock.advance_to(self.clock.now_s() + 0.1)


def test_queries_leave_a_run_its_share_of_the_time() -> None:
    """The run continues between queries, whatever their number and duration."""
    source = BusySource()
    feed = Feed(source, source.clock)
    answered_at: list[int] = []

    def slow(_: object) -> None:
        answered_at.append(source.steps)
        source.clock.advance_to(source.clock.now_s() + 2 * ANSWER_SLICE_S)

    askers = [threading.Thread(target=feed.query, args=(slow,)) for _ in range(20)]
    for asker in askers:
        asker.start()
    while feed._loop_calls._waiting.qsize() < 20:
        pass
    feed.start()
    source.started.set()
    for asker in askers:
        asker.join(30)
    feed.stop()

    assert len(answered_at) == 20
    between = [after - before for before, after in itertools.pairwise(answered_at)]
    assert min(between) >= 2 * RUN_SHARE - 1


class BrittleSource(ManifestSource):
    """Source that fails when it is followed the first time."""

    follows = 0

    def follow(self, pause: Pause) -> None:
        """Fail at the first call."""
        self.follows += 1
        if self.follows == 1:
            self.load()
            raise source_error
        super().follow(pause)


source_error: Exception = InputError("nonsense")


@pytest.mark.parametrize("error", [InputError("nonsense"), KeyError("nonsense")])
def test_failed_source_is_reported_and_followed_again(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status has the error; queries are answered meanwhile."""
    monkeypatch.setitem(globals(), "source_error", error)
    for interval in ("RETRY_S", "MAX_WAIT_S", "UNWATCHED_INTERVAL_S"):
        monkeypatch.setattr(f"koordinator.dashboard.feed.{interval}", 0.02)
    source = BrittleSource("brittle", crowded, lambda: 1, STOCK, lambda: 2e9)
    with followed(source) as feed:
        seen = set()
        while source.follows < 2 or feed.status().phase is not SourcePhase.LIVE:
            seen.add(feed.status().problem)
            assert feed.query(lambda handle: len(handle.state.nodes.rows)) == 2
    assert any("nonsense" in problem for problem in seen)
