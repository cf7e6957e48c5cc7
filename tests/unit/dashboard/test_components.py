"""Components without leaders and webhooks without certificates are found; others are not."""

import re
from typing import Any

import pytest
from tests.unit.dashboard.dashboards import crowded, overview, settled
from tests.unit.deploy.installed import ROOT
from tests.worlds import START_S, made

from koordinator.api.lease import Lease
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.dashboard.access import EVERYTHING, ViewScope
from koordinator.dashboard.attention import attention
from koordinator.dashboard.components import ComponentHealth
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
    found = ComponentHealth(cluster, NAMESPACE)
    found.look(START_S)
    return found


@pytest.mark.parametrize(
    ("objects", "texts"),
    [
        ([lease("koord-scheduler", "a", 5)], []),
        ([lease("koord-scheduler", "a", 44)], []),
        ([lease("koord-scheduler", "a", 46)], ["its leader, a, has not been heard of"]),
        ([lease("koordinator-manager", "", 5)], ["nobody leads"]),
        ([lease("koord-manager", "", 5)], []),
        ([lease("somebody-else", "a", 9e6)], []),
        ([webhooks(entry("m", caBundle="Zm9v"))], []),
        ([webhooks(entry("m", url="https://a"))], []),
        ([webhooks(entry("m"), entry("n", caBundle=""))], ["calls of m, n fail"]),
        ([webhooks(template="[]")], ["koord-manager has not filled it in"]),
        ([webhooks()], []),
    ],
)
def test_what_is_wrong_is_found(objects: list[Any], texts: list[str]) -> None:
    """A lease counts for as long as it says, and some; of others' leases nothing is told."""
    found = health(*objects).findings

    assert len(found) == len(texts)
    assert all(text in one.text for text, one in zip(texts, found, strict=True))


def test_each_component_of_the_charts_is_reported_when_its_leader_has_ended() -> None:
    """The names of the Leases are those that the charts let the components write."""
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
        (found,) = health(lease(name, "a", 3600)).findings
        assert found.about.startswith("component/koord-")


def test_findings_are_among_what_needs_a_person() -> None:
    """For who sees everything; to others it is said that they are not shown."""
    world = settled(*crowded())
    handle, shown = world.scheduler.handle, overview(world)
    bad = health(lease("koord-scheduler", "", 5))

    told = attention(handle, shown, EVERYTHING, components=bad)
    assert ("component/koord-scheduler", "error") in {(i.about, i.severity) for i in told.items}
    hidden = attention(handle, shown, ViewScope(frozenset({"blue"})), components=bad)
    assert "components" not in {item.topic for item in hidden.items}
    assert "webhooks and components" in hidden.not_looked_at


def test_an_api_server_that_does_not_answer_or_allow_it_is_said() -> None:
    """What was found before is not shown as if it were known still."""

    class Silent(MemoryCluster):
        def get(self, *_: Any, **__: Any) -> Any:
            raise ClusterError("leases: forbidden")

    found = ComponentHealth(Silent(VirtualClock(START_S)), NAMESPACE)
    found.look(START_S)
    world = settled(*crowded())
    told = attention(world.scheduler.handle, overview(world), EVERYTHING, components=found)

    assert told.not_looked_at["webhooks and components"] == "leases: forbidden"
    assert health().unread == f"none is installed in {NAMESPACE}"
