"""Pod specs with smaller or larger requests, or a renamed resource."""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from koordinator.api.core import ResourceRequirements
from koordinator.api.pod import Container, PodSpec
from koordinator.api.resource_names import CPU
from koordinator.domain.amounts import canonical_amounts
from koordinator.domain.pod_requests import is_pod_level, pod_requests, stated_requests
from koordinator.foundation.quantity import Quantity

_SIDECAR: Final = "Always"  # restartPolicy of an init container that runs beside the others


def asking_at_most(spec: PodSpec, amounts: Mapping[str, int]) -> PodSpec | None:
    """Return a spec that requests at most these amounts; None if that is impossible.

    ``amounts`` are canonical (milli for cpu) and include the overhead of the runtime class.  The
    containers and sidecars with the largest requests are reduced first; a limit equal to the
    request is reduced with it.
    """
    for name, most in amounts.items():
        if pod_requests(spec).get(name, 0) > most:
            own = most - overhead_of(spec, name)
            if own <= 0:
                return None
            spec = _asking_less(spec, name, own)
        if most <= 0 or pod_requests(spec).get(name, 0) > most:
            return None
    return spec


def asking_at_least(spec: PodSpec, name: str, amount: int) -> PodSpec | None:
    """Return a spec whose largest container requests so much more that the pod has the amount.

    Return None for a pod-level request, which containers do not add to, where init containers
    request the most, and where the container's limit would be exceeded.
    """
    more = amount - pod_requests(spec).get(name, 0)
    is_stated = is_pod_level(name) and name in stated_requests(spec)
    if more <= 0 or not spec.containers or is_stated:
        return None
    sizes = [_amount(container.resources, name) for container in spec.containers]
    index = sizes.index(max(sizes))
    containers = list(spec.containers)
    wanted = sizes[index] + more
    resources = _with_amount(containers[index].resources, name, wanted)
    if canonical_amounts(resources.limits).get(name, wanted) < wanted:
        return None
    containers[index] = replace(containers[index], resources=resources)
    changed = replace(spec, containers=tuple(containers))
    return changed if pod_requests(changed).get(name, 0) == amount else None


def overhead_of(spec: PodSpec, name: str) -> int:
    """Return the overhead of the runtime class in canonical units."""
    return canonical_amounts(spec.overhead).get(name, 0)


def _asking_less(spec: PodSpec, name: str, most: int) -> PodSpec:
    """Return the spec with at most this amount of a resource, without overhead."""
    if spec.resources is not None and is_pod_level(name):
        spec = replace(spec, resources=_capped(spec.resources, name, most))
    sidecars = [c for c in spec.init_containers if c.restart_policy == _SIDECAR]
    running = _lowered([*spec.containers, *sidecars], name, most)
    containers, lowered = running[: len(spec.containers)], iter(running[len(spec.containers) :])
    starting, init_containers = most, []
    for container in spec.init_containers:  # a plain one runs beside the sidecars before it
        if container.restart_policy == _SIDECAR:
            less = next(lowered)
            starting -= _amount(less.resources, name)
        else:
            less = _with_at_most(container, name, max(starting, 0))
        init_containers.append(less)
    return replace(spec, containers=containers, init_containers=tuple(init_containers))


def with_renamed_resource(spec: PodSpec, name: str, other: str) -> PodSpec:
    """Return a spec that requests the same amount of another resource."""

    def renamed(container: Container) -> Container:
        requests, limits = (
            {other if key == name else key: amount for key, amount in amounts.items()}
            for amounts in (container.resources.requests, container.resources.limits)
        )
        resources = replace(container.resources, requests=requests, limits=limits)
        return replace(container, resources=resources)

    return replace(
        spec,
        containers=tuple(map(renamed, spec.containers)),
        init_containers=tuple(map(renamed, spec.init_containers)),
    )


def _lowered(containers: Sequence[Container], name: str, most: int) -> tuple[Container, ...]:
    """Return containers that request at most this amount together."""
    lowered = list(containers)
    excess = sum(_amount(one.resources, name) for one in lowered) - most
    for index in sorted(range(len(lowered)), key=lambda i: -_amount(lowered[i].resources, name)):
        has = _amount(lowered[index].resources, name)
        cut = min(max(excess, 0), has)
        if cut:
            lowered[index] = _with_at_most(lowered[index], name, has - cut)
            excess -= cut
    return tuple(lowered)


def _with_at_most(container: Container, name: str, most: int) -> Container:
    return replace(container, resources=_capped(container.resources, name, most))


def _capped(resources: ResourceRequirements, name: str, most: int) -> ResourceRequirements:
    return resources if _amount(resources, name) <= most else _with_amount(resources, name, most)


def _with_amount(resources: ResourceRequirements, name: str, amount: int) -> ResourceRequirements:
    """Return resources with another request, and with a limit that was equal to it changed too."""
    requests, limits = resources.requests, resources.limits
    binary = amount % 1024 == 0
    new = Quantity.from_milli(amount) if name == CPU else Quantity.from_int(amount, binary=binary)
    was_limit = name in limits and limits[name] == requests.get(name, limits[name])
    return replace(
        resources,
        requests={**requests, name: new},
        limits={**limits, name: new} if was_limit else limits,
    )


def _amount(resources: ResourceRequirements, name: str) -> int:
    given = resources.requests.get(name) or resources.limits.get(name)
    if given is None:
        return 0
    return given.milli() if name == CPU else given.value()
