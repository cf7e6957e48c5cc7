"""Refusals in Reserve: another node is tried."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.equipped_nodes import PLACES, machine_pods, machine_rooms
from tests.examples import examples
from tests.unit.scheduler.test_gangs import group, members, placed
from tests.worlds import START_S, configuration, embedded, node, pod, world

from koordinator.api.labels import NUMA_TOPOLOGY_POLICY
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.foundation.arrays import IntArray
from koordinator.scheduler.contract import (
    NOTHING,
    Action,
    AllocationResult,
    EventHint,
    NoArgs,
    PluginSpec,
    Reads,
    Refusal,
    Rejections,
)
from koordinator.scheduler.diagnosis import reasons_of
from koordinator.scheduler.profile import build_profiles
from koordinator.scheduler.rules.cpus.binding import POLICY_CONFLICT
from koordinator.scheduler.rules.numa.align import POLICY_MISMATCH
from koordinator.scheduler.rules.numa.rows import INSUFFICIENT_CPU
from koordinator.scheduler.snapshot import PodClass, ResourceAxis, Snapshot
from koordinator.simulator import Embedded, default_configuration

#: Why a filter rejects nodes that could give what is asked.
OTHER_RULES = (POLICY_MISMATCH, POLICY_CONFLICT, INSUFFICIENT_CPU)
BEST_EFFORT = {NUMA_TOPOLOGY_POLICY: "BestEffort"}


@dataclass(frozen=True, slots=True)
class LateNo:
    """Plugin that accepts every node and refuses those with the label ``late`` in Reserve."""

    reads: ClassVar = Reads.NODE

    def filter(self, snapshot: Snapshot, _pod: PodClass) -> Rejections:
        return Rejections.none(snapshot)

    def reserve(
        self, node: Snapshot, _pod: PodClass, _wish: IntArray | None
    ) -> AllocationResult | Refusal:
        return Refusal("too late") if node.node_names[0].startswith("late") else NOTHING


def build(_args: NoArgs, _axis: ResourceAxis) -> LateNo:
    return LateNo()


LATE_NO = PluginSpec(
    "LateNo", NoArgs, build, events=(EventHint("Node", Action.ADD | Action.UPDATE_LABELS),)
)


def refusing(*objects: KubeObject) -> Embedded:
    on = {"multiPoint": {"enabled": [{"name": "LateNo"}, {"name": "Coscheduling"}]}}
    queue = {"disabled": [{"name": "*"}], "enabled": [{"name": "Coscheduling"}]}
    config = configuration(plugins={**on, "queueSort": queue})
    one = embedded(*objects, config=config, out_of_tree=[LATE_NO])
    one.scheduler.step()
    return one


def test_next_best_node_is_tried() -> None:
    """The same attempt tries further nodes, however many are refused."""
    late = [node(f"late{index}", 16) for index in range(20)]
    one = refusing(*late, node("n", 4), pod("p", 1))

    assert placed(one) == {"p": "n"}


def test_equal_pods_take_the_next_best_nodes() -> None:
    """The pods are decided in one step only if nothing is reserved."""
    one = refusing(node("late", 16), node("n", 4), *(pod(f"p{index}", 1) for index in range(3)))

    assert set(placed(one).values()) == {"n"}
    assert len(placed(one)) == 3


def test_a_gang_takes_the_next_best_nodes() -> None:
    """Every member of the gang gets a node that accepts it."""
    late = [node(f"late{index}", 16) for index in range(3)]
    one = refusing(*late, node("n", 4), group("g", 2), *members("g", 2))

    assert placed(one) == {"g-0": "n", "g-1": "n"}


def test_refused_nominated_node_is_replaced() -> None:
    """The pod gets another feasible node."""
    nominated = pod("p", 1)
    nominated = replace(nominated, status=replace(nominated.status, nominated_node_name="late"))
    one = refusing(node("late", 16), node("n", 4), nominated)

    assert placed(one) == {"p": "n"}


def test_reason_if_every_node_is_refused() -> None:
    """The reason is the best node's; a new node is used."""
    one = refusing(node("late", 16), pod("p", 1))
    queued = one.scheduler.queue.get("default/p")
    assert queued is not None
    assert queued.message == "too late"

    one.cluster.create(node("n", 4))
    one.scheduler.step()

    assert placed(one) == {"p": "n"}


def test_pod_leaves_a_node_without_reported_numa_nodes() -> None:
    """The pod cannot be aligned there, even as the best node."""
    one = Embedded(default_configuration(), now_s=START_S)
    one.load([node("n5", 16, labels=BEST_EFFORT), node("n7", 4)])
    one.load([pod("p", 1, schedulerName="koord-scheduler")])
    one.scheduler.step()

    assert placed(one) == {"p": "n7"}


def _best_effort(obj: KubeObject) -> KubeObject:
    if not isinstance(obj, Node):
        return obj
    labels = {**obj.metadata.labels, **BEST_EFFORT}
    return replace(obj, metadata=replace(obj.metadata, labels=labels))


@pytest.mark.slow
@settings(max_examples=examples(25), deadline=None)
@given(room=machine_rooms(), pending=st.lists(machine_pods(), min_size=1, max_size=4))
def test_best_effort_filter_agrees_with_reserve(
    room: Sequence[KubeObject], pending: Sequence[Pod]
) -> None:
    """With devices and CPUs, nodes that pass both filters can be reserved, and no others."""
    state = world(*map(_best_effort, room))
    (profile,) = build_profiles(PLACES, state.axis).profiles
    numa = next(a.plugin for a in profile.filter if a.name == "NodeNUMAResource")
    devices = next(a.plugin for a in profile.filter if a.name == "DeviceShare")
    snapshot = Snapshot(state)
    for pod_class in map(state.classes.of, pending):
        if numa.prefilter(snapshot, pod_class) or not numa.hints.filters(snapshot, pod_class):
            continue
        rejections = numa.filter(snapshot, pod_class)
        for row in np.flatnonzero(devices.filter(snapshot, pod_class).codes == 0).tolist():
            reasons = reasons_of(rejections, row)
            result = numa.reserve(snapshot[np.array([row])], pod_class, None)
            if reasons and reasons[0] in OTHER_RULES:
                continue
            assert bool(reasons) == isinstance(result, Refusal), (row, reasons, result)
