"""The manager on a real API server: what nodes give, what pods become, what is refused."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.controlplane import ControlPlane
from tests.e2e.controlplane.endpoint import Endpoint, free_port
from tests.e2e.controlplane.errors import ApiError
from tests.e2e.guarded import assert_guarded, unverified
from tests.e2e.manager_process import NAMESPACE, ManagerProcess
from tests.e2e.session.manifests import node
from tests.e2e.waiting import eventually

METRICS = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
SLOS = "/apis/slo.koordinator.sh/v1alpha1/nodeslos"
HOOKS = "/apis/admissionregistration.k8s.io/v1"
CONFIGS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
CHART = str(Path(__file__).parents[3] / "charts/koordinator")
MERGE = "application/merge-patch+json"
GATES = "--feature-gates=ConfigMapValidatingWebhook=true,NodeMutatingWebhook=true"


@pytest.fixture
def manager(controlplane: ControlPlane) -> Iterator[ManagerProcess]:
    """Run a manager in a cluster that has its namespace."""
    controlplane.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    with ManagerProcess(controlplane, [GATES]) as running:
        yield running


def config(**sections: Any) -> dict[str, Any]:
    """Return slo-controller-config."""
    labels = {"koordinator.sh/configmap-type": "slo-controller-config"}
    data = {f"{name.replace('_', '-')}-config": json.dumps(each) for name, each in sections.items()}
    return {"metadata": {"name": "slo-controller-config", "labels": labels}, "data": data}


def hook(kind: str, name: str, url: str, resource: str, label: str = "") -> dict[str, Any]:
    """Return a webhook configuration as the chart makes it, but that no Service is called."""
    entry = {
        "name": name,
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "timeoutSeconds": 5,
        "clientConfig": {"url": url},
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE", "UPDATE"],
                "resources": [resource],
            }
        ],
    }
    if label:
        entry["objectSelector"] = {"matchExpressions": [{"key": label, "operator": "Exists"}]}
    configuration = f"koordinator-{kind}-webhook-configuration"
    return {"metadata": {"name": configuration}, "webhooks": [entry]}


def report(controlplane: ControlPlane, name: str) -> None:
    """Report what a node uses, as its koordlet does."""
    api = controlplane.api
    eventually(lambda: api.request("GET", f"{METRICS}/{name}"))
    idle = {"resources": {"cpu": "1", "memory": "1Gi"}}
    status = {
        "updateTime": datetime.now(UTC).isoformat(),  # noqa: TID251 -- the real time
        "nodeMetric": {"nodeUsage": idle, "systemUsage": idle},
    }
    api.request("PATCH", f"{METRICS}/{name}/status", {"status": status}, content_type=MERGE)


def test_the_installed_rights_are_enough(
    controlplane: ControlPlane, helm: Callable[..., str]
) -> None:
    """Under its ServiceAccount it elects itself, makes its certificate and keeps the nodes."""
    api = controlplane.api
    api.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    chart = helm("template", "koordinator", CHART, f"--namespace={NAMESPACE}")
    controlplane.kubectl("apply", "--server-side", "--filename=-", stdin=chart)
    installed = json.loads(
        controlplane.kubectl("get", "deployment/koord-manager", f"-n={NAMESPACE}", "-o=json")
    )
    template = installed["spec"]["template"]["spec"]
    command, *flags = template["containers"][0]["args"]
    assert command == "manager"
    own = ("--webhook-port", "--metrics-addr", "--health-probe-addr", "--secure-port")
    secure_port = free_port()
    kubeconfig = controlplane.service_account_kubeconfig(NAMESPACE, template["serviceAccountName"])

    with ManagerProcess(
        controlplane,
        [
            *(flag for flag in flags if not flag.startswith(own)),
            f"--secure-port={secure_port}",
            "--bind-address=127.0.0.1",
        ],
        name="installed-manager",
        kubeconfig=kubeconfig,
        elects=True,
    ):
        api.request("POST", "/api/v1/nodes", node("n1", "10"))
        report(controlplane, "n1")
        assert_guarded(Endpoint(secure_port, unverified()), api.token)
        path = "/api/v1/nodes/n1"
        cpu = "kubernetes.io/batch-cpu"
        assert eventually(lambda: api.request("GET", path)["status"]["allocatable"][cpu]) == "5k"
        secret = f"/api/v1/namespaces/{NAMESPACE}/secrets/koordinator-webhook-certs"
        trusted = api.request("GET", secret)["data"]["ca-cert.pem"]
        listed = f"{HOOKS}/mutatingwebhookconfigurations/koordinator-mutating-webhook-configuration"

        def hooks() -> dict[str, str]:
            webhooks = api.request("GET", listed)["webhooks"]
            return {each["name"]: each["clientConfig"]["caBundle"] for each in webhooks}

        assert eventually(hooks) == {
            "mpod-create.koordinator.sh": trusted,
            "mpod-update.koordinator.sh": trusted,
            "melasticquota.koordinator.sh": trusted,
        }


@pytest.mark.usefixtures("manager")
def test_a_report_becomes_batch_resources(controlplane: ControlPlane) -> None:
    """The amounts follow the configuration and are removed with the node."""
    api = controlplane.api
    api.request("POST", CONFIGS, config(colocation={"enable": True}))
    api.request("POST", "/api/v1/nodes", node("n1", "10"))
    report(controlplane, "n1")

    def batch() -> str:
        stored = api.request("GET", "/api/v1/nodes/n1")
        shown = stored["status"]["allocatable"]
        assert shown == stored["status"]["capacity"]
        cpu: str = shown["kubernetes.io/batch-cpu"]
        return cpu

    assert eventually(batch) == "5k"
    annotations = api.request("GET", "/api/v1/nodes/n1")["metadata"]["annotations"]
    assert "node.koordinator.sh/originExtendedAllocatable" in annotations
    threshold = api.request("GET", f"{SLOS}/n1")["spec"]["resourceUsedThresholdWithBE"]
    assert threshold["cpuSuppressThresholdPercent"] == 65

    api.request("DELETE", "/api/v1/nodes/n1")
    eventually(lambda: not api.request("GET", METRICS)["items"])
    eventually(lambda: not api.request("GET", SLOS)["items"])


def test_a_pod_that_is_created_gets_its_profile(
    controlplane: ControlPlane, manager: ManagerProcess, namespace: str
) -> None:
    """Over TLS, with a certificate that the manager generated and registered."""
    api = controlplane.api
    url = f"https://127.0.0.1:{manager.webhook_port}/mutate-pod"
    made = hook("mutating", "mpod-create.koordinator.sh", url, "pods", "app")
    api.request("POST", f"{HOOKS}/mutatingwebhookconfigurations", made)
    batch = {"metadata": {"name": "koord-batch"}, "value": 5000}
    api.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", batch)
    profile = {
        "apiVersion": "config.koordinator.sh/v1alpha1",
        "kind": "ClusterColocationProfile",
        "metadata": {"name": "etl"},
        "spec": {
            "selector": {"matchLabels": {"app": "etl"}},
            "qosClass": "BE",
            "priorityClassName": "koord-batch",
            "patch": {"spec": {"terminationGracePeriodSeconds": 15}},
        },
    }
    api.request("POST", "/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles", profile)
    pod = {
        "metadata": {"name": "job", "labels": {"app": "etl"}},
        "spec": {
            "containers": [
                {
                    "name": "c",
                    "image": "x",
                    "env": [{"name": "A", "value": "b"}],
                    "resources": {"requests": {"cpu": "1500m"}, "limits": {"memory": "1Gi"}},
                }
            ]
        },
    }

    def trusted() -> bool:
        listed = api.request(
            "GET", f"{HOOKS}/mutatingwebhookconfigurations/{made['metadata']['name']}"
        )
        return all("caBundle" in each["clientConfig"] for each in listed["webhooks"])

    eventually(trusted, 90)  # it is looked at once a minute
    path = f"/api/v1/namespaces/{namespace}/pods"
    eventually(lambda: api.request("POST", path, pod))
    created = api.request("GET", f"{path}/job")

    assert created["metadata"]["labels"]["koordinator.sh/qosClass"] == "BE"
    container = created["spec"]["containers"][0]
    assert container["resources"]["requests"] == {
        "kubernetes.io/batch-cpu": "1500",
        "kubernetes.io/batch-memory": "1Gi",
    }
    assert container["env"] == [{"name": "A", "value": "b"}]
    assert (created["spec"]["priority"], created["spec"]["terminationGracePeriodSeconds"]) == (
        5000,
        15,
    )

    manager.kill()  # now the failure policy decides: Fail rejects, Ignore admits as written
    second = {**pod, "metadata": {"name": "second", "labels": {"app": "etl"}}}
    with pytest.raises(ApiError, match="failed calling webhook"):
        api.request("POST", path, second)
    configuration = f"{HOOKS}/mutatingwebhookconfigurations/{made['metadata']['name']}"
    (entry,) = api.request("GET", configuration)["webhooks"]
    lenient = {"webhooks": [entry | {"failurePolicy": "Ignore"}]}
    api.request("PATCH", configuration, lenient, content_type=MERGE)

    def as_written() -> bool:
        labels = api.request("POST", path, second)["metadata"]["labels"]
        return bool(labels == {"app": "etl"})

    assert eventually(as_written)


def test_invalid_configuration_is_rejected(
    controlplane: ControlPlane, manager: ManagerProcess
) -> None:
    """An invalid configuration that no webhook has rejected doesn't take effect."""
    api = controlplane.api
    bad = config(resource_threshold={"clusterStrategy": {"cpuSuppressThresholdPercent": 130}})
    api.request("POST", "/api/v1/nodes", node("n1", "10"))
    api.request("POST", CONFIGS, bad)
    events = f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events"
    (event,) = eventually(lambda: api.request("GET", events)["items"])
    assert (event["type"], event["reason"]) == ("Warning", "SLOCfgUnmarshalFailed")
    slo = eventually(lambda: api.request("GET", f"{SLOS}/n1"))
    threshold = slo["spec"]["resourceUsedThresholdWithBE"]
    assert threshold["cpuSuppressThresholdPercent"] == 65
    api.request("DELETE", f"{CONFIGS}/slo-controller-config")

    url = f"https://127.0.0.1:{manager.webhook_port}/validate-configmap"
    label = "koordinator.sh/configmap-type"
    made = hook("validating", "vconfigmap.koordinator.sh", url, "configmaps", label)
    made["webhooks"][0]["admissionReviewVersions"] = ["v1beta1"]  # as the original's chart has it
    api.request("POST", f"{HOOKS}/validatingwebhookconfigurations", made)

    def refusal() -> str:
        try:
            api.request("POST", CONFIGS, bad)
        except ApiError as error:
            return str(error) if "CPUSuppressThresholdPercent" in str(error) else ""
        api.request("DELETE", f"{CONFIGS}/slo-controller-config")
        return ""

    assert "must be 100 or less" in eventually(refusal, 90)
    api.request("POST", CONFIGS, config(colocation={"enable": True}))
