"""Validation of objects as the API server does it.

The manager, which knows the tree, validates the place of a quota in it.

Objects are expected to have their defaults already: see ``koordinator.api.defaults``.

Source: koordinator pkg/webhook/elasticquota/quota_topology_check.go, ``validateQuotaSelfItem``;
k8s.io/kubernetes pkg/apis/{core,policy,scheduling,storage}/validation.
"""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from koordinator.api.annotations.quota import SHARED_WEIGHT
from koordinator.api.cluster_network_topology import (
    ClusterNetworkTopology,
    validate_cluster_network_topology,
)
from koordinator.api.codec import subject_of
from koordinator.api.colocation import (
    ClusterColocationProfile,
    Recommendation,
    validate_cluster_colocation_profile,
    validate_recommendation,
)
from koordinator.api.core import Namespace, ResourceList, Service
from koordinator.api.device import Device, validate_device
from koordinator.api.elastic_quota import ElasticQuota, ElasticQuotaProfile, resource_ratio
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.pod_groups import SchedulingWorkload
from koordinator.api.pod_validation import (
    PREEMPTION_POLICIES,
    TAINT_EFFECTS,
    check_phase,
    check_pod,
)
from koordinator.api.policy import PodDisruptionBudget, PriorityClass
from koordinator.api.reservation import Reservation, validate_reservation
from koordinator.api.resource_validation import check_amounts
from koordinator.api.selectors import check_label_selector, check_node_selector
from koordinator.api.syntax import (
    check_annotation_keys,
    check_dns_label,
    check_dns_subdomain,
    check_label_key,
    check_label_value,
    check_labels,
    check_one_of,
    invalid_value,
)
from koordinator.api.volume import (
    CsiNode,
    CsiStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from koordinator.api.workload import (
    CronJob,
    DaemonSet,
    Deployment,
    Job,
    ReplicaSet,
    ReplicationController,
    StatefulSet,
)
from koordinator.foundation.errors import InputError

HIGHEST_USER_PRIORITY = 1_000_000_000
_SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_ACCESS_MODES = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")
_VOLUME_MODES = ("Filesystem", "Block")
_BINDING_MODES = ("Immediate", "WaitForFirstConsumer")
_RECLAIM_POLICIES = ("Delete", "Retain")
_ALONE = "ReadWriteOncePod"
_PERCENT = re.compile(r"(100|[0-9]{1,2})%")
_NAMED_AS_DNS_LABELS = (Namespace, Service)
_MOST_GROUPS = 8
_LONGEST_CRON_JOB = 52  # its Jobs have eleven characters more


def validate_elastic_quota(quota: ElasticQuota) -> None:
    """Validate a quota without its place in the tree.

    Raises InputError if an amount is negative, or a minimum above the maximum or without one.
    """
    spec = quota.spec
    _check_not_negative(spec.max, "spec.max")
    _check_not_negative(spec.min, "spec.min")
    _check_not_negative(SHARED_WEIGHT.read(quota.metadata) or {}, SHARED_WEIGHT.path)
    for resource, least in spec.min.items():
        most = spec.max.get(resource)
        if most is None:
            raise InputError(
                f"must be set in spec.max too, got a minimum of {least} without a maximum",
                path=f"spec.min[{resource}]",
            )
        if least > most:
            raise invalid_value(
                f"spec.min[{resource}]", str(least), f"at most {most}, as in spec.max"
            )


def validate_elastic_quota_profile(profile: ElasticQuotaProfile) -> None:
    """Raise InputError for a field that the quota could not be made of."""
    check_dns_subdomain(profile.spec.quota_name, "spec.quotaName")
    check_label_selector(profile.spec.node_selector, "spec.nodeSelector")
    check_labels(profile.spec.quota_labels, "spec.quotaLabels")
    resource_ratio(profile.spec)


def _check_not_negative(amounts: ResourceList, path: str) -> None:
    for resource, amount in amounts.items():
        if amount.nanos < 0:
            raise invalid_value(f"{path}[{resource}]", str(amount), "an amount of at least 0")


CUSTOM_CHECKS: Final[Mapping[type[KubeObject], Callable[[Any], None]]] = MappingProxyType(
    {
        Device: validate_device,
        Reservation: validate_reservation,
        ElasticQuota: validate_elastic_quota,
        ElasticQuotaProfile: validate_elastic_quota_profile,
        ClusterNetworkTopology: validate_cluster_network_topology,
        ClusterColocationProfile: validate_cluster_colocation_profile,
        Recommendation: validate_recommendation,
    }
)


def validate(obj: KubeObject) -> None:
    """Raise InputError, naming object and field, for the first rule that the object breaks."""
    try:
        _check_metadata(obj)
        check = _CHECKS.get(type(obj))
        if check is not None:
            check(obj)
    except InputError as error:
        raise error.within(subject=subject_of(obj)) from None


def validate_beside_spec(pod: Pod) -> None:
    """Raise InputError for the first rule that metadata or status of a pod break.

    For pods whose spec has been validated with another pod.
    """
    try:
        _check_metadata(pod)
        check_phase(pod)
    except InputError as error:
        raise error.within(subject=subject_of(pod)) from None


def _check_metadata(obj: KubeObject) -> None:
    meta = obj.metadata
    if not meta.name:
        raise InputError("is required", path="metadata.name")
    if isinstance(obj, _NAMED_AS_DNS_LABELS):
        check_dns_label(meta.name, "metadata.name")
    else:
        check_dns_subdomain(meta.name, "metadata.name")
    if obj.NAMESPACED:
        check_dns_label(meta.namespace, "metadata.namespace")
    elif meta.namespace:
        raise invalid_value(
            "metadata.namespace", meta.namespace, "empty for a cluster-scoped object"
        )
    check_labels(meta.labels, "metadata.labels")
    check_annotation_keys(meta.annotations, "metadata.annotations")
    controllers = [owner.name for owner in meta.owner_references if owner.controller]
    if len(controllers) > 1:
        raise invalid_value("metadata.ownerReferences", controllers, "at most one controller")


def _check_node(node: Node) -> None:
    check_amounts(node.status.capacity, "status.capacity")
    check_amounts(node.status.allocatable, "status.allocatable")
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(node.spec.taints):
        path = f"spec.taints[{index}]"
        check_label_key(taint.key, f"{path}.key")
        check_label_value(taint.value, f"{path}.value")
        check_one_of(taint.effect, TAINT_EFFECTS, f"{path}.effect")
        if (taint.key, taint.effect) in seen:
            raise invalid_value(
                path, f"{taint.key}:{taint.effect}", "a unique pair of key and effect"
            )
        seen.add((taint.key, taint.effect))


def _check_priority_class(priority_class: PriorityClass) -> None:
    name, value = priority_class.metadata.name, priority_class.value
    if name.startswith("system-"):
        if _SYSTEM_CLASSES.get(name) != value:
            known = " or ".join(f"{known}={number}" for known, number in _SYSTEM_CLASSES.items())
            raise invalid_value(
                "metadata.name", f"{name}={value}", f"with the prefix system- only {known}"
            )
    elif value > HIGHEST_USER_PRIORITY:
        raise invalid_value("value", value, f"at most {HIGHEST_USER_PRIORITY}")
    if priority_class.preemption_policy is not None:
        check_one_of(priority_class.preemption_policy, PREEMPTION_POLICIES, "preemptionPolicy")


def _check_disruption_budget(budget: PodDisruptionBudget) -> None:
    spec = budget.spec
    if spec.min_available is not None and spec.max_unavailable is not None:
        raise InputError("must set only one of minAvailable and maxUnavailable", path="spec")
    for amount, field in (
        (spec.min_available, "minAvailable"),
        (spec.max_unavailable, "maxUnavailable"),
    ):
        is_good = amount >= 0 if isinstance(amount, int) else _PERCENT.fullmatch(amount or "0%")
        if not is_good:
            raise invalid_value(f"spec.{field}", amount, "an integer of at least 0, or 0%..100%")
    check_label_selector(spec.selector, "spec.selector")


def _check_claim(claim: PersistentVolumeClaim) -> None:
    spec = claim.spec
    _check_access_modes(spec.access_modes)
    _check_volume_mode(spec.volume_mode)
    check_label_selector(spec.selector, "spec.selector")
    storage = spec.resources.requests.get("storage")
    if storage is None or storage.nanos <= 0:
        shown = None if storage is None else str(storage)
        raise invalid_value("spec.resources.requests.storage", shown, "an amount above 0")
    if spec.storage_class_name:
        check_dns_subdomain(spec.storage_class_name, "spec.storageClassName")


def _check_volume(volume: PersistentVolume) -> None:
    spec = volume.spec
    _check_access_modes(spec.access_modes)
    _check_volume_mode(spec.volume_mode)
    check_amounts(spec.capacity, "spec.capacity")
    if "storage" not in spec.capacity:
        raise InputError("is required", path="spec.capacity.storage")
    if others := sorted(spec.capacity.keys() - {"storage"}):
        raise InputError(f"must have storage only, got {', '.join(others)}", path="spec.capacity")
    if spec.capacity["storage"].nanos <= 0:
        raise invalid_value(
            "spec.capacity.storage", str(spec.capacity["storage"]), "an amount above 0"
        )
    if spec.storage_class_name:
        check_dns_subdomain(spec.storage_class_name, "spec.storageClassName")
    if spec.persistent_volume_reclaim_policy:
        policies = (*_RECLAIM_POLICIES, "Recycle")
        policy = spec.persistent_volume_reclaim_policy
        check_one_of(policy, policies, "spec.persistentVolumeReclaimPolicy")
    if spec.local is not None and (
        spec.node_affinity is None or spec.node_affinity.required is None
    ):
        raise InputError("required for a local volume, but missing", path="spec.nodeAffinity")
    if spec.node_affinity is not None and spec.node_affinity.required is not None:
        check_node_selector(spec.node_affinity.required, "spec.nodeAffinity.required")


def _check_access_modes(modes: tuple[str, ...]) -> None:
    if not modes:
        raise invalid_value("spec.accessModes", [], f"at least one of {', '.join(_ACCESS_MODES)}")
    for index, mode in enumerate(modes):
        check_one_of(mode, _ACCESS_MODES, f"spec.accessModes[{index}]")
    if _ALONE in modes and len(modes) > 1:
        raise InputError(f"must be {_ALONE} alone, or without it", path="spec.accessModes")


def _check_volume_mode(mode: str | None) -> None:
    if mode is not None:
        check_one_of(mode, _VOLUME_MODES, "spec.volumeMode")


def _check_storage_class(storage_class: StorageClass) -> None:
    if not storage_class.provisioner:
        raise InputError("is required", path="provisioner")
    if storage_class.volume_binding_mode is not None:
        check_one_of(storage_class.volume_binding_mode, _BINDING_MODES, "volumeBindingMode")
    if storage_class.reclaim_policy is not None:
        check_one_of(storage_class.reclaim_policy, _RECLAIM_POLICIES, "reclaimPolicy")


def _check_storage_capacity(capacity: CsiStorageCapacity) -> None:
    check_dns_subdomain(capacity.storage_class_name, "storageClassName")
    check_label_selector(capacity.node_topology, "nodeTopology")
    for amount, field in (
        (capacity.capacity, "capacity"),
        (capacity.maximum_volume_size, "maximumVolumeSize"),
    ):
        if amount is not None and amount.nanos < 0:
            raise invalid_value(field, str(amount), "an amount of at least 0")


def _check_csi_node(csi_node: CsiNode) -> None:
    names: set[str] = set()
    for index, driver in enumerate(csi_node.spec.drivers):
        path = f"spec.drivers[{index}]"
        if driver.name in names:
            raise invalid_value(f"{path}.name", driver.name, "unique among the drivers")
        names.add(driver.name)
        count = driver.allocatable.count if driver.allocatable is not None else None
        if count is not None and count < 0:
            raise invalid_value(f"{path}.allocatable.count", count, "at least 0")


def _check_service(service: Service) -> None:
    check_labels(service.spec.selector, "spec.selector")


def _check_workload(workload: ReplicaSet | Deployment | StatefulSet | DaemonSet) -> None:
    _check_replicas(workload.spec.replicas)
    check_label_selector(workload.spec.selector, "spec.selector")
    selector = workload.spec.selector
    if selector is None or not (selector.match_labels or selector.match_expressions):
        raise InputError("is required", path="spec.selector")


def _check_replication_controller(controller: ReplicationController) -> None:
    _check_replicas(controller.spec.replicas)
    check_labels(controller.spec.selector, "spec.selector")


def _check_job(job: Job) -> None:
    spec = job.spec
    check_label_selector(spec.selector, "spec.selector")
    for count, field in ((spec.parallelism, "parallelism"), (spec.completions, "completions")):
        if count is not None and count < 0:
            raise invalid_value(f"spec.{field}", count, "at least 0")


def _check_cron_job(cron_job: CronJob) -> None:
    name = cron_job.metadata.name
    if len(name) > _LONGEST_CRON_JOB:
        problem = f"must have at most {_LONGEST_CRON_JOB} characters, got {len(name)}"
        raise InputError(problem, path="metadata.name")


def _check_workload_of_gangs(workload: SchedulingWorkload) -> None:
    groups = workload.spec.pod_groups
    if not 0 < len(groups) <= _MOST_GROUPS:
        raise InputError(f"must have 1 to {_MOST_GROUPS} groups", path="spec.podGroups")
    names: set[str] = set()
    for index, group in enumerate(groups):
        path = f"spec.podGroups[{index}]"
        check_dns_label(group.name, f"{path}.name")
        if group.name in names:
            raise invalid_value(f"{path}.name", group.name, "unique among the groups")
        names.add(group.name)
        policy = group.policy
        if (policy.basic is None) == (policy.gang is None):
            raise InputError("must have either basic or gang", path=f"{path}.policy")
        if policy.gang is not None and policy.gang.min_count < 1:
            min_count = policy.gang.min_count
            problem = f"must be at least 1, got {min_count}"
            raise InputError(problem, path=f"{path}.policy.gang.minCount")


def _check_replicas(replicas: int | None) -> None:
    if replicas is not None and replicas < 0:
        raise invalid_value("spec.replicas", replicas, "at least 0")


_CHECKS: dict[type[KubeObject], Callable[[Any], None]] = {
    Pod: check_pod,
    Node: _check_node,
    PriorityClass: _check_priority_class,
    PodDisruptionBudget: _check_disruption_budget,
    PersistentVolumeClaim: _check_claim,
    PersistentVolume: _check_volume,
    StorageClass: _check_storage_class,
    CsiNode: _check_csi_node,
    CsiStorageCapacity: _check_storage_capacity,
    Service: _check_service,
    ReplicationController: _check_replication_controller,
    ReplicaSet: _check_workload,
    Deployment: _check_workload,
    StatefulSet: _check_workload,
    DaemonSet: _check_workload,
    Job: _check_job,
    CronJob: _check_cron_job,
    SchedulingWorkload: _check_workload_of_gangs,
    **CUSTOM_CHECKS,
}
