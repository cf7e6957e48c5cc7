"""Containers take turns being counted, and nothing stays open."""

from collections.abc import Sequence

import pytest
from tests.nodes import LAYOUT, START_S, Tree, machine, pod

from koordinator.api.node_slo import NodeSloSpec
from koordinator.domain.cgroups.files import CgroupFile
from koordinator.foundation.errors import HostError, MissingFileError
from koordinator.host.port import NoPerfEvents, PerfCounting, PerfCounts, PerfEvents
from koordinator.koordlet.collectors.context import CollectionContext
from koordinator.koordlet.collectors.performance import CpiCollector
from koordinator.koordlet.metrics import Metric, MetricStore
from koordinator.koordlet.view.pods import PodView
from koordinator.koordlet.view.slo import effective_slo


class _Attempt:
    def __init__(self, counters: "Counters", folder: str) -> None:
        self._counters, self._folder = counters, folder

    def stop(self) -> PerfCounts:
        self._counters.open.remove(self._folder)
        if self._folder in self._counters.unreadable:
            raise HostError("cannot count")
        return PerfCounts(300.0, 200.0)


class Counters:
    """Counters that are made up; ``open`` are the cgroups that are counted now."""

    def __init__(self, problem: HostError | None = None) -> None:
        self.open: list[str] = []
        self.started: list[str] = []
        self.cpus: Sequence[int] = ()
        self.unreadable: set[str] = set()
        self.problem = problem

    def start(self, folder: str, cpus: Sequence[int]) -> PerfCounting:
        self.started.append(folder)
        if self.problem is not None:
            raise self.problem
        self.cpus = cpus
        self.open.append(folder)
        return _Attempt(self, folder)


def collector(events: PerfEvents) -> CpiCollector:
    """Return one that counts ten seconds of every minute."""
    return CpiCollector(events, interval_s=60, window_s=10, step_s=1)


def context(*pods: PodView, has_hierarchy: bool = True) -> CollectionContext:
    """Return a node of four CPUs with pods."""
    tree = Tree()
    if has_hierarchy:
        tree.set(CgroupFile.PERF_PROCS, LAYOUT.kubepods, "")
    return CollectionContext(
        files=tree.host,
        roots=tree.roots,
        cgroups=tree.cgroups,
        store=MetricStore(600, 1),
        layout=LAYOUT,
        machine=machine(4),
        slo=effective_slo(NodeSloSpec(), LAYOUT),
        pods=pods,
    )


def seconds(made: CpiCollector, where: CollectionContext, first: int, last: int) -> None:
    """Advance the clock second by second."""
    for second in range(first, last):
        made.collect(where, START_S + second)


def cpi(where: CollectionContext, container: str) -> float | None:
    """Return the newest cycles per instruction."""
    cycles, instructions = (
        where.store.last(Metric.CONTAINER_CPI, f"{container}/{kind}", 0)
        for kind in ("cycle", "instruction")
    )
    return cycles / instructions if cycles is not None and instructions else None


def test_a_container_is_counted_for_a_window_once_per_interval() -> None:
    """On all CPUs, in the hierarchy of perf events; the sample is of the window's end."""
    events = Counters()
    view = Tree().add_pod(pod("a", "LS", requests={"cpu": 1}))
    where, made = context(view), collector(events)
    path = f"/sys/fs/cgroup/perf_event/{view.containers[0].folder}"

    seconds(made, where, 0, 10)
    assert (events.open, list(events.cpus)) == ([path], [0, 1, 2, 3])
    assert cpi(where, "containerd://a-c0") is None

    seconds(made, where, 10, 60)
    assert cpi(where, "containerd://a-c0") == 1.5
    assert (events.open, events.started) == ([], [path])
    seconds(made, where, 60, 61)
    assert events.started == [path, path]


def test_containers_take_turns() -> None:
    """Of 120 no more than 2 begin in a second, and all have had one after a minute."""
    events = Counters()
    tree = Tree()
    views = [tree.add_pod(pod(f"p{n}", "BE", containers=2)) for n in range(60)]
    where, made = context(*views), collector(events)
    most = 0
    for second in range(71):
        made.collect(where, START_S + second)
        most = max(most, len(events.open))

    assert most == 20
    assert all(cpi(where, c.id) is not None for view in views for c in view.containers)


def test_vanished_or_unreadable_counter_is_closed_without_sample() -> None:
    """Counters are closed as well if the agent stops during a measurement."""
    events = Counters()
    tree = Tree()
    views = [tree.add_pod(pod(name, "BE")) for name in ("a", "b")]
    where, made = context(*views), collector(events)
    seconds(made, where, 0, 3)
    events.unreadable = {path for path in events.open if "uid-b" in path}
    seconds(made, context(views[1]), 3, 5)
    assert len(events.open) == 1
    seconds(made, where, 5, 20)
    assert cpi(where, "containerd://b-c0") is None

    made.close()
    assert events.open == []


def test_a_machine_that_slept_ends_turns_and_begins_new_ones() -> None:
    """No counter stays open, and no container waits longer than others."""
    events = Counters()
    where, made = context(Tree().add_pod(pod("a", "BE"))), collector(events)
    seconds(made, where, 0, 3)
    seconds(made, where, 3600, 3602)

    assert len(events.started) == 2
    assert len(events.open) == 1


def test_machine_without_counters_is_tried_every_five_minutes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The log has the reason for the missing CPI."""
    events = Counters(HostError("the CPU has no such counter"))
    where, made = context(Tree().add_pod(pod("a", "BE", containers=2))), collector(events)
    seconds(made, where, 0, 300)
    assert len(events.started) == 1
    assert [record.message for record in caplog.records] == ["CPI not measured"]
    seconds(made, where, 300, 301)
    assert len(events.started) == 2
    seconds(collector(NoPerfEvents()), where, 0, 1)


def test_machine_without_cgroup_counters_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The hierarchy is not mounted, so all cgroups are missing there."""
    events = Counters(MissingFileError("cannot count for x: No such file or directory"))
    view = Tree().add_pod(pod("a", "BE", containers=2))
    seconds(collector(events), context(view, has_hierarchy=False), 0, 100)

    assert len(events.started) == 1
    assert [record.message for record in caplog.records] == ["CPI not measured"]


def test_a_container_that_has_just_ended_costs_the_others_nothing() -> None:
    """A container's cgroup disappears before its status changes."""
    events = Counters(MissingFileError("gone"))
    where, made = context(Tree().add_pod(pod("a", "BE", containers=2))), collector(events)
    seconds(made, where, 0, 1)
    events.problem = None
    seconds(made, where, 1, 2)

    assert len(events.open) == 1
