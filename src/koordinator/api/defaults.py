"""Defaults that the API server sets before it stores an object.

Source: k8s.io/kubernetes pkg/apis/{core,storage,scheduling,apps,batch,resource}/v1/defaults.go;
plugin/pkg/admission/defaulttolerationseconds/admission.go.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from msgspec.structs import replace

from koordinator.api.core import Namespace, ResourceList, ResourceRequirements, Toleration
from koordinator.api.dynamic_resources import (
    EXACT_COUNT,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimTemplate,
)
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Container, ContainerPort, Pod, PodSpec
from koordinator.api.policy import PriorityClass
from koordinator.api.volume import (
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from koordinator.api.workload import Deployment, ReplicaSet, ReplicationController, StatefulSet
from koordinator.foundation.quantity import Quantity

DEFAULT_NAMESPACE = "default"
DEFAULT_SCHEDULER = "default-scheduler"
DEFAULT_GRACE_PERIOD_S = 30
NAMESPACE_NAME_LABEL = "kubernetes.io/metadata.name"
NOT_READY = Toleration(
    key="node.kubernetes.io/not-ready",
    operator="Exists",
    effect="NoExecute",
    toleration_seconds=300,
)
UNREACHABLE = Toleration(
    key="node.kubernetes.io/unreachable",
    operator="Exists",
    effect="NoExecute",
    toleration_seconds=300,
)

_ZERO = Quantity(0)

KindT = TypeVar("KindT", bound=KubeObject)
DeviceRequestT = TypeVar("DeviceRequestT", ExactDeviceRequest, DeviceSubRequest)
ReplicatedT = TypeVar("ReplicatedT", ReplicaSet, Deployment, StatefulSet, ReplicationController)


def with_defaults(obj: KindT) -> KindT:
    """Return the object as the API server would store it; the very same if nothing is missing."""
    meta = obj.metadata
    if obj.NAMESPACED and not meta.namespace:
        obj = replace(obj, metadata=replace(meta, namespace=DEFAULT_NAMESPACE))
    fill = _FILLS.get(type(obj))
    if fill is None:
        return obj
    filled: KindT = fill(obj)
    return filled


def _fill_pod(pod: Pod) -> Pod:
    changes: dict[str, Any] = {}
    spec = _fill_pod_spec(pod.spec)
    if spec is not pod.spec:
        changes["spec"] = spec
    if not pod.status.phase:
        changes["status"] = replace(pod.status, phase="Pending")
    return replace(pod, **changes) if changes else pod


def _fill_pod_spec(spec: PodSpec) -> PodSpec:
    changes: dict[str, Any] = {}
    if not spec.scheduler_name:
        changes["scheduler_name"] = DEFAULT_SCHEDULER
    if not spec.restart_policy:
        changes["restart_policy"] = "Always"
    if spec.termination_grace_period_seconds is None:
        changes["termination_grace_period_seconds"] = DEFAULT_GRACE_PERIOD_S
    containers = _fill_containers(spec.containers, spec.host_network)
    if containers is not spec.containers:
        changes["containers"] = containers
    init_containers = _fill_containers(spec.init_containers, spec.host_network)
    if init_containers is not spec.init_containers:
        changes["init_containers"] = init_containers
    tolerations = _fill_tolerations(spec.tolerations)
    if tolerations is not spec.tolerations:
        changes["tolerations"] = tolerations
    if spec.resources is not None and spec.resources.limits:
        sums = _container_requests(containers, init_containers)
        resources = _fill_pod_requests(spec.resources, sums)
        if resources is not spec.resources:
            changes["resources"] = resources
    return replace(spec, **changes) if changes else spec


def _fill_containers(
    containers: tuple[Container, ...], host_network: bool
) -> tuple[Container, ...]:
    filled = tuple([_fill_container(container, host_network) for container in containers])
    same = all(new is old for new, old in zip(filled, containers, strict=True))
    return containers if same else filled


def _fill_container(container: Container, host_network: bool) -> Container:
    changes: dict[str, Any] = {}
    resources = container.resources
    if not resources.limits.keys() <= resources.requests.keys():
        requests = resources.requests | {
            resource: limit
            for resource, limit in resources.limits.items()
            if resource not in resources.requests
        }
        changes["resources"] = replace(resources, requests=requests)
    if any(not port.protocol or (host_network and not port.host_port) for port in container.ports):
        changes["ports"] = tuple(_fill_port(port, host_network) for port in container.ports)
    return replace(container, **changes) if changes else container


def _fill_port(port: ContainerPort, host_network: bool) -> ContainerPort:
    host_port = port.host_port or (port.container_port if host_network else 0)
    return replace(port, protocol=port.protocol or "TCP", host_port=host_port)


def _fill_tolerations(tolerations: tuple[Toleration, ...]) -> tuple[Toleration, ...]:
    """Tolerate lost nodes for five minutes, unless the pod has such a toleration."""
    missing = [
        default
        for default in (NOT_READY, UNREACHABLE)
        if not any(
            toleration.key in {default.key, ""} and toleration.effect in {"NoExecute", ""}
            for toleration in tolerations
        )
    ]
    return (*tolerations, *missing) if missing else tolerations


def _fill_pod_requests(resources: ResourceRequirements, sums: ResourceList) -> ResourceRequirements:
    """Default the requests of the whole pod to what its containers request, else to its limits."""
    missing = {
        resource: amount
        for resource, amount in (resources.limits | sums).items()
        if resource not in resources.requests
        and (resource in {"cpu", "memory"} or resource.startswith("hugepages-"))
    }
    if not missing:
        return resources
    return replace(resources, requests=resources.requests | missing)


def _container_requests(
    containers: tuple[Container, ...], init_containers: tuple[Container, ...]
) -> ResourceList:
    """Return the most that the containers request at a time, start-up included."""
    running: ResourceList = {}
    for container in containers:
        _add(running, container.resources.requests)
    sidecars: ResourceList = {}
    start_up: ResourceList = {}
    for container in init_containers:
        if container.restart_policy == "Always":
            _add(sidecars, container.resources.requests)
            peak = sidecars
        else:
            peak = dict(sidecars)
            _add(peak, container.resources.requests)
        for resource, amount in peak.items():
            start_up[resource] = max(amount, start_up.get(resource, amount))
    _add(running, sidecars)
    for resource, amount in start_up.items():
        running[resource] = max(amount, running.get(resource, amount))
    return running


def _add(total: ResourceList, amounts: ResourceList) -> None:
    for resource, amount in amounts.items():
        total[resource] = total.get(resource, _ZERO) + amount


def _fill_node(node: Node) -> Node:
    status = node.status
    if status.allocatable or not status.capacity:
        return node
    return replace(node, status=replace(status, allocatable=status.capacity))


def _fill_namespace(namespace: Namespace) -> Namespace:
    meta = namespace.metadata
    if meta.labels.get(NAMESPACE_NAME_LABEL) != meta.name:
        labels = meta.labels | {NAMESPACE_NAME_LABEL: meta.name}
        namespace = replace(namespace, metadata=replace(meta, labels=labels))
    if not namespace.status.phase:
        namespace = replace(namespace, status=replace(namespace.status, phase="Active"))
    return namespace


def _fill_priority_class(priority_class: PriorityClass) -> PriorityClass:
    if priority_class.preemption_policy is not None:
        return priority_class
    return replace(priority_class, preemption_policy="PreemptLowerPriority")


def _fill_claim(claim: PersistentVolumeClaim) -> PersistentVolumeClaim:
    if claim.spec.volume_mode is None:
        claim = replace(claim, spec=replace(claim.spec, volume_mode="Filesystem"))
    if not claim.status.phase:
        claim = replace(claim, status=replace(claim.status, phase="Pending"))
    return claim


def _fill_volume(volume: PersistentVolume) -> PersistentVolume:
    spec = volume.spec
    if spec.volume_mode is None or not spec.persistent_volume_reclaim_policy:
        spec = replace(
            spec,
            volume_mode=spec.volume_mode or "Filesystem",
            persistent_volume_reclaim_policy=spec.persistent_volume_reclaim_policy or "Retain",
        )
        volume = replace(volume, spec=spec)
    if not volume.status.phase:
        volume = replace(volume, status=replace(volume.status, phase="Pending"))
    return volume


def _fill_storage_class(storage_class: StorageClass) -> StorageClass:
    if storage_class.reclaim_policy is not None and storage_class.volume_binding_mode is not None:
        return storage_class
    return replace(
        storage_class,
        reclaim_policy=storage_class.reclaim_policy or "Delete",
        volume_binding_mode=storage_class.volume_binding_mode or "Immediate",
    )


def _fill_resource_claim(claim: ResourceClaim) -> ResourceClaim:
    return replace(claim, spec=_filled_claim_spec(claim.spec))


def _fill_claim_template(template: ResourceClaimTemplate) -> ResourceClaimTemplate:
    return replace(
        template, spec=replace(template.spec, spec=_filled_claim_spec(template.spec.spec))
    )


def _filled_claim_spec(spec: ResourceClaimSpec) -> ResourceClaimSpec:
    requests = tuple(
        replace(
            request,
            exactly=_filled_request(request.exactly) if request.exactly is not None else None,
            first_available=tuple(map(_filled_request, request.first_available)),
        )
        for request in spec.devices.requests
    )
    return replace(spec, devices=replace(spec.devices, requests=requests))


def _filled_request(request: DeviceRequestT) -> DeviceRequestT:
    mode = request.allocation_mode or EXACT_COUNT
    count = request.count or 1 if mode == EXACT_COUNT else request.count
    return replace(request, allocation_mode=mode, count=count)


def _fill_replicas(workload: ReplicatedT) -> ReplicatedT:
    if workload.spec.replicas is not None:
        return workload
    return replace(workload, spec=replace(workload.spec, replicas=1))


_FILLS: dict[type[KubeObject], Callable[[Any], Any]] = {
    Pod: _fill_pod,
    Node: _fill_node,
    Namespace: _fill_namespace,
    PriorityClass: _fill_priority_class,
    PersistentVolumeClaim: _fill_claim,
    PersistentVolume: _fill_volume,
    StorageClass: _fill_storage_class,
    ResourceClaim: _fill_resource_claim,
    ResourceClaimTemplate: _fill_claim_template,
    ReplicaSet: _fill_replicas,
    Deployment: _fill_replicas,
    StatefulSet: _fill_replicas,
    ReplicationController: _fill_replicas,
}
