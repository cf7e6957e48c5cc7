"""Holds of reservations on nodes, and their users.

A *hold* is a placed pod with an offer: the reserve pod of an available reservation, or a pod that
offers its own room.  It charges its node with what its users leave of it, so every unit is charged
once.  Users may be known before their reservation is, and the other way round.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import field

from koordinator.api.resource_names import CPU, MEMORY
from koordinator.domain.devices.allocation import Allocation
from koordinator.foundation.errors import BugError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.rules.numa.ledger import NumaAllocation
from koordinator.scheduler.rules.reservations.match import GPU_SPELLINGS, in_terms_of
from koordinator.scheduler.rules.reservations.offer import (
    OwnerCandidate,
    ReservationOffer,
    devices_left,
    index_keys,
    look_up_keys,
    names_pods,
    numa_left,
    owner_candidate_of,
)
from koordinator.scheduler.snapshot.axis import PODS, ResourceAxis
from koordinator.scheduler.snapshot.objects import ChangeLog
from koordinator.scheduler.snapshot.pods import PlacedPod

_NONZERO_CPU, _NONZERO_MEMORY = -1, -2  # in place of columns


@dataclass(frozen=True, slots=True)
class HoldCharge:
    """Amounts with which a hold charges its node."""

    demand: tuple[tuple[int, int], ...]  # (column, amount); ``pods`` is one of them
    nonzero_cpu: int
    nonzero_memory: int
    devices: Allocation
    numa: NumaAllocation | None


@dataclass(slots=True, eq=False)
class Hold:
    """An offer on a row.  Written by ``ClusterState`` and its table only."""

    placed: PlacedPod
    row: int  # of the cluster
    offer: ReservationOffer
    slot: int  # in the table
    users: dict[str, PlacedPod]  # by key; on this row
    left: HoldCharge
    taken: dict[int, int] = field(default_factory=dict)  # by users, by column
    used: dict[str, int] = field(default_factory=dict)  # offered amounts, canonical
    restored: bool = False  # left out of the sums while a pod is judged that may use it

    @property
    def has_parts(self) -> bool:
        """Whether devices, CPUs or amounts of NUMA nodes are held, used or not."""
        pod_allocation = self.placed.pod_allocation
        return bool(pod_allocation.devices) or pod_allocation.numa is not None

    @property
    def is_usable(self) -> bool:
        """Whether another pod may use it: a hold for one user has none yet."""
        offer = self.offer
        return not (offer.allocate_once and (self.users or offer.current_owner is not None))


class HoldTable:
    """All holds.  Written by ``ClusterState`` only."""

    def __init__(self, axis: ResourceAxis) -> None:
        self.is_strict = False  # pods use only what the scheduler can have given to them
        self._axis = axis
        self.by_uid: dict[str, Hold] = {}
        self.on_row: dict[int, dict[str, Hold]] = {}  # by uid; no empty rows
        self.slots: list[Hold | None] = []
        self.log = ChangeLog()  # of slots: holds that came, went or ceased to be usable
        self._free: list[int] = []
        self._by_owner: dict[Hashable, dict[str, Hold]] = {}  # by key of an owner, by uid
        self._users: dict[str, dict[str, PlacedPod]] = {}  # by uid of the reservation, by key
        self.named: dict[str, int] = {}  # names and uids of pods that owners mean, with counts

    def __iter__(self) -> Iterator[Hold]:
        return iter(self.by_uid.values())

    def candidates(self, owner_candidate: OwnerCandidate) -> list[Hold]:
        """Return the holds that such pods may own, each once."""
        by_name: dict[str, Hold] = {}
        for key in look_up_keys(owner_candidate):
            by_name |= self._by_owner.get(key, {})
        return list(by_name.values())

    def users_of(self, uid: str) -> Iterable[PlacedPod]:
        """Return the placed pods that say they use a reservation, known or not."""
        return self._users.get(uid, {}).values()

    def serves(self, user: PlacedPod, offer: ReservationOffer) -> bool:
        """Return whether a pod may use the offer that it claims to use."""
        if not self.is_strict:
            return offer.serves(user.pod.metadata.namespace)
        return offer.may_have_been_given_to(owner_candidate_of(user.pod))

    # -- writing -----------------------------------------------------------------------------

    def open(self, placed: PlacedPod, offer: ReservationOffer) -> Hold:
        """Add the hold of a placed pod; it charges the amounts in ``left``."""
        if offer.uid in self.by_uid:
            raise BugError(f"the reservation {offer.name} is held twice")
        slot = self._free.pop() if self._free else len(self.slots)
        if slot == len(self.slots):
            self.slots.append(None)
        users = self._users_on(offer, placed.row)
        hold = Hold(placed, placed.row, offer, slot, users, _left(placed, {}, ()))
        for user in users.values():
            self._take(hold, user, 1)
        self._renew(hold)
        self.slots[slot] = self.by_uid[offer.uid] = hold
        self.on_row.setdefault(placed.row, {})[offer.uid] = hold
        for key in index_keys(offer.owners):
            self._by_owner.setdefault(key, {})[offer.uid] = hold
        self._name(offer, 1)
        self.log.append(slot)
        return hold

    def close(self, uid: str) -> Hold:
        """Forget a hold."""
        hold = self.by_uid.pop(uid)
        holds = self.on_row[hold.row]
        del holds[uid]
        if not holds:
            del self.on_row[hold.row]
        self.slots[hold.slot] = None
        self._free.append(hold.slot)
        for key in set(index_keys(hold.offer.owners)):
            del self._by_owner[key][uid]
            if not self._by_owner[key]:
                del self._by_owner[key]
        self._name(hold.offer, -1)
        self.log.append(hold.slot)
        hold.users = {}  # a stale reference to the hold must not keep deleted pods
        return hold

    def hold_of(self, user: PlacedPod, uid: str) -> Hold | None:
        """Return the hold that a placed pod uses; None if that is elsewhere, or not for it."""
        hold = self.by_uid.get(uid)
        if hold is None or hold.row != user.row or not self.serves(user, hold.offer):
            return None
        return hold

    def _users_on(self, offer: ReservationOffer, row: int) -> dict[str, PlacedPod]:
        known = self._users.get(offer.uid, {})
        return {
            key: user for key, user in known.items() if user.row == row and self.serves(user, offer)
        }

    def use(self, user: PlacedPod, uid: str, sign: int) -> None:
        """Add (1) or remove (-1) a user of a reservation, and recompute the amounts left."""
        hold = self.hold_of(user, uid)
        if sign > 0:
            self._users.setdefault(uid, {})[user.key] = user
            if hold is not None:
                hold.users[user.key] = user
                self._take(hold, user, 1)
        else:
            known = self._users[uid]
            del known[user.key]
            if not known:
                del self._users[uid]
            if hold is not None:
                self._take(hold, hold.users.pop(user.key), -1)
        if hold is not None:
            self._renew(hold)
            if hold.offer.allocate_once:
                self.log.append(hold.slot)

    def _name(self, offer: ReservationOffer, sign: int) -> None:
        if not names_pods(offer.owners):
            return
        for owner in offer.owners:
            for text in (owner.object.name, owner.object.uid) if owner.object else ():
                if text:
                    count = self.named.get(text, 0) + sign
                    self.named[text] = count
                    if not count:
                        del self.named[text]

    def _take(self, hold: Hold, user: PlacedPod, sign: int) -> None:
        taken = hold.taken
        for column, amount in self._taken_by(user, hold.offer):
            taken[column] = taken.get(column, 0) + sign * amount

    def _taken_by(self, user: PlacedPod, offer: ReservationOffer) -> tuple[tuple[int, int], ...]:
        """Return the amounts of a user by column, with GPUs as the reservation spells them, too."""
        demand = user.pod_class.demand
        if not GPU_SPELLINGS.isdisjoint(offer.amounts):
            names = self._axis.names
            requests = {names[column]: amount for column, amount in demand}
            met = in_terms_of(offer.amounts, requests)
            demand = tuple((self._axis.index(name), amount) for name, amount in met.items())
        return *demand, *_nonzero(user)

    def _renew(self, hold: Hold) -> None:
        given_up = self._given_up(hold.offer, hold.taken)
        hold.left = _left(hold.placed, given_up, hold.users.values())
        names, offered = self._axis.names, hold.offer.amounts
        hold.used = {
            names[column]: amount
            for column, amount in hold.taken.items()
            if column >= 0 and column != PODS and amount and names[column] in offered
        }

    def _given_up(self, offer: ReservationOffer, taken: Mapping[int, int]) -> Mapping[int, int]:
        """Return by column the amounts that the holder gave up; of a pod, at most its offer."""
        if not offer.is_pod:
            return taken
        names, offered = self._axis.names, offer.amounts
        most = {_NONZERO_CPU: offered.get(CPU, 0), _NONZERO_MEMORY: offered.get(MEMORY, 0)}
        return {
            column: min(amount, most[column] if column < 0 else offered.get(names[column], 0))
            for column, amount in taken.items()
        }

    def validate(self) -> None:
        """Recompute the amounts left and the users, and compare.  Raises BugError."""
        for hold in self:
            users = self._users_on(hold.offer, hold.row)
            taken: Counter[int] = Counter()
            for user in users.values():
                for column, amount in self._taken_by(user, hold.offer):
                    taken[column] += amount
            if users != hold.users or hold.left != _left(
                hold.placed, self._given_up(hold.offer, taken), users.values()
            ):
                raise BugError(f"what is left of the reservation {hold.offer.name} is off")
            if hold.restored or self.slots[hold.slot] is not hold:
                raise BugError(
                    f"the reservation {hold.offer.name} is restored between evaluations, or lost"
                )


def standing_hold(placed: PlacedPod, offer: ReservationOffer, slot: int) -> Hold:
    """Return all that an ordinary pod takes as a restorable hold; it is in no table."""
    return Hold(placed, placed.row, offer, slot, {}, _left(placed, {}, ()))


def _nonzero(placed: PlacedPod) -> tuple[tuple[int, int], ...]:
    effective = placed.pod_class.effective
    return (_NONZERO_CPU, effective.nonzero_cpu), (_NONZERO_MEMORY, effective.nonzero_memory)


def _left(placed: PlacedPod, taken: Mapping[int, int], users: Iterable[PlacedPod]) -> HoldCharge:
    """Return the rest of a hold; a reserve pod still counts as a pod."""
    pod_class, pod_allocation = placed.pod_class, placed.pod_allocation
    demand = tuple(
        (column, amount if column == PODS else max(amount - taken.get(column, 0), 0))
        for column, amount in pod_class.demand
    )
    devices, numa = pod_allocation.devices, pod_allocation.numa
    if devices:
        devices = devices_left(devices, (user.pod_allocation.devices for user in users))
    if numa is not None:
        allocations = [
            user.pod_allocation.numa for user in users if user.pod_allocation.numa is not None
        ]
        numa = numa_left(numa, allocations)
    return HoldCharge(
        demand,
        max(pod_class.effective.nonzero_cpu - taken.get(_NONZERO_CPU, 0), 0),
        max(pod_class.effective.nonzero_memory - taken.get(_NONZERO_MEMORY, 0), 0),
        devices,
        numa,
    )
