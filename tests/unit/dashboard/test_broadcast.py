"""Delivery of frames: deltas add up to the full state, and slow readers are bounded."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.dashboard.dashboards import HOSTILE, crowded, overview, settled
from tests.worlds import node, pod

from koordinator.dashboard.access import EVERYTHING, NOTHING_PRIVATE, ViewScope
from koordinator.dashboard.broadcast import MAX_QUEUED_FRAMES, Broadcast, OverviewReader
from koordinator.dashboard.frames import FrameEncoder
from koordinator.dashboard.overview import ClusterOverview


def applied(frames: Sequence[bytes]) -> Any:
    """Return the node values and causes after a page has applied these frames."""
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


def decoded(event: bytes | None) -> Any:
    """Return the frame of an event."""
    return json.loads((event or b"").removeprefix(b"data: "))


def worlds(steps: Sequence[Sequence[int]]) -> list[ClusterOverview]:
    """Return overviews of three nodes with pods of these CPU requests."""
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
    """Applying all deltas gives the same state as a full frame."""
    encoder = FrameEncoder(EVERYTHING, {})
    result = [encoder.next(each, {}, NOTHING_PRIVATE) for each in worlds(steps)]
    whole = encoder.full(result[-1][0])

    assert applied([frame for _, frame in result]) == applied([whole])


def test_delta_without_changes_has_no_rows() -> None:
    (first,) = worlds([[1, 2]])
    encoder = FrameEncoder(EVERYTHING, {})
    encoder.next(first, {}, NOTHING_PRIVATE)
    frame = json.loads(encoder.next(first, {}, NOTHING_PRIVATE)[1])

    # Each builder has a roster of its own, so only an overview of another world has other facts.
    assert frame["kind"] == "delta"
    assert frame["rows"] == []
    assert "waiting" not in frame


def test_slow_reader_gets_a_full_frame_and_delays_no_other() -> None:
    """Frames queue up to a bound; beyond it a full frame replaces them."""

    async def run() -> tuple[OverviewReader, OverviewReader, list[bytes]]:
        broadcast = Broadcast({})
        slow, quick = broadcast.open(), broadcast.open()
        assert slow is not None
        assert quick is not None
        got: list[bytes] = []
        for _ in range(5 * MAX_QUEUED_FRAMES):
            broadcast.publish(base, {})
            frame = await quick.next(60.0)
            assert frame is not None
            got.append(frame)
        return slow, quick, got

    base = overview(settled(*crowded()))
    slow, _, got = asyncio.run(run())

    assert len(got) == 5 * MAX_QUEUED_FRAMES
    assert len(slow.queued) <= MAX_QUEUED_FRAMES
    full = asyncio.run(slow.next(60.0))
    assert decoded(full)["kind"] == "full"
    assert decoded(full)["number"] == 5 * MAX_QUEUED_FRAMES
    assert [decoded(frame)["number"] for frame in got] == list(range(1, 5 * MAX_QUEUED_FRAMES + 1))


def test_readers_of_one_scope_share_a_frame() -> None:
    """A frame is encoded once per scope, and a channel ends with its last reader."""

    async def run() -> None:
        broadcast = Broadcast({})
        blue = ViewScope(frozenset({"blue"}), sees_nodes=False)
        readers = [broadcast.open(blue) for _ in range(3)]
        everything = broadcast.open()
        broadcast.publish(base, {})
        frames = [await reader.next(60.0) for reader in readers if reader is not None]
        assert frames[0] is frames[1] is frames[2]
        assert everything is not None
        assert b"red" in (await everything.next(60.0) or b"")
        assert b"red" not in (frames[0] or b"")
        assert b'"names":[]' in (frames[0] or b"")
        for reader in readers:
            assert reader is not None
            broadcast.close(blue, reader)
        assert broadcast.readers == 1

    base = overview(settled(*crowded()))
    asyncio.run(run())


def test_hostile_names_are_json_strings() -> None:
    world = settled(node("a", cpu=1), pod("p", cpu=9, namespace=HOSTILE))
    frame = FrameEncoder(EVERYTHING, {"title": HOSTILE}).next(overview(world), {}, NOTHING_PRIVATE)[
        1
    ]

    assert json.loads(frame)["waiting"][0]["named"][0]["pod"] == f"{HOSTILE}/p"
