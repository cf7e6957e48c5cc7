"""Constraints of claims for which no devices of a node can be found."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, product

from msgspec.structs import replace as replace_struct

from koordinator.api.dynamic_resources import DeviceConstraint, ResourceClaim
from koordinator.domain.dynamic_resources.allocator import (
    CANNOT_ALLOCATE,
    AttributeConstraint,
    NotAllocatable,
    allocate,
)
from koordinator.domain.dynamic_resources.inventory import InventoryDevice
from koordinator.domain.dynamic_resources.requests import PendingClaim, RequestOption
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.text import listed
from koordinator.scheduler.contract import ObjectRemedy
from koordinator.scheduler.plugins.dynamic_resources.claims import PodDeviceClaims
from koordinator.scheduler.plugins.dynamic_resources.device_ledger import DeviceLedger
from koordinator.scheduler.plugins.dynamic_resources.messages import is_free
from koordinator.scheduler.snapshot import ObjectTable

SHOWN = 8  # values, and devices of a value
MOST_STEPS = 5_000  # examined devices per trial
MOST_TRIALS = 64  # per node
MOST_REMEDIES = 4


@dataclass(frozen=True, slots=True)
class ClaimConstraint:
    """A constraint, by its index in the spec of a pending claim."""

    claim: PendingClaim
    index: int

    @property
    def constraint(self) -> DeviceConstraint:
        """The constraint as it is written."""
        return self.claim.spec.constraints[self.index]

    @property
    def label(self) -> str:
        """Type and attribute, with the requests that it is restricted to."""
        stated = self.constraint
        kind, attribute = "matchAttribute", stated.match_attribute
        if attribute is None:
            kind, attribute = "distinctAttribute", stated.distinct_attribute
        only = f" of requests {', '.join(stated.requests)}" if stated.requests else ""
        return f"constraint {kind} {attribute}{only}"


#: Constraints that no devices satisfy together, though they would without any one of them.
Conflict = Sequence[ClaimConstraint]


class ConstraintSearch:
    """Search for the constraints but for which a node's devices would satisfy the claims."""

    def __init__(self, ledger: DeviceLedger, row: int, claims: PodDeviceClaims) -> None:
        self._ledger, self._pending = ledger, claims.pending
        self._pools = ledger.pools(row, claims.avoids)
        self._trials = MOST_TRIALS

    def conflicts(self) -> list[Conflict]:
        """Return disjoint conflicts, without which the claims are satisfied; empty if none are."""
        remaining = [
            ClaimConstraint(claim, index)
            for claim in self._pending
            for index in range(len(claim.spec.constraints))
        ]
        if not remaining or self._reason([]) or self._reason(remaining) != CANNOT_ALLOCATE:
            return []
        conflicts: list[Conflict] = []
        while self._trials > 0 and self._reason(remaining):
            conflict = self._minimal(remaining)
            conflicts.append(conflict)
            remaining = [one for one in remaining if one not in conflict]
        return conflicts

    def explain(self, conflict: Conflict) -> str:
        """Return the constraints with the values of free devices."""
        labels = " and ".join(f"claim {one.claim.key}, {one.label}" for one in conflict)
        if len(conflict) > 1:
            return f"{labels}: no free devices satisfy them together"
        (one,) = conflict
        options = _concerned(one)
        free = [
            device
            for pool in self._pools
            for device in pool.devices
            if any(is_free(self._ledger, pool, option, device) for option in options)
        ]
        return f"{labels}: {_shortage(one.constraint, options, free)}"

    def _minimal(self, constraints: Sequence[ClaimConstraint]) -> Conflict:
        """Return constraints that fail together; each is dropped that they fail without."""
        kept = list(constraints)
        for one in constraints:
            others = [each for each in kept if each != one]
            if self._reason(others) == CANNOT_ALLOCATE:
                kept = others
        return kept

    def _reason(self, constraints: Sequence[ClaimConstraint]) -> str:
        """Return why the claims can't be allocated with these constraints; empty if they can."""
        self._trials -= 1
        claims = [_constrained(claim, constraints) for claim in self._pending]
        ledger = self._ledger
        result = allocate(self._pools, claims, ledger.use, ledger.gates, MOST_STEPS)
        return result.reason if isinstance(result, NotAllocatable) else ""


