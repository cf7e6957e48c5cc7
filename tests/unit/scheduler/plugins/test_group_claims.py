"""Claims that the pods of a PodGroup of scheduling.k8s.io share."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.scheduler.plugins.test_dynamic_resources import (
    GPUS,
    V1,
    claim,
    gpu_claim_spec,
    slice_of,
    stored,
    template,
)
from tests.unit.scheduler.test_gangs import condition, placed
from tests.unit.scheduler.test_scheduling_pod_groups import PROFILES, VERSIONS
from tests.worlds import embedded, made, node, pod

from koordinator.api.dynamic_resources import ResourceClaim
from koordinator.api.kube_version import KubeVersion
from koordinator.api.kubescheduler import FeatureGates
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod, PodResourceClaimStatus
from koordinator.simulator import Embedded

BY_NAME = {"name": "gpus", "resourceClaimName": "shared"}
BY_TEMPLATE = {"name": "gpus", "resourceClaimTemplateName": "of-group"}


def gates(release: str = "1.37", *, on: bool = True) -> FeatureGates:
    names = ["GenericWorkload", *(["GangScheduling"] if release < "1.37" else [])]
    text = ",".join(f"{name}=true" for name in (*names, *(["DRAWorkloadResourceClaims"] * on)))
    return FeatureGates.parse(text, KubeVersion.parse(release))


def group(*claims: dict[str, str], release: str = "1.37") -> KubeObject:
    return made(
        "PodGroup",
        "train",
        VERSIONS[release],
        metadata={"namespace": "default", "uid": "uid-of-group"},
        spec={"schedulingPolicy": {"gang": {"minCount": 2}}, "resourceClaims": list(claims)},
    )


def member(name: str, *claims: dict[str, str], **spec: Any) -> Pod:
    entries = list(claims)
    return pod(name, 1, schedulingGroup={"podGroupName": "train"}, resourceClaims=entries, **spec)


def consumers(one: Embedded, name: str = "shared") -> list[tuple[str, str, str]]:
    """Return for whom a claim is reserved."""
    claim = stored(one, name)
    return [(it.api_group, it.resource, it.name) for it in claim.status.reserved_for]


def world(*objects: KubeObject, profile: int = 0, of: FeatureGates | None = None) -> Embedded:
    one = embedded(
        node("a", 1),
        node("n", 4),
        slice_of("n", 1),
        GPUS,
        *objects,
        config=PROFILES[profile],
        gates=gates() if of is None else of,
    )
    one.run_to_fixed_point()
    one.scheduler.validate()
    return one


@pytest.mark.parametrize("release", ["1.36", "1.37"])
@pytest.mark.parametrize("profile", [0, 1], ids=["GangScheduling", "Coscheduling"])
def test_a_claim_of_the_group_is_reserved_for_it_once(profile: int, release: str) -> None:
    """All members use its devices, on the node that has them."""
    members = [member(f"m{at}", BY_NAME) for at in range(3)]
    objects = (group(BY_NAME, release=release), claim("shared"), *members)
    one = world(*objects, profile=profile, of=gates(release))

    assert placed(one) == {"m0": "n", "m1": "n", "m2": "n"}
    assert consumers(one) == [("scheduling.k8s.io", "podgroups", "train")]
    assert stored(one, "shared").status.reserved_for[0].uid == "uid-of-group"


def test_a_claim_that_only_the_pods_name_is_reserved_for_each() -> None:
    """The entry of the group has another name, and so counts for no pod."""
    other = {"name": "others", "resourceClaimName": "shared"}
    members = [member(f"m{at}", BY_NAME) for at in range(2)]
    one = world(group(other), claim("shared"), *members)

    assert sorted(consumers(one)) == [("", "pods", "m0"), ("", "pods", "m1")]


def test_without_the_gate_a_claim_is_reserved_for_each_pod() -> None:
    members = [member(f"m{at}", BY_NAME) for at in range(2)]
    one = world(group(BY_NAME), claim("shared"), *members, of=gates(on=False))

    assert sorted(consumers(one)) == [("", "pods", "m0"), ("", "pods", "m1")]


def templated(name: str) -> Pod:
    """Return a member whose status names the claim that was created for the group."""
    it = member(name, BY_TEMPLATE)
    claims = (PodResourceClaimStatus(name="gpus", resource_claim_name="train-gpus"),)
    return replace(it, status=replace(it.status, resource_claim_statuses=claims))


def of_group(name: str = "train", version: str = "v1beta1") -> KubeObject:
    """Return a claim that was created from a template for a PodGroup."""
    owner = {
        "apiVersion": f"scheduling.k8s.io/{version}",
        "kind": "PodGroup",
        "name": name,
        "uid": "uid-of-group",
        "controller": True,
    }
    meta = {"namespace": "default", "ownerReferences": [owner]}
    return made("ResourceClaim", "train-gpus", V1, metadata=meta, spec=gpu_claim_spec())


def test_a_claim_created_for_the_group_is_used_by_its_pods() -> None:
    """The version of the owner does not matter."""
    members = [templated(f"m{at}") for at in range(2)]
    one = world(group(BY_TEMPLATE), of_group(version="v1alpha3"), *members)

    assert placed(one) == {"m0": "n", "m1": "n"}
    assert consumers(one, "train-gpus") == [("scheduling.k8s.io", "podgroups", "train")]


@pytest.mark.parametrize(
    ("owner", "on", "why"),
    [
        ("other", True, "neither pod nor PodGroup train is the owner"),
        ("train", False, "pod is not owner"),
    ],
)
def test_a_claim_of_another_owner_is_refused(owner: str, on: bool, why: str) -> None:
    members = [templated(f"m{at}") for at in range(2)]
    one = world(group(BY_TEMPLATE), of_group(owner), *members, of=gates(on=on))

    assert not placed(one)
    texts = [gate.message for gate in map(one.scheduler.queue.get, ("default/m0",)) if gate]
    assert any(why in text for text in texts), (texts, condition(one, "m0"))


def occupied(node_name: str, **consumer: str) -> KubeObject:
    """Return a claim with a device of a node; ``consumer`` is the pod or group that has it."""
    key = {"key": "metadata.name", "operator": "In", "values": [node_name]}
    result = {"request": "r", "driver": "gpu.example.com", "pool": node_name, "device": "gpu-0"}
    allocation = {
        "devices": {"results": [result]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [key]}]},
    }
    status = {"allocation": allocation, "reservedFor": [consumer] if consumer else []}
    return claim("shared", status=status)


OF_GROUP = {
    "apiGroup": "scheduling.k8s.io",
    "resource": "podgroups",
    "name": "train",
    "uid": "uid-of-group",
}


@pytest.mark.parametrize("consumer", [{}, OF_GROUP], ids=["nobody", "group"])
def test_an_allocation_that_keeps_a_group_from_its_nodes_is_freed(consumer: dict[str, str]) -> None:
    """The devices are on node a, which has room for one of two members; n has room for both."""
    members = [member(f"m{at}", BY_NAME) for at in range(2)]
    one = world(slice_of("a", 1), occupied("a", **consumer), group(BY_NAME), *members)
    one.clock.advance_to(one.clock.now_s() + 60)
    one.run_to_fixed_point()

    assert placed(one) == {"m0": "n", "m1": "n"}
    assert consumers(one) == [("scheduling.k8s.io", "podgroups", "train")]


def test_an_allocation_that_others_use_stays() -> None:
    other = {"resource": "pods", "name": "other", "uid": "uid-of-other"}
    members = [member(f"m{at}", BY_NAME) for at in range(2)]
    one = world(slice_of("a", 1), occupied("a", **other), group(BY_NAME), *members)

    assert not placed(one)
    assert [it.name for it in stored(one, "shared").status.reserved_for] == ["other"]


def test_a_claim_that_is_not_in_the_way_loses_its_reservation_only() -> None:
    """One node is full, and the one with the claim's device has room for one of two members."""
    others = [pod("other", 3, nodeName="n"), pod("one-more", 1, nodeName="a")]
    members = [member(f"m{at}", BY_NAME) for at in range(2)]
    one = world(occupied("n", **OF_GROUP), group(BY_NAME), *others, *members)

    assert placed(one) == {"other": "n", "one-more": "a"}
    assert consumers(one) == []
    assert stored(one, "shared").status.allocation is not None


def test_the_claim_of_a_group_with_a_started_member_stays() -> None:
    """One member is bound to node a, which is full; the others find no room there."""
    started = member("m0", BY_NAME, nodeName="a")
    members = [member(f"m{at}", BY_NAME) for at in (1, 2)]
    one = world(slice_of("a", 1), occupied("a", **OF_GROUP), group(BY_NAME), started, *members)

    assert placed(one) == {"m0": "a"}
    assert consumers(one) == [("scheduling.k8s.io", "podgroups", "train")]


@pytest.mark.parametrize("on", [True, False], ids=["shared", "each"])
def test_a_template_of_the_group_makes_one_claim_for_all(*, on: bool) -> None:
    """Without the gate each pod has its own, for which there are too few devices."""
    members = [member(f"m{at}", BY_TEMPLATE) for at in range(2)]
    one = world(group(BY_TEMPLATE), template("of-group"), *members, of=gates(on=on))

    claims = one.cluster.list(ResourceClaim).items
    owners = {owner.kind for it in claims for owner in it.metadata.owner_references}
    assert (len(claims), owners) == ((1, {"PodGroup"}) if on else (2, {"Pod"}))
    assert len(placed(one)) == (2 if on else 0)
