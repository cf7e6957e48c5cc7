"""Admission of a pod by its quota, and the victims that make room for it."""

from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.domain.quota.quotas import CHIP, GIB, PREFIX, chips, grow, pod, quota
from tests.worlds import pod as api_pod

from koordinator.api.elastic_quota import DEFAULT_QUOTA, ROOT_QUOTA
from koordinator.domain.quota import (
    AdmissionRules,
    QuotaHeadroom,
    QuotaPod,
    QuotaSpec,
    QuotaTree,
    headroom_for,
    how_many,
    is_allowed_victim,
    quota_pod,
    why_not,
)

BY_MAX = AdmissionRules(uses_runtime=False)
WITH_PARENTS = AdmissionRules(checks_parents=True)


def tree() -> QuotaTree:
    """Return a tree of two cores and 4 GiB, with a quota that uses half of it."""
    made = QuotaTree()
    made.set_total({"cpu": 2_000, "memory": 4 * GIB})
    most = {"cpu": 4_000, "memory": 8 * GIB}
    least = {"cpu": 1_500}
    made.put(QuotaSpec(name="a", parent=ROOT_QUOTA, max=most, min=least, weight=most))
    made.put_pod("a", pod("ns/runs", cpu=1_000, memory=2 * GIB, preemptible=False))
    made.assign("a", "ns/runs")
    return made


def test_a_pod_fits_if_nothing_is_exceeded() -> None:
    """The runtime, by default; a pod that isn't there yet counts as requested too."""
    made = tree()
    new = pod("ns/new", cpu=1_000, memory=2 * GIB)
    made.put_pod("a", new)

    assert why_not(made, "a", new, AdmissionRules()) == ""


def test_a_pod_that_exceeds_the_runtime_is_refused() -> None:
    """The text equals the original's; resources the quota does not limit don't show."""
    made = tree()
    new = pod("ns/new", cpu=1_001, memory=1, chip=5)
    made.put_pod("a", new)

    assert why_not(made, "a", new, AdmissionRules()) == (
        "Insufficient quotas, quotaName: a, runtime: cpu:2,memory:2147483649, "
        "used: cpu:1,memory:2Gi, pod's request: cpu:1001m,memory:1, exceedDimensions: [cpu]"
    )
    assert why_not(made, "a", new, BY_MAX) == ""


def test_quota_pod_is_read_from_the_labels() -> None:
    """The label names the quota, another one protects the pod; without start it is the youngest."""
    labels = {PREFIX + "name": "a", PREFIX + "preemptible": "false"}
    one = api_pod("p", labels=labels, priority=7)

    assert quota_pod(one, {"cpu": 1}) == QuotaPod(
        key="default/p",
        namespace="default",
        requests={"cpu": 1},
        quota_label="a",
        is_preemptible=False,
        priority=7,
        labels=labels,
        started_s=inf,
    )
    assert quota_pod(api_pod("p"), {}).is_preemptible


def test_a_quota_over_its_limit_takes_no_pod_at_all() -> None:
    """A pod that requests none of the exceeded resource is rejected as well."""
    made = tree()
    made.set_total({"cpu": 2_000, "memory": GIB})
    new = pod("ns/new", cpu=1)
    made.put_pod("a", new)

    assert why_not(made, "a", new, AdmissionRules()).endswith("exceedDimensions: [memory]")
    nothing = pod("ns/none")
    made.put_pod("a", nothing)
    assert "pod's request: <empty>, " in why_not(made, "a", nothing, AdmissionRules())


def test_a_pod_that_is_not_preemptible_has_to_fit_into_the_minimum() -> None:
    """Of the resources that have one."""
    made = tree()
    new = pod("ns/new", cpu=501, memory=1, preemptible=False)
    made.put_pod("a", new)

    assert why_not(made, "a", new, AdmissionRules()) == (
        "Insufficient non-preemptible quotas, quotaName: a, min: cpu:1500m, "
        "nonPreemptibleUsed: cpu:1,memory:2Gi, pod's request: cpu:501m,memory:1, "
        "exceedDimensions: [cpu]"
    )
    small = pod("ns/new", cpu=500, memory=1, preemptible=False)
    made.put_pod("a", small)
    assert why_not(made, "a", small, AdmissionRules()) == ""


