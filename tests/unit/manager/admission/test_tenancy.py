"""References of quotas and pods to other namespaces, and writers of allocations."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.manager.admission.requests import lookup, namespace, pod, request

from koordinator.api.control_plane import ResourceAttributes, UserInfo
from koordinator.manager.admission.gates import DEFAULT_GATES, ManagerFeature
from koordinator.manager.admission.lookup import Denial
from koordinator.manager.admission.pod_mutation import mutate_pod
from koordinator.manager.admission.pod_validation import validate_pod
from koordinator.manager.admission.quotas import validate_quota
from koordinator.manager.admission.tenancy import ANNOTATIONS, LABELS
from koordinator.manager.lookups import ReaderLookup

PREFIX = "quota.scheduling.koordinator.sh/"
IGNORED = "scheduling.koordinator.sh/reservation-ignored"
STRICT = DEFAULT_GATES | {ManagerFeature.STRICT_TENANCY}
EVE = UserInfo(username="eve", groups=("tenants",))


def quota(
    name: str,
    where: str = "evil",
    *,
    labels: dict[str, str] | None = None,
    most: str = "8",
    **annotations: Any,
) -> dict[str, Any]:
    """Return a quota; labels and annotations without their prefix."""
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {
            "name": name,
            "namespace": where,
            "labels": {PREFIX + key: text for key, text in (labels or {}).items()},
            "annotations": {
                PREFIX + key.replace("_", "-"): json.dumps(value)
                for key, value in annotations.items()
            },
        },
        "spec": {"max": {"cpu": most}, "min": {"cpu": "0"}},
    }


NAMESPACES = [namespace(name) for name in ("evil", "bank", "koordinator-system", "kube-system")]
DEPARTMENT = quota("dept", "bank", labels={"is-parent": "true"})


def rights(*granted: tuple[str, str, str, str]) -> Callable[..., bool]:
    """Return an API server that grants a user these: name, verb, resource, namespace."""

    def permits(user: UserInfo, attributes: ResourceAttributes) -> bool:
        return (
            user.username,
            attributes.verb,
            attributes.resource,
            attributes.namespace,
        ) in granted

    return permits


def world(*objects: Any, granted: tuple[tuple[str, str, str, str], ...] = ()) -> ReaderLookup:
    """Return a cluster with some namespaces and rights."""
    result = lookup(*NAMESPACES, *objects)
    result.permits = rights(*granted)
    return result


def refusal(made: dict[str, Any], there: ReaderLookup, *, gates: Any = DEFAULT_GATES) -> str:
    """Return why Eve may not create a quota; empty if she may."""
    try:
        validate_quota(request(made, requester=EVE), there, gates)
    except Denial as denial:
        return str(denial)
    return ""


FOREIGN: list[tuple[dict[str, Any], str, tuple[str, str, str, str]]] = [
    (
        quota("q", namespaces=["bank"], most="0"),
        "got 'bank'",
        ("create", "elasticquotas", "bank", ""),
    ),
    (
        quota("q", namespaces=["evil", "kube-system"]),
        "got 'kube-system'",
        ("create", "elasticquotas", "kube-system", ""),
    ),
    (
        quota("bank", most="0"),
        "must not be that of another namespace",
        ("create", "elasticquotas", "bank", ""),
    ),
    (
        quota("koordinator-default-quota", most="0"),
        "built-in quota",
        ("create", "elasticquotas", "koordinator-system", ""),
    ),
    (
        quota("koordinator-system-quota"),
        "built-in quota",
        ("create", "elasticquotas", "koordinator-system", ""),
    ),
    (
        quota("q", labels={"parent": "dept"}),
        "got bank/dept",
        ("update", "elasticquotas", "bank", ""),
    ),
    (
        quota("q", labels={"is-root": "true", "tree-id": "t"}, total_resource={"cpu": "9"}),
        "may not create elasticquotaprofiles",
        ("create", "elasticquotaprofiles", "evil", ""),
    ),
]


@pytest.mark.parametrize(("made", "problem", "right"), FOREIGN)
def test_a_quota_binds_nothing_of_another_namespace(
    made: dict[str, Any], problem: str, right: tuple[str, str, str, str]
) -> None:
    """Users with rights in the other namespace may use the quota there."""
    assert problem in refusal(made, world(DEPARTMENT))
    verb, resource, where, _ = right
    assert refusal(made, world(DEPARTMENT, granted=(("eve", verb, resource, where),))) == ""
    assert problem in refusal(made, world(DEPARTMENT, granted=(("bob", verb, resource, where),)))


@pytest.mark.parametrize(
    ("made", "objects"),
    [
        (quota("q", namespaces=["bank"]), [namespace("bank", **{f"{PREFIX}name": "q"})]),
        (
            quota("q", labels={"parent": "dept"}),
            [quota("dept", "bank", labels={"is-parent": "true"}, child_namespaces=["evil"])],
        ),
        (
            quota("q", labels={"parent": "dept"}),
            [quota("dept", "bank", labels={"is-parent": "true"}, child_namespaces=["*"])],
        ),
        (quota("q", namespaces=["evil"]), []),
        (quota("evil"), []),
        (
            quota("q", labels={"parent": "own"}),
            [quota("own", labels={"is-parent": "true"})],
        ),
    ],
)
def test_quota_binds_only_its_own_or_agreeing_namespaces(
    made: dict[str, Any], objects: Any
) -> None:
    """By a label of the namespace, or an annotation of the parent."""
    assert refusal(made, lookup(namespace("evil"), *objects)) == ""


def test_an_unchanged_quota_needs_no_further_review() -> None:
    """Any user may update other fields."""
    before = quota("q", namespaces=["bank"], labels={"parent": "dept"})
    after = quota("q", namespaces=["bank"], labels={"parent": "dept"}, most="4")
    there = world(DEPARTMENT, before)
    validate_quota(request(after, "UPDATE", before, requester=EVE), there, DEFAULT_GATES)

    more = quota("q", namespaces=["bank", "kube-system"], labels={"parent": "dept"})
    with pytest.raises(Denial, match="kube-system"):
        validate_quota(request(more, "UPDATE", before, requester=EVE), there, DEFAULT_GATES)


def test_components_bind_what_they_have_to() -> None:
    """The scheduler creates the built-in quotas, the manager creates quotas of profiles."""
    for made, _, _ in FOREIGN:
        admission = request(made, requester=EVE, is_of_component=True)
        validate_quota(admission, world(DEPARTMENT), DEFAULT_GATES)


def test_quotas_below_the_root_need_a_right_where_tenancy_is_strict() -> None:
    """A child of the root shares the whole cluster."""
    assert refusal(quota("q"), world()) == ""
    assert "may not update quota koordinator-root-quota" in refusal(
        quota("q"), world(), gates=STRICT
    )
    right = ("eve", "update", "elasticquotas", "koordinator-system")
    assert refusal(quota("q"), world(granted=(right,)), gates=STRICT) == ""


def admitted(made: Any, there: ReaderLookup, *, gates: Any, old: Any = None, **more: Any) -> str:
    """Return why Eve may not create or change a pod in the namespace evil; empty if she may."""
    made = {**made, "metadata": {**made["metadata"], "namespace": "evil"}}
    operation = "CREATE" if old is None else "UPDATE"
    try:
        validate_pod(request(made, operation, old, requester=EVE, **more), there, gates)
    except Denial as denial:
        return str(denial)
    return ""


def test_pods_use_quotas_of_others_only_where_they_may() -> None:
    """With strict tenancy: the user, or the service account of the pod, needs a right."""
    there = world(quota("bank", "bank"), quota("shared", "bank", namespaces=["evil"]))
    foreign, shared = pod(labels={f"{PREFIX}name": "bank"}), pod(labels={f"{PREFIX}name": "shared"})

    assert admitted(foreign, there, gates=DEFAULT_GATES) == ""
    assert "got bank/bank" in admitted(foreign, there, gates=STRICT)
    assert admitted(shared, there, gates=STRICT) == ""
    assert admitted(foreign, there, gates=STRICT, old=foreign) == ""
    for name in ("eve", "system:serviceaccount:evil:robot"):
        there.permits = rights((name, "use", "elasticquotas", "bank"))
        made = pod(labels={f"{PREFIX}name": "bank"}, serviceAccountName="robot")
        assert admitted(made, there, gates=STRICT) == ""
        assert bool(admitted(foreign, there, gates=STRICT)) is (name != "eve")


def test_pods_ignore_reservations_only_in_namespaces_that_may() -> None:
    """With strict tenancy."""
    made = pod(labels={IGNORED: "true"})
    assert admitted(made, world(), gates=DEFAULT_GATES) == ""
    assert "reservation-ignored" in admitted(made, world(), gates=STRICT)
    assert admitted(made, lookup(namespace("evil", **{IGNORED: "true"})), gates=STRICT) == ""


@given(st.sampled_from(sorted(ANNOTATIONS)), st.sampled_from(["{}", "", "x", '{"cpuset":"0"}']))
def test_only_components_write_allocations_of_pods(key: str, text: str) -> None:
    """Forged allocations are removed from a new pod; on an update the stored ones stay."""
    plain, forged = pod(), pod(annotations={key: text, "mine": "1"})
    made = mutate_pod(request(forged, requester=EVE), world(), DEFAULT_GATES)
    assert made["metadata"]["annotations"] == {"mine": "1"}
    for old, new in ((plain, forged), (forged, plain)):
        assert f"metadata.annotations[{key}]: Forbidden" in admitted(
            new, world(), gates=DEFAULT_GATES, old=old
        )
        assert admitted(new, world(), gates=DEFAULT_GATES, old=old, is_of_component=True) == ""
        binder = world(granted=(("eve", "create", "pods", "evil"),))
        assert admitted(new, binder, gates=DEFAULT_GATES, old=old) == ""
    assert admitted(forged, world(), gates=DEFAULT_GATES, old=forged) == ""


def test_labels_of_the_scheduler_are_its_own_as_well() -> None:
    """The node of a share of a GPU."""
    (label,) = LABELS
    forged = pod(labels={label: "n1", "app": "x"})
    made = mutate_pod(request(forged, requester=EVE), world(), DEFAULT_GATES)
    assert made["metadata"]["labels"] == {"app": "x"}
    assert "Forbidden" in admitted(forged, world(), gates=DEFAULT_GATES, old=pod())
