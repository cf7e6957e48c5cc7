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
)
from tests.unit.scheduler.test_gangs import condition, placed
from tests.unit.scheduler.test_scheduling_pod_groups import PROFILES, VERSIONS
from tests.worlds import embedded, made, node, pod

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
