"""Extension points of DeviceShare.

A node without a Device object is left to its kubelet: it passes and nothing is allocated.
"""

from collections.abc import Hashable, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
from msgspec.structs import replace

from koordinator.api.annotations.reservation import RESERVE_POD
from koordinator.api.core import ConfigMap
from koordinator.api.device import DeviceType
from koordinator.api.kubescheduler import NO_GATES, DeviceShareArgs, FeatureGates
from koordinator.api.kubescheduler.gates import (
    DEVICE_PLUGIN_ADAPTION,
    DRA_EXTENDED_RESOURCE,
    RESIZE_POD,
)
from koordinator.api.labels import (
    GPU_ISOLATION_PROVIDER,
    GPU_MODEL,
    GPU_VENDOR,
    POD_PRIORITY_CLASS,
    POD_QOS_CLASS,
)
from koordinator.api.pod import Pod
from koordinator.domain.devices.allocation import (
    NOT_TOGETHER,
    DeviceShortage,
    annotation_entry,
    to_annotation,
)
from koordinator.domain.devices.pod_request import sharing_shortage
from koordinator.domain.devices.requests import DEVICE_NAMES
from koordinator.domain.devices.scorer import Scorer, scorer_of
from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.foundation.masks import mask_of
from koordinator.foundation.memo import Memo
from koordinator.scheduler.contract import (
    NOTHING,
    Action,
    AllocationResult,
    EventHint,
    NumaAligner,
    PluginHints,
    PluginSpec,
    Reads,
    Refusal,
    Rejections,
    SizeRemedies,
    Spread,
    spread_of,
)
from koordinator.scheduler.contract.events import on_claimed_gpus
from koordinator.scheduler.diagnosis import reasons_of
from koordinator.scheduler.plugins.device_share.choices import (
    DeviceRow,
    First,
    allocation_of,
    known_allocation,
)
from koordinator.scheduler.plugins.device_share.messages import (
    fewer_devices,
    shortage_in_words,
    size_in_words,
    smaller_shares,
    to_repair,
    together_in_words,
    whole_devices,
)
from koordinator.scheduler.plugins.device_share.requests import (
    RequestEntry,
    Templates,
    marks,
    resized,
)
from koordinator.scheduler.plugins.device_share.rows import (
    RejectionCodes,
    add_shortages,
    add_unplaced,
    hints_of,
    rate_rows,
    scores_of,
)
from koordinator.scheduler.plugins.device_share.states import DeviceStates
from koordinator.scheduler.rules.numa.align import ResourceHints, TopologyHint
from koordinator.scheduler.rules.numa.rows_align import OtherHints
from koordinator.scheduler.rules.smaller_pods import asking_at_most
from koordinator.scheduler.snapshot import PodAllocation, PodClass, ResourceAxis, Snapshot
from koordinator.scheduler.snapshot.axis import PODS

_LABELS = (GPU_ISOLATION_PROVIDER, POD_QOS_CLASS, POD_PRIORITY_CLASS)
_KEY: Memo[Hashable] = Memo()


