"""Commands find the cluster as kubectl does, and answer users who may read a namespace only."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.controlplane import ControlPlane
from tests.e2e.koord_process import KOORD
from tests.e2e.session.manifests import node, pod
from tests.e2e.session.user import User

CPU = "Insufficient cpu"


def run_command(kubeconfig: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"KUBECONFIG": str(kubeconfig)}
    return subprocess.run(
        [KOORD, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def output(kubeconfig: Path, *arguments: str) -> Any:
    done = run_command(kubeconfig, *arguments, "-o", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def tenant(controlplane: ControlPlane, user: User) -> Path:
    """Return the kubeconfig of a user who may only read pods of the namespace."""
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{user.namespace}"
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]
    role = {"metadata": {"name": "reader"}, "rules": rules}
    controlplane.api.request("POST", f"{path}/roles", role)
    binding = {
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "tenant"}],
    }
    controlplane.api.request("POST", f"{path}/rolebindings", binding)
    return in_namespace(controlplane.kubeconfig("tenant"), user.namespace)


def in_namespace(kubeconfig: Path, namespace: str) -> Path:
    """Return a copy whose context has a namespace."""
    document = yaml.safe_load(kubeconfig.read_text())
    for context in document["contexts"]:
        context["context"]["namespace"] = namespace
    copy = kubeconfig.with_name(f"{kubeconfig.stem}-{namespace}.yaml")
    copy.write_text(yaml.safe_dump(document))
    return copy


def test_commands_use_the_cluster_of_the_environment(
    user: User, controlplane: ControlPlane
) -> None:
    """Names without a namespace are of the context's; -n and -l narrow."""
    user.apply(node("small", "1"), pod("large", "2", labels={"app": "web"}), pod("other", "3"))
    user.refusal_of("large")
    admin = in_namespace(controlplane.kubeconfig(), user.namespace)
    large = f"{user.namespace}/large"

    (explanation,) = output(admin, "explain", "pod", "large")["pods"]
    assert (explanation["pod"], explanation["verdict"]) == (large, "waits")
    assert {cause["reason"] for cause in explanation["causes"]} == {CPU}

    assert output(admin, "explain", "pods", "-n", user.namespace)["waiting"] == 2
    (web,) = output(admin, "explain", "pods", "-n", user.namespace, "-l", "app=web")["causes"]
    assert web["pods"] == [large]
    (placed,) = output(admin, "schedule", "--dry-run", "-l", "app=web")["unschedulable"]
    assert placed["pod"] == large
    assert run_command(admin, "gang", "list").returncode == 0
    assert run_command(admin, "quota", "tree").returncode == 0
    refused = run_command(admin, "schedule")
    assert (refused.returncode, "--dry-run" in refused.stderr) == (2, True)


def test_a_tenant_sees_why_own_pods_wait(user: User, tenant: Path) -> None:
    """From what the scheduler wrote into them; and that no more may be read."""
    user.apply(node("small", "1"), pod("large", "2"))
    user.refusal_of("large")

    done = run_command(tenant, "explain", "pod", "large", "-o", "json")
    (explanation,) = json.loads(done.stdout)["pods"]
    assert explanation["verdict"] == "waits"
    assert CPU in explanation["causes"][0]["reason"]
    assert "this user may not read" in done.stderr

    assert output(tenant, "explain", "pods")["waiting"] == 1
    elsewhere = run_command(tenant, "explain", "pods", "-n", "kube-system")
    assert elsewhere.returncode == 2
    assert "pods is forbidden" in elsewhere.stderr
