"""What a move is for, and why one is not made: the words in which moves are proven.

A plugin says by a ``MoveGoal`` what it wants of a move; whoever tries the move asks the goal
whether that comes true with the node that the scheduler chose.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from koordinator.api.pod import Pod


@dataclass(frozen=True, slots=True)
class Relocation:
    """A pod, the node that it leaves, and the node of the pod that replaces it."""

    pod: Pod
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class MoveGain:
    """What a move is good for; an ``amount`` of 0 or less: for nothing, and ``text`` says why.

    Amounts of one plugin can be compared and added: percentage points of load above a threshold,
    shares of a node, levels.
    """

    amount: float
    text: str


class MoveGoal(Protocol):
    """What a plugin wants of moves.  All moves that were ``made`` before count."""

    def gain(self, moves: Sequence[Relocation]) -> MoveGain:
        """Return what these moves, made together, are good for."""
        ...

    def made(self, moves: Sequence[Relocation]) -> None:
        """Take note of moves that are made."""


class StayReason(StrEnum):
    """Why a pod stays that a plugin wants to go; ``result`` of the metric ``pods_evicted``."""

    FOREIGN = "not moved: nobody knows how its scheduler decides"
    UNKNOWN = "not moved: it is not where it was"
    NO_PLACE = "not moved: no node takes it"
    COMES_BACK = "not moved: it would come back"
    CIRCLE = "not moved: it would move in a circle"
    NO_GAIN = "not moved: nothing would be gained"
    GANG = "not moved: its gang can't move as a whole"
    REFUSED = "not moved: the move can't be tried"


@dataclass(frozen=True, slots=True)
class Stay:
    """A pod that stays, and what exactly was found."""

    why: StayReason
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.why}: {self.detail}" if self.detail else str(self.why)


@dataclass(frozen=True, slots=True)
class MoveProof:
    """Moves that belong together and come true when they are made as they were tried."""

    moves: tuple[Relocation, ...]
    gain: MoveGain
    after: tuple[str, ...] = ()  # keys of pods that have to have moved before: they make the room
    is_gang: bool = False  # one goes with all others, or none does
    is_reserved: bool = False  # a place is kept before the pod goes
