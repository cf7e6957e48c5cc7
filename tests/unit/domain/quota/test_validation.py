"""Defaults and rejections of admission."""

from contextlib import nullcontext
from typing import Any

import pytest
from tests.unit.domain.quota.quotas import quota
from tests.worlds import pod as api_pod

from koordinator.api.elastic_quota import DEFAULT_QUOTA, ROOT_QUOTA, SYSTEM_QUOTA, ElasticQuota
from koordinator.domain.quota import (
    PlaceRules,
    QuotaTopology,
    check_changed_pod,
    check_changed_quota,
    check_deleted_quota,
    check_new_quota,
    check_pod_quota,
    with_quota_defaults,
)
from koordinator.foundation.errors import InputError

PREFIX = "quota.scheduling.koordinator.sh/"
WEIGHT = f"{PREFIX}shared-weight"
GUARANTEED = f"{PREFIX}guaranteed"
FORCE = {f"{PREFIX}allow-force-update": "true"}
LABEL = r"metadata.labels\[quota.scheduling.koordinator.sh/{}\]"
TEN = {"cpu": 10, "memory": "10Gi"}
FOUR = {"cpu": 4, "memory": "4Gi"}


def topology(*quotas: ElasticQuota) -> QuotaTopology:
    made = QuotaTopology()
    for one in quotas:
        made.put(one)
    return made


def known() -> QuotaTopology:
    """Return a department with two teams, which leave 2 of 10 to a third."""
    return topology(
        quota("dept", most=TEN, least=TEN, is_parent=True, bound=("dept-ns",)),
        quota("t1", "dept", most=TEN, least=FOUR),
        quota("t2", "dept", most=TEN, least=FOUR),
    )


@pytest.mark.parametrize(
    ("new", "message"),
    [
        (quota("dept", most=TEN), "metadata.name: must be unique across namespaces"),
        (
            quota("new", most=TEN, bound=("dept-ns",)),
            r"namespaces\]: must be a namespace that is not bound .* to dept, got 'dept-ns'",
        ),
        (
            quota("new", most=TEN, annotations={f"{PREFIX}namespaces": "ns"}),
            r"metadata.annotations\[.*/namespaces\]: not valid JSON",
        ),
        (quota("new", most={"cpu": -1}), r"spec.max\[cpu\]: must be .* at least 0, got '-1'"),
        (
            quota("new", most=TEN, least={"cpu": -1}),
            r"spec.min\[cpu\]: must be .* at least 0, got '-1'",
        ),
        (
            quota("new", most=TEN, weight={"cpu": -1}),
            r"shared-weight\]\[cpu\]: must be .* at least 0, got '-1'",
        ),
        (quota("new", most=TEN, annotations={WEIGHT: "{"}), r"shared-weight\]: not valid JSON"),
        (
            quota("new", most={"cpu": 1}, least={"memory": 1}),
            r"spec.min\[memory\]: must be set in spec.max",
        ),
        (
            quota("new", most=FOUR, least=TEN),
            r"spec.min\[cpu\]: must be at most 4, as in spec.max, got '10'",
        ),
        (
            quota("new", "gone", most=TEN),
            LABEL.format("parent") + ": must be .* existing quota, got 'gone'",
        ),
        (
            quota("new", "t1", most=TEN),
            LABEL.format("parent") + ": must be a parent quota, got 't1'",
        ),
        (
            quota("new", "dept", most=TEN, tree="x"),
            LABEL.format("tree-id") + ": must be '', the tree of its parent dept",
        ),
        (
            quota("new", "dept", most={"cpu": 1}),
            r"spec.max: must be .* of its parent dept: \['cpu', 'memory'\], got \['cpu'\]",
        ),
        (
            quota("new", "dept", most=TEN, least={"cpu": 3}),
            r"spec.min\[cpu\]: must be .* its parent dept has, 10, less .* children, 8, got '3'",
        ),
    ],
)
def test_a_new_quota_is_refused(new: ElasticQuota, message: str) -> None:
    """With the field, what was found there and what is accepted."""
    with pytest.raises(
        InputError, match=rf"^ElasticQuota tenants/{new.metadata.name}: .*{message}"
    ):
        check_new_quota(new, known(), PlaceRules())


