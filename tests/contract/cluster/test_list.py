"""Listing with selectors, over every adapter."""

import pytest
from tests.contract.cluster.objects import node, pod

from koordinator.api.meta import LabelSelector, LabelSelectorRequirement
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.cluster.port import Binding, Cluster
from koordinator.foundation.errors import InvalidError


@pytest.fixture
def keys(cluster: Cluster) -> Cluster:
    """Three pods in two namespaces; y/b is bound."""
    cluster.create(pod("b", "y", labels={"app": "web"}))
    cluster.create(pod("a", "y", labels={"app": "db"}, scheduler_name="koord-scheduler"))
    cluster.create(pod("c", "x"))
    assert cluster.bind([Binding("y", "b", "n1")]).results() == [None]
    return cluster


def listed(cluster: Cluster, **restrictions: object) -> list[str]:
    return [p.key for p in cluster.list(Pod, **restrictions).items]  # type: ignore[arg-type]  # by name


def test_list_is_sorted_and_complete(keys: Cluster) -> None:
    """Items come by namespace, then name; other kinds are not among them."""
    keys.create(node("n1"))

    assert listed(keys) == ["x/c", "y/a", "y/b"]
    assert listed(keys, namespace="y") == ["y/a", "y/b"]
    assert listed(keys, namespace="z") == []


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (None, ["x/c", "y/a", "y/b"]),
        (LabelSelector(), ["x/c", "y/a", "y/b"]),
        (LabelSelector(match_labels={"app": "web"}), ["y/b"]),
        (
            LabelSelector(
                match_expressions=(
                    LabelSelectorRequirement(key="app", operator="NotIn", values=("web",)),
                )
            ),
            ["x/c", "y/a"],
        ),
    ],
)
def test_label_selectors_restrict_lists(
    keys: Cluster, selector: LabelSelector | None, expected: list[str]
) -> None:
    """An absent or empty selector restricts nothing; requirements are ANDed."""
    assert listed(keys, label_selector=selector) == expected


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("metadata.name=c", ["x/c"]),
        ("metadata.namespace!=x", ["y/a", "y/b"]),
        ("spec.nodeName=n1", ["y/b"]),
        ("spec.nodeName==n1", ["y/b"]),
        ("spec.nodeName=", ["x/c", "y/a"]),
        ("spec.nodeName!=n1", ["x/c", "y/a"]),
        ("spec.nodeName=n2", []),
        ("spec.schedulerName=koord-scheduler", ["y/a"]),
        ("status.phase=Pending,spec.nodeName=,metadata.namespace=y", ["y/a"]),
    ],
)
def test_field_selectors_restrict_lists(keys: Cluster, selector: str, expected: list[str]) -> None:
    """Fields are compared as text with =, == and !=, and ANDed."""
    assert listed(keys, field_selector=selector) == expected


def test_selectors_and_namespace_combine(keys: Cluster) -> None:
    """Every restriction must hold."""
    assert listed(keys, namespace="x", field_selector="spec.nodeName=n1") == []


@pytest.mark.parametrize("selector", ["spec.overhead=1", "nonsense"])
def test_other_fields_are_refused(keys: Cluster, selector: str) -> None:
    """A field that the API doesn't select by is an error, not an empty list."""
    with pytest.raises(InvalidError):
        keys.list(Pod, field_selector=selector)


def test_nodes_are_selected_by_name_and_cordon(cluster: Cluster) -> None:
    """Each kind offers its own fields; booleans are true and false."""
    cluster.create(node("n1"))
    cluster.create(node("n2"))
    cluster.patch(Node, "n2", "", {"spec": {"unschedulable": True}})

    cordoned = cluster.list(Node, field_selector="spec.unschedulable=true").items
    assert [n.metadata.name for n in cordoned] == ["n2"]
