"""What admission knows of the cluster: from a watch, or asked each time."""

from typing import Any

import pytest
from tests.unit.manager.admission.requests import namespace, pod, priority_class, profile
from tests.unit.manager.admission.test_validation import quota

from koordinator.api.cluster_colocation_profile import ClusterColocationProfile
from koordinator.api.codec import decode_object
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.foundation.clock import VirtualClock
from koordinator.manager.lookups import ReaderLookup, WatchLookup

OBJECTS: tuple[Any, ...] = (
    namespace("default", tier="x"),
    priority_class("koord-batch", 5000),
    profile("etl"),
    quota("team"),
    pod() | {"apiVersion": "v1", "kind": "Pod"},
)


def cluster() -> MemoryCluster:
    made = MemoryCluster(VirtualClock())
    made.load(decode_object(each) for each in OBJECTS)
    return made


@pytest.mark.parametrize("kind", [ReaderLookup, WatchLookup])
def test_what_exists_is_found(kind: type[ReaderLookup]) -> None:
    """Whichever way."""
    world, clock = cluster(), VirtualClock()
    following = WatchLookup(world, lambda: 0, clock)
    following.follow()
    assert following.is_synced
    lookup = following if kind is WatchLookup else ReaderLookup(world, lambda: 0)

    there = lookup.namespace("default")
    assert there is not None
    assert there.metadata.labels["tier"] == "x"
    assert lookup.priority_class("koord-batch")
    assert lookup.priority_class("nobody") is None
    assert [each.metadata.name for each in lookup.profiles()] == ["etl"]
    assert lookup.quotas().get("team")
    assert lookup.pod("default", "p")
    assert lookup.config_map("default", "x") is None
    assert lookup.pods_of_quota("team", ("default",)) == ["default/p"]


def test_what_changes_is_known_at_the_next_request() -> None:
    """And what is gone is gone."""
    world = cluster()
    lookup = WatchLookup(world, lambda: 0, VirtualClock())
    lookup.follow()
    world.delete(ClusterColocationProfile, "etl")
    world.delete(ElasticQuota, "team", "default")
    assert list(lookup.profiles())

    lookup.follow()

    assert not list(lookup.profiles())
    assert lookup.quotas().get("team") is None
