"""Life cycles of pods and nodes in a virtual cluster: stages, transitions and durations.

All stages and transitions of pods and nodes are defined here; the world (``world.py``) applies
them at their times.  Times are seconds; random draws use a numpy generator.  The budget of moves
and the benefit of an eviction are here too, since the world and the research policies share them.

    pod    PENDING ──bound──► RUNNING ──done──► FINISHED
                   └─bound─► INTERRUPTED  (the node has failed, unnoticed so far)
           RUNNING ◄─node back/node failed─► INTERRUPTED
           PENDING, RUNNING, INTERRUPTED ──deleted──► LOST, and its owner submits it again

    node   READY ──fails──► SILENT ──noticed──► UNREACHABLE ──repaired──► READY
                            SILENT ──repaired──► READY

Source: kubernetes v1.35 pkg/controller/nodelifecycle/node_lifecycle_controller.go (conditions and
taints), pkg/controller/tainteviction/taint_eviction.go ``getMinTolerationTime``.
"""

import math
import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

import numpy as np
from msgspec.structs import replace

from koordinator.api.core import Taint, Toleration
from koordinator.api.meta import Condition
from koordinator.api.node import Node
from koordinator.domain.node_selection import tolerates
from koordinator.foundation.clock import to_datetime
from koordinator.foundation.errors import BugError
from koordinator.foundation.lazy_dataclass import dataclass

_PER = 1000.0

_RESUBMITTED: Final = re.compile(r"(?<=\d)-r\d+$")

UNREACHABLE = "node.kubernetes.io/unreachable"
#: Time from a node's last status update to its unreachable taint: the default of
#: kube-controller-manager's ``--node-monitor-grace-period``.
GRACE_PERIOD_S = 50.0
_SILENT_CONDITION = Condition(
    type="Ready",
    status="Unknown",
    reason="NodeStatusUnknown",
    message="Kubelet stopped posting node status.",
)
#: Conditions of a running pod.
RUNNING_CONDITIONS = tuple(
    Condition(type=kind, status="True") for kind in ("PodScheduled", "Initialized", "Ready")
)
READY_CONDITION = Condition(
    type="Ready", status="True", reason="KubeletReady", message="kubelet is posting ready status"
)


# -- durations -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Constant:
    """Constant duration."""

    value_s: float

    def draw(self, _rng: np.random.Generator) -> float:
        return self.value_s


@dataclass(frozen=True, slots=True)
class Exponential:
    """Exponential distribution (memoryless)."""

    mean_s: float

    def draw(self, rng: np.random.Generator) -> float:
        return float(rng.exponential(self.mean_s))


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Log-normal distribution: many short durations, few very long ones."""

    median_s: float
    sigma: float  # of the logarithm; with 1, one in six exceeds 2.7 medians
    most_s: float = math.inf  # upper bound of draws

    def draw(self, rng: np.random.Generator) -> float:
        return min(float(rng.lognormal(math.log(self.median_s), self.sigma)), self.most_s)


@dataclass(frozen=True, slots=True)
class Uniform:
    """Uniform distribution."""

    low_s: float
    high_s: float

    def draw(self, rng: np.random.Generator) -> float:
        return float(rng.uniform(self.low_s, self.high_s))


Distribution = Constant | Exponential | LogNormal | Uniform
FOR_EVER = Constant(math.inf)

# -- pods ------------------------------------------------------------------------------------


class PodStage(StrEnum):
    """Stage of a pod; the last two are final."""

    PENDING = "pending"
    RUNNING = "running"
    INTERRUPTED = "interrupted"  # on a node that has failed: its work so far is lost
    FINISHED = "finished"
    LOST = "lost"


class PodEvent(StrEnum):
    """Event that moves a pod to another stage."""

    BOUND = "bound"
    BOUND_TO_FAILED_NODE = "bound to a failed node"
    DONE = "done"
    NODE_FAILED = "node failed"
    NODE_BACK = "node back"  # its containers restart
    DELETED = "deleted"  # preempted, or evicted from an unreachable node


POD_MOVES: Mapping[tuple[PodStage, PodEvent], PodStage] = {
    (PodStage.PENDING, PodEvent.BOUND): PodStage.RUNNING,
    (PodStage.PENDING, PodEvent.BOUND_TO_FAILED_NODE): PodStage.INTERRUPTED,
    (PodStage.PENDING, PodEvent.DELETED): PodStage.LOST,
    (PodStage.RUNNING, PodEvent.DONE): PodStage.FINISHED,
    (PodStage.RUNNING, PodEvent.NODE_FAILED): PodStage.INTERRUPTED,
    (PodStage.RUNNING, PodEvent.DELETED): PodStage.LOST,
    (PodStage.INTERRUPTED, PodEvent.NODE_BACK): PodStage.RUNNING,
    (PodStage.INTERRUPTED, PodEvent.DELETED): PodStage.LOST,
}


@dataclass(frozen=True, slots=True)
class PodLife:
    """Duration of a pod's work, and resubmission by its owner after a loss."""

    work_s: float = math.inf  # from the bind; restarts after an interruption or resubmission
    resubmissions: int = 3  # maximum number
    resubmit_after_s: float = 0.0
    gives_up: bool = False  # its owner deletes a pod whose first attempt fails


