"""Rules for amounts of resources.

Source: k8s.io/kubernetes pkg/apis/core/validation/validation.go, ``ValidateResourceRequirements``,
``ValidateResourceQuantityValue``, ``validateContainerResourceName``;
pkg/apis/core/helper/helpers.go.
"""

from functools import lru_cache

from koordinator.api.core import ResourceList, ResourceRequirements
from koordinator.api.syntax import check_dns_label, check_label_key, invalid_value, join_path
from koordinator.foundation.errors import InputError
from koordinator.foundation.quantity import Quantity

_OF_CONTAINERS = frozenset({"cpu", "memory", "ephemeral-storage"})
_OF_PODS = frozenset({"cpu", "memory"})
_HUGE_PAGES = "hugepages-"
_WHOLE_MILLI = 1000


@lru_cache(maxsize=1 << 12)
def is_extended(resource: str) -> bool:
    """Return whether the resource is a vendor's: counted in whole units, never overcommitted."""
    return "/" in resource and "kubernetes.io/" not in resource


def check_amounts(amounts: ResourceList, path: str) -> None:
    """Refuse negative amounts, and fractions of extended resources."""
    for resource, amount in amounts.items():
        if amount.nanos < 0:
            raise invalid_value(join_path(path, resource), str(amount), "an amount of at least 0")
        if is_extended(resource) and amount.milli() % _WHOLE_MILLI:
            raise invalid_value(join_path(path, resource), str(amount), "an integer")


def check_container_resources(resources: ResourceRequirements, path: str) -> None:
    """Check names and amounts, that no request is above its limit, and that claims differ."""
    for resource in (*resources.requests, *resources.limits):
        if resource not in _OF_CONTAINERS:
            _check_container_resource_name(resource, path)
    _check_requests_and_limits(resources, path)
    used: set[tuple[str, str]] = set()
    for index, claim in enumerate(resources.claims):
        field_path = f"{path}.claims[{index}]"
        if claim.request:
            check_dns_label(claim.request, f"{field_path}.request")
        overlaps = {(claim.name, ""), (claim.name, claim.request)} & used
        if overlaps or (not claim.request and any(name == claim.name for name, _ in used)):
            raise InputError(
                f"must name each request once, got {claim.name!r} again", path=field_path
            )
        used.add((claim.name, claim.request))


def check_overhead(overhead: ResourceList, path: str) -> None:
    """Check names and amounts of what a pod's sandbox takes."""
    for resource in overhead:
        if resource not in _OF_CONTAINERS:
            _check_container_resource_name(resource, path)
    check_amounts(overhead, path)


def check_pod_resources(resources: ResourceRequirements, path: str) -> None:
    """Check the resources of a pod as a whole: CPU, memory and huge pages only."""
    for resource in (*resources.requests, *resources.limits):
        if resource not in _OF_PODS and not resource.startswith(_HUGE_PAGES):
            raise invalid_value(path, resource, "cpu, memory or hugepages-<size> for a whole pod")
    if resources.claims:
        raise InputError("must be empty for a whole pod", path=f"{path}.claims")
    _check_requests_and_limits(resources, path)


def _check_container_resource_name(resource: str, path: str) -> None:
    check_label_key(resource, path)
    if "/" not in resource and not resource.startswith(_HUGE_PAGES):
        raise invalid_value(
            path,
            resource,
            "cpu, memory, ephemeral-storage, hugepages-<size> or a name with a domain "
            "such as nvidia.com/gpu",
        )
    if resource.startswith("requests.") and is_extended(resource):
        raise InputError(f"must not begin with 'requests.', got {resource!r}", path=path)


def _check_requests_and_limits(resources: ResourceRequirements, path: str) -> None:
    requests, limits = resources.requests, resources.limits
    check_amounts(requests, f"{path}.requests")
    check_amounts(limits, f"{path}.limits")
    for resource, request in requests.items():
        limit = limits.get(resource)
        if is_extended(resource) or resource.startswith(_HUGE_PAGES):
            if limit != request:
                raise invalid_value(
                    join_path(f"{path}.requests", resource),
                    str(request),
                    f"exactly the limit ({limit if limit is not None else 'not set'}), "
                    f"as {resource} can't be overcommitted",
                )
        elif limit is not None and request.nanos > limit.nanos:
            raise invalid_value(
                join_path(f"{path}.requests", resource),
                str(request),
                f"at most the limit ({limit})",
            )
    _check_huge_pages(resources, path)


def _check_huge_pages(resources: ResourceRequirements, path: str) -> None:
    names = resources.requests.keys() | resources.limits.keys()
    if names.isdisjoint(_OF_PODS) and any(name.startswith(_HUGE_PAGES) for name in names):
        raise InputError("must have cpu or memory beside hugepages", path=path)
    for field, amounts in (("requests", resources.requests), ("limits", resources.limits)):
        for name, amount in amounts.items():
            if name.startswith(_HUGE_PAGES):
                _check_page_size(name, amount, join_path(f"{path}.{field}", name))


def _check_page_size(resource: str, amount: Quantity, path: str) -> None:
    size = resource.removeprefix(_HUGE_PAGES)
    try:
        page = Quantity.parse(size)
    except InputError:
        page = None
    if page is None or page.nanos <= 0:
        raise InputError(f"must have the size of a page in its name, got {size!r}", path=path)
    if amount.nanos % page.nanos:
        raise InputError(f"must be a multiple of the page size {size}, got {amount}", path=path)
