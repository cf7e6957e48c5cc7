"""Topology spread constraints over zones, hosts or racks.

Source: kubernetes pkg/scheduler/framework/plugins/podtopologyspread: common.go, filtering.go,
scoring.go, plugin.go.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np
from msgspec.structs import replace

from koordinator.api.core import Service, TopologySpreadConstraint
from koordinator.api.kubescheduler import PodTopologySpreadArgs
from koordinator.api.labels import HOSTNAME, ZONE
from koordinator.api.meta import LabelSelector, LabelSelectorRequirement
from koordinator.api.pod import Pod
from koordinator.api.selectors import matches
from koordinator.api.workload import ReplicaSet, ReplicationController, StatefulSet
from koordinator.domain.node_selection import FORBIDDING, untolerated
from koordinator.domain.pod_affinity import PodScope, narrowed
from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.memo import Memo
from koordinator.scheduler.contract import (
    MAX_SCORE,
    Action,
    EventHint,
    PluginHints,
    PluginSpec,
    Reads,
    Rejections,
)
from koordinator.scheduler.diagnosis import missing_label
from koordinator.scheduler.rules.topology_domains import crowding, domain_sums
from koordinator.scheduler.snapshot import PodClass, ResourceAxis, Snapshot
from koordinator.scheduler.snapshot.nodes import LabelIds
from koordinator.scheduler.snapshot.objects import ObjectTable
from koordinator.scheduler.snapshot.selection import matches_required

REASON = "node(s) didn't match pod topology spread constraints"
REASON_LABEL = f"{REASON} (missing required label)"
HARD, SOFT = "DoNotSchedule", "ScheduleAnyway"
NO_MINIMUM = 2**31 - 1  # minimum over no domains
IGNORED = -1  # raw score of a node that lacks a topology key

SYSTEM_DEFAULTS = (
    TopologySpreadConstraint(max_skew=3, topology_key=HOSTNAME, when_unsatisfiable=SOFT),
    TopologySpreadConstraint(max_skew=5, topology_key=ZONE, when_unsatisfiable=SOFT),
)
_Workload = ReplicationController | ReplicaSet | StatefulSet
_WORKLOADS: Mapping[str, type[_Workload]] = {
    "ReplicationController": ReplicationController,
    "ReplicaSet": ReplicaSet,
    "StatefulSet": StatefulSet,
}

_OWNERS_SELECTOR: Memo[LabelSelector | None] = Memo()


@dataclass(frozen=True, slots=True)
class Constraint:
    """Spread constraint with its selector resolved for the pod."""

    key: str
    max_skew: int
    min_domains: int
    scope: PodScope
    matches_self: bool
    honor_affinity: bool
    honor_taints: bool


_OWN: Memo[dict[str, tuple[Constraint, ...]]] = Memo()


@dataclass(frozen=True, slots=True, eq=False)
class PodTopologySpread:
    """Filter by hard constraints, score by soft ones.

    The profile's defaults apply to pods without constraints.
    """

    defaults: Mapping[str, Sequence[TopologySpreadConstraint]]  # by whenUnsatisfiable
    system_defaults: bool
    reads: ClassVar = Reads.CLUSTER

    def applies(self, pod: PodClass) -> bool:
        return bool(self.defaults or pod.spec.topology_spread_constraints)

    @property
    def hints(self) -> PluginHints:
        return PluginHints(
            concerns=lambda snapshot, pod: bool(
                pod.spec.topology_spread_constraints or snapshot.has_pod_owners
            ),
            filters=lambda snapshot, pod: bool(self._constraints(snapshot, pod, HARD)),
            scores=lambda snapshot, pod: bool(self._constraints(snapshot, pod, SOFT)),
        )

    # -- filter ------------------------------------------------------------------------------

    def filter(self, snapshot: Snapshot, pod: PodClass) -> Rejections:
        """Reject nodes that would exceed a constraint's maximum skew or lack its key."""
        cluster = snapshot.cluster
        constraints = self._constraints(cluster, pod, HARD)
        labelled = _has_all_keys(cluster, constraints)
        missing = np.zeros(len(cluster), bool)
        skewed = np.zeros(len(cluster), bool)
        for constraint in constraints:
            domains = cluster.label(constraint.key)[0]
            counts, minimum, _ = _spread(cluster, pod, constraint, labelled)
            crowded = counts + constraint.matches_self - minimum > constraint.max_skew
            crowded[-1] = False  # nodes without the label
            skewed |= crowded[domains] & ~missing
            missing |= (domains < 0) & ~skewed
        codes = missing.astype(np.int64) | np.left_shift(skewed, 1, dtype=np.int64)
        rejections = Rejections(codes, (REASON_LABEL, REASON), missing)
        return _of_rows(rejections, snapshot)

    def detail(self, view: Snapshot, pod: PodClass) -> str:
        """Return per broken constraint the pods in this domain and in the emptiest one."""
        return "; ".join(
            f"{one.key}={value} has {count} "
            f"{one.scope.phrase('pod' if count == 1 else 'pods', pod.namespace)}, {others}, "
            f"maxSkew is {one.max_skew}"
            if value
            else missing_label(one.key, view.label_keys)
            for one, value, count, others in self._broken(view, pod)
        )

    def pod_remedies(self, view: Snapshot, pod: PodClass, it: Pod) -> list[tuple[str, Pod]]:
        """Return the pod with the broken constraints made soft."""
        keys = {one.key for one, *_ in self._broken(view, pod)}
        own = it.spec.topology_spread_constraints
        if not keys & {one.topology_key for one in own}:
            return []  # the constraints come from the configuration
        changed = tuple(
            replace(one, when_unsatisfiable=SOFT) if one.topology_key in keys else one
            for one in own
        )
        spec = replace(it.spec, topology_spread_constraints=changed)
        listed = " and ".join(sorted(keys))
        text = f"set whenUnsatisfiable of its topologySpreadConstraint on {listed} to {SOFT}"
        return [(text, replace(it, spec=spec))]

    def is_blocked_cluster_wide(self, view: Snapshot, pod: PodClass) -> bool:
        return any(one.key != HOSTNAME for one, *_ in self._broken(view, pod))

    def _broken(self, view: Snapshot, pod: PodClass) -> Iterator[tuple[Constraint, str, int, str]]:
        """Yield each constraint that rejects a node: domain, pods in it, text on other domains.

        The domain is empty if the node lacks the label.
        """
        cluster = view.cluster
        constraints = self._constraints(cluster, pod, HARD)
        labelled = _has_all_keys(cluster, constraints)
        for constraint in constraints:
            domains, values = view.label(constraint.key)
            domain = int(domains[0])
            if domain < 0:
                yield constraint, "", 0, ""
                continue
            counts, minimum, size = _spread(cluster, pod, constraint, labelled)
            count = int(counts[domain])
            if count + constraint.matches_self - minimum > constraint.max_skew:
                few = size < constraint.min_domains
                others = f"there are {size} domains where minDomains is {constraint.min_domains}"
                others = others if few else f"another domain {minimum}"
                yield constraint, values[domain], count, others

    # -- score -------------------------------------------------------------------------------

    def score_among(self, snapshot: Snapshot, pod: PodClass, feasible: IntArray) -> IntArray:
        """Return ``(k,)``: the crowding of each feasible node's domains.

        IGNORED where a key is missing.  The pods of a domain weigh ln(domains + 2), counting only
        the domains of feasible nodes.
        """
        constraints = self._constraints(snapshot, pod, SOFT)
        all_keys = not self.system_defaults or bool(pod.spec.topology_spread_constraints)
        labelled = _has_all_keys(snapshot, constraints)
        considered = labelled[feasible] if all_keys else np.ones(len(feasible), bool)
        total = np.zeros(len(feasible))
        for constraint in constraints:
            domains, values = snapshot.label(constraint.key)
            feasible_domains = domains[feasible]
            pods = snapshot.count_pods(constraint.scope, terminating=False)
            if constraint.key == HOSTNAME:
                size = int(np.count_nonzero(considered))
                counts = pods[feasible]
            else:
                counted = snapshot.alive & _eligible(snapshot, pod, constraint)
                if all_keys:
                    counted = counted & labelled
                kernel = crowding.compiled if snapshot.uses_kernels else crowding.reference
                counts, size = kernel(domains, len(values), pods, counted, feasible, considered)
            crowd = counts * math.log(size + 2) + (constraint.max_skew - 1)
            total += (
                crowd
                if (feasible_domains >= 0).all()
                else np.where(feasible_domains >= 0, crowd, 0.0)
            )
        rounded = np.floor(total + 0.5).astype(np.int64)  # all positive: Go's math.Round
        return np.where(considered, rounded, IGNORED)

    def normalize(self, raw: IntArray) -> IntArray:
        """Map crowding to 0..MAX_SCORE, least crowded highest; ignored nodes get 0."""
        counted = raw != IGNORED
        if not counted.any():
            return np.zeros_like(raw)
        scored = raw if counted.all() else raw[counted]
        low, high = int(scored.min()), int(scored.max())
        if high == 0:
            return np.where(counted, MAX_SCORE, 0)
        return np.where(counted, MAX_SCORE * (high + low - raw) // high, 0)

    # -- constraints -------------------------------------------------------------------------

    def _constraints(self, snapshot: Snapshot, pod: PodClass, mode: str) -> tuple[Constraint, ...]:
        own = pod.spec.topology_spread_constraints
        if own:
            return _OWN.of(pod, _own_constraints, pod)[mode]
        defaults = self.defaults.get(mode)
        selector = _owners_selector(snapshot, pod) if defaults else None
        if not defaults or selector is None:
            return ()
        return tuple(_resolved(c, selector, pod) for c in defaults)


def _own_constraints(pod: PodClass) -> dict[str, tuple[Constraint, ...]]:
    """Return the pod's constraints by ``whenUnsatisfiable``."""
    own = pod.spec.topology_spread_constraints
    return {
        mode: tuple(_own(c, pod) for c in own if c.when_unsatisfiable == mode)
        for mode in (HARD, SOFT)
    }


def _own(constraint: TopologySpreadConstraint, pod: PodClass) -> Constraint:
    selector = narrowed(constraint.label_selector, pod.labels, constraint.match_label_keys)
    return _resolved(constraint, selector, pod)


def _resolved(
    constraint: TopologySpreadConstraint, selector: LabelSelector | None, pod: PodClass
) -> Constraint:
    return Constraint(
        key=constraint.topology_key,
        max_skew=constraint.max_skew,
        min_domains=constraint.min_domains or 1,
        scope=PodScope(frozenset((pod.namespace,)), None, selector),
        matches_self=matches(selector, pod.labels),
        honor_affinity=(constraint.node_affinity_policy or "Honor") == "Honor",
        honor_taints=constraint.node_taints_policy == "Honor",
    )


def _owners_selector(snapshot: Snapshot, pod: PodClass) -> LabelSelector | None:
    """Return a selector joined from the pod's services and its controller.

    Return None if none of them selects anything.

    Source: pkg/scheduler/framework/plugins/helper/spread.go ``DefaultSelector``.
    """
    objects = snapshot.objects
    version = objects.version(Service, ReplicationController, ReplicaSet, StatefulSet)
    return _OWNERS_SELECTOR.as_of(pod, version, _find_owners_selector, objects, pod)


def _find_owners_selector(objects: ObjectTable, pod: PodClass) -> LabelSelector | None:
    labels: dict[str, str] = {}
    for service in objects.all(Service):
        chosen = service.spec.selector
        same_namespace = service.metadata.namespace == pod.namespace
        if same_namespace and chosen and chosen.items() <= pod.labels.items():
            labels |= chosen
    more: tuple[LabelSelectorRequirement, ...] = ()
    kind = _WORKLOADS.get(pod.owner_kind)
    owner = objects.get(kind, f"{pod.namespace}/{pod.owner_name}") if kind else None
    if isinstance(owner, ReplicationController):
        labels |= owner.spec.selector
    elif owner is not None and owner.spec.selector is not None:
        labels |= owner.spec.selector.match_labels
        more = owner.spec.selector.match_expressions
    if not labels and not more:
        return None
    return LabelSelector(match_labels=labels, match_expressions=more)


def _spread(
    cluster: Snapshot, pod: PodClass, constraint: Constraint, labelled: BoolArray
) -> tuple[IntArray, int, int]:
    """Return counted pods by domain, the minimum for the skew, and the number of domains."""
    domains, values = cluster.label(constraint.key)
    counted = cluster.alive & labelled & _eligible(cluster, pod, constraint)
    pods = cluster.count_pods(constraint.scope, terminating=False)
    counts, present = _sums(cluster, domains, len(values), pods, counted)
    minimum = int(counts[present].min()) if present.any() else NO_MINIMUM
    size = int(np.count_nonzero(present))
    return counts, 0 if size < constraint.min_domains else minimum, size


def _has_all_keys(snapshot: Snapshot, constraints: tuple[Constraint, ...]) -> BoolArray:
    mask = np.ones(len(snapshot), bool)
    for constraint in constraints:
        mask &= snapshot.label(constraint.key)[0] >= 0
    return mask


def _eligible(snapshot: Snapshot, pod: PodClass, constraint: Constraint) -> BoolArray:
    """Return ``(n,)``: the nodes whose pods and domains count for the constraint."""
    mask = np.ones(len(snapshot), bool)
    if constraint.honor_affinity:
        mask &= matches_required(snapshot, pod)
    if constraint.honor_taints:
        tolerations = pod.spec.tolerations
        tolerated = [not untolerated(t, tolerations, FORBIDDING) for t in snapshot.taint_sets]
        mask &= np.array(tolerated)[snapshot.taint_set]
    return mask


def _sums(
    snapshot: Snapshot, domains: LabelIds, number: int, pods: IntArray, counted: BoolArray
) -> tuple[IntArray, BoolArray]:
    """Return the pods by domain on the counted rows, and which domains these are in."""
    kernel = domain_sums.compiled if snapshot.uses_kernels else domain_sums.reference
    return kernel(domains, number, pods, counted)


def _of_rows(rejections: Rejections, snapshot: Snapshot) -> Rejections:
    if snapshot.rows is None:
        return rejections
    rows, never = snapshot.rows, rejections.unresolvable
    picked = never if isinstance(never, bool) else never[rows]
    return Rejections(rejections.codes[rows], rejections.reasons, picked)


def build(args: PodTopologySpreadArgs, _axis: ResourceAxis) -> PodTopologySpread:
    system = args.defaulting_type == "System"
    defaults = defaultdict[str, list[TopologySpreadConstraint]](list)
    for constraint in SYSTEM_DEFAULTS if system else args.default_constraints:
        defaults[constraint.when_unsatisfiable].append(constraint)
    return PodTopologySpread(dict(defaults), system)


PLUGIN = PluginSpec(
    "PodTopologySpread",
    PodTopologySpreadArgs,
    build,
    events=(
        EventHint("AssignedPod", Action.ADD | Action.UPDATE_LABELS | Action.DELETE),
        EventHint("Node", Action.ADD | Action.DELETE | Action.UPDATE_LABELS | Action.UPDATE_TAINTS),
        EventHint("Pod", Action.UPDATE_LABELS | Action.UPDATE_TOLERATIONS),
    ),
)
