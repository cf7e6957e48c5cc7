"""Moves that are proven before they are made.

``prover``  tries a move on a fork of the scheduler's state, and says what would come of it
``memory``  which nodes the pods of a workload have left lately
"""

from koordinator.descheduler.proof.memory import MoveMemory, lineage_of
from koordinator.descheduler.proof.prover import MoveProver

__all__ = ["MoveMemory", "MoveProver", "lineage_of"]
