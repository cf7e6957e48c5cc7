"""The loop of the scheduler: events in, decisions out.

``scheduler``  the loop itself, over a list of features
``feature``    the hooks of a feature
``handle``     the parts below the loop, which features use; ``options`` of the scheduler
``gates``      gates that keep pods out of the queue
``intake``     events of pods
``units``      decision of a pod or of a run of equal pods
``attempts``   the ends of attempts; ``outcomes``: their results as data
``reporter``   conditions and events of pods
``nominations``, ``evictions``  preemption
``quarantine``, ``diagnoses``  pods that wait, and their reasons
``kubelet_rejections``  nodes that equal pods avoid after a rejection

Beside ``binding``, the only part of the scheduler with a loop, a clock and a cluster.
"""

from koordinator.scheduler.loop.options import SchedulerOptions
from koordinator.scheduler.loop.outcomes import Bound, Evicted, Outcome, Unschedulable
from koordinator.scheduler.loop.scheduler import Scheduler

__all__ = ["Bound", "Evicted", "Outcome", "Scheduler", "SchedulerOptions", "Unschedulable"]
