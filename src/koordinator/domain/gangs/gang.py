"""Gang: its members, their states, its scheduling attempt and its status.

Source: koordinator pkg/scheduler/plugins/coscheduling/controller/podgroup.go ``syncHandler``.
"""

import datetime as dt
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import field
from enum import StrEnum
from typing import TypeVar

from msgspec.structs import replace

from koordinator.api.annotations.gang import GangMatchPolicy, GangMode
from koordinator.api.pod_groups import PodGroup, PodGroupPhase, PodGroupStatus
from koordinator.domain.gangs.terms import GangTerms, GangTexts
from koordinator.domain.gangs.trees import GroupTree
from koordinator.foundation.errors import BugError
from koordinator.foundation.lazy_dataclass import dataclass

_DONE = (PodGroupPhase.FINISHED, PodGroupPhase.FAILED)
_FORGOTTEN_AFTER = dt.timedelta(hours=48)


class MemberState(StrEnum):
    """Scheduling state of a member."""

    BLOCKED = "blocked"  # has scheduling gates; doesn't count
    PENDING = "pending"  # a place
    WAITING = "waiting"  # placed; waits for the others or for its binding
    BOUND = "bound"  # nothing


@dataclass(slots=True)
class Member:
    """A pod of a gang."""

    key: str
    scheduler: str  # name of the scheduler that places it
    owners: str  # namespace/name of its owners, sorted, comma-separated
    state: MemberState
    phase: str  # of the pod
    texts: GangTexts = ()  # texts about its gang, if that has no object

    def differs_in_state_only(self, other: "Member") -> bool:
        """Return whether all other fields of another version are the same."""
        return (
            self.phase == other.phase
            and self.scheduler == other.scheduler
            and self.owners == other.owners
            and self.texts == other.texts
        )


