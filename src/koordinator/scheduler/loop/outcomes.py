"""What the scheduler did, as data for those who embed it: the CLI, the simulator, a notebook."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from koordinator.scheduler.cycle import Scorecard


class Bound(msgspec.Struct, frozen=True, gc=False):  # a struct: one is made per pod
    """A pod has its node, in the cluster too."""

    pod: str  # namespace/name
    node: str
    annotations: Mapping[str, str] = {}
    labels: Mapping[str, str] = {}
    scorecard: Scorecard | None = None  # kept on demand (``SchedulerOptions.explain``)
    reservation: str = ""  # the one that got the node; ``pod`` only stands for it


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """An attempt found no node, or the bind failed."""

    pod: str
    plugin: str  # the one that keeps the most nodes away
    reason: str
    message: str  # as in the pod's condition
    nominated: str = ""  # node where room is being made
    scorecard: Scorecard | None = None
    reservation: str = ""  # as above


@dataclass(frozen=True, slots=True)
class Evicted:
    """A pod was deleted to make room."""

    pod: str
    by: str  # the pod that needs the room
    reason: str


Outcome = Bound | Unschedulable | Evicted
