"""``koord doctor cluster`` with a real API server: its RBAC, its definitions, its admission."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.controlplane import ControlPlane

ROOT = Path(__file__).parents[2]
NAMESPACE = "koordinator-system"


def doctor(controlplane: ControlPlane, *flags: str, kubeconfig: str = "") -> tuple[int, Any]:
    """Run the command; return its exit code and its JSON."""
    koord = str(Path(sys.executable).with_name("koord"))
    config = kubeconfig or str(controlplane.kubeconfig())
    command = [koord, "doctor", "cluster", "--kubeconfig", config, "-o", "json", *flags]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    return done.returncode, json.loads(done.stdout)


@pytest.fixture
def installed(controlplane: ControlPlane) -> ControlPlane:
    """Return the control plane with everything applied; no component runs."""
    for path in ("charts/koordinator/crds", "deploy/koordinator.yaml"):
        controlplane.kubectl(
            "apply", "--server-side", "--force-conflicts", f"--filename={ROOT / path}"
        )
    return controlplane


def problems(report: Any, check: str) -> list[str]:
    """Return the problems that a check found."""
    return [it["problem"] for it in report["findings"] if it["check"] == check]


def test_applied_manifests_have_all_definitions_and_rights(installed: ControlPlane) -> None:
    """Each right of the shipped roles is reviewed by the API server; what does not run is found."""
    code, report = doctor(installed)

    assert code == 1
    for check in ("custom resources", "rights", "feature gates"):
        assert problems(report, check) == []
    assert problems(report, "leases") == ["does not exist: no replica has ever led"] * 3
    assert any("koord-manager has not filled it in" in it for it in problems(report, "webhooks"))


def test_removed_right_and_definition_are_found(installed: ControlPlane) -> None:
    """The finding names verb and resource, or the definition."""
    rules = json.loads(installed.kubectl("get", "clusterrole", "koord-scheduler", "--output=json"))[
        "rules"
    ]
    kept = [rule for rule in rules if rule["resources"] != ["pods/binding"]]
    installed.kubectl(
        "patch",
        "clusterrole",
        "koord-scheduler",
        "--type=merge",
        f"-p={json.dumps({'rules': kept})}",
    )
    code, report = doctor(installed)

    assert code == 1
    assert problems(report, "rights") == [
        "koord-scheduler may not create pods --subresource=binding"
    ]


def test_component_checks_its_own_rights(installed: ControlPlane) -> None:
    """The token of the ServiceAccount is enough; it may not read definitions."""
    account = installed.service_account_kubeconfig(NAMESPACE, "koord-scheduler")
    _, report = doctor(installed, "--as-component=koord-scheduler", kubeconfig=str(account))

    assert problems(report, "rights") == []
    assert problems(report, "custom resources") == []
    _, report = doctor(installed, "--as-component=koord-manager", kubeconfig=str(account))
    assert any("may not" in it for it in problems(report, "rights"))


def test_webhook_without_an_endpoint_is_found_by_the_dry_run(installed: ControlPlane) -> None:
    """The API server itself reports the failed call."""
    webhook = {
        "name": "melasticquota.koordinator.sh",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "timeoutSeconds": 2,
        "clientConfig": {
            "service": {"name": "koordinator-webhook-service", "namespace": NAMESPACE}
        },
        "rules": [
            {
                "apiGroups": ["scheduling.sigs.k8s.io"],
                "apiVersions": ["v1alpha1"],
                "operations": ["CREATE"],
                "resources": ["elasticquotas"],
            }
        ],
    }
    name = "koordinator-mutating-webhook-configuration"
    patch = json.dumps({"webhooks": [webhook]})
    installed.kubectl("patch", "mutatingwebhookconfiguration", name, "--type=merge", f"-p={patch}")
    code, report = doctor(installed)

    assert code == 1
    texts = " ".join(problems(report, "webhooks"))
    assert "caBundle is empty" in texts
    assert 'failed calling webhook "melasticquota.koordinator.sh"' in texts