def test_ancestors_are_checked_if_so_configured() -> None:
    """For the resources of the pod only."""
    made = QuotaTree()
    made.set_total({CHIP: 100})
    grow(made, "dept", most=20, least=0)
    grow(made, "team", "dept", most=50, least=0)
    grow(made, "leaf", "team", most=50, least=0, request=15, used=15)
    grow(made, "other", "dept", most=50, least=0, request=3, used=3)
    new = pod("ns/new", chip=3)
    made.put_pod("leaf", new)

    assert why_not(made, "leaf", new, BY_MAX) == ""
    assert why_not(made, "leaf", new, AdmissionRules(uses_runtime=False, checks_parents=True)) == (
        "Insufficient quotas, quotaNameTopo: [dept team leaf], runtime: example.com/chip:20, "
        "used: example.com/chip:18, pod's request: example.com/chip:3, "
        "exceedDimensions: [example.com/chip]"
    )
    assert why_not(made, "leaf", pod("ns/new", cpu=9), WITH_PARENTS) == ""


@pytest.mark.parametrize(
    ("victim", "quota", "allowed"),
    [
        (pod("ns/low", priority=1), "a", True),
        (pod("ns/same", priority=5), "a", False),
        (pod("ns/other", priority=1), "b", False),
        (pod("ns/protected", priority=1, preemptible=False), "a", False),
    ],
)
def test_victims_are_less_important_pods_of_the_same_quota(
    victim: QuotaPod, quota: str, allowed: bool
) -> None:
    """Pods that must not be evicted are no victims."""
    assert is_allowed_victim(victim, quota, pod("ns/p", priority=5), "a") == allowed


@pytest.mark.parametrize("spares", [True, False])
def test_the_default_quota_may_be_spared(spares: bool) -> None:
    """Many pods are in it without being asked."""
    low, high = pod("ns/low"), pod("ns/high", priority=5)

    assert (
        is_allowed_victim(low, DEFAULT_QUOTA, high, DEFAULT_QUOTA, spares_default_quota=spares)
        != spares
    )


PODS = [pod(f"ns/{size}", chip=size, priority=size) for size in (4, 3, 2)]


def room_in_full_quota(new: QuotaPod) -> QuotaHeadroom:
    """Return the room in a quota of 10; PODS use 9."""
    made = QuotaTree()
    made.set_total({CHIP: 10})
    grow(made, "a", most=10, least=5)
    for one in PODS:
        made.put_pod("a", one)
        made.assign("a", one.key)
    made.put_pod("a", new)
    return headroom_for(made, "a", new, AdmissionRules())


def test_quota_has_room_after_enough_of_its_pods_are_evicted() -> None:
    """A pod of 4 needs 3 more than the one that is left."""
    headroom = room_in_full_quota(pod("ns/new", chip=4))

    assert not headroom.fits_without([])
    assert not headroom.fits_without(PODS[2:])
    assert headroom.fits_without(PODS[1:2])


def test_no_eviction_without_effect() -> None:
    """No pod is evicted if the quota stays too small or its minimum is used up."""
    assert not room_in_full_quota(pod("ns/new", chip=11)).fits_without(PODS)
    protected = room_in_full_quota(pod("ns/new", chip=6, preemptible=False))
    assert not protected.fits_without(PODS)


def test_room_is_needed_in_whatever_the_quota_uses_too_much_of() -> None:
    """As at admission: a quota over its limit of memory takes no pod of chips either."""
    made = QuotaTree()
    limit = {CHIP: 10, "memory": 4}
    made.put(QuotaSpec(name="a", parent=ROOT_QUOTA, max=limit, weight=limit))
    made.set_total(limit)
    for one in (pod("ns/x", chip=8, memory=3), pod("ns/y", memory=3)):
        made.put_pod("a", one)
        made.assign("a", one.key)
    new = pod("ns/new", chip=5, priority=1)
    made.put_pod("a", new)
    headroom = headroom_for(made, "a", new, AdmissionRules())

    assert not headroom.fits_without([pod("ns/z", chip=8)])
    assert headroom.fits_without([pod("ns/x", chip=8, memory=3)])


