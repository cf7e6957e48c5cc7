"""From a decision to a bound pod, or back: the life of a pod that has a place.

``life``      the states, and what may happen in each: one table; changes of other objects, as
              writes
``binder``    places in the state, writes to the cluster, and their undo
``bindings``  permits, what a pod needs on its node, the bind
"""

from koordinator.scheduler.binding.binder import Assumed, AttemptRecord, Binder
from koordinator.scheduler.binding.bindings import BindingObserver, Bindings
from koordinator.scheduler.binding.life import LifeEvent, LifeState, write_change

__all__ = [
    "Assumed",
    "AttemptRecord",
    "Binder",
    "BindingObserver",
    "Bindings",
    "LifeEvent",
    "LifeState",
    "write_change",
]
