"""Amounts held by units in a quota, in its ancestors and in a namespace, and the remaining room.

Of several ResourceQuotas of a namespace, the one with the name of the namespace counts. Only units
are counted, not the pods that the API server counts.
Source: koord-queue, plugins ElasticQuotaV2 and ResourceQuota.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from koordinator.api.elastic_quota import ROOT_QUOTA, ElasticQuota
from koordinator.api.policy import ResourceQuota
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
    """Queue and quota of a unit; ``problem`` is the reason why it can never be admitted."""

    queue: str = ""
    quota: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class UnitResources:
    """Resources that a unit requests or holds."""

    key: str
    namespace: str
    quota: str
    amounts: Amounts
    priority: int = 0
    is_preemptible: bool = True


class UnitAccount(Protocol):
    """Account of the resources that units hold.  A unit may be taken and released repeatedly."""

    def expect(self, unit: UnitResources) -> None:
        """Register a pending unit."""
        ...

    def take(self, unit: UnitResources) -> None:
        """Add the resources of a unit to its usage."""
        ...

    def release(self, unit: UnitResources) -> None:
        """Subtract the resources of a unit from its usage."""
        ...

    def shortfall(self, unit: UnitResources) -> str:
        """Return why a unit exceeds the account; empty if it fits."""
        ...

    def is_satisfiable(self, unit: UnitResources) -> bool:
        """Return whether a unit can fit after preemption of other units."""
        ...

    def preempts(self, unit: UnitResources) -> bool:
        """Return whether a unit may preempt others, regardless of its queue."""
        ...


class JointAccount:
    """Several accounts; a unit fits if it fits into all of them."""

    def __init__(self, accounts: Iterable[UnitAccount]) -> None:
        self._accounts: Sequence[UnitAccount] = tuple(accounts)

    def expect(self, unit: UnitResources) -> None:
        """Register a pending unit in all accounts."""
        for account in self._accounts:
            account.expect(unit)

    def take(self, unit: UnitResources) -> None:
        """Add a unit to all accounts."""
        for account in self._accounts:
            account.take(unit)

    def release(self, unit: UnitResources) -> None:
        """Subtract a unit from all accounts."""
        for account in self._accounts:
            account.release(unit)

    def shortfall(self, unit: UnitResources) -> str:
        """Return the shortfall of the first account that a unit exceeds; empty if none."""
        return next(filter(None, (each.shortfall(unit) for each in self._accounts)), "")

    def is_satisfiable(self, unit: UnitResources) -> bool:
        """Return whether a unit can fit into every account after preemption."""
        return all(account.is_satisfiable(unit) for account in self._accounts)

    def preempts(self, unit: UnitResources) -> bool:
        """Return whether any account permits preemption."""
        return any(account.preempts(unit) for account in self._accounts)


_PRECISION: Final = 1 << 20


def times_rate(amounts: Amounts, rate: float) -> dict[str, int]:
    """Return the amounts times ``rate``, rounded down; exact for a rate such as 1.5."""
    factor = round(rate * _PRECISION)
    return {resource: amount * factor // _PRECISION for resource, amount in amounts.items()}


class UnitQuotas:
    """Account of the ElasticQuotas of a cluster, by name."""

    def __init__(self, quotas: Iterable[ElasticQuota], oversell_rate: float = 1.0) -> None:
        """Create an empty account; limits are ``max`` of a quota times ``oversell_rate``."""
        self._quotas: dict[str, ElasticQuota] = {}
        self._rate = oversell_rate
        self._used: dict[str, dict[str, int]] = {}
        self._ambiguous: set[str] = set()  # names of several quotas
        for quota in quotas:
            name = quota.metadata.name
            if name in self._quotas:
                self._ambiguous.add(name)
            self._quotas[name] = quota

    def path(self, name: str) -> tuple[str, ...] | str:
        """Return a quota and its existing ancestors, or why it can't admit any unit."""
        path: list[str] = []
        while name != ROOT_QUOTA:
            quota = self._quotas.get(name)
            if quota is None:
                return f"there is no quota {name}" if name else "the job names no quota"
            if name in path:
                return f"quota {name} is its own ancestor"
            if name in self._ambiguous:
                return f"there is more than one quota {name}"
            path.append(name)
            name = quota.parent
        if ROOT_QUOTA in self._quotas:
            path.append(ROOT_QUOTA)
        return tuple(path)

    def expect(self, unit: UnitResources) -> None:
        """Do nothing: pending units do not affect others."""

    def take(self, unit: UnitResources) -> None:
        """Add a unit to its quota and all ancestors; if the quota was deleted, to its name only."""
        self._count(unit.quota, unit.amounts)

    def release(self, unit: UnitResources) -> None:
        """Subtract a unit that was added with ``take``."""
        self._count(unit.quota, multiple(unit.amounts, -1))

    def is_satisfiable(self, unit: UnitResources) -> bool:
        """Return whether the quota and its ancestors exist."""
        return isinstance(self.path(unit.quota), tuple)

    def preempts(self, unit: UnitResources) -> bool:  # noqa: ARG002 -- the same for every unit
        """Return False: only queues permit preemption."""
        return False

    def _count(self, name: str, amounts: Amounts) -> None:
        path = self.path(name)
        for level in path if isinstance(path, tuple) else (name,):
            add(self._used.setdefault(level, {}), amounts)

    def used(self, name: str) -> Amounts:
        """Return the usage of a quota by units."""
        return self._used.get(name, {})

    def limit(self, name: str) -> Amounts:
        """Return the limit of a quota."""
        return times_rate(amounts_of(self._quotas[name].spec.max), self._rate)

    def shortfall(self, unit: UnitResources) -> str:
        """Return why a unit exceeds its quota or an ancestor; empty if it fits."""
        path, request = self.path(unit.quota), unit.amounts
        if isinstance(path, str):
            return path
        for level in path:
            limit, used = self.limit(level), self.used(level)
            requested = {resource: amount for resource, amount in request.items() if amount > 0}
            over = exceeded(named_by(plus(used, requested), requested), limit)
            if over:
                spec, own = (QuotaSpec.of(self._quotas[name]) for name in (level, unit.quota))
                figures = ""
                if spec.shows_figures_to(unit.namespace, own):
                    in_use = to_text(named_by(used, requested))
                    figures = f", used {in_use}, limit {to_text(limit)}"
                return (
                    f"quota {level} has no room: requested {to_text(requested)}{figures}; "
                    f"insufficient {', '.join(over)}"
                )
        return ""


