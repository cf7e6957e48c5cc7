"""The shell: events in, binds out.

The only part of the scheduler with a loop, a clock and a cluster.

``shell``          the loop: watch events to state and queue, pods to decisions
``binding``        placing decided pods and binding them, with undo
``binding_cycle``  from a place to a binding: permits, volumes, the bind, and the way back
``isolation``      whose fault it is when something breaks, and what is left out then
``journal``        who is told of decisions
``reporter``       what is written about pods: conditions and events
``metrics``        what is measured
"""

from koordinator.scheduler.app.options import Options
from koordinator.scheduler.app.outcomes import Bound, Evicted, Outcome, Unschedulable
from koordinator.scheduler.app.shell import Scheduler

__all__ = ["Bound", "Evicted", "Options", "Outcome", "Scheduler", "Unschedulable"]
