"""Trees of PodGroups under CompositePodGroups of scheduling.k8s.io."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.scheduler.test_gangs import condition, config, placed
from tests.unit.scheduler.test_scheduling_pod_groups import STOCK, member, pod_group
from tests.unit.scheduler.test_topology_placements import RACK
from tests.unit.scheduler.watches import run_until
from tests.worlds import embedded, made, node, pod

from koordinator.api.codec import to_manifest
from koordinator.api.kube_version import KubeVersion
from koordinator.api.kubescheduler import FeatureGates
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.api.pod_groups import CompositePodGroup, SchedulingPodGroup
from koordinator.domain.gangs import GangCache, GangDefaults, GroupTree, WorkloadRefs
from koordinator.domain.gangs.trees import GroupForest
from koordinator.foundation.clock import to_datetime
from koordinator.scheduler.explanations.gangs import short_gang
from koordinator.scheduler.features.explanations.explainer import explain
from koordinator.simulator import Embedded

NAMES = ("GenericWorkload", "TopologyAwareWorkloadScheduling", "CompositePodGroup")
ON = FeatureGates.parse(",".join(f"{name}=true" for name in NAMES), KubeVersion.parse("1.37"))
PROFILES = [STOCK, config()]
EITHER = pytest.mark.parametrize("profile", PROFILES, ids=["GangScheduling", "Coscheduling"])
NO_VICTIMS = "pod group preemption: No preemption victims found for incoming preemptor"


def composite(name: str, least: int = 0, parent: str = "", **spec: Any) -> KubeObject:
    """Return a CompositePodGroup; a minimum of 0 means the basic policy."""
    policy = {"gang": {"minGroupCount": least}} if least else {"basic": {}}
    return made(
        "CompositePodGroup",
        name,
        CompositePodGroup.API_VERSION,
        metadata={"namespace": "default"},
        spec={
            "schedulingPolicy": policy,
            "workloadRef": {"workloadName": "w", "templateName": "t"},
            **({"parentCompositePodGroupName": parent} if parent else {}),
            **spec,
        },
    )


def leaf(name: str, least: int, parent: str, **spec: Any) -> KubeObject:
    """Return a PodGroup of a tree."""
    return pod_group(name, least, parentCompositePodGroupName=parent, **spec)


def members(group: str, count: int, **more: Any) -> list[Pod]:
    return [member(f"{group}{at}", group, **more) for at in range(count)]


def world(*objects: KubeObject, profile: Any = STOCK, gates: FeatureGates = ON) -> Embedded:
    one = embedded(*objects, config=profile, gates=gates)
    one.run_to_fixed_point()
    one.scheduler.validate()
    return one


def group_condition(one: Embedded, name: str) -> tuple[str, str]:
    """Return status and message of the condition of a PodGroup."""
    stored = one.cluster.get(SchedulingPodGroup, name, "default")
    return next(((c.status, c.message) for c in stored.status.conditions), ("", ""))


def no_placement(text: str) -> str:
    available = "0/1 placements are available, first placement status"
    return f"pod group is unschedulable, {available}: {text}"


@EITHER
def test_all_groups_of_a_tree_start_or_none(profile: Any) -> None:
    """Each group needs two CPUs; three are too few for the tree, and other pods may use them."""
    tree = (composite("job", 2), leaf("a", 2, "job"), leaf("b", 2, "job"))
    pods = (*members("a", 2), *members("b", 2))
    roomy = world(node("n", 4), *tree, *pods, profile=profile)
    tight = world(node("n", 3), *tree, *pods, pod("other", 3), profile=profile)

    assert len(placed(roomy)) == 4
    assert [group_condition(roomy, name) for name in "ab"] == [("True", ""), ("True", "")]
    assert placed(tight) == {"other": "n"}


@EITHER
def test_without_the_gate_each_group_is_on_its_own(profile: Any) -> None:
    tree = (composite("job", 2), leaf("a", 2, "job"), leaf("b", 2, "job"))
    pods = (*members("a", 2), *members("b", 2))
    gates = FeatureGates.parse("GenericWorkload=true", KubeVersion.parse("1.37"))

    assert set(placed(world(node("n", 3), *tree, *pods, profile=profile, gates=gates))) == {
        "a0",
        "a1",
    }


@EITHER
def test_as_many_groups_start_as_fit_if_the_minimum_is_met(profile: Any) -> None:
    """Of three groups of two CPUs two are needed; the third starts when there is room."""
    tree = [composite("job", 2), *(leaf(name, 2, "job") for name in "abc")]
    pods = [pod for name in "abc" for pod in members(name, 2)]
    one = world(node("n", 5), *tree, *pods, profile=profile)

    assert set(placed(one)) == {"a0", "a1", "b0", "b1"}
    text = no_placement("minCount (2) cannot be satisfied: 1 scheduled, 0 remaining")
    assert group_condition(one, "c")[0] == "False"
    assert group_condition(one, "c")[1].startswith(text)
    assert group_condition(one, "b") == ("True", "")
    one.load([node("m", 1)])
    run_until(one)
    assert len(placed(one)) == 6


@EITHER
def test_messages_of_a_tree_that_does_not_fit(profile: Any) -> None:
    """Group a fits, one member of b does not; the whole tree waits."""
    tree = (composite("job", 2), leaf("a", 1, "job"), leaf("b", 2, "job"))
    one = world(node("n", 2), *tree, *members("a", 1), *members("b", 2), profile=profile)

    assert not placed(one)
    of_tree = no_placement("minCount (2) cannot be satisfied: 1 scheduled, 0 remaining")
    assert group_condition(one, "a") == ("False", f"{of_tree}, {NO_VICTIMS}")
    assert group_condition(one, "b") == ("False", f"{of_tree}, {NO_VICTIMS}")
    assert condition(one, "a0")[1] == of_tree
    assert condition(one, "b0")[1] == f"pod group is unschedulable, {of_tree}, {NO_VICTIMS}"
    assert condition(one, "b1")[1] == "0/1 nodes are available: 1 Insufficient cpu."


@EITHER
def test_a_tree_waits_for_its_objects_and_for_enough_members(profile: Any) -> None:
    """Each object is missing first, and its absence is the reason."""
    one = world(node("n", 4), leaf("a", 1, "job"), *members("a", 1), profile=profile)
    missing = "CompositePodGroup default/job of scheduling.k8s.io does not exist"
    assert condition(one, "a0")[1] == missing
    one.load([composite("job", 2), leaf("b", 2, "job"), *members("b", 1)])
    one.run_to_fixed_point()
    assert condition(one, "b0")[1] == (
        "CompositePodGroup default/job needs 2 groups with enough members; there were 1 when this "
        "was written; gang default/podGroup/b needs 2 members; there were 1 when this was written"
    )
    one.load([member("b1", "b")])
    one.run_to_fixed_point()
    assert len(placed(one)) == 3


@pytest.mark.parametrize(
    ("parents", "problem"),
    [
        ({"job": "up", "up": "job"}, "must be in a tree of at most 4 levels"),
        ({"job": "x", "x": "y", "y": "z", "z": ""}, "must be in a tree of at most 4 levels"),
        ({"job": "up"}, "CompositePodGroup default/up of scheduling.k8s.io does not exist"),
    ],
    ids=["cycle", "too deep", "missing"],
)
def test_a_tree_that_is_no_tree_waits_with_the_reason(
    parents: dict[str, str], problem: str
) -> None:
    composites = [composite(name, 1, parent) for name, parent in parents.items()]
    one = world(node("n", 4), *composites, leaf("a", 1, "job"), *members("a", 1))

    assert not placed(one)
    assert problem in condition(one, "a0")[1]


@EITHER
def test_groups_of_a_middle_level_start_together(profile: Any) -> None:
    """Of two replicas with two groups each, one fits; the other gives up all its nodes."""
    tree = [composite("job", 1), composite("r0", 2, "job"), composite("r1", 2, "job")]
    tree += [leaf(f"r{at}{name}", 1, f"r{at}") for at in (0, 1) for name in "ab"]
    pods = [pod for at in (0, 1) for name in "ab" for pod in members(f"r{at}{name}", 1)]
    one = world(node("n", 3), *tree, *pods, pod("other", 1), profile=profile)

    assert set(placed(one)) == {"r0a0", "r0b0", "other"}


@EITHER
def test_groups_with_the_basic_policy_start_in_their_tree(profile: Any) -> None:
    """One member of each group is enough; the others follow."""
    tree = (composite("job", 2), leaf("a", 0, "job"), leaf("b", 0, "job"))
    pods = (*members("a", 2), *members("b", 2))
    one = world(node("n", 3), *tree, *pods, profile=profile)
    assert len(placed(one)) == 3
    tight = world(node("n", 1), *tree, *pods, profile=profile)
    assert not placed(tight)


@EITHER
def test_a_tree_and_a_group_in_it_are_in_one_domain_each(profile: Any) -> None:
    """The tree needs one zone, each group one rack of it."""
    nodes = [
        node(f"{zone}{rack}{at}", 1, labels={"zone": zone, RACK: f"{zone}{rack}"})
        for zone, racks in (("x", "p"), ("y", "pq"))
        for rack in racks
        for at in range(3 if zone == "x" else 2)
    ]
    rack: dict[str, Any] = {"schedulingConstraints": {"topology": [{"key": RACK}]}}
    zone: dict[str, Any] = {"schedulingConstraints": {"topology": [{"key": "zone"}]}}
    tree = (composite("job", 2, **zone), leaf("a", 2, "job", **rack), leaf("b", 2, "job", **rack))
    one = world(*nodes, *tree, *members("a", 2), *members("b", 2), profile=profile)

    where = placed(one)
    assert {on[0] for on in where.values()} == {"y"}
    assert [len({where[f"{group}{at}"][:2] for at in (0, 1)}) for group in "ab"] == [1, 1]


@EITHER
def test_a_tree_preempts_for_all_of_its_groups_or_for_none(profile: Any) -> None:
    """Two pods are enough for the first tree; the second would need more than there is."""
    victims = [pod(f"v{at}", 2, nodeName=f"n{at}", priority=0) for at in (0, 1)]
    spec: dict[str, Any] = {"priority": 9}
    tree = (composite("job", 2, **spec), leaf("a", 1, "job"), leaf("b", 1, "job"))
    pods = [one for name in "ab" for one in members(name, 1, cpu=2, priority=9)]
    one = world(node("n0", 2), node("n1", 2), *victims, *tree, *pods, profile=profile)
    run_until(one)
    assert set(placed(one)) == {"a0", "b0"}

    pods = [one for name in "ab" for one in members(name, 1, cpu=3, priority=9)]
    one = world(node("n0", 3), node("n1", 2), *victims, *tree, *pods, profile=profile)
    run_until(one)
    assert set(placed(one)) == {"v0", "v1"}


@pytest.mark.parametrize(
    ("modes", "left"),
    [
        ({"job": "all"}, set()),
        ({"a": "all"}, {"b0", "b1"}),
        ({}, {"a1", "b0", "b1"}),
    ],
    ids=["tree", "group", "pod"],
)
def test_the_highest_group_with_mode_all_is_preempted_as_a_whole(
    modes: dict[str, str], left: set[str]
) -> None:
    """Node n0 has one pod of group a, and the preemptor fits there only."""

    def mode(name: str) -> dict[str, Any]:
        return {"disruptionMode": {modes.get(name, "single"): {}}}

    tree = [composite("job", 1, **mode("job"))]
    tree += [leaf(name, 1, "job", **mode(name)) for name in "ab"]
    running = [
        member(f"{name}{at}", name, cpu=2, nodeName=f"n{2 * number + at}", priority=0)
        for number, name in enumerate("ab")
        for at in (0, 1)
    ]
    nodes = [node(f"n{at}", 3 if not at else 2) for at in range(4)]
    group = pod_group("vip", 1, priority=9)
    vip = member("vip0", "vip", cpu=3, priority=9)
    one = world(*nodes, *tree, *running, group, vip)
    run_until(one)

    assert set(placed(one)) == left | {"vip0"}


@pytest.mark.parametrize("own", ["Never", "PreemptLowerPriority"])
@pytest.mark.parametrize("on", [True, False], ids=["gate on", "gate off"])
def test_pods_must_have_the_preemption_policy_of_their_tree(*, own: str, on: bool) -> None:
    """With the gate; without it they need only agree with each other."""
    names = (*NAMES, *(["PodGroupPreemptionPolicy"] * on))
    gates = FeatureGates.parse(",".join(f"{it}=true" for it in names), KubeVersion.parse("1.37"))
    tree = (composite("job", 1, preemptionPolicy="Never"), leaf("a", 1, "job"))
    own_class = made("PriorityClass", "own", "scheduling.k8s.io/v1", value=0, preemptionPolicy=own)
    one = world(
        node("n", 1), own_class, *tree, *members("a", 1, priorityClassName="own"), gates=gates
    )

    assert bool(placed(one)) == (own == "Never" or not on)
    text = (
        "all pods in a single pod group should have the same preemption policy as the pod group's "
        "preemption policy, got PreemptLowerPriority and Never"
    )
    expected = ("False", text) if not placed(one) else ("True", "")
    assert group_condition(one, "a") == expected


def remedies(*objects: KubeObject) -> list[str]:
    """Return the remedies for the first pod, which is gated."""
    level = KubeVersion.parse("1.37")
    cache = GangCache(GangDefaults(refs=WorkloadRefs.FIRST, level=level, trees=True))
    pods = [one for one in objects if isinstance(one, Pod)]
    for one in objects:
        if isinstance(one, CompositePodGroup):
            cache.put_composite(one)
        elif isinstance(one, SchedulingPodGroup):
            cache.put_pod_group(one)
        elif isinstance(one, Pod):
            cache.put_pod(one)
    return [remedy.text for remedy in short_gang(cache, pods[0], lambda _keys, _copies: True)]


def test_explanations_name_the_groups_with_too_few_members() -> None:
    """Explanations name missing objects as well."""
    a, b = leaf("a", 1, "job"), leaf("b", 3, "job")
    assert remedies(a, b, *members("a", 1)) == ["create the CompositePodGroup default/job"]
    assert remedies(composite("job", 2), a, b, *members("a", 1), *members("b", 1)) == [
        "create 2 more members of PodGroup default/b"
    ]
    assert remedies(composite("job", 2), a, *members("a", 1)) == [
        "create 1 more group below CompositePodGroup default/job"
    ]


def test_writes_keep_unknown_fields_of_a_composite_group() -> None:
    one = composite("job", 2, "up", disruptionMode={"all": {}}, priority=7)
    assert isinstance(one, CompositePodGroup)
    assert to_manifest(one)["spec"] == {
        "parentCompositePodGroupName": "up",
        "workloadRef": {"workloadName": "w", "templateName": "t"},
        "schedulingPolicy": {"gang": {"minGroupCount": 2}},
        "disruptionMode": {"all": {}},
        "priority": 7,
    }


def test_members_of_a_sibling_do_not_stay_when_a_group_is_in_two_racks() -> None:
    """Group b is in both racks already, so the tree fails after a has a place."""
    one = world(
        node("n1", 4, labels={RACK: "r1"}),
        node("n2", 4, labels={RACK: "r2"}),
        composite("job", 2),
        leaf("a", 1, "job"),
        leaf("b", 1, "job", schedulingConstraints={"topology": [{"key": RACK}]}),
        member("b0", "b", nodeName="n1"),
        member("b1", "b", nodeName="n2"),
        member("b2", "b"),
        *members("a", 1),
    )
    one.load([pod("first", 3), pod("second", 3)])
    run_until(one)

    assert {"first", "second"} <= placed(one).keys()
    assert not {"a0", "b2"} & placed(one).keys()


def test_groups_of_one_name_and_age_have_one_order() -> None:
    """A CompositePodGroup goes before a PodGroup of the same name, whatever came first."""
    objects = (composite("same", 1, "job"), leaf("same", 1, "job"))
    orders = set()
    for first, second in (objects, objects[::-1]):
        forest = GroupForest()
        for one in (composite("job", 2), first, second, leaf("x", 1, "same")):
            if isinstance(one, CompositePodGroup):
                forest.put_composite(one)
            elif isinstance(one, SchedulingPodGroup):
                forest.put_group(one)
        tree = forest.tree_of("default/x")
        assert isinstance(tree, GroupTree)
        orders.add(tuple(child.is_leaf for child in tree.children))
        forest.validate()

    assert orders == {(False, True)}


def test_group_that_was_replaced_has_its_new_age() -> None:
    """The deletion may have been missed; the older group is tried first."""
    forest = GroupForest()
    dated = {name: leaf(name, 1, "job") for name in "ab"}
    forest.put_composite(composite("job", 1))  # type: ignore[arg-type]
    for minute, name in ((1, "a"), (2, "b"), (3, "a")):
        meta = replace(dated[name].metadata, creation_timestamp=to_datetime(60.0 * minute))
        forest.put_group(replace(dated[name], metadata=meta))  # type: ignore[arg-type]
        forest.tree_of("default/a")
    tree = forest.tree_of("default/a")

    assert isinstance(tree, GroupTree)
    assert [child.key for child in tree.children] == ["default/b", "default/a"]
    forest.validate()


@EITHER
def test_tree_without_placements_is_explained(profile: Any) -> None:
    """Each member finds a node, but neither rack takes both groups."""
    nodes = [node(name, 4, labels={RACK: name}) for name in ("r1", "r2")]
    constraint = {"topology": [{"key": RACK}]}
    tree = (composite("job", 2, schedulingConstraints=constraint), leaf("a", 1, "job"))
    pods = (*members("a", 1, cpu=3), *members("b", 1, cpu=3))
    one = world(*nodes, *tree, leaf("b", 1, "job"), *pods, profile=profile)

    explanations = [explain(one.scheduler.handle, f"default/{name}") for name in ("a0", "b0")]

    assert [each.verdict for each in explanations] == ["waits", "waits"]
    (why,) = {each.causes[0].sentence for each in explanations}
    assert why == (
        "no placements have room for enough groups of CompositePodGroup default/job: "
        "minCount (2) cannot be satisfied: 1 scheduled, 0 remaining"
    )
    assert not any(remedy.sufficient for each in explanations for remedy in each.remedies)


def test_members_of_an_incomplete_tree_have_one_explanation() -> None:
    """A group lacks a member; the large member of the other finds no node."""
    tree = (composite("job", 2), leaf("a", 2, "job"), leaf("b", 2, "job"))
    pods = [*members("a", 1), *members("b", 1), member("b1", "b", cpu=9)]
    one = world(node("n", 4), *tree, *pods)

    explanations = [explain(one.scheduler.handle, pod.key) for pod in pods]

    (text,) = {each.gang for each in explanations}
    assert text == (
        "gang group default/podGroup/a,default/podGroup/b: 3 of 4 members find a place once "
        "1 more exists"
    )
    assert len({(each.causes, each.remedies) for each in explanations}) == 1
