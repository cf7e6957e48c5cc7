"""What a pod asks of a node, in exact quantities.

Source: k8s.io/component-helpers resource/helpers.go ``PodRequests``; the non-zero defaults are
``DefaultMilliCPURequest`` and ``DefaultMemoryRequest`` of pkg/scheduler/util/pod_resources.go.
"""

from collections.abc import Mapping

from koordinator.api.pod import Container, PodSpec
from koordinator.foundation.quantity import Quantity

Requests = dict[str, int]  # resource name -> canonical amount (milli for cpu)

NONZERO_DEFAULTS: Requests = {"cpu": 100, "memory": 200 * 1024 * 1024}
POD_LEVEL = ("cpu", "memory")  # and hugepages-*


def canonical(name: str, quantity: Quantity) -> int:
    """Return milli-CPU for ``cpu``, whole units (rounded up) for everything else."""
    return quantity.milli() if name == "cpu" else quantity.value()


def pod_requests(
    spec: PodSpec, defaults: Mapping[str, int] | None = None, *, overhead: bool = True
) -> Requests:
    """Return the most that the pod needs at any moment of its life.

    Containers and sidecars (init containers with ``restartPolicy: Always``) run together; a plain
    init container runs beside the sidecars declared before it.  Pod-level requests replace the sum;
    overhead, if it counts, comes on top.  ``defaults`` is assumed for a container that says nothing
    about that resource.
    """
    running: Requests = {}
    for container in spec.containers:
        _add(running, _container(container, defaults))

    sidecars: Requests = {}
    starting: Requests = {}
    for container in spec.init_containers:
        requests = _container(container, defaults)
        if container.restart_policy == "Always":
            _add(running, requests)
            _add(sidecars, requests)
            _raise(starting, sidecars)
        else:
            _add(requests, sidecars)
            _raise(starting, requests)
    _raise(running, starting)

    if spec.resources is not None:
        stated = {**(spec.resources.limits or {}), **(spec.resources.requests or {})}
        for name, quantity in stated.items():
            if name in POD_LEVEL or name.startswith("hugepages-"):
                running[name] = canonical(name, quantity)
    if overhead:
        _add(running, {name: canonical(name, q) for name, q in (spec.overhead or {}).items()})
    return running


def _container(container: Container, defaults: Mapping[str, int] | None) -> Requests:
    stated = container.resources.requests or {}
    requests = {name: canonical(name, quantity) for name, quantity in stated.items()}
    for name, amount in (defaults or {}).items():
        requests.setdefault(name, amount)
    return requests


def _add(total: Requests, more: Requests) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise(total: Requests, floor: Requests) -> None:
    for name, amount in floor.items():
        total[name] = max(total.get(name, 0), amount)
