"""PodGroups of scheduling.k8s.io with a topology constraint."""

from typing import Any

import pytest
from tests.unit.scheduler.test_gangs import condition, config, placed
from tests.unit.scheduler.test_pod_group_messages import condition_of_group
from tests.unit.scheduler.test_scheduling_pod_groups import PROFILES, member, pod_group
from tests.unit.scheduler.watches import run_until
from tests.worlds import START_S, configuration, embedded, node, pod

from koordinator.api.kube_version import KubeVersion
from koordinator.api.kubescheduler import FeatureGates, KubeSchedulerConfiguration
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.domain.placement_fork import replacement_of
from koordinator.foundation.clock import VirtualClock
from koordinator.scheduler.explanations import Explanation
from koordinator.scheduler.features.explanations.explainer import explain
from koordinator.scheduler.fork import follow_cluster
from koordinator.simulator import Embedded

ON = FeatureGates.parse(
    "GenericWorkload=true,TopologyAwareWorkloadScheduling=true", KubeVersion(37)
)
OFF = FeatureGates.parse("GenericWorkload=true", KubeVersion(37))
RACK = "example.com/rack"
EITHER = pytest.mark.parametrize("profile", PROFILES, ids=["GangScheduling", "Coscheduling"])


def rack(name: str, nodes: int, **more: Any) -> list[Node]:
    return [node(f"{name}{at}", 4, "32Gi", labels={RACK: name}, **more) for at in range(nodes)]


def group(least: int, **more: Any) -> KubeObject:
    return pod_group(least=least, schedulingConstraints={"topology": [{"key": RACK}]}, **more)


def members(count: int, cpu: int = 2) -> list[Pod]:
    return [member(f"m{at}", cpu=cpu, memory="1Gi") for at in range(count)]


def world(
    *objects: KubeObject,
    profile: KubeSchedulerConfiguration = PROFILES[0],
    gates: FeatureGates = ON,
) -> Embedded:
    one = embedded(*objects, config=profile, gates=gates)
    one.run_to_fixed_point()
    one.scheduler.validate()
    return one


def racks(one: Embedded) -> list[str]:
    """Return the racks of placed members."""
    return sorted(on[:2] for name, on in placed(one).items() if name.startswith("m"))


@EITHER
def test_the_fuller_rack_wins_where_all_members_fit(profile: KubeSchedulerConfiguration) -> None:
    """33 + 100 for the rack with a pod against 17 + 100 for the empty one, as in 1.37.2."""
    used = pod("used", 1, "1Gi", on="r11")
    one = world(*rack("r1", 2), *rack("r2", 3), used, group(2), *members(2), profile=profile)

    assert racks(one) == ["r1", "r1"]


@EITHER
def test_the_rack_that_takes_more_members_wins(profile: KubeSchedulerConfiguration) -> None:
    """Four members, two needed: two of four fit in r1 (45 + 50), all in r2 (35 + 100)."""
    used = pod("used", 3, "1Gi", on="r10")
    one = world(*rack("r1", 2), *rack("r2", 3), used, group(2), *members(4), profile=profile)

    assert racks(one) == ["r2"] * 4


@EITHER
def test_no_member_is_placed_where_no_rack_takes_enough(
    profile: KubeSchedulerConfiguration,
) -> None:
    """One node per rack takes one member each; without the constraint both would suffice."""
    nodes = [*rack("r1", 1), *rack("r2", 1)]
    one = world(*nodes, group(2), *members(2, cpu=3), profile=profile)
    text = (
        "0/2 placements are available, first placement status: minCount (2) cannot be satisfied: "
        "1 scheduled, 0 remaining, pod group preemption: No preemption victims found for incoming "
        "preemptor"
    )

    assert not placed(one)
    assert condition_of_group(one)[3] == f"pod group is unschedulable, {text}"
    messages = sorted(condition(one, f"m{at}")[1] for at in range(2))
    assert messages == [
        "0/1 nodes are available: 1 Insufficient cpu.",
        f"pod group is unschedulable, pod group is unschedulable, {text}",
    ]
    assert len(placed(world(*nodes, group(2), *members(2, cpu=3), gates=OFF))) == 2


#: Racks without room for 2 members of 3 CPUs, and the change of nodes after which one has.
HELPFUL: dict[str, tuple[list[Node], dict[str, Any]]] = {
    "racks joined": ([*rack("r1", 1), *rack("r2", 1)], {"metadata": {"labels": {RACK: "r1"}}}),
    "nodes without a rack": (
        [node(name, 4, "32Gi") for name in ("r20", "r21")],
        {"metadata": {"labels": {RACK: "r2"}}},
    ),
    "taints of the second rack": (
        [*rack("r1", 1), *rack("r2", 2, taints=["a=b:NoSchedule"])],
        {"spec": {"taints": []}},
    ),
    "second rack cordoned": (
        [*rack("r1", 1), *rack("r2", 2, unschedulable=True)],
        {"spec": {"unschedulable": False}},
    ),
}


