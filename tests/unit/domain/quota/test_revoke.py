"""Victims of a quota that uses more than it may."""

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.domain.quota.quotas import CHIP, pod

from koordinator.domain.amounts import Amounts, add, exceeded
from koordinator.domain.quota import OveruseTimer, QuotaPod, pods_to_revoke


def every_pod(_pod: QuotaPod) -> bool:
    return True


def used_by(pods: list[QuotaPod]) -> dict[str, int]:
    used: dict[str, int] = {}
    for one in pods:
        add(used, one.requests)
    return used


def revoked(pods: list[QuotaPod], limit: Amounts) -> list[str]:
    return [one.key for one in pods_to_revoke(pods, used_by(pods), limit, every_pod)]


def test_pods_that_fit_again_stay() -> None:
    """Of 24, 15 are allowed: p3 and p4 go, then p3 fits again."""
    pods = [
        pod("ns/p1", priority=9, chip=6),
        pod("ns/p2", priority=7, chip=8),
        pod("ns/p4", priority=5, chip=9),
        pod("ns/p3", priority=3, chip=1),
    ]

    assert revoked(pods, {CHIP: 15}) == ["ns/p4"]


def test_equally_important_pods_go_by_age() -> None:
    """The youngest first; one that has not started is the youngest.

    Source: the original's quota_overuse_revoke_test.go, GetToRevokePodList.
    """
    pods = [
        pod("ns/1", priority=10, chip=20),
        pod("ns/2", priority=9, chip=10),
        pod("ns/3", priority=8, chip=20),
        pod("ns/4", priority=7, chip=40),
    ]
    assert revoked(pods, {CHIP: 50}) == ["ns/4"]

    young = [pod("ns/old", started_s=1.0, chip=5), pod("ns/new", started_s=2.0, chip=5)]
    assert revoked([*young, QuotaPod("ns/none", "ns", {CHIP: 5})], {CHIP: 10}) == ["ns/none"]
    assert revoked(young, {CHIP: 5}) == ["ns/new"]


def test_all_go_if_all_are_not_enough() -> None:
    """Non-preemptible pods and pods that free none of the missing resource stay."""
    pods = [
        pod("ns/fixed", preemptible=False, chip=10),
        pod("ns/a", chip=5),
        pod("ns/b", cpu=5),
        pod("ns/c", chip=5, cpu=1),
    ]

    assert revoked(pods, {CHIP: 8, "cpu": 100}) == ["ns/a", "ns/c"]


def test_every_resource_counts_to_the_end() -> None:
    """Unlike in the original, a resource that the last pod does not request is not forgotten."""
    pods = [
        pod("ns/chips", priority=2, chip=5),
        pod("ns/cores", priority=1, cpu=5),
        pod("ns/both", priority=3, chip=1, cpu=1),
    ]

    assert revoked(pods, {CHIP: 1, "cpu": 1}) == ["ns/chips", "ns/cores"]


def test_pods_that_may_not_be_evicted_stay() -> None:
    """Others go in their place."""
    pods = [pod("ns/a", priority=1, chip=5), pod("ns/b", priority=2, chip=5)]

    chosen = pods_to_revoke(pods, {CHIP: 10}, {CHIP: 5}, lambda one: one.key != "ns/a")

    assert [one.key for one in chosen] == ["ns/b"]


requests = st.dictionaries(st.sampled_from(("cpu", CHIP)), st.integers(0, 9))


@given(
    st.lists(st.tuples(requests, st.integers(0, 3), st.booleans()), max_size=8),
    st.dictionaries(st.sampled_from(("cpu", CHIP, "memory")), st.integers(0, 30)),
)
def test_no_more_go_than_have_to(
    drawn: list[tuple[dict[str, int], int, bool]], limit: dict[str, int]
) -> None:
    """If it is enough, no pod could be put back; if not, none that would have helped is left."""
    pods = [
        QuotaPod(f"ns/{i}", "ns", amounts, is_preemptible=may, priority=priority, started_s=0)
        for i, (amounts, priority, may) in enumerate(drawn)
    ]
    used = used_by(pods)

    chosen = pods_to_revoke(pods, used, limit, every_pod)

    stay = [one for one in pods if one not in chosen]
    over = exceeded(used_by(stay), limit)
    assert all(one.is_preemptible for one in chosen)
    if over:
        assert not any(one.is_preemptible and one.requests.get(r) for one in stay for r in over)
    else:
        assert all(exceeded(used_by([*stay, one]), limit) for one in chosen)


def test_a_quota_exceeds_its_runtime_for_a_while_before_evictions() -> None:
    """Longer than the delay without a break; then the time starts again."""
    timer = OveruseTimer(delay_s=120.0)
    seen = [
        (0.0, True, False),
        (120.0, True, False),
        (120.5, True, True),
        (121.0, True, False),
        (200.0, False, False),
        (300.0, True, False),
        (320.5, True, True),
    ]

    for now_s, is_over, due in seen:
        assert timer.observe("a", now_s, is_over=is_over) == due
    timer.forget("a")
    assert not timer.observe("a", 1_000.0, is_over=True)
