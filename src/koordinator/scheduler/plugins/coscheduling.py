"""Gangs, pods that start together or not at all: of Koordinator's PodGroups and of Kubernetes' own.

The ``GangCache`` holds the state of all gangs and every rule about them; the loop keeps it current
and decides the members of a gang together, so two gangs cannot hold places that both need.

Coscheduling handles the gangs of Kubernetes, too, so a profile that has it omits GangScheduling.

Source: koordinator pkg/scheduler/plugins/coscheduling/coscheduling.go, core/core.go; kubernetes
pkg/scheduler/framework/plugins/gangscheduling, ``permitTimeoutDuration``.
"""

from collections import Counter
from dataclasses import replace
from typing import ClassVar, Final

import numpy as np

from koordinator.api.annotations.gang import NETWORK_TOPOLOGY_SELECTOR, bind_gang_entries
from koordinator.api.cluster_network_topology import ClusterNetworkTopology
from koordinator.api.kubescheduler import CoschedulingArgs, FeatureGates
from koordinator.api.kubescheduler.gates import (
    COMPOSITE_POD_GROUPS,
    GANG_PENDING_PODS_CONDITION,
    GANG_SCHEDULING,
)
from koordinator.api.meta import KubeObject, ObjectMeta
from koordinator.api.pod import Pod
from koordinator.domain.gangs import (
    GangCache,
    GangDefaults,
    WorkloadRefs,
    gang_id,
    group_reference,
)
from koordinator.domain.network import OUTSIDE, GatherRules, OfferSlots, Planner
from koordinator.foundation.arrays import IntArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.memo import Memo
from koordinator.scheduler.contract import (
    MAX_SCORE,
    Action,
    ClusterEvent,
    EventHint,
    NoArgs,
    Permit,
    PluginExample,
    PluginHints,
    PluginSpec,
    QueueingHint,
    Reads,
    Refusal,
)
from koordinator.scheduler.post_filter import Attempt, PostFilterResult
from koordinator.scheduler.preemption.single_node import (
    NEVER,
    headroom_for_job,
    headroom_for_pod,
    summary,
)
from koordinator.scheduler.snapshot import ObjectTable, PodClass, ResourceAxis, Snapshot

_APPLIES: Memo[bool] = Memo()

WAIT_S: Final = 300.0  # how long members with a node wait for the others


def gang_gate(gangs: GangCache, pod: Pod) -> Refusal | None:
    """Return reason the gang must wait or which member represents it; None if the pod may enter."""
    reason = gangs.why_gated(pod) if gangs.id_of(pod) else ""
    return Refusal(reason) if reason else None


def gang_permit(gangs: GangCache, pod: Pod) -> Permit:
    """Allow pods outside gangs, and members once enough members of their gang have nodes."""
    if not gangs.id_of(pod):
        return Permit()
    gang = gangs.gang_of(pod)
    if gang is None or gang.terms is None:
        return Permit(refusal=Refusal("Gang not found"))
    return Permit() if gangs.may_start(pod) else Permit(wait_s=gang.terms.wait_s)


@dataclass(frozen=True, slots=True)
class GangScheduling:
    """Gate for members of gangs until there are enough of them, and joint permit."""

    gangs: GangCache

    def with_gates(self, gates: FeatureGates) -> "GangScheduling":
        """Return the plugin with the gang features of the release."""
        trees = COMPOSITE_POD_GROUPS in gates
        defaults = replace(self.gangs.defaults, level=gates.level, trees=trees)
        return replace(self, gangs=GangCache(defaults))

    def pre_enqueue(self, pod: Pod, _objects: ObjectTable) -> Refusal | None:
        """Return why the gang waits or which member represents it; None if the pod may enter."""
        return gang_gate(self.gangs, pod)

    def permit(self, pod: Pod, _node: str) -> Permit:
        """Allow the pod once enough members of its gang have nodes; until then wait."""
        return gang_permit(self.gangs, pod)


def build_gang_scheduling(_args: NoArgs, _axis: ResourceAxis) -> GangScheduling:
    return GangScheduling(GangCache(GangDefaults(WAIT_S, refs=WorkloadRefs.ONLY)))


GANG_SCHEDULING_PLUGIN = PluginSpec("GangScheduling", NoArgs, build_gang_scheduling)


def _applies(pod: PodClass) -> bool:
    labels, annotations = dict(pod.labels), dict(pod.annotations)
    meta = ObjectMeta(namespace=pod.namespace, labels=labels, annotations=annotations)
    return bool(gang_id(meta, group_reference(pod.spec))) or bool(selector_of(pod))


