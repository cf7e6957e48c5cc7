"""Isolation of faults: a pod or object that makes a plugin raise does not affect others."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.unit.scheduler.broken_plugins import (
    EVIL,
    Boom,
    World,
    breakable,
    breaks,
    called_methods,
    objects,
    plugins_of,
)
from tests.unit.scheduler.watches import condition, events
from tests.worlds import START_S, configuration, made, node, pod

from koordinator.api.pod import Pod
from koordinator.foundation.arrays import IntArray
from koordinator.foundation.errors import BugError, Fault, FaultLog
from koordinator.scheduler.contract import NoArgs, PluginHints, PluginSpec, Reads
from koordinator.scheduler.loop import SchedulerOptions
from koordinator.scheduler.snapshot import PodClass, ResourceAxis, Snapshot
from koordinator.simulator import Embedded
from koordinator.simulator.embedded import STOCK, schedule

PLUGINS = sorted({name for name, _ in breakable()})
KOORD = "koord-scheduler"
EVIL_PODS = frozenset(
    obj.metadata.name
    for obj in objects(with_evil=True)
    if isinstance(obj, Pod) and EVIL in obj.metadata.labels
)


@cache
def placed_without(unplaced: frozenset[str]) -> Mapping[str, str]:
    """Return the nodes of the pods in a world without some faulty pods."""
    kept = [obj for obj in objects(with_evil=True) if obj.metadata.name not in unplaced]
    return World(*kept).run()


@pytest.mark.integration
@pytest.mark.parametrize("name", PLUGINS)
def test_method_that_raises_for_some_pods_affects_only_these(name: str) -> None:
    """Others get the nodes that they would get without them; all invariants hold."""
    for method in called_methods(name):
        world = World(*objects(with_evil=True))
        raised = breaks(world.plugins()[name], method, only_on_evil=True)

        placed = world.run()

        expected = placed_without(EVIL_PODS - set(placed))
        assert set(placed) == set(expected), method
        hit = {fault.about.rpartition("/")[2] for fault in world.faults}
        if not hit & set(placed):  # otherwise a pod arrived later than it would have
            assert placed == expected, method
        assert bool(raised) == bool(world.faults), method
        assert all(isinstance(fault.error, Boom) for fault in world.faults)
        if raised:
            assert (method, name) in {(fault.stage, fault.source) for fault in world.faults}


@pytest.mark.integration
@pytest.mark.parametrize("name", PLUGINS)
def test_method_that_raises_once_costs_no_pod_its_node(name: str) -> None:
    """The affected pod is retried after a while."""
    expected = set(placed_without(frozenset()))
    for method in called_methods(name):
        world = World(*objects(with_evil=True))
        breaks(world.plugins()[name], method, only_on_evil=False, times=1)

        assert set(world.run()) == expected, method


def test_pod_condition_names_the_faulty_plugin() -> None:
    """The error is internal as in kube-scheduler: a condition, an event, a retry."""
    evil = pod("evil", 1, labels={EVIL: "true"}, schedulerName=KOORD)
    world = World(node("n"), evil)
    breaks(world.plugins()["NodeResourcesFit"], "compares", only_on_evil=True, times=2)

    assert world.run() == {"evil": "n"}

    (failed,) = [e for e in events(world.one, "evil") if e[1] == "FailedScheduling"]
    assert failed[3] == 'internal error: compares of "NodeResourcesFit": Boom: compares'
    assert {str(fault) for fault in world.faults} == {f"Pod default/evil: {failed[3]}"}


def test_gang_with_a_faulty_member_reserves_nothing() -> None:
    """The gang fails and is retried as a whole."""
    group = made(
        "PodGroup",
        "g",
        "scheduling.sigs.k8s.io/v1alpha1",
        metadata={"namespace": "default"},
        spec={"minMember": 3},
    )
    label = {"pod-group.scheduling.sigs.k8s.io": "g"}
    members = [pod(f"m{i}", 1, labels=label, schedulerName=KOORD) for i in range(2)]
    evil = pod("m2", 2, labels=label | {EVIL: "true"}, schedulerName=KOORD)
    world = World(node("n", 8), group, *members, evil)
    breaks(world.plugins()["NodeResourcesFit"], "compares", only_on_evil=True)

    assert world.run() == {}

    assert not world.one.state.nodes.requested.any()
    assert condition(world.one, "m2") is not None


def test_faulty_object_is_quarantined_and_retried() -> None:
    """A node that breaks a ledger takes no pods; the next try may succeed."""
    faults: list[object] = []
    one = Embedded(STOCK, now_s=START_S, options=SchedulerOptions(), on_fault=faults.append)
    put, broken = one.state.put_node, [1]

    def put_node(new: object) -> int:
        if broken and new.metadata.name == "evil":  # type: ignore[attr-defined]
            raise Boom("put_node")
        return put(new)  # type: ignore[arg-type]

    one.state.put_node = put_node  # type: ignore[method-assign, assignment]
    one.load([node("evil", 64), node("good", 8), pod("a", 1)])
    one.run_to_fixed_point()
    assert one.cluster.get(Pod, "a", "default").spec.node_name == "good"
    assert [str(fault) for fault in faults] == ["Node evil: internal error: ingest: Boom: put_node"]

    broken.clear()
    one.clock.advance_to(START_S + 2)
    one.cluster.load([pod("b", 16)])
    one.run_to_fixed_point()
    assert one.cluster.get(Pod, "b", "default").spec.node_name == "evil"
    one.scheduler.validate()


def test_quarantined_running_pod_keeps_its_amounts() -> None:
    """The node is not given to others because of the pod's faulty annotations."""
    one = Embedded(STOCK, now_s=START_S, options=SchedulerOptions(), on_fault=lambda _: None)
    of = one.state.classes.of

    def broken_of(new: Pod) -> object:
        if EVIL in new.metadata.labels:
            raise RecursionError
        return of(new)

    one.state.classes.of = broken_of  # type: ignore[method-assign, assignment]
    one.load([node("n", 8), pod("evil", 6, on="n", labels={EVIL: "true"}), pod("a", 4)])
    one.run_to_fixed_point()

    assert one.cluster.get(Pod, "a", "default").spec.node_name == ""
    one.scheduler.validate()


