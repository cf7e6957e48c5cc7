"""Events of our own binds, in any form."""

from collections.abc import Mapping, Sequence
from dataclasses import replace as with_fields
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.equipped_nodes import PLACES, bound_pod, machine, machine_pods, machines
from tests.examples import examples
from tests.unit.scheduler.watches import restarted
from tests.worlds import START_S, embedded, node, pod, renamed, world

from koordinator.api.codec import decode_object, encode
from koordinator.api.labels import OPERATING_MODE
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.cluster.port import NO_SELECTORS, EventType, Watch, WatchEvent
from koordinator.foundation.clock import VirtualClock, to_datetime
from koordinator.scheduler.ingest import Ingest
from koordinator.scheduler.loop import Outcome
from koordinator.scheduler.loop.intake import PodIntake
from koordinator.scheduler.snapshot import ClusterState
from koordinator.scheduler.snapshot.pod_allocation import NO_ALLOCATION, read_pod_allocation
from koordinator.simulator import Embedded
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


def _placed(one: Embedded) -> list[tuple[object, ...]]:
    return sorted(
        (key, placed.row, encode(placed.pod), placed.pod_allocation.devices)
        for key, placed in one.state.pods.by_key.items()
    )


@settings(max_examples=examples(20), deadline=None)
@given(data=st.data())
def test_own_binds_with_allocations_are_recognized(data: st.DataObject) -> None:
    """The resulting state is that of processing their events fully."""
    cluster = [obj for name in ("m0", "m1") for obj in data.draw(machines(name))]
    drawn = data.draw(st.lists(machine_pods(), min_size=1, max_size=6))
    pending = [renamed(one, f"p{at}") for at, one in enumerate(drawn)]
    quick, full = (embedded(*cluster, *pending, config=PLACES, report=False) for _ in range(2))
    quick.run_to_fixed_point()
    with patch.object(Ingest, "is_bare_bind", return_value=False):
        full.run_to_fixed_point()
    for one in (quick, full):
        one.scheduler.validate()

    assert _placed(quick) == _placed(full)
    assert quick.scheduler.queue.counts() == full.scheduler.queue.counts()
    assert np.array_equal(quick.state.nodes.requested, full.state.nodes.requested)
    for kind, columns in quick.state.nodes.devices.columns.items():
        assert np.array_equal(columns.left, full.state.nodes.devices.columns[kind].left)


def test_bind_of_devices_and_cpus_is_not_processed_fully() -> None:
    """The events of these binds only confirm what has been charged."""
    pods_taken: list[str] = []
    one = embedded(
        *machine("m", gpus=2),
        bound_pod("both", 2, requests={"nvidia.com/gpu": 1}),
        config=PLACES,
        report=False,
    )
    take = PodIntake.take

    def counted(intake: PodIntake, event: WatchEvent, taken: Pod) -> None:
        pods_taken.append(taken.key)
        take(intake, event, taken)

    with patch.object(PodIntake, "take", counted):
        one.run_to_fixed_point()

    assert one.state.pods.by_key["default/both"].pod.spec.node_name == "m"
    assert one.state.pods.by_key["default/both"].pod_allocation is not NO_ALLOCATION
    assert not pods_taken


DEVICES = {
    "scheduling.koordinator.sh/device-allocated": (
        '{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-core":"100"}}]}'
    )
}


@pytest.mark.parametrize(
    ("annotations", "parts", "is_bare"),
    [
        pytest.param(DEVICES, {}, True, id="as charged"),
        pytest.param({}, {}, False, id="without"),
        pytest.param({**DEVICES, "a": "b"}, {}, False, id="one more"),
        pytest.param(
            {key: text.replace('"minor":0', '"minor":1') for key, text in DEVICES.items()},
            {},
            False,
            id="another device",
        ),
        pytest.param(DEVICES, {"uses": "uid"}, False, id="of a reservation"),
        pytest.param(DEVICES, {"takes_over": frozenset({"uid"})}, False, id="of another pod"),
        pytest.param(DEVICES, {"annotations": {}}, False, id="unknown annotations"),
    ],
)
def test_bind_with_other_annotations_is_processed_fully(
    annotations: Mapping[str, str], parts: Mapping[str, Any], *, is_bare: bool
) -> None:
    """The shortcut applies only if the annotations state exactly what is charged."""
    state = world(*machine("n", gpus=2))
    bound = replace(BOUND, metadata=replace(BOUND.metadata, annotations=DEVICES))
    allocation = read_pod_allocation(bound.metadata, [])
    pod_class, row = state.classes.of(PENDING), state.nodes.rows["n"]
    placed = state.place(PENDING.key, PENDING, pod_class, row, allocation)
    placed.pod_allocation = with_fields(allocation, **parts)

    assert Ingest(state).is_bare_bind(placed, _with_meta(annotations=annotations)) is is_bare
