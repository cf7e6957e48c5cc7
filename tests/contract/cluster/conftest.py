"""Adapters of ``koordinator.cluster.port`` under test.

A new adapter is one more entry of ``ADAPTERS``; every test of this folder then runs over it too.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from koordinator.api.kube_version import NEWEST, KubeVersion
from koordinator.api.meta import JsonObject, KubeObject
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.cluster.port import Cluster
from koordinator.foundation.clock import VirtualClock


@dataclass(frozen=True)
class Bed:
    """A cluster for one test, and what a test needs from behind the port.

    Pods end gracefully: who plays the kubelet deletes them with grace period 0.
    """

    cluster: Cluster
    create_manifest: Callable[[JsonObject], KubeObject]  # POST, whatever fields it has
    raw: Callable[[type[KubeObject], str, str], JsonObject]  # GET, with all fields
    break_watches: Callable[[], None]  # cut every stream, and forget what happened since
    release: KubeVersion = NEWEST  # whose API server it is


def memory_bed() -> Bed:
    cluster = MemoryCluster(VirtualClock(1_700_000_000), immediate_pod_deletion=False)
    return Bed(
        cluster=cluster,
        create_manifest=cluster.create_manifest,
        raw=cluster.raw,
        break_watches=lambda: None,  # there is nothing between a watch and the log
    )


ADAPTERS: dict[str, Callable[[], Bed]] = {"memory": memory_bed}


@pytest.fixture(scope="session", params=list(ADAPTERS.values()), ids=list(ADAPTERS))
def new_bed(request: pytest.FixtureRequest) -> Callable[[], Bed]:
    factory: Callable[[], Bed] = request.param
    return factory


@pytest.fixture
def bed(new_bed: Callable[[], Bed]) -> Bed:
    return new_bed()


@pytest.fixture
def cluster(bed: Bed) -> Cluster:
    return bed.cluster