@pytest.mark.parametrize("rules", [AdmissionRules(), BY_MAX, WITH_PARENTS])
@given(
    limits=st.tuples(*[st.integers(0, 30)] * 3),
    used=st.tuples(*[st.integers(0, 9)] * 2),
    size=st.integers(0, 4),
    preemptible=st.booleans(),
)
def test_as_many_pods_are_admitted_in_a_row_as_were_announced(
    rules: AdmissionRules,
    limits: tuple[int, int, int],
    used: tuple[int, int],
    size: int,
    preemptible: bool,
) -> None:
    """Asked one after the other, that many fit, and not one more."""
    total, above, most = limits
    made = QuotaTree()
    made.set_total({CHIP: total})
    grow(made, "dept", most=above, least=0)
    grow(made, "a", "dept", most=most, least=most // 2, request=used[0], used=used[0])
    grow(made, "b", "dept", most=above, least=0, request=used[1], used=used[1])
    row = [pod(f"ns/{i}", chip=size, preemptible=preemptible) for i in range(20)]
    for one in row:
        made.put_pod("a", one)
    accepted = 0
    promised = how_many(made, "a", row[0], rules)
    for one in row:
        if why_not(made, "a", one, rules):
            break
        made.assign("a", one.key)
        accepted += 1

    assert accepted in (0, min(promised, len(row)))


def test_room_is_needed_in_the_ancestors_too_if_they_are_checked() -> None:
    """A victim frees what it uses on every level."""
    made = QuotaTree()
    made.set_total({CHIP: 10})
    grow(made, "dept", most=10, least=0)
    grow(made, "a", "dept", most=10, least=0)
    grow(made, "b", "dept", most=10, least=0, request=6, used=6)
    victim, new = pod("ns/victim", chip=4), pod("ns/new", chip=5, priority=1)
    made.put_pod("a", victim)
    made.assign("a", victim.key)
    made.put_pod("a", new)
    assert chips(made, "dept", "a", "b") == [10, 5, 5]

    assert headroom_for(made, "a", new, AdmissionRules()).fits_without([victim])
    assert not headroom_for(made, "a", new, WITH_PARENTS).fits_without([victim])
    smaller = pod("ns/new", chip=4, priority=1)
    assert headroom_for(made, "a", smaller, WITH_PARENTS).fits_without([victim])


@pytest.mark.parametrize(
    ("leaf", "parent", "is_strict", "shown"),
    [
        ({"namespace": "ns"}, {"namespace": "ns"}, True, ("leaf", "dept")),
        ({"namespace": "ns"}, {"namespace": "admin"}, False, ("leaf",)),
        ({"namespace": "ns"}, {"namespace": "admin", "bound": ("ns",)}, False, ("leaf", "dept")),
        ({"namespace": "admin"}, {"namespace": "admin"}, False, ("leaf", "dept")),
        ({"namespace": "admin"}, {"namespace": "admin"}, True, ()),
        ({"namespace": "admin", "bound": ("ns",)}, {"namespace": "admin"}, True, ("leaf",)),
        ({"namespace": "b", "bound": ("c",)}, {"namespace": "b"}, False, ()),
        ({"namespace": "leaf"}, {"namespace": "leaf"}, False, ()),
    ],
)
def test_figures_of_quotas_of_other_tenants_are_not_in_the_message(
    leaf: dict[str, Any], parent: dict[str, Any], is_strict: bool, shown: tuple[str, ...]
) -> None:
    """The pod's own requests and the name of the missing resource are in the message."""
    for short in ("leaf", "dept"):
        made = QuotaTree()
        made.set_total({CHIP: 1000})
        for name, above, terms in (("dept", "", parent), ("leaf", "dept", leaf)):
            most = 77 if name == short else 500
            made.put(QuotaSpec.of(quota(name, above, most={CHIP: most}, **terms)))
        made.put_pod("leaf", pod("other/p", chip=75))
        made.assign("leaf", "other/p")
        new = pod("ns/new", chip=3)
        made.put_pod("leaf", new)
        rules = AdmissionRules(uses_runtime=False, checks_parents=True, is_strict=is_strict)

        text = why_not(made, "leaf", new, rules)

        assert text.endswith(f"pod's request: {CHIP}:3, exceedDimensions: [{CHIP}]")
        assert ("77" in text, "75" in text) == ((short in shown),) * 2
