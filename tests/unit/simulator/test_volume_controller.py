"""Volumes in a world without a controller manager."""

import itertools
from typing import Any

import pytest
from msgspec.structs import replace
from tests.worlds import HOSTNAME, made, node, pod

from koordinator.api.meta import KubeObject
from koordinator.api.volume import (
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeStatus,
)
from koordinator.scheduler.loop import Bound
from koordinator.simulator import schedule
from koordinator.simulator.embedded import Embedded


def disk(name: str, on: str, **fields: Any) -> KubeObject:
    here = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [on]}]}
    return made(
        "PersistentVolume",
        name,
        spec={
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "nodeAffinity": {"required": {"nodeSelectorTerms": [here]}},
        },
        **fields,
    )


WORLD = (
    node("n0"),
    node("n1"),
    made(
        "StorageClass",
        "local",
        "storage.k8s.io/v1",
        provisioner="kubernetes.io/no-provisioner",
        volumeBindingMode="WaitForFirstConsumer",
    ),
    made(
        "PersistentVolumeClaim",
        "data",
        metadata={"namespace": "default"},
        spec={
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "5Gi"}},
            "storageClassName": "local",
        },
    ),
    pod("p", volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]),
)


def test_a_volume_as_a_user_writes_it_can_be_had() -> None:
    """A manifest has no status: in a cluster a controller makes the volume available."""
    assert schedule([*WORLD, disk("disk", "n1")]).placements == (Bound("default/p", "n1"),)


def test_released_volume_is_not_available() -> None:
    """The status of a volume of a cluster is kept."""
    result = schedule([*WORLD, disk("disk", "n1", status={"phase": "Released"})])

    (refused,) = result.unschedulable
    assert "didn't find available persistent volumes to bind" in refused.message


def claim(name: str, size: str = "5Gi", **spec: Any) -> KubeObject:
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    return made(
        "PersistentVolumeClaim", name, metadata={"namespace": "default"}, spec=wanted | spec
    )


def volume(name: str, size: str = "10Gi", **spec: Any) -> KubeObject:
    offered = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": size}}
    return made("PersistentVolume", name, spec=offered | spec)


def with_phase(one: KubeObject, phase: str) -> KubeObject:
    assert isinstance(one, PersistentVolume)
    return replace(one, status=PersistentVolumeStatus(phase=phase))


def user(name: str, *claims: str) -> KubeObject:
    mounted = [{"name": one, "persistentVolumeClaim": {"claimName": one}} for one in claims]
    return pod(name, volumes=mounted)


def storage_class(name: str, provisioner: str = "csi.example", **fields: Any) -> KubeObject:
    return made("StorageClass", name, "storage.k8s.io/v1", provisioner=provisioner, **fields)


NAMED: dict[str, Any] = {"storageClassName": "manual"}
TO_DATA: dict[str, Any] = {"claimRef": {"namespace": "default", "name": "data"}}
TO_OTHER: dict[str, Any] = {"claimRef": {"namespace": "default", "name": "other"}}
READS: dict[str, Any] = {"accessModes": ["ReadOnlyMany"]}


@pytest.mark.parametrize(
    ("objects", "is_placed"),
    [
        ([volume("v", **NAMED), claim("data", **NAMED)], True),  # no object of the class needed
        ([volume("v"), claim("data", storageClassName="")], True),
        ([volume("v"), claim("data")], True),
        ([volume("v", "1Gi"), claim("data")], False),
        ([volume("v"), claim("data", **READS)], False),
        ([volume("v"), claim("data", volumeMode="Block")], False),
        ([with_phase(volume("v"), "Released"), claim("data")], False),
        ([volume("v"), claim("data", selector={"matchLabels": {"tier": "a"}})], False),
        ([volume("v"), claim("data", **NAMED)], False),
        ([storage_class("manual"), claim("data", **NAMED)], True),
        ([claim("data", **NAMED), storage_class("manual")], True),
        ([storage_class("manual", "kubernetes.io/no-provisioner"), claim("data", **NAMED)], False),
        ([volume("v", **TO_DATA), claim("data", **NAMED)], True),  # set aside: whatever the class
        ([volume("v", **TO_OTHER), claim("data")], False),
        ([volume("v"), claim("data", volumeName="v")], True),
        ([volume("v", **TO_DATA), claim("data", volumeName="v")], True),
        ([volume("v"), claim("data", volumeName="w")], False),
        ([volume("v", "1Gi"), claim("data", volumeName="v")], False),
        ([volume("v", **TO_OTHER), claim("data", volumeName="v")], False),
        ([storage_class("manual"), claim("data", volumeName="v", **NAMED)], False),
    ],
)
def test_claims_that_do_not_wait_for_a_pod_are_bound_at_once(
    objects: list[KubeObject], is_placed: bool
) -> None:
    """To what names the claim or is named by it, to what fits, or to what the class provides."""
    result = schedule([node("n0"), *objects, user("p", "data")])

    assert [one.pod for one in result.placements] == (["default/p"] if is_placed else [])


def test_a_volume_that_waits_for_a_pod_is_bound_at_once_if_the_claim_names_it() -> None:
    """The binding mode of the class matters only where there is a choice."""
    waits = storage_class("late", volumeBindingMode="WaitForFirstConsumer")
    own = volume("v", storageClassName="late")
    named = claim("data", storageClassName="late", volumeName="v")

    assert schedule([node("n0"), waits, own, named, user("p", "data")]).placements


def test_a_claim_gets_the_smallest_volume_with_the_fewest_access_modes() -> None:
    """A second claim gets another volume."""
    wide = volume("wide", "6Gi", accessModes=["ReadWriteOnce", "ReadOnlyMany"])
    world = Embedded()
    world.load([volume("large", "20Gi"), wide, volume("small"), claim("a"), claim("b")])
    world.load([claim("c"), claim("d")])
    claims = world.cluster.list(PersistentVolumeClaim).items

    got = {one.metadata.name: one.spec.volume_name for one in claims}
    assert got == {"a": "small", "b": "large", "c": "wide", "d": ""}


def test_a_default_class_provides_for_claims_without_class_wherever_it_stands() -> None:
    """As the controller fills it in later where admission has not."""
    meta = {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
    default = storage_class("standard", metadata=meta)
    objects = [claim("data"), default, node("n0"), user("p", "data")]

    for order in itertools.permutations(objects):
        assert schedule(order).placements


def test_a_volume_is_made_where_the_class_allows_it() -> None:
    """A pod can't use it elsewhere."""
    here = [{"matchLabelExpressions": [{"key": HOSTNAME, "values": ["n1"]}]}]
    fast = storage_class("fast", allowedTopologies=here)
    wanted = claim("data", storageClassName="fast")

    result = schedule([node("n0"), node("n1"), fast, wanted, user("p", "data")])
    assert result.placements == (Bound("default/p", "n1"),)