class DeviceShare:
    """Filter, score and allocation of devices."""

    reads: ClassVar = Reads.PLACED

    def __init__(
        self,
        scorer: Scorer,
        templates: Templates,
        unsupported: frozenset[tuple[str, str]],
        *,
        aligns: bool,
    ) -> None:
        self.scorer, self.templates, self.unsupported = scorer, templates, unsupported
        self.aligns = aligns  # whether devices come from the pod's NUMA nodes
        self.aligner: NumaAligner | None = None
        self.gates = NO_GATES
        self._states: Memo[DeviceStates] = Memo()
        self.hints = PluginHints(
            key=lambda pod: _KEY.of(pod, _key, pod),
            version=lambda snapshot: snapshot.objects.version(ConfigMap),
            filters=self._filters,
            scores=self._filters,
            rate=self._rate,
            spread=Spread.HIGHEST,
            states=lambda snapshot: self._states.of(
                snapshot.shared, DeviceStates, self.scorer, self._entry_by_states
            ),
        )

    def with_gates(self, gates: FeatureGates) -> "DeviceShare":
        """Store the feature gates."""
        self.gates = gates
        return self

    def setup(self, plugins: Sequence[Any]) -> None:
        """Look up the plugin that aligns pods to NUMA nodes."""
        candidates = (plugin for plugin in plugins if hasattr(plugin, "aligns"))
        self.aligner = next(
            (plugin for plugin in candidates if isinstance(plugin, NumaAligner)), None
        )

    def applies(self, pod: PodClass) -> bool:
        """Return whether the pod requests more than CPU, memory, ephemeral storage and pods."""
        return any(column > PODS for column, _ in pod.demand)

    # -- nodes ---------------------------------------------------------------------------------

    def prefilter(self, snapshot: Snapshot, pod: PodClass) -> Refusal | None:
        entry = self.templates.pod_request(snapshot, pod)
        return entry if isinstance(entry, Refusal) else None

    def _filters(self, snapshot: Snapshot, pod: PodClass) -> bool:
        return self.templates.pod_request(snapshot, pod) is not None

    def filter(self, snapshot: Snapshot, pod: PodClass) -> Rejections:
        entry = self.templates.pod_request(snapshot, pod)
        if not isinstance(entry, RequestEntry):
            return Rejections.none(snapshot)
        verdicts = RejectionCodes.none(len(snapshot))
        self._add_unshareable(verdicts, snapshot, pod, entry)
        add_shortages(verdicts, snapshot, entry, self.scorer)
        if self.aligns and self.aligner is not None and self.aligner.aligns(snapshot, pod):
            zones = partial(self.aligner.numa_nodes, snapshot, pod)
            add_unplaced(verdicts, snapshot, entry, self.scorer, zones)
        served = self._served(snapshot, pod)
        if served is not None:
            verdicts.codes[served] = 0
        return verdicts.rejections()

    def _served(self, snapshot: Snapshot, pod: PodClass) -> BoolArray | None:
        """Return ``(n,)``: DeviceClasses serve all devices the pod requests; None: nowhere."""
        if DRA_EXTENDED_RESOURCE not in self.gates or not pod.served:
            return None
        names, served = snapshot.resources, {column for column, _ in pod.served}
        devices = [column for column, _ in pod.demand if names[column] in DEVICE_NAMES]
        if not served.issuperset(devices):
            return None
        unserved: BoolArray = (snapshot.allocatable[:, devices] == 0).all(axis=1)
        return unserved

    def detail(self, view: Snapshot, pod: PodClass) -> str:
        entry = self.templates.pod_request(view, pod)
        if not isinstance(entry, RequestEntry):
            return ""
        shortage_text = shortage_in_words(view, entry.pod_request)
        if shortage_text or not self.filter(view, pod).codes[0]:
            return shortage_text
        (reason,) = reasons_of(self.filter(view, pod), 0)
        return together_in_words(view, entry.pod_request) if reason in NOT_TOGETHER else ""

    def node_remedy(self, view: Snapshot, pod: PodClass) -> str:
        """Return the unhealthy devices to repair."""
        entry = self.templates.pod_request(view, pod)
        return to_repair(view, entry.pod_request) if isinstance(entry, RequestEntry) else ""

    def size_remedies(self, view: Snapshot, pod: PodClass) -> SizeRemedies:
        """Return requests for less, and the devices that a node must have."""
        entry = self.templates.pod_request(view, pod)
        if not isinstance(entry, RequestEntry):
            return SizeRemedies()
        names = view.resources
        demand = {names[c]: n for c, n in pod.demand}
        requests = (
            *fewer_devices(view, entry.pod_request, demand),
            *smaller_shares(view, entry.pod_request, demand),
        )
        return SizeRemedies(requests, size_in_words(view, entry.pod_request))

    def pod_remedies(self, view: Snapshot, pod: PodClass, it: Pod) -> list[tuple[str, Pod]]:
        """Return the pod with whole devices if it requests neither a part of one nor whole ones."""
        if isinstance(self.templates.pod_request(view, pod), RequestEntry):
            return []
        names = view.resources
        whole = whole_devices({names[c]: n for c, n in pod.demand})
        spec = asking_at_most(it.spec, whole) if whole else None
        if spec is None:
            return []
        listed = " and ".join(f"{amount} of {name}" for name, amount in whole.items())
        return [(f"request {listed}", replace(it, spec=spec))]

    def score(self, snapshot: Snapshot, pod: PodClass) -> IntArray:
        """Return ``(n,)``: the utilisation of the devices, summed over the types."""
        entry = self.templates.pod_request(snapshot, pod)
        if not isinstance(entry, RequestEntry):
            return np.zeros(len(snapshot), np.int64)
        zones = None
        if self.aligner is not None and self.aligner.aligns(snapshot, pod):
            zones = self.aligner.numa_nodes(snapshot, pod)
        scores, served = (
            scores_of(snapshot, entry, self.scorer, zones),
            self._served(snapshot, pod),
        )
        return scores if served is None else np.where(served, 0, scores)

    def _rate(self, view: Snapshot, pod: PodClass, fits: BoolArray) -> IntArray:
        """Filter and score in one pass; see ``PluginHints.rate``."""
        entry = self.templates.pod_request(view, pod)
        if not isinstance(entry, RequestEntry) or self._depends_on_labels(pod, entry) or pod.served:
            fits &= self.filter(view, pod).codes == 0
            return self.score(view, pod)
        zones = None
        if self.aligner is not None and self.aligner.aligns(view, pod):
            zones = self.aligner.numa_nodes(view, pod)
        return rate_rows(view, entry, self.scorer, zones, fits, aligns=self.aligns)

    def _entry_by_states(self, snapshot: Snapshot, pod: PodClass) -> RequestEntry | None:
        """Return the request of a pod if its devices alone decide about its nodes."""
        entry = self.templates.pod_request(snapshot, pod)
        if (
            not isinstance(entry, RequestEntry)
            or self._depends_on_labels(pod, entry)
            or pod.served
            or DEVICE_PLUGIN_ADAPTION in self.gates
            or RESERVE_POD in pod.annotations
            or (self.aligner is not None and self.aligner.aligns(snapshot, pod))
        ):
            return None
        return entry

    def _depends_on_labels(self, pod: PodClass, entry: RequestEntry) -> bool:
        """Return whether labels of nodes decide if they can serve the pod."""
        gpu = entry.pod_request.gpu
        required = pod.labels.get(GPU_ISOLATION_PROVIDER) or self.unsupported
        return gpu is not None and gpu.is_share and bool(required)

    def normalize(self, raw: IntArray) -> IntArray:
        """Return 0..MAX_SCORE, with the highest raw score mapped to MAX_SCORE."""
        return spread_of(raw)

    def _add_unshareable(
        self, verdicts: RejectionCodes, snapshot: Snapshot, pod: PodClass, entry: RequestEntry
    ) -> None:
        """Reject nodes whose GPUs cannot be shared, or not with the required isolation."""
        if not self._depends_on_labels(pod, entry):
            return
        keys = (GPU_ISOLATION_PROVIDER, GPU_VENDOR, GPU_MODEL)
        columns = [snapshot.label(key) for key in keys]
        kinds = np.stack([ids for ids, _ in columns], axis=1)
        different, kind_of_row = np.unique(kinds, axis=0, return_inverse=True)
        for index, ids in enumerate(different.tolist()):
            labels = {
                key: values[number]
                for key, number, (_, values) in zip(keys, ids, columns, strict=True)
                if number >= 0
            }
            shortage = sharing_shortage(entry.pod_request, pod.labels, labels, self.unsupported)
            if shortage is not None:
                verdicts.add(np.flatnonzero(kind_of_row.ravel() == index), shortage)

    # -- NUMA nodes ----------------------------------------------------------------------------

    def numa_hints(
        self, snapshot: Snapshot, pod: PodClass, sets: Sequence[int]
    ) -> OtherHints | None:
        entry = self.templates.pod_request(snapshot, pod)
        if not isinstance(entry, RequestEntry) or not self.aligns:
            return None
        return hints_of(snapshot, entry, self.scorer, sets)

    def numa_hints_at(self, node: Snapshot, pod: PodClass) -> ResourceHints | Refusal:
        entry, row = self.templates.pod_request(node, pod), int(node.row_numbers[0])
        report = node.devices.reports.get(row)
        if not isinstance(entry, RequestEntry) or not self.aligns or report is None:
            return {}
        place = DeviceRow.of(node)
        on_model = place.on_model(entry)
        if on_model.plan.never is not None:
            return Refusal(on_model.plan.never.reason)
        plan = on_model.plan
        device_hints = on_model.numa_hints(plan.state(place.headrooms(plan)))
        if isinstance(device_hints, DeviceShortage):
            return Refusal(device_hints.reason)
        hints = [
            TopologyHint(mask_of(each.nodes), each.preferred, each.score) for each in device_hints
        ]
        return {str(part.kind): hints for part in plan.early} if hints else {}

    # -- devices -------------------------------------------------------------------------------

    def reserve(
        self, node: Snapshot, pod: PodClass, preference: IntArray | None
    ) -> AllocationResult | Refusal:
        """Allocate devices: those held for the pod, then GPUs in the order of ``preference``.

        The preference is ignored for GPUs if the pod has held ones.
        """
        entry, row = self.templates.pod_request(node, pod), int(node.row_numbers[0])
        report, served = node.devices.reports.get(row), self._served(node, pod)
        if not isinstance(entry, RequestEntry) or report is None:
            return NOTHING
        if served is not None and served[0]:
            return NOTHING
        zones = 0
        if self.aligner is not None and self.aligns and self.aligner.aligns(node, pod):
            zones = self.aligner.numa_nodes_at(node, pod)
        place, first = DeviceRow.of(node), _first(node)
        if preference is None or DeviceType.GPU in first:
            allocation = known_allocation(place, entry, self.scorer, zones, first)
        else:
            allocation = allocation_of(
                place, entry, self.scorer, zones, first, ranked=set(), preference=preference
            )
        if isinstance(allocation, DeviceShortage):
            return Refusal(allocation.reason, resolvable=allocation.resolvable)
        annotations = annotation_entry(allocation, report.ids)
        result = AllocationResult(PodAllocation(allocation, annotations=annotations), annotations)
        if DEVICE_PLUGIN_ADAPTION in self.gates:
            marked = marks(node, pod, to_annotation(allocation, report.ids))
            if isinstance(marked, Refusal):
                return marked
            result = result.joined(marked)
        if RESIZE_POD in self.gates and RESERVE_POD in pod.annotations:
            amounts = resized(pod, to_annotation(allocation, report.ids))
            if isinstance(amounts, Refusal):
                return amounts
            result = result.joined(AllocationResult(annotations=amounts))
        return result


