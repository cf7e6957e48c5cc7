"""The stages of a pod, of a batch or of a run of identical pods: filter, score, choose, reserve.

``program``      the plugins that apply to a class of pods
``evaluation``   results of node-local plugins per class of pods, updated row by row; nominated pods
``choose``       the stages for one pod, on top of the kept evaluations
``batch``        pods of several classes in one call, with the same outcome
``run``          batches, and runs of identical pods in one pass
``gang_offers``  the number of pods of a class that each node takes
``cycle``        all of these for one profile
``headroom``     upper bounds of the pods of a class that fit
``scorecard``    the same results computed from scratch: diagnosis, ``--scores``, reference of tests
``what_if``      simulated states without some pods, for preemption
``job_headroom`` places for all members of a job, with the victims
``extenders``    filters and scores of extenders
``reserve``      allocations of the reserve plugins

No I/O, no clock, no queue: the loop (``scheduler.loop``) owns those.
"""

from koordinator.scheduler.cycle.choose import NodeChoice, ReserveRefusal
from koordinator.scheduler.cycle.cycle import SchedulingCycle
from koordinator.scheduler.cycle.evaluation import NominatedPods, priority_of
from koordinator.scheduler.cycle.headroom import UNBOUNDED, HeadroomBound
from koordinator.scheduler.cycle.scorecard import Scorecard, scorecard

__all__ = [
    "UNBOUNDED",
    "HeadroomBound",
    "NodeChoice",
    "NominatedPods",
    "ReserveRefusal",
    "SchedulingCycle",
    "Scorecard",
    "priority_of",
    "scorecard",
]
