"""The stages of a pod, of a batch or of a run of identical pods: filter, score, choose, reserve.

``program``      the plugins that apply to a class of pods
``evaluation``   results of node-local plugins per class of pods, updated row by row
``choose``       the stages for one pod, on top of the kept evaluations
``batch``        pods of several classes in one call, with the same outcome
``run``          batches, and runs of identical pods in one pass
``gang_offers``  the number of pods of a class that each node takes
``cycle``        all of these for one profile
``headroom``     upper bounds of the pods of a class that fit
``scorecard``    the same results computed from scratch: diagnosis, ``--scores``, reference of tests
``what_if``      simulated states without some pods, for preemption
``job_headroom`` places for all members of a job, with the victims
``job_dry_run``  dry run of such a plan with the real filters
``extenders``    filters and scores of extenders
``nominated_pods``       nominated pods with at least the pod's priority
``reserve``      allocations of the reserve plugins

No I/O, no clock, no queue: the loop (``scheduler.loop``) owns those.
"""

from koordinator.scheduler.cycle.choose import NodeChoice, ReserveRefusal
from koordinator.scheduler.cycle.cycle import SchedulingCycle
from koordinator.scheduler.cycle.headroom import UNBOUNDED, HeadroomBound
from koordinator.scheduler.cycle.nominated_pods import Nominations, priority_of
from koordinator.scheduler.cycle.scorecard import Scorecard, scorecard

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
