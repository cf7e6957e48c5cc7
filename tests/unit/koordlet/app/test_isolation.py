"""Faults that one pod causes in a part of the agent: all other pods are served as without it."""

from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace
from tests.memory_host import MemoryHost
from tests.nodes import LAYOUT, pod
from tests.unit.koordlet.app.world import World, ls_and_be

from koordinator.api.qos import QosClass
from koordinator.domain.cgroups.files import CgroupFile
from koordinator.koordlet.app import agent as agent_module
from koordinator.koordlet.app import object_intents
from koordinator.koordlet.app.options import OFF, gates_of
from koordinator.koordlet.collectors.node import (
    BestEffortCollector,
    HostApplicationCollector,
    NodeCollector,
    SystemCollector,
)
from koordinator.koordlet.collectors.performance import (
    ColdPageCollector,
    CpiCollector,
    PressureCollector,
)
from koordinator.koordlet.collectors.pods import PodCollector
from koordinator.koordlet.qos.cpu_burst import CpuBurst

EVERYTHING = gates_of({gate: True for gate in OFF if gate != "AuditEventsHTTPHandler"})
#: With these best effort is held back by files that are compared.
LIVED = EVERYTHING - {"BECPUManager"}
STRATEGIES = ("suppress", "cpu_tasks", "memory_tasks")
PLANS = ("plan_blkio", "plan_cpusets", "plan_class_resctrl", "plan_pod_resctrl")
COLLECTORS = (
    PodCollector,
    BestEffortCollector,
    PressureCollector,
    SystemCollector,
    CpiCollector,
    NodeCollector,
    HostApplicationCollector,
    ColdPageCollector,
)


class Boom(Exception):  # noqa: N818 -- an unexpected error
    """Raised by a broken part."""


class Poisoned(dict[str, str]):
    """Labels or annotations that can't be looked at any more once they are ``armed``."""

    armed = False

    def get(self, *args: Any) -> Any:
        if self.armed:
            raise RecursionError
        return super().get(*args)


def lived(*, with_evil: bool) -> tuple[dict[tuple[CgroupFile, str], str], Counter[str]]:
    """Run a node for a while; return the files of all other pods, and the failures."""
    world = World(gates=LIVED)
    failed: Counter[str] = Counter()
    world.agent = world.start(on_failure=lambda part, _: failed.update([part]))
    world.slo(cpu_suppress_threshold_percent=65)
    ls, be = ls_and_be(world)
    if with_evil:
        world.add(pod("evil", "LS"))
    world.seconds(20, {ls.folder: 4.0, be.folder: 1.0})
    files = {
        (file, folder): world.tree.get(file, folder)
        for folder in (ls.folder, be.folder)
        for file in (CgroupFile.CPU_SHARES, CgroupFile.CFS_QUOTA, CgroupFile.CPUSET)
    }
    return files, failed


def on_evil(pods: Any) -> None:
    """Break over the pod called evil, as a loop over pods would."""
    for each in pods:
        if each.pod.metadata.name == "evil":
            raise Boom


