"""Frames to readers: what they add up to, and what becomes of slow ones."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.dashboard.dashboards import HOSTILE, crowded, overview, settled
from tests.worlds import node, pod

from koordinator.dashboard.access import EVERYTHING, ViewScope
from koordinator.dashboard.broadcast import WAITING_FRAMES, Broadcast, OverviewReader
from koordinator.dashboard.frames import FrameEncoder
from koordinator.dashboard.overview import ClusterOverview
from koordinator.dashboard.redaction import NOTHING_PRIVATE


def applied(frames: Sequence[bytes]) -> Any:
    """Return the nodes' values and the causes as a page has them after these frames."""
    values: Any = None
    causes: Any = None
    for frame in map(json.loads, frames):
        if frame["kind"] == "full":
            values = frame["values"]
        else:
            for row, *cells in frame["rows"]:
                values[row] = cells
        causes = frame.get("waiting", causes)
    return values, causes


def told(event: bytes | None) -> Any:
    """Return the frame of an event."""
    return json.loads((event or b"").removeprefix(b"data: "))


def worlds(steps: Sequence[Sequence[int]]) -> list[ClusterOverview]:
    """Return overviews of three nodes with pods of these CPUs on them."""
    return [
        overview(
            settled(
                *(node(name, cpu=8) for name in "abc"),
                *(pod(f"p{i}", cpu=cpu, on="abc"[i % 3]) for i, cpu in enumerate(step)),
                *(pod(f"w{i}", cpu=100 + cpu) for i, cpu in enumerate(step)),
            )
        )
        for step in steps
    ]


@given(st.lists(st.lists(st.integers(1, 3), max_size=4), min_size=1, max_size=4))
def test_frames_add_up_to_the_last_overview(steps: list[list[int]]) -> None:
    """Whoever applies what has changed has what a new reader is given as a whole."""
    encoder = FrameEncoder(EVERYTHING, {})
    found = [encoder.next(each, {}, NOTHING_PRIVATE) for each in worlds(steps)]
    whole = encoder.full(found[-1][0])

    assert applied([frame for _, frame in found]) == applied([whole])


def test_a_frame_without_changes_has_no_rows() -> None:
    """What has not changed is not sent again."""
    (first,) = worlds([[1, 2]])
    encoder = FrameEncoder(EVERYTHING, {})
    encoder.next(first, {}, NOTHING_PRIVATE)
    frame = json.loads(encoder.next(first, {}, NOTHING_PRIVATE)[1])

    # The roster is one of its builder, so only an overview of another world has other facts.
    assert frame["kind"] == "delta"
    assert frame["rows"] == []
    assert "waiting" not in frame


def test_a_slow_reader_gets_the_whole_again_and_delays_nobody() -> None:
    """Frames wait for a reader up to a bound; beyond it they make way for the whole."""

    async def run() -> tuple[OverviewReader, OverviewReader, list[bytes]]:
        broadcast = Broadcast({})
        slow, quick = broadcast.open(), broadcast.open()
        assert slow is not None
        assert quick is not None
        got: list[bytes] = []
        for _ in range(5 * WAITING_FRAMES):
            broadcast.publish(base, {})
            frame = await quick.next(5.0)
            assert frame is not None
            got.append(frame)
        return slow, quick, got

    base = overview(settled(*crowded()))
    slow, _, got = asyncio.run(run())

    assert len(got) == 5 * WAITING_FRAMES
    assert len(slow.waiting) <= WAITING_FRAMES
    whole = asyncio.run(slow.next(5.0))
    assert told(whole)["kind"] == "full"
    assert told(whole)["number"] == 5 * WAITING_FRAMES
    assert [told(frame)["number"] for frame in got] == list(range(1, 5 * WAITING_FRAMES + 1))


def test_readers_who_may_see_the_same_share_a_frame() -> None:
    """A frame is encoded once for each scope, and the scope goes with its last reader."""

    async def run() -> None:
        broadcast = Broadcast({})
        blue = ViewScope(frozenset({"blue"}), sees_nodes=False)
        readers = [broadcast.open(blue) for _ in range(3)]
        everything = broadcast.open()
        broadcast.publish(base, {})
        frames = [await reader.next(5.0) for reader in readers if reader is not None]
        assert frames[0] is frames[1] is frames[2]
        assert everything is not None
        assert b"red" in (await everything.next(5.0) or b"")
        assert b"red" not in (frames[0] or b"")
        assert b'"names":[]' in (frames[0] or b"")
        for reader in readers:
            assert reader is not None
            broadcast.close(blue, reader)
        assert broadcast.readers == 1

    base = overview(settled(*crowded()))
    asyncio.run(run())


def test_names_travel_as_json_only() -> None:
    """A pod may be called as it likes: what is sent is a string of JSON."""
    world = settled(node("a", cpu=1), pod("p", cpu=9, namespace=HOSTILE))
    frame = FrameEncoder(EVERYTHING, {"title": HOSTILE}).next(overview(world), {}, NOTHING_PRIVATE)[
        1
    ]

    assert json.loads(frame)["waiting"][0]["named"][0]["pod"] == f"{HOSTILE}/p"
