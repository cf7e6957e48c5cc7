"""Health of components: missing leaders and webhooks without a CA bundle are reported."""

import re
from typing import Any

import pytest
from tests.unit.dashboard.dashboards import crowded, overview, settled
from tests.unit.deploy.installed import ROOT
from tests.worlds import START_S, made

from koordinator.api.control_plane import Lease
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.dashboard.access import EVERYTHING, ViewScope
from koordinator.dashboard.attention import attention
from koordinator.dashboard.overview import ComponentHealth
from koordinator.foundation.clock import VirtualClock, to_datetime
from koordinator.foundation.errors import ClusterError

NAMESPACE = "koordinator-system"
WEBHOOK = "koordinator-mutating-webhook-configuration"
API = "admissionregistration.k8s.io/v1"


def lease(name: str, holder: str, ago_s: float) -> Any:
    at = to_datetime(START_S - ago_s).strftime("%Y-%m-%dT%H:%M:%S.000000Z")
    spec = {"holderIdentity": holder, "renewTime": at, "leaseDurationSeconds": 15}
    return made("Lease", name, Lease.API_VERSION, metadata={"namespace": NAMESPACE}, spec=spec)


def webhooks(*entries: dict[str, Any], **annotations: str) -> Any:
    meta = {"annotations": annotations}
    return made("MutatingWebhookConfiguration", WEBHOOK, API, metadata=meta, webhooks=list(entries))


def entry(name: str, **config: str) -> dict[str, Any]:
    return {"name": name, "clientConfig": config}


def health(*objects: Any) -> ComponentHealth:
    cluster = MemoryCluster(VirtualClock(START_S))
    cluster.load(objects)
    component_health = ComponentHealth(cluster, NAMESPACE)
    component_health.check(START_S)
    return component_health


@pytest.mark.parametrize(
    ("objects", "texts"),
    [
        ([lease("koord-scheduler", "a", 5)], []),
        ([lease("koord-scheduler", "a", 44)], []),
        ([lease("koord-scheduler", "a", 46)], ["its leader, a, has not renewed its lease"]),
        ([lease("koordinator-manager", "", 5)], ["it has no leader"]),
        ([lease("koord-manager", "", 5)], []),
        ([lease("foreign", "a", 9e6)], []),
        ([webhooks(entry("m", caBundle="Zm9v"))], []),
        ([webhooks(entry("m", url="https://a"))], []),
        ([webhooks(entry("m"), entry("n", caBundle=""))], ["calls of m, n fail"]),
        ([webhooks(template="[]")], ["koord-manager has not filled it in"]),
        ([webhooks()], []),
    ],
)
def test_problems_of_leases_and_webhooks_are_reported(objects: list[Any], texts: list[str]) -> None:
    """A lease counts for its duration and a grace period; foreign leases are ignored."""
    findings = health(*objects).findings

    assert len(findings) == len(texts)
    assert all(text in one.text for text, one in zip(texts, findings, strict=True))


def test_every_chart_component_is_reported_without_its_leader() -> None:
    """The names of the Leases are those in the charts' RBAC rules."""
    rules = [
        rule
        for chart in ("koordinator", "koordinator-yarn-copilot")
        for path in (ROOT / "charts" / chart / "templates").rglob("*.yaml")
        for rule in re.findall(
            r"resources: \[leases\]\n +resourceNames: \[(.*)\]\n +verbs: \[get, ",
            path.read_text("utf-8"),
        )
    ]
    assert len(rules) == 4

    for name in rules:
        (finding,) = health(lease(name, "a", 3600)).findings
        assert finding.about.startswith("component/koord-")


def test_component_problems_need_every_right() -> None:
    """Other scopes get the reason why they are not shown."""
    world = settled(*crowded())
    handle, shown = world.scheduler.handle, overview(world)
    bad = health(lease("koord-scheduler", "", 5))

    full = attention(handle, shown, EVERYTHING, components=bad)
    assert ("component/koord-scheduler", "error") in {(i.about, i.severity) for i in full.items}
    hidden = attention(handle, shown, ViewScope(frozenset({"blue"})), components=bad)
    assert "components" not in {item.topic for item in hidden.items}
    assert "webhooks and components" in hidden.not_looked_at


def test_error_of_the_api_server_replaces_old_findings() -> None:

    class Silent(MemoryCluster):
        def get(self, *_: Any, **__: Any) -> Any:
            raise ClusterError("leases: forbidden")

    component_health = ComponentHealth(Silent(VirtualClock(START_S)), NAMESPACE)
    component_health.check(START_S)
    world = settled(*crowded())
    result = attention(
        world.scheduler.handle, overview(world), EVERYTHING, components=component_health
    )

    assert result.not_looked_at["webhooks and components"] == "leases: forbidden"
    assert health().unread == f"no component is installed in {NAMESPACE}"
