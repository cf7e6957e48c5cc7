"""NUMA and CPU requirements of pods."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import field

import numpy as np

from koordinator.api.annotations.numa import (
    NUMA_TOPOLOGY_SPEC,
    RESOURCE_SPEC,
    CpuBindPolicy,
    CpuBindSpec,
    NumaTopologyPolicy,
    NumaTopologySpec,
)
from koordinator.api.labels import POD_PRIORITY_CLASS
from koordinator.api.meta import ObjectMeta
from koordinator.api.pod import PodSpec
from koordinator.api.qos import (
    PriorityBand,
    band_named,
    band_of_priority,
    band_of_qos,
    labelled_qos,
)
from koordinator.api.resource_names import CPU
from koordinator.foundation.arrays import IntArray
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.quantity import Notation
from koordinator.scheduler.contract import (
    AllocationResult,
    Refusal,
)
from koordinator.scheduler.rules.cpus.binding import (
    CpuBinding,
    FractionalCpuError,
    binding_on,
    pod_binding,
)
from koordinator.scheduler.rules.numa.align import pod_exclusive, pod_policy, policy_on
from koordinator.scheduler.rules.numa.align_kernel import KernelRequest, kernel_request
from koordinator.scheduler.rules.numa.node import NumaRequest
from koordinator.scheduler.rules.numa.rows import NumaRows
from koordinator.scheduler.rules.numa.zone_scorer import ALWAYS_SCORED, ZoneScorer
from koordinator.scheduler.rules.usage_kernels import MeanShare
from koordinator.scheduler.snapshot import PodClass, Snapshot
from koordinator.scheduler.snapshot.numa import BIND_POLICIES, POLICIES, SharedNumaTraits

PODS = "pods"


class KnownZones:
    """Cached alignment of a kind of pods, by row."""

    def __init__(self) -> None:
        self._version: object = None
        self._zones = np.zeros(0, np.int64)  # (capacity,); -1: no placement
        self._since = np.zeros(0, np.int64)  # (capacity,): log position of the result

    def put(self, view: Snapshot, version: object, zones: IntArray) -> None:
        """Store the masks of NUMA nodes of the rows of a view, -1 for no placement."""
        capacity = len(view.numa.policy)
        if version != self._version or capacity != len(self._zones):
            self._version = version
            self._zones, self._since = np.zeros(capacity, np.int64), np.full(capacity, -1)
        rows = view.row_numbers
        self._zones[rows] = zones
        self._since[rows] = view.position

    def at(self, view: Snapshot, version: object, row: int) -> int | None:
        """Return the NUMA nodes on a row of the cluster; None if unknown or without placement."""
        if version != self._version or row >= len(self._zones):
            return None
        zones = int(self._zones[row])
        return zones if zones >= 0 and self._since[row] >= view.changed_at(row) else None


@dataclass(slots=True, eq=False)
class NumaRequirements:
    """Requirements of a class of pods; ``amounts`` are canonical and above 0."""

    amounts: Mapping[str, int]
    spec: CpuBindSpec
    own: CpuBinding | None  # CPU binding that the pod requests itself
    policy: NumaTopologyPolicy
    exclusive: str  # a NumaTopologyExclusive
    notations: Mapping[str, Notation]  # for printing the amounts
    #: NUMA nodes of its pods by row, from the last comparison
    known_zones: KnownZones = field(default_factory=KnownZones)
    #: allocations by NUMA nodes, bind policy of the node and state of the row
    allocations: dict[Hashable, AllocationResult] = field(default_factory=dict)
    _formula: tuple[int, MeanShare] | None = None
    _prepared: dict[tuple[object, ...], KernelRequest] = field(default_factory=dict)
    _requests: dict[CpuBindPolicy | None, NumaRequest | None] = field(default_factory=dict)
    #: result of ``suits_all`` for the last survey of the nodes
    _suits: tuple[SharedNumaTraits | None, bool] = (None, False)

    @property
    def cpu_milli(self) -> int:
        return self.amounts.get(CPU, 0)

    def request(self, node_policy: CpuBindPolicy | None) -> NumaRequest | None:
        """Return the request on nodes with a bind policy (None: as the pod prefers).

        Return None if the pod must not request a part of a CPU there.
        """
        if node_policy not in self._requests:
            try:
                binding = binding_on(node_policy, self.own, self.cpu_milli)
            except FractionalCpuError:
                self._requests[node_policy] = None
            else:
                self._requests[node_policy] = NumaRequest(self.amounts, binding)
        return self._requests[node_policy]

    def formula(self, resources: Sequence[str], scorer: ZoneScorer) -> MeanShare:
        """Return the scoring formula of a whole node."""
        if self._formula is None or self._formula[0] != len(resources):
            parts = [
                (resources.index(name), self.amounts.get(name, 0), weight)
                for name, weight in scorer.weights.items()
                if name in resources and (self.amounts.get(name) or name in ALWAYS_SCORED)
            ]
            columns, amounts, weights = (
                np.array([part[place] for part in parts], np.int64) for place in range(3)
            )
            mean = MeanShare(columns, amounts, weights, most=scorer.pack, nonzero=False)
            self._formula = (len(resources), mean)
        return self._formula[1]

    def prepared(
        self,
        rows: NumaRows,
        request: NumaRequest,
        policy: NumaTopologyPolicy,
        scorers: tuple[ZoneScorer, ZoneScorer],
    ) -> KernelRequest:
        """Return the request as input of the compiled kernel."""
        key = (request.required_policy, policy, rows.resources, rows.exists.shape[1], id(request))
        known = self._prepared.get(key)
        if known is None:
            known = kernel_request(rows, request, policy, scorers, self.exclusive)
            self._prepared[key] = known
        return known

    def suits_all(self, survey: SharedNumaTraits) -> bool:
        """Return whether every node accepts the pod's CPU binding and NUMA policy."""
        if self._suits[0] is not survey:
            self._suits = (survey, self._suits_all(survey))
        return self._suits[1]

    def _suits_all(self, survey: SharedNumaTraits) -> bool:
        _, _, amplified = survey.traits
        if survey.alike is None or amplified:
            return False
        bind, policy = BIND_POLICIES[survey.alike[0]], POLICIES[survey.alike[1]]
        request = self.request(bind)
        if request is None or policy_on(policy, self.policy) is None:
            return False
        binding = request.binding
        return binding is None or (
            survey.laid_out and not binding.required and bind in {None, binding.policy}
        )


