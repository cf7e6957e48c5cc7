"""One pod, or a run of identical pods, through the stages: filter, score, choose, reserve.

``evaluation``  what node-local plugins say about a kind of pod, kept up to date row by row
``stages``      the stages for one pod, on top of the kept evaluations
``runs``        a run of identical pods in one go, with the same outcome
``offers``      how many pods of a kind each node takes
``room``        how many pods of a kind there is room for, at most
``scorecard``   the same questions answered from scratch and in full: diagnosis, ``--scores``, the
                reference in tests
``what_if``     worlds without some pods, for preemption

No I/O, no clock, no queue: the shell (``scheduler.app``) owns those.
"""

from koordinator.scheduler.cycle.room import RoomCount
from koordinator.scheduler.cycle.scorecard import Scorecard, scorecard
from koordinator.scheduler.cycle.stages import Choice, Cycle, Refused
from koordinator.scheduler.cycle.what_if import Nominations

__all__ = [
    "Choice",
    "Cycle",
    "Nominations",
    "Refused",
    "RoomCount",
    "Scorecard",
    "scorecard",
]
