"""Input of the search for room, and its plans."""

from dataclasses import dataclass

from koordinator.domain.gpus.mix import WHOLE_GPU
from koordinator.foundation.arrays import BoolArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class RoomPod:
    """Running pod."""

    key: str
    row: int  # of its node
    requests: IntArray  # (n_resources,) besides GPUs
    gpus: tuple[int, ...] = ()  # minors
    gpu_milli: int = 0  # of each GPU
    accepts: BoolArray | None = None  # (n_nodes,) nodes that its constraints admit; None: all
    may_move: bool = True
    cost: float = 1.0  # of moving it; breaks ties of plans with equally many moves

    @property
    def is_share(self) -> bool:
        """Whether it uses a share of one GPU."""
        return len(self.gpus) == 1 and self.gpu_milli < WHOLE_GPU


@dataclass(frozen=True, slots=True, eq=False)
class RoomCluster:
    """Nodes by row, and their pods.

    Amounts that are neither free nor allocated to a listed pod (reservations, broken GPUs) are
    never freed.
    """

    free: IntArray  # (n_nodes, n_resources)
    gpu_free: IntArray  # (n_nodes, n_slots) milli; -1: no such GPU
    pods: tuple[RoomPod, ...]


@dataclass(frozen=True, slots=True, eq=False)
class RoomRequest:
    """Members to place, each with whole GPUs of one node."""

    members: int
    gpus: int
    requests: IntArray  # (n_resources,) of a member, besides GPUs
    accepts: BoolArray | None = None  # (n_nodes,) nodes that admit members; None: all
    #: By row: groups of GPUs, such as a NUMA node's or an NVLink partition's; the GPUs of a
    #: member are in one group.  None: any GPUs of a node.
    groups: tuple[tuple[tuple[int, ...], ...], ...] | None = None
    #: (n_nodes,) network domain, which all members share; None: no restriction
    domain: IntArray | None = None


@dataclass(frozen=True, slots=True)
class RoomMove:
    """Move of a pod, by position, to a row and its GPUs."""

    pod: int
    row: int
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class MemberPlace:
    """Place of a member after all moves."""

    row: int
    gpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RoomPlan:
    """Moves in an order in which each target has room, and the places that they make."""

    moves: tuple[RoomMove, ...]
    places: tuple[MemberPlace, ...]
    cost: float = 0.0

    @property
    def rank(self) -> tuple[int, float]:
        """Number of moves and their cost; lower is better."""
        return len(self.moves), self.cost
