"""The root quota of a profile: as large as its nodes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.manager.node_resources.nodes import amounts

from koordinator.api.codec import decode
from koordinator.api.elastic_quota import ElasticQuota, ElasticQuotaProfile
from koordinator.api.node import Node
from koordinator.manager.controllers import ReconcileOutcome, reconcile_quota_profile, tree_id
from koordinator.manager.writes import Create, Patch

PREFIX = "quota.scheduling.koordinator.sh/"


def node(name: str, pool: str = "a", ready: str = "True", **spec: Any) -> Node:
    """Return a node of 10 CPUs."""
    status = {
        "allocatable": amounts(10, "10Gi"),
        "conditions": [{"type": "Ready", "status": ready}],
    }
    meta = {"name": name, "labels": {"pool": pool}}
    return decode({"metadata": meta, "spec": spec, "status": status}, Node)


def profile(annotations: dict[str, str] | None = None, **spec: Any) -> ElasticQuotaProfile:
    """Return a profile for the nodes of pool a."""
    whole = {"quotaName": "root", "nodeSelector": {"matchLabels": {"pool": "a"}}} | spec
    meta = {"name": "p", "namespace": "q", "annotations": annotations or {}}
    return decode({"metadata": meta, "spec": whole}, ElasticQuotaProfile)


NODES = [node("a1"), node("a2", unschedulable=True), node("a3", ready="False"), node("b", "b")]


def created(one: ElasticQuotaProfile) -> ElasticQuota:
    """Return the quota that is made of a profile without one."""
    label, quota = reconcile_quota_profile(one, None, NODES).writes
    assert isinstance(label, Patch)
    assert label.body == {"metadata": {"labels": {f"{PREFIX}tree-id": tree_id("q/p")}}}
    assert isinstance(quota, Create)
    assert isinstance(quota.obj, ElasticQuota)
    return quota.obj


def test_a_profile_gets_a_tree_and_a_root() -> None:
    """With what its nodes have, and what of that can't be used now."""
    quota = created(profile(quotaLabels={"x": "y"}))

    assert quota.metadata.labels == {
        f"{PREFIX}profile": "p",
        f"{PREFIX}is-root": "true",
        f"{PREFIX}tree-id": tree_id("q/p"),
        "x": "y",
    }
    result = {k.removeprefix(PREFIX): json.loads(v) for k, v in quota.metadata.annotations.items()}
    assert result == {
        "total-resource": {"cpu": "30", "memory": "30Gi"},
        "unschedulable-resource": {"cpu": "20", "memory": "20Gi"},
    }
    assert {name: str(each) for name, each in quota.spec.min.items()} == amounts("30", "30Gi")
    assert {each.value() for each in quota.spec.max.values()} == {4611686018427387}


@pytest.mark.parametrize(
    ("ratio", "cpu"), [("0.55", "16500m"), ("1", "30"), ("7", "30"), ("x", "30")]
)
def test_a_ratio_leaves_a_part_of_it(ratio: str, cpu: str) -> None:
    """An invalid ratio counts as 1, as in the original, and is a problem."""
    one = profile(resourceRatio=ratio)
    problem = reconcile_quota_profile(one, None, NODES).problem

    assert str(created(one).spec.min["cpu"]) == cpu
    assert problem == (
        ""
        if ratio in {"0.55", "1"}
        else "ElasticQuotaProfile q/p: spec.resourceRatio: must be a number above 0 and at most 1, "
        f"got {ratio!r}; the quota gets all resources of its nodes"
    )


def test_resource_keys_are_the_profiles() -> None:
    """A resource that no node has is 0."""
    annotations = {f"{PREFIX}resource-keys": '["cpu","example.com/x"]'}

    assert {k: str(v) for k, v in created(profile(annotations)).spec.min.items()} == {
        "cpu": "30",
        "example.com/x": "0",
    }


def test_a_root_follows_its_nodes() -> None:
    """Fields that others have written stay."""
    tree = {f"{PREFIX}tree-id": tree_id("q/p")}
    known = decode(
        {
            "metadata": {"name": "p", "namespace": "q", "labels": tree},
            "spec": {"quotaName": "root", "nodeSelector": {"matchLabels": {"pool": "a"}}},
        },
        ElasticQuotaProfile,
    )
    quota = created(profile())

    assert reconcile_quota_profile(known, quota, NODES) == ReconcileOutcome([])
    (patch,) = reconcile_quota_profile(known, quota, NODES[:1]).writes
    assert isinstance(patch, Patch)
    assert patch.body["spec"]["min"] == amounts("10", "10Gi")
    assert "labels" not in patch.body["metadata"]


def test_a_selector_that_cannot_be_read_is_refused() -> None:
    """The nodes of an invalid selector are unknown."""
    broken = {"matchExpressions": [{"key": "a", "operator": "Like"}]}
    outcome = reconcile_quota_profile(profile(nodeSelector=broken), None, NODES)

    assert not outcome.writes
    assert outcome.problem.startswith("ElasticQuotaProfile q/p: ")
    assert "Like" in outcome.problem


def test_resource_keys_that_cannot_be_read_are_a_problem() -> None:
    """The quota has CPU and memory, as in the original."""
    annotations = {f"{PREFIX}resource-keys": "cpu,memory"}
    outcome = reconcile_quota_profile(profile(annotations), None, NODES)

    assert len(outcome.writes) == 2
    assert f"metadata.annotations[{PREFIX}resource-keys]" in outcome.problem
    assert outcome.problem.endswith("; the quota has cpu, memory")


@given(order=st.permutations([("b", 1), ("a", 2), ("c", 1)]), ends=st.booleans())
def test_one_of_the_profiles_that_name_a_quota_maintains_it(
    order: list[tuple[str, int]], *, ends: bool
) -> None:
    """The oldest that is not being deleted, then the first by name, in any order of the list."""
    both = [named(*each, ends=ends and each[0] == "b") for each in order]
    elsewhere = named("0", 0, namespace="other")
    other = named("0", 0, quota="another")

    outcomes = {
        each.metadata.name: reconcile_quota_profile(each, None, NODES, [elsewhere, *both, other])
        for each in both
        if each.metadata.deletion_timestamp is None
    }

    owner = "c" if ends else "b"
    assert [name for name, outcome in outcomes.items() if outcome.writes] == [owner]
    assert {name: outcome.problem for name, outcome in outcomes.items() if name != owner} == {
        name: f"ElasticQuotaProfile q/{name}: spec.quotaName: must be unique in its namespace, got "
        f"'root' as in ElasticQuotaProfile q/{owner}"
        for name in outcomes.keys() - {owner}
    }


def named(
    name: str, born: int, quota: str = "root", namespace: str = "q", *, ends: bool = False
) -> ElasticQuotaProfile:
    """Return a profile that was created at a second of one minute."""
    meta = {
        "name": name,
        "namespace": namespace,
        "creationTimestamp": f"2026-01-31T12:00:0{born}Z",
        **({"deletionTimestamp": "2026-01-31T12:01:00Z"} if ends else {}),
    }
    spec = {"quotaName": quota, "nodeSelector": {}}
    return decode({"metadata": meta, "spec": spec}, ElasticQuotaProfile)


def test_trees_are_numbered_by_their_name() -> None:
    """FNV-1a, 64 bits: the published value of an empty and of a short text."""
    assert tree_id("") == str(0xCBF29CE484222325)
    assert tree_id("a") == str(0xAF63DC4C8601EC8C)
