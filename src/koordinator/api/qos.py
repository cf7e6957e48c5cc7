"""QoS classes and priority bands: what a pod may expect of its node, and what it has to give up.

Source: koordinator apis/extension/qos.go, qos_utils.go, priority.go, priority_utils.go;
k8s.io/kubernetes pkg/apis/core/v1/helper/qos/qos.go, ``ComputePodQOS``.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from koordinator.api.core import ResourceList, ResourceRequirements
from koordinator.api.labels import POD_PRIORITY_CLASS, POD_QOS_CLASS
from koordinator.api.pod import Pod, PodSpec

_OF_KUBE_QOS = ("cpu", "memory")


class QosClass(StrEnum):
    """From the most protected (LSE: own CPUs) to best effort; SYSTEM is for the node's own pods."""

    LSE = "LSE"
    LSR = "LSR"
    LS = "LS"
    BE = "BE"
    SYSTEM = "SYSTEM"
    NONE = ""


class PriorityBand(StrEnum):
    """A range of priorities that is treated alike: Koordinator's "priority class"."""

    PROD = "koord-prod"
    MID = "koord-mid"
    BATCH = "koord-batch"
    FREE = "koord-free"
    NONE = ""


class KubeQos(StrEnum):
    """The QoS class of Kubernetes itself."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


BAND_PRIORITIES: Final = MappingProxyType(
    {
        PriorityBand.PROD: range(9000, 10_000),
        PriorityBand.MID: range(7000, 8000),
        PriorityBand.BATCH: range(5000, 6000),
        PriorityBand.FREE: range(3000, 4000),
    }
)
# Priority of a band where only the band is known; bands are compared by it.
DEFAULT_PRIORITIES: Final = MappingProxyType(
    {
        PriorityBand.PROD: 9500,
        PriorityBand.MID: 7500,
        PriorityBand.BATCH: 5500,
        PriorityBand.FREE: 3500,
        PriorityBand.NONE: 0,
    }
)
# The PriorityClass objects that Koordinator installs.
SHIPPED_PRIORITY_CLASSES: Final = MappingProxyType(
    {
        PriorityBand.PROD: 9000,
        PriorityBand.MID: 7000,
        PriorityBand.BATCH: 5000,
        PriorityBand.FREE: 3000,
    }
)

_QOS_CLASSES = {qos.value: qos for qos in QosClass}
_BANDS = {band.value: band for band in PriorityBand}
_QOS_OF_KUBE_QOS = {
    KubeQos.GUARANTEED: QosClass.LSR,
    KubeQos.BURSTABLE: QosClass.LS,
    KubeQos.BEST_EFFORT: QosClass.BE,
}
_KUBE_QOS_CLASSES = {qos.value: qos for qos in KubeQos}


def labelled_qos(labels: Mapping[str, str]) -> QosClass:
    """Return the QoS class that the label names; NONE if it is missing or unknown."""
    return _QOS_CLASSES.get(labels.get(POD_QOS_CLASS, ""), QosClass.NONE)


def qos_of(pod: Pod) -> QosClass:
    """Return the QoS class of the label, else the one that follows from the resources."""
    labelled = labelled_qos(pod.metadata.labels)
    if labelled is not QosClass.NONE:
        return labelled
    return _QOS_OF_KUBE_QOS[kube_qos_of(pod)]


def band_of_priority(priority: int | None) -> PriorityBand:
    """Return the band in which a priority lies; NONE between and outside of the bands."""
    if priority is not None:
        for band, priorities in BAND_PRIORITIES.items():
            if priority in priorities:
                return band
    return PriorityBand.NONE


def band_named(name: str) -> PriorityBand:
    """Return the band of that name; NONE if there is none."""
    return _BANDS.get(name, PriorityBand.NONE)


def declared_band(pod: Pod) -> PriorityBand:
    """Return the band of the label, else of the priority.  An unknown label is NONE, too."""
    name = pod.metadata.labels.get(POD_PRIORITY_CLASS)
    return band_named(name) if name is not None else band_of_priority(pod.spec.priority)


def band_of_qos(qos: QosClass) -> PriorityBand:
    """Return the priority band of a QoS class."""
    if qos is QosClass.NONE:
        return PriorityBand.NONE
    return PriorityBand.BATCH if qos is QosClass.BE else PriorityBand.PROD


def band_of(pod: Pod) -> PriorityBand:
    """Return the declared band, else the one that follows from the QoS class."""
    band = declared_band(pod)
    return band if band is not PriorityBand.NONE else band_of_qos(qos_of(pod))


def priority_of(pod: Pod) -> int:
    """Return the priority of a pod; if it is absent or 0, the default of its band."""
    return pod.spec.priority or DEFAULT_PRIORITIES[band_of(pod)]


def kube_qos_of(pod: Pod) -> KubeQos:
    """Return the QoS class of Kubernetes: as reported, else from CPU and memory."""
    reported = _KUBE_QOS_CLASSES.get(pod.status.qos_class)
    return reported if reported is not None else _compute_kube_qos(pod.spec)


def _compute_kube_qos(spec: PodSpec) -> KubeQos:
    """Return the class that all containers have, as from 1.37 on; Burstable if they differ."""
    classes = {_class_of(part) for part in _resources_of(spec)}
    if not classes:
        return KubeQos.BEST_EFFORT
    return classes.pop() if len(classes) == 1 else KubeQos.BURSTABLE


def _class_of(part: ResourceRequirements) -> KubeQos:
    """Return the class of CPU and memory together; Burstable if they differ."""
    classes = set()
    for resource in _OF_KUBE_QOS:
        request, limit = _nanos(part.requests, resource), _nanos(part.limits, resource)
        if request != limit:
            return KubeQos.BURSTABLE
        classes.add(KubeQos.GUARANTEED if request else KubeQos.BEST_EFFORT)
    return classes.pop() if len(classes) == 1 else KubeQos.BURSTABLE


def _nanos(amounts: ResourceList, resource: str) -> int:
    amount = amounts.get(resource)
    return 0 if amount is None else amount.nanos


def _resources_of(spec: PodSpec) -> Iterable[ResourceRequirements]:
    whole = spec.resources
    if whole is not None and (whole.requests or whole.limits):  # an empty one decides nothing
        return [whole]
    return [container.resources for container in (*spec.init_containers, *spec.containers)]