@EITHER
@pytest.mark.parametrize("case", HELPFUL)
def test_change_of_any_rack_requeues_the_group(
    case: str, profile: KubeSchedulerConfiguration
) -> None:
    """Plugins that reject members in the first rack only do not count alone."""
    nodes, change = HELPFUL[case]
    one = world(*nodes, group(2), *members(2, cpu=3), profile=profile)
    assert not placed(one)

    for name in (each.metadata.name for each in nodes if each.metadata.name.startswith("r2")):
        one.cluster.patch(Node, name, "", change)
    run_until(one)

    assert len(placed(one)) == 2


@EITHER
def test_late_members_join_the_rack_of_the_others(
    profile: KubeSchedulerConfiguration,
) -> None:
    """The other rack has more capacity."""
    one = world(*rack("r1", 2), group(2), *members(2), profile=profile)
    one.load([*rack("r2", 3), member("m9", cpu=1)])
    run_until(one)

    assert racks(one) == ["r1"] * 3


def test_nodes_without_the_label_are_left_out() -> None:
    """The capacity of nodes without the label does not matter."""
    one = world(node("plain", 64), *rack("r1", 1), group(2), *members(2))

    assert racks(one) == ["r1", "r1"]


def test_members_in_two_racks_are_an_error() -> None:
    """A third member cannot join both."""
    on = [member("m0", on="r10"), member("m1", on="r20")]
    one = world(*rack("r1", 1), *rack("r2", 1), group(2), *on, member("m2"))

    assert condition(one, "m2") == (
        "SchedulerError",
        (
            "cannot determine domain for already scheduled pods: "
            "more than 1 domain found for pod group: r1, r2"
        ),
    )


@EITHER
def test_rack_with_the_fewest_victims_is_preempted(profile: KubeSchedulerConfiguration) -> None:
    """The one where fewer pods have to go."""
    low = [
        *(pod(f"a{at}", 2, on="r10", priority=1) for at in range(2)),
        pod("b", 4, on="r20", priority=1),
    ]
    high = [member(f"m{at}", cpu=2, priority=9) for at in range(2)]
    one = world(*rack("r1", 1), *rack("r2", 1), *low, group(2, priority=9), *high, profile=profile)
    run_until(one, 60)

    assert racks(one) == ["r2", "r2"]
    assert {"a0", "a1"} <= placed(one).keys()


def test_new_node_in_a_rack_requeues_the_group() -> None:
    """A node that comes wakes the members."""
    one = world(*rack("r1", 1), group(2), *members(2, cpu=3))
    assert not placed(one)

    one.load([node("r1x", 4, labels={RACK: "r1"})])
    run_until(one)
    assert racks(one) == ["r1", "r1"]


def test_a_basic_group_stays_in_one_rack() -> None:
    """Each member is scheduled individually, but near the others."""
    basic = pod_group(schedulingConstraints={"topology": [{"key": RACK}]})
    one = world(*rack("r1", 1), *rack("r2", 1), basic, *members(3), profile=config())

    assert len(set(racks(one))) == 1
    assert len(racks(one)) == 2


def with_points(**points: Any) -> KubeSchedulerConfiguration:
    return configuration(schedulerName="default-scheduler", plugins=points)


def test_the_weights_of_the_configuration_choose_the_rack() -> None:
    """Two of four fit in r1: 45·6 + 50 for the fuller rack, 35·6 + 100 for the other one."""
    used = pod("used", 3, "1Gi", on="r10")
    weighty = {"enabled": [{"name": "NodeResourcesFit", "weight": 6}]}
    objects = (*rack("r1", 2), *rack("r2", 3), used, group(2), *members(4))

    assert racks(world(*objects, profile=with_points(placementScore=weighty)))[0] == "r1"
    assert racks(world(*objects)) == ["r2"] * 4


def test_without_a_generator_the_constraint_has_no_effect() -> None:
    """The two members fit on two nodes, but not in one rack."""
    off = {"disabled": [{"name": "TopologyPlacementGenerator"}]}
    one = world(
        *rack("r1", 1),
        *rack("r2", 1),
        group(2),
        *members(2, cpu=3),
        profile=with_points(placementGenerate=off),
    )

    assert racks(one) == ["r1", "r2"]


