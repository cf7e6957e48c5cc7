"""A tenant with rights in a namespace of its own reaches for what another tenant has."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.controlplane import ControlPlane, ControlPlaneError
from tests.e2e.manager_process import NAMESPACE, ManagerProcess
from tests.e2e.waiting import eventually

HOOKS = "/apis/admissionregistration.k8s.io/v1"
QUOTA = "quota.scheduling.koordinator.sh/"
KOORD = "scheduling.koordinator.sh/"
IGNORED = f"{KOORD}reservation-ignored"
QUOTA_RESOURCE = ("scheduling.sigs.k8s.io", "v1alpha1", "elasticquotas")
POD_RESOURCE = ("", "v1", "pods")
#: What a scheduler or the manager writes into pods.
GIVEN = {
    f"{KOORD}device-allocated": '{"gpu":[{"minor":0}]}',
    f"{KOORD}resource-status": '{"cpuset":"0-7"}',
    f"{KOORD}reservation-allocated": '{"name":"bank","uid":"u"}',
    f"{KOORD}gpu-minors": "0",
}


def quota(name: str, *, most: str = "0", **marks: dict[str, str]) -> dict[str, Any]:
    """Return a quota of the attacker; ``marks`` are labels and annotations."""
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": name, "namespace": "evil", **marks},
        "spec": {"min": {"cpu": "0"}, "max": {"cpu": most}},
    }


def pod(name: str, **marks: dict[str, str]) -> dict[str, Any]:
    """Return a pod of the attacker."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "evil", **marks},
        "spec": {"containers": [{"name": "c", "image": "x"}]},
    }


class Tenant:
    """User who may create and change pods and quotas in the namespace evil, and nothing else."""

    def __init__(self, controlplane: ControlPlane, kubeconfig: Path) -> None:
        self._controlplane, self._kubeconfig = controlplane, kubeconfig

    def refusal(self, *command: str, obj: dict[str, Any] | None = None) -> str:
        """Return why something is refused; empty if it is done."""
        files = () if obj is None else ("--filename=-",)
        try:
            self._controlplane.kubectl(
                *command,
                *files,
                stdin="" if obj is None else json.dumps(obj),
                kubeconfig=self._kubeconfig,
            )
        except ControlPlaneError as error:
            return str(error)
        return ""

    def may(self, obj: dict[str, Any]) -> str:
        """Return why an object may not be created; empty if it may.  It is not."""
        return self.refusal("create", "--dry-run=server", obj=obj)


def _hook(port: int, path: str, resource: tuple[str, str, str]) -> dict[str, Any]:
    group, version, plural = resource
    return {
        "name": f"{path}.koordinator.sh",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "NoneOnDryRun",
        "failurePolicy": "Fail",
        "timeoutSeconds": 10,
        "clientConfig": {"url": f"https://127.0.0.1:{port}/{path}"},
        "rules": [
            {
                "apiGroups": [group],
                "apiVersions": [version],
                "operations": ["CREATE", "UPDATE"],
                "resources": [plural],
            }
        ],
    }


@pytest.fixture(params=["default", "strict"])
def tenant(controlplane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[Tenant]:
    """Run a manager that is asked about pods and quotas; a bank is there already."""
    api = controlplane.api
    for name in (NAMESPACE, "evil", "bank"):
        api.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    controlplane.kubectl("create", "serviceaccount", "tenant", "--namespace=evil")
    controlplane.kubectl(
        "create", "role", "tenant", "--namespace=evil", "--verb=create,get,patch,update",
        "--resource=pods,elasticquotas.scheduling.sigs.k8s.io",
    )  # fmt: skip
    controlplane.kubectl(
        "create", "rolebinding", "tenant", "--namespace=evil", "--role=tenant",
        "--serviceaccount=evil:tenant",
    )  # fmt: skip
    kubeconfig = controlplane.service_account_kubeconfig("evil", "tenant")
    own = quota("bank", most="8", labels={f"{QUOTA}is-parent": "true"})
    own["metadata"]["namespace"] = "bank"
    api.request("POST", "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/bank/elasticquotas", own)
    gates = f"--feature-gates=StrictTenancy={str(request.param == 'strict').lower()}"
    with ManagerProcess(controlplane, [gates]) as manager:
        port, path = manager.webhook_port, "scheduling-sigs-k8s-io-v1alpha1-elasticquota"
        listed = {
            "mutating": [_hook(port, "mutate-pod", POD_RESOURCE),
                         _hook(port, f"mutate-{path}", QUOTA_RESOURCE)],
            "validating": [_hook(port, "validate-pod", POD_RESOURCE),
                           _hook(port, f"validate-{path}", QUOTA_RESOURCE)],
        }  # fmt: skip
        for kind, hooks in listed.items():
            where = f"{HOOKS}/{kind}webhookconfigurations"
            name = f"koordinator-{kind}-webhook-configuration"
            api.request("POST", where, {"metadata": {"name": name}, "webhooks": hooks})
        made = Tenant(controlplane, kubeconfig)
        eventually(lambda: not made.may(pod("first")), 60)
        yield made
        for kind in listed:
            name = f"koordinator-{kind}-webhook-configuration"
            api.request("DELETE", f"{HOOKS}/{kind}webhookconfigurations/{name}")


def test_a_tenant_binds_nothing_of_another(
    tenant: Tenant, controlplane: ControlPlane, request: pytest.FixtureRequest
) -> None:
    """Quotas, labels of pods and forged allocations have no effect."""
    is_strict = request.node.callspec.params["tenant"] == "strict"
    annotations = {f"{QUOTA}namespaces": '["bank"]'}
    for attack, message in (
        (quota("q", annotations={f"{QUOTA}namespaces": '["kube-system"]'}), "kube-system"),
        (quota("q", annotations=annotations), "bank"),
        (quota("koordinator-default-quota"), "built-in"),
        (quota("kube-system"), "another namespace"),
        (quota("q", labels={f"{QUOTA}parent": "bank"}), "bank/bank"),
        (quota("q", labels={f"{QUOTA}is-root": "true"}), "elasticquotaprofiles"),
    ):
        assert message in tenant.may(attack)
    assert ("koordinator-root-quota" in tenant.may(quota("mine", most="1"))) is is_strict

    assert bool(tenant.may(pod("p", labels={IGNORED: "true"}))) is is_strict

    # A pod is created without the allocation in its annotation, and stays so.
    assert tenant.refusal("create", obj=pod("p", annotations={**GIVEN, "mine": "1"})) == ""
    path = "/api/v1/namespaces/evil/pods/p"
    current = controlplane.api.request("GET", path)["metadata"]["annotations"]
    assert current.keys() & GIVEN.keys() == set()
    assert current["mine"] == "1"
    for key, text in GIVEN.items():
        message = tenant.refusal("annotate", "pod/p", f"{key}={text}", "--namespace=evil")
        assert "pods/binding" in message, key
    assert tenant.refusal("annotate", "pod/p", "mine=2", "--overwrite", "--namespace=evil") == ""

    # Who has the right may: the administrator here, as a scheduler of its own would.
    key, text = next(iter(GIVEN.items()))
    controlplane.kubectl("annotate", "pod/p", f"{key}={text}", "--namespace=evil")
