"""The plugin for NUMA nodes and CPUs.

Pods that want nothing special of them are filtered only where some node has a policy of its own,
and scored by how full the node would be.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from koordinator.api.annotations.numa import RESOURCE_SPEC, RESOURCE_STATUS, NumaTopologyPolicy
from koordinator.api.kubescheduler import NodeNUMAResourceArgs
from koordinator.api.labels import POD_PRIORITY_CLASS, POD_QOS_CLASS
from koordinator.foundation.arrays import IntArray
from koordinator.foundation.memo import Memo
from koordinator.scheduler.contract import (
    NOTHING,
    Action,
    AllocationResult,
    EventHint,
    NumaHintProvider,
    PluginExample,
    PluginHints,
    PluginSpec,
    Reads,
    Refusal,
    Rejections,
)
from koordinator.scheduler.plugins.node_numa_resource.alignment import (
    AlignmentSettings,
    NumaPlacement,
    align_at,
    align_view,
    kept_at,
    policy_at,
    request_at,
)
from koordinator.scheduler.plugins.node_numa_resource.messages import (
    numa_in_words,
    size_for_numa,
    smaller_for_numa,
)
from koordinator.scheduler.plugins.node_numa_resource.requirements import NumaRequirements, asked_of
from koordinator.scheduler.plugins.node_numa_resource.rows import is_plain, scores, verdicts
from koordinator.scheduler.rules.cpus.binding import FRACTIONAL_CPUS, completed_spec
from koordinator.scheduler.rules.numa.align_kernel import AlignedScores
from koordinator.scheduler.rules.numa.ledger import NumaAllocation
from koordinator.scheduler.rules.numa.request import NumaRequest
from koordinator.scheduler.rules.numa.trial import INVALID_LAYOUT, NumaShortage, NumaTrial
from koordinator.scheduler.rules.numa.zone_scorer import ZoneScorer
from koordinator.scheduler.rules.usage_kernels import MeanShare
from koordinator.scheduler.snapshot import (
    NO_ALLOCATION,
    PodAllocation,
    PodClass,
    ResourceAxis,
    Snapshot,
)

KEEP = 1 << 12  # holdings that are remembered of a kind of pod
_KEY: Memo[Hashable] = Memo()
_LABELS = (POD_QOS_CLASS, POD_PRIORITY_CLASS)


class NodeNumaResource:
    """Gives CPUs and amounts of NUMA nodes, and decides from which others take what they give."""

    reads: ClassVar = Reads.PLACED

    def __init__(self, settings: AlignmentSettings) -> None:
        self.settings = settings
        self._requirements: Memo[NumaRequirements | Refusal | None] = Memo()
        self._rows: Memo[AlignedScores] = Memo()
        self._row: Memo[NumaPlacement | tuple[str, ...]] = Memo()
        self._versions: tuple[Callable[[Snapshot], Hashable], ...] = ()  # of the providers
        self.hints = PluginHints(
            key=lambda pod: _KEY.of(pod, _key, pod),
            prefilters=lambda snapshot, pod: isinstance(self._asked(snapshot, pod), Refusal),
            filters=self._filters,
            scores=self._scores,
            formula=self._formula,
            changes_amounts_only=self._moves_sums_only,
        )

    def setup(self, plugins: Sequence[Any]) -> None:
        """Learn which other plugins of the profile have a say about NUMA nodes."""
        providers = [plugin for plugin in plugins if isinstance(plugin, NumaHintProvider)]
        self.settings = replace(self.settings, providers=tuple(providers))
        self._versions = tuple(p.hints.version for p in providers if p.hints.version is not None)

    # -- which nodes -------------------------------------------------------------------------

    def prefilter(self, snapshot: Snapshot, pod: PodClass) -> Refusal | None:
        asked = self._asked(snapshot, pod)
        return asked if isinstance(asked, Refusal) else None

    def _filters(self, snapshot: Snapshot, pod: PodClass) -> bool:
        asked = self._asked(snapshot, pod)
        if not isinstance(asked, NumaRequirements):
            return False
        policies, binding, amplified = snapshot.numa.traits
        own = asked.own is not None or asked.policy is not NumaTopologyPolicy.NONE
        return own or policies or (asked.cpu_milli > 0 and (binding or amplified))

    def _moves_sums_only(self, snapshot: Snapshot, pod: PodClass) -> bool:
        asked = self._asked(snapshot, pod)
        if not isinstance(asked, NumaRequirements):
            return True
        policies, binding, _ = snapshot.numa.traits
        own = asked.own is not None or asked.policy is not NumaTopologyPolicy.NONE
        return not (own or policies or binding)

    def filter(self, snapshot: Snapshot, pod: PodClass) -> Rejections:
        asked = self._asked(snapshot, pod)
        if not isinstance(asked, NumaRequirements):
            return Rejections.none(snapshot)

        def explain(place: int) -> Sequence[str]:
            found = align_at(self.settings, snapshot, place, pod, asked)
            return () if isinstance(found, NumaPlacement) else found

        found = verdicts(snapshot, asked, lambda: self._aligned(snapshot, pod, asked))
        return found.rejections(explain)

    def detail(self, view: Snapshot, pod: PodClass) -> str:
        asked = self._asked(view, pod)
        return numa_in_words(view, asked) if isinstance(asked, NumaRequirements) else ""

    def reduced_requests(self, view: Snapshot, pod: PodClass) -> list[dict[str, int]]:
        """Return what the NUMA nodes have left, the one with the most CPU first."""
        asked = self._asked(view, pod)
        return smaller_for_numa(view, asked) if isinstance(asked, NumaRequirements) else []

    def required_size(self, view: Snapshot, pod: PodClass) -> str:
        asked = self._asked(view, pod)
        return size_for_numa(view, asked) if isinstance(asked, NumaRequirements) else ""

    def _scores(self, snapshot: Snapshot, pod: PodClass) -> bool:
        return isinstance(self._asked(snapshot, pod), NumaRequirements)

    def score(self, snapshot: Snapshot, pod: PodClass) -> IntArray:
        """Return how full the nodes would be, or the NUMA nodes that the pod gets, ``(n,)``."""
        asked = self._asked(snapshot, pod)
        if not isinstance(asked, NumaRequirements):
            return np.zeros(len(snapshot), np.int64)
        return scores(
            snapshot,
            asked,
            self.settings.scorer,
            lambda: self._aligned(snapshot, pod, asked),
        )

    def _formula(self, snapshot: Snapshot, pod: PodClass) -> MeanShare | None:
        asked = self._asked(snapshot, pod)
        if not isinstance(asked, NumaRequirements) or not is_plain(snapshot, asked):
            return None
        return asked.formula(snapshot.resources, self.settings.scorer)

    # -- which NUMA nodes --------------------------------------------------------------------

    def aligns(self, snapshot: Snapshot, pod: PodClass) -> bool:
        asked = self._asked(snapshot, pod)
        return isinstance(asked, NumaRequirements) and bool(asked.policy or snapshot.numa.traits[0])

    def numa_nodes(self, snapshot: Snapshot, pod: PodClass) -> IntArray:
        asked = self._asked(snapshot, pod)
        if not isinstance(asked, NumaRequirements) or not self.aligns(snapshot, pod):
            return np.zeros(len(snapshot), np.int64)
        return self._aligned(snapshot, pod, asked).zones

    def numa_nodes_at(self, node: Snapshot, pod: PodClass) -> int:
        asked = self._asked(node, pod)
        if not isinstance(asked, NumaRequirements):
            return 0
        found = self._aligned_at(node, pod, asked)
        return found.zones if isinstance(found, NumaPlacement) else 0

    def reserve(
        self, node: Snapshot, pod: PodClass, _wish: IntArray | None
    ) -> AllocationResult | Refusal:
        """Take CPUs, and amounts of NUMA nodes."""
        asked, row = self._asked(node, pod), int(node.row_numbers[0])
        if not isinstance(asked, NumaRequirements) or is_plain(node, asked):
            return NOTHING
        request, policy = request_at(row, node, asked), policy_at(row, node, asked)
        if request is None:
            return Refusal(FRACTIONAL_CPUS)
        if request.binding is None and policy is NumaTopologyPolicy.NONE:
            return NOTHING
        if request.binding is not None and not node.numa.layout[row]:
            return Refusal(INVALID_LAYOUT)
        found = self._aligned_at(node, pod, asked)
        if not isinstance(found, NumaPlacement):
            return Refusal(", ".join(found), resolvable=True)
        return self._held(node, found, asked, request)

    def _held(
        self, node: Snapshot, found: NumaPlacement, asked: NumaRequirements, request: NumaRequest
    ) -> AllocationResult | Refusal:
        """Return what a pod takes, worked out once for nodes in the same state."""
        if found.held is not None:
            return _allocation(found.held, asked, request)
        row, kept = int(node.row_numbers[0]), kept_at(node)
        state = node.numa.state(row, found.zones)
        key = (found.zones, int(node.numa.bind_policy[row]), state, kept.preferred_cpus)
        known = asked.held.get(key)
        if known is None:
            numa_node = node.numa.node(row, pack=self.settings.pack)
            held = NumaTrial(numa_node, request, kept).allocate(found.zones or None)
            if isinstance(held, NumaShortage):
                return Refusal(", ".join(held.reasons), resolvable=True)
            if len(asked.held) >= KEEP:
                asked.held.clear()
            known = asked.held[key] = _allocation(held, asked, request)
        return known

    # -- worked out once ---------------------------------------------------------------------

    def _asked(self, snapshot: Snapshot, pod: PodClass) -> NumaRequirements | Refusal | None:
        return self._requirements.of(pod, asked_of, snapshot, pod, self.settings.default_policy)

    def _aligned(self, view: Snapshot, pod: PodClass, asked: NumaRequirements) -> AlignedScores:
        version = (view.usage_version, pod.id)
        return self._rows.as_of(view, version, self._align, view, pod, asked)

    def _align(self, view: Snapshot, pod: PodClass, asked: NumaRequirements) -> AlignedScores:
        aligned = align_view(self.settings, view, pod, asked)
        zones = np.where(aligned.admitted, aligned.zones, -1)
        asked.known_zones.put(view, self._version(view), zones)
        return aligned

    def _version(self, view: Snapshot) -> object:
        """Return what, once it has changed, makes all that is known of NUMA nodes stale."""
        return view.node_version, [version(view) for version in self._versions]

    def _aligned_at(
        self, node: Snapshot, pod: PodClass, asked: NumaRequirements
    ) -> NumaPlacement | tuple[str, ...]:
        """Return where the pod goes on the one row of the view, or why nowhere."""
        version = (node.usage_version, pod.id)
        return self._row.as_of(node, version, self._align_at, node, pod, asked)

    def _align_at(
        self, node: Snapshot, pod: PodClass, asked: NumaRequirements
    ) -> NumaPlacement | tuple[str, ...]:
        row = int(node.row_numbers[0])
        policy = policy_at(row, node, asked)
        if policy is NumaTopologyPolicy.NONE:
            return NumaPlacement(0)
        # What was found when nodes were compared is not what a reservation leaves, once one is
        # nominated.
        is_same = node.nominated is None and not node.restored
        if policy is not NumaTopologyPolicy.BEST_EFFORT and is_same:
            known = asked.known_zones.at(node, self._version(node), row)
            if known is not None:
                return NumaPlacement(known)
        return align_at(self.settings, node, 0, pod, asked)


def _key(pod: PodClass) -> Hashable:
    """Return the part of a class that is read."""
    annotations = frozenset(pod.annotations.items()) if pod.annotations else None
    labels = tuple(pod.labels.get(name) for name in _LABELS)
    return pod.demand, annotations, labels, pod.spec.priority


def _allocation(
    held: NumaAllocation, asked: NumaRequirements, request: NumaRequest
) -> AllocationResult:
    """Return what a pod takes, and what is written about it."""
    annotations = RESOURCE_STATUS.entry(held.status(asked.notations))
    if request.binding is not None:
        spec = completed_spec(asked.spec, request.binding)
        annotations |= RESOURCE_SPEC.entry(spec) if spec is not None else {}
    pod_allocation = NO_ALLOCATION
    if held.cpus or held.zones:
        pod_allocation = PodAllocation(numa=held, annotations=annotations)
    return AllocationResult(pod_allocation, annotations)


def build(args: NodeNUMAResourceArgs, _axis: ResourceAxis) -> NodeNumaResource:
    weights = {resource.name: resource.weight for resource in args.scoring_strategy.resources}
    return NodeNumaResource(
        AlignmentSettings(
            args.default_cpu_bind_policy,
            ZoneScorer(weights, pack=args.scoring_strategy.type == "MostAllocated"),
            ZoneScorer(weights, pack=args.numa_scoring_strategy.type == "MostAllocated"),
        )
    )


EXAMPLE = PluginExample(
    pods=(
        {},
        {
            "metadata": {
                "labels": {"koordinator.sh/qosClass": "LSR"},
                "annotations": {RESOURCE_SPEC.key: '{"requiredCPUBindPolicy": "FullPCPUs"}'},
            },
            "spec": {"priority": 9500},
        },
    ),
)

PLUGIN = PluginSpec(
    "NodeNUMAResource",
    NodeNUMAResourceArgs,
    build,
    events=(
        EventHint("AssignedPod", Action.DELETE),
        EventHint("NodeResourceTopology", Action.ADD | Action.UPDATE | Action.DELETE),
        EventHint("Node", Action.ADD | Action.UPDATE_LABELS | Action.UPDATE_ANNOTATIONS),
    ),
    example=EXAMPLE,
)