@dataclass(slots=True, eq=False)
class Gang:
    """A gang and its members by key; ``terms`` is None while its minimum is unknown."""

    id: str
    terms: GangTerms | None = None
    members: dict[str, Member] = field(default_factory=dict)
    states: Counter[MemberState] = field(default_factory=Counter)
    phases: Counter[str] = field(default_factory=Counter)
    pending: dict[str, Member] = field(default_factory=dict)  # in order of arrival
    schedulers: Counter[str] = field(default_factory=Counter)  # of all members, by name
    texts_count: dict[GangTexts, int] = field(
        default_factory=dict
    )  # number of members with the same texts
    workload: str = ""  # namespace/name of the Workload, if any
    pod_group: str = ""  # namespace/name of the PodGroup of scheduling.k8s.io
    version: int = 0  # incremented by every change

    @property
    def present(self) -> int:
        """The number of members without scheduling gates."""
        return len(self.members) - self.states[MemberState.BLOCKED]

    @property
    def bound(self) -> int:
        """The number of members with a node, including terminated ones."""
        return self.states[MemberState.BOUND]

    @property
    def waiting(self) -> int:
        """The number of members that are placed but not bound."""
        return self.states[MemberState.WAITING]

    def foreign(self, scheduler: str) -> dict[str, int]:
        """Return the number of pending members of each other scheduler."""
        if len(self.schedulers) <= 1 and scheduler in self.schedulers:
            return {}
        counts = Counter(member.scheduler for member in self.pending.values())
        del counts[scheduler]
        return dict(sorted(counts.items()))

    def put(self, member: Member) -> None:
        """Add or update a member."""
        known = self.members.get(member.key)
        if known is not None and member.differs_in_state_only(known):
            self.move(member.key, member.state)
            return
        self.drop(member.key)
        self.version += 1
        self.members[member.key] = member
        self.phases[member.phase] += 1
        self.schedulers[member.scheduler] += 1
        if member.texts:
            self.texts_count[member.texts] = self.texts_count.get(member.texts, 0) + 1
        self._enter(member)

    def drop(self, key: str) -> Member | None:
        """Remove and return a member; None if there is none."""
        member = self.members.pop(key, None)
        if member is not None:
            self.version += 1
            self.phases[member.phase] -= 1
            self.schedulers[member.scheduler] -= 1
            if not self.schedulers[member.scheduler]:
                del self.schedulers[member.scheduler]
            if member.texts:
                self.texts_count[member.texts] -= 1
                if not self.texts_count[member.texts]:
                    del self.texts_count[member.texts]
            self._leave(member)
        return member

    def move(self, key: str, state: MemberState) -> bool:
        """Change a member's state; return False if it is unknown or has that state already."""
        member = self.members.get(key)
        if member is None or member.state is state:
            return False
        self.version += 1
        self._leave(member)
        member.state = state
        self._enter(member)
        return True

    def needed(self, *, once_satisfied: bool) -> int:
        """Return how many more members must be placed; 0 or less if none.

        ``once_satisfied``: the gang group has started before.
        """
        if self.terms is None:
            return len(self.members) + 1  # more than there can be
        policy = self.terms.match_policy
        if policy == GangMatchPolicy.ONLY_WAITING:
            return self.terms.min_member - self.waiting
        if policy == GangMatchPolicy.WAITING_AND_RUNNING:
            return self.terms.min_member - self.waiting - self.bound
        return 0 if once_satisfied else self.terms.min_member - self.waiting

    @property
    def is_strict(self) -> bool:
        """Whether one unplaced member costs the others their places."""
        return self.terms is None or self.terms.mode is GangMode.STRICT

    @property
    def minimum_setting(self) -> str:
        """The setting that holds the minimum, for remedies."""
        if self.workload:
            return f"minCount of gang {self.id} in a new Workload {self.workload}"
        if self.pod_group:
            own = self.terms.pod_group if self.terms is not None else None
            a_new = "a new PodGroup" if own is not None and own.has_fixed_minimum else "PodGroup"
            return f"minCount of {a_new} {self.pod_group}"
        if self.terms is not None and self.terms.has_object:
            return f"minMember of PodGroup {self.id}"
        return f"gang.scheduling.koordinator.sh/min-available of all members of gang {self.id}"

    def validate(self) -> None:
        """Recompute all derived state and raise BugError where it differs."""
        states = Counter(member.state for member in self.members.values())
        phases = Counter(member.phase for member in self.members.values())
        schedulers = Counter(member.scheduler for member in self.members.values())
        texts_count = Counter(member.texts for member in self.members.values() if member.texts)
        if texts_count != self.texts_count:
            raise BugError(f"gang {self.id} counts {self.texts_count}. Has {texts_count}.")
        if schedulers != self.schedulers:
            raise BugError(f"gang {self.id} counts {self.schedulers}. Has {schedulers}.")
        pending = {k for k, m in self.members.items() if m.state is MemberState.PENDING}
        if +self.states != states or +self.phases != phases or set(self.pending) != pending:
            raise BugError(f"gang {self.id} counts {self.states}, {self.phases}. Has {states}.")

    def _enter(self, member: Member) -> None:
        self.states[member.state] += 1
        if member.state is MemberState.PENDING:
            self.pending[member.key] = member

    def _leave(self, member: Member) -> None:
        self.states[member.state] -= 1
        self.pending.pop(member.key, None)


KindT = TypeVar("KindT", bound=Hashable)


