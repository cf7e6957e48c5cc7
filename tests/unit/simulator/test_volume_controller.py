"""Volumes in a world without a controller manager."""

from typing import Any

from tests.worlds import HOSTNAME, made, node, pod

from koordinator.api.meta import KubeObject
from koordinator.scheduler.loop import Bound
from koordinator.simulator import schedule


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
    """A manifest has no status: in a cluster a controller says that the volume is available."""
    assert schedule([*WORLD, disk("disk", "n1")]).placements == (Bound("default/p", "n1"),)


def test_a_volume_that_was_released_can_not_be_had() -> None:
    """What a cluster says about a volume is believed."""
    result = schedule([*WORLD, disk("disk", "n1", status={"phase": "Released"})])

    (refused,) = result.unschedulable
    assert "didn't find available persistent volumes to bind" in refused.message