def needs_of(
    snapshot: Snapshot, pod: PodClass, default_policy: str
) -> NumaRequirements | Refusal | None:
    """Return the requirements of the pod, None without requests, or why they are invalid."""
    try:
        return _read_needs(snapshot, pod, default_policy)
    except (InputError, FractionalCpuError) as error:
        return Refusal(str(error))


def _read_needs(snapshot: Snapshot, pod: PodClass, default_policy: str) -> NumaRequirements | None:
    meta = ObjectMeta(labels=dict(pod.labels), annotations=dict(pod.annotations))
    spec = RESOURCE_SPEC.read(meta) or CpuBindSpec()
    topology = NUMA_TOPOLOGY_SPEC.read(meta) or NumaTopologySpec()
    policy = pod_policy(topology)
    names = snapshot.resources
    amounts = {names[column]: amount for column, amount in pod.demand if names[column] != PODS}
    if not amounts:
        return None
    qos = labelled_qos(pod.labels)
    label = pod.labels.get(POD_PRIORITY_CLASS)
    band = band_named(label) if label is not None else band_of_priority(pod.spec.priority)
    if band is PriorityBand.NONE:
        band = band_of_qos(qos)
    return NumaRequirements(
        amounts=amounts,
        spec=spec,
        own=pod_binding(spec, qos, band, amounts.get(CPU, 0), default_policy),
        policy=policy,
        exclusive=pod_exclusive(topology),
        notations=_notations(pod.spec),
    )


def _notations(spec: PodSpec) -> dict[str, Notation]:
    """Return per resource the notation of the first container that requests it."""
    notations: dict[str, Notation] = {}
    for container in (*spec.containers, *spec.init_containers):
        for name, quantity in (container.resources.requests or {}).items():
            notations.setdefault(name, quantity.notation)
    return notations
