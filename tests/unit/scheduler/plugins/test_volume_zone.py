"""Zones of volumes and of nodes."""

import pytest
from tests.unit.scheduler.plugins.volumes import (
    EARLY,
    ZONE,
    World,
    bound,
    claim,
    ephemeral,
    owned,
    pod,
    pod_with,
    storage_class,
    volume,
)

from koordinator.api.meta import KubeObject
from koordinator.scheduler.contract import NoArgs
from koordinator.scheduler.plugins.volume_zone import PLUGIN, REASON
from koordinator.scheduler.snapshot import ResourceAxis

BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
NODES = {
    "z1": {ZONE: "z1", REGION: "r"},
    "z2": {ZONE: "z2", REGION: "r"},
    "old": {BETA_ZONE: "z1"},
    "bare": {},
}
ZONES = PLUGIN.build(NoArgs(), ResourceAxis())
POD = pod_with("db", "data")


@pytest.mark.parametrize(
    ("labels", "rejected"),
    [
        ({}, set()),
        ({ZONE: "z1"}, {"z2", "old"}),
        ({ZONE: "z1__z2"}, {"old"}),
        ({ZONE: "z1__"}, set()),
        ({BETA_ZONE: "z1"}, {"z2"}),
        ({BETA_ZONE: "z2"}, {"z1", "old"}),
        ({ZONE: "z1", REGION: "elsewhere"}, {"z1", "z2", "old"}),
    ],
)
def test_a_node_must_be_in_one_of_the_zones_of_a_bound_volume(
    labels: dict[str, str], rejected: set[str]
) -> None:
    """A deprecated label of the volume matches the new one of a node; nodes without labels pass."""
    world = World(NODES, bound(claim("data"), "v"), volume("v", labels=labels))

    assert world.reasons(ZONES, POD) == dict.fromkeys(rejected, REASON)


def test_zone_mismatch_is_unresolvable() -> None:
    """Preemption cannot move a volume."""
    world = World(NODES, bound(claim("data"), "v"), volume("v", labels={ZONE: "z1"}))

    assert ZONES.filter(world.snapshot, world.pod_class(POD)).unresolvable is True


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        ((), 'persistentvolumeclaim "data" not found'),
        ((bound(claim("data"), "v"),), 'persistentvolume "v" not found'),
        ((claim("data", ""),), "PersistentVolumeClaim had no pv name and storageClass name"),
        ((claim("data"),), 'storageclass.storage.k8s.io "late" not found'),
        ((claim("data"), storage_class("late", EARLY)), "PersistentVolume had no name"),
        ((claim("data"), storage_class("late")), ""),
    ],
)
def test_a_volume_must_be_known_unless_it_waits_for_the_pod(
    objects: tuple[KubeObject, ...], reason: str
) -> None:
    """A claim that waits for its first consumer has no zone yet."""
    refusal = World(NODES, *objects).refusal(ZONES, POD)

    assert (refusal.reason if refusal else "") == reason


def test_ephemeral_volumes_are_not_checked() -> None:
    """As upstream, only volumes of named claims are checked."""
    job = pod("job", ephemeral())
    world = World(NODES, volume("v", labels={ZONE: "z1"}))
    assert world.refusal(ZONES, job) is None

    world.put(owned(bound(claim("job-scratch"), "v"), job))

    assert world.reasons(ZONES, job) == {}


def test_pods_without_claims_are_skipped() -> None:
    """The filter does not run."""
    world = World(NODES)

    assert not ZONES.hints.filters(world.snapshot, world.pod_class(pod("web")))
