"""The class of a claim that names none."""

import datetime as dt

import pytest
from msgspec.structs import replace
from tests.keywords import as_keywords

from koordinator.api.codec import to_manifest
from koordinator.api.core import ResourceRequirements
from koordinator.api.meta import KubeObject, ObjectMeta
from koordinator.api.volume import (
    BETA_STORAGE_CLASS,
    DEFAULT_CLASS_ANNOTATIONS,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    StorageClass,
)
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.quantity import Quantity

IS_DEFAULT, BETA_IS_DEFAULT = DEFAULT_CLASS_ANNOTATIONS
OLD, NEW = (dt.datetime(2026, 1, day, tzinfo=dt.UTC) for day in (1, 2))


def storage_class(name: str, born: dt.datetime = OLD, **annotations: str) -> StorageClass:
    meta = ObjectMeta(name=name, creation_timestamp=born, annotations=annotations)
    return StorageClass(metadata=meta, provisioner="csi.example.com")


def default_class(name: str, born: dt.datetime = OLD) -> StorageClass:
    return storage_class(name, born, **{IS_DEFAULT: "true"})


def claim(class_name: str | None = None, **annotations: str) -> PersistentVolumeClaim:
    return PersistentVolumeClaim(
        metadata=ObjectMeta(name="data", namespace="default", annotations=annotations),
        spec=PersistentVolumeClaimSpec(
            storage_class_name=class_name,
            access_modes=("ReadWriteOnce",),
            resources=ResourceRequirements(requests={"storage": Quantity.parse("1Gi")}),
        ),
    )


def world_with(*objects: KubeObject) -> MemoryCluster:
    cluster = MemoryCluster(VirtualClock(0.0))
    cluster.load(objects, admit=True)
    return cluster


@pytest.mark.parametrize(
    ("classes", "given"),
    [
        ((), None),
        ((storage_class("plain"),), None),
        ((storage_class("plain", **as_keywords({IS_DEFAULT: "false"})),), None),
        ((storage_class("plain"), default_class("chosen")), "chosen"),
        ((storage_class("chosen", **as_keywords({BETA_IS_DEFAULT: "true"})),), "chosen"),
        ((default_class("a"), default_class("chosen", NEW)), "chosen"),
        ((default_class("other"), default_class("chosen")), "chosen"),
    ],
    ids=["none", "unmarked", "denied", "marked", "beta", "newest", "first by name"],
)
def test_a_new_claim_without_a_class_gets_the_default_one(
    classes: tuple[StorageClass, ...], given: str | None
) -> None:
    """The newest of several; of equally old ones the first by name."""
    assert world_with(*classes).create(claim()).spec.storage_class_name == given


@pytest.mark.parametrize(
    ("named", "kept"),
    [
        (claim("other"), "other"),
        (claim(""), ""),  # requests a volume without a class
        (claim(None, **{BETA_STORAGE_CLASS: "old"}), None),
    ],
)
def test_a_claim_that_names_its_class_keeps_it(
    named: PersistentVolumeClaim, kept: str | None
) -> None:
    """Naming no class is a choice, too, and so is the annotation of old."""
    world = world_with(default_class("standard"))

    assert world.create(named).spec.storage_class_name == kept


def test_the_class_is_settled_when_the_claim_is_made() -> None:
    """A later default changes nothing on the next update."""
    world = world_with(claim())
    stored = world.get(PersistentVolumeClaim, "data", "default")
    world.create(default_class("standard"))

    labelled = replace(stored.metadata, labels={"app": "db"})
    updated = world.update(replace(stored, metadata=labelled))

    assert updated.spec.storage_class_name is None


def test_default_class_is_found_at_any_position_of_the_manifests() -> None:
    """Objects and manifests are loaded in the same way."""
    objects = [claim(), default_class("standard")]
    from_manifests = MemoryCluster(VirtualClock(0.0))
    from_manifests.load_manifests([to_manifest(obj) for obj in objects])

    for world in (world_with(*objects), from_manifests):
        stored = world.get(PersistentVolumeClaim, "data", "default")
        assert stored.spec.storage_class_name == "standard"
