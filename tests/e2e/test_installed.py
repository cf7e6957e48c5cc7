"""The scheduler as it is installed: its rights, its configuration and its flags are enough.

``deploy/koordinator.yaml`` is applied, and the container's command run outside of any container,
with the ServiceAccount's token.
"""

import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.claims import release_claims
from tests.e2e.controlplane import ControlPlane
from tests.e2e.controlplane.binaries import kubernetes_minor
from tests.e2e.controlplane.endpoint import Endpoint, free_port
from tests.e2e.fleet import claim, device, node, pod, storage_class, volume
from tests.e2e.scheduler_process import SchedulerProcess
from tests.e2e.waiting import eventually

ROOT = Path(__file__).parents[2]
NAMESPACE, NAME = "koordinator-system", "koord-scheduler"

Manifest = dict[str, Any]


@pytest.fixture
def secure(controlplane: ControlPlane) -> Endpoint:
    """Return the port of the probes and of Prometheus, as the admin sees it."""
    like_a_kubelet = ssl.create_default_context()  # the certificate is made at every start
    like_a_kubelet.check_hostname = False
    like_a_kubelet.verify_mode = ssl.CERT_NONE
    return Endpoint(free_port(), like_a_kubelet, controlplane.api.token)


@pytest.fixture
def scheduler(controlplane: ControlPlane, secure: Endpoint) -> Iterator[SchedulerProcess]:
    """Install by ``docs/how-to/install.md`` and run the commands of the Deployment's pods."""
    for path in ("charts/koordinator/crds", "deploy/koordinator.yaml"):
        controlplane.kubectl("apply", "--server-side", f"--filename={ROOT / path}")
    inside = f"--namespace={NAMESPACE}"

    def stored(what: str) -> Any:
        return json.loads(controlplane.kubectl("get", what, inside, "--output=json"))

    file = stored("configmap/koord-scheduler-config")["data"]["koord-scheduler-config"]
    template = stored(f"deployment/{NAME}")["spec"]["template"]["spec"]
    (container,) = template["containers"]
    account = template["serviceAccountName"]
    command, *flags = container["args"]
    assert command == "scheduler"
    differing = {"--config": None, "--secure-port": f"--secure-port={secure.port}"}
    adapted = [differing.get(flag.partition("=")[0], flag) for flag in flags]
    with SchedulerProcess(
        controlplane,
        yaml.safe_load(file),
        name="installed",
        kubeconfig=controlplane.service_account_kubeconfig(NAMESPACE, account),
        flags=[*filter(None, adapted), "--bind-address=127.0.0.1"],
    ) as running:
        yield running


def waiting_for_it(manifest: Manifest, **spec: Any) -> Manifest:
    """Return the pod as one that the installed profile is to schedule."""
    return {**manifest, "spec": {**manifest["spec"], "schedulerName": NAME, **spec}}


