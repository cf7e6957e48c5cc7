"""The contract of a scheduler plugin, on one page.

A plugin is an object with some of the methods of ``BasicPlugin``, and ``reads`` if it filters or
scores.  A module-level ``PluginSpec`` names it and builds it from its arguments; the how-to
``docs/how-to/add-a-plugin.md`` makes one step by step.

The scheduler calls the methods in the order in which they stand here, with two kinds of arguments:

- ``PodClass``: pods with the same scheduling-relevant fields share one.
- ``Snapshot``: the nodes as arrays, one row per node.  Methods return arrays of the same length.

Plugins are pure.  A method reads nothing but its arguments, no clock and no file, and writes
nothing; the suite ``koordinator.testing.scheduler_plugins`` verifies it.  Everything else that a
plugin may implement is in ``advanced`` (devices, reservations, gangs, preemption, hints for speed)
and in ``explanations``.

Source: k8s.io/kube-scheduler framework/interface.go.
"""

import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from enum import Enum
from functools import cached_property
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np

from koordinator.api.kubescheduler import FeatureGates, PluginArgs
from koordinator.api.meta import JsonObject
from koordinator.api.pod import Pod
from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.contract.events import EventHint
from koordinator.scheduler.snapshot import ObjectTable, PodClass, ResourceAxis, Snapshot

MAX_SCORE = 100


class Reads(Enum):
    """Facts besides the pod that the answer for a node depends on; results are cached by it."""

    NODE = "facts of that node alone: labels, taints, images"
    USAGE = "also that node's requested amounts and pod count, in the way of sums"
    PLACED = "also what else its pods hold: ports, devices"
    CLUSTER = "other nodes, other pods' labels, other objects"


@dataclass(frozen=True, slots=True)
class Refusal:
    """The rejection of a pod as a whole or, from ``reserve``, on the chosen node."""

    reason: str
    resolvable: bool = False  # whether preempting pods could help
    same_as: str = ""  # reason of another plugin for the same fact, which is then not repeated


@dataclass(frozen=True, slots=True)
class Rejections:
    """The result of ``filter``.  Bit i of ``codes[n]`` rejects node n for ``reasons[i]``."""

    codes: IntArray  # (n,); 0 accepts
    reasons: tuple[str, ...] = ()
    #: ``unresolvable``, or a function that computes it for a diagnosis
    verdict: BoolArray | bool | Callable[[], BoolArray] = False
    #: the reasons of a rejected row, where they depend on the row
    explain: Callable[[int], Sequence[str]] | None = None
    may_end: bool = False  # an unresolvable reason may still disappear without preemption

    @property
    def unresolvable(self) -> BoolArray | bool:
        """Whether removing pods would not help, ``(n,)`` or one for all.

        Kubernetes calls the status UnschedulableAndUnresolvable.
        """
        return self.verdict() if callable(self.verdict) else self.verdict

    @classmethod
    def where(cls, rejected: BoolArray, reason: str, *, unresolvable: bool = False) -> "Rejections":
        """Reject the nodes of a mask ``(n,)`` for one reason."""
        return cls(rejected.astype(np.int64), (reason,), unresolvable)

    @classmethod
    def by_column(
        cls,
        rejected: Sequence[BoolArray],
        reasons: tuple[str, ...],
        unresolvable: BoolArray | bool = False,
    ) -> "Rejections":
        """Reject for several reasons: ``rejected[i]`` is the mask ``(n,)`` of ``reasons[i]``."""
        codes = np.zeros(len(rejected[0]), np.int64)
        for bit, mask in enumerate(rejected):
            codes |= mask.astype(np.int64) << bit
        return cls(codes, reasons, unresolvable)

    @classmethod
    def none(cls, snapshot: Snapshot) -> "Rejections":
        """Accept every node."""
        return cls(np.zeros(len(snapshot), np.int64))


@dataclass(frozen=True, slots=True)
class Shortlist:
    """The only nodes that a pod may run on; the plugin's ``filter`` rejects all others, too.

    One plugin of a profile may return such lists.
    """

    nodes: frozenset[str]


