"""Requests and limits of placed pods during an in-place resize, and with amounts of claims.

A pod holds the maximum of its spec's requests, the amounts granted by its node
(``allocatedResources``) and the amounts in force (``resources``).  A resize that the node found
infeasible is ignored. Source: k8s.io/component-helpers resource/helpers.go ``PodRequests``,
``PodLimits`` with ``UseStatusResources``, of 0.36 and 0.37; kubernetes
pkg/scheduler/framework/types.go ``getNonMissingContainerRequests``.
"""

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from koordinator.api.conditions import find_condition
from koordinator.api.core import ResourceList, ResourceRequirements
from koordinator.api.pod import (
    DEFERRED,
    INFEASIBLE,
    RESIZE_PENDING,
    Container,
    ContainerStatus,
    Pod,
    PodSpec,
    PodStatus,
)
from koordinator.domain.amounts import add, canonical_amounts
from koordinator.domain.pod_requests import (
    NONZERO_DEFAULTS,
    Requests,
    add_overhead,
    claimed_amounts,
    is_pod_level,
    most_together,
    pod_limits,
    pod_requests,
    raise_to,
    stated_requests,
    with_missing,
)
from koordinator.foundation.lazy_dataclass import dataclass

_NOTHING = ResourceRequirements()
_AmountsOf = Callable[[Container], Requests]


@dataclass(frozen=True, slots=True)
class ResizeRules:
    """Rules of a Kubernetes version for the amounts of resized pods.

    ``sums_per_pod``: the maximum of three sums over the pod (1.37), else the sum of each
    container's maximum.  ``pod_level``: the pod-level status counts too.  ``claims``: resources
    of the node that the pod has by its claims count too (with ``sums_per_pod`` only).
    """

    sums_per_pod: bool = True
    pod_level: bool = True
    claims: bool = False


DEFAULT_RULES = ResizeRules()


@dataclass(frozen=True, slots=True)
class EffectiveAmounts:
    """Canonical amounts that a pod holds on its node."""

    requests: Requests
    limits: Requests
    nonzero_cpu: int  # with defaults of containers without requests
    nonzero_memory: int

    @property
    def key(self) -> tuple[object, ...]:
        """A hashable value with the same content."""
        return (
            tuple(sorted(self.requests.items())),
            tuple(sorted(self.limits.items())),
            self.nonzero_cpu,
            self.nonzero_memory,
        )


def effective_amounts(pod: Pod, rules: ResizeRules, own: EffectiveAmounts) -> EffectiveAmounts:
    """Return the amounts that the pod holds; ``own``, the spec's amounts, if not resized."""
    if not _is_resized(pod, rules, own):
        return own
    requests = effective_requests(pod, rules)
    nonzero = effective_requests(pod, rules, placed_defaults(pod.spec, requests))
    return EffectiveAmounts(
        requests, effective_limits(pod, rules), nonzero.get("cpu", 0), nonzero.get("memory", 0)
    )


def placed_defaults(spec: PodSpec, requests: Mapping[str, int]) -> Mapping[str, int]:
    """Return the default requests for containers of a placed pod.

    A pod with pod-level requests gets only the defaults of resources that it does not request.
    """
    if not any(map(is_pod_level, stated_requests(spec))):
        return NONZERO_DEFAULTS
    return {name: n for name, n in NONZERO_DEFAULTS.items() if name not in requests}


def is_infeasible(pod: Pod) -> bool:
    """Return whether the pod's node found its resize infeasible."""
    return why_pending(pod.status) == INFEASIBLE


def is_deferred(pod: Pod) -> bool:
    """Return whether the pod's node has too little room for its resize."""
    return why_pending(pod.status) == DEFERRED


def why_pending(status: PodStatus) -> str:
    """Return the reason why the kubelet has not applied a resize; empty without a resize."""
    condition = find_condition(status.conditions, RESIZE_PENDING)
    return "" if condition is None else condition.reason


