"""Devices that take resources of their nodes, on a server that validates what pods state.

Source: kubernetes 1.37 test/e2e/dra/dra.go, "DRANodeAllocatableResources": the part that concerns a
scheduler.
"""

from collections.abc import Iterator

import pytest
from tests.e2e.claims import release_claims
from tests.e2e.controlplane.binaries import kubernetes_minor
from tests.e2e.suites.cluster import SOON_S, Manifest, SuiteCluster, node
from tests.e2e.waiting import eventually

pytestmark = pytest.mark.skipif(
    kubernetes_minor() < 37, reason="the API of this feature is of Kubernetes 1.37"
)
DRIVER = "cpu.test.example"
PROFILES = ("default-scheduler", "koord-scheduler")


@pytest.fixture(autouse=True)
def _released(cluster: SuiteCluster) -> Iterator[None]:
    """Free and delete all claims at the end, as their controller would."""
    yield
    release_claims(cluster.api)


def offer(cluster: SuiteCluster, amounts: Manifest) -> None:
    """Offer two devices of one node with 8 CPUs; each takes these amounts."""
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": f"d{number}", "nodeAllocatableResources": amounts} for number in range(2)]
    spec = {"driver": DRIVER, "nodeName": "n1", "pool": pool, "devices": devices}
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    declaring = node("n1", "8")
    declaring["status"]["declaredFeatures"] = ["DRANodeAllocatableResources"]  # of its kubelet
    cluster.create(
        declaring,
        {"kind": "ResourceSlice", "metadata": {"name": "n1-cpus"}, "spec": spec},
        {"kind": "DeviceClass", "metadata": {"name": "cpus"}, "spec": {"selectors": [selector]}},
    )


def claiming(cluster: SuiteCluster, name: str, cpu: str = "1") -> None:
    """Create a claim of one device, and a pod that has it."""
    exactly = {"deviceClassName": "cpus"}
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    cluster.create({"kind": "ResourceClaim", "metadata": {"name": name}, "spec": spec})
    wanted = cluster.pod(
        name, {"cpu": cpu}, resourceClaims=[{"name": "c", "resourceClaimName": name}]
    )
    wanted["spec"]["containers"][0]["resources"]["claims"] = [{"name": "c"}]
    cluster.create(wanted)


def stated(cluster: SuiteCluster, name: str) -> object:
    return cluster.get("Pod", name)["status"].get("nodeAllocatableResourceClaimStatuses")


@pytest.mark.parametrize("profile", PROFILES)
def test_cpus_of_a_claim_are_in_use(cluster: SuiteCluster, profile: str) -> None:
    """Of 8 CPUs a device takes 4 and its pod 1; a pod with 4 waits until they are free."""
    cluster.scheduler_name = profile
    offer(cluster, {"cpu": {"mapping": {"deviceMultiplier": "4"}}})
    claiming(cluster, "first")
    assert cluster.node_of("first") == "n1"
    assert stated(cluster, "first") == [
        {
            "resourceClaimName": "first",
            "containers": ["main"],
            "mapping": [{"name": "cpu", "quantity": "4"}],
        }
    ]
    assert "Insufficient cpu" in cluster.fail("plain", {"cpu": "4"})
    claiming(cluster, "second")
    eventually(lambda: "Insufficient cpu" in cluster.message_of("second"), SOON_S)
    assert stated(cluster, "second") is None

    cluster.delete("Pod", "first")
    pods = ("plain", "second")
    eventually(lambda: any("nodeName" in cluster.get("Pod", p)["spec"] for p in pods), SOON_S)


@pytest.mark.parametrize("profile", PROFILES)
def test_overhead_of_a_device_is_stated_beside_its_claim(
    cluster: SuiteCluster, profile: str
) -> None:
    """Memory per pod and per container that references the claim."""
    cluster.scheduler_name = profile
    offer(cluster, {"memory": {"overhead": {"perPod": "1Gi", "perContainer": "256Mi"}}})
    claiming(cluster, "p")
    assert cluster.node_of("p") == "n1"
    assert stated(cluster, "p") == [
        {
            "resourceClaimName": "p",
            "containers": ["main"],
            "overhead": [{"name": "memory", "perPod": "1Gi", "perContainer": "256Mi"}],
        }
    ]
