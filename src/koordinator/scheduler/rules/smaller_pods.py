"""Pod specs with reduced requests or a renamed resource."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from koordinator.api.core import ResourceRequirements
from koordinator.api.pod import Container, PodSpec
from koordinator.api.resource_names import CPU
from koordinator.domain.pod_requests import pod_requests
from koordinator.foundation.quantity import Quantity


def asking_at_most(spec: PodSpec, amounts: Mapping[str, int]) -> PodSpec | None:
    """Return a spec that requests at most these amounts; None if that is impossible.

    ``amounts`` are canonical (milli for cpu).  The containers with the largest requests are reduced
    first; a limit equal to the request is reduced with it.
    """
    for name, most in amounts.items():
        excess = pod_requests(spec).get(name, 0) - most
        if excess > 0:
            spec = replace(
                spec,
                containers=_lowered(spec.containers, name, excess),
                init_containers=tuple(_capped(c, name, most) for c in spec.init_containers),
            )
        if most <= 0 or pod_requests(spec).get(name, 0) > most:
            return None
    return spec


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


def _lowered(containers: Sequence[Container], name: str, excess: int) -> tuple[Container, ...]:
    found = list(containers)
    for index in sorted(range(len(found)), key=lambda i: -_amount(found[i].resources, name)):
        has = _amount(found[index].resources, name)
        cut = min(excess, has)
        if cut:
            found[index] = _capped(found[index], name, has - cut)
            excess -= cut
    return tuple(found)


def _capped(container: Container, name: str, most: int) -> Container:
    requests, limits = container.resources.requests, container.resources.limits
    has = _amount(container.resources, name)
    if has <= most:
        return container
    binary = most % 1024 == 0
    less = Quantity.from_milli(most) if name == CPU else Quantity.from_int(most, binary=binary)
    was_limit = name in limits and limits[name] == requests.get(name, limits[name])
    resources = replace(
        container.resources,
        requests={**requests, name: less},
        limits={**limits, name: less} if was_limit else limits,
    )
    return replace(container, resources=resources)


def _amount(resources: ResourceRequirements, name: str) -> int:
    given = resources.requests.get(name) or resources.limits.get(name)
    if given is None:
        return 0
    return given.milli() if name == CPU else given.value()