def effective_requests(
    pod: Pod, rules: ResizeRules, defaults: Mapping[str, int] | None = None
) -> Requests:
    """Return the requests that the pod holds on its node; ``defaults`` as in ``pod_requests``."""
    if not _is_resized(pod, rules):
        return pod_requests(pod.spec, defaults)
    sums = _sums_of_pod if rules.sums_per_pod else _sum_of_containers
    amounts = sums(pod, rules, defaults)
    spec, status = pod.spec, pod.status
    stated = _pod_level(stated_requests(spec))
    if stated:
        effective = stated
        if rules.pod_level and status.resources is not None:
            effective = {} if is_infeasible(pod) else dict(stated)
            raise_to(effective, _pod_level(canonical_amounts(status.resources.requests)))
            raise_to(effective, _pod_level(canonical_amounts(status.allocated_resources)))
            if not rules.sums_per_pod:
                effective = {name: effective.get(name, 0) for name in stated}
        amounts |= effective
    add_overhead(amounts, spec)
    return amounts


def granted_requests(pod: Pod) -> Requests:
    """Return the requests that the pod's node has granted.

    Of a container without a status, these are the spec's.
    """
    if pod.status.allocated_resources:
        return canonical_amounts(pod.status.allocated_resources)
    statuses = _statuses(pod)

    def granted(container: Container) -> Requests:
        status = statuses.get(container.name)
        known = status.allocated_resources if status is not None else {}
        return canonical_amounts(known or container.resources.requests)

    amounts = most_together(pod.spec, granted) | _pod_level(stated_requests(pod.spec))
    add_overhead(amounts, pod.spec)
    return amounts


def least_requests(pod: Pod) -> Requests:
    """Return the minimum of requested, granted and in-force amounts.

    At least this amount becomes free when the pod is removed.
    """
    return pod_requests(with_least_requests(pod).spec)


def with_least_requests(pod: Pod) -> Pod:
    """Return the pod with the minimum of its amounts, as if no resize were under way.

    A smaller resize has been carried out then, and a larger one has been taken back.
    """
    spec, statuses = pod.spec, _statuses(pod)

    def least(container: Container) -> Container:
        status = statuses.get(container.name)
        return container if status is None else least_of(container, status)

    own = spec.resources
    if own is not None:
        own = _least_resources(own, pod.status.allocated_resources, pod.status.resources)
    containers, first = tuple(map(least, spec.containers)), tuple(map(least, spec.init_containers))
    return replace(
        pod,
        spec=replace(spec, containers=containers, init_containers=first, resources=own),
        status=replace(
            pod.status,
            conditions=tuple(one for one in pod.status.conditions if one.type != RESIZE_PENDING),
            container_statuses=(),
            init_container_statuses=(),
            allocated_resources={},
            resources=None,
        ),
    )


def least_of(container: Container, status: ContainerStatus) -> Container:
    """Return a container with the minimum of requested, granted and in-force amounts.

    A pending or infeasible resize does not increase the amounts.
    """
    granted, in_force = status.allocated_resources, status.resources
    if not granted and in_force is None:
        return container
    return replace(container, resources=_least_resources(container.resources, granted, in_force))


def _least_resources(
    own: ResourceRequirements, granted: ResourceList, in_force: ResourceRequirements | None
) -> ResourceRequirements:
    requests, limits = _least(own, granted, in_force), own.limits
    if in_force is not None:
        bounds = in_force.limits
        limits = {name: min(most, bounds.get(name, most)) for name, most in limits.items()}
    return replace(own, requests=requests, limits=limits)


def _least(
    requested: ResourceRequirements, granted: ResourceList, in_force: ResourceRequirements | None
) -> ResourceList:
    known = [granted] if granted else []
    if in_force is not None and in_force.requests:
        known.append(in_force.requests)
    return {
        name: min([amount, *(each[name] for each in known if name in each)])
        for name, amount in requested.requests.items()
    }