@pytest.mark.parametrize(
    "new",
    [
        quota("new", most=TEN, least=TEN),
        quota("new", "dept", most=TEN, least={"cpu": 2}),
        quota("new", "dept", most=TEN, least={"cpu": 3}, labels=FORCE),
        quota("new", "dept", most={"cpu": 100, "memory": "1Ti"}),
        quota("new", most=TEN, least=TEN, is_parent=True, tree="x", total=FOUR),
        quota("new", most={"example.com/chip": 1}, is_parent=True),
        quota(ROOT_QUOTA, is_parent=True, lends=False),
        quota(SYSTEM_QUOTA, most=TEN),
    ],
)
def test_a_new_quota_is_accepted(new: ElasticQuota) -> None:
    """A child's maximum may be above its parent's; at the first level, minimums have no sum."""
    check_new_quota(new, known(), PlaceRules())


def test_minimums_are_of_resources_that_the_parent_has_one_for() -> None:
    """Though the parent's maximum may name more of them."""
    above = topology(quota("p", most=TEN, least={"cpu": 1}, is_parent=True))

    with pytest.raises(
        InputError, match=r"spec.min: must be .* its parent p at most.*, got \['memory'\]"
    ):
        check_new_quota(quota("c", "p", most=TEN, least={"memory": 0}), above, PlaceRules())


def test_children_may_name_fewer_resources_if_so_configured() -> None:
    """Gate ElasticQuotaEnableUpdateResourceKey: no others than the parent."""
    rules = PlaceRules(allows_fewer_resources=True)
    check_new_quota(quota("new", "dept", most={"cpu": 1}), known(), rules)

    with pytest.raises(InputError, match=r"spec.max: must be .*, got \['cpu', 'disk'\]"):
        check_new_quota(quota("new", "dept", most={"cpu": 1, "disk": 1}), known(), rules)


DEPT = quota("dept", most=TEN, least=TEN, is_parent=True, bound=("dept-ns",))
T1 = quota("t1", "dept", most=TEN, least=FOUR)


@pytest.mark.parametrize(
    ("old", "new", "pods", "message"),
    [
        (
            DEPT,
            quota("dept", most=TEN, least=TEN),
            (),
            LABEL.format("is-parent") + r": must be 'true' for a quota that has 2 child "
            r"quotas \(t1, t2\)",
        ),
        (
            T1,
            quota("t1", "dept", most=TEN, least=FOUR, is_parent=True),
            ("a", "b", "c"),
            LABEL.format("is-parent") + r": must be 'false' .* 3 pods \(a, b, \.\.\.\), got 'true'",
        ),
        (
            T1,
            quota("t1", "dept", most=TEN, least=FOUR, tree="x"),
            (),
            LABEL.format("tree-id") + ": must be its current tree, '', got 'x'",
        ),
        (
            DEPT,
            quota("dept", most=TEN, least={"cpu": 10}, is_parent=True),
            (),
            r"spec.min: must be the resources of its child t1 at least",
        ),
        (
            DEPT,
            quota("dept", most={"cpu": 10}, least={"cpu": 10}, is_parent=True),
            (),
            r"spec.max: must be the resources of its child t1",
        ),
        (
            DEPT,
            quota("dept", most=TEN, least={"cpu": 7, "memory": "10Gi"}, is_parent=True),
            (),
            r"spec.min\[cpu\]: must be at least the sum of its children's minimums, 8, got '7'",
        ),
        (
            T1,
            quota("t1", "dept", most=TEN, least=TEN),
            (),
            r"spec.min\[cpu\]: must be what its parent dept has, 10, less .*, 4",
        ),
        (
            T1,
            quota("t1", "dept", most=TEN, least=FOUR, annotations={WEIGHT: '{"cpu":"-1"}'}),
            (),
            r"shared-weight\]\[cpu\]: must be .*, got '-1'",
        ),
        (
            T1,
            quota(
                "t1",
                "dept",
                most=FOUR,
                used={"cpu": 5, "memory": "1Gi"},
                annotations={f"{PREFIX}max-strict-check-resource-keys": '["cpu","disk"]'},
            ),
            (),
            r"spec.max\[cpu\]: must be at least the used amount, 5, .*, got '4'",
        ),
        (
            T1,
            quota(
                "t1",
                most={"memory": 1},
                used={"cpu": 5},
                annotations={f"{PREFIX}max-strict-check-resource-keys": '["cpu"]'},
            ),
            (),
            r"spec.max\[cpu\]: must be at least the used amount, 5, .*, got None",
        ),
        (
            quota(SYSTEM_QUOTA),
            quota(SYSTEM_QUOTA, most=TEN),
            (),
            "metadata.name: must be the name of a quota that is not built in",
        ),
        (
            quota(ROOT_QUOTA),
            quota(ROOT_QUOTA, most=TEN),
            (),
            "metadata.name: must be the name of a quota that is not built in",
        ),
    ],
)
def test_a_change_is_refused(
    old: ElasticQuota, new: ElasticQuota, pods: tuple[str, ...], message: str
) -> None:
    """Beside the rules for new quotas: none may lose its parent, and it must have no pods."""
    with pytest.raises(
        InputError, match=rf"^ElasticQuota tenants/{new.metadata.name}: .*{message}"
    ):
        check_changed_quota(old, new, known(), PlaceRules(), pods)


