"""What is known of a cluster in which room is wanted, and what a plan to make it says."""

from dataclasses import dataclass

from koordinator.domain.gpus.mix import WHOLE_GPU
from koordinator.foundation.arrays import BoolArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class RoomPod:
    """A pod that runs."""

    key: str
    row: int  # of its node
    requests: IntArray  # (n_resources,) besides GPUs
    gpus: tuple[int, ...] = ()  # minors
    gpu_milli: int = 0  # of each of them
    accepts: BoolArray | None = None  # (n_nodes,) where it may run by its constraints; None: all
    may_move: bool = True
    cost: float = 1.0  # of moving it: tells apart plans with equally many moves

    @property
    def is_share(self) -> bool:
        """Whether it takes part of one GPU."""
        return len(self.gpus) == 1 and self.gpu_milli < WHOLE_GPU


@dataclass(frozen=True, slots=True, eq=False)
class RoomCluster:
    """Nodes by row, and the pods on them.

    What neither is free nor held by a pod of the list (reservations, broken GPUs) stays taken.
    """

    free: IntArray  # (n_nodes, n_resources)
    gpu_free: IntArray  # (n_nodes, n_slots) milli; -1: no such GPU
    pods: tuple[RoomPod, ...]


@dataclass(frozen=True, slots=True, eq=False)
class RoomRequest:
    """So many members, each with so many whole GPUs of one node."""

    members: int
    gpus: int
    requests: IntArray  # (n_resources,) of a member, besides GPUs
    accepts: BoolArray | None = None  # (n_nodes,) where members may run; None: everywhere
    #: by row: sets of GPUs of which a member gets one as a whole, such as those of a NUMA node or
    #: an NVLink partition; None: any GPUs of a node will do
    groups: tuple[tuple[tuple[int, ...], ...], ...] | None = None
    #: (n_nodes,) number of the domain of the network, all members in one; None: anywhere
    domain: IntArray | None = None


@dataclass(frozen=True, slots=True)
class RoomMove:
    """A pod, by position, goes to a row and, if it has GPUs, to these of it."""

    pod: int
    row: int
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class MemberPlace:
    """Where there is room for a member when all moves are made."""

    row: int
    gpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RoomPlan:
    """Moves in an order in which each finds its room free, and the room that they make."""

    moves: tuple[RoomMove, ...]
    places: tuple[MemberPlace, ...]
    cost: float = 0.0

    @property
    def rank(self) -> tuple[int, float]:
        """The lower, the better: the number of moves, then their cost."""
        return len(self.moves), self.cost