class BasicPlugin(Protocol):
    """The methods that most plugins need; each is optional."""

    reads: ClassVar[Reads]  # required with ``filter`` or ``score``

    def applies(self, pod: PodClass) -> bool:
        """Return False for pods that the plugin ignores in any cluster.  Default: True.

        The scheduler does not call the following methods for such pods.
        """
        ...

    def pre_enqueue(self, pod: Pod, objects: ObjectTable) -> Refusal | None:
        """Keep a pod out of the queue.  None admits it."""
        ...

    def prefilter(self, snapshot: Snapshot, pod: PodClass) -> Refusal | Shortlist | None:
        """Reject the pod on every node, or return the ``Shortlist`` of nodes that it may run on."""
        ...

    def filter(self, snapshot: Snapshot, pod: PodClass) -> Rejections:
        """Reject nodes, with reasons."""
        ...

    def score(self, snapshot: Snapshot, pod: PodClass) -> IntArray:
        """Return ``(n,)`` scores, in 0..MAX_SCORE unless ``normalize`` follows."""
        ...

    def normalize(self, raw: IntArray) -> IntArray:
        """Return final scores in 0..MAX_SCORE for the raw scores ``(k,)`` of feasible nodes."""
        ...

    def post_bind(self, pod: Pod, node: str) -> None:
        """Record that the API server has bound the pod."""
        ...


def spread_of(scores: IntArray, max_score: int = MAX_SCORE, *, reverse: bool = False) -> IntArray:
    """Scale raw scores so that the highest becomes ``max_score``; reversed, the lowest.

    Source: kubernetes pkg/scheduler/framework/plugins/helper/normalize_score.go.
    """
    top = int(scores.max(initial=0))
    if top == 0:
        return np.full_like(scores, max_score) if reverse else scores
    scaled = scores * max_score // top
    return max_score - scaled if reverse else scaled


class NoArgs(PluginArgs, frozen=True, kw_only=True):
    """Arguments of a plugin without arguments."""


@dataclass(frozen=True, slots=True)
class PluginExample:
    """Objects with which the plugin rejects or scores, for the suite of ``koordinator.testing``.

    The suite merges a part of a manifest from ``nodes`` or ``pods``, drawn at random, into each of
    its nodes or pods: ``{"metadata": {"labels": {"example.com/price": "2"}}}``.  Nodes are named
    n0, n1, …
    """

    args: Mapping[str, Any] = field(default_factory=dict)  # as in a configuration
    nodes: Sequence[JsonObject] = ()
    pods: Sequence[JsonObject] = ()  # placed pods included
    objects: Sequence[JsonObject] = ()  # whole manifests of other kinds
    node_objects: Sequence[JsonObject] = ()  # one for each node, with the node's name
    silent: str = ""  # why no objects make the plugin reject or score, if that is the case
    now_s: float = 0.0  # seconds since the epoch


ArgsType = TypeVar("ArgsType", bound=PluginArgs)


@dataclass(frozen=True)
class PluginSpec(Generic[ArgsType]):
    """The declaration of a plugin; the return type of ``build`` gives its extension points."""

    name: str
    args: type[ArgsType]
    build: Callable[[ArgsType, ResourceAxis], Any]
    events: tuple[EventHint, ...] = ()  # events that may make a rejected pod schedulable
    #: further events where a feature gate is on, with the gate's name
    gated_events: tuple[tuple[str, EventHint], ...] = ()
    max_score: int = MAX_SCORE
    example: PluginExample = field(default_factory=PluginExample)

    def events_with(self, gates: FeatureGates) -> tuple[EventHint, ...]:
        """Return the events with the gates that are on."""
        return (*self.events, *(event for gate, event in self.gated_events if gate in gates))

    @cached_property
    def plugin_type(self) -> type:
        """The class of the plugin."""
        returned: type = typing.get_type_hints(self.build)["return"]
        return returned
