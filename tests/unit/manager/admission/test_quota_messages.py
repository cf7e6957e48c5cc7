"""Programs that match the texts of the original's quota webhooks find them, before ours."""

from typing import Any

import pytest
from tests.unit.manager.admission.requests import lookup, pod, request
from tests.unit.manager.admission.test_validation import quota

from koordinator.manager.admission.gates import DEFAULT_GATES, ManagerFeature
from koordinator.manager.admission.lookup import Denial
from koordinator.manager.admission.pod_validation import validate_pod
from koordinator.manager.admission.quotas import mutate_quota, validate_quota

PREFIX = "quota.scheduling.koordinator.sh/"
TREE_7: dict[str, Any] = {f"{PREFIX}tree-id": "7"}


def sized(
    name: str,
    parent: str = "",
    *,
    most: dict[str, Any] | None = None,
    least: dict[str, Any] | None = None,
    annotations: dict[str, str] | None = None,
    used: dict[str, Any] | None = None,
    **more: Any,
) -> Any:
    """Return a quota of at most 10 CPUs, or of what is given."""
    made = quota(name, parent, **more)
    made["metadata"]["annotations"] = annotations or {}
    made["spec"] = {"max": most or {"cpu": "10"}, "min": least or {}}
    if used is not None:
        made["status"] = {"used": used}
    return made


TREE = (
    sized(
        "dept", is_parent=True, least={"cpu": "10"}, annotations={f"{PREFIX}namespaces": '["d"]'}
    ),
    sized("t1", "dept", least={"cpu": "4"}),
    sized("t2", "dept", least={"cpu": "4"}),
)
LABEL = {f"{PREFIX}name": "t1"}


@pytest.mark.parametrize(
    ("new", "original"),
    [
        (sized("t1"), "AddQuota quota already exist:t1"),
        (
            sized("x", annotations={f"{PREFIX}namespaces": '["d"]'}),
            "AddQuota quota x's annotation namespace d is already bound to quota dept",
        ),
        (sized("x", most={"cpu": "-1"}), "x quota.Spec.Max's value < 0, in dimensions :[cpu]"),
        (sized("x", least={"cpu": "-1"}), "x quota.Spec.Min's value < 0, in dimensions :[cpu]"),
        (
            sized("x", annotations={f"{PREFIX}shared-weight": '{"cpu": -1}'}),
            f"x quota.Annotation[{PREFIX}shared-weight]'s value < 0, in dimension :[cpu]",
        ),
        (
            sized("x", least={"memory": "1Gi"}),
            "resourceKey memory of quota x is included in min, which is not included in max",
        ),
        (sized("x", least={"cpu": "11"}), "resourceKey cpu of quota x min 11 > max 10"),
        (
            sized("x", "dept", **TREE_7),
            "x tree id is different from parent dept, [7] vs []",
        ),
        (
            sized("x", "nobody"),
            "x has parentName nobody but not find parentInfo in quotaInfoMap",
        ),
        (
            sized("x", "t1"),
            "x has parentName t1 but the parentQuotaInfo's IsParent is false",
        ),
        (
            sized("x", "dept", most={"memory": "1Gi"}),
            (
                "failed to check sub and parent group quotaKey, err: "
                "checkSubAndParentGroupQuotaKey failed: dept's max keys are not the same with x's"
            ),
        ),
        (
            sized("x", "dept", least={"cpu": "3"}),
            "checkMinQuotaSum all brothers' MinQuota > parent MinQuota, parent: dept",
        ),
    ],
)
def test_denied_creation_has_the_message_of_the_original(new: Any, original: str) -> None:
    """Our own words, with object and field, come after it."""
    with pytest.raises(Denial) as denial:
        validate_quota(request(new), lookup(*TREE), DEFAULT_GATES)

    text = str(denial.value)
    assert text.startswith(f"{original}; ElasticQuota default/{new['metadata']['name']}: ")
    assert "must be" in text