#: Runs until it is lost.
ENDLESS = PodLife()


def next_pod_stage(stage: PodStage, event: PodEvent, pod: str) -> PodStage:
    """Return the next stage.  Raises BugError for a transition that is not in ``POD_MOVES``."""
    try:
        return POD_MOVES[stage, event]
    except KeyError:
        raise BugError(f"pod {pod}: event {event} is invalid in stage {stage}") from None


def resubmitted_name(name: str, times: int) -> str:
    """Return the name of a lost pod's replacement; ``times`` counts from 1."""
    return f"{name}-r{times}"


def original_name(name: str) -> str:
    """Return the name of the pod that was lost first, of one that ``resubmitted_name`` named.

    Simulated pods are numbered, so that the suffix follows a digit; other names stay the same.
    """
    return _RESUBMITTED.sub("", name)


# -- nodes -----------------------------------------------------------------------------------


class NodeStage(StrEnum):
    """Stage of a node."""

    READY = "ready"
    SILENT = "silent"  # failed, unnoticed; the scheduler may still bind pods to it
    UNREACHABLE = "unreachable"  # failed and tainted


class NodeEvent(StrEnum):
    """Event that moves a node to another stage."""

    FAILED = "failed"
    NOTICED = "noticed"
    REPAIRED = "repaired"


NODE_MOVES: Mapping[tuple[NodeStage, NodeEvent], NodeStage] = {
    (NodeStage.READY, NodeEvent.FAILED): NodeStage.SILENT,
    (NodeStage.SILENT, NodeEvent.NOTICED): NodeStage.UNREACHABLE,
    (NodeStage.SILENT, NodeEvent.REPAIRED): NodeStage.READY,
    (NodeStage.UNREACHABLE, NodeEvent.REPAIRED): NodeStage.READY,
}


def next_node_stage(stage: NodeStage, event: NodeEvent) -> NodeStage | None:
    """Return the next stage; None if the event has no effect, such as a failed node's failure."""
    return NODE_MOVES.get((stage, event))


def unreachable(node: Node, now_s: float) -> Node:
    """Return the node with the node lifecycle controller's unreachable condition and taints."""
    now = to_datetime(now_s)
    taints = tuple(
        Taint(key=UNREACHABLE, effect=effect, time_added=now)
        for effect in ("NoSchedule", "NoExecute")
    )
    return _with(node, _SILENT_CONDITION, (*_other_taints(node), *taints), now_s)


def reachable(node: Node, now_s: float) -> Node:
    """Return the node with its ready condition and without the unreachable taints."""
    return _with(node, READY_CONDITION, _other_taints(node), now_s)


def seconds_tolerated(tolerations: Iterable[Toleration]) -> float:
    """Return the seconds a pod may stay on an unreachable node; infinite without a limit.

    The shortest of the matching tolerations counts.
    """
    taint = Taint(key=UNREACHABLE, effect="NoExecute")
    covering = [toleration for toleration in tolerations if tolerates(toleration, taint)]
    if not covering:
        return 0.0
    limits = [t.toleration_seconds for t in covering if t.toleration_seconds is not None]
    return float(max(min(limits), 0)) if limits else math.inf


def _other_taints(node: Node) -> tuple[Taint, ...]:
    return tuple(taint for taint in node.spec.taints if taint.key != UNREACHABLE)


def _with(node: Node, condition: Condition, taints: tuple[Taint, ...], now_s: float) -> Node:
    kept = tuple(c for c in node.status.conditions if c.type != condition.type)
    dated = replace(condition, last_transition_time=to_datetime(now_s))
    return replace(
        node,
        spec=replace(node.spec, taints=taints),
        status=replace(node.status, conditions=(*kept, dated)),
    )


def moves_allowed(per_1000: float, arrivals: int) -> int:
    """Return the moves that a budget per 1,000 arrivals allows after a number of arrivals."""
    return int(per_1000 * arrivals / _PER)


@dataclass(frozen=True, slots=True)
class Eviction:
    """Eviction of a pod from a node, with the time it had run."""

    node: str
    at_s: float
    ran_s: float

    def was_wasted(self, node: str, waited_s: float) -> bool:
        """Return whether the eviction had no benefit, given the replacement's node and wait.

        That is the case if the replacement is on the same node again, or waited (or still waits)
        longer than the pod had run.
        """
        return node == self.node or waited_s > self.ran_s
