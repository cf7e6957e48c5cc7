"""How Koordinator's own components are, as far as a cluster's objects tell: leaders and webhooks.

Read now and then by a thread of its own, since each look is a handful of requests.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from koordinator.api.lease import (
    DESCHEDULER_LEASE,
    MANAGER_LEASE,
    SCHEDULER_LEASE,
    YARN_OPERATOR_LEASE,
    Lease,
)
from koordinator.api.meta import KubeObject
from koordinator.api.webhook_configuration import (
    MutatingWebhookConfiguration,
    ValidatingWebhookConfiguration,
)
from koordinator.cluster.port import Cluster
from koordinator.foundation.clock import to_epoch_s
from koordinator.foundation.errors import ClusterError, NotFoundError

#: The components that elect a leader, by the names of their Leases in the charts.
LEASES: Final = {
    SCHEDULER_LEASE: "koord-scheduler",
    MANAGER_LEASE: "koord-manager",
    DESCHEDULER_LEASE: "koord-descheduler",
    YARN_OPERATOR_LEASE: "koord-yarn-operator",
}
WEBHOOKS: Final = {
    MutatingWebhookConfiguration: "koordinator-mutating-webhook-configuration",
    ValidatingWebhookConfiguration: "koordinator-validating-webhook-configuration",
}
LATE_S = 30.0  # beyond what a lease lasts: who takes over needs some seconds, clocks differ
LEAST_LEASE_S = 15.0
NAMED = 3  # webhooks of a configuration


class ComponentFinding(msgspec.Struct, frozen=True, kw_only=True):
    """Something about a component, or what it has installed, that needs a person."""

    about: str  # kind/name
    text: str
    since_s: float | None = None


class ComponentHealth:
    """What was found at the last look; ``unread`` says why there is nothing, if there isn't."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster, self._namespace = cluster, namespace
        self.findings: tuple[ComponentFinding, ...] = ()
        self.unread = "they are being read"

    def look(self, now_s: float) -> None:
        """Read and judge; may wait for the API server."""
        try:
            leases = [*self._there(Lease, LEASES, self._namespace)]
            webhooks = [
                one for kind, name in WEBHOOKS.items() for one in self._there(kind, (name,), "")
            ]
        except ClusterError as error:
            self.findings, self.unread = (), str(error)
            return
        self.findings = (*lease_findings(leases, now_s), *webhook_findings(webhooks))
        self.unread = "" if leases or webhooks else f"none is installed in {self._namespace}"

    def _there(
        self, kind: type[KubeObject], names: Iterable[str], namespace: str
    ) -> Iterator[KubeObject]:
        for name in names:
            try:
                yield self._cluster.get(kind, name, namespace)
            except NotFoundError:
                continue


def lease_findings(leases: Iterable[KubeObject], now_s: float) -> Iterator[ComponentFinding]:
    """Yield the components that nobody leads, by their leases."""
    for lease in leases:
        if not isinstance(lease, Lease):
            continue
        spec = lease.spec
        renewed_s = to_epoch_s(spec.renew_time)
        lasts_s = max(float(spec.lease_duration_seconds or 0), LEAST_LEASE_S)
        if not spec.holder_identity:
            text = "nobody leads: its last leader has ended, and no other has come"
        elif now_s - renewed_s > lasts_s + LATE_S:
            text = f"its leader, {spec.holder_identity}, has not been heard of: does it run?"
        else:
            continue
        name = lease.metadata.name
        about = f"component/{LEASES.get(name, name)}"
        yield ComponentFinding(about=about, text=text, since_s=renewed_s or None)


def webhook_findings(configurations: Iterable[KubeObject]) -> Iterator[ComponentFinding]:
    """Yield webhooks that the API server can't call, since nobody has said whom to trust."""
    for one in configurations:
        webhooks = (
            one.webhooks
            if isinstance(one, MutatingWebhookConfiguration | ValidatingWebhookConfiguration)
            else ()
        )
        about = f"webhooks/{one.metadata.name}"
        if not webhooks and "template" in one.metadata.annotations:
            text = "koord-manager has not filled it in: no pod is changed, none is checked"
            yield ComponentFinding(about=about, text=text)
        bare = [str(each.get("name", "")) for each in webhooks if not _has_certificate(each)]
        if bare:
            others = f" and {len(bare) - NAMED} others" if len(bare) > NAMED else ""
            names = ", ".join(bare[:NAMED]) + others
            text = f"no certificate to trust (caBundle): calls of {names} fail"
            yield ComponentFinding(about=about, text=text)


def _has_certificate(webhook: object) -> bool:
    config = webhook.get("clientConfig") if isinstance(webhook, dict) else None
    # Of an address (url) the API server trusts what its own machine trusts.
    return isinstance(config, dict) and bool(config.get("caBundle") or config.get("url"))