@pytest.mark.slow
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy_that_fails_on_one_pod_handles_the_others(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failure is reported once, not every second."""
    expected, _ = lived(with_evil=True)
    own = getattr(agent_module, name)

    def broken(inputs: Any, *args: Any, **more: Any) -> Any:
        on_evil(inputs.view.pods)
        return own(inputs, *args, **more)

    monkeypatch.setattr(agent_module, name, broken)

    files, failed = lived(with_evil=True)

    assert files == expected
    assert list(failed.values()) == [1]


@pytest.mark.slow
@pytest.mark.parametrize("gate", [*object_intents.PLANS, *PLANS])
def test_a_plan_that_breaks_on_one_pod_is_made_for_the_others(
    gate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other plans are made for all pods."""
    expected, _ = lived(with_evil=True)
    is_gate = gate in object_intents.PLANS
    own = object_intents.PLANS[gate] if is_gate else getattr(object_intents, gate)

    def broken(view: Any, *args: Any, **more: Any) -> Any:
        on_evil(view.pods)
        return own(view, *args, **more)

    if is_gate:
        monkeypatch.setattr(object_intents, "PLANS", {**object_intents.PLANS, gate: broken})
    else:
        monkeypatch.setattr(object_intents, gate, broken)

    files, failed = lived(with_evil=True)

    assert files == expected
    assert set(failed.values()) <= {1}


@pytest.mark.slow
@pytest.mark.parametrize("kind", COLLECTORS, ids=lambda kind: kind.__name__)
def test_a_collector_that_breaks_on_one_pod_measures_the_others(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other collectors measure all pods."""
    expected, _ = lived(with_evil=True)
    own = kind.collect

    def broken(self: Any, context: Any, now_s: float) -> None:
        own(self, context, now_s)
        on_evil(context.pods)

    monkeypatch.setattr(kind, "collect", broken)

    files, failed = lived(with_evil=True)

    assert files == expected
    assert dict(failed) in ({}, {kind.__name__: 1})


@pytest.mark.slow
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy_that_always_breaks_stops_no_other(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each failed round is reported; all other rounds run."""

    def broken(*_: Any, **__: Any) -> Any:
        raise Boom

    monkeypatch.setattr(agent_module, name, broken)

    files, failed = lived(with_evil=False)

    assert len(failed) == 1
    assert files


@pytest.mark.slow
@pytest.mark.parametrize("where", ["labels", "annotations"])
def test_pod_whose_inspection_fails_is_not_changed(where: str) -> None:
    """The other pods have what they would have without it."""
    expected, _ = lived(with_evil=False)
    world = World(gates=LIVED)
    failed: Counter[str] = Counter()
    world.agent = world.start(on_failure=lambda part, _: failed.update([part]))
    world.slo(cpu_suppress_threshold_percent=65)
    ls, be = ls_and_be(world)
    evil = pod("evil", QosClass.BE)
    poison = Poisoned(getattr(evil.metadata, where))
    world.add(replace(evil, metadata=replace(evil.metadata, **{where: poison})))
    poison.armed = True
    world.seconds(20, {ls.folder: 4.0, be.folder: 1.0})

    assert failed
    for (file, folder), value in expected.items():
        assert world.tree.get(file, folder) == value, (file, folder)


def test_without_a_listener_a_failure_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test without a listener fails on an unexpected error."""

    def broken(*_: Any, **__: Any) -> Any:
        raise Boom

    monkeypatch.setattr(agent_module, "suppress", broken)
    world = World(gates=EVERYTHING)
    with pytest.raises(Boom):
        world.seconds(3, {})


def test_a_file_that_breaks_when_written_costs_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The failure is reported and audited with its type; the round continues."""
    failed: Counter[str] = Counter()
    world = World()
    world.agent = world.start(on_failure=lambda part, _: failed.update([part]))
    world.slo(cpu_suppress_threshold_percent=65)
    ls, be = ls_and_be(world)
    own = MemoryHost.write

    def broken(self: MemoryHost, path: str, text: str) -> None:
        if path.endswith("/besteffort/cpuset.cpus"):
            raise Boom
        own(self, path, text)

    monkeypatch.setattr(MemoryHost, "write", broken)
    world.seconds(20, {ls.folder: 4.0, be.folder: 1.0})

    assert world.tree.get(CgroupFile.CPUSET, LAYOUT.besteffort) == "0-7"
    for folder in (be.folder, be.containers[0].folder):
        assert world.tree.get(CgroupFile.CPUSET, folder) == "0-1"
    assert set(failed) == {"applying cgroup"}
    errors = [event.error for event in world.agent.audit.events if event.error]
    assert errors
    assert all(error.startswith('internal error: applying of "cgroup"') for error in errors)


@pytest.mark.slow
def test_cpu_burst_that_fails_on_one_pod_handles_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The failure is reported once, not every second."""
    expected, _ = lived(with_evil=True)
    own = CpuBurst.plan

    def broken(self: CpuBurst, inputs: Any) -> Any:
        on_evil(inputs.view.pods)
        return own(self, inputs)

    monkeypatch.setattr(CpuBurst, "plan", broken)

    files, failed = lived(with_evil=True)

    assert files == expected
    assert dict(failed) == {"CPU burst": 1}


@pytest.mark.slow
def test_the_life_of_the_node_changes_its_files() -> None:
    """Best effort is suppressed, so that the comparisons above compare changed files."""
    files, failed = lived(with_evil=False)

    assert "0-7" in files.values()
    assert {value for (file, _), value in files.items() if file is CgroupFile.CPUSET} != {"0-7"}
    assert not failed
