"""One pod, or a run of identical pods, through the stages: filter, score, choose, reserve.

``evaluation``   what node-local plugins say about a kind of pod, kept up to date row by row
``stages``       the stages for one pod, on top of the kept evaluations
``runs``         a run of identical pods in one go, with the same outcome
``offers``       how many pods of a kind each node takes
``headroom``     how many pods of a kind there is room for, at most
``scorecard``    the same questions answered from scratch and in full: diagnosis, ``--scores``, the
                 reference in tests
``what_if``      worlds without some pods, for preemption
``job_headroom`` places for all members of a job, and who has to go for them
``job_trial``    the real filters, asked whether such a plan holds
``extenders``    what services outside have a say about
``rivals``       nominations that a pod has to respect
``reserve``      what a pod takes on its node besides its requests

No I/O, no clock, no queue: the loop (``scheduler.loop``) owns those.
"""

from koordinator.scheduler.cycle.headroom import UNBOUNDED, HeadroomBound
from koordinator.scheduler.cycle.rivals import Nominations, priority_of
from koordinator.scheduler.cycle.scorecard import Scorecard, scorecard
from koordinator.scheduler.cycle.stages import NodeChoice, ReserveRefusal, SchedulingCycle

__all__ = [
    "UNBOUNDED",
    "HeadroomBound",
    "NodeChoice",
    "Nominations",
    "ReserveRefusal",
    "SchedulingCycle",
    "Scorecard",
    "priority_of",
    "scorecard",
]
