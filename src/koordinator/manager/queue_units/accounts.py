"""Amounts held by units in a quota, in its ancestors and in a namespace, and the remaining room.

Of several ResourceQuotas of a namespace, the one with the name of the namespace counts. Only units
are counted, not the pods that the API server counts.
Source: koord-queue, plugins ElasticQuotaV2 and ResourceQuota.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from koordinator.api.elastic_quota import ROOT_QUOTA, ElasticQuota
from koordinator.api.resource_quota import ResourceQuota
from koordinator.domain.amounts import (
    Amounts,
    add,
    amounts_of,
    exceeded,
    multiple,
    named_by,
    plus,
    to_text,
)
from koordinator.domain.quota.spec import QuotaSpec


@dataclass(frozen=True, slots=True)
class UnitPlace:
    """Where a unit waits, and what it counts in; ``problem``: why it can't be let in at all."""

    queue: str = ""
    quota: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class UnitClaim:
    """What a unit asks for, or holds."""

    key: str
    namespace: str
    quota: str
    amounts: Amounts
    priority: int = 0
    is_preemptible: bool = True


class UnitAccount(Protocol):
    """Counts what units hold.  The same claim is released as often as it was taken."""

    def expect(self, claim: UnitClaim) -> None:
        """Note that a unit waits for its room."""
        ...

    def take(self, claim: UnitClaim) -> None:
        """Count what a unit holds from now on."""
        ...

    def release(self, claim: UnitClaim) -> None:
        """Take back what was counted."""
        ...

    def why_not(self, claim: UnitClaim) -> str:
        """Return why there is no room for a unit; empty: there is."""
        ...

    def can_have_room(self, claim: UnitClaim) -> bool:
        """Return whether there would be room if others went."""
        ...

    def preempts(self, claim: UnitClaim) -> bool:
        """Return whether less important units go for it, whatever its queue says."""
        ...


class JointAccount:
    """Several accounts: there is room where all of them have it."""

    def __init__(self, accounts: Iterable[UnitAccount]) -> None:
        self._accounts: Sequence[UnitAccount] = tuple(accounts)

    def expect(self, claim: UnitClaim) -> None:
        """Note in all accounts that a unit waits."""
        for account in self._accounts:
            account.expect(claim)

    def take(self, claim: UnitClaim) -> None:
        """Count a claim in all accounts."""
        for account in self._accounts:
            account.take(claim)

    def release(self, claim: UnitClaim) -> None:
        """Take a claim back in all accounts."""
        for account in self._accounts:
            account.release(claim)

    def why_not(self, claim: UnitClaim) -> str:
        """Return what the first account says that has no room."""
        return next(filter(None, (each.why_not(claim) for each in self._accounts)), "")

    def can_have_room(self, claim: UnitClaim) -> bool:
        """Return whether every account could have room."""
        return all(account.can_have_room(claim) for account in self._accounts)

    def preempts(self, claim: UnitClaim) -> bool:
        """Return whether any account says so."""
        return any(account.preempts(claim) for account in self._accounts)


_PRECISION: Final = 1 << 20


def times_rate(amounts: Amounts, rate: float) -> dict[str, int]:
    """Return so many times the amounts, rounded down; exact for a rate such as 1.5."""
    factor = round(rate * _PRECISION)
    return {resource: amount * factor // _PRECISION for resource, amount in amounts.items()}


class UnitQuotas:
    """The quotas of a cluster by name, with what units hold of each."""

    def __init__(self, quotas: Iterable[ElasticQuota], oversell_rate: float = 1.0) -> None:
        """``oversell_rate``: how many times its maximum a quota lets in."""
        self._quotas: dict[str, ElasticQuota] = {}
        self._rate = oversell_rate
        self._used: dict[str, dict[str, int]] = {}
        self._twice: set[str] = set()
        for quota in quotas:
            name = quota.metadata.name
            if name in self._quotas:
                self._twice.add(name)
            self._quotas[name] = quota

    def path(self, name: str) -> tuple[str, ...] | str:
        """Return a quota and those above it that exist, or why nothing can be let in."""
        path: list[str] = []
        while name != ROOT_QUOTA:
            quota = self._quotas.get(name)
            if quota is None:
                return f"there is no quota {name}" if name else "it names no quota"
            if name in path:
                return f"quota {name} is its own ancestor"
            if name in self._twice:
                return f"there is more than one quota {name}"
            path.append(name)
            name = quota.parent
        if ROOT_QUOTA in self._quotas:
            path.append(ROOT_QUOTA)
        return tuple(path)

    def expect(self, claim: UnitClaim) -> None:
        """Do nothing: who waits keeps nobody else from his room."""

    def take(self, claim: UnitClaim) -> None:
        """Count what a unit holds, in its quota and above; of a quota that is gone, there alone."""
        self._count(claim.quota, claim.amounts)

    def release(self, claim: UnitClaim) -> None:
        """Take back what was counted with ``take``."""
        self._count(claim.quota, multiple(claim.amounts, -1))

    def can_have_room(self, claim: UnitClaim) -> bool:
        """Return whether its quota and those above it are there."""
        return isinstance(self.path(claim.quota), tuple)

    def preempts(self, claim: UnitClaim) -> bool:  # noqa: ARG002 -- of whatever claim
        """Return False: queues say so."""
        return False

    def _count(self, name: str, amounts: Amounts) -> None:
        path = self.path(name)
        for level in path if isinstance(path, tuple) else (name,):
            add(self._used.setdefault(level, {}), amounts)

    def used(self, name: str) -> Amounts:
        """Return what units hold of a quota."""
        return self._used.get(name, {})

    def limit(self, name: str) -> Amounts:
        """Return what they may hold."""
        return times_rate(amounts_of(self._quotas[name].spec.max), self._rate)

    def why_not(self, claim: UnitClaim) -> str:
        """Return why a unit can't be let in; empty: it can."""
        path, request = self.path(claim.quota), claim.amounts
        if isinstance(path, str):
            return path
        for level in path:
            limit, used = self.limit(level), self.used(level)
            asked = {resource: amount for resource, amount in request.items() if amount > 0}
            over = exceeded(named_by(plus(used, asked), asked), limit)
            if over:
                spec, own = (QuotaSpec.of(self._quotas[name]) for name in (level, claim.quota))
                figures = ""
                if spec.shows_figures_to(claim.namespace, own):
                    held = to_text(named_by(used, asked))
                    figures = f", used is {held}, the most is {to_text(limit)}"
                return (
                    f"quota {level} has no room: it asks for {to_text(asked)}{figures}: "
                    f"too little {', '.join(over)}"
                )
        return ""


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
