"""Labels and annotations for vendors' device plugins (gate ``DevicePluginAdaption``)."""

from collections.abc import Mapping
from functools import partial

from koordinator.api.annotations.devices import DeviceAllocations
from koordinator.api.annotations.reservation import RESIZE_ALLOCATABLE, ResizeAllocatable
from koordinator.api.device import Device
from koordinator.api.meta import ObjectMeta
from koordinator.domain.devices.adaptation import Adaptation, adaptation
from koordinator.domain.devices.vendors import AdaptationError
from koordinator.foundation.errors import InputError
from koordinator.foundation.quantity import Quantity
from koordinator.scheduler.contract import AllocationResult, Refusal
from koordinator.scheduler.snapshot import PodClass, Snapshot


def marks(
    node: Snapshot, pod: PodClass, allocations: DeviceAllocations
) -> AllocationResult | Refusal:
    """Return labels, annotations stamped with the bind time, and the node lock to take."""
    name = node.node_names[0]
    reported = node.objects.get(Device, name)
    adapted = partial(
        adaptation,
        allocations,
        node_name=name,
        device_labels=reported.metadata.labels if reported else {},
        pod_labels=pod.labels,
    )
    try:
        adapted_now = adapted(now_ns=0)
    except AdaptationError as error:
        return Refusal(str(error))
    stamps = (partial(_stamp, adapted),)
    return AllocationResult(
        labels=adapted_now.labels, stamps=stamps, node_lock=adapted_now.node_lock
    )


def _stamp(adapted: "partial[Adaptation]", now_ns: int) -> Mapping[str, str]:
    return adapted(now_ns=now_ns).annotations


def resized(pod: PodClass, allocations: DeviceAllocations) -> Mapping[str, str] | Refusal:
    """Return the annotation with its previous resources and the amounts of all devices."""
    try:
        previous = RESIZE_ALLOCATABLE.read(ObjectMeta(annotations=dict(pod.annotations)))
    except InputError as error:
        return Refusal(str(error))
    totals: dict[str, Quantity] = {}
    for devices in allocations.values():
        for device in devices:
            for name, amount in device.resources.items():
                totals[name] = totals[name] + amount if name in totals else amount
    resources = {**(previous.resources if previous else {}), **totals}
    return RESIZE_ALLOCATABLE.entry(ResizeAllocatable(resources=resources))