def test_without_a_plugin_at_its_own_point_a_group_preempts_no_pod() -> None:
    """The plugins of PostFilter are for single pods."""
    low = [pod("a", 4, on="r10", priority=1)]
    high = [member(f"m{at}", cpu=2, priority=9) for at in range(2)]
    objects = (*rack("r1", 1), *low, group(2, priority=9), *high)
    off = {"disabled": [{"name": "*"}]}
    one = world(*objects, profile=with_points(podGroupPostFilter=off))
    run_until(one, 60)
    other = world(*objects)
    run_until(other, 60)

    assert set(placed(one)) == {"a"}
    assert racks(other) == ["r1", "r1"]


def explanations(one: Embedded) -> list[Explanation]:
    """Return the explanations of all pending members."""
    one.scheduler.step(limit=0)
    return [explain(one.scheduler.handle, key) for key in sorted(one.state.unbound)]


@EITHER
def test_group_without_a_placement_is_explained(profile: KubeSchedulerConfiguration) -> None:
    """Every member gives the same answer, and the smaller minimum that it offers starts some."""
    nodes = [*rack("r1", 1), *rack("r2", 2)]
    one = world(*nodes, group(3), *members(3, cpu=3), profile=profile)

    listed = explanations(one)

    assert {each.verdict for each in listed} == {"waits"}
    (why,) = {each.causes[0].sentence for each in listed}
    assert why == (
        "no nodes that share a value of example.com/rack have room for PodGroup default/train; "
        "the best, r2, for 2 of 3"
    )
    assert {each.gang.partition(": ")[2] for each in listed} == {
        "3 of 3 members find a place, but not together"
    }
    (smaller,) = {one.text for each in listed for one in each.remedies if one.sufficient}
    assert smaller == (
        "set minCount of PodGroup default/train to 2: nodes with example.com/rack=r2 take that "
        "many members"
    )
    assert racks(world(*nodes, group(2), *members(3, cpu=3), profile=profile)) == ["r2", "r2"]


def test_late_member_is_explained_by_the_rack_of_the_others() -> None:
    """Without placed members, the other rack would take the group."""
    running = [member(f"m{at}", cpu=4, on="r10") for at in range(1)]
    one = world(*rack("r1", 1), *rack("r2", 1), group(1), *running, member("late", cpu=1))

    (explanation,) = explanations(one)

    assert explanation.causes[0].sentence == (
        "the nodes with example.com/rack=r1, where members of PodGroup default/train are, have "
        "room for 0 of 1 more"
    )
    assert not [each for each in explanation.remedies if each.sufficient]


def test_group_without_labelled_nodes_is_explained() -> None:
    (explanation, _) = explanations(world(node("n", 8), group(2), *members(2)))

    assert explanation.causes[0].sentence == (
        "no node has the label example.com/rack that the nodes of PodGroup default/train must share"
    )


def test_group_that_fits_is_explained_with_the_rack_that_it_gets() -> None:
    """The explanation names the nodes that the members get, not the emptiest node."""
    used = pod("used", 1, "1Gi", on="r11")
    there = [*rack("r1", 2), *rack("r2", 3), used, group(2), *members(2)]
    one = embedded(*there, config=PROFILES[0], gates=ON)

    listed = explanations(one)

    assert {each.verdict for each in listed} == {"fits"}
    one.run_to_fixed_point()
    places = {name: on for name, on in placed(one).items() if name != "used"}
    assert [each.node for each in listed] == [places["m0"], places["m1"]]


def test_trial_of_a_move_keeps_members_in_their_rack() -> None:
    """One member stays with the others; all of them may move to another rack together."""
    clock = VirtualClock(START_S)
    state = MemoryCluster(clock)
    running = [member(f"m{at}", cpu=2, on="r10") for at in range(2)]
    state.load([*rack("r1", 1), *rack("r2", 1), *rack("r3", 2), group(2), *running])
    trial = follow_cluster(state, clock, PROFILES[0], gates=ON)
    trial.follow()
    fresh = [replacement_of(one, f"{one.metadata.name}-next") for one in running]

    with trial.world() as tried:
        tried.remove("default/m0")
        assert tried.land(pod("other", 1, nodeSelector={RACK: "r1"})).node == "r10"
        landing = tried.land(fresh[0])
        assert (landing.node, landing.why.partition(",")[0]) == (
            "",
            "members of PodGroup default/train are on nodes with example.com/rack=r1",
        )
    with trial.world() as tried:
        for one in running:
            tried.remove(one.key)
        assert tried.land(pod("other", 3, nodeSelector={RACK: "r1"})).node == "r10"
        assert tried.land(pod("another", 1, nodeSelector={RACK: "r2"})).node == "r20"
        landings = tried.land_together(fresh)
        assert {landing.node[:2] for landing in landings} == {"r3"}
