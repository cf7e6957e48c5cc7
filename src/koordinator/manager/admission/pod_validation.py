"""Validation of pods: combinations of QoS class, priority and devices; quotas; labels.

Messages reproduce the original's, in the form of Kubernetes' field errors.
Source: koordinator pkg/webhook/pod/validating/cluster_colocation_profile.go,
verify_device_resource.go, verify_annotations.go.
"""

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet

from msgspec.structs import replace

from koordinator.api.codec import decode
from koordinator.api.labels import POD_PRIORITY, POD_QOS_CLASS
from koordinator.api.pod import Pod
from koordinator.api.qos import PriorityBand, QosClass, declared_band, labelled_qos
from koordinator.api.resource_names import (
    BATCH_CPU,
    BATCH_MEMORY,
    CPU,
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    NPU_CORE,
    WHOLE_DEVICE,
)
from koordinator.domain.pod_requests import pod_requests
from koordinator.domain.quota import message_for_clients
from koordinator.foundation.errors import InputError
from koordinator.foundation.quantity import Quantity
from koordinator.manager.admission.gates import ManagerFeature
from koordinator.manager.admission.lookup import (
    AdmissionOperation,
    AdmissionRequest,
    Denial,
    Lookup,
)
from koordinator.manager.admission.metadata import (
    CONFIG_NAME,
    check_annotations,
    missing_labels,
    read_label_rules,
)
from koordinator.manager.admission.quotas import check_pod_in_quota
from koordinator.manager.admission.tenancy import check_pod_tenancy, check_scheduler_keys

RESERVE_POD = "scheduling.koordinator.sh/reserve-pod"
_REQUESTS = "pod.spec.containers[*].resources.requests"
_QOS = f"labels.{POD_QOS_CLASS}"
_MILLIS = 1000
_NOTHING = Quantity(0)

#: QoS class -> bands that it can't be combined with.
FORBIDDEN: Mapping[QosClass, frozenset[PriorityBand]] = {
    QosClass.BE: frozenset((PriorityBand.NONE, PriorityBand.PROD)),
    QosClass.LSR: frozenset(
        (PriorityBand.NONE, PriorityBand.MID, PriorityBand.BATCH, PriorityBand.FREE)
    ),
}

VALIDATOR_NAMESPACE = "koordinator-system"
RESIZE = "resize"  # subresource of pods


def reserve_problems(pod: Pod) -> Iterator[str]:
    """Yield problems of annotations that only the scheduler may set."""
    if RESERVE_POD in pod.metadata.annotations:
        yield f"annotations.{RESERVE_POD}: Forbidden: cannot set in annotations"


def change_problems(old: Pod, new: Pod, *, keeps_priority: bool) -> Iterator[str]:
    """Yield immutable fields that an update changes.

    ``keeps_priority``: the priority within a band is immutable, too.
    """
    before, after = labelled_qos(old.metadata.labels), labelled_qos(new.metadata.labels)
    if before != after:
        yield _immutable(_QOS, after)
    if declared_band(old) != declared_band(new):
        yield _immutable("spec.priority", declared_band(new))
    label = new.metadata.labels.get(POD_PRIORITY, "")
    if keeps_priority and old.metadata.labels.get(POD_PRIORITY, "") != label:
        yield _immutable(f"labels.{POD_PRIORITY}", label)


def colocation_problems(pod: Pod) -> Iterator[str]:
    """Yield problems of QoS class, priority and requests."""
    qos, band = labelled_qos(pod.metadata.labels), declared_band(pod)
    requests = pod_requests(pod.spec)
    if (requests.get(BATCH_CPU) or requests.get(BATCH_MEMORY)) and qos is not QosClass.BE:
        yield (
            f"{_QOS}: Required value: "
            "must specify koordinator QoS BE with koordinator colocation resources"
        )
    if band in FORBIDDEN.get(qos, ()):
        yield (
            f"Pod: Forbidden: {POD_QOS_CLASS}={qos} and priorityClass={band} "
            "cannot be used in combination"
        )
    if qos in (QosClass.LSR, QosClass.LSE):
        cpu = requests.get(CPU, 0)
        if not cpu:
            yield f"{_REQUESTS}: Required value: LSR Pod must declare the requested CPUs"
        elif cpu % _MILLIS:
            shown = Quantity.from_milli(cpu)
            yield (
                f'{_REQUESTS}: Invalid value: "{shown}": '
                "the requested CPUs of LSR Pod must be integer"
            )