@dataclass(frozen=True, slots=True)
class GangAttempt:
    """Members to place together: enough of each strict gang, or none at all."""

    group_id: str
    members: Mapping[str, str]  # pod key -> gang id, in the order of placement
    spare: Mapping[str, int]  # strict gang -> number of members that may remain unplaced
    waiting: int = 0  # members that are placed but not bound
    is_alone: bool = False  # one member of a gang that has started
    tree: GroupTree | None = None  # enough of its gangs are needed, not all
    placed: Mapping[str, int] = field(default_factory=dict)  # of a tree: members with nodes

    def is_lost(self, failed: Iterable[str]) -> bool:
        """Return whether too many members (by key) could not be placed."""
        lost = Counter(self.members[key] for key in failed)
        if self.tree is not None:
            present = Counter(self.members.values())
            return not self.tree.is_met(
                lambda leaf: (
                    self.placed.get(leaf.id, 0) + present[leaf.id] - lost[leaf.id] >= leaf.least
                )
            )
        return any(lost[gang] > spare for gang, spare in self.spare.items())

    @property
    def enough(self) -> int:
        """The number of members of strict gangs that must be placed."""
        present = Counter(self.members.values())
        return sum(max(present[gang] - max(spare, 0), 0) for gang, spare in self.spare.items())

    def least(self, kinds: Mapping[str, KindT]) -> dict[KindT, int]:
        """Return the minimum number of members of each kind that must be placed.

        ``kinds`` maps the key of each member to its kind.
        """
        least = dict.fromkeys(kinds.values(), 0)
        by_gang = Counter((gang, kinds[key]) for key, gang in self.members.items())
        for (gang, kind), count in by_gang.items():
            if gang in self.spare:
                least[kind] += max(count - max(self.spare[gang], 0), 0)
        return least

    def fewest(self) -> list[str]:
        """Return the shortest prefix of members that suffices, in order.

        Of a tree, these are members of the groups that need the fewest.
        """
        left = Counter(self.members.values())
        if self.tree is None:
            left.subtract({gang: max(spare, 0) for gang, spare in self.spare.items()})
        else:
            leaves = self.tree.leaves
            missing = {one.id: max(one.least - self.placed.get(one.id, 0), 0) for one in leaves}
            present, left = left, Counter()
            for own_id in self.tree.cheapest(
                missing, lambda one: missing[one.id] <= present[one.id]
            ):
                left[own_id] = missing[own_id]
        kept = []
        for key, gang in self.members.items():
            if left[gang] > 0:
                left[gang] -= 1
                kept.append(key)
        return kept


def status_of(pod_group: PodGroup, gang: Gang, now: dt.datetime) -> PodGroupStatus:
    """Return the status; equal to the current one when no write is needed."""
    status = pod_group.status
    if status.phase in _DONE or _is_forgotten(pod_group, gang):
        return status
    least = max(pod_group.spec.min_member, 1)
    if not status.phase:
        status = replace(status, phase=PodGroupPhase.PENDING)
    if status.phase == PodGroupPhase.PENDING:
        if len(gang.members) < least:
            return status
        owners = next(iter(gang.members.values())).owners
        return replace(
            status,
            phase=PodGroupPhase.PRE_SCHEDULING,
            occupied_by=owners or status.occupied_by,
        )
    if not gang.members:
        return replace(status, phase=PodGroupPhase.PENDING)
    return _counted(status, gang, least, now)


def _counted(status: PodGroupStatus, gang: Gang, least: int, now: dt.datetime) -> PodGroupStatus:
    running, succeeded = gang.phases["Running"], gang.phases["Succeeded"]
    failed, scheduled = gang.phases["Failed"], gang.bound
    start = status.schedule_start_time
    if scheduled < least:
        phase, start = PodGroupPhase.SCHEDULING, start or now
    elif succeeded >= least:
        phase = PodGroupPhase.FINISHED
    elif failed and failed + running + succeeded >= least:
        phase = PodGroupPhase.FAILED
    elif succeeded + running >= least:
        phase = PodGroupPhase.RUNNING
    else:
        phase = PodGroupPhase.SCHEDULED
    return replace(
        status,
        phase=phase,
        scheduled=scheduled,
        running=running,
        succeeded=succeeded,
        failed=failed,
        schedule_start_time=start,
    )


def _is_forgotten(pod_group: PodGroup, gang: Gang) -> bool:
    """Return whether a group has been stuck for so long that its status is frozen."""
    created, start = pod_group.metadata.creation_timestamp, pod_group.status.schedule_start_time
    return (
        created is not None
        and start is not None
        and start - created > _FORGOTTEN_AFTER
        and gang.bound == pod_group.spec.min_member
        and gang.phases["Running"] == 0
    )
