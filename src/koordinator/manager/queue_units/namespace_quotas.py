"""How much units may ask for in a namespace: as its ResourceQuota says.

Of several ResourceQuotas of a namespace the one that is called like it counts; units alone are
counted, not the pods that the API server counts.
Source: koord-queue, plugin ResourceQuota.
"""

from collections.abc import Iterable
from typing import Final

from koordinator.api.resource_quota import ResourceQuota
from koordinator.domain.quota.amounts import (
    Amounts,
    add,
    amounts_of,
    exceeded,
    multiple,
    named_by,
    plus,
    to_text,
)
from koordinator.manager.queue_units.accounts import UnitClaim

_REQUESTS: Final = "requests."  # requests.cpu is the same as cpu


class NamespaceAccount:
    """ResourceQuotas by namespace, with what units hold of each."""

    def __init__(self, quotas: Iterable[ResourceQuota]) -> None:
        self._quotas: dict[str, list[ResourceQuota]] = {}
        self._used: dict[str, dict[str, int]] = {}
        for quota in quotas:
            self._quotas.setdefault(quota.metadata.namespace, []).append(quota)

    def expect(self, claim: UnitClaim) -> None:
        """Do nothing: who waits keeps nobody else from his room."""

    def take(self, claim: UnitClaim) -> None:
        """Count what a unit holds in its namespace."""
        add(self._used.setdefault(claim.namespace, {}), claim.amounts)

    def release(self, claim: UnitClaim) -> None:
        """Take back what was counted."""
        add(self._used.setdefault(claim.namespace, {}), multiple(claim.amounts, -1))

    def why_not(self, claim: UnitClaim) -> str:
        """Return why there is no room in the namespace; empty: there is."""
        quota = self._quota(claim.namespace)
        if isinstance(quota, str):
            return quota
        limit, used = _limit(quota), self._used.get(claim.namespace, {})
        asked = {resource: amount for resource, amount in claim.amounts.items() if amount > 0}
        over = exceeded(named_by(plus(used, asked), asked), limit)
        if not over:
            return ""
        return (
            f"ResourceQuota {quota.metadata.name} has no room: it asks for {to_text(asked)}, used "
            f"is {to_text(named_by(used, asked))}, the most is {to_text(limit)}: "
            f"too little {', '.join(over)}"
        )

    def can_have_room(self, claim: UnitClaim) -> bool:
        """Return whether it is known which ResourceQuota counts."""
        return not isinstance(self._quota(claim.namespace), str)

    def preempts(self, claim: UnitClaim) -> bool:  # noqa: ARG002 -- of whatever claim
        """Return False: a ResourceQuota knows no importance."""
        return False

    def _quota(self, namespace: str) -> ResourceQuota | str:
        found = self._quotas.get(namespace, [])
        if len(found) == 1:
            return found[0]
        named = [quota for quota in found if quota.metadata.name == namespace]
        if named:
            return named[0]
        count = f"{len(found)} ResourceQuotas, none of its name" if found else "no ResourceQuota"
        return f"namespace {namespace} has {count}"


def _limit(quota: ResourceQuota) -> Amounts:
    limit: dict[str, int] = {}
    for name, quantity in quota.spec.hard.items():
        for resource, amount in amounts_of({name.removeprefix(_REQUESTS): quantity}).items():
            limit[resource] = min(amount, limit.get(resource, amount))
    return limit