def test_a_quota_may_not_move_below_itself() -> None:
    """The usage below the quota would be lost to the rest of the tree."""
    there = topology(
        quota("a", most=TEN, is_parent=True),
        quota("b", "a", most=TEN, is_parent=True),
        quota("c", "b", most=TEN, is_parent=True),
    )
    for parent in ("a", "b", "c"):
        moved = quota("a", parent, most=TEN, is_parent=True)
        with pytest.raises(
            InputError, match=rf"parent\]: must be neither the quota itself .*, got '{parent}'"
        ):
            check_changed_quota(
                quota("a", most=TEN, is_parent=True), moved, there, PlaceRules(), ()
            )


def test_what_no_rule_reads_may_change_in_a_quota_that_breaks_the_rules() -> None:
    """The scheduler can always write the status of such a quota."""
    broken = quota("t1", "gone", most=FOUR, least=TEN)
    reported = quota("t1", "gone", most=FOUR, least=TEN, used={"cpu": 1}, lends=False)

    check_changed_quota(broken, reported, known(), PlaceRules(), ())


def test_the_default_quota_may_be_changed() -> None:
    """The default quota is the one built-in quota whose maximum users set."""
    check_changed_quota(
        quota(DEFAULT_QUOTA), quota(DEFAULT_QUOTA, most=TEN), known(), PlaceRules(), ()
    )


@pytest.mark.parametrize(
    ("name", "pods", "message"),
    [
        (
            "dept",
            (),
            r"must not have child quotas when it is deleted, got 2 child quotas \(t1, t2\)",
        ),
        ("t1", ("a",), r"must not have pods when it is deleted, got 1 pod \(a\)"),
        (ROOT_QUOTA, (), "a built-in quota must not be deleted"),
        (SYSTEM_QUOTA, (), "a built-in quota must not be deleted"),
        (DEFAULT_QUOTA, (), "a built-in quota must not be deleted"),
    ],
)
def test_a_quota_that_is_needed_is_not_deleted(
    name: str, pods: tuple[str, ...], message: str
) -> None:
    """By children, by pods, or by both."""
    with pytest.raises(InputError, match=rf"^ElasticQuota tenants/{name}: {message}"):
        check_deleted_quota(quota(name), known(), pods)


def test_an_unused_quota_may_be_deleted() -> None:
    """The name and the namespaces of a deleted quota are available again."""
    there = known()
    for name in ("t1", "t2", "dept"):
        check_deleted_quota(quota(name), there, ())
        there.remove(name)

    check_new_quota(DEPT, there, PlaceRules())
    assert there.children(ROOT_QUOTA) == []


@pytest.mark.parametrize(
    ("least", "dept", "root", "accepted"),
    [
        (4, 8, 10, True),  # not more than it is guaranteed already
        (6, 10, 10, True),  # the department's guarantee covers it
        (6, 8, 10, True),  # the root's does
        (7, 8, 10, False),
    ],
)
def test_a_raised_minimum_has_to_be_guaranteed(
    least: int, dept: int, root: int, accepted: bool
) -> None:
    """Gate ElasticQuotaGuaranteeUsage: by an ancestor, beside what its other children are."""

    def made(name: str, parent: str = "", guaranteed: int = 0, **more: Any) -> ElasticQuota:
        annotations = {GUARANTEED: f'{{"cpu":"{guaranteed}"}}'}
        return quota(name, parent, most={"cpu": 20}, tree="t", annotations=annotations, **more)

    there = topology(
        made("root", guaranteed=root, least={"cpu": root}, is_parent=True),
        made("dept", "root", dept, least={"cpu": dept}, is_parent=True),
        made("team", "dept", 4),
        made("other", "dept", 4),
    )
    raised = made("team", "dept", 4, least={"cpu": least})
    refusal = pytest.raises(
        InputError, match=r"spec.min: must be .* root root of its tree .*, got 'cpu 7'"
    )
    with nullcontext() if accepted else refusal:
        check_changed_quota(
            made("team", "dept", 4), raised, there, PlaceRules(guarantees_usage=True), ()
        )


