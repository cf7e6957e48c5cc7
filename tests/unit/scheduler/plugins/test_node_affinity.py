"""nodeSelector, node affinity and the affinity that the profile adds."""

import pytest
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.questions import built, hopeless, refused, scored
from tests.worlds import node, pod

from koordinator.api.meta import JsonObject
from koordinator.scheduler.plugins.node_affinity import PLUGIN
from koordinator.scheduler.snapshot import ClusterState
from koordinator.simulator import schedule

REASON = "node(s) didn't match Pod's node affinity/selector"
ADDED = "node(s) didn't match scheduler-enforced node affinity"


def required(*terms: JsonObject) -> JsonObject:
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}
        }
    }


def expression(key: str, operator: str, *values: str) -> JsonObject:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.fixture
def disks(world: World) -> ClusterState:
    return world(
        node("ssd", labels={"disk": "ssd", "gen": "4"}),
        node("hdd", labels={"disk": "hdd", "gen": "10"}),
        node("none", labels={"gen": "new"}),
    )


def test_node_selector_needs_every_label(disks: ClusterState) -> None:
    """Evictions cannot help against a missing label."""
    plugin, picky = built(PLUGIN, disks), pod("p", nodeSelector={"disk": "ssd", "gen": "4"})

    assert refused(plugin, disks, picky) == {"hdd": REASON, "none": REASON}
    assert hopeless(plugin, disks, picky) == {"hdd", "none"}


@pytest.mark.parametrize(
    ("term", "accepted"),
    [
        (expression("disk", "In", "ssd", "nvme"), {"ssd"}),
        (expression("disk", "NotIn", "ssd"), {"hdd", "none"}),  # a missing label is not in
        (expression("disk", "Exists"), {"ssd", "hdd"}),
        (expression("disk", "DoesNotExist"), {"none"}),
        (expression("gen", "Gt", "4"), {"hdd"}),  # as numbers: 10 > 4; a word is no number
        (expression("gen", "Lt", "10"), {"ssd"}),
        (expression("gen", "Gt", "4", "5"), set()),  # exactly one bound
        (expression("gen", "Gt", "four"), set()),
        ({}, set()),  # an empty term matches nothing
        ({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["hdd"]}]}, {"hdd"}),
        (
            {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["hdd"]}]},
            {"ssd", "none"},
        ),
    ],
)
def test_operator_of_node_affinity_selects_nodes(
    disks: ClusterState, term: JsonObject, accepted: set[str]
) -> None:
    """The nodes have disk ssd and gen 4, disk hdd and gen 10, and gen "new"."""
    rejected = refused(built(PLUGIN, disks), disks, pod("p", affinity=required(term)))

    assert set(disks.nodes.rows) - set(rejected) == accepted


def test_terms_are_alternatives_and_expressions_add_up(disks: ClusterState) -> None:
    """(ssd and gen > 5) or hdd."""
    both = expression("disk", "In", "ssd")
    both["matchExpressions"] += expression("gen", "Gt", "5")["matchExpressions"]
    pending = pod("p", affinity=required(both, expression("disk", "In", "hdd")))

    assert set(refused(built(PLUGIN, disks), disks, pending)) == {"ssd", "none"}


def test_selector_and_affinity_must_both_hold(disks: ClusterState) -> None:
    """The selector requires ssd, the affinity hdd."""
    affinity = required(expression("disk", "In", "hdd"))
    pending = pod("p", nodeSelector={"disk": "ssd"}, affinity=affinity)

    assert set(refused(built(PLUGIN, disks), disks, pending)) == {"ssd", "hdd", "none"}


def test_added_affinity_has_its_own_reason(disks: ClusterState) -> None:
    """Added affinity is checked first, and applies to pods without affinity."""
    added = required(expression("gen", "Exists"), expression("disk", "In", "hdd"))["nodeAffinity"]
    strict = required(expression("disk", "In", "hdd"))["nodeAffinity"]

    assert refused(built(PLUGIN, disks, addedAffinity=added), disks, pod("p")) == {}
    assert refused(
        built(PLUGIN, disks, addedAffinity=strict),
        disks,
        pod("p", nodeSelector={"disk": "ssd"}),
    ) == {"ssd": ADDED, "none": ADDED, "hdd": REASON}


def test_preferred_weights_add_up_and_the_best_node_gets_100(disks: ClusterState) -> None:
    """Ssd has 20 + 10, hdd 10, the third 0: 100, 33, 0."""
    pending = pod("p", affinity=_preferred((20, "disk", "ssd"), (10, "disk", "ssd", "hdd")))

    assert scored(built(PLUGIN, disks), disks, pending) == {"ssd": 100, "hdd": 33, "none": 0}


def test_the_profile_may_prefer_too(disks: ClusterState) -> None:
    """30 for hdd from the profile against 20 for ssd from the pod: 66."""
    added = _preferred((30, "disk", "hdd"))["nodeAffinity"]
    pending = pod("p", affinity=_preferred((20, "disk", "ssd")))

    assert scored(built(PLUGIN, disks, addedAffinity=added), disks, pending) == {
        "ssd": 66,
        "hdd": 100,
        "none": 0,
    }


def test_pod_without_preferences_is_not_scored(disks: ClusterState) -> None:
    """There is no score, instead of 0 for each node."""
    assert scored(built(PLUGIN, disks), disks, pod("p")) == {}


def _preferred(*terms: tuple[int, str, *tuple[str, ...]]) -> JsonObject:
    listed = [
        {"weight": weight, "preference": expression(key, "In", *values)}
        for weight, key, *values in terms
    ]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": listed}}


def named(*nodes: str) -> JsonObject:
    return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": list(nodes)}]}


def test_message_of_a_pod_that_names_its_node_covers_that_node_only() -> None:
    """A DaemonSet has a pod for each node."""
    nodes = [node("full", cpu=1), node("cordoned", unschedulable=True), node("other")]
    daemon = pod("p", cpu=2, affinity=required(named("full")))

    (refused,) = schedule([*nodes, daemon]).unschedulable

    assert refused.message.startswith(
        "0/3 nodes are available: 1 Insufficient cpu, "
        "2 node(s) didn't satisfy plugin(s) [NodeAffinity]. "
    )


def test_terms_that_name_different_nodes_conflict() -> None:
    """The requirements of a term must all hold, so no node is left."""
    fields = [*named("a")["matchFields"], *named("b")["matchFields"]]
    torn = pod("p", affinity=required({"matchFields": fields}))

    (refused,) = schedule([node("a"), node("b"), torn]).unschedulable

    assert refused.message.startswith("0/2 nodes are available: pod affinity terms conflict. ")


def test_term_without_names_allows_all_nodes() -> None:
    """Terms are alternatives: the other terms name their nodes."""
    nodes = [node("a", cpu=1, labels={"disk": "ssd"}), node("b", cpu=1), node("c")]
    torn = pod("p", cpu=2, affinity=required(named("b"), expression("disk", "Exists")))

    (refused,) = schedule([*nodes, torn]).unschedulable

    assert refused.message.startswith(f"0/3 nodes are available: 1 {REASON}, 2 Insufficient cpu. ")
