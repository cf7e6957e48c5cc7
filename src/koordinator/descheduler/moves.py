"""Goals, proofs and rejections of moves.

A plugin expresses the purpose of a move as a ``MoveGoal``.  The prover evaluates the goal with the
node that the scheduler chose in a dry run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from koordinator.api.pod import Pod


@dataclass(frozen=True, slots=True)
class Relocation:
    """Pod with its node and the node of its replacement."""

    pod: Pod
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class MoveGain:
    """Gain of a move; with an ``amount`` of 0 or less there is none, and ``text`` is the reason.

    Amounts of one plugin are comparable and additive: percentage points of load above a threshold,
    shares of a node, levels.
    """

    amount: float
    text: str


class MoveGoal(Protocol):
    """Purpose of moves; the gain of a move counts the moves ``made`` before."""

    def gain(self, moves: Sequence[Relocation]) -> MoveGain:
        """Return the gain of the moves together."""
        ...

    def made(self, moves: Sequence[Relocation]) -> None:
        """Record moves that are made."""


class SkipReason(StrEnum):
    """Reason why a wanted move is not made; ``result`` of the metric ``pods_evicted``."""

    FOREIGN = "not moved: its scheduler cannot be simulated"
    UNKNOWN = "not moved: the state of the pod is outdated"
    NO_PLACE = "not moved: no other node has room"
    COMES_BACK = "not moved: its replacement would return to the same node"
    CIRCLE = "not moved: its workload recently left the target node"
    NO_GAIN = "not moved: the move has no gain"
    GANG = "not moved: its gang cannot move as a whole"
    REFUSED = "not moved: the dry run failed"


@dataclass(frozen=True, slots=True)
class SkippedMove:
    """Move that is not made, with its reason and details."""

    why: SkipReason
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.why}: {self.detail}" if self.detail else str(self.why)


@dataclass(frozen=True, slots=True)
class MoveProof:
    """Moves that belong together, with the result of their dry run."""

    moves: tuple[Relocation, ...]
    gain: MoveGain
    after: tuple[str, ...] = ()  # keys of pods that must move first to free the room
    is_gang: bool = False  # all moves are made or none
    is_reserved: bool = False  # a place is reserved before the eviction
