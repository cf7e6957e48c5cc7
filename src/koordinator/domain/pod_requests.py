"""What a pod asks of a node and what it may use there at most, in exact quantities.

Source: k8s.io/component-helpers resource/helpers.go ``PodRequests``, ``PodLimits``; the non-zero
defaults are ``DefaultMilliCPURequest`` and ``DefaultMemoryRequest`` of
pkg/scheduler/util/pod_resources.go.
"""

from collections.abc import Callable, Mapping
from typing import Final

from koordinator.api.pod import Container, PodSpec
from koordinator.foundation.quantity import NANOS, NANOS_PER_MILLI, Quantity

Requests = dict[str, int]  # resource name -> canonical amount (milli for cpu)

NONZERO_DEFAULTS: Requests = {"cpu": 100, "memory": 200 * 1024 * 1024}
#: More than a node has of anything (1 Pi): what somebody writes must not overflow 64 bits once the
#: amounts of a node's pods are added up.
LARGEST: Final = 1 << 50
POD_LEVEL = ("cpu", "memory")  # and hugepages-*


def canonical(name: str, quantity: Quantity) -> int:
    """Return milli-CPU for ``cpu``, whole units (rounded up) for everything else."""
    return quantity.milli() if name == "cpu" else quantity.value()


def nanos_of_one(name: str) -> int:
    """Return what one canonical unit of a resource is in nanos."""
    return NANOS_PER_MILLI if name == "cpu" else NANOS


def bounded(name: str, quantity: Quantity) -> int:
    """Return the canonical amount of something on one node, from 0 to LARGEST."""
    return max(min(canonical(name, quantity), LARGEST), 0)


def pod_requests(
    spec: PodSpec, defaults: Mapping[str, int] | None = None, *, overhead: bool = True
) -> Requests:
    """Return the most that the pod needs at any moment of its life.

    Containers and sidecars (init containers with ``restartPolicy: Always``) run together; a plain
    init container runs beside the sidecars declared before it.  Pod-level requests replace the sum;
    overhead, if it counts, comes on top.  ``defaults`` is assumed for a container that says nothing
    about that resource.
    """
    running = _most(spec, lambda container: _container(container, defaults))
    if spec.resources is not None:
        stated = {**(spec.resources.limits or {}), **(spec.resources.requests or {})}
        for name, quantity in stated.items():
            if name in POD_LEVEL or name.startswith("hugepages-"):
                running[name] = bounded(name, quantity)
    if overhead:
        _add(running, {name: bounded(name, q) for name, q in (spec.overhead or {}).items()})
    return running


def pod_limits(spec: PodSpec) -> Requests:
    """Return the most that the pod may use; what nothing limits is left out.

    Combined as requests are; overhead comes on top of what is limited.
    """
    running = _most(spec, lambda container: _canonical(container.resources.limits))
    if spec.resources is not None:
        running |= {
            name: amount
            for name, amount in _canonical(spec.resources.limits).items()
            if name in POD_LEVEL or name.startswith("hugepages-")
        }
    overhead = _canonical(spec.overhead)
    _add(running, {name: amount for name, amount in overhead.items() if name in running})
    return running


def _most(spec: PodSpec, of: Callable[[Container], Requests]) -> Requests:
    """Return the most that the containers together have of ``of`` at any moment."""
    running: Requests = {}
    for container in spec.containers:
        _add(running, of(container))

    sidecars: Requests = {}
    starting: Requests = {}
    for container in spec.init_containers:
        requests = of(container)
        if container.restart_policy == "Always":
            _add(running, requests)
            _add(sidecars, requests)
            _raise(starting, sidecars)
        else:
            _add(requests, sidecars)
            _raise(starting, requests)
    _raise(running, starting)
    return running


def _container(container: Container, defaults: Mapping[str, int] | None) -> Requests:
    requests = _canonical(container.resources.requests)
    for name, amount in (defaults or {}).items():
        requests.setdefault(name, amount)
    return requests


def _canonical(amounts: Mapping[str, Quantity] | None) -> Requests:
    return {name: bounded(name, quantity) for name, quantity in (amounts or {}).items()}


def _add(total: Requests, more: Requests) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise(total: Requests, floor: Requests) -> None:
    for name, amount in floor.items():
        total[name] = max(total.get(name, 0), amount)