def _first(node: Snapshot) -> First:
    """Return the devices held for the pod, which it takes before others."""
    bits_of: dict[DeviceType, frozenset[int]] = {}
    for hold in node.restored:
        for kind, devices in hold.left.devices.items():
            minors = frozenset(device.minor for device in devices)
            bits_of[kind] = bits_of.get(kind, frozenset()) | minors
    return bits_of


def _key(pod: PodClass) -> Hashable:
    """Return the part of a pod class that the plugin reads."""
    annotations = frozenset(pod.annotations.items()) if pod.annotations else None
    labels = tuple(pod.labels.get(name) for name in _LABELS)
    return pod.demand, annotations, labels, pod.spec.priority, pod.served


def build(args: DeviceShareArgs, _axis: ResourceAxis) -> DeviceShare:
    strategy, shared = args.scoring_strategy, args.gpu_shared_resource_templates_config
    return DeviceShare(
        scorer_of(
            {resource.name: resource.weight for resource in strategy.resources},
            most_allocated=strategy.type == "MostAllocated",
        ),
        Templates(
            f"{shared.config_map_namespace}/{shared.config_map_name}", shared.matched_resources
        ),
        frozenset((each.vendor, each.model) for each in args.gpu_share_unsupported_models),
        aligns=not args.disable_device_numa_topology_alignment,
    )


PLUGIN = PluginSpec(
    "DeviceShare",
    DeviceShareArgs,
    build,
    events=(
        EventHint("AssignedPod", Action.DELETE),
        EventHint("Device", Action.ADD | Action.UPDATE | Action.DELETE),
        EventHint("Node", Action.ADD | Action.UPDATE_LABELS),
        EventHint("ConfigMap", Action.ADD | Action.UPDATE | Action.DELETE),
        EventHint("ResourceClaim", Action.UPDATE | Action.DELETE, on_claimed_gpus),
    ),
)