@pytest.mark.parametrize(
    ("old", "new", "original"),
    [
        (
            TREE[0],
            sized("dept", is_parent=True, least={"cpu": "7"}),
            "checkMinQuotaSum all children's MinQuota > current MinQuota, current: dept",
        ),
        (
            TREE[0],
            sized("dept", least={"cpu": "10"}),
            "quota has children, isParent is forbidden to modify as false, quotaName:dept",
        ),
        (
            TREE[1],
            sized("t1", "dept", is_parent=True),
            "quota has bound pods, isParent is forbidden to modify as true, quotaName: t1",
        ),
        (TREE[1], sized("t1", "dept", **TREE_7), "t1 tree id changed [] vs [7]"),
        (
            TREE[1],
            sized("t1", "dept", annotations={f"{PREFIX}namespaces": '["d"]'}),
            (
                "UpdadteQuota, quota t1 update namespaces, but namespace d is already bound to "
                "quota dept"
            ),
        ),
        (
            TREE[1],
            sized(
                "t1",
                "dept",
                used={"cpu": "11"},
                annotations={f"{PREFIX}max-strict-check-resource-keys": '["cpu"]'},
            ),
            "resourceKey cpu of quota t1 max 10 < used 11",
        ),
        (
            sized("koordinator-root-quota"),
            sized("koordinator-root-quota", most={"cpu": "1"}),
            "invalid quota koordinator-root-quota",
        ),
    ],
)
def test_denied_update_has_the_message_of_the_original(old: Any, new: Any, original: str) -> None:
    """Programs know them."""
    user = pod(labels=LABEL) | {"apiVersion": "v1", "kind": "Pod"}
    user["metadata"]["namespace"] = "default"

    with pytest.raises(Denial) as denial:
        validate_quota(request(new, "UPDATE", old), lookup(*TREE, user), DEFAULT_GATES)

    assert str(denial.value).startswith(f"{original}; ")


@pytest.mark.parametrize(
    ("name", "original"),
    [
        ("dept", "delete quota failed, quota dept has 2 child quotas"),
        ("t1", "delete quota failed, quota t1 has 1 child pods: p"),
        ("koordinator-default-quota", "can not delete quotaGroup :koordinator-default-quota"),
    ],
)
def test_denied_deletion_has_the_message_of_the_original(name: str, original: str) -> None:
    """Programs know them."""
    user = pod(labels=LABEL) | {"apiVersion": "v1", "kind": "Pod"}
    user["metadata"]["namespace"] = "default"
    world = lookup(*TREE, user)

    with pytest.raises(Denial) as denial:
        validate_quota(request({}, "DELETE", sized(name)), world, DEFAULT_GATES)

    assert str(denial.value).startswith(f"{original}; ")


def test_an_unknown_parent_is_refused_by_the_mutating_hook_in_the_words_of_the_original() -> None:
    """The mutating webhook runs before the validating one."""
    with pytest.raises(Denial, match=r"^fill quota x failed, parent not exist; "):
        mutate_quota(request(sized("x", "nobody")), lookup(*TREE), DEFAULT_GATES)


def test_a_guarantee_that_no_ancestor_covers_is_refused_in_the_words_of_the_original() -> None:
    """The root of the tree cannot guarantee the minimum."""
    root = sized("root", is_parent=True, least={"cpu": "10"}, **TREE_7)
    gates = DEFAULT_GATES | {ManagerFeature.QUOTA_GUARANTEE}

    with pytest.raises(Denial, match=r"^tree root quota root can't guarantee for min x; "):
        validate_quota(
            request(sized("x", "root", least={"cpu": "1"}, **TREE_7)), lookup(root), gates
        )


@pytest.mark.parametrize(
    ("old", "labels", "original"),
    [
        (
            None,
            {f"{PREFIX}name": "dept"},
            "pod can not be linked to a parentQuotaGroup,quota:dept, pod:p",
        ),
        (pod(), {f"{PREFIX}preemptible": "false"}, "Preemptible label is forbidden modify now."),
    ],
)
def test_denied_pod_has_the_message_of_the_original(
    old: Any, labels: dict[str, str], original: str
) -> None:
    """As quotas do."""
    admission = request(pod(labels=labels), "UPDATE" if old else "CREATE", old)

    with pytest.raises(Denial) as denial:
        validate_pod(admission, lookup(*TREE), DEFAULT_GATES)

    assert str(denial.value).startswith(f"{original}; ")
