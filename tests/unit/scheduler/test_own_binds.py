"""Events of our own binds, in any form."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.examples import examples
from tests.unit.scheduler.watches import restarted
from tests.worlds import START_S, node, pod, world

from koordinator.api.codec import decode_object, encode
from koordinator.api.labels import OPERATING_MODE
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.cluster.port import NO_SELECTORS, EventType, Watch, WatchEvent
from koordinator.foundation.clock import VirtualClock, to_datetime
from koordinator.scheduler.ingest import Ingest
from koordinator.scheduler.loop import Outcome
from koordinator.scheduler.snapshot import ClusterState
from koordinator.testing.strategies import clusters, pods


class _Copies:
    """Watch that delivers copies of objects, as from the network."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._delivered: dict[tuple[type[KubeObject], str], KubeObject] = {}

    def poll(self) -> Sequence[WatchEvent]:
        return [self._copied(event) for event in self._watch.poll()]

    def refresh(self) -> None:
        self._watch.refresh()

    def close(self) -> None:
        self._watch.close()

    def _copied(self, event: WatchEvent) -> WatchEvent:
        if event.type is EventType.BOOKMARK:
            return event
        place = (type(event.object), event.object.key)
        copy, previous = decode_object(encode(event.object)), self._delivered.get(place)
        self._delivered[place] = copy
        return WatchEvent(event.type, copy, previous if event.previous is not None else None)


class _FarCluster(MemoryCluster):
    def watch(  # type: ignore[override] # the port's
        self,
        kind_types: Sequence[type[KubeObject]],
        field_selectors: Mapping[type[KubeObject], str] = NO_SELECTORS,
    ) -> Watch:
        return _Copies(super().watch(kind_types, field_selectors))


def _after(kind: type[MemoryCluster], objects: Sequence[KubeObject]) -> tuple[object, ...]:
    """Return the outcomes and the state of a scheduler after its own events."""
    clock = VirtualClock(START_S)
    cluster = kind(clock)
    cluster.load(objects)
    scheduler = restarted(cluster, clock)
    outcomes: list[Outcome] = scheduler.step()
    scheduler.step(limit=0)
    scheduler.validate()
    return outcomes, _known(scheduler.state), scheduler.queue.counts()


def _known(state: ClusterState) -> tuple[object, ...]:
    placed = {key: (p.row, encode(p.pod)) for key, p in state.pods.by_key.items()}
    return placed, set(state.unbound), state.nodes.requested.tolist(), state.nodes.nonzero.tolist()


@settings(max_examples=examples(20), deadline=None)
@given(there=clusters(), more=st.lists(pods(), max_size=4))
def test_own_bind_is_recognized_as_object_or_copy(there: list[KubeObject], more: list[Pod]) -> None:
    """The resulting state is the same."""
    coming = [
        replace(one, metadata=replace(one.metadata, name=f"coming-{number}"))
        for number, one in enumerate(more)
    ]

    assert _after(_FarCluster, [*there, *coming]) == _after(MemoryCluster, [*there, *coming])


PENDING = pod("p", cpu=1, labels={"app": "a"})
BOUND = replace(PENDING, spec=replace(PENDING.spec, node_name="n"))


def _with_meta(**changes: object) -> Pod:
    return replace(BOUND, metadata=replace(BOUND.metadata, **changes))


@pytest.mark.parametrize(
    ("wakeup", "is_bare"),
    [
        pytest.param(BOUND, True, id="bound"),
        pytest.param(replace(PENDING, spec=replace(PENDING.spec, node_name="m")), False, id="away"),
        pytest.param(_with_meta(labels={"app": "b"}), False, id="labels"),
        pytest.param(_with_meta(labels={OPERATING_MODE: "Reservation"}), False, id="holds"),
        pytest.param(_with_meta(annotations={"a": "b"}), False, id="annotations"),
        pytest.param(_with_meta(deletion_timestamp=to_datetime(START_S)), False, id="end"),
        pytest.param(
            replace(BOUND, status=replace(BOUND.status, phase="Failed")), False, id="failed"
        ),
        pytest.param(
            replace(BOUND, spec=replace(BOUND.spec, containers=pod("q", cpu=2).spec.containers)),
            False,
            id="resized",
        ),
    ],
)
def test_modified_bind_is_processed_fully(wakeup: Pod, *, is_bare: bool) -> None:
    """The shortcut applies only if nothing else changed."""
    state = world(node("n"), node("m"))
    placed = state.place(PENDING.key, PENDING, state.classes.of(PENDING), state.nodes.rows["n"])

    assert Ingest(state).is_bare_bind(placed, wakeup) is is_bare
