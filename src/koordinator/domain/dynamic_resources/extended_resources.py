"""Claims for extended resources that a DeviceClass serves.

Each long-running container gets devices of its own. Init containers that end earlier reuse the
devices of later containers, and share the additional devices that they need.

Source: kubernetes pkg/scheduler/framework/plugins/dynamicresources/extendeddynamicresources.go
``createRequestsAndMappings``, ``preFilterExtendedResources``, ``findExtendedResourceClaim``;
k8s.io/dynamic-resource-allocation deviceclass/extendedresourcecache.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from koordinator.api.dynamic_resources import (
    DEVICE_CLASS_RESOURCES,
    EXACT_COUNT,
    EXTENDED_RESOURCE_CLAIM,
    DeviceClaimRequest,
    DeviceClaimSpec,
    DeviceClass,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from koordinator.api.meta import ObjectMeta, OwnerReference
from koordinator.api.pod import Container, ContainerExtendedResourceRequest, Pod, PodSpec
from koordinator.api.resource_validation import is_extended
from koordinator.domain.amounts import bounded
from koordinator.foundation.lazy_dataclass import dataclass

UNNAMED: Final = "<extended-resources>"  # name in messages before the claim is created
_IS_MADE: Final = "true"  # annotation value
_BASE_LENGTH: Final = 58  # the API server's limit before the random suffix
NAMES: Final = 8  # candidate names per claim, for conflicts
_ADDED: Final = 5  # characters
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"  # characters of the suffix


def resources_of(device_class: DeviceClass) -> Iterable[str]:
    """Yield the extended resources that select devices of a class."""
    yield f"{DEVICE_CLASS_RESOURCES}{device_class.metadata.name}"
    explicit = device_class.spec.extended_resource_name
    if explicit is not None and is_extended(explicit) and not explicit.startswith("requests."):
        yield explicit


def is_made_for_resources(claim: ResourceClaim) -> bool:
    """Return whether a scheduler created the claim for extended resources."""
    return claim.metadata.annotations.get(EXTENDED_RESOURCE_CLAIM) == _IS_MADE


def owner_of(claim: ResourceClaim) -> str:
    """Return the uid of the pod whose extended resources the claim is for; empty if none."""
    owner = claim.metadata.controller if is_made_for_resources(claim) else None
    return "" if owner is None else owner.uid


def claim_names_of(pod: ObjectMeta) -> Iterator[str]:
    """Yield deterministic candidate names for a pod's claim; the first free one is used.

    Retries and restarted schedulers therefore find the existing claim instead of creating another.
    """
    base = f"{pod.name}-extended-resources-"[:_BASE_LENGTH]
    for number in range(NAMES):
        digest = hashlib.sha256(f"{pod.uid}/{number}".encode()).digest()
        yield base + "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in digest[:_ADDED])


def made_claim(name: str, pod: ObjectMeta, requests: Sequence[DeviceClaimRequest]) -> ResourceClaim:
    """Return the claim to create for a pod."""
    owner = OwnerReference(
        api_version=Pod.API_VERSION, kind=Pod.KIND, name=pod.name, uid=pod.uid, controller=True
    )
    return ResourceClaim(
        metadata=ObjectMeta(
            name=name,
            generate_name=f"{pod.name}-extended-resources-",
            namespace=pod.namespace,
            annotations={EXTENDED_RESOURCE_CLAIM: _IS_MADE},
            owner_references=(owner,),
        ),
        spec=ResourceClaimSpec(devices=DeviceClaimSpec(requests=tuple(requests))),
    )


@dataclass(frozen=True, slots=True)
class ExtendedRequests:
    """Requests of a pod's claim, and the request that serves each container."""

    requests: tuple[DeviceClaimRequest, ...]
    mappings: tuple[ContainerExtendedResourceRequest, ...]


def extended_requests(spec: PodSpec, classes: Mapping[str, str]) -> ExtendedRequests:
    """Return a pod's requests for these resources; ``classes`` maps them to device classes."""
    requests: list[DeviceClaimRequest] = []
    mappings: list[ContainerExtendedResourceRequest] = []
    for resource in sorted(classes):
        extended = _of_resource(spec, resource, classes[resource])
        requests += extended.requests
        mappings += extended.mappings
    return ExtendedRequests(tuple(sorted(requests, key=lambda one: one.name)), tuple(mappings))


@dataclass(frozen=True, slots=True)
class _Need:
    """The request of one container for a resource."""

    container: str
    request: str  # name of the request
    count: int


def _of_resource(spec: PodSpec, resource: str, device_class: str) -> ExtendedRequests:
    containers = (*spec.init_containers, *spec.containers)
    needs = [_need(number, one, resource) for number, one in enumerate(containers)]
    ends = [_ends(number, one, spec) for number, one in enumerate(containers)]
    lasting = [None if end else need for need, end in zip(needs, ends, strict=True)]
    passing = [
        (need, _reused(need.count, lasting[number:]))
        for number, (need, end) in enumerate(zip(needs, ends, strict=True))
        if need is not None and end
    ]
    more = [(need, need.count - sum(one.count for one in reused)) for need, reused in passing]
    # The init container with the largest additional need determines the shared request.
    shared = max(more, key=lambda one: one[1], default=None)
    amounts = [(need.request, need.count) for need in lasting if need is not None]
    if shared is not None and shared[1] > 0:
        amounts.append((shared[0].request, shared[1]))
    served = [(need.container, need.request) for need in lasting if need is not None]
    for need, reused in passing:
        served += [(need.container, one.request) for one in reused]
        if shared is not None and need.count > sum(one.count for one in reused):
            served.append((need.container, shared[0].request))
    return ExtendedRequests(
        tuple(_request(name, device_class, amount) for name, amount in amounts),
        tuple(
            ContainerExtendedResourceRequest(
                container_name=container, resource_name=resource, request_name=request
            )
            for container, request in served
        ),
    )


def _ends(number: int, container: Container, spec: PodSpec) -> bool:
    """Return whether a container ends before the main containers start."""
    return number < len(spec.init_containers) and container.restart_policy != "Always"


def _need(number: int, container: Container, resource: str) -> _Need | None:
    requests = container.resources.requests
    amount = bounded(resource, requests[resource]) if resource in requests else 0
    if not amount:
        return None
    return _Need(
        container.name, f"container-{number}-request-{sorted(requests).index(resource)}", amount
    )


def _reused(wanted: int, later: Iterable[_Need | None]) -> list[_Need]:
    """Return the later containers' needs that an init container reuses, until it has enough."""
    reused: list[_Need] = []
    for need in later:
        if need is not None:
            reused.append(need)
            wanted -= need.count
        if wanted <= 0:
            break
    return reused


def _request(name: str, device_class: str, amount: int) -> DeviceClaimRequest:
    exactly = ExactDeviceRequest(
        device_class_name=device_class, allocation_mode=EXACT_COUNT, count=amount
    )
    return DeviceClaimRequest(name=name, exactly=exactly)


NOT_MADE: Final = "waiting for the resourceclaim of {!r} to be created"


def template_to_create(namespace: str, name: str) -> str:
    """Return the remedy for a missing claim whose template may be missing too."""
    return (
        f"create the ResourceClaimTemplate {namespace}/{name} if it is not there: "
        "kube-controller-manager makes the claim from it"
    )
