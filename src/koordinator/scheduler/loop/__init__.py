"""The loop: events in, a unit of work, a decision, over to the bindings.

``scheduler``    the loop itself, which knows a list of features
``feature``      what a feature may do, and when it is asked
``handle``       what the loop and the features stand on
``intake``       events of pods
``units``        a pod or a run of equal pods, decided
``attempts``     how attempts end, and ``outcomes``, what is told of it
``reporter``     what is written about pods: conditions and events
``nominations``, ``evictions``  room that is made
``gates``, ``limited_pods``, ``quarantine``, ``diagnoses``  who waits, and why

The only part of the scheduler with a loop, a clock and a cluster, beside ``binding``.
"""

from koordinator.scheduler.loop.options import SchedulerOptions
from koordinator.scheduler.loop.outcomes import Bound, Evicted, Outcome, Unschedulable
from koordinator.scheduler.loop.scheduler import Scheduler

__all__ = ["Bound", "Evicted", "Outcome", "Scheduler", "SchedulerOptions", "Unschedulable"]
