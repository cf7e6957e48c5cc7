"""One gang and its members, as far as scheduling has to tell them apart."""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from koordinator.api.annotations.gang import GangMatchPolicy, GangMode
from koordinator.domain.gangs.terms import GangTerms, Saying
from koordinator.foundation.errors import BugError


class MemberState(StrEnum):
    """What a member still needs."""

    BLOCKED = "blocked"  # its own scheduling gates to open; it doesn't count until then
    PENDING = "pending"  # a place
    WAITING = "waiting"  # it has a place and waits for the others, or for its binding
    BOUND = "bound"  # nothing


@dataclass(slots=True)
class Member:
    """A pod of a gang."""

    key: str
    scheduler: str  # name of the scheduler that places it
    owners: str  # namespace/name of what made it, ascending, with commas; may be empty
    state: MemberState
    phase: str  # of the pod
    says: Saying = ()  # of its gang, where that has no object

    def differs_in_state_only(self, other: "Member") -> bool:
        """Return whether the rest of another version is the same."""
        return (
            self.phase == other.phase
            and self.scheduler == other.scheduler
            and self.owners == other.owners
            and self.says == other.says
        )


@dataclass(slots=True, eq=False)
class Gang:
    """Members by key; ``terms`` are None as long as nobody has said how many it needs."""

    id: str
    terms: GangTerms | None = None
    members: dict[str, Member] = field(default_factory=dict)
    states: Counter[MemberState] = field(default_factory=Counter)
    phases: Counter[str] = field(default_factory=Counter)
    pending: dict[str, Member] = field(default_factory=dict)  # in the order of their arrival
    schedulers: Counter[str] = field(default_factory=Counter)  # of all members
    sayings: dict[Saying, int] = field(default_factory=dict)  # how many members say the same
    workload: str = ""  # namespace/name of the Workload that its members name
    pod_group: str = ""  # likewise of the PodGroup of scheduling.k8s.io
    version: int = 0  # grows with every change, of a member's pod too

    @property
    def present(self) -> int:
        """How many members there are that could run."""
        return len(self.members) - self.states[MemberState.BLOCKED]

    @property
    def bound(self) -> int:
        """How many members have a node, finished ones included."""
        return self.states[MemberState.BOUND]

    @property
    def waiting(self) -> int:
        """How many members hold a place."""
        return self.states[MemberState.WAITING]

    def foreign(self, scheduler: str) -> dict[str, int]:
        """Return how many members that need a place another scheduler has to find it for."""
        if len(self.schedulers) <= 1 and scheduler in self.schedulers:
            return {}
        found = Counter(member.scheduler for member in self.pending.values())
        del found[scheduler]
        return dict(sorted(found.items()))

    def put(self, member: Member) -> None:
        """Add a member, or put its new state in place of the old."""
        known = self.members.get(member.key)
        if known is not None and member.differs_in_state_only(known):
            self.move(member.key, member.state)
            return
        self.drop(member.key)
        self.version += 1
        self.members[member.key] = member
        self.phases[member.phase] += 1
        self.schedulers[member.scheduler] += 1
        if member.says:
            self.sayings[member.says] = self.sayings.get(member.says, 0) + 1
        self._enter(member)

    def drop(self, key: str) -> Member | None:
        """Forget a member; None if it was none."""
        member = self.members.pop(key, None)
        if member is not None:
            self.version += 1
            self.phases[member.phase] -= 1
            self.schedulers[member.scheduler] -= 1
            if not self.schedulers[member.scheduler]:
                del self.schedulers[member.scheduler]
            if member.says:
                self.sayings[member.says] -= 1
                if not self.sayings[member.says]:
                    del self.sayings[member.says]
            self._leave(member)
        return member

    def move(self, key: str, state: MemberState) -> bool:
        """Change a member's state; False if it is none, or in that state already."""
        member = self.members.get(key)
        if member is None or member.state is state:
            return False
        self.version += 1
        self._leave(member)
        member.state = state
        self._enter(member)
        return True

    def needed(self, *, once_satisfied: bool) -> int:
        """Return how many more members must get a place; 0 or less: none.

        ``once_satisfied`` tells that the gang group has started before.
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
        """Whether one member without a place costs the others theirs."""
        return self.terms is None or self.terms.mode is GangMode.STRICT

    def validate(self) -> None:
        """Derive everything redundant again and raise BugError where it differs."""
        states = Counter(member.state for member in self.members.values())
        phases = Counter(member.phase for member in self.members.values())
        schedulers = Counter(member.scheduler for member in self.members.values())
        sayings = Counter(member.says for member in self.members.values() if member.says)
        if sayings != self.sayings:
            raise BugError(f"gang {self.id} has heard {self.sayings}. Its members say {sayings}.")
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
