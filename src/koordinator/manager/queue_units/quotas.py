"""How much units may ask for together: in their quota and in every quota above it.

Source: koord-queue, plugin ElasticQuotaV2.
"""

from collections.abc import Iterable
from typing import Final

from koordinator.api.elastic_quota import ROOT_QUOTA, ElasticQuota
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
from koordinator.domain.quota.spec import QuotaSpec
from koordinator.manager.queue_units.accounts import UnitClaim

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
