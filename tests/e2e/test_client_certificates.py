"""Webhooks with client certificates of the API server, configured as in docs/how-to."""

import json
import ssl
from collections.abc import Iterator
from http.client import HTTPSConnection
from pathlib import Path

import pytest
import yaml
from tests.e2e.controlplane import ApiError, ControlPlane
from tests.e2e.controlplane.certificates import Authority
from tests.e2e.controlplane.endpoint import free_port
from tests.e2e.manager_process import NAMESPACE, ManagerProcess
from tests.e2e.session.test_manager import CONFIGS, GATES, HOOKS, config, hook
from tests.e2e.waiting import eventually

PLUGINS = ("MutatingAdmissionWebhook", "ValidatingAdmissionWebhook")


@pytest.fixture
def clients(tmp_path: Path) -> Authority:
    """Return the authority of the certificates that API servers show."""
    return Authority(tmp_path / "clients")


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def showing(
    controlplane: ControlPlane,  # noqa: ARG001 -- builds the programs
    tmp_path: Path,
    clients: Authority,
    port: int,
) -> Iterator[ControlPlane]:
    """Run a cluster whose API server shows a certificate to the webhooks of a port."""
    certificate, key = clients.issue_client("kube-apiserver")
    user = {"client-certificate": str(certificate), "client-key": str(key)}
    kubeconfig = tmp_path / "webhooks.conf"
    kubeconfig.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "users": [{"name": f"127.0.0.1:{port}", "user": user}],
            }
        )
    )
    version = "apiserver.config.k8s.io/v1"
    settings = {
        "apiVersion": version,
        "kind": "WebhookAdmissionConfiguration",
        "kubeConfigFile": str(kubeconfig),
    }
    admission = tmp_path / "admission.yaml"
    plugins = [{"name": plugin, "configuration": settings} for plugin in PLUGINS]
    admission.write_text(
        yaml.safe_dump(
            {"apiVersion": version, "kind": "AdmissionConfiguration", "plugins": plugins}
        )
    )
    flags = [f"--admission-control-config-file={admission}"]
    with ControlPlane(tmp_path / "showing", apiserver_flags=flags) as running:
        running.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        yield running


def test_only_an_api_server_with_the_certificate_is_answered(
    showing: ControlPlane, clients: Authority, port: int
) -> None:
    """The webhook rejects invalid objects; other clients of the port get no answer."""
    api = showing.api
    url = f"https://127.0.0.1:{port}/validate-configmap"
    label = "koordinator.sh/configmap-type"
    made = hook("validating", "vconfigmap.koordinator.sh", url, "configmaps", label)
    api.request("POST", f"{HOOKS}/validatingwebhookconfigurations", made)
    flags = (
        GATES,
        f"--webhook-port={port}",
        f"--webhook-client-ca-file={clients.ca_path}",
        "--webhook-client-names=kube-apiserver",
    )
    bad = config(resource_threshold={"clusterStrategy": {"cpuSuppressThresholdPercent": 101}})
    with ManagerProcess(showing, flags, name="certified"):

        def refusal() -> str:
            with pytest.raises(ApiError) as refused:
                api.request("POST", CONFIGS, bad)
            return str(refused.value) if "must be 100 or less" in str(refused.value) else ""

        assert eventually(refusal)
        api.request("POST", CONFIGS, config(colocation={"enable": True}))

        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        stranger = HTTPSConnection("127.0.0.1", port, timeout=10, context=tls)
        with pytest.raises(OSError, match=r"certificate|reset|closed|EOF"):
            ask(stranger)
        stranger.close()


def ask(connection: HTTPSConnection) -> int:
    """Request a review; return the status."""
    connection.request("POST", "/validate-configmap", json.dumps({"request": {"uid": "u"}}))
    return connection.getresponse().status
