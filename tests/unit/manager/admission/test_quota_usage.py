"""Gate EnableQuotaAdmission: pods beyond the limit of their quota are denied."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.manager.admission.requests import pod, request

from koordinator.api.annotations.quota import CHILD_REQUEST
from koordinator.api.codec import decode_object
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.labels import QUOTA_NAME
from koordinator.api.meta import JsonObject
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.domain.amounts import amounts_of
from koordinator.foundation.clock import VirtualClock
from koordinator.manager.admission.gates import DEFAULT_GATES, ManagerFeature, parse_gates
from koordinator.manager.admission.lookup import Denial
from koordinator.manager.admission.pod_validation import validate_pod
from koordinator.manager.lookups import ReaderLookup, WatchLookup

ON = DEFAULT_GATES | {ManagerFeature.QUOTA_ADMISSION}
ON_UPDATE = ON | {ManagerFeature.QUOTA_ADMISSION_ON_UPDATE}


def quota(name: str = "team", namespace: str = "quotas", **more: Any) -> JsonObject:
    annotations = {
        f"quota.scheduling.koordinator.sh/{key.replace('_', '-')}": json.dumps(value)
        for key, value in more.items()
    }
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
        "spec": {"max": {"cpu": "4", "memory": "8Gi"}},
    }


class World:
    """Cluster with quotas, and admission with its own watch."""

    def __init__(self, *quotas: JsonObject) -> None:
        clock = VirtualClock()
        self.cluster = MemoryCluster(clock)
        self.cluster.load(decode_object(each) for each in quotas)
        self.lookup = WatchLookup(self.cluster, lambda: 0, clock)
        self.lookup.follow()

    def admit(
        self, cpu: str, *, name: str = "team", gates: frozenset[ManagerFeature] = ON, **more: Any
    ) -> str:
        """Return the reason of the denial of a pod; empty if it is admitted."""
        made = pod({"resources": {"requests": {"cpu": cpu}}}, labels={QUOTA_NAME: name}, **more)
        try:
            validate_pod(request(made), self.lookup, gates)
        except Denial as error:
            return str(error)
        return ""

    def used(self, name: str = "team", namespace: str = "quotas") -> str:
        elastic_quota = self.cluster.get(ElasticQuota, name, namespace)
        used = CHILD_REQUEST.read(elastic_quota.metadata) or {}
        return str(used.get("cpu", ""))


def test_pods_are_admitted_up_to_the_maximum() -> None:
    """The quota shows the admitted requests immediately."""
    world = World(quota())

    assert [world.admit("3"), world.used()] == ["", "3"]
    assert world.admit("2") == (
        "exceeded quota: quotas/team, requested: cpu=2, used: cpu=3, limited: cpu=4"
    )
    assert [world.admit("1"), world.used()] == ["", "4"]


def test_pods_are_not_counted_without_the_gate() -> None:
    """The gate is off by default."""
    world = World(quota())

    assert [world.admit("9", gates=DEFAULT_GATES), world.used()] == ["", ""]


def test_an_annotation_limits_in_place_of_the_maximum() -> None:
    """``admission``; and what is there counts."""
    world = World(quota(admission={"cpu": "10"}, child_request={"cpu": "9"}))

    assert world.admit("2").endswith("requested: cpu=2, used: cpu=9, limited: cpu=10")
    assert [world.admit("1"), world.used()] == ["", "10"]


@pytest.mark.parametrize(
    ("name", "quotas", "why"),
    [
        ("nobody", [quota()], "elastic quota nobody not found"),
        ("team", [quota(), quota(namespace="b")], "more than one elastic quota team found"),
        ("koordinator-default-quota", [], ""),
        ("koordinator-system-quota", [], ""),
    ],
)
def test_pod_needs_exactly_one_quota_of_its_name(
    name: str, quotas: list[JsonObject], why: str
) -> None:
    """The default and the system quota are exceptions."""
    assert World(*quotas).admit("1", name=name) == why


def test_a_dry_run_is_judged_and_not_counted() -> None:
    """Dry runs do not use the quota up."""
    world = World(quota())
    made = pod({"resources": {"requests": {"cpu": "3"}}}, labels={QUOTA_NAME: "team"})
    validate_pod(request(made, is_dry_run=True), world.lookup, ON)
    assert world.used() == ""

    world.admit("2")
    with pytest.raises(Denial, match="exceeded quota"):
        validate_pod(request(made, is_dry_run=True), world.lookup, ON)


def test_a_pod_that_is_refused_otherwise_is_not_counted() -> None:
    """The reason of the refusal has no influence."""
    world = World(quota())
    bad = {"resources": {"requests": {"cpu": "1"}}}
    made = pod(bad, labels={QUOTA_NAME: "team", "koordinator.sh/qosClass": "BE"}, priority=9999)
    with pytest.raises(Denial):
        validate_pod(request(made), world.lookup, ON)

    assert world.used() == ""


def test_a_pod_that_changes_its_quota_is_counted_there() -> None:
    """With a gate of its own."""
    world = World(quota(), quota("other"))
    resources = {"resources": {"requests": {"cpu": "3"}}}
    old = pod(resources, labels={QUOTA_NAME: "team"})
    new = pod(resources, labels={QUOTA_NAME: "other"})
    for gates, used in ((ON, ""), (ON_UPDATE, "3")):
        validate_pod(request(new, "UPDATE", old), world.lookup, gates)
        assert world.used("other") == used
    validate_pod(request(new, "UPDATE", new), world.lookup, ON_UPDATE)
    assert world.used("other") == "3"


def test_overhead_and_replaced_resources_count_as_gates_say() -> None:
    """Overhead and replacement of resources have a gate each."""
    overhead: dict[str, Any] = {"overhead": {"cpu": "2"}}
    ignoring = ON | {ManagerFeature.QUOTA_IGNORES_OVERHEAD}
    assert World(quota()).admit("3", **overhead)
    assert not World(quota()).admit("3", gates=ignoring, **overhead)
    erased: dict[str, Any] = {"annotations": {"pod.koordinator.sh/replace-resources": "cpu:"}}
    transforming = ON | {ManagerFeature.QUOTA_TRANSFORMS_POD}
    assert World(quota()).admit("9", **erased)
    assert not World(quota()).admit("9", gates=transforming, **erased)


def test_gates_are_known_by_their_names() -> None:
    """Gates have the names of the original."""
    text = "EnableQuotaAdmission=true,EnableQuotaAdmissionOnUpdate=true,DisableDefaultQuota=true"
    assert parse_gates(text) > ON_UPDATE


def test_admission_without_writes_counts_pods() -> None:
    """``koord manager --once`` counts them in memory."""
    world = World(quota())
    world.lookup = ReaderLookup(world.cluster, lambda: 0)  # type: ignore[assignment]

    assert [world.admit("3"), bool(world.admit("3")), world.used()] == ["", True, ""]


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2), st.booleans()), max_size=12),
)
def test_two_replicas_never_admit_more_than_the_limit(
    pods: list[tuple[int, int, bool]],
) -> None:
    """Requests go to any replica, and its cache may be out of date."""
    world = World(quota())
    second = WatchLookup(world.cluster, lambda: 0, VirtualClock())
    second.follow()
    first, admitted = world.lookup, 0
    for cpu, replica, follows in pods:
        world.lookup = first if replica else second
        if follows:
            world.lookup.follow()
        admitted += 0 if world.admit(str(cpu)) else cpu
    elastic_quota = world.cluster.get(ElasticQuota, "team", "quotas")

    assert admitted <= 4
    assert (
        amounts_of(CHILD_REQUEST.read(elastic_quota.metadata) or {}).get("cpu", 0)
        == admitted * 1000
    )


def resize(world: World, before: str, after: str, **more: Any) -> str:
    """Return the reason of the denial of an in-place resize; empty if it is admitted."""
    old, new = (
        pod({"resources": {"requests": {"cpu": cpu}}}, labels={QUOTA_NAME: "team"})
        for cpu in (before, after)
    )
    try:
        admission = request(new, "UPDATE", old, subresource="resize", **more)
        validate_pod(admission, world.lookup, ON)
    except Denial as error:
        return str(error)
    return ""


def test_a_resize_is_charged_with_what_it_asks_for_in_addition() -> None:
    """From 3 CPUs to 100 is refused; to 4 is all that there is; less costs nothing."""
    world = World(quota(child_request={"cpu": "3"}))

    assert resize(world, "3", "100") == (
        "exceeded quota: quotas/team, requested: cpu=97, used: cpu=3, limited: cpu=4"
    )
    assert [resize(world, "3", "4"), world.used()] == ["", "4"]
    assert [resize(world, "4", "1"), world.used()] == ["", "4"]
    assert resize(world, "1", "2").startswith("exceeded quota")


def test_a_resize_that_is_only_tried_is_not_counted() -> None:
    """A dry run and updates of other subresources use no quota."""
    world = World(quota(child_request={"cpu": "3"}))

    assert [resize(world, "1", "2", is_dry_run=True), world.used()] == ["", "3"]
    made = pod({"resources": {"requests": {"cpu": "90"}}}, labels={QUOTA_NAME: "team"})
    validate_pod(request(made, "UPDATE", made, subresource="status"), world.lookup, ON)
