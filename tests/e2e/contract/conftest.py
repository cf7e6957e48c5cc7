"""The Kubernetes adapter as a bed for the contract of the cluster port."""

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from tests.contract.cluster.conftest import Bed
from tests.e2e.controlplane import ApiError, ControlPlane
from tests.e2e.controlplane.binaries import kubernetes_minor

from koordinator.api.kube_version import KubeVersion
from koordinator.api.meta import JsonObject, KubeObject
from koordinator.api.registry import find_kind
from koordinator.cluster.kubernetes.cluster import KubernetesCluster
from koordinator.cluster.kubernetes.connection import find_connection
from koordinator.cluster.kubernetes.credentials import Credentials
from koordinator.cluster.kubernetes.resources import collection_path, object_path
from koordinator.cluster.port import Cluster
from koordinator.foundation.clock import SystemClock

NAMESPACES = ("x", "y")  # that the tests use besides default


@pytest.fixture(scope="session")
def new_bed(controlplane: ControlPlane) -> Iterator[Callable[[], Bed]]:
    """Make a new client of a cluster without pods; the one before it is closed."""
    clusters: list[KubernetesCluster] = []

    def make() -> Bed:
        while clusters:
            clusters.pop().close()
        delete_pods(controlplane)
        for name in NAMESPACES:
            with suppress(ApiError):  # it exists: this is another bed of the same test
                controlplane.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        clock = SystemClock()
        credentials = Credentials(find_connection(str(controlplane.kubeconfig())), clock)
        clusters.append(KubernetesCluster(credentials, clock, page_size=2))
        return bed_of(controlplane, clusters[0])

    yield make
    while clusters:
        clusters.pop().close()


@pytest.fixture
def bed(new_bed: Callable[[], Bed]) -> Bed:
    return new_bed()


@pytest.fixture
def cluster(bed: Bed) -> Cluster:
    return bed.cluster


def delete_pods(controlplane: ControlPlane) -> None:
    """Delete what earlier beds of the same test left: faster than to look at every kind."""
    api = controlplane.api
    for pod in api.request("GET", "/api/v1/pods")["items"]:
        meta = pod["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        if meta.get("finalizers"):
            patch = {"metadata": {"finalizers": None}}
            api.request("PATCH", path, patch, content_type="application/merge-patch+json")
        with suppress(ApiError):  # the last finalizer was all that held it
            api.request("DELETE", path, {"gracePeriodSeconds": 0})


def bed_of(controlplane: ControlPlane, cluster: KubernetesCluster) -> Bed:
    """Return the bed; what is behind the port is reached without our client."""

    def create_manifest(manifest: JsonObject) -> KubeObject:
        kind_type = find_kind(manifest["apiVersion"], manifest["kind"])
        meta = manifest["metadata"]
        path = collection_path(kind_type, meta.get("namespace", ""))
        controlplane.api.request("POST", path, manifest)
        return cluster.get(kind_type, meta["name"], meta.get("namespace", ""))

    def raw(kind_type: type[KubeObject], name: str, namespace: str) -> JsonObject:
        response: JsonObject = controlplane.api.request(
            "GET", object_path(kind_type, name, namespace)
        )
        return response

    release = KubeVersion(kubernetes_minor())
    return Bed(cluster, create_manifest, raw, controlplane.compact_history, release)
