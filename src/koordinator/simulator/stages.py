"""How pods and nodes behave in a virtual cluster, as data: stages, moves and how long they take.

Everything that must live here: the stages of a pod and of a node and the moves between them.  The
world (``world.py``) only makes the moves happen, at their times.  Times are seconds; chance comes
as a numpy generator.

    pod    PENDING ──bound──► RUNNING ──done──► FINISHED
                   └─bound─► INTERRUPTED  (the node has failed, which nobody knows yet)
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
from dataclasses import dataclass
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

# -- how long a stage lasts ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Constant:
    """Always the same."""

    value_s: float

    def draw(self, _rng: np.random.Generator) -> float:
        return self.value_s


@dataclass(frozen=True, slots=True)
class Exponential:
    """Without memory: what has lasted long lasts no less from here on."""

    mean_s: float

    def draw(self, rng: np.random.Generator) -> float:
        return float(rng.exponential(self.mean_s))


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Many short, few very long; half of them are shorter than the median."""

    median_s: float
    sigma: float  # of the logarithm; 1: one in six lasts more than 2.7 medians
    most_s: float = math.inf  # longer draws are cut to this

    def draw(self, rng: np.random.Generator) -> float:
        return min(float(rng.lognormal(math.log(self.median_s), self.sigma)), self.most_s)


@dataclass(frozen=True, slots=True)
class Uniform:
    """Anything between two ends."""

    low_s: float
    high_s: float

    def draw(self, rng: np.random.Generator) -> float:
        return float(rng.uniform(self.low_s, self.high_s))


Distribution = Constant | Exponential | LogNormal | Uniform
FOR_EVER = Constant(math.inf)

# -- pods ------------------------------------------------------------------------------------


class PodStage(StrEnum):
    """Where a pod is in its life; the last two are its ends."""

    PENDING = "pending"
    RUNNING = "running"
    INTERRUPTED = "interrupted"  # on a node that has failed: its work so far is lost
    FINISHED = "finished"
    LOST = "lost"


class PodEvent(StrEnum):
    """What moves a pod from stage to stage."""

    BOUND = "bound"
    BOUND_TO_FAILED_NODE = "bound to a failed node"
    DONE = "done"
    NODE_FAILED = "node failed"
    NODE_BACK = "node back"  # its containers start anew
    DELETED = "deleted"  # by the scheduler, to make room, or because its node stayed away


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
    """How one pod lives, and what its owner does when it is lost."""

    work_s: float = math.inf  # once bound; anew whenever it is interrupted or submitted again
    resubmissions: int = 3  # how often at most
    resubmit_after_s: float = 0.0


#: Runs until it is lost.
ENDLESS = PodLife()


def next_pod_stage(stage: PodStage, event: PodEvent, pod: str) -> PodStage:
    """Return where the event leads.  Raises BugError for a move that is not in ``POD_MOVES``."""
    try:
        return POD_MOVES[stage, event]
    except KeyError:
        raise BugError(f"pod {pod}: {event} can't happen in stage {stage}") from None


_RESUBMITTED: Final = re.compile(r"(?<=\d)-r\d+$")


def resubmitted_name(name: str, times: int) -> str:
    """Return the name of the pod that takes the place of a lost one, ``times`` counted from 1."""
    return f"{name}-r{times}"


def original_name(name: str) -> str:
    """Return the name of the pod that was lost first, of one that ``resubmitted_name`` named.

    Simulated pods are numbered, so that the suffix follows a digit; other names stay the same.
    """
    return _RESUBMITTED.sub("", name)


# -- nodes -----------------------------------------------------------------------------------

UNREACHABLE = "node.kubernetes.io/unreachable"
#: From the last sign of life until the control plane calls the node unreachable: the default of
#: kube-controller-manager's ``--node-monitor-grace-period``.
GRACE_PERIOD_S = 50.0
_SILENT_CONDITION = Condition(
    type="Ready",
    status="Unknown",
    reason="NodeStatusUnknown",
    message="Kubelet stopped posting node status.",
)
#: Of a pod that runs.
RUNNING_CONDITIONS = tuple(
    Condition(type=kind, status="True") for kind in ("PodScheduled", "Initialized", "Ready")
)
READY_CONDITION = Condition(
    type="Ready", status="True", reason="KubeletReady", message="kubelet is posting ready status"
)


class NodeStage(StrEnum):
    """Where a node is in its life."""

    READY = "ready"
    SILENT = "silent"  # failed; the scheduler may still send pods to it
    UNREACHABLE = "unreachable"  # known to have failed; keeps pods away


class NodeEvent(StrEnum):
    """What moves a node from stage to stage."""

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
    """Return where the event leads; None where it changes nothing, as a failed node's failure."""
    return NODE_MOVES.get((stage, event))


def unreachable(node: Node, now_s: float) -> Node:
    """Return the node as the node lifecycle controller leaves it once it is called unreachable."""
    now = to_datetime(now_s)
    taints = tuple(
        Taint(key=UNREACHABLE, effect=effect, time_added=now)
        for effect in ("NoSchedule", "NoExecute")
    )
    return _with(node, _SILENT_CONDITION, (*_other_taints(node), *taints), now_s)


def reachable(node: Node, now_s: float) -> Node:
    """Return the node after it has reported again."""
    return _with(node, READY_CONDITION, _other_taints(node), now_s)


def seconds_tolerated(tolerations: Iterable[Toleration]) -> float:
    """Return how long a pod may stay on an unreachable node: 0 at once, infinite for ever.

    Of several tolerations that cover the taint the shortest counts.
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
