"""QoS classes and priority bands of pods."""

import pytest
from msgspec.structs import replace

from koordinator.api.core import ResourceRequirements
from koordinator.api.meta import ObjectMeta
from koordinator.api.pod import Container, Pod, PodSpec, PodStatus
from koordinator.api.qos import (
    BAND_PRIORITIES,
    DEFAULT_PRIORITIES,
    KubeQos,
    PriorityBand,
    QosClass,
    band_of,
    band_of_priority,
    declared_band,
    kube_qos_of,
    priority_of,
    qos_of,
)
from koordinator.api.resource_names import resource_of_band
from koordinator.foundation.quantity import Quantity


def requirements(requests: str = "", limits: str = "") -> ResourceRequirements:
    """Return the resources that texts such as ``cpu=1 memory=1Gi`` name."""

    def parse(text: str) -> dict[str, Quantity]:
        pairs = (part.split("=") for part in text.split())
        return {name: Quantity.parse(amount) for name, amount in pairs}

    return ResourceRequirements(requests=parse(requests), limits=parse(limits))


def pod(
    *resources: ResourceRequirements,
    priority: int | None = None,
    qos_class: str = "",
    **labels: str,
) -> Pod:
    keys = {"qos": "koordinator.sh/qosClass", "band": "koordinator.sh/priority-class"}
    return Pod(
        metadata=ObjectMeta(labels={keys[key]: label for key, label in labels.items()}),
        spec=PodSpec(
            containers=tuple(Container(name="c", resources=each) for each in resources),
            priority=priority,
        ),
        status=PodStatus(qos_class=qos_class),
    )


FULL = "cpu=1 memory=1Gi"


@pytest.mark.parametrize(
    ("resources", "kube_qos"),
    [
        ([requirements()], KubeQos.BEST_EFFORT),
        ([requirements("cpu=0", "memory=0")], KubeQos.BEST_EFFORT),
        ([requirements("nvidia.com/gpu=1", "nvidia.com/gpu=1")], KubeQos.BEST_EFFORT),
        ([requirements(FULL, FULL)], KubeQos.GUARANTEED),
        ([requirements(FULL, FULL), requirements(FULL, FULL)], KubeQos.GUARANTEED),
        ([requirements(FULL, FULL), requirements()], KubeQos.BURSTABLE),
        ([requirements("cpu=1", "cpu=1")], KubeQos.BURSTABLE),
        ([requirements(FULL, "cpu=2 memory=1Gi")], KubeQos.BURSTABLE),
        ([requirements(FULL)], KubeQos.BURSTABLE),
    ],
)
def test_kube_qos_follows_from_cpu_and_memory(
    resources: list[ResourceRequirements], kube_qos: KubeQos
) -> None:
    """Guaranteed needs limits for both everywhere, equal to the requests."""
    assert kube_qos_of(pod(*resources)) is kube_qos


def test_reported_kube_qos_takes_precedence() -> None:
    """The API server has decided already."""
    assert kube_qos_of(pod(requirements(FULL, FULL), qos_class="Burstable")) is KubeQos.BURSTABLE


@pytest.mark.parametrize(
    ("priority", "band"),
    [
        (None, PriorityBand.NONE),
        (0, PriorityBand.NONE),
        (2999, PriorityBand.NONE),
        (3000, PriorityBand.FREE),
        (3999, PriorityBand.FREE),
        (4000, PriorityBand.NONE),
        (5999, PriorityBand.BATCH),
        (7000, PriorityBand.MID),
        (9000, PriorityBand.PROD),
        (9999, PriorityBand.PROD),
        (10_000, PriorityBand.NONE),
        (2_000_000_000, PriorityBand.NONE),
    ],
)
def test_bands_have_gaps(priority: int | None, band: PriorityBand) -> None:
    """A band includes its two ends; a priority between bands has no band."""
    assert band_of_priority(priority) is band


def test_default_priorities_lie_in_their_band() -> None:
    """A priority made of a band leads back to it."""
    for band in BAND_PRIORITIES:
        assert band_of_priority(DEFAULT_PRIORITIES[band]) is band


def test_label_decides_on_the_band_even_if_it_is_unknown() -> None:
    """With the label there, the priority is not looked at."""
    assert declared_band(pod(priority=9500, band="koord-batch")) is PriorityBand.BATCH
    assert declared_band(pod(priority=9500, band="gold")) is PriorityBand.NONE
    assert declared_band(pod(priority=9500)) is PriorityBand.PROD


@pytest.mark.parametrize(
    ("subject", "qos", "band"),
    [
        (pod(requirements("cpu=1")), QosClass.LS, PriorityBand.PROD),
        (pod(requirements()), QosClass.BE, PriorityBand.BATCH),
        (pod(requirements(FULL, FULL)), QosClass.LSR, PriorityBand.PROD),
        (pod(requirements("cpu=1"), qos="BE"), QosClass.BE, PriorityBand.BATCH),
        (pod(requirements("cpu=1"), qos="SYSTEM"), QosClass.SYSTEM, PriorityBand.PROD),
        (pod(requirements(), qos="gold"), QosClass.BE, PriorityBand.BATCH),
        (pod(requirements(), priority=7100), QosClass.BE, PriorityBand.MID),
    ],
)
def test_unlabelled_pods_get_class_and_band_from_their_resources(
    subject: Pod, qos: QosClass, band: PriorityBand
) -> None:
    """A plain Burstable pod counts as prod, a plain BestEffort pod as batch."""
    assert (qos_of(subject), band_of(subject)) == (qos, band)


def test_missing_priority_is_the_default_of_the_band() -> None:
    """A priority of 0 counts as none."""
    assert priority_of(pod(requirements("cpu=1"))) == 9500
    assert priority_of(pod(requirements(), priority=0)) == 5500
    assert priority_of(pod(requirements(), priority=42)) == 42


def test_bands_request_resources_of_their_own() -> None:
    """Batch and mid pods have theirs, free pods none, all others the native ones."""
    assert resource_of_band(PriorityBand.BATCH, "cpu") == "kubernetes.io/batch-cpu"
    assert resource_of_band(PriorityBand.MID, "memory") == "kubernetes.io/mid-memory"
    assert resource_of_band(PriorityBand.PROD, "cpu") == "cpu"
    assert resource_of_band(PriorityBand.FREE, "cpu") is None


@pytest.mark.parametrize(
    ("whole", "kube_qos"),
    [
        (None, KubeQos.GUARANTEED),
        (requirements(), KubeQos.GUARANTEED),
        (requirements("cpu=2"), KubeQos.BURSTABLE),
        (requirements(FULL, FULL), KubeQos.GUARANTEED),
    ],
)
def test_resources_of_the_pod_decide_unless_they_are_empty(
    whole: ResourceRequirements | None, kube_qos: KubeQos
) -> None:
    """As the kubelet of Kubernetes 1.37 does; the containers are Guaranteed."""
    subject = pod(requirements(FULL, FULL), requirements(FULL, FULL))
    assert kube_qos_of(replace(subject, spec=replace(subject.spec, resources=whole))) == kube_qos


def test_one_container_of_another_class_makes_a_pod_burstable() -> None:
    assert kube_qos_of(pod(requirements(FULL, FULL), requirements())) == KubeQos.BURSTABLE
