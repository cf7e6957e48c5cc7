"""What units hold of what they share, and whether there is room for one more."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from koordinator.domain.quota.amounts import Amounts


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
