"""Controllers of co-location profiles, NodeMetric, NodeSLO and quota profiles.

Pure functions from objects, configuration and time to writes: a NodeMetric per node with the
collect policy, a NodeSLO per node, a root quota for the nodes of a quota profile, and colocation
profiles for existing pods.

As in the original, priority class, scheduler and resources stay unchanged.  Unlike there, the
random number of a pod is the same in every reconciliation, and a suffix that a label already has is
not appended again.

Source: koordinator pkg/controller/colocationprofile; koordinator
pkg/slo-controller/nodemetric/nodemetric_controller.go, collect_policy.go; koordinator
pkg/slo-controller/nodeslo/nodeslo_controller.go; koordinator
pkg/quota-controller/profile/profile_controller.go.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Final

from msgspec.structs import replace

from koordinator.api.annotations.node import ColocationStrategy
from koordinator.api.annotations.quota import (
    DEFAULT_RESOURCE_KEYS,
    RESOURCE_KEYS,
    TOTAL_RESOURCE,
    UNSCHEDULABLE_RESOURCE,
)
from koordinator.api.codec import difference, merge_patch, subject_of, to_manifest
from koordinator.api.colocation import ClusterColocationProfile
from koordinator.api.conditions import is_condition_true
from koordinator.api.core import Namespace, ResourceList
from koordinator.api.elastic_quota import (
    ElasticQuota,
    ElasticQuotaProfile,
    ElasticQuotaSpec,
    resource_ratio,
)
from koordinator.api.json_merge import strategic_merge
from koordinator.api.labels import CONTROLLER_MANAGED, QUOTA_IS_ROOT, QUOTA_PROFILE, QUOTA_TREE_ID
from koordinator.api.meta import LabelSelector, ObjectMeta
from koordinator.api.node import Node
from koordinator.api.node_metric import MetricCollectPolicy, NodeMetric, NodeMetricSpec
from koordinator.api.node_slo import NodeSlo
from koordinator.api.pod import Pod
from koordinator.api.resource_names import CPU, MEMORY
from koordinator.api.selectors import matches
from koordinator.api.slo_config import COLOCATION
from koordinator.foundation.clock import to_epoch_s
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.quantity import Quantity
from koordinator.manager.admission.profiles import is_left_out, relabelled, with_entries
from koordinator.manager.configuration import ranges
from koordinator.manager.configuration.reader import SloConfig
from koordinator.manager.configuration.strategies import Strategies, is_valid, render_slo
from koordinator.manager.writes import Create, Delete, Patch, Write

_PERCENTS = 100

RESYNC_S: Final = 10.0  # changes of nodes do not enqueue profiles
_UNLIMITED: Final = (2**63 - 1) // 2000
_FNV_OFFSET, _FNV_PRIME, _FNV_BITS = 0xCBF29CE484222325, 0x100000001B3, 64
_READY = "Ready"


def is_managed(profile: ClusterColocationProfile, *, by_default: bool) -> bool:
    """Return whether the profile applies to existing pods; ``by_default``: without the label."""
    if profile.metadata.deletion_timestamp is not None:
        return False
    return by_default or profile.metadata.labels.get(CONTROLLER_MANAGED) == "true"


def chosen_pods(
    profile: ClusterColocationProfile, pods: Iterable[Pod], namespaces: Mapping[str, Namespace]
) -> Iterator[Pod]:
    """Yield the pods that a profile selects; a profile without a selector selects none.

    Raises InputError for an invalid selector, Denial for an invalid probability.
    """
    spec = profile.spec
    if spec.selector is None:
        return
    for pod in pods:
        meta = pod.metadata
        if (
            matches(spec.selector, meta.labels)
            and _picks(spec.namespace_selector, namespaces.get(meta.namespace))
            and not is_left_out(profile, partial(_bucket, profile.metadata.name, meta.uid))
        ):
            yield pod


def pod_patch(profile: ClusterColocationProfile, pod: Pod) -> Patch | None:
    """Return the patch by which a profile changes a pod; None if it changes nothing.

    Raises InputError for a patch that can't be applied.
    """
    meta, spec = pod.metadata, profile.spec
    suffixes = {
        key: suffix
        for key, suffix in spec.label_suffixes.items()
        if not meta.labels.get(key, "").endswith(suffix)
    }
    labels, annotations = relabelled(
        replace(spec, label_suffixes=suffixes), meta.labels, meta.annotations
    )
    before = to_manifest(pod)
    after = with_entries(with_entries(before, "labels", labels), "annotations", annotations)
    if spec.patch:
        after = strategic_merge(after, spec.patch)
    change = difference(before, after)
    if not change:
        return None
    body = {**change, "metadata": {**change.get("metadata", {}), "uid": meta.uid}}
    return Patch(Pod, meta.name, body, meta.namespace)


def _picks(selector: LabelSelector | None, namespace: Namespace | None) -> bool:
    if selector is None or selector == LabelSelector():
        return True
    return namespace is not None and matches(selector, namespace.metadata.labels)


def _bucket(profile: str, uid: str) -> int:
    """Return the hash bucket 0..99 of a profile and a pod."""
    digest = sha256(f"{profile}/{uid}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % _PERCENTS


def reconcile_node_metric(
    node: Node | None, metric: NodeMetric | None, strategies: Strategies
) -> Sequence[Write]:
    """Return the writes that create, update or delete the NodeMetric of a node.

    While the configuration is invalid, existing NodeMetrics keep their spec.
    """
    config = strategies.config
    if node is None:
        if metric is None or config.colocation is None:
            return ()
        return (Delete(NodeMetric, metric.metadata.name, metric.metadata.uid),)
    strategy = strategies.of(node.metadata).written
    if strategy is None:
        return ()
    spec = NodeMetricSpec(metric_collect_policy=_collect_policy(strategy))
    if metric is None:
        return (Create(NodeMetric(metadata=ObjectMeta(name=node.metadata.name), spec=spec)),)
    if COLOCATION in config.rejected or spec == metric.spec:
        return ()
    wanted = NodeMetric(metadata=metric.metadata, spec=spec, status=metric.status)
    return (Patch(NodeMetric, metric.metadata.name, merge_patch(metric, wanted)),)


def _collect_policy(strategy: ColocationStrategy) -> MetricCollectPolicy:
    if not strategy.enable or not is_valid(strategy):
        strategy = ranges.COLOCATION
    return MetricCollectPolicy(
        aggregate_duration_seconds=strategy.metric_aggregate_duration_seconds,
        report_interval_seconds=strategy.metric_report_interval_seconds,
        node_aggregate_policy=strategy.metric_aggregate_policy,
        node_memory_collect_policy=strategy.metric_memory_collect_policy,
    )


@dataclass(frozen=True, slots=True)
class ReconcileOutcome:
    """Writes, and the problem of the object that they follow; empty if there is none."""

    writes: Sequence[Write] = ()
    problem: str = ""


def reconcile_node_slo(
    node: Node | None, slo: NodeSlo | None, config: SloConfig
) -> ReconcileOutcome:
    """Return the writes that create, update or delete the NodeSLO of a node."""
    if node is None:
        if slo is None:
            return ReconcileOutcome()
        return ReconcileOutcome((Delete(NodeSlo, slo.metadata.name, slo.metadata.uid),))
    rendered = render_slo(config, node, slo.spec if slo is not None else None)
    if slo is None:
        new = NodeSlo(metadata=ObjectMeta(name=node.metadata.name), spec=rendered.spec)
        return ReconcileOutcome((Create(new),), rendered.problem)
    if rendered.spec == slo.spec:
        return ReconcileOutcome((), rendered.problem)
    wanted = NodeSlo(metadata=slo.metadata, spec=rendered.spec, status=slo.status)
    return ReconcileOutcome(
        (Patch(NodeSlo, slo.metadata.name, merge_patch(slo, wanted)),), rendered.problem
    )


def reconcile_quota_profile(
    profile: ElasticQuotaProfile,
    quota: ElasticQuota | None,
    nodes: Iterable[Node],
    profiles: Iterable[ElasticQuotaProfile] = (),
) -> ReconcileOutcome:
    """Return the writes that label a profile with its tree and update the root of the tree.

    A profile whose quota an older one of ``profiles`` maintains is refused: the two would overwrite
    each other.  A ratio or list of resources that can't be read is a problem, and counts as unset.
    """
    problems: list[str] = []
    try:
        _check_owner(profile, profiles)
        selected = [n for n in nodes if matches(profile.spec.node_selector, n.metadata.labels)]
    except InputError as error:
        return ReconcileOutcome(problem=str(error.within(subject=subject_of(profile))))
    try:
        ratio = resource_ratio(profile.spec)
    except InputError as error:
        ratio, problems = 1.0, [f"{error}; the quota gets all resources of its nodes"]
    try:
        keys = RESOURCE_KEYS.read(profile.metadata) or DEFAULT_RESOURCE_KEYS
    except InputError as error:
        keys = DEFAULT_RESOURCE_KEYS
        problems.append(f"{error}; the quota has {', '.join(keys)}")
    writes = _quota_writes(profile, quota, selected, ratio, keys)
    subject = subject_of(profile)
    return ReconcileOutcome(writes, "; ".join(f"{subject}: {problem}" for problem in problems))


def _check_owner(profile: ElasticQuotaProfile, profiles: Iterable[ElasticQuotaProfile]) -> None:
    """Raise InputError if an older profile maintains the quota; of one age, the first by name."""
    name, namespace = profile.spec.quota_name, profile.metadata.namespace
    competing = [
        each
        for each in profiles
        if each.metadata.namespace == namespace
        and each.spec.quota_name == name
        and each.metadata.deletion_timestamp is None
    ]
    owner = min([profile, *competing], key=_age)
    if owner.key != profile.key:
        problem = f"must be unique in its namespace, got {name!r} as in {subject_of(owner)}"
        raise InputError(problem, path="spec.quotaName")


def _age(profile: ElasticQuotaProfile) -> tuple[float, str]:
    return to_epoch_s(profile.metadata.creation_timestamp), profile.metadata.name


def _quota_writes(
    profile: ElasticQuotaProfile,
    quota: ElasticQuota | None,
    selected: Sequence[Node],
    ratio: float | None,
    keys: Sequence[str],
) -> Sequence[Write]:
    meta = profile.metadata
    writes: list[Write] = []
    tree = meta.labels.get(QUOTA_TREE_ID, "")
    if not tree:
        tree = tree_id(profile.key)
        body = {"metadata": {"labels": {QUOTA_TREE_ID: tree}}}
        writes.append(Patch(ElasticQuotaProfile, meta.name, body, meta.namespace))
    total = _sum(selected, ratio)
    unschedulable = _sum((node for node in selected if not _is_schedulable(node)), ratio)
    labels = {
        QUOTA_PROFILE: meta.name,
        **profile.spec.quota_labels,
        QUOTA_TREE_ID: tree,
        QUOTA_IS_ROOT: "true",
    }
    annotations = {
        **TOTAL_RESOURCE.entry(total),
        **UNSCHEDULABLE_RESOURCE.entry(unschedulable),
    }
    spec = ElasticQuotaSpec(
        min={key: total.get(key, Quantity(0)) for key in keys},
        max={key: Quantity.from_int(_UNLIMITED) for key in keys},
    )
    if quota is None:
        new_meta = ObjectMeta(
            name=profile.spec.quota_name,
            namespace=meta.namespace,
            labels=labels,
            annotations=annotations,
        )
        return [*writes, Create(ElasticQuota(metadata=new_meta, spec=spec))]
    old = quota.metadata
    wanted = replace(
        quota,
        metadata=replace(
            old,
            labels={**old.labels, **labels},
            annotations={**old.annotations, **annotations},
        ),
        spec=spec,
    )
    patch = merge_patch(quota, wanted)
    if patch:
        writes.append(Patch(ElasticQuota, old.name, patch, old.namespace))
    return writes


def tree_id(key: str) -> str:
    """Return the tree ID of a profile: the decimal FNV-1a hash of ``namespace/name``."""
    digest = _FNV_OFFSET
    for byte in key.encode():
        digest = (digest ^ byte) * _FNV_PRIME % (1 << _FNV_BITS)
    return str(digest)


def _is_schedulable(node: Node) -> bool:
    return not node.spec.unschedulable and is_condition_true(node.status.conditions, _READY)


def _sum(nodes: Iterable[Node], ratio: float | None) -> ResourceList:
    sums: ResourceList = {}
    for node in nodes:
        for name, amount in node.status.allocatable.items():
            sums[name] = sums[name] + amount if name in sums else amount
    if ratio is None:
        return sums
    return {name: _part(name, amount, ratio) for name, amount in sums.items()}


def _part(name: str, amount: Quantity, ratio: float) -> Quantity:
    if name == CPU:
        return Quantity.from_milli(int(amount.milli() * ratio))
    return Quantity.from_int(int(amount.value() * ratio), binary=name == MEMORY)
