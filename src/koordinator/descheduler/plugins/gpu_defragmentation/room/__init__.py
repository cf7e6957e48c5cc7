"""Room for pods of whole GPUs: which pods have to go elsewhere so that they fit, as few as can be.

``problem``  nodes, pods, and what room is wanted; what a plan says
``ledger``   what is free while moves are tried and taken back
``search``   a bounded search, for clusters of any size
``exact``    the fewest moves, by an integer program, for small clusters
"""

from koordinator.descheduler.plugins.gpu_defragmentation.room.exact import fewest_moves, solve_room
from koordinator.descheduler.plugins.gpu_defragmentation.room.ledger import RoomLedger
from koordinator.descheduler.plugins.gpu_defragmentation.room.problem import (
    MemberPlace,
    RoomCluster,
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
