"""Cache of NUMA placements from the comparison of nodes."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.equipped_nodes import (
    BIND,
    NUMA_SPEC,
    PLACES,
    POLICY,
    SPEC,
    STATUS,
    bound_pod,
    machine,
    machine_pods,
    machines,
)
from tests.examples import examples
from tests.unit.scheduler.questions import built, refused
from tests.worlds import add, embedded, node, pod, renamed, world

from koordinator.api.annotations.numa import NumaTopologyPolicy
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.foundation.errors import NotFoundError
from koordinator.scheduler.plugins.node_numa_resource import PLUGIN
from koordinator.scheduler.plugins.node_numa_resource.requirements import KnownZones
from koordinator.scheduler.snapshot import ClusterState, Snapshot, nodes, numa
from koordinator.scheduler.snapshot.devices import DeviceTable
from koordinator.scheduler.snapshot.numa import POLICIES, NumaTable, SharedNumaTraits

ROW = np.array([0])
LABELS = {POLICY: "SingleNUMANode", BIND: "FullPCPUsOnly"}
FULL_ZONE = {
    "cpuset": "0-2,8-10",
    "numaNodeResources": [{"node": 0, "resources": {"cpu": "6", "memory": "1Gi"}}],
}
surveyed: Callable[[NumaTable], SharedNumaTraits] = NumaTable.survey.fget  # type: ignore[attr-defined]


def view_of(state: ClusterState) -> Snapshot:
    return Snapshot(state)[ROW]


def test_cached_placement_is_valid_until_the_row_changes() -> None:
    """Changes of other rows do not matter."""
    state, known = world(*machine("n"), *machine("other")), KnownZones()
    known.put(view_of(state), "v", np.array([2]))
    add(state, pod("elsewhere", cpu=1, on="other"))

    assert known.at(view_of(state), "v", 0) == 2
    assert known.at(view_of(state), "w", 0) is None
    assert known.at(view_of(state), "v", 1) is None
    add(state, pod("here", cpu=1, on="n"))
    assert known.at(view_of(state), "v", 0) is None


def test_rows_without_placement_are_evaluated_again() -> None:
    """Reasons are computed only for rows that had no placement."""
    state, known = world(*machine("n")), KnownZones()
    known.put(view_of(state), "v", np.array([-1]))

    assert known.at(view_of(state), "v", 0) is None


def unlike(table: NumaTable) -> SharedNumaTraits:
    """Return results for nodes that are pairwise different."""
    return replace(surveyed(table), alike=None, laid_out=False)


def decisions(cluster: list[KubeObject], pods: list[Pod], *, remembering: bool) -> list[object]:
    """Return the nodes and allocations of pods in order."""
    one = embedded(*cluster, config=PLACES, report=False)
    decided: list[object] = []
    with pytest.MonkeyPatch.context() as patch:
        if not remembering:
            patch.setattr(KnownZones, "at", lambda *_: None)
            patch.setattr(NumaTable, "state", lambda *_: object())
            patch.setattr(NumaTable, "survey", property(unlike))
            patch.setattr(DeviceTable, "standing", lambda *_: object())
        else:
            patch.setattr(nodes, "LARGE", 0)  # compiled loops, too
        for number, each in enumerate(pods):
            one.cluster.load([renamed(each, f"p{number}")])
            one.scheduler.step()
            try:
                stored = one.cluster.get(Pod, f"p{number}", "default")
            except NotFoundError:  # a more important one that waited took its place at once
                decided.append(None)
                continue
            decided.append((stored.spec.node_name, stored.metadata.annotations))
            if number % 3 == 2 and stored.spec.node_name:
                one.cluster.delete(Pod, f"p{number}", "default", grace_period_s=0)
    one.state.validate()
    return decided


def test_survey_covers_existing_nodes_only() -> None:
    """Rows of deleted nodes do not count; nodes without a topology do."""
    single, loose = {POLICY: "SingleNUMANode"}, {POLICY: "BestEffort"}
    state = world(*machine("a", labels=single), *machine("b", labels=single))
    table, alike = state.nodes.numa, (0, POLICIES.index(NumaTopologyPolicy.SINGLE_NUMA_NODE))

    assert (table.survey.alike, table.survey.laid_out) == (alike, True)
    add(state, node("c", cpu=4))
    assert (table.survey.alike, table.survey.laid_out) == (None, False)
    state.drop_node("c")
    assert (table.survey.alike, table.survey.laid_out) == (alike, True)
    add(state, *machine("d", labels=loose))
    assert table.survey.alike is None


def test_nodes_in_equal_states_share_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Different states never share one, even after a kind of node was dropped from the cache."""
    state = world(*machine("a"), *machine("b"), *machine("c", cores=2), *machine("d"))
    table, rows = state.nodes.numa, state.nodes.rows
    first = table.state(rows["a"], 0b01)

    assert first == table.state(rows["b"], 0b01)
    monkeypatch.setattr(numa, "KEEP_KINDS", 1)
    assert table.state(rows["c"], 0b01) not in {first, table.state(rows["d"], 0b01)}
    add(state, bound_pod("p", 2, on="b", annotations={STATUS: FULL_ZONE}))
    assert first == table.state(rows["a"], 0b01) != table.state(rows["b"], 0b01)


