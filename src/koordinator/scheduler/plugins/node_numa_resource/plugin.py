"""Extension points of NodeNUMAResource.

Pods without NUMA or CPU requirements are filtered only where some node has a policy of its own, and
scored by the utilisation of the node.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from koordinator.api.annotations.numa import RESOURCE_SPEC, RESOURCE_STATUS, NumaTopologyPolicy
from koordinator.api.kubescheduler import NodeNUMAResourceArgs
from koordinator.api.labels import POD_PRIORITY_CLASS, POD_QOS_CLASS
from koordinator.api.pod import Pod
from koordinator.foundation.arrays import BoolArray, IntArray
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
    SizeRemedies,
)
from koordinator.scheduler.plugins.node_numa_resource.alignment import (
    AlignmentSettings,
    NumaPlacement,
    align_at,
    align_view,
    kinds_of,
    policy_at,
    request_at,
    reusable_for_pod,
)
from koordinator.scheduler.plugins.node_numa_resource.messages import (
    numa_in_words,
    size_for_numa,
    smaller_for_numa,
    weaker_policies,
    whole_cpus,
)
from koordinator.scheduler.plugins.node_numa_resource.requirements import NumaRequirements, needs_of
from koordinator.scheduler.plugins.node_numa_resource.rows import is_plain, scores, verdicts
from koordinator.scheduler.rules.cpus.binding import FRACTIONAL_CPUS, completed_spec
from koordinator.scheduler.rules.numa.align_kernel import AlignedScores
from koordinator.scheduler.rules.numa.ledger import NumaAllocation
from koordinator.scheduler.rules.numa.node import NumaRequest
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

KEEP = 1 << 12  # cached allocations per kind of pod
_KEY: Memo[Hashable] = Memo()
_LABELS = (POD_QOS_CLASS, POD_PRIORITY_CLASS)


class NodeNumaResource:
    """Allocation of CPUs and NUMA nodes, and alignment of other plugins to them."""

    reads: ClassVar = Reads.PLACED

    def __init__(self, settings: AlignmentSettings) -> None:
        self.settings = settings
        self._requirements: Memo[NumaRequirements | Refusal | None] = Memo()
        self._rows: Memo[AlignedScores] = Memo()
        self._row: Memo[NumaPlacement | tuple[str, ...]] = Memo()
        self._versions: tuple[Callable[[Snapshot], Hashable], ...] = ()  # of the providers
        self.hints = PluginHints(
            key=lambda pod: _KEY.of(pod, _key, pod),
            prefilters=lambda snapshot, pod: isinstance(self._needs(snapshot, pod), Refusal),
            filters=self._filters,
            scores=self._scores,
            formula=self._formula,
            judge=self._filter_and_score,
            changes_amounts_only=self._moves_sums_only,
        )

    def setup(self, plugins: Sequence[Any]) -> None:
        """Look up the plugins of the profile that give NUMA hints."""
        candidates = (plugin for plugin in plugins if hasattr(plugin, "numa_hints"))
        providers = [plugin for plugin in candidates if isinstance(plugin, NumaHintProvider)]
        self.settings = replace(self.settings, providers=tuple(providers))
        self._versions = tuple(p.hints.version for p in providers if p.hints.version is not None)

    # -- nodes ---------------------------------------------------------------------------------

    def prefilter(self, snapshot: Snapshot, pod: PodClass) -> Refusal | None:
        needs = self._needs(snapshot, pod)
        return needs if isinstance(needs, Refusal) else None

    def _filters(self, snapshot: Snapshot, pod: PodClass) -> bool:
        needs = self._needs(snapshot, pod)
        if not isinstance(needs, NumaRequirements):
            return False
        policies, binding, amplified = snapshot.numa.traits
        own = needs.own is not None or needs.policy is not NumaTopologyPolicy.NONE
        return own or policies or (needs.cpu_milli > 0 and (binding or amplified))

    def _moves_sums_only(self, snapshot: Snapshot, pod: PodClass) -> bool:
        needs = self._needs(snapshot, pod)
        if not isinstance(needs, NumaRequirements):
            return True
        policies, binding, _ = snapshot.numa.traits
        own = needs.own is not None or needs.policy is not NumaTopologyPolicy.NONE
        return not (own or policies or binding)

    def filter(self, snapshot: Snapshot, pod: PodClass) -> Rejections:
        needs = self._needs(snapshot, pod)
        if not isinstance(needs, NumaRequirements):
            return Rejections.none(snapshot)

        def explain(place: int) -> Sequence[str]:
            alignment = align_at(self.settings, snapshot, place, pod, needs)
            return () if isinstance(alignment, NumaPlacement) else alignment

        codes = verdicts(snapshot, needs, lambda: self._aligned(snapshot, pod, needs))
        return codes.rejections(explain)

    def detail(self, view: Snapshot, pod: PodClass) -> str:
        needs = self._needs(view, pod)
        return numa_in_words(view, needs) if isinstance(needs, NumaRequirements) else ""

    def size_remedies(self, view: Snapshot, pod: PodClass) -> SizeRemedies:
        """Return the free amounts of the NUMA nodes, most CPU first, and the size of the node."""
        needs = self._needs(view, pod)
        if not isinstance(needs, NumaRequirements):
            return SizeRemedies()
        return SizeRemedies(tuple(smaller_for_numa(view, needs)), size_for_numa(view, needs))

    def pod_remedies(self, view: Snapshot, pod: PodClass, it: Pod) -> list[tuple[str, Pod]]:
        """Return the pod with a weaker NUMA or CPU bind policy, or with whole CPUs to bind."""
        needs = self._needs(view, pod)
        if isinstance(needs, Refusal):
            return [*whole_cpus(it)] if needs.reason == FRACTIONAL_CPUS else []
        return [*weaker_policies(it)] if needs is not None else []

    def _scores(self, snapshot: Snapshot, pod: PodClass) -> bool:
        return isinstance(self._needs(snapshot, pod), NumaRequirements)

    def score(self, snapshot: Snapshot, pod: PodClass) -> IntArray:
        """Return ``(n,)``: the utilisation of the nodes, or of the NUMA nodes that the pod gets."""
        needs = self._needs(snapshot, pod)
        if not isinstance(needs, NumaRequirements):
            return np.zeros(len(snapshot), np.int64)
        return scores(
            snapshot,
            needs,
            self.settings.scorer,
            lambda: self._aligned(snapshot, pod, needs),
        )

    def _filter_and_score(
        self, view: Snapshot, pod: PodClass, weight: int, fits: BoolArray, total: IntArray
    ) -> None:
        """Filter and score in one pass; see ``PluginHints.judge``."""
        needs = self._needs(view, pod)
        if not isinstance(needs, NumaRequirements):
            return

        def aligned() -> AlignedScores:
            return self._aligned(view, pod, needs)

        if not needs.suits_all(view.numa.survey):
            fits &= verdicts(view, needs, aligned).codes == 0
        elif kinds_of(view, needs).may_be_aligned:
            fits &= aligned().admitted
        total += weight * scores(view, needs, self.settings.scorer, aligned)

    def _formula(self, snapshot: Snapshot, pod: PodClass) -> MeanShare | None:
        needs = self._needs(snapshot, pod)
        if not isinstance(needs, NumaRequirements) or not is_plain(snapshot, needs):
            return None
        return needs.formula(snapshot.resources, self.settings.scorer)

    # -- NUMA nodes ----------------------------------------------------------------------------

    def aligns(self, snapshot: Snapshot, pod: PodClass) -> bool:
        needs = self._needs(snapshot, pod)
        return isinstance(needs, NumaRequirements) and bool(needs.policy or snapshot.numa.traits[0])

    def numa_nodes(self, snapshot: Snapshot, pod: PodClass) -> IntArray:
        needs = self._needs(snapshot, pod)
        if not isinstance(needs, NumaRequirements) or not self.aligns(snapshot, pod):
            return np.zeros(len(snapshot), np.int64)
        return self._aligned(snapshot, pod, needs).zones

    def numa_nodes_at(self, node: Snapshot, pod: PodClass) -> int:
        needs = self._needs(node, pod)
        if not isinstance(needs, NumaRequirements):
            return 0
        alignment = self._aligned_at(node, pod, needs)
        return alignment.zones if isinstance(alignment, NumaPlacement) else 0

    def reserve(
        self, node: Snapshot, pod: PodClass, _wish: IntArray | None
    ) -> AllocationResult | Refusal:
        """Allocate CPUs and amounts of NUMA nodes."""
        needs, row = self._needs(node, pod), int(node.row_numbers[0])
        if not isinstance(needs, NumaRequirements) or is_plain(node, needs):
            return NOTHING
        request, policy = request_at(row, node, needs), policy_at(row, node, needs)
        if request is None:
            return Refusal(FRACTIONAL_CPUS)
        if request.binding is None and policy is NumaTopologyPolicy.NONE:
            return NOTHING
        if request.binding is not None and not node.numa.layout[row]:
            return Refusal(INVALID_LAYOUT)
        alignment = self._aligned_at(node, pod, needs)
        if not isinstance(alignment, NumaPlacement):
            return Refusal(", ".join(alignment), resolvable=True)
        return self._cached_allocation(node, alignment, needs, request)

    def _cached_allocation(
        self,
        node: Snapshot,
        placement: NumaPlacement,
        needs: NumaRequirements,
        request: NumaRequest,
    ) -> AllocationResult | Refusal:
        """Return the allocation of a pod, cached for nodes in the same state."""
        if placement.allocation is not None:
            return _allocation(placement.allocation, needs, request)
        row, reusable = int(node.row_numbers[0]), reusable_for_pod(node)
        state = node.numa.state(row, placement.zones)
        key = (placement.zones, int(node.numa.bind_policy[row]), state, reusable.preferred_cpus)
        cached = needs.allocations.get(key)
        if cached is None:
            numa_node = node.numa.node(row, pack=self.settings.pack)
            allocation = NumaTrial(numa_node, request, reusable).allocate(placement.zones or None)
            if isinstance(allocation, NumaShortage):
                return Refusal(", ".join(allocation.reasons), resolvable=True)
            if len(needs.allocations) >= KEEP:
                needs.allocations.clear()
            cached = needs.allocations[key] = _allocation(allocation, needs, request)
        return cached

    # -- cached results ------------------------------------------------------------------------

    def _needs(self, snapshot: Snapshot, pod: PodClass) -> NumaRequirements | Refusal | None:
        return self._requirements.of(pod, needs_of, snapshot, pod, self.settings.default_policy)

    def _aligned(self, view: Snapshot, pod: PodClass, needs: NumaRequirements) -> AlignedScores:
        version = (view.usage_version, pod.id)
        return self._rows.as_of(view, version, self._align, view, pod, needs)

    def _align(self, view: Snapshot, pod: PodClass, needs: NumaRequirements) -> AlignedScores:
        aligned = align_view(self.settings, view, pod, needs)
        zones = np.where(aligned.admitted, aligned.zones, -1)
        needs.known_zones.put(view, self._version(view), zones)
        return aligned

    def _version(self, view: Snapshot) -> object:
        """Return the version of everything that cached NUMA nodes depend on."""
        return view.node_version, [version(view) for version in self._versions]

    def _aligned_at(
        self, node: Snapshot, pod: PodClass, needs: NumaRequirements
    ) -> NumaPlacement | tuple[str, ...]:
        """Return the placement of the pod on the only row of the view, or why there is none."""
        version = (node.usage_version, pod.id)
        return self._row.as_of(node, version, self._align_at, node, pod, needs)

    def _align_at(
        self, node: Snapshot, pod: PodClass, needs: NumaRequirements
    ) -> NumaPlacement | tuple[str, ...]:
        row = int(node.row_numbers[0])
        policy = policy_at(row, node, needs)
        if policy is NumaTopologyPolicy.NONE:
            return NumaPlacement(0)
        # Results from the comparison of nodes are stale once a reservation is nominated: other CPUs
        # are free then.
        is_same = node.nominated is None and not node.restored
        if policy is not NumaTopologyPolicy.BEST_EFFORT and is_same:
            known = needs.known_zones.at(node, self._version(node), row)
            if known is not None:
                return NumaPlacement(known)
        return align_at(self.settings, node, 0, pod, needs)


def _key(pod: PodClass) -> Hashable:
    """Return the part of a pod class that the plugin reads."""
    annotations = frozenset(pod.annotations.items()) if pod.annotations else None
    labels = tuple(pod.labels.get(name) for name in _LABELS)
    return pod.demand, annotations, labels, pod.spec.priority


def _allocation(
    allocation: NumaAllocation, needs: NumaRequirements, request: NumaRequest
) -> AllocationResult:
    """Return the allocation of a pod with its annotations."""
    annotations = RESOURCE_STATUS.entry(allocation.status(needs.notations))
    if request.binding is not None:
        spec = completed_spec(needs.spec, request.binding)
        annotations |= RESOURCE_SPEC.entry(spec) if spec is not None else {}
    pod_allocation = NO_ALLOCATION
    if allocation.cpus or allocation.zones:
        pod_allocation = PodAllocation(numa=allocation, annotations=annotations)
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
        EventHint("AssignedPod", Action.DELETE | Action.UPDATE_SCALE_DOWN),
        EventHint("NodeResourceTopology", Action.ALL),
        EventHint(
            "Node",
            Action.ADD
            | Action.UPDATE_ALLOCATABLE
            | Action.UPDATE_LABELS
            | Action.UPDATE_ANNOTATIONS,
        ),
        EventHint("Device", Action.ALL),  # pods may have to be aligned to their devices
    ),
    example=EXAMPLE,
)
