"""The binding subresource of pods in the in-memory API server.

Source: k8s.io/kubernetes v1.35 pkg/registry/core/pod/storage/storage.go
``BindingREST.setPodNodeAndMetadata``.
"""

import datetime as dt
from typing import Any

from msgspec.structs import replace

from koordinator.api.meta import Condition
from koordinator.api.pod import Pod
from koordinator.cluster.memory.conditions import with_condition
from koordinator.cluster.port import Binding
from koordinator.foundation.errors import ConflictError, InvalidError

_SCHEDULED = Condition(type="PodScheduled", status="True")


def bound(pod: Pod, binding: Binding, now: dt.datetime) -> Pod:
    """Return the pod on its node.  Raises ConflictError, InvalidError."""
    meta, spec, status = pod.metadata, pod.spec, pod.status
    if not binding.node:
        raise InvalidError(f"binding of pod {pod.key}: target.name: is required")
    if binding.uid and binding.uid != meta.uid:
        raise ConflictError(
            f"pod {pod.key}: Precondition failed: UID in precondition: {binding.uid}, "
            f"UID in object meta: {meta.uid}"
        )
    if meta.deletion_timestamp is not None:
        raise ConflictError(f"pod {pod.key} is being deleted, cannot be assigned to a host")
    if spec.node_name:
        raise ConflictError(f'pod {pod.key} is already assigned to node "{spec.node_name}"')
    if spec.scheduling_gates:
        raise ConflictError(f"pod {pod.key} has non-empty .spec.schedulingGates")
    if status.nominated_node_name:
        status = replace(status, nominated_node_name="")
    merged = _merged_metadata(pod, binding)
    return replace(
        pod,
        metadata=replace(meta, **merged) if merged else meta,
        spec=replace(spec, node_name=binding.node),
        status=with_condition(status, _SCHEDULED, now),
    )


def _merged_metadata(pod: Pod, binding: Binding) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if binding.annotations:
        changes["annotations"] = {**pod.metadata.annotations, **binding.annotations}
    if binding.labels:
        changes["labels"] = {**pod.metadata.labels, **binding.labels}
    return changes