@dataclass(frozen=True, slots=True)
class Coscheduling:
    """Gate for members until there are enough, and permit once enough have nodes."""

    gangs: GangCache
    preempts: bool = False
    reads: ClassVar = Reads.CLUSTER  # of the score
    hints: ClassVar = PluginHints(
        scores=lambda snapshot, pod: bool(selector_of(pod)) and snapshot.network.tree is not None
    )

    def with_gates(self, gates: FeatureGates) -> "Coscheduling":
        """Return the plugin with the gang features of the feature gates."""
        defaults = replace(
            self.gangs.defaults, notifies_all_members=GANG_PENDING_PODS_CONDITION in gates
        )
        if GANG_SCHEDULING in gates:
            trees = COMPOSITE_POD_GROUPS in gates
            defaults = replace(defaults, refs=WorkloadRefs.FIRST, level=gates.level, trees=trees)
        return replace(self, gangs=GangCache(defaults))

    def applies(self, pod: PodClass) -> bool:
        """Return whether the pod is in a gang or selects pods to be near to."""
        return _APPLIES.of(pod, _applies, pod)

    def pre_enqueue(self, pod: Pod, _objects: ObjectTable) -> Refusal | None:
        """Return why the gang waits or which member represents it; None if the pod may enter."""
        return gang_gate(self.gangs, pod)

    def score_among(self, snapshot: Snapshot, pod: PodClass, feasible: IntArray) -> IntArray:
        """Return the rank of each feasible node by network distance, nearest first."""
        return places_by_distance(snapshot, pod, feasible)

    def normalize(self, raw: IntArray) -> IntArray:
        """Return 100 for the nearest node, 0 for the farthest."""
        farthest = int(raw.max(initial=0))
        return MAX_SCORE - (raw * MAX_SCORE // farthest if farthest else raw)

    def permit(self, pod: Pod, _node: str) -> Permit:
        """Allow the pod once enough members of every gang of its group have nodes."""
        permit = gang_permit(self.gangs, pod)
        gang = self.gangs.gang_of(pod)
        if permit != Permit() or gang is None or gang.terms is None or not gang.terms.min_member:
            return permit
        count = self.gangs.bound_together(pod)
        if count <= 1:
            return permit
        return Permit(annotations=bind_gang_entries(gang.terms.group_id, count))

    def postfilter(self, attempt: Attempt) -> PostFilterResult:
        """Preempt for a gang, or for a pod as a job of one; victims are whole jobs, too."""
        if not self.preempts:
            return PostFilterResult()
        members = attempt.members or ((attempt.pod, attempt.pod_class),)
        result = (
            headroom_for_job(attempt, members) if attempt.members else headroom_for_pod(attempt)
        )
        is_final = result.places or result.node or result.keeps_nomination
        if is_final or attempt.rows is not None or NEVER in result.message:
            return result
        return replace(result, message=self.job_refusal(attempt, result.message))

    def job_refusal(self, attempt: Attempt, ours: str) -> str:
        """Return why preemption for a job fails: the original's summary, then our own message."""
        members = attempt.members or ((attempt.pod, attempt.pod_class),)
        reasons = attempt.what_if.job_reasons(members) if self.preempts else {}
        if not reasons:
            return ours
        text = f"preemption: {summary(len(attempt.rejected), Counter(reasons))}"
        return f"{text} {ours.removeprefix('preemption: ')}".rstrip()


def selector_of(pod: PodClass) -> str:
    """Return the value of the annotation; empty without it."""
    return pod.annotations.get(NETWORK_TOPOLOGY_SELECTOR, "")


def places_by_distance(snapshot: Snapshot, pod: PodClass, feasible: IntArray) -> IntArray:
    """Return the rank of each feasible row, ``(k,)``, nearest 0; all 0 without a topology.

    Level by level from the node up, the domain with more selected pods ranks first; then the one
    with fewer feasible nodes; then the lower name.
    """
    tree = snapshot.network.tree
    places = np.zeros(len(feasible), np.int64)
    if tree is None:
        return places
    count, selector = len(snapshot.cluster), selector_of(pod)
    slots, near = np.zeros(count, np.int64), np.zeros(count, np.int64)
    slots[feasible] = 1
    for placed in snapshot.pods.values():
        if selector_of(placed.pod_class) == selector:
            near[placed.row] += 1
    nothing = np.zeros(count, np.int64)
    planner = Planner(tree, GatherRules(), OfferSlots(slots, nothing, nothing, near, nothing))
    inside = tree.domains(count)[0, feasible] != OUTSIDE
    ordered = planner.ordered(tree.depth, feasible[inside])
    rank = np.full(count, len(ordered), np.int64)
    rank[ordered] = np.arange(len(ordered))
    return rank[feasible]


def build(args: CoschedulingArgs, _axis: ResourceAxis) -> Coscheduling:
    wait_s = args.default_timeout.total_seconds()
    defaults = GangDefaults(wait_s, args.default_match_policy, args.aware_network_topology)
    return Coscheduling(GangCache(defaults), args.enable_preemption)


def _on_network_topology(_pod: KubeObject, event: ClusterEvent) -> QueueingHint:
    """Queue if the spec of the network topology changed, not only its status."""
    old, new = event.old, event.new
    if not isinstance(old, ClusterNetworkTopology) or not isinstance(new, ClusterNetworkTopology):
        return QueueingHint.QUEUE
    return QueueingHint.SKIP if old.spec == new.spec else QueueingHint.QUEUE


EXAMPLE = PluginExample(
    pods=({}, {"metadata": {"annotations": {NETWORK_TOPOLOGY_SELECTOR: "elastic"}}}),
    objects=(
        {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "ClusterNetworkTopology",
            "metadata": {"name": "default"},
            "spec": {
                "networkTopologySpec": [
                    {
                        "topologyLayer": "ZoneLayer",
                        "labelKey": ["topology.kubernetes.io/zone"],
                    },
                    {"topologyLayer": "NodeTopologyLayer", "parentTopologyLayer": "ZoneLayer"},
                ]
            },
        },
    ),
)

PLUGIN = PluginSpec(
    "Coscheduling",
    CoschedulingArgs,
    build,
    events=(
        EventHint("Node", Action.ADD | Action.UPDATE_LABELS),
        EventHint("ClusterNetworkTopology", Action.ALL, _on_network_topology),
    ),
    example=EXAMPLE,
)
