"""Cluster events, and the hints by which they requeue rejected pods."""

from collections.abc import Callable
from enum import Flag, StrEnum, auto

import msgspec

from koordinator.api.dynamic_resources import ResourceClaim
from koordinator.api.meta import KubeObject
from koordinator.domain.dynamic_resources.node_gpus import claimed_gpus
from koordinator.foundation.lazy_dataclass import dataclass


class Action(Flag):
    """The change of an object.  Updates are split by the changed part, so that hints are cheap.

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
    """The result of a hint function: whether the event could make the pod schedulable."""

    QUEUE = "Queue"
    SKIP = "QueueSkip"


class ClusterEvent(msgspec.Struct, frozen=True, gc=False):  # a struct: one is made per event
    """A change of an object in the cluster.

    ``resource`` is a kind: Node, AssignedPod, Pod, Device …  ``AssignedPod`` is a pod that has a
    node, ``Pod`` the unscheduled pod itself; ``*`` requeues all pods.  ``old`` is None on ADD,
    ``new`` is None on DELETE.
    """

    resource: str
    action: Action
    old: KubeObject | None = None
    new: KubeObject | None = None

    @property
    def label(self) -> str:
        """The name in metrics, such as NodeAdd."""
        change = "Update" if self.action & Action.UPDATE else (self.action.name or "").title()
        return f"{self.resource}{change}"


HintFunction = Callable[[KubeObject, ClusterEvent], QueueingHint]


@dataclass(frozen=True, slots=True)
class EventHint:
    """Events that requeue the pods that the plugin rejected.

    Without ``hint`` every such event does.
    """

    resource: str
    action: Action
    hint: HintFunction | None = None


def on_claimed_gpus(_pod: KubeObject, event: ClusterEvent) -> QueueingHint:
    """Queue if a claim has released GPUs that pods may request."""
    had = isinstance(event.old, ResourceClaim) and claimed_gpus(event.old)
    has = isinstance(event.new, ResourceClaim) and claimed_gpus(event.new)
    return QueueingHint.QUEUE if had and had != has else QueueingHint.SKIP
