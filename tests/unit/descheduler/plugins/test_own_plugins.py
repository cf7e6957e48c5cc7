"""CustomPriority, FragmentationAware and ScaleDownBinPack: who goes, why, and what is written."""

from typing import Any

import pytest
from tests.unit.descheduler.world import DeschedulerWorld, profile_of
from tests.worlds import node, pod

from koordinator.api.annotations.scheduling import POD_DELETION_COST
from koordinator.api.event import Event
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.foundation.errors import InputError

OWNER = ("ReplicaSet", "r")


def owned(name: str, on: str, cpu: Any = 1, memory: Any = "1Gi", **more: Any) -> Pod:
    return pod(name, cpu, memory, on=on, owner=OWNER, **more)


def world(plugin: str, args: Any, *objects: KubeObject, **more: Any) -> DeschedulerWorld:
    profile = profile_of("balance", plugin, args)
    return DeschedulerWorld(*objects, profile=profile, **more)


def level(name: str) -> dict[str, Any]:
    return {"name": name, "nodeSelector": {"matchLabels": {"tier": name}}}


GOLD_TO_BRONZE = {"evictionOrder": [level("gold"), level("bronze")]}
TIERS: list[KubeObject] = [
    node("g", 8, labels={"tier": "gold"}),
    node("b", 3, labels={"tier": "bronze"}),
]


def test_pods_leave_earlier_levels_if_they_fit_on_later_ones() -> None:
    """The smallest first; each by itself, so together they may request more than there is."""
    pods = [owned("small", "g", 1), owned("middle", "g", 2), owned("large", "g", 4)]
    one = world("CustomPriority", GOLD_TO_BRONZE, *TIERS, *pods)
    assert one.evicted() == {"small", "middle"}
    notes = {event.note for event in one.cluster.list(Event).items}
    assert notes == {
        "pod evicted by evicting from gold priority resource to lower priority resource"
    }


@pytest.mark.parametrize(("sizes", "goes"), [((1, 2), True), ((2, 2), False)])
def test_node_is_drained_completely_or_not_at_all(sizes: tuple[int, int], goes: bool) -> None:
    """All its pods have to find a place beside one another; then it is cordoned."""
    pods = [owned(f"p{i}", "g", size) for i, size in enumerate(sizes)]
    args = {**GOLD_TO_BRONZE, "mode": "DrainNode", "autoCordon": True}
    one = world("CustomPriority", args, *TIERS, *pods)
    assert one.evicted() == ({"p0", "p1"} if goes else set())
    assert one.cluster.get(Node, "g").spec.unschedulable is goes


def test_refused_drain_removes_its_cordon() -> None:
    """A cordon that existed before is kept."""
    pods = [owned("p0", "g", 1), owned("p1", "g", 1)]
    args = {**GOLD_TO_BRONZE, "mode": "DrainNode", "autoCordon": True}
    one = world("CustomPriority", args, *TIERS, *pods, maxNoOfPodsToEvictTotal=1)
    assert len(one.evicted()) == 1
    assert not one.cluster.get(Node, "g").spec.unschedulable
    cordoned = [node("g", 8, labels={"tier": "gold"}, unschedulable=True), TIERS[1]]
    one = world("CustomPriority", args, *cordoned, *pods, maxNoOfPodsToEvictTotal=1)
    one.evicted()
    assert one.cluster.get(Node, "g").spec.unschedulable


@pytest.mark.parametrize("dry", [{"dryRun": True}, {}])
def test_dry_run_cordons_no_node(dry: Any) -> None:
    """The dry run is set on the plugin or on the descheduler."""
    args = {**GOLD_TO_BRONZE, "mode": "DrainNode", "autoCordon": True, **dry}
    one = world("CustomPriority", args, *TIERS, owned("p", "g", 1), dryRun=not dry)
    assert one.evicted() == set()
    assert not one.cluster.get(Node, "g").spec.unschedulable


