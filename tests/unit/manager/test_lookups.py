"""Lookups of admission in the cluster: by a watch, or by a read per request."""

from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from tests.unit.manager.admission.requests import namespace, pod, priority_class, profile
from tests.unit.manager.admission.test_validation import quota

from koordinator.api.codec import decode_object
from koordinator.api.colocation import ClusterColocationProfile
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.foundation.clock import VirtualClock
from koordinator.manager.lookups import ReaderLookup, WatchLookup
from koordinator.manager.metrics import QuotaWeights

OBJECTS: tuple[Any, ...] = (
    namespace("default", tier="x"),
    priority_class("koord-batch", 5000),
    profile("etl"),
    quota("team"),
    pod() | {"apiVersion": "v1", "kind": "Pod"},
)


def cluster() -> MemoryCluster:
    memory_cluster = MemoryCluster(VirtualClock())
    memory_cluster.load(decode_object(each) for each in OBJECTS)
    return memory_cluster


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
    """Deleted objects are not returned."""
    world = cluster()
    lookup = WatchLookup(world, lambda: 0, VirtualClock())
    lookup.follow()
    world.delete(ClusterColocationProfile, "etl")
    world.delete(ElasticQuota, "team", "default")
    assert list(lookup.profiles())

    lookup.follow()

    assert not list(lookup.profiles())
    assert lookup.quotas().get("team") is None


def test_the_shared_weight_of_a_quota_is_shown_while_it_is_there() -> None:
    """The weight defaults to the maximum; series of removed resources and quotas end."""
    world, registry = cluster(), CollectorRegistry()
    lookup = WatchLookup(world, lambda: 0, VirtualClock(), weights=QuotaWeights(registry))

    def weight(resource: str) -> float | None:
        labels = {"elasticquota_name": "team", "resource_name": resource}
        lookup.follow()
        return registry.get_sample_value("koord_manager_webhook_quota_shared_weight", labels)

    def write(weights: str) -> None:
        annotations = {"quota.scheduling.koordinator.sh/shared-weight": weights}
        world.patch(ElasticQuota, "team", "default", {"metadata": {"annotations": annotations}})

    most = world.get(ElasticQuota, "team", "default").spec.max
    assert weight("cpu") == float(str(most["cpu"]))
    write('{"cpu": "1500m", "example.com/gpu": 3}')
    assert (weight("cpu"), weight("example.com/gpu")) == (1.5, 3.0)
    write('{"cpu": 7}')
    assert (weight("cpu"), weight("example.com/gpu")) == (7.0, None)
    world.delete(ElasticQuota, "team", "default")
    assert weight("cpu") is None