_REQUESTS: Final = "requests."  # requests.cpu is the same as cpu


class NamespaceAccount:
    """Account of ResourceQuotas, by namespace."""

    def __init__(self, quotas: Iterable[ResourceQuota]) -> None:
        self._quotas: dict[str, list[ResourceQuota]] = {}
        self._used: dict[str, dict[str, int]] = {}
        for quota in quotas:
            self._quotas.setdefault(quota.metadata.namespace, []).append(quota)

    def expect(self, unit: UnitResources) -> None:
        """Do nothing: pending units do not affect others."""

    def take(self, unit: UnitResources) -> None:
        """Add a unit to the usage of its namespace."""
        add(self._used.setdefault(unit.namespace, {}), unit.amounts)

    def release(self, unit: UnitResources) -> None:
        """Subtract a unit from the usage of its namespace."""
        add(self._used.setdefault(unit.namespace, {}), multiple(unit.amounts, -1))

    def shortfall(self, unit: UnitResources) -> str:
        """Return why a unit exceeds the ResourceQuota; empty if it fits."""
        quota = self._quota(unit.namespace)
        if isinstance(quota, str):
            return quota
        limit, used = _limit(quota), self._used.get(unit.namespace, {})
        requested = {resource: amount for resource, amount in unit.amounts.items() if amount > 0}
        over = exceeded(named_by(plus(used, requested), requested), limit)
        if not over:
            return ""
        return (
            f"ResourceQuota {quota.metadata.name} has no room: requested {to_text(requested)}, "
            f"used {to_text(named_by(used, requested))}, limit {to_text(limit)}; "
            f"insufficient {', '.join(over)}"
        )

    def is_satisfiable(self, unit: UnitResources) -> bool:
        """Return whether the namespace has a ResourceQuota that applies."""
        return not isinstance(self._quota(unit.namespace), str)

    def preempts(self, unit: UnitResources) -> bool:  # noqa: ARG002 -- the same for every unit
        """Return False: a ResourceQuota has no priorities."""
        return False

    def _quota(self, namespace: str) -> ResourceQuota | str:
        quotas = self._quotas.get(namespace, [])
        if len(quotas) == 1:
            return quotas[0]
        named = [quota for quota in quotas if quota.metadata.name == namespace]
        if named:
            return named[0]
        count = "no ResourceQuota"
        if quotas:
            count = f"{len(quotas)} ResourceQuotas, none named {namespace}"
        return f"namespace {namespace} has {count}"


def _limit(quota: ResourceQuota) -> Amounts:
    limit: dict[str, int] = {}
    for name, quantity in quota.spec.hard.items():
        for resource, amount in amounts_of({name.removeprefix(_REQUESTS): quantity}).items():
            limit[resource] = min(amount, limit.get(resource, amount))
    return limit
