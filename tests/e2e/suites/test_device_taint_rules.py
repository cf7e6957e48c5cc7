"""Rules that taint devices, on a server that has their API.

Source: kubernetes 1.35 test/e2e/dra/dra.go, "DeviceTaintRule": the part that concerns a
scheduler.
"""

from collections.abc import Iterator

import pytest
from tests.e2e.claims import release_claims
from tests.e2e.controlplane.binaries import kubernetes_minor
from tests.e2e.suites.cluster import TAINT_RULES, Manifest, SuiteCluster, node
from tests.e2e.waiting import eventually

DRIVER = "gpu.test.example"


@pytest.fixture(autouse=True)
def _released(cluster: SuiteCluster) -> Iterator[None]:
    """Free and delete all claims at the end, as their controller would."""
    yield
    release_claims(cluster.api)


def rule(name: str, effect: str, **selector: str) -> Manifest:
    """Return a rule that taints devices of the test's driver."""
    spec = {
        "deviceSelector": {"driver": DRIVER, **selector},
        "taint": {"key": "test.example/broken", "effect": effect},
    }
    kind = {"apiVersion": TAINT_RULES, "kind": "DeviceTaintRule"}
    return {**kind, "metadata": {"name": name}, "spec": spec}


def offer(cluster: SuiteCluster, count: int) -> None:
    """Offer devices of one node, and a class of them."""
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": f"gpu-{number}"} for number in range(count)]
    spec = {"driver": DRIVER, "nodeName": "n1", "pool": pool, "devices": devices}
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    cluster.create(
        node("n1"),
        {"kind": "ResourceSlice", "metadata": {"name": "n1-gpus"}, "spec": spec},
        {"kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {"selectors": [selector]}},
    )


def claiming(cluster: SuiteCluster, name: str) -> Manifest:
    """Create a claim of one device; return a pod that has it."""
    exactly = {"deviceClassName": "gpu"}
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    cluster.create({"kind": "ResourceClaim", "metadata": {"name": name}, "spec": spec})
    return cluster.pod(name, resourceClaims=[{"name": "c", "resourceClaimName": name}])


def device_of(cluster: SuiteCluster, name: str) -> str:
    """Return the device that a claim has; empty if it has none."""
    status = cluster.get("ResourceClaim", name).get("status", {})
    results = status.get("allocation", {}).get("devices", {}).get("results", ())
    return "".join(result["device"] for result in results)


def test_device_tainted_by_a_rule_is_not_allocated(cluster: SuiteCluster) -> None:
    """The taint ends with the rule; a rule with the effect None has no influence.

    An API server before 1.35 refuses that effect.
    """
    offer(cluster, 2)
    cluster.create(rule("one", "NoSchedule", device="gpu-0"))
    refusal = cluster.refusal(rule("looked-at", "None"))
    assert bool(refusal) is (kubernetes_minor() < 35), refusal
    cluster.create(claiming(cluster, "a"))
    assert eventually(lambda: device_of(cluster, "a")) == "gpu-1"

    cluster.create(claiming(cluster, "b"))
    eventually(lambda: "cannot allocate all claims" in cluster.message_of("b"))
    cluster.delete("DeviceTaintRule", "one")
    assert eventually(lambda: device_of(cluster, "b")) == "gpu-0"
    eventually(lambda: cluster.get("Pod", "b")["spec"].get("nodeName") == "n1")


def test_a_rule_counts_from_the_moment_it_is_there(cluster: SuiteCluster) -> None:
    """The scheduler leaves allocated devices to their claims; other claims get none."""
    offer(cluster, 2)
    cluster.create(claiming(cluster, "a"))
    assert eventually(lambda: device_of(cluster, "a")) == "gpu-0"
    cluster.create(rule("all", "NoExecute", pool="n1"))
    cluster.create(claiming(cluster, "b"))
    eventually(lambda: "cannot allocate all claims" in cluster.message_of("b"))
    assert device_of(cluster, "a") == "gpu-0"
    cluster.patch("DeviceTaintRule", "all", {"spec": {"deviceSelector": {"pool": "another"}}})
    assert eventually(lambda: device_of(cluster, "b")) == "gpu-1"