def test_fatal_errors_are_not_caught() -> None:
    """A lack of memory, and the operator's Ctrl-C, end the process."""
    for error in (MemoryError, KeyboardInterrupt, SystemExit):
        world = World(node("n"), pod("a", 1, schedulerName=KOORD))

        def ending(_pod: object, *, error: type[BaseException] = error) -> Any:
            raise error

        for active in world.plugins()["NodeResourcesFit"]:
            object.__setattr__(active, "hints", replace(active.hints, compares=ending))
        with pytest.raises(error):
            world.run()
        assert world.faults == []


def test_without_a_handler_a_fault_is_raised() -> None:
    """No test or simulation continues after a bug."""
    one = Embedded(STOCK, now_s=START_S)
    breaks(plugins_of(one)["NodeResourcesFit"], "compares", only_on_evil=False)

    with pytest.raises(Boom):
        one.load([node("n"), pod("a", 1)])


class Hasty:
    reads: ClassVar = Reads.NODE
    hints: ClassVar = PluginHints(key=lambda pod: pod.labels["tier"])

    def score(self, snapshot: Snapshot, _pod: PodClass) -> IntArray:
        return np.zeros(len(snapshot), np.int64)


def test_fault_of_a_hint_function_names_its_plugin() -> None:
    """The function itself has no reference to the plugin."""

    def build(_args: NoArgs, _axis: ResourceAxis) -> Hasty:
        return Hasty()

    faults: list[Fault] = []
    on = {"score": {"enabled": [{"name": "Hasty"}]}}
    one = Embedded(
        configuration(plugins=on),
        now_s=START_S,
        out_of_tree=(PluginSpec("Hasty", NoArgs, build),),
        on_fault=faults.append,
    )
    one.load([node("n"), pod("a", 1, labels={"tier": "front"}), pod("b", 1)])
    one.run_to_fixed_point()

    assert {(fault.stage, fault.source) for fault in faults} == {("key", "Hasty")}
    assert one.cluster.get(Pod, "a", "default").spec.node_name == "n"


def test_a_command_finishes_the_others_and_then_fails() -> None:
    """The message names pod and plugin, and requests a report."""
    log = FaultLog()
    result = schedule([node("n"), pod("a", 1)])
    result.faults.check()

    world = World(node("n"), pod("a", 1, schedulerName=KOORD))
    breaks(world.plugins()["NodeResourcesFit"], "compares", only_on_evil=False, times=1)
    assert world.run() == {"a": "n"}
    log.faults += world.faults
    with pytest.raises(BugError, match=r'default/a: internal error: compares of "NodeRes.*report'):
        log.check()
