"""Quota trees: what is summed up, and what each quota may use.

Numbers are chips by default.  Examples without another source are from the behavioural
specification.
"""

import pytest
from tests.unit.domain.quota.quotas import CHIP, GIB, chips, grow, pod, want

from koordinator.api.elastic_quota import DEFAULT_QUOTA, ROOT_QUOTA, SYSTEM_QUOTA
from koordinator.domain.quota import QuotaSpec, QuotaTree, figures_of
from koordinator.domain.quota.shares import UNLIMITED
from koordinator.foundation.errors import InputError


def tree(total: int | None = None, **options: bool) -> QuotaTree:
    made = QuotaTree({SYSTEM_QUOTA: {CHIP: 1 << 60}, DEFAULT_QUOTA: {CHIP: 1 << 60}}, **options)
    if total is not None:
        made.set_total({CHIP: total})
    return made


def test_siblings_share_by_weight() -> None:
    """Example A; B, in which blue keeps its minimum."""
    made = tree(120)
    grow(made, "blue", most=100, least=20, weight=30, request=12)
    grow(made, "green", most=100, least=25, weight=50, request=34)
    grow(made, "red", most=100, least=10, weight=70, request=90)
    grow(made, "gold", most=100, least=15, weight=50, request=60)
    assert chips(made, "blue", "green", "red", "gold") == [12, 34, 39, 35]

    grow(made, "blue", most=100, least=20, weight=30, request=12, lends=False)
    assert chips(made, "blue", "green", "red", "gold") == [20, 34, 33, 33]


def test_a_parent_s_share_is_shared_by_its_children() -> None:
    """Example D: weights are the maximums, a parent requests the limits of its children."""
    made = tree(90)
    grow(made, "dept", most=60, least=40)
    grow(made, "t1", "dept", most=30, least=25, request=45)
    grow(made, "t2", "dept", most=50, least=10, request=20)
    grow(made, "dept2", most=80, least=20, request=70)

    assert chips(made, "dept", "dept2", "t1", "t2") == [50, 40, 30, 20]
    assert figures_of(made, "dept").request == {CHIP: 50}


@pytest.mark.parametrize(("guarantees", "shares"), [(True, [32, 28]), (False, [20, 40])])
def test_guarantees_keep_what_runs(guarantees: bool, shares: list[int]) -> None:
    """With them, x never falls below the 26 it uses."""
    made = tree(60, guarantees_usage=guarantees)
    grow(made, "x", most=100, least=10, weight=10, request=40, used=26)
    grow(made, "y", most=100, least=10, weight=30, request=40)

    assert chips(made, "x", "y") == shares


def test_guarantees_of_children_add_up() -> None:
    """The guarantee of a quota is its minimum or its allocation, whichever is larger.

    Source: the original's group_quota_manager_test.go, OnPodUpdateUsedForGuarantee.
    """
    made = tree(50, guarantees_usage=True)
    grow(made, "1", most=40, least=20)
    grow(made, "2", "1", most=40, least=10, request=5, used=5)
    grow(made, "3", "1", most=40, least=5)

    def guarantees(name: str) -> tuple[int, ...]:
        figures = figures_of(made, name)
        amounts = (figures.child_request, figures.request, figures.allocated, figures.guaranteed)
        return tuple(amount[CHIP] for amount in amounts)

    assert guarantees("2") == (5, 10, 5, 10)
    assert guarantees("1") == (15, 20, 15, 20)
    made.put_pod("2", pod("ns/more", chip=20))
    made.assign("2", "ns/more")
    assert guarantees("2") == (25, 25, 25, 25)
    assert guarantees("1") == (30, 30, 30, 30)