def test_state_of_some_numa_nodes_ignores_the_others() -> None:
    """CPUs and amounts of other NUMA nodes do not matter; without charged amounts CPUs decide."""
    state = world(*machine("a"), *machine("b"), *machine("c"))
    table, rows = state.nodes.numa, state.nodes.rows
    there = {**FULL_ZONE, "cpuset": "4", "numaNodeResources": [{"node": 1}]}
    more = {**FULL_ZONE, "numaNodeResources": [{"node": 0, "resources": {"cpu": "5"}}]}
    for name, allocation in (("a", FULL_ZONE), ("b", FULL_ZONE), ("c", more)):
        add(state, bound_pod(name, 2, on=name, annotations={STATUS: allocation}))
    add(state, bound_pod("there", 2, on="b", annotations={STATUS: there}))

    def same(one: str, other: str) -> list[bool]:
        sets = (0b01, 0b10, 0b11, 0)
        return [table.state(rows[one], z) == table.state(rows[other], z) for z in sets]

    assert same("a", "b") == [True, False, False, False]
    assert same("a", "c") == [False, True, False, True]


def test_refusals_are_equal_for_equal_and_mixed_nodes() -> None:
    """The reasons are policy, CPU binding, and insufficient NUMA nodes."""
    alike = [obj for name in ("a", "b") for obj in machine(name, labels=LABELS)]
    alike.append(bound_pod("big", 6, on="a", annotations={STATUS: FULL_ZONE}))
    other = machine("c", labels={POLICY: "Restricted"})
    wishes: tuple[dict[str, dict[str, str]], ...] = (
        {},
        {SPEC: {"requiredCPUBindPolicy": "FullPCPUs"}},
        {SPEC: {"requiredCPUBindPolicy": "SpreadByPCPUs"}},
        {NUMA_SPEC: {"numaTopologyPolicy": "Restricted"}},
    )
    pending = [bound_pod("p", cpus, annotations=wish) for cpus in (3, 4, 8) for wish in wishes]

    def refusals(*objects: KubeObject) -> list[dict[str, str]]:
        state = world(*objects)
        plugin = built(PLUGIN, state)
        assert (state.nodes.numa.survey.alike is None) == (len(objects) > len(alike))
        result = (refused(plugin, state, each) for each in pending)
        return [{name: why for name, why in each.items() if name != "c"} for each in result]

    together = refusals(*alike)
    assert together == refusals(*alike, *other)
    assert any(together)


@pytest.mark.slow
@settings(max_examples=examples(30), deadline=None)
@given(
    cluster=st.tuples(machines("a"), machines("b"), machines("c")),
    pods=st.lists(machine_pods(), min_size=1, max_size=12),
)
@pytest.mark.integration
def test_caches_and_compiled_kernels_change_no_decision(
    cluster: tuple[list[KubeObject], ...], pods: list[Pod]
) -> None:
    """Node, devices, CPUs and NUMA nodes equal the reference without caches."""
    objects = [obj for each in cluster for obj in each]

    assert decisions(objects, pods, remembering=True) == decisions(objects, pods, remembering=False)