def test_a_guarantee_that_cannot_be_read_is_none() -> None:
    """The scheduler will write it again."""
    parent = quota(
        "p", most=TEN, least=TEN, is_parent=True, tree="t", annotations={GUARANTEED: "{"}
    )
    child = quota("c", "p", most=TEN, least=FOUR, tree="t")

    with pytest.raises(
        InputError, match=r"spec.min: must be .* root p of its .*, got 'cpu 4, memory 4Gi'"
    ):
        check_new_quota(child, topology(parent), PlaceRules(guarantees_usage=True))


def test_pods_belong_to_quotas_without_children() -> None:
    """SupportParentQuotaSubmitPod lifts the rule; an unknown quota is the default one."""
    one = api_pod("p")
    check_pod_quota(one, T1, parents_take_pods=False)
    check_pod_quota(one, None, parents_take_pods=False)
    check_pod_quota(one, DEPT, parents_take_pods=True)

    with pytest.raises(InputError, match=r"^Pod default/p: .*name\]: must be .* below dept"):
        check_pod_quota(one, DEPT, parents_take_pods=False)


def test_a_pod_stays_preemptible_or_not() -> None:
    """The minimum was checked when it was created."""
    fixed = api_pod("p", labels={f"{PREFIX}preemptible": "false"})
    check_changed_pod(fixed, fixed)

    with pytest.raises(
        InputError, match=r"preemptible\]: must be the value at creation, 'false', got ''"
    ):
        check_changed_pod(fixed, api_pod("p"))


def test_parent_tree_and_weights_are_filled_in() -> None:
    """The tree is the parent's; weights are of the resources of the maximum."""
    there = topology(quota("p", most=TEN, is_parent=True, tree="t"))
    new = quota("c", "p", most=TEN, weight={"cpu": 3, "disk": 1})

    filled = with_quota_defaults(new, there)

    assert filled.tree_id == "t"
    assert filled.metadata.annotations[WEIGHT] == '{"cpu":"3","memory":"10Gi"}'
    assert with_quota_defaults(filled, there) is filled
    first = with_quota_defaults(quota("first", most=FOUR), there)
    assert first.metadata.labels == {f"{PREFIX}parent": ROOT_QUOTA}
    assert first.metadata.annotations[WEIGHT] == '{"cpu":"4","memory":"4Gi"}'
    root = quota(ROOT_QUOTA)
    assert with_quota_defaults(root, there) is root


@pytest.mark.parametrize(
    ("new", "message"),
    [
        (
            quota("c", "gone", most=TEN),
            r"parent\]: must be the name of an existing quota, got 'gone'",
        ),
        (quota("c", most=TEN, annotations={WEIGHT: "{"}), r"shared-weight\]: not valid JSON"),
    ],
)
def test_nothing_is_filled_into_what_cannot_be_read(new: ElasticQuota, message: str) -> None:
    """An unknown parent has no tree to inherit."""
    with pytest.raises(InputError, match=f"^ElasticQuota tenants/c: .*{message}"):
        with_quota_defaults(new, topology())


@pytest.mark.parametrize(
    ("parent", "labels", "outcome"),
    [
        ("wide", {}, nullcontext()),
        ("wide", {f"{PREFIX}allow-force-update": "true"}, nullcontext()),
        ("narrow", {}, pytest.raises(InputError, match=r"must be a parent with 4 .*available")),
        ("narrow", {f"{PREFIX}allow-force-update": "true"}, nullcontext()),
    ],
)
def test_quota_moves_only_to_a_parent_with_room_for_its_usage(
    parent: str, labels: dict[str, str], outcome: Any
) -> None:
    """The usage of its pods must fit below the maximum of the new parent."""
    old = quota("t", "dept", most=TEN, used={"cpu": 4}, labels=labels)
    around = topology(
        quota("dept", most=TEN, is_parent=True),
        quota("wide", most=TEN, used={"cpu": 6}, is_parent=True),
        quota("narrow", most=TEN, used={"cpu": 7}, is_parent=True),
        old,
    )
    new = quota("t", parent, most=TEN, used={"cpu": 4}, labels=labels)

    with outcome:
        check_changed_quota(old, new, around, PlaceRules(), [])


@pytest.mark.parametrize("key", ["policy", "order", "depth"])
def test_an_unknown_queue_policy_is_rejected(key: str) -> None:
    """The accepted words are named."""
    new = quota("new", most=TEN, annotations={f"{PREFIX}queue-{key}": "lifo"})

    with pytest.raises(InputError, match=rf"queue-{key}\]: must be "):
        check_new_quota(new, known(), PlaceRules())
