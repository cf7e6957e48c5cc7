"""Annotations and labels of pods that only the scheduler and the manager may write.

They record the CPUs, devices and reservation allocated to a pod; a user who could set them would
take resources that were never allocated.  Mutation removes them from new pods, and validation
denies updates that change them.
"""

from typing import Final

from koordinator.api.annotations.devices import (
    ALLOCATED,
    BIND_TIMESTAMP,
    CAMBRICON_ASSIGNED,
    CAMBRICON_PROFILE,
    GPU_MINORS,
    HUAWEI_ASCEND_310P,
    HUAWEI_NPU_CORE,
    HUAWEI_PREDICATE_TIME,
    METAX_ALLOCATED,
)
from koordinator.api.annotations.numa import RESOURCE_STATUS
from koordinator.api.annotations.pod_qos import EXTENDED_RESOURCE_SPEC
from koordinator.api.annotations.reservation import ALLOCATED as RESERVATION_ALLOCATED
from koordinator.api.authorization import ResourceAttributes
from koordinator.api.labels import VGPU_NODE
from koordinator.api.meta import JsonObject
from koordinator.api.pod import Pod
from koordinator.manager.admission.lookup import Lookup
from koordinator.manager.admission.request import AdmissionRequest, Denial
from koordinator.manager.admission.tenancy import is_permitted

ANNOTATIONS: Final = frozenset(
    (
        ALLOCATED.key,
        RESOURCE_STATUS.key,
        RESERVATION_ALLOCATED.key,
        EXTENDED_RESOURCE_SPEC.key,
        BIND_TIMESTAMP,
        GPU_MINORS,
        HUAWEI_PREDICATE_TIME,
        HUAWEI_NPU_CORE,
        HUAWEI_ASCEND_310P,
        CAMBRICON_ASSIGNED,
        CAMBRICON_PROFILE,
        METAX_ALLOCATED.key,
    )
)
LABELS: Final = frozenset((VGPU_NODE,))
_FORBIDDEN = 403


def without_scheduler_keys(pod: JsonObject) -> JsonObject:
    """Return the pod without scheduler keys; the same object if it has none."""
    meta = pod.get("metadata") or {}
    changed = {
        part: {key: text for key, text in entries.items() if key not in keys}
        for part, keys in (("annotations", ANNOTATIONS), ("labels", LABELS))
        if keys & (entries := meta.get(part) or {}).keys()
    }
    return {**pod, "metadata": {**meta, **changed}} if changed else pod


def check_scheduler_keys(request: AdmissionRequest, old: Pod, new: Pod, lookup: Lookup) -> None:
    """Raise Denial if an update changes a scheduler key, unless the user may bind the pod."""
    changed = [
        f"metadata.{part}[{key}]"
        for part, keys, before, after in (
            ("annotations", ANNOTATIONS, old.metadata.annotations, new.metadata.annotations),
            ("labels", LABELS, old.metadata.labels, new.metadata.labels),
        )
        for key in sorted(keys)
        if before.get(key) != after.get(key)
    ]
    if not changed or request.is_of_component:
        return
    binding = ResourceAttributes(
        namespace=request.namespace, verb="create", resource="pods", subresource="binding"
    )
    if not is_permitted(request, lookup, binding):
        raise Denial(
            f"{changed[0]}: Forbidden: must not be changed by users who may not create "
            f"pods/binding in namespace {request.namespace!r}: the scheduler writes it",
            _FORBIDDEN,
        )