@pytest.mark.parametrize("scales", [True, False])
def test_minimums_shrink_with_the_cluster(scales: bool) -> None:
    """If there is less than promised, all get as much less; with more, they have it back.

    Source: group_quota_manager_test.go, MultiUpdateQuotaRequest_WithScaledMinQuota1 and 3.
    """
    made = tree(200_000, scales_min=scales)
    grow(made, "p", most=1_000_000, least=300_000)
    for name in "abc":
        grow(made, name, "p", most=1_000_000, least=100_000, request=200_000)

    if scales:
        assert chips(made, "p", "a", "b", "c") == [200_000, 66_667, 66_667, 66_666]
        assert made.scaled_min("p") == {CHIP: 200_000}
        assert made.scaled_min("c") == {CHIP: 66_666}
    else:
        assert chips(made, "p", "a", "b", "c") == [300_000, 100_000, 100_000, 100_000]
        assert made.scaled_min("c") == {CHIP: 100_000}

    made.set_total({CHIP: 600_000})
    assert chips(made, "p", "a", "b", "c") == [600_000, 200_000, 200_000, 200_000]
    assert made.scaled_min("c") == {CHIP: 100_000}


def test_an_unrequested_scaled_minimum_is_lent() -> None:
    """Source: MultiUpdateQuotaRequest_WithScaledMinQuota2."""
    made = tree(200)
    grow(made, "p", most=1_000, least=300)
    for name, request in (("a", 200), ("b", 0), ("c", 200)):
        grow(made, name, "p", most=1_000, least=100, request=request)

    assert chips(made, "p", "a", "b", "c") == [200, 100, 0, 100]


@pytest.mark.parametrize(
    ("root_lends", "child2_lends", "runtimes"),
    [
        (False, False, [(60, 20, 20), (60, 40, 20), (80, 60, 20)]),
        (True, True, [(20, 20, 0), (40, 40, 0), (60, 60, 0)]),
        (True, False, [(40, 20, 20), (60, 40, 20), (80, 60, 20)]),
    ],
)
def test_a_quota_that_does_not_lend_requests_its_minimum(
    root_lends: bool, child2_lends: bool, runtimes: list[tuple[int, ...]]
) -> None:
    """The ancestors request the minimum, too. Source: NotAllowLentResource_2, _3, _4."""
    made = tree(100)
    grow(made, "root", most=96, least=60, lends=root_lends)
    grow(made, "child1", "root", most=96, least=20, lends=False)
    grow(made, "child2", "root", most=96, least=20, lends=child2_lends)

    for request, expected in zip((0, 40, 60), runtimes, strict=True):
        want(made, "child1", request)
        assert tuple(chips(made, "root", "child1", "child2")) == expected


def test_a_lender_does_not_eat_into_what_another_one_keeps() -> None:
    """Source: NotAllowLentResource."""
    made = tree(100)
    grow(made, "test1", most=96, least=60, request=120)
    grow(made, "test2", most=96, least=40, lends=False)

    assert chips(made, "test1", "test2") == [60, 40]


def test_a_request_is_cut_at_every_maximum_on_its_way() -> None:
    """Source: MultiChildMaxGreaterParentMax and …_MaxGreaterThanTotalRes."""
    made = tree(350)
    grow(made, "parent", most=300, least=176)
    grow(made, "child", "parent", most=500, least=100, request=400)
    assert figures_of(made, "parent").request == {CHIP: 400}
    assert chips(made, "parent", "child") == [300, 300]

    want(made, "child", 1_050)
    grow(made, "parent", most=600, least=100)
    assert figures_of(made, "parent").request == {CHIP: 500}
    assert chips(made, "parent", "child") == [350, 350]


def test_raising_a_minimum_to_the_maximum_takes_from_the_sibling() -> None:
    """Source: UpdateOneGroupMinQuota_UpdateQuota, cases 3 and 5; UpdateOneGroupMaxQuota."""
    made = tree(50)
    grow(made, "1", most=40, least=20, request=15)
    grow(made, "2", most=40, least=20, request=15)
    assert chips(made, "1", "2") == [15, 15]

    grow(made, "1", most=40, least=40, request=115)
    grow(made, "2", most=40, least=5, request=115)
    assert chips(made, "1", "2") == [40, 10]

    grow(made, "1", most=30, least=10, request=115)
    grow(made, "2", most=30, least=10, request=115)
    assert chips(made, "1", "2") == [25, 25]


