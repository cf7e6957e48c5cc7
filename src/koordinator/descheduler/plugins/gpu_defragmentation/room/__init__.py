"""Search for the fewest moves that make room for pods with whole GPUs.

``problem``  nodes, pods, requested room, and plans; free amounts during the search, with undo
``search``   heuristic search for clusters of any size
``exact``    integer program with the fewest moves, for small clusters
"""

from koordinator.descheduler.plugins.gpu_defragmentation.room.exact import fewest_moves, solve_room
from koordinator.descheduler.plugins.gpu_defragmentation.room.problem import (
    MemberPlace,
    RoomCluster,
    RoomLedger,
    RoomMove,
    RoomPlan,
    RoomPod,
    RoomRequest,
)
from koordinator.descheduler.plugins.gpu_defragmentation.room.search import find_room

__all__ = [
    "MemberPlace",
    "RoomCluster",
    "RoomLedger",
    "RoomMove",
    "RoomPlan",
    "RoomPod",
    "RoomRequest",
    "fewest_moves",
    "find_room",
    "solve_room",
]
