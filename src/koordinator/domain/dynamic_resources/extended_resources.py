"""Extended resources that devices of a DeviceClass serve: what a pod gets a claim for.

Each container that runs on asks for devices of its own.  Init containers that end before use those
of containers that come later, and share what they need besides.

Source: kubernetes pkg/scheduler/framework/plugins/dynamicresources/extendeddynamicresources.go
``createRequestsAndMappings``, ``preFilterExtendedResources``, ``findExtendedResourceClaim``;
k8s.io/dynamic-resource-allocation deviceclass/extendedresourcecache.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from koordinator.domain.pod_requests import bounded

UNNAMED: Final = "<extended-resources>"  # what messages call a claim that is not written yet
_IS_MADE: Final = "true"  # value of the annotation
_BASE_LENGTH: Final = 58  # of a name, as the API server cuts it before what it adds
NAMES: Final = 8  # that are tried for a claim, where others have the first ones
_ADDED: Final = 5  # characters
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"  # of these characters


def resources_of(device_class: DeviceClass) -> Iterable[str]:
    """Yield the extended resources by which devices of a class can be asked for."""
    yield f"{DEVICE_CLASS_RESOURCES}{device_class.metadata.name}"
    explicit = device_class.spec.extended_resource_name
    if explicit is not None and is_extended(explicit) and not explicit.startswith("requests."):
        yield explicit


def is_made_for_resources(claim: ResourceClaim) -> bool:
    """Return whether a scheduler made the claim for extended resources."""
    return claim.metadata.annotations.get(EXTENDED_RESOURCE_CLAIM) == _IS_MADE


def owner_of(claim: ResourceClaim) -> str:
    """Return the uid of the pod for whose extended resources a claim was made; empty: none's."""
    if not is_made_for_resources(claim):
        return ""
    owners = claim.metadata.owner_references
    return next((owner.uid for owner in owners if owner.controller), "")


def claim_names_of(pod: ObjectMeta) -> Iterator[str]:
    """Yield names for the claim of a pod, the same ones each time: the first that is free counts.

    So nobody who tries again, or comes late, makes a second claim.
    """
    base = f"{pod.name}-extended-resources-"[:_BASE_LENGTH]
    for number in range(NAMES):
        digest = hashlib.sha256(f"{pod.uid}/{number}".encode()).digest()
        yield base + "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in digest[:_ADDED])


def made_claim(name: str, pod: ObjectMeta, requests: Sequence[DeviceClaimRequest]) -> ResourceClaim:
    """Return the claim of a pod as it is to be created."""
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
    """What the claim of a pod asks for, and which request serves which container."""

    requests: tuple[DeviceClaimRequest, ...]
    mappings: tuple[ContainerExtendedResourceRequest, ...]


def extended_requests(spec: PodSpec, classes: Mapping[str, str]) -> ExtendedRequests:
    """Return what a pod asks for of these resources, by name with the class that serves each."""
    requests: list[DeviceClaimRequest] = []
    mappings: list[ContainerExtendedResourceRequest] = []
    for resource in sorted(classes):
        found = _of_resource(spec, resource, classes[resource])
        requests += found.requests
        mappings += found.mappings
    return ExtendedRequests(tuple(sorted(requests, key=lambda one: one.name)), tuple(mappings))


@dataclass(frozen=True, slots=True)
class _Need:
    """What one container asks for of a resource."""

    container: str
    request: str  # its name
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
    # The first of those that need most besides stands for all of them.
    shared = max(more, key=lambda one: one[1], default=None)
    asked = [(need.request, need.count) for need in lasting if need is not None]
    if shared is not None and shared[1] > 0:
        asked.append((shared[0].request, shared[1]))
    served = [(need.container, need.request) for need in lasting if need is not None]
    for need, reused in passing:
        served += [(need.container, one.request) for one in reused]
        if shared is not None and need.count > sum(one.count for one in reused):
            served.append((need.container, shared[0].request))
    return ExtendedRequests(
        tuple(_request(name, device_class, amount) for name, amount in asked),
        tuple(
            ContainerExtendedResourceRequest(
                container_name=container, resource_name=resource, request_name=request
            )
            for container, request in served
        ),
    )


def _ends(number: int, container: Container, spec: PodSpec) -> bool:
    """Return whether a container has ended before the pod's own begin."""
    return number < len(spec.init_containers) and container.restart_policy != "Always"


def _need(number: int, container: Container, resource: str) -> _Need | None:
    asked = container.resources.requests
    amount = bounded(resource, asked[resource]) if resource in asked else 0
    if not amount:
        return None
    return _Need(
        container.name, f"container-{number}-request-{sorted(asked).index(resource)}", amount
    )


def _reused(wanted: int, later: Iterable[_Need | None]) -> list[_Need]:
    """Return what an init container uses of those that come later, until it has enough."""
    found: list[_Need] = []
    for need in later:
        if need is not None:
            found.append(need)
            wanted -= need.count
        if wanted <= 0:
            break
    return found


def _request(name: str, device_class: str, amount: int) -> DeviceClaimRequest:
    exactly = ExactDeviceRequest(
        device_class_name=device_class, allocation_mode=EXACT_COUNT, count=amount
    )
    return DeviceClaimRequest(name=name, exactly=exactly)


NOT_MADE: Final = "waiting for the resourceclaim of {!r} to be created"


def template_to_create(namespace: str, name: str) -> str:
    """Return what makes the claim, where it is not known whether the template exists."""
    return (
        f"create the ResourceClaimTemplate {namespace}/{name} if it is not there: "
        "kube-controller-manager makes the claim from it"
    )
