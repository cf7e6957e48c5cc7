"""A pod's device requests with the settings in its annotations, and their form on one model.

On a model, a request is a number of devices of each type and the candidates for them.

Source: koordinator pkg/scheduler/plugins/deviceshare/utils.go, ``preparePod``,
``parsePodDeviceShareExtensions``, ``parseGPURequirements``; koordinator
pkg/scheduler/plugins/deviceshare/plugin.go, ``Filter``; koordinator
pkg/scheduler/plugins/deviceshare: devicehandler_default.go ``CalcDesiredRequestsAndCount``;
device_allocator.go ``Prepare``.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from koordinator.api.annotations.devices import (
    ALLOCATE_HINTS,
    GPU_PARTITION_SPEC,
    JOINT_ALLOCATE,
    DeviceAllocateStrategy,
    DeviceExclusivePolicy,
    DeviceHint,
    GpuPartitionAllocatePolicy,
    JointAllocateScope,
)
from koordinator.api.device import DeviceType, VirtualFunction
from koordinator.api.labels import GPU_MODEL, GPU_VENDOR, gpu_isolation_provider
from koordinator.api.meta import LabelSelector, ObjectMeta
from koordinator.api.resource_names import WHOLE_DEVICE
from koordinator.api.selectors import check_label_selector
from koordinator.domain.devices.allocation import (
    NAMES,
    NO_TEMPLATE,
    NO_VIRTUAL_FUNCTION,
    NOT_REPORTED,
    DeviceAmounts,
    DeviceShortage,
)
from koordinator.domain.devices.model import LEVELS, DeviceGroup, NodeModel, TemplateTable
from koordinator.domain.devices.partitions import PartitionRequest
from koordinator.domain.devices.requests import (
    DeviceRequest,
    DeviceRequestError,
    device_requests,
)
from koordinator.foundation.lazy_dataclass import dataclass

#: Annotations with a pod's device settings.
WISHES: Final = (ALLOCATE_HINTS.key, JOINT_ALLOCATE.key, GPU_PARTITION_SPEC.key)


class DeviceTypeRequest(Struct, frozen=True):
    """The request for one type of device."""

    request: DeviceRequest
    selector: LabelSelector | None = None  # of devices
    function_selector: LabelSelector | None = None  # selects a VF of each device
    strategy: DeviceAllocateStrategy | None = None
    is_exclusive: bool = False  # DeviceLevel: counted devices are whole

    @property
    def kind(self) -> DeviceType:
        return self.request.kind


class PodDeviceRequest(Struct, frozen=True):
    """The devices that a pod requests of a node."""

    wants: tuple[DeviceTypeRequest, ...]  # at least one, in the order of ``DeviceType``
    joint: tuple[DeviceType, ...] = ()  # jointly allocated types, the leading one first
    same_pcie: bool = False  # on the same PCIe roots
    partition: PartitionRequest | None = (
        None  # set: whole GPUs by partition, overriding the node's policy
    )
    scope: int = 0  # level of the largest allowed scope of the GPUs; 0: no requirement
    #: matching virtual templates by model; None: no template is needed
    templates: Mapping[str, tuple[str, ...]] | None = None

    @property
    def gpu(self) -> DeviceRequest | None:
        """The GPU request, None if there is none."""
        first = self.wants[0].request
        return first if first.kind is DeviceType.GPU else None


def pod_device_request(
    meta: ObjectMeta,
    requests: Mapping[str, int],
    templates: TemplateTable,
    templated: Collection[str],
) -> PodDeviceRequest | None:
    """Return the request of a pod, None if it requests no devices.

    A share of a GPU in terms of a ``templated`` resource must match one of the ``templates``.
    Raises DeviceRequestError if no node can satisfy the request, InputError for an invalid
    annotation.
    """
    by_kind = device_requests(requests)
    if not by_kind:
        return None
    hints = ALLOCATE_HINTS.read(meta) or {}
    wants = tuple([_want(request, hints.get(kind)) for kind, request in by_kind.items()])
    joint = JOINT_ALLOCATE.read(meta)
    gpu = by_kind.get(DeviceType.GPU)
    scope = hints[DeviceType.GPU].required_topology_scope if DeviceType.GPU in hints else ""
    spec = GPU_PARTITION_SPEC.read(meta)
    return PodDeviceRequest(
        wants=wants,
        joint=tuple(_together(joint.device_types, wants)) if joint else (),
        same_pcie=joint is not None and joint.required_scope == JointAllocateScope.SAME_PCIE,
        partition=PartitionRequest(
            restricted=spec.allocate_policy == GpuPartitionAllocatePolicy.RESTRICTED,
            bandwidth=spec.ring_bus_bandwidth,
        )
        if spec
        else None,
        # An unknown scope is treated as the widest one.
        scope=next((level for name, level in LEVELS.items() if name == scope), 1) if scope else 0,
        templates=_templates(gpu, templates, templated) if gpu else None,
    )


def _want(request: DeviceRequest, hint: DeviceHint | None) -> DeviceTypeRequest:
    if hint is None:
        return DeviceTypeRequest(request)
    path = f"{ALLOCATE_HINTS.path}.{request.kind}"
    check_label_selector(hint.selector, f"{path}.selector")
    check_label_selector(hint.vf_selector, f"{path}.vfSelector")
    return DeviceTypeRequest(
        request=request,
        selector=hint.selector,
        function_selector=hint.vf_selector,
        strategy=next((s for s in DeviceAllocateStrategy if s == hint.allocate_strategy), None),
        # The other policy, PCIeLevel, has no effect in the original either.
        is_exclusive=hint.exclusive_policy == DeviceExclusivePolicy.DEVICE_LEVEL,
    )


def _together(names: tuple[str, ...], wants: tuple[DeviceTypeRequest, ...]) -> Iterator[DeviceType]:
    """Yield the jointly requested types, except ones with the strategy ApplyForAll."""
    by_name = {str(want.kind): want for want in wants}
    for name in dict.fromkeys(names):
        want = by_name.get(name)
        if want is not None and want.strategy is not DeviceAllocateStrategy.APPLY_FOR_ALL:
            yield want.kind


def _templates(
    gpu: DeviceRequest, templates: TemplateTable, templated: Collection[str]
) -> Mapping[str, tuple[str, ...]] | None:
    amounts = zip(NAMES[DeviceType.GPU], gpu.amounts, strict=True)
    nonzero = {name: amount for name, amount in amounts if amount}
    if not gpu.is_share or nonzero.keys().isdisjoint(templated):
        return None
    matching = templates.matching(nonzero)
    if not matching:
        raise DeviceRequestError(NO_TEMPLATE.reason)
    return matching


def sharing_shortage(
    pod_request: PodDeviceRequest,
    pod_labels: Mapping[str, str],
    node_labels: Mapping[str, str],
    unsupported: Collection[tuple[str, str]],
) -> DeviceShortage | None:
    """Return the reason why the node's GPUs can't be shared as requested; None if they can.

    ``unsupported`` are (vendor, model) pairs whose GPUs are allocated whole only.
    """
    if pod_request.gpu is None or not pod_request.gpu.is_share:
        return None
    wanted = gpu_isolation_provider(pod_labels)
    if wanted and wanted != gpu_isolation_provider(node_labels):
        # An error in the original; removing pods does not help in either case.
        return DeviceShortage(
            "GPUIsolationProviderHAMICore not found on the node", resolvable=False
        )
    vendor, model = node_labels.get(GPU_VENDOR, ""), node_labels.get(GPU_MODEL, "")
    if (vendor, model) in unsupported:
        reason = f'model "{model}" of vendor "{vendor}" does not support GPU Share'
        return DeviceShortage(reason, resolvable=False)
    return None


@dataclass(frozen=True, slots=True)
class DevicePart:
    """``count`` devices of one type, each with these amounts."""

    group: DeviceGroup
    count: int
    amounts: DeviceAmounts
    requests: tuple[tuple[int, int], ...]  # (index, amount) of the non-zero amounts
    selected: int  # devices whose labels match
    is_share: bool = False
    #: matching virtual functions by minor, in order; None: none is needed
    functions: Mapping[int, tuple[VirtualFunction, ...]] | None = None

    @property
    def kind(self) -> DeviceType:
        return self.group.kind

    def candidates(self, offered: int, numa: Collection[int] | None) -> int:
        """Return the devices that are offered, selected and on these NUMA nodes if given."""
        serving = offered & self.selected
        return serving if numa is None else serving & self.group.on_numa(numa)

    def free_function(self, minor: int, taken: Collection[str]) -> VirtualFunction | None:
        """Return the first matching virtual function of a device that is not ``taken``."""
        mine = (self.functions or {}).get(minor, ())
        return next((function for function in mine if function.bus_id not in taken), None)

    def with_function(self, taken: Mapping[int, Collection[str]]) -> int:
        """Return the devices with a free matching function; all if none is needed.

        ``taken`` are bus ids by minor; a missing minor has all its functions free.
        """
        if self.functions is None:
            return self.group.mask
        mask = 0
        for minor, functions in self.functions.items():
            busy = taken.get(minor)
            free = functions if not busy else self.free_function(minor, busy)
            if free:
                mask |= 1 << minor
        return mask


def parts_of(
    model: NodeModel, pod_request: PodDeviceRequest
) -> tuple[DevicePart, ...] | DeviceShortage:
    """Return the parts of the request, or the reason why no node of the model can serve it."""
    return _parts(model, pod_request.wants)


def early_parts_of(
    model: NodeModel, pod_request: PodDeviceRequest, parts: tuple[DevicePart, ...] | DeviceShortage
) -> tuple[DevicePart, ...] | DeviceShortage:
    """Return the parts that are checked before a node is chosen.

    If the secondary devices are paired with whole GPUs by hardware design, the leading type
    suffices.
    """
    planned = (
        model.secondaries_planned and pod_request.gpu is not None and not pod_request.gpu.is_share
    )
    if not planned or not pod_request.joint:
        return parts
    return _parts(model, (want for want in pod_request.wants if want.kind is pod_request.joint[0]))


def _parts(
    model: NodeModel, wants: Iterable[DeviceTypeRequest]
) -> tuple[DevicePart, ...] | DeviceShortage:
    parts = []
    for want in wants:
        part = _part(want, model.group(want.kind))
        if isinstance(part, DeviceShortage):
            return part
        parts.append(part)
    for part in parts:
        if part.functions is not None and not any(d.groups for d in part.group.devices):
            return NO_VIRTUAL_FUNCTION[part.kind]
    return tuple(parts)


def _part(want: DeviceTypeRequest, group: DeviceGroup | None) -> DevicePart | DeviceShortage:
    if group is None:
        return NOT_REPORTED[want.kind]
    selected = group.labelled(want.selector)
    count, amounts = want.request.count, want.request.amounts
    if want.kind is not DeviceType.GPU and count == 1:  # several whole devices: no strategy applies
        if want.strategy is DeviceAllocateStrategy.APPLY_FOR_ALL:
            count = selected.bit_count()
            if not count:
                return NOT_REPORTED[want.kind]
        elif want.strategy is DeviceAllocateStrategy.REQUESTS_AS_COUNT:
            (count,) = amounts
            amounts = (WHOLE_DEVICE if want.is_exclusive else 1,)
    selector = want.function_selector
    return DevicePart(
        group=group,
        count=count,
        amounts=amounts,
        requests=tuple([(place, amount) for place, amount in enumerate(amounts) if amount]),
        selected=selected,
        is_share=want.request.is_share,
        functions=None
        if selector is None
        else {device.minor: group.functions(device.minor, selector) for device in group.devices},
    )
