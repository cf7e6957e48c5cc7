"""Outcomes and facts of the scheduler, as data.

*Outcomes* are returned to the caller: the command line, the simulator, a notebook.  *Facts* are
passed to features while pods are decided, for metrics, audit and pages.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from koordinator.api.pod import Pod
from koordinator.cluster.port import WatchEvent
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.binding import Assumed, AttemptRecord
from koordinator.scheduler.cycle import Scorecard
from koordinator.scheduler.queue import QueuedPod
from koordinator.scheduler.snapshot import PodClass

#: Kinds of preemptors, as kube-scheduler's metrics call them.
POD, POD_GROUP, COMPOSITE_POD_GROUP = "pod", "podgroup", "compositepodgroup"


class Bound(Struct, frozen=True, gc=False):  # a struct: one is made per pod
    """A pod has its node, in the cluster too."""

    pod: str  # namespace/name
    node: str
    annotations: Mapping[str, str] = {}
    labels: Mapping[str, str] = {}
    scorecard: Scorecard | None = None  # kept on demand (``SchedulerOptions.explain``)
    reservation: str = ""  # the reservation that got the node; ``pod`` is its reserve pod


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


class AttemptBegan(Struct, frozen=True, gc=False):
    """An attempt begins."""

    attempt: AttemptRecord
    profile: str


class NodeChosen(Struct, frozen=True, gc=False):
    """A node has been chosen for such a pod, which has no place yet."""

    pod_class: PodClass


class AttemptEnded(Struct, frozen=True, gc=False):
    """An attempt has ended, however it went."""

    attempt: AttemptRecord


class PodsBound(Struct, frozen=True, gc=False):
    """Pods have their nodes in the cluster, too."""

    at_s: float  # by the scheduler's clock, as in the facts below
    bound: Sequence[Assumed]


class PodRejected(Struct, frozen=True, gc=False):
    """A pod without a node, with the reason of one plugin."""

    at_s: float
    queued: QueuedPod
    plugin: str
    reason: str
    nominated: str = ""
    tried: bool = True  # it was asked about; else others of its gang were, or its gate is closed
    took_s: float = 0.0


class PodFailed(Struct, frozen=True, gc=False):
    """A decision did not come true."""

    at_s: float
    queued: QueuedPod
    message: str


class UnschedulableReported(Struct, frozen=True, gc=False):
    """The report to a pod of why it waits."""

    pod: Pod
    message: str


class PermitWaited(Struct, frozen=True, gc=False):
    """A pod has left the permit stage."""

    result: str  # allowed, rejected, timeout
    waited_s: float


class DevicesAwaited(Struct, frozen=True, gc=False):
    """The wait of a pod for the binding conditions of its devices has ended."""

    profile: str
    drivers: tuple[str, ...]  # one for each device
    result: str  # success, failure, timeout
    waited_s: float


class PreemptionAttempt(Struct, frozen=True, gc=False):
    """Preemption was attempted for a pod or a group; it failed if there are no victims."""

    victims: int
    took_s: float = 0.0  # by the stopwatch
    succeeded: bool = False  # a node was chosen, maybe with victims that terminate already
    preemptor: str = POD  # or one of a group of scheduling.k8s.io
    violations: int = 0  # victims whose disruption budget is used up
    disruptions: int = 0  # groups that are evicted as a whole


class VictimsEvicted(Struct, frozen=True, gc=False):
    """The victims of a pod or a group of scheduling.k8s.io were deleted, or one could not be."""

    preemptor: str
    took_s: float  # by the stopwatch
    succeeded: bool


class PodEvicted(Struct, frozen=True, gc=False):
    """A pod was evicted."""

    at_s: float
    outcome: Evicted


class OutcomesTaken(Struct, frozen=True, gc=False):
    """The caller takes the outcomes; ``last``: the process ends."""

    at_s: float
    last: bool = False


class EventApplied(Struct, frozen=True, gc=False):
    """An event of the cluster has been applied, or its object quarantined."""

    event: WatchEvent
    took_s: float  # by the stopwatch


Fact = (
    AttemptBegan
    | NodeChosen
    | AttemptEnded
    | PodsBound
    | PodRejected
    | PodFailed
    | UnschedulableReported
    | PermitWaited
    | DevicesAwaited
    | PreemptionAttempt
    | VictimsEvicted
    | PodEvicted
    | OutcomesTaken
    | EventApplied
)