def effective_limits(pod: Pod, rules: ResizeRules) -> Requests:
    """Return the limits of the pod on its node; unlimited resources are left out."""
    if not _is_resized(pod, rules):
        return pod_limits(pod.spec)
    spec, status = pod.spec, pod.status
    refused, statuses = is_infeasible(pod), _statuses(pod)

    def in_force(container: Container) -> Requests:
        known = statuses.get(container.name)
        if known is not None and known.resources is not None and known.resources.limits:
            return canonical_amounts(known.resources.limits)
        return {} if refused else canonical_amounts(container.resources.limits)

    # During a resize, the kubelet may apply the old or the new limits at any time, so the larger
    # ones count until the status confirms the new ones.  Releases differ in whether they compare
    # sums of the pod or single containers.
    if rules.sums_per_pod:
        whole = status.resources.limits if rules.pod_level and status.resources else {}
        amounts = canonical_amounts(whole) if whole else most_together(spec, in_force)
        if not refused:
            wanted = most_together(spec, lambda c: canonical_amounts(c.resources.limits))
            for name, amount in _claimed(pod, rules).items():
                if name in wanted or name.startswith("hugepages-"):
                    add(wanted, {name: amount})
            raise_to(amounts, wanted)
    else:
        amounts = most_together(spec, _greatest(pod, statuses, limits=True))
    own = canonical_amounts(spec.resources.limits if spec.resources else None)
    amounts |= _pod_level_limits(pod, rules, _pod_level(own))
    add_overhead(amounts, spec, only={name for name, amount in amounts.items() if amount})
    return amounts


def _pod_level_limits(pod: Pod, rules: ResizeRules, own: Requests) -> Requests:
    """Return the effective pod-level limits; ``own`` are the limits in the spec."""
    status = pod.status
    if not rules.pod_level or status.resources is None:
        return own
    in_force = _pod_level(canonical_amounts(status.resources.limits))
    refused = is_infeasible(pod)
    effective = {} if refused else dict(own)
    raise_to(effective, in_force)
    if rules.sums_per_pod:
        return effective if _pod_level(stated_requests(pod.spec)) else {}
    if refused and not status.resources.limits:
        return own
    return {name: effective.get(name, 0) for name in own}


def _is_resized(pod: Pod, rules: ResizeRules, own: EffectiveAmounts | None = None) -> bool:
    """Return whether the status may differ from the spec; cheap for most pods.

    ``own`` are the amounts of the spec, if they are known.
    """
    spec, status = pod.spec, pod.status
    if not spec.node_name:
        return False
    if is_infeasible(pod):
        return True
    if rules.claims and status.node_allocatable_resource_claim_statuses:
        return True
    return (
        _any_differs(spec.containers, status.container_statuses)
        or _any_differs(spec.init_containers, status.init_container_statuses)
        or (rules.pod_level and _whole_differs(pod, own))
    )


def _whole_differs(pod: Pod, own: EffectiveAmounts | None) -> bool:
    """Return whether the pod-level status may differ from the spec."""
    spec, status = pod.spec, pod.status
    if status.resources is None and not status.allocated_resources:
        return False
    if spec.overhead:  # the kubelet's pod-level amounts include it
        return True
    in_force = status.resources or _NOTHING
    if len(spec.containers) == 1 and not spec.init_containers and spec.resources is None:
        wanted = spec.containers[0].resources
        return (
            status.allocated_resources != wanted.requests
            or in_force.requests != wanted.requests
            or in_force.limits != wanted.limits
        )
    requests = own.requests if own else pod_requests(spec)
    limits = own.limits if own else pod_limits(spec)
    return (
        canonical_amounts(status.allocated_resources) != requests
        or canonical_amounts(in_force.requests) != requests
        or canonical_amounts(in_force.limits) != limits
    )


