"""Findings about Koordinator's components, derived from their Leases and webhook configurations.

The dashboard and ``koord doctor`` show them.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from koordinator.api.control_plane import (
    DESCHEDULER_LEASE,
    MANAGER_LEASE,
    SCHEDULER_LEASE,
    YARN_OPERATOR_LEASE,
    Lease,
    MutatingWebhookConfiguration,
    ValidatingWebhookConfiguration,
)
from koordinator.api.meta import KubeObject
from koordinator.foundation.clock import to_epoch_s

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
GRACE_S = 30.0  # beyond the lease duration: covers a change of leader and clock skew
MIN_LEASE_S = 15.0
MAX_NAMED = 3  # webhooks of a configuration


class ComponentFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A problem of a component, or of an object that it installed."""

    about: str  # kind/name
    text: str
    since_s: float | None = None


def lease_findings(leases: Iterable[KubeObject], now_s: float) -> Iterator[ComponentFinding]:
    """Yield the components without an active leader."""
    for lease in leases:
        if not isinstance(lease, Lease):
            continue
        spec = lease.spec
        renewed_s = to_epoch_s(spec.renew_time)
        duration_s = max(float(spec.lease_duration_seconds or 0), MIN_LEASE_S)
        if not spec.holder_identity:
            text = "it has no leader: the last one released its lease, and no replica took over"
        elif now_s - renewed_s > duration_s + GRACE_S:
            text = f"its leader, {spec.holder_identity}, has not renewed its lease; is it running?"
        else:
            continue
        name = lease.metadata.name
        about = f"component/{LEASES.get(name, name)}"
        yield ComponentFinding(about=about, text=text, since_s=renewed_s or None)


def webhook_findings(configurations: Iterable[KubeObject]) -> Iterator[ComponentFinding]:
    """Yield the webhooks that the API server cannot call for lack of a CA bundle."""
    for one in configurations:
        webhooks = (
            one.webhooks
            if isinstance(one, MutatingWebhookConfiguration | ValidatingWebhookConfiguration)
            else ()
        )
        about = f"webhooks/{one.metadata.name}"
        if not webhooks and "template" in one.metadata.annotations:
            text = "koord-manager has not filled it in, so pods are neither mutated nor validated"
            yield ComponentFinding(about=about, text=text)
        untrusted = [str(each.get("name", "")) for each in webhooks if not _has_ca(each)]
        if untrusted:
            others = (
                f" and {len(untrusted) - MAX_NAMED} others" if len(untrusted) > MAX_NAMED else ""
            )
            names = ", ".join(untrusted[:MAX_NAMED]) + others
            text = f"clientConfig.caBundle is empty, so calls of {names} fail"
            yield ComponentFinding(about=about, text=text)


def _has_ca(webhook: object) -> bool:
    config = webhook.get("clientConfig") if isinstance(webhook, dict) else None
    # For a url the API server falls back to the system's trust roots.
    return isinstance(config, dict) and bool(config.get("caBundle") or config.get("url"))