def test_it_does_its_work_with_the_rights_that_it_is_given(
    controlplane: ControlPlane, namespace: str, scheduler: SchedulerProcess, secure: Endpoint
) -> None:
    """Plain pods, GPUs, volumes, preemption; conditions and events. Nothing was forbidden to it."""
    api = controlplane.api
    controlplane.start_controller_manager(["persistentvolume-binder-controller"])
    inside = f"/api/v1/namespaces/{namespace}"

    def create(path: str, *manifests: Manifest) -> None:
        for manifest in manifests:
            api.request("POST", path, manifest)

    def got(name: str) -> Any:
        return api.request("GET", f"{inside}/pods/{name}")

    def node_of(name: str) -> str:
        node_name: str = eventually(lambda: got(name)["spec"].get("nodeName", ""))
        return node_name

    gpu_node = node("n2", cpu="1")
    gpus = {"koordinator.sh/gpu-core": "200", "koordinator.sh/gpu-memory-ratio": "200"}
    gpu_node["status"]["allocatable"] |= gpus
    create("/api/v1/nodes", node("n1", cpu="4"), gpu_node)
    create("/apis/scheduling.koordinator.sh/v1alpha1/devices", device("n2", gpus=2))
    create("/apis/storage.k8s.io/v1/storageclasses", storage_class("disk"))
    create("/api/v1/persistentvolumes", volume("pv", "disk", "n1"))
    create(f"{inside}/persistentvolumeclaims", claim("data", "disk"))
    half = {"koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory-ratio": "50"}
    big = pod("big", cpu="3")
    create(
        f"{inside}/pods",
        waiting_for_it(pod("gpu", **half)),
        waiting_for_it(pod("claiming", claims=["data"])),
        waiting_for_it(big, priorityClassName="koord-batch"),
        waiting_for_it(pod("huge", cpu="40")),
    )

    assert node_of("gpu") == "n2"
    given = json.loads(
        got("gpu")["metadata"]["annotations"]["scheduling.koordinator.sh/device-allocated"]
    )
    assert given["gpu"][0]["resources"]["koordinator.sh/gpu-core"] == "50"
    assert node_of("claiming") == "n1"
    promised = api.request("GET", f"{inside}/persistentvolumeclaims/data")
    assert (promised["spec"]["volumeName"], promised["status"]["phase"]) == ("pv", "Bound")
    assert node_of("big") == "n1"
    create(
        f"{inside}/pods",
        waiting_for_it(pod("urgent", cpu="3"), priorityClassName="koord-prod"),
    )
    assert node_of("urgent") == "n1"

    def events(name: str) -> list[Manifest]:
        listed = api.request("GET", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")
        return [it for it in listed["items"] if it["regarding"]["name"] == name]

    def reasons(name: str) -> set[str]:
        return {it["reason"] for it in events(name)}

    eventually(lambda: reasons("big") == {"Scheduled", "Preempted"})
    eventually(lambda: "Scheduled" in reasons("urgent"))
    eventually(lambda: any("series" in it for it in events("huge")))  # tried again in vain
    (condition,) = got("huge")["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("PodScheduled", "Unschedulable")

    (lease,) = api.request("GET", f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases")[
        "items"
    ]
    assert (lease["metadata"]["name"], lease["spec"]["leaseTransitions"]) == (NAME, 0)
    assert secure.request("GET", "/livez") == "ok"
    page = secure.request("GET", "/metrics")
    assert 'rest_client_requests_total{code="201"' in page
    assert 'code="403"' not in page
    assert "forbidden" not in scheduler.log.read_text()
    assert scheduler.stop() == 0


def test_devices_are_claimed_with_the_rights_that_it_is_given(
    controlplane: ControlPlane, namespace: str, scheduler: SchedulerProcess
) -> None:
    """A claim by name, and one that the scheduler makes for an extended resource.

    From Kubernetes 1.36 on the API server requires resourceclaims/binding.
    """
    api, prefix = controlplane.api, "/apis/resource.k8s.io/v1"
    assert scheduler.is_running
    selector = {"cel": {"expression": 'device.driver == "gpu.example.com"'}}
    device_class = {"selectors": [selector], "extendedResourceName": "example.com/gpu"}
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": f"gpu-{number}"} for number in range(2)]
    offer = {"driver": "gpu.example.com", "nodeName": "n1", "pool": pool, "devices": devices}
    exactly = {"deviceClassName": "gpu"}
    claim_spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    api.request("POST", "/api/v1/nodes", node("n1"))
    for path, name, spec in (
        (f"{prefix}/deviceclasses", "gpu", device_class),
        (f"{prefix}/resourceslices", "n1-gpus", offer),
        (f"{prefix}/namespaces/{namespace}/resourceclaims", "mine", claim_spec),
    ):
        api.request("POST", path, {"metadata": {"name": name}, "spec": spec})
    pods = [
        waiting_for_it(pod("claiming"), resourceClaims=[{"name": "c", "resourceClaimName": "mine"}])
    ]
    if kubernetes_minor() >= 36:
        pods.append(waiting_for_it(pod("extended", **{"example.com/gpu": "1"})))
    inside = f"/api/v1/namespaces/{namespace}/pods"
    for manifest in pods:
        api.request("POST", inside, manifest)

    def node_of(name: str) -> str:
        return str(api.request("GET", f"{inside}/{name}")["spec"].get("nodeName", ""))

    for manifest in pods:
        name = manifest["metadata"]["name"]
        eventually(lambda name=name: node_of(name) == "n1")  # type: ignore[misc]
    claims = api.request("GET", f"{prefix}/namespaces/{namespace}/resourceclaims")["items"]
    assert len(claims) == len(pods)
    assert all(each["status"]["reservedFor"] for each in claims)
    release_claims(api)