def constraint_problems(ledger: DeviceLedger, row: int, claims: PodDeviceClaims) -> str:
    """Return the constraints that keep a node's devices from satisfying the claims, with values."""
    search = ConstraintSearch(ledger, row, claims)
    return "; ".join(map(search.explain, search.conflicts()))


def unconstrained(
    ledger: DeviceLedger, objects: ObjectTable, row: int, node: str, claims: PodDeviceClaims
) -> Iterator[ObjectRemedy]:
    """Yield claims without one constraint of each conflict."""
    conflicts = ConstraintSearch(ledger, row, claims).conflicts()
    for dropped in islice(product(*conflicts), MOST_REMEDIES) if conflicts else ():
        changed, parts = list[ResourceClaim](), list[str]()
        for claim in dict.fromkeys(one.claim.key for one in dropped):
            old = objects.get(ResourceClaim, claim)
            if old is None:
                break
            of_claim = [one for one in dropped if one.claim.key == claim]
            changed.append(_without(old, {one.index for one in of_claim}))
            parts.append(
                f"recreate claim {claim} without its {' and '.join(it.label for it in of_claim)}"
            )
        else:
            yield ObjectRemedy(f"{' and '.join(parts)}: {node} takes it then", tuple(changed))


def _without(claim: ResourceClaim, indexes: set[int]) -> ResourceClaim:
    devices = claim.spec.devices
    kept = tuple(each for i, each in enumerate(devices.constraints) if i not in indexes)
    devices = replace_struct(devices, constraints=kept)
    return replace_struct(claim, spec=replace_struct(claim.spec, devices=devices))


def _constrained(claim: PendingClaim, constraints: Iterable[ClaimConstraint]) -> PendingClaim:
    """Return the claim with only these constraints."""
    kept = tuple(one.constraint for one in constraints if one.claim is claim)
    return replace(claim, spec=replace_struct(claim.spec, constraints=kept))


def _concerned(one: ClaimConstraint) -> list[RequestOption]:
    """Return the options of requests that a constraint concerns."""
    constraint = AttributeConstraint.of(one.constraint, lists=False)
    return [
        option
        for request in one.claim.requests
        for option in request.options
        if constraint is not None and constraint.concerns(option)
    ]


def _shortage(
    constraint: DeviceConstraint, options: Sequence[RequestOption], free: Sequence[InventoryDevice]
) -> str:
    """Return the constraint that the free devices violate, with their values of the attribute."""
    attribute = constraint.match_attribute or constraint.distinct_attribute or ""
    by_value: dict[str, list[str]] = {}
    without = []
    for device in free:
        compared, name = device.attribute(attribute), "/".join(device.id[1:])
        if compared is None:
            without.append(name)
        else:
            value = " ".join(str(value) for _, value in sorted(compared.values, key=str))
            by_value.setdefault(value, []).append(name)
    groups = [f"{listed(names, SHOWN)}: {value}" for value, names in sorted(by_value.items())]
    if len(groups) > SHOWN:
        groups = [*groups[:SHOWN], f"{len(groups) - SHOWN} more values"]
    if without:
        groups.append(f"without it: {listed(without, SHOWN)}")
    requirement = "the same value" if constraint.match_attribute is not None else "different values"
    return _lack(options, requirement) + (f" ({'; '.join(groups)})" if groups else "")


def _lack(options: Sequence[RequestOption], requirement: str) -> str:
    """Return how many devices lack common values, unless alternatives differ in the number."""
    if any(option.takes_all for option in options):
        return f"not all devices have {requirement}"
    if any("/" in option.name for option in options):
        return f"no free devices for all requests have {requirement}"
    count = sum(option.count for option in options)
    return f"no {count} free devices have {requirement}" if count > 1 else "no free device has it"