def test_pod_whose_eviction_evens_its_node_most_is_evicted() -> None:
    """One pod per node and cycle is evicted, with the figures as the reason."""
    objects = [
        node("n1", 10, "10Gi"),
        node("n2", 10, "10Gi"),
        owned("cpu", "n1", 6, "1Gi"),
        owned("some", "n1", 2, "1Gi"),
        owned("even", "n1", 1, "1Gi"),
    ]
    one = world("FragmentationAware", {}, *objects)
    assert one.evicted() == {"cpu"}
    (event,) = one.cluster.list(Event).items
    assert event.note == (
        "pod evicted by fragmentation reduction: stdBefore=0.3000 stdAfter=0.0500 gain=0.2500"
    )


@pytest.mark.parametrize(
    "args",
    [
        {"imbalanceThreshold": 0.31},
        {"minImprovementThreshold": 0.26},
        {"paused": True},
        {"dryRun": True},
        {"podSelectors": [{"selector": {"matchLabels": {"a": "b"}}}]},
        {"nodeSelector": {"matchLabels": {"a": "b"}}},
    ],
)
def test_conditions_that_keep_a_fragmented_node(args: Any) -> None:
    """One condition suffices to keep the node; thresholds have to be exceeded."""
    objects = [
        node("n1", 10, "10Gi"),
        node("n2", 10, "10Gi"),
        owned("cpu", "n1", 6, "1Gi"),
        owned("rest", "n1", 3, "2Gi"),
    ]
    assert world("FragmentationAware", args, *objects).evicted() == set()


def ranked(one: DeschedulerWorld) -> dict[str, str]:
    one.evicted()
    result = {p.metadata.name: p.metadata.annotations for p in one.cluster.list(Pod).items}
    return {
        name: annotations[POD_DELETION_COST]
        for name, annotations in result.items()
        if POD_DELETION_COST in annotations
    }


def packing() -> list[KubeObject]:
    web = {"app": "web"}
    return [
        *(node(name, 10) for name in ("n1", "n2", "n3")),
        owned("a", "n1", 2, labels=web),
        owned("busy", "n1", 6),
        owned("b", "n2", 1, labels=web),
        owned("c", "n2", 3, labels=web),
        pod("bare", 1, on="n2", labels=web),
        owned("other", "n3", 6),
    ]


WEB = {"podSelectors": [{"name": "web", "selector": {"matchLabels": {"app": "web"}}}]}


def test_pods_of_nodes_with_few_others_have_the_lowest_cost() -> None:
    """On a node the largest first; what may not go gets the highest cost."""
    result = ranked(world("ScaleDownBinPack", WEB, *packing()))
    assert result == {"c": "0", "b": "1", "a": "2", "bare": "2147483647"}


def test_dry_run_writes_no_costs() -> None:
    """Nothing of the cluster changes."""
    assert ranked(world("ScaleDownBinPack", WEB, *packing(), dryRun=True)) == {}


def test_evict_directly_evicts_the_first_pods() -> None:
    """As many as are allowed."""
    args = {**WEB, "strategy": "EvictDirectly", "maxPodsToEvict": 2}
    one = world("ScaleDownBinPack", args, *packing())
    assert one.evicted() == {"c", "b"}


@pytest.mark.parametrize(
    ("plugin", "args", "path"),
    [
        ("CustomPriority", {}, "evictionOrder"),
        ("CustomPriority", {"evictionOrder": [level("a"), level("a")]}, "evictionOrder[1].name"),
        (
            "CustomPriority",
            {"evictionOrder": [level("a"), {"name": "b"}]},
            "evictionOrder[1].nodeSelector",
        ),
        ("CustomPriority", {**GOLD_TO_BRONZE, "mode": "Drain"}, "mode"),
        ("FragmentationAware", {"imbalanceThreshold": -1}, "imbalanceThreshold"),
        ("FragmentationAware", {"resources": ["cpu", "cpu"]}, "resources[1]"),
        ("ScaleDownBinPack", {"strategy": "EvictDirectly"}, "maxPodsToEvict"),
        ("ScaleDownBinPack", {"strategy": "Evict"}, "strategy"),
        ("ScaleDownBinPack", {"resourceWeights": {"cpu": 0}}, "resourceWeights[cpu]"),
    ],
)
def test_invalid_arguments_are_rejected(plugin: str, args: Any, path: str) -> None:
    """With the path in the file."""
    with pytest.raises(InputError) as refused:
        world(plugin, args)
    assert refused.value.path == f"profiles[0].pluginConfig[0].args.{path}"