def test_usage_of_unshared_quotas_is_subtracted_before_sharing() -> None:
    """Unlike the original, the default quota takes it once: 80 are left, not 60."""
    made = tree(100)
    grow(made, "a", most=100, least=0, request=100)
    grow(made, "b", most=100, least=0, request=100)
    made.put_pod(DEFAULT_QUOTA, pod("ns/stray", chip=20))
    assert chips(made, "a", "b") == [50, 50]

    made.assign(DEFAULT_QUOTA, "ns/stray")
    assert chips(made, "a", "b", ROOT_QUOTA) == [40, 40, 80]
    assert chips(made, DEFAULT_QUOTA) == [1 << 60]


def test_the_root_sums_up_everything() -> None:
    """Requests as limited, use as it is, unshared quotas included.

    Source: UpdateRootQuotaRequest, UpdateRootQuotaUsed.
    """
    made = tree(1_000)
    grow(made, "1", most=20, least=10)
    grow(made, "2", most=30, least=8, request=50, used=5)
    grow(made, "3", "1", most=30, least=8, request=7)
    made.put_pod(SYSTEM_QUOTA, pod("kube-system/proxy", chip=10, preemptible=False))
    made.assign(SYSTEM_QUOTA, "kube-system/proxy")

    figures = figures_of(made, ROOT_QUOTA)
    assert figures.request == {CHIP: 30 + 7 + 10}
    assert figures.used == {CHIP: 5 + 10}
    assert figures.non_preemptible_used == figures.non_preemptible_request == {CHIP: 10}
    assert figures.runtime == figures.child_request == {}


def test_only_resources_of_the_maximum_count() -> None:
    """A quota of chips limits no memory."""
    made = tree(10)
    grow(made, "a", most=8, least=0)
    made.put_pod("a", pod("ns/p", chip=3, memory=GIB))
    made.assign("a", "ns/p")

    assert figures_of(made, "a").used == {CHIP: 3}
    assert figures_of(made, ROOT_QUOTA).used == {CHIP: 3}
    assert made.runtime("a") == {CHIP: 3}


def test_a_parent_without_a_limit_passes_on_the_request() -> None:
    """Children get that resource without a limit, each up to its own maximum."""
    made = tree(10)
    made.put(QuotaSpec(name="p", parent=ROOT_QUOTA, max={"cpu": 1_000}))
    grow(made, "c", "p", most=8, least=0, request=20)
    grow(made, "other", most=10, least=0, request=10)

    assert chips(made, "c", "other") == [8, 10]
    assert made.runtime("p") == {"cpu": 0}


def test_pods_of_a_parent_count_beside_its_children() -> None:
    """``self`` figures are of these pods only."""
    made = tree(100)
    grow(made, "p", most=50, least=0, request=6, used=4)
    grow(made, "c", "p", most=50, least=0, request=10, used=10)

    figures = figures_of(made, "p")
    assert (figures.self_request, figures.self_used) == ({CHIP: 6}, {CHIP: 4})
    assert (figures.child_request, figures.used) == ({CHIP: 16}, {CHIP: 14})


def test_pods_that_are_not_preemptible_are_counted_apart() -> None:
    """Up to the root, and unlike requests not cut at maximums."""
    made = tree(100)
    grow(made, "p", most=5, least=0)
    grow(made, "c", "p", most=5, least=0)
    made.put_pod("c", pod("ns/a", chip=9, preemptible=False))
    made.assign("c", "ns/a")

    for name in ("c", "p", ROOT_QUOTA):
        figures = figures_of(made, name)
        assert figures.non_preemptible_request == figures.non_preemptible_used == {CHIP: 9}
    assert figures_of(made, "p").request == {CHIP: 5}
    grow(made, "c", most=5, least=0)
    assert figures_of(made, "c").self_non_preemptible_used == {CHIP: 9}
    assert figures_of(made, "p").non_preemptible_used == {CHIP: 0}

    grow(made, "c", "p", most=5, least=0)
    made.put_pod("c", pod("ns/a", chip=2))
    assert figures_of(made, "p").non_preemptible_used == {CHIP: 0}
    assert figures_of(made, "p").used == {CHIP: 2}


