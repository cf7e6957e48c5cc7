"""What happened in the cluster, and which pods that may help."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Flag, StrEnum, auto

import msgspec

from koordinator.api.meta import KubeObject


class Action(Flag):
    """What happened to an object.  Updates are split by what changed, so that hints stay cheap.

    Source: kubernetes pkg/scheduler/framework/types.go, ActionType (k8s.io/kube-scheduler).
    """

    ADD = auto()
    DELETE = auto()
    UPDATE_ALLOCATABLE = auto()
    UPDATE_LABELS = auto()
    UPDATE_TAINTS = auto()
    UPDATE_CONDITION = auto()
    UPDATE_ANNOTATIONS = auto()
    UPDATE_DECLARED_FEATURES = auto()
    UPDATE_SCALE_DOWN = auto()
    UPDATE_TOLERATIONS = auto()
    UPDATE_GATES_ELIMINATED = auto()
    UPDATE_GENERATED_CLAIMS = auto()
    UPDATE_OTHER = auto()
    UPDATE = (
        UPDATE_ALLOCATABLE
        | UPDATE_LABELS
        | UPDATE_TAINTS
        | UPDATE_CONDITION
        | UPDATE_ANNOTATIONS
        | UPDATE_DECLARED_FEATURES
        | UPDATE_SCALE_DOWN
        | UPDATE_TOLERATIONS
        | UPDATE_GATES_ELIMINATED
        | UPDATE_GENERATED_CLAIMS
        | UPDATE_OTHER
    )
    ALL = ADD | DELETE | UPDATE


class QueueingHint(StrEnum):
    """A plugin's answer to "could this event make the pod schedulable?"."""

    QUEUE = "Queue"
    SKIP = "QueueSkip"


class ClusterEvent(msgspec.Struct, frozen=True, gc=False):  # a struct: one is made per event
    """Something changed in the cluster.

    ``resource`` is a kind: Node, AssignedPod, Pod, Device …
    ``AssignedPod`` is a pod that has a node; ``Pod`` the unscheduled pod itself; ``*`` wakes
    everyone.  ``old`` is None on ADD, ``new`` is None on DELETE.
    """

    resource: str
    action: Action
    old: KubeObject | None = None
    new: KubeObject | None = None

    @property
    def label(self) -> str:
        """What metrics call it, such as NodeAdd."""
        what = "Update" if self.action & Action.UPDATE else (self.action.name or "").title()
        return f"{self.resource}{what}"


HintFunction = Callable[[KubeObject, ClusterEvent], QueueingHint]


@dataclass(frozen=True, slots=True)
class EventHint:
    """A plugin that rejected a pod wants to hear of these events.

    Without ``hint`` each one queues the pod.
    """

    resource: str
    action: Action
    hint: HintFunction | None = None
