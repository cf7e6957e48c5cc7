"""Annotations and labels of a pod, bounded by its spec and by the node's settings.

Every client that may patch the pod can write them, so no other module of the agent reads them.
Settings of the pod's author may only lower what the spec requests; allocations of the scheduler and
the manager are bounded by the spec.  A pod that the runtime starts before the watch has delivered
it has no spec yet: until then the annotations that the runtime passes apply unbounded.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from koordinator.api.annotations.codec import read_int32
from koordinator.api.annotations.devices import (
    ALLOCATE_HINTS,
    ALLOCATED,
    JOINT_ALLOCATE,
    DeviceAllocateStrategy,
    DeviceAllocation,
    DeviceAllocations,
)
from koordinator.api.annotations.numa import RESOURCE_STATUS
from koordinator.api.annotations.pod_qos import (
    CPU_BURST,
    EXTENDED_RESOURCE_SPEC,
    MEMORY_QOS,
    OOM_SCORE_ADJ,
    OOM_SCORE_ADJ_SPEC,
    RESCTRL,
    ExtendedContainerResources,
    ExtendedResourceSpec,
    PodMemoryQos,
    ResctrlConfig,
    ResctrlResource,
    read_cpu_qos,
)
from koordinator.api.bounds import accepted_by
from koordinator.api.core import ResourceList
from koordinator.api.device import DeviceType
from koordinator.api.meta import ObjectMeta
from koordinator.api.node_slo import CpuBurstSettings, overlaid
from koordinator.api.pod import Pod
from koordinator.api.resource_names import BATCH_CPU, BATCH_MEMORY, CPU
from koordinator.api.resource_qos import MemorySettings, ResctrlQos
from koordinator.domain.devices.allocation import NAMES, amounts_of
from koordinator.domain.devices.requests import (
    DeviceRequest,
    DeviceRequestError,
    device_requests,
)
from koordinator.domain.pod_requests import pod_requests
from koordinator.domain.resized_pods import least_requests
from koordinator.foundation.cpu_list import parse_cpu_list
from koordinator.foundation.errors import InputError
from koordinator.foundation.masks import lowest
from koordinator.foundation.quantity import Quantity

BatchResources = Mapping[str, ExtendedContainerResources]  # by name of the container

_MILLI: Final = 1000
_BATCH: Final = (BATCH_CPU, BATCH_MEMORY)
_NO_BATCH: Final = ExtendedContainerResources()
#: Limits that a container may exceed under each policy of CPU burst.
_BURSTS: Final[Mapping[str, frozenset[str]]] = {
    "none": frozenset(),
    "cpuBurstOnly": frozenset({"burst"}),
    "cfsQuotaBurstOnly": frozenset({"quota"}),
    "auto": frozenset({"burst", "quota"}),
}
_POLICY_OF: Final = {bursts: policy for policy, bursts in _BURSTS.items()}


def is_spec_known(pod: Pod) -> bool:
    """Return whether the pod is from the API server; a pod from the runtime has no containers."""
    return bool(pod.spec.containers)


def stated_cpus(meta: ObjectMeta) -> int:
    """Return the CPUs in a pod's annotation as a mask; 0 if it is invalid."""
    try:
        allocation = RESOURCE_STATUS.read(meta)
        return parse_cpu_list(allocation.cpuset) if allocation is not None else 0
    except InputError:
        return 0