def test_a_quota_without_its_parent_has_its_minimum() -> None:
    """In any order: the parent may be known later, or be deleted."""
    made = tree(100)
    grow(made, "child", "parent", most=50, least=7, request=20, used=3)
    assert "parent" not in made
    assert chips(made, "child") == [7]
    assert made.path("child") == ("child",)

    grow(made, "parent", most=50, least=10)
    assert chips(made, "child", "parent") == [20, 20]
    assert made.path("child") == ("child", "parent")
    assert figures_of(made, ROOT_QUOTA).used == {CHIP: 3}

    assert [one.key for one in made.remove("parent")] == ["ns/parent-waits"]
    assert chips(made, "child") == [7]
    assert figures_of(made, ROOT_QUOTA).used == {}


def test_a_removed_quota_takes_its_pods_with_it() -> None:
    """The parent's sums equal those without the quota."""
    made = tree(100)
    grow(made, "p", most=50, least=0)
    grow(made, "c", "p", most=50, least=0, request=20, used=3)

    assert sorted(one.key for one in made.remove("c")) == ["ns/c-used", "ns/c-waits"]
    assert "c" not in made
    assert figures_of(made, "p").used == figures_of(made, "p").request == {CHIP: 0}
    with pytest.raises(KeyError):
        made.runtime("c")


def test_moved_quota_keeps_its_usage() -> None:
    """With all below it.  Source: UpdateQuotaParentName."""
    made = tree(100)
    grow(made, "a", most=50, least=0)
    grow(made, "b", most=50, least=0)
    grow(made, "sub", "a", most=50, least=0)
    grow(made, "leaf", "sub", most=50, least=0, request=20, used=5)

    grow(made, "sub", "b", most=50, least=0)

    assert figures_of(made, "a").used == figures_of(made, "a").request == {CHIP: 0}
    assert (figures_of(made, "b").used, figures_of(made, "b").request) == ({CHIP: 5}, {CHIP: 20})
    assert made.path("leaf") == ("leaf", "sub", "b")


@pytest.mark.parametrize("parent", ["leaf", "top"])
def test_quota_must_not_become_its_own_ancestor(parent: str) -> None:
    """The tree stays unchanged, since usage below the quota would be lost to the root."""
    made = tree(100)
    grow(made, "top", most=50, least=0)
    grow(made, "leaf", "top", most=50, least=0, request=5, used=5)

    with pytest.raises(
        InputError,
        match=r"ElasticQuota tenants/top: metadata.labels\[.*/parent\]: must be "
        r"neither the quota itself nor a descendant of it",
    ):
        made.put(QuotaSpec(name="top", parent=parent, max={CHIP: 9}, namespace="tenants"))

    assert made.path("leaf") == ("leaf", "top")
    assert figures_of(made, ROOT_QUOTA).used == {CHIP: 5}


def test_resources_may_come_and_go() -> None:
    """Pods are counted again when the maximum names other resources."""
    made = tree(100)
    made.put(QuotaSpec(name="a", parent=ROOT_QUOTA, max={CHIP: 9}))
    made.put_pod("a", pod("ns/p", chip=3, memory=GIB))
    made.put(QuotaSpec(name="a", parent=ROOT_QUOTA, max={"memory": 2 * GIB}))

    assert figures_of(made, "a").request == {"memory": GIB}
    assert figures_of(made, ROOT_QUOTA).request == {"memory": GIB}
    made.remove_pod("a", "ns/p")
    assert figures_of(made, ROOT_QUOTA).request == {}


def test_absurd_amounts_are_cut_off() -> None:
    """More than two EiB is as good as no limit."""
    made = tree(1 << 70)
    grow(made, "a", most=1 << 90, least=0, request=1 << 80)
    grow(made, "b", most=5, least=0, request=5)

    assert chips(made, "b") == [5]
    assert chips(made, "a")[0] <= UNLIMITED
    assert figures_of(made, "a").request == {CHIP: 1 << 80}
