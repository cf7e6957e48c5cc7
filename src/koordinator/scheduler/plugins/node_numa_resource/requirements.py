"""What a pod wants of NUMA nodes and CPUs."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

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
from koordinator.foundation.errors import InputError
from koordinator.foundation.quantity import Notation
from koordinator.scheduler.contract import (
    AllocationResult,
    Refusal,
)
from koordinator.scheduler.plugins.node_numa_resource.known_zones import KnownZones
from koordinator.scheduler.rules.cpus.binding import (
    CpuBinding,
    FractionalCpuError,
    binding_on,
    pod_binding,
)
from koordinator.scheduler.rules.numa.align_kernel import KernelRequest, kernel_request
from koordinator.scheduler.rules.numa.policy import pod_exclusive, pod_policy, policy_on
from koordinator.scheduler.rules.numa.request import NumaRequest
from koordinator.scheduler.rules.numa.rows import NumaRows
from koordinator.scheduler.rules.numa.zone_scorer import ALWAYS_SCORED, ZoneScorer
from koordinator.scheduler.rules.usage_kernels import MeanShare
from koordinator.scheduler.snapshot import PodClass, Snapshot
from koordinator.scheduler.snapshot.numa import BIND_POLICIES, POLICIES, Survey

PODS = "pods"


@dataclass(slots=True, eq=False)
class NumaRequirements:
    """The wishes of a class of pods; ``amounts`` are canonical and above 0."""

    amounts: Mapping[str, int]
    spec: CpuBindSpec
    own: CpuBinding | None  # the CPUs that the pod asks for itself
    policy: NumaTopologyPolicy
    exclusive: str  # a NumaTopologyExclusive
    notations: Mapping[str, Notation]  # in which the pod's requests are printed
    #: where its pods went, or would have gone
    known_zones: KnownZones = field(default_factory=KnownZones)
    #: what its pods take, by NUMA nodes, how nodes bind CPUs and in which state they are
    held: dict[Hashable, AllocationResult] = field(default_factory=dict)
    _formula: tuple[int, MeanShare] | None = None
    _prepared: dict[tuple[object, ...], KernelRequest] = field(default_factory=dict)
    _requests: dict[CpuBindPolicy | None, NumaRequest | None] = field(default_factory=dict)
    #: for the last survey of the nodes, see ``suits_all``
    _suits: tuple[Survey | None, bool] = (None, False)

    @property
    def cpu_milli(self) -> int:
        return self.amounts.get(CPU, 0)

    def request(self, node_policy: CpuBindPolicy | None) -> NumaRequest | None:
        """Return the request on nodes that bind CPUs by that policy (None: as pods like).

        None: there the pod must not ask for a part of a CPU.
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
        """Return how a whole node is scored."""
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
        """Return a request in the terms of the compiled loop."""
        key = (request.required_policy, policy, rows.resources, rows.exists.shape[1], id(request))
        known = self._prepared.get(key)
        if known is None:
            known = kernel_request(rows, request, policy, scorers, self.exclusive)
            self._prepared[key] = known
        return known

    def suits_all(self, survey: Survey) -> bool:
        """Return whether no node ever refuses the pod for how it binds CPUs, or for its policy."""
        if self._suits[0] is not survey:
            self._suits = (survey, self._suits_all(survey))
        return self._suits[1]

    def _suits_all(self, survey: Survey) -> bool:
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


def asked_of(
    snapshot: Snapshot, pod: PodClass, default_policy: str
) -> NumaRequirements | Refusal | None:
    """Return what the pod wants: None if it asks for nothing; a refusal if that can't be."""
    try:
        return _asked_of(snapshot, pod, default_policy)
    except (InputError, FractionalCpuError) as error:
        return Refusal(str(error))


def _asked_of(snapshot: Snapshot, pod: PodClass, default_policy: str) -> NumaRequirements | None:
    meta = ObjectMeta(labels=dict(pod.labels), annotations=dict(pod.annotations))
    spec = RESOURCE_SPEC.read(meta) or CpuBindSpec()
    wishes = NUMA_TOPOLOGY_SPEC.read(meta) or NumaTopologySpec()
    policy = pod_policy(wishes)
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
        exclusive=pod_exclusive(wishes),
        notations=_notations(pod.spec),
    )


def _notations(spec: PodSpec) -> dict[str, Notation]:
    """Return the notation of the first container that asks for each resource."""
    found: dict[str, Notation] = {}
    for container in (*spec.containers, *spec.init_containers):
        for name, quantity in (container.resources.requests or {}).items():
            found.setdefault(name, quantity.notation)
    return found
