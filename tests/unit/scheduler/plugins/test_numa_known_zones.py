"""What was found out about NUMA nodes while nodes were compared is used when one is chosen."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.equipped_nodes import PLACES, machine, machine_pods, machines
from tests.worlds import add, embedded, pod, renamed, world

from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.foundation.errors import NotFoundError
from koordinator.scheduler.plugins.node_numa_resource.known_zones import KnownZones
from koordinator.scheduler.snapshot import ClusterState, Snapshot, view
from koordinator.scheduler.snapshot.devices import DeviceTable
from koordinator.scheduler.snapshot.numa import NumaTable

ROW = np.array([0])


def view_of(state: ClusterState) -> Snapshot:
    return Snapshot(state)[ROW]


def test_what_is_known_holds_until_the_row_changes() -> None:
    """Of that row: others don't matter."""
    state, known = world(*machine("n"), *machine("other")), KnownZones()
    known.put(view_of(state), "v", np.array([2]))
    add(state, pod("elsewhere", cpu=1, on="other"))

    assert known.at(view_of(state), "v", 0) == 2
    assert known.at(view_of(state), "w", 0) is None
    assert known.at(view_of(state), "v", 1) is None
    add(state, pod("here", cpu=1, on="n"))
    assert known.at(view_of(state), "v", 0) is None


def test_nodes_without_a_place_are_looked_at_again() -> None:
    """Only then it is said why there is none."""
    state, known = world(*machine("n")), KnownZones()
    known.put(view_of(state), "v", np.array([-1]))

    assert known.at(view_of(state), "v", 0) is None


def decisions(cluster: list[KubeObject], pods: list[Pod], *, remembering: bool) -> list[object]:
    """Return where pods go, one after the other, and what they get there."""
    one = embedded(*cluster, config=PLACES, report=False)
    decided: list[object] = []
    with pytest.MonkeyPatch.context() as patch:
        if not remembering:
            patch.setattr(KnownZones, "at", lambda *_: None)
            patch.setattr(NumaTable, "state", lambda *_: object())
            patch.setattr(DeviceTable, "standing", lambda *_: object())
        else:
            patch.setattr(view, "LARGE", 0)  # compiled loops, too
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


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    cluster=st.tuples(machines("a"), machines("b"), machines("c")),
    pods=st.lists(machine_pods(), min_size=1, max_size=12),
)
def test_remembering_and_compiled_loops_change_no_decision(
    cluster: tuple[list[KubeObject], ...], pods: list[Pod]
) -> None:
    """Node, devices, CPUs and NUMA nodes are those of the plain code that remembers nothing."""
    objects = [obj for each in cluster for obj in each]

    assert decisions(objects, pods, remembering=True) == decisions(objects, pods, remembering=False)
