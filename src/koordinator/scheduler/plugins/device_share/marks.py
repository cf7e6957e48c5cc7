"""What device plugins of vendors are told, if the gate ``DevicePluginAdaption`` is on."""

from collections.abc import Mapping
from functools import partial

from koordinator.api.annotations.devices import DeviceAllocations
from koordinator.api.device import Device
from koordinator.domain.devices.adaptation import Adaptation, adaptation
from koordinator.domain.devices.vendors import AdaptationError
from koordinator.scheduler.contract import AllocationResult, Refusal
from koordinator.scheduler.snapshot import PodClass, Snapshot


def marks(
    node: Snapshot, pod: PodClass, allocations: DeviceAllocations
) -> AllocationResult | Refusal:
    """Return labels, annotations that carry the time of the bind, and how the node is locked."""
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
        told = adapted(now_ns=0)
    except AdaptationError as error:
        return Refusal(str(error))
    stamps = (partial(_stamp, adapted),)
    return AllocationResult(labels=told.labels, stamps=stamps, node_lock=told.node_lock)


def _stamp(adapted: "partial[Adaptation]", now_ns: int) -> Mapping[str, str]:
    return adapted(now_ns=now_ns).annotations