def granted_cpus(pod: Pod, mask: int) -> int:
    """Return the lowest CPUs of a mask, as many as the pod requests whole ones."""
    if not mask or not is_spec_known(pod):
        return mask
    return lowest(mask, least_requests(pod).get(CPU, 0) // _MILLI)


def allocated_numa_nodes(pod: Pod) -> tuple[int, ...]:
    """Return the NUMA nodes from which a pod was allocated CPU, in the order of the annotation.

    Return none for a pod without a CPU request: it must stay on the CPUs of its tier.
    """
    try:
        allocation = RESOURCE_STATUS.read(pod.metadata)
    except InputError:
        return ()
    if allocation is None or not allocation.numa_node_resources:
        return ()
    names = {CPU, BATCH_CPU}
    if is_spec_known(pod):
        requests = pod_requests(pod.spec)
        names = {name for name in names if requests.get(name, 0)}
    nodes = [
        part.node
        for part in allocation.numa_node_resources
        if any(name in part.resources and part.resources[name].nanos > 0 for name in names)
    ]
    return tuple(dict.fromkeys(nodes))


def batch_resources(pod: Pod) -> BatchResources:
    """Return the batch resources by container: the annotation's, bounded by the spec's.

    Containers without batch resources are left out: the kubelet sets their values.  Without a limit
    in the annotation the limit of the spec applies.  An invalid annotation is ignored.
    """
    try:
        stated = EXTENDED_RESOURCE_SPEC.read(pod.metadata)
    except InputError:
        stated = None
    if stated is not None and not is_spec_known(pod):
        return stated.containers
    of_spec = {
        spec.name: ExtendedContainerResources(
            requests=spec.resources.requests, limits=spec.resources.limits
        )
        for spec in (*pod.spec.containers, *pod.spec.init_containers)
    }
    if stated is None or not stated.containers:
        return {name: part for name, part in of_spec.items() if _has_batch(part)}
    return dict(_bounded_batch(stated, of_spec))


def _bounded_batch(
    stated: ExtendedResourceSpec, of_spec: BatchResources
) -> Iterator[tuple[str, ExtendedContainerResources]]:
    for name, spec in of_spec.items():
        own = stated.containers.get(name)
        if own is None and not _has_batch(spec):
            continue
        own = own or _NO_BATCH
        requests, limits = {}, {}
        for resource in _BATCH:
            requested = _positive(spec.requests, resource)
            limited = _positive(spec.limits, resource)
            lower = _positive(own.requests, resource)
            if requested is not None:
                requests[resource] = requested if lower is None else min(requested, lower)
            upper = [
                amount
                for amount in (limited, _positive(own.limits, resource))
                if amount is not None
            ]
            if upper:
                limits[resource] = min(upper)
        yield name, ExtendedContainerResources(requests=requests, limits=limits)


def _has_batch(part: ExtendedContainerResources) -> bool:
    return any(name in part.requests or name in part.limits for name in _BATCH)


def _positive(amounts: ResourceList, name: str) -> Quantity | None:
    amount = amounts.get(name)
    return amount if amount is not None and amount.nanos > 0 else None


def memory_settings(
    meta: ObjectMeta,
    of_class: MemorySettings,
    auto: MemorySettings | None,
    none: MemorySettings,
    *,
    protects: bool,
) -> MemorySettings:
    """Return the memory QoS of a pod: its own settings over its policy's.

    ``of_class`` are the node's settings for the pod's class; ``auto`` and ``none`` are the base of
    these policies.  Own settings protect at most the request, and only if ``protects``; they give
    no precedence over other pods of the class.  Out-of-range numbers and an invalid annotation are
    ignored.
    """
    try:
        own = MEMORY_QOS.read(meta)
    except InputError:
        own = None
    if own is None:
        return of_class
    if own.policy == "none":
        base = none
    else:
        base = (auto if own.policy == "auto" else None) or of_class
        base = overlaid(_plain(base), _plain(_within_bounds(own)))
    changes: dict[str, int | None] = {
        "wmark_min_adj": _at_least(base.wmark_min_adj, of_class.wmark_min_adj),
        "priority": _at_most(base.priority, of_class.priority),
    }
    if not protects:
        for name in ("min_limit_percent", "low_limit_percent"):
            changes[name] = _at_most(getattr(base, name), getattr(of_class, name))
    return replace(base, **changes)


def _plain(settings: MemorySettings) -> MemorySettings:
    names = MemorySettings.__struct_fields__
    return MemorySettings(**{name: getattr(settings, name) for name in names})


def _within_bounds(own: PodMemoryQos) -> PodMemoryQos:
    out_of_range = {
        name: None
        for name, accepted in accepted_by(MemorySettings).items()
        if (value := getattr(own, name)) is not None and value not in accepted.configured
    }
    return replace(own, **out_of_range) if out_of_range else own


def _at_most(own: int | None, of_class: int | None) -> int | None:
    return own if own is None else min(own, of_class or 0)


def _at_least(own: int | None, of_class: int | None) -> int | None:
    return own if own is None else max(own, of_class or 0)


def burst_settings(meta: ObjectMeta, of_node: CpuBurstSettings) -> CpuBurstSettings:
    """Return the CPU burst of a pod: its own settings, bounded by the node's.

    An invalid annotation is ignored.
    """
    try:
        own = CPU_BURST.read(meta)
    except InputError:
        own = None
    if own is None:
        return of_node
    requested = overlaid(of_node, own)
    bursts = _BURSTS.get(requested.policy, frozenset()) & _BURSTS.get(of_node.policy, frozenset())
    longest = of_node.cfs_quota_burst_period_seconds
    period = requested.cfs_quota_burst_period_seconds
    if longest is not None and longest >= 0 and period is not None:
        period = min(period, longest) if period >= 0 else longest
    return replace(
        requested,
        policy=_POLICY_OF[bursts],
        cpu_burst_percent=_lower(requested.cpu_burst_percent, of_node.cpu_burst_percent),
        cfs_quota_burst_percent=_lower(
            requested.cfs_quota_burst_percent, of_node.cfs_quota_burst_percent
        ),
        cfs_quota_burst_period_seconds=period,
    )


def _lower(own: int | None, of_node: int | None) -> int | None:
    return None if own is None or of_node is None else min(own, of_node)


def group_identity(meta: ObjectMeta, of_class: int) -> int:
    """Return the group identity of an LS pod: its own if lower; 0 if ``enable`` is false.

    Settings without an identity keep the class's identity.
    """
    try:
        own = read_cpu_qos(meta)
    except InputError:
        own = None
    if own is None:
        return of_class
    identity = 0 if own.enable is False else own.group_identity
    return of_class if identity is None else min(identity, of_class)


def oom_scores(meta: ObjectMeta) -> tuple[Mapping[str, int], int | None]:
    """Return the OOM score adjustments by container, and the default of the other containers."""
    try:
        by_container = OOM_SCORE_ADJ_SPEC.read(meta) or {}
    except InputError:
        by_container = {}
    try:
        return by_container, read_int32(meta, OOM_SCORE_ADJ)
    except InputError:
        return by_container, None


def cache_shares(meta: ObjectMeta, of_class: ResctrlQos) -> ResctrlConfig | None:
    """Return a pod's own shares of caches and memory bandwidth; None if it requests none.

    If the class is limited to a share, the pod's share is a part of that.
    """
    try:
        own = RESCTRL.read(meta)
    except InputError:
        return None
    if own is None or not of_class.enable:
        return own
    start = of_class.cat_range_start_percent or 0
    end = of_class.cat_range_end_percent or 100
    percent = of_class.mba_percent or 100

    def range_within(requested: tuple[int, ...]) -> tuple[int, ...]:
        if len(requested) != 2:  # noqa: PLR2004 -- from, to
            return requested or (start, end)
        low, high = max(requested[0], start), min(requested[1], end)
        return (low, high) if low < high else (start, end)

    def percent_within(requested: int) -> int:
        return min(requested, percent) if requested else percent

    return ResctrlConfig(
        llc=ResctrlResource(
            schemata=replace(own.llc.schemata, range=range_within(own.llc.schemata.range)),
            schemata_per_cache=tuple(
                replace(each, range=range_within(each.range)) if each.range else each
                for each in own.llc.schemata_per_cache
            ),
        ),
        mb=ResctrlResource(
            schemata=replace(own.mb.schemata, percent=percent_within(own.mb.schemata.percent)),
            schemata_per_cache=tuple(
                replace(each, percent=percent_within(each.percent)) if each.percent else each
                for each in own.mb.schemata_per_cache
            ),
        ),
    )


def allocated_devices(pod: Pod) -> DeviceAllocations:
    """Return the devices that the scheduler allocated to a pod, by type.

    Raises InputError for an invalid annotation, or one that exceeds the pod's requests.
    """
    allocated = ALLOCATED.read(pod.metadata) or {}
    kinds = [kind for kind in NAMES if allocated.get(kind)]
    if not kinds or not is_spec_known(pod):
        return allocated
    try:
        requests = device_requests(pod_requests(pod.spec))
    except DeviceRequestError as error:
        raise InputError(f"the pod requests no devices: {error}", path=ALLOCATED.path) from None
    for kind in kinds:
        path = f"{ALLOCATED.path}.{kind}"
        if kind not in requests:
            raise InputError("must be empty: the pod requests no such devices", path=path)
        most = _most_devices(pod.metadata, kind, requests)
        if most is not None and len(allocated[kind]) > most:
            problem = f"must be at most {most} devices as requested, got {len(allocated[kind])}"
            raise InputError(problem, path=path)
        for index, device in enumerate(allocated[kind]):
            _check_amounts(kind, device, requests[kind], f"{path}[{index}]")
    return allocated


def _most_devices(
    meta: ObjectMeta, kind: DeviceType, requests: Mapping[DeviceType, DeviceRequest]
) -> int | None:
    """Return the maximum number of devices of a type; None for all of the node.

    With joint allocation the scheduler adds devices of one type near devices of another.
    """
    hints = ALLOCATE_HINTS.read(meta) or {}
    if kind in hints and hints[kind].allocate_strategy == DeviceAllocateStrategy.APPLY_FOR_ALL:
        return None
    joint = JOINT_ALLOCATE.read(meta)
    together = joint.device_types if joint is not None else ()
    counts = [
        request.count for name, request in requests.items() if kind in together and name in together
    ]
    return max([requests[kind].count, *counts])


def requests_gpu_share(pod: Pod) -> bool:
    """Return whether a pod requests a part of a GPU; False for a pod without spec."""
    try:
        gpus = device_requests(pod_requests(pod.spec)).get(DeviceType.GPU)
    except DeviceRequestError:
        return False
    return gpus is not None and gpus.is_share


def _check_amounts(
    kind: DeviceType, device: DeviceAllocation, request: DeviceRequest, path: str
) -> None:
    amounts = amounts_of(kind, device.resources)
    for name, amount, requested in zip(NAMES[kind], amounts, request.amounts, strict=True):
        if requested and amount > requested:
            field_path = f"{path}.resources[{name}]"
            raise InputError(
                f"must be at most {requested} as requested, got {amount}", path=field_path
            )
