"""Effective requests and limits of a pod as canonical integers.

Source: k8s.io/component-helpers resource/helpers.go ``PodRequests``, ``PodLimits``; the non-zero
defaults are ``DefaultMilliCPURequest`` and ``DefaultMemoryRequest`` of
pkg/scheduler/util/pod_resources.go.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from koordinator.api.pod import Container, NodeAllocatableResourceClaimStatus, PodSpec
from koordinator.domain.amounts import add, bounded, canonical_amounts
from koordinator.foundation.quantity import Quantity

Requests = dict[str, int]  # resource name -> canonical amount (milli for cpu)

NONZERO_DEFAULTS: Requests = {"cpu": 100, "memory": 200 * 1024 * 1024}
POD_LEVEL = ("cpu", "memory")  # and hugepages-*


def pod_requests(
    spec: PodSpec, defaults: Mapping[str, int] | None = None, *, overhead: bool = True
) -> Requests:
    """Return the maximum that the pod needs at any time.

    Containers and sidecars (init containers with ``restartPolicy: Always``) run together; a plain
    init container runs with the sidecars declared before it.  Pod-level requests replace the sum;
    overhead is added if ``overhead`` is set.  ``defaults`` apply to containers without a request
    for the resource.
    """
    running = most_together(
        spec, lambda each: with_missing(canonical_amounts(each.resources.requests), defaults)
    )
    running |= {name: n for name, n in stated_requests(spec).items() if is_pod_level(name)}
    if overhead:
        add_overhead(running, spec)
    return running


def pod_limits(spec: PodSpec) -> Requests:
    """Return the limits of the pod; unlimited resources are left out.

    Combined like requests; overhead is added to limited resources.
    """
    running = most_together(spec, lambda container: canonical_amounts(container.resources.limits))
    if spec.resources is not None:
        limits = canonical_amounts(spec.resources.limits)
        running |= {name: amount for name, amount in limits.items() if is_pod_level(name)}
    add_overhead(running, spec, only=running.keys())
    return running


def is_pod_level(name: str) -> bool:
    """Return whether a resource can be requested and limited at pod level."""
    return name in POD_LEVEL or name.startswith("hugepages-")


def stated_requests(spec: PodSpec) -> Requests:
    """Return the pod-level requests; a limit without a request counts as one."""
    if spec.resources is None:
        return {}
    return canonical_amounts({**(spec.resources.limits or {}), **(spec.resources.requests or {})})


def most_together(spec: PodSpec, of: Callable[[Container], Requests]) -> Requests:
    """Return the maximum of ``of`` over the containers at any time."""
    running: Requests = {}
    for container in spec.containers:
        add(running, of(container))

    sidecars: Requests = {}
    starting: Requests = {}
    for container in spec.init_containers:
        requests = dict(of(container))
        if container.restart_policy == "Always":
            add(running, requests)
            add(sidecars, requests)
            raise_to(starting, sidecars)
        else:
            add(requests, sidecars)
            raise_to(starting, requests)
    raise_to(running, starting)
    return running


def with_missing(requests: Requests, defaults: Mapping[str, int] | None) -> Requests:
    """Add to a container's requests the defaults of resources that it does not request."""
    for name, amount in (defaults or {}).items():
        requests.setdefault(name, amount)
    return requests


def add_overhead(total: Requests, spec: PodSpec, *, only: Collection[str] | None = None) -> None:
    """Add the pod's overhead, restricted to ``only`` if given."""
    overhead = canonical_amounts(spec.overhead)
    add(total, {n: amount for n, amount in overhead.items() if only is None or n in only})


def claimed_amounts(statuses: Iterable[NodeAllocatableResourceClaimStatus]) -> Requests:
    """Return the resources of the node that a pod has by its claims.

    The overhead per container counts for each container that references the claim.
    """
    total: dict[str, int] = {}
    for status in statuses:
        for one in status.mapping:
            total[one.name] = total.get(one.name, 0) + (one.quantity.nanos if one.quantity else 0)
        for each in status.overhead:
            nanos = each.per_pod.nanos if each.per_pod else 0
            if each.per_container:
                nanos += each.per_container.nanos * len(status.containers)
            total[each.name] = total.get(each.name, 0) + nanos
    return {name: bounded(name, Quantity(nanos)) for name, nanos in total.items()}


def raise_to(total: Requests, floor: Mapping[str, int]) -> None:
    """Raise amounts below a floor to it."""
    for name, amount in floor.items():
        total[name] = max(total.get(name, 0), amount)