def _any_differs(containers: tuple[Container, ...], statuses: tuple[ContainerStatus, ...]) -> bool:
    """Return whether a container's status differs from its spec."""
    by_name: dict[str, Container] | None = None
    for at, status in enumerate(statuses):
        if status.resources is None and not status.allocated_resources:
            continue
        container = containers[at] if at < len(containers) else None
        if container is None or container.name != status.name:
            by_name = by_name or {each.name: each for each in containers}
            container = by_name.get(status.name)
        if container is None:
            continue
        wanted, in_force = container.resources, status.resources
        if status.allocated_resources and status.allocated_resources != wanted.requests:
            return True
        if in_force is not None and (
            in_force.requests != wanted.requests or in_force.limits != wanted.limits
        ):
            return True
    return False


def _statuses(pod: Pod) -> dict[str, ContainerStatus]:
    return {
        status.name: status
        for status in (*pod.status.init_container_statuses, *pod.status.container_statuses)
    }


def _sum_of_containers(
    pod: Pod, rules: ResizeRules, defaults: Mapping[str, int] | None
) -> Requests:
    """Return the maximum over time of the containers' greatest amounts."""
    del rules  # the pod-level status applies only to pods with pod-level requests
    greatest = _greatest(pod, _statuses(pod), limits=False)
    return most_together(pod.spec, lambda c: with_missing(greatest(c), defaults))


def _greatest(pod: Pod, statuses: Mapping[str, ContainerStatus], *, limits: bool) -> _AmountsOf:
    """Return a function that computes a container's greatest requests, or limits.

    The status of a plain init container is ignored, and so is a status without in-force amounts.
    """
    refused = is_infeasible(pod)
    plain = {c.name for c in pod.spec.init_containers if c.restart_policy != "Always"}

    def amounts(container: Container) -> Requests:
        wanted = container.resources.limits if limits else container.resources.requests
        status = None if container.name in plain else statuses.get(container.name)
        if status is None or status.resources is None:
            return canonical_amounts(wanted)
        greatest = {} if refused else canonical_amounts(wanted)
        if limits:
            raise_to(greatest, canonical_amounts(status.resources.limits))
        else:
            raise_to(greatest, canonical_amounts(status.resources.requests))
            raise_to(greatest, canonical_amounts(status.allocated_resources))
        return greatest

    return amounts


def _sums_of_pod(pod: Pod, rules: ResizeRules, defaults: Mapping[str, int] | None) -> Requests:
    """Return the maximum of the pod's requested, granted and in-force sums."""
    spec, status, statuses, refused = pod.spec, pod.status, _statuses(pod), is_infeasible(pod)

    def wanted(container: Container) -> ResourceList:
        return container.resources.requests

    def granted(container: Container) -> ResourceList:
        known = statuses.get(container.name)
        if known is not None and known.allocated_resources:
            return known.allocated_resources
        return {} if refused else container.resources.requests

    def in_force(container: Container) -> ResourceList:
        known = statuses.get(container.name)
        if known is not None and known.resources is not None and known.resources.requests:
            return known.resources.requests
        return granted(container)

    def together(of: Callable[[Container], ResourceList]) -> Requests:
        return most_together(spec, lambda c: with_missing(canonical_amounts(of(c)), defaults))

    claimed = _claimed(pod, rules)
    sums: Requests = {} if refused else together(wanted)
    add(sums, {} if refused else claimed)
    own = status.resources.requests if status.resources else {}
    if rules.pod_level and status.allocated_resources and own:
        raise_to(sums, canonical_amounts(status.allocated_resources))
        raise_to(sums, canonical_amounts(own))
    else:
        known = together(granted)  # without the claims; what is in force has them
        add(known, claimed)
        raise_to(sums, known)
        raise_to(sums, together(in_force))
    return sums


def _claimed(pod: Pod, rules: ResizeRules) -> Requests:
    """Return the resources of the node that the pod has by its claims, if they count."""
    statuses = pod.status.node_allocatable_resource_claim_statuses
    return claimed_amounts(statuses) if rules.claims and statuses else {}


def _pod_level(amounts: Requests) -> Requests:
    return {name: amount for name, amount in amounts.items() if is_pod_level(name)}
