"""Scripted API server of a healthy installation; a test changes one answer."""

import functools
import json
from base64 import b64encode
from pathlib import Path
from typing import Any, Final

from aiohttp import web
from tests.unit.cluster.kubernetes.scripted_server import Answer, ScriptedServer, reply
from tests.unit.deploy.installed import NAMESPACE, OBJECTS

from koordinator.api.registry import KINDS
from koordinator.api.schema import all_crds
from koordinator.foundation.clock import WallClock, to_datetime
from koordinator.process.serving_secret import self_signed

APPS: Final = f"GET /apis/apps/v1/namespaces/{NAMESPACE}"
CRDS: Final = "GET /apis/apiextensions.k8s.io/v1/customresourcedefinitions"
LEASES: Final = f"GET /apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
METRICS: Final = "GET /apis/slo.koordinator.sh/v1alpha1/nodemetrics"
NODES: Final = "GET /api/v1/nodes"
REVIEWS: Final = "POST /apis/authorization.k8s.io/v1/subjectaccessreviews"
OWN_REVIEWS: Final = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
DRY_RUN: Final = f"POST /apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{NAMESPACE}/elasticquotas"
SECRET: Final = f"GET /api/v1/namespaces/{NAMESPACE}/secrets/koordinator-webhook-certs"
WEBHOOKS: Final = "GET /apis/admissionregistration.k8s.io/v1"
MUTATING: Final = f"{WEBHOOKS}/mutatingwebhookconfigurations"
MUTATING_ONE: Final = f"{MUTATING}/koordinator-mutating-webhook-configuration"


def now_s() -> float:
    """Return the time of the clock that the command reads."""
    return WallClock().now_s()


def at(ago_s: float, *, micro: bool = False) -> str:
    """Return a time in the past as the API server writes it."""
    return to_datetime(now_s() - ago_s).strftime(f"%Y-%m-%dT%H:%M:%S{'.000000' * micro}Z")


def allow(*denied: tuple[str, str]) -> Answer:
    """Answer reviews with yes, but for some pairs of verb and resource[/subresource]."""

    async def answer(request: web.Request) -> web.StreamResponse:
        review = json.loads(await request.read())
        it = review["spec"]["resourceAttributes"]
        resource = "/".join(filter(None, (it["resource"], it.get("subresource"))))
        is_allowed = (it["verb"], resource) not in denied
        return web.json_response({**review, "status": {"allowed": is_allowed}})

    return answer


def workload(kind: str, name: str, **status: int) -> Any:
    """Return a workload of the shipped manifests with its status."""
    shipped = OBJECTS[kind, name]
    return {**shipped, "status": status}


def lease(name: str, ago_s: float, holder: str = "a") -> Any:
    """Return a Lease that was renewed some seconds ago."""
    spec = {
        "holderIdentity": holder,
        "leaseDurationSeconds": 15,
        "renewTime": at(ago_s, micro=True),
    }
    meta = {"name": name, "namespace": NAMESPACE}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": meta,
        "spec": spec,
    }


def metric(name: str, ago_s: float) -> Any:
    """Return a NodeMetric whose agent reported some seconds ago."""
    return {
        "metadata": {"name": name, "creationTimestamp": at(9e5)},
        "spec": {"metricCollectPolicy": {"reportIntervalSeconds": 60}},
        "status": {"updateTime": at(ago_s)},
    }


def webhook_configuration(kind: str, bundle: bytes) -> Any:
    """Return a configuration that koord-manager has filled in."""
    config = {"caBundle": b64encode(bundle).decode()} if bundle else {}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}WebhookConfiguration",
        "metadata": {"name": f"koordinator-{kind.lower()}-webhook-configuration"},
        "webhooks": [{"name": "a.koordinator.sh", "clientConfig": config}],
    }


@functools.cache
def crds() -> str:
    """Return the list of all definitions as the API server sends it."""
    return json.dumps({"metadata": {}, "items": all_crds()})


def script(server: ScriptedServer) -> None:
    """Answer as the API server of a healthy installation does."""
    server.on("GET /version", reply({"gitVersion": "v1.37.2"}))
    for name in ("koord-scheduler", "koord-manager", "koord-descheduler"):
        result = workload("Deployment", name, readyReplicas=2)
        server.on(f"{APPS}/deployments/{name}", reply(result))
    agents = workload("DaemonSet", "koordlet", desiredNumberScheduled=2, numberReady=2)
    server.on(f"{APPS}/daemonsets/koordlet", reply(agents))
    server.on(CRDS, reply(crds()))
    server.on(REVIEWS, allow())
    server.on(OWN_REVIEWS, allow())
    pair = self_signed(("koordinator-webhook-service",), now_s())
    data = {"cert.pem": pair.certificate, "key.pem": pair.key, "ca-cert.pem": pair.certificate}
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "koordinator-webhook-certs", "namespace": NAMESPACE},
        "data": {name: b64encode(each).decode() for name, each in data.items()},
    }
    server.on(SECRET, reply(secret))
    for kind in ("Mutating", "Validating"):
        one = webhook_configuration(kind, pair.certificate)
        path = f"{WEBHOOKS}/{kind.lower()}webhookconfigurations/{one['metadata']['name']}"
        server.on(path, reply(one))
    server.on(DRY_RUN, reply({}, 201))
    for name in ("koord-scheduler", "koordinator-manager", "koord-descheduler"):
        server.on(f"{LEASES}/{name}", reply(lease(name, 5)))
    server.on(NODES, reply({"metadata": {}, "items": [{"metadata": {"name": "n1"}}]}))
    server.on(METRICS, reply({"metadata": {}, "items": [metric("n1", 30)]}))
    for version in {kind.API_VERSION for kind in KINDS}:
        plurals = [kind.PLURAL for kind in KINDS if version == kind.API_VERSION]
        resources = [{"name": plural} for plural in plurals]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        server.on(f"GET {root}", reply({"resources": resources}))


def kubeconfig(path: Path, url: str) -> str:
    """Write a kubeconfig file for a server."""
    path.write_text(
        "current-context: c\n"
        f"clusters: [{{name: c, cluster: {{server: '{url}'}}}}]\n"
        "users: [{name: u, user: {token: t}}]\n"
        "contexts: [{name: c, context: {cluster: c, user: u}}]\n"
    )
    return str(path)
