"""Explanations of pods whose affinity or spread constraints name labels, pods or nodes."""

import pytest
from tests.unit.scheduler.test_explained_pods import explained
from tests.worlds import ZONE, node, pod


@pytest.mark.parametrize(
    ("term", "where"),
    [
        ({"app": "dbb"}, "on any node (did you mean app=db?)"),
        ({"ap": "db"}, "on any node (did you mean app=db?)"),
        ({"app": "db"}, f"in the same {ZONE}"),
    ],
    ids=["misspelt value", "misspelt label", "elsewhere"],
)
def test_pods_that_affinity_requires_are_named(term: dict[str, str], where: str) -> None:
    """The selector, whether such pods are on any node, and a similar label that pods have."""
    required = {"labelSelector": {"matchLabels": term}, "topologyKey": ZONE}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [required]}}
    explanation = explained(
        node("a", zone="1"),
        node("b", cpu=1, zone="2"),
        pod("db", 1, on="b", labels={"app": "db"}),
        pod("p", 2, affinity=affinity),
    )

    (near,) = [each for each in explanation.nearest if each.node == "a"]
    ((key, value),) = term.items()
    assert near.details == (
        f"no pod with {key}={value}, which its podAffinity requires, is {where}",
    )


def test_node_without_the_topology_key_of_an_affinity_is_named() -> None:
    """A required pod is elsewhere, and this node belongs to no domain."""
    required = {"labelSelector": {}, "namespaces": ["b", "a"], "topologyKey": "rack"}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [required]}}
    explanation = explained(node("a"), pod("p", 2, affinity=affinity))

    (near,) = explanation.nearest
    assert near.details == ("it has no label rack, and no node has it",)


def test_label_of_a_spread_constraint_that_no_node_has_is_compared() -> None:
    constraint = {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zones",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    labels = {"topology.kubernetes.io/zone": "a"}
    explanation = explained(
        node("a", labels=labels), pod("p", 1, topologySpreadConstraints=[constraint])
    )

    (near,) = explanation.nearest
    (detail,) = near.details
    assert detail == (
        "it has no label topology.kubernetes.io/zones, and no node has it: did you mean "
        "topology.kubernetes.io/zone?"
    )


def test_node_that_a_pod_names_and_that_does_not_exist_is_named() -> None:
    field = {"key": "metadata.name", "operator": "In", "values": ["storage-1"]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    explanation = explained(node("storag-1"), pod("p", 1, affinity=affinity))

    (near,) = explanation.nearest
    assert near.details == (
        "lacks metadata.name In storage-1 (there is no node storage-1: did you mean storag-1?)",
    )
