"""What device plugins of vendors are told, if the gate ``DevicePluginAdaption`` is on.

Not there yet: the lock by which a node serves one pod at a time (``domain.devices.node_lock``).
"""

from collections.abc import Mapping
from functools import partial

from koordinator.api.annotations.devices import DeviceAllocations
from koordinator.api.device import Device
from koordinator.domain.devices.adaptation import Adaptation, adaptation
from koordinator.domain.devices.vendors import AdaptationError
from koordinator.scheduler.contract import Holding, Refusal
from koordinator.scheduler.snapshot import PodClass, Snapshot


def marks(node: Snapshot, pod: PodClass, allocations: DeviceAllocations) -> Holding | Refusal:
    """Return labels, and annotations that carry the time of the bind."""
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
        labels = adapted(now_ns=0).labels
    except AdaptationError as error:
        return Refusal(str(error))
    return Holding(labels=labels, stamps=(partial(_stamp, adapted),))


def _stamp(adapted: "partial[Adaptation]", now_ns: int) -> Mapping[str, str]:
    return adapted(now_ns=now_ns).annotations