def device_problems(pod: Pod) -> Iterator[str]:
    """Yield problems of the GPU requests of each container, init containers last."""
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        requests = container.resources.requests
        if GPU in requests and GPU_SHARED in requests:
            yield f"{_REQUESTS}: Forbidden: Forbidden declare GPU and GPU share at same time"
            continue
        if GPU in requests:
            yield from _gpu_problems(requests[GPU])
        if GPU_SHARED in requests:
            yield from _share_problems(requests)


def _gpu_problems(amount: Quantity) -> Iterator[str]:
    if not amount.value():
        yield _invalid(amount, "the requested GPU must be greater than zero")
    if amount.value() > WHOLE_DEVICE and amount.value() % WHOLE_DEVICE:
        yield _invalid(amount, "the requested GPU must be percentage of 100")


def _share_problems(requests: Mapping[str, Quantity]) -> Iterator[str]:
    shared = requests[GPU_SHARED]
    if not shared.value():
        yield _invalid(shared, "the requested GPU must be greater than zero")
    if requests.get(NPU_CORE, _NOTHING).value():
        return
    memory, ratio = requests.get(GPU_MEMORY, _NOTHING), requests.get(GPU_MEMORY_RATIO, _NOTHING)
    if not memory.value() and not ratio.value():
        yield f"{_REQUESTS}: Forbidden: GPU memory and GPU memory ratio all is zero"
    if memory.value() and ratio.value():
        yield f"{_REQUESTS}: Forbidden: declare GPU memory and GPU memory ratio at same time"
    if shared.value():
        core = requests.get(GPU_CORE, _NOTHING)
        if core.value() % shared.value():
            yield _invalid(core, "the requested gpuCore must multiple of shared")
        if ratio.value() % shared.value():
            yield _invalid(ratio, "the requested gpuMemoryRatio must multiple of shared")


def _immutable(path: str, value: str) -> str:
    return f'{path}: Invalid value: "{value}": field is immutable'


def _invalid(value: Quantity, problem: str) -> str:
    return f'{_REQUESTS}: Invalid value: "{value.canonical()}": {problem}'


def validate_pod(
    request: AdmissionRequest,
    lookup: Lookup,
    gates: AbstractSet[ManagerFeature],
    validator: tuple[str, str] = (VALIDATOR_NAMESPACE, CONFIG_NAME),
) -> None:
    """Raise Denial with the problems of the first group of rules that the pod violates.

    An in-place resize is validated as any other update; other subresources are not validated.

    ``validator`` is the namespace and name of the ConfigMap with required labels.
    """
    if request.subresource not in ("", RESIZE) or request.operation == AdmissionOperation.DELETE:
        return
    try:
        new = _in_namespace(decode(request.obj, Pod), request.namespace)
        old = decode(request.old, Pod) if request.old is not None else None
        check_annotations(new, old)
        _deny_if_any(reserve_problems(new))
        if old is not None:
            check_scheduler_keys(request, old, new, lookup)
        if ManagerFeature.STRICT_TENANCY in gates:
            check_pod_tenancy(request, old, new, lookup.quotas(), lookup)
        changed = (
            ()
            if old is None
            else change_problems(old, new, keeps_priority=ManagerFeature.SKIP_PRIORITY not in gates)
        )
        _deny_if_any([*changed, *colocation_problems(new)])
        if ManagerFeature.VALIDATE_DEVICES in gates:
            _deny_if_any(device_problems(new))
        if ManagerFeature.ENHANCED_VALIDATOR in gates:
            rules = read_label_rules(lookup.config_map(*validator))
            if missing := missing_labels(new, rules):
                raise Denial(missing)
        dry = request.is_dry_run  # last: a pod that is denied must not be charged to its quota
        check_pod_in_quota(request.operation, old, new, lookup, gates, is_dry_run=dry)
    except InputError as error:
        raise Denial(message_for_clients(error)) from None


def _deny_if_any(problems: Iterable[str]) -> None:
    distinct = list(dict.fromkeys(problems))
    if distinct:
        raise Denial(distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]")


def _in_namespace(pod: Pod, namespace: str) -> Pod:
    """Return the pod with its namespace set; a pod created from a template may lack it."""
    if pod.metadata.namespace or not namespace:
        return pod
    return replace(pod, metadata=replace(pod.metadata, namespace=namespace))
