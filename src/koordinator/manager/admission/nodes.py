"""Nodes: amplification of what kubelets report, and labels that two strategies select.

Source: koordinator pkg/webhook/node.
"""

from collections.abc import Set as AbstractSet

from msgspec.structs import replace

from koordinator.api.codec import apply_merge_patch, decode, merge_patch
from koordinator.api.meta import JsonObject
from koordinator.api.node import Node
from koordinator.foundation.errors import InputError
from koordinator.manager.admission.gates import ManagerFeature
from koordinator.manager.admission.lookup import Lookup
from koordinator.manager.admission.request import AdmissionOperation, AdmissionRequest, Denial
from koordinator.manager.configuration.checks import check_node
from koordinator.manager.node_resources.ratios import amplified

_INTERNAL = 500


def mutate_node_status(
    request: AdmissionRequest,
    lookup: Lookup,  # noqa: ARG001 -- the signature of a hook
    gates: AbstractSet[ManagerFeature],  # noqa: ARG001
) -> JsonObject:
    """Return the node with its amplified allocatable; only updates of the status change it.

    Raises Denial for a node that can't be decoded.
    """
    if request.operation != AdmissionOperation.UPDATE or request.subresource != "status":
        return request.obj
    try:
        old, new = decode(request.old or {}, Node), decode(request.obj, Node)
        meta, allocatable = amplified(old, new)
    except InputError as error:
        raise Denial(str(error), _INTERNAL) from None
    shown = replace(new, metadata=meta, status=replace(new.status, allocatable=allocatable))
    return apply_merge_patch(request.obj, merge_patch(new, shown))


def validate_node(
    request: AdmissionRequest,
    lookup: Lookup,
    gates: AbstractSet[ManagerFeature],  # noqa: ARG001 -- the signature of a hook
    config: tuple[str, str] = ("koordinator-system", "slo-controller-config"),
) -> None:
    """Raise Denial if a label change makes two strategies of one section select the node."""
    if request.operation != AdmissionOperation.UPDATE or request.subresource:
        return
    old_labels = ((request.old or {}).get("metadata") or {}).get("labels") or {}
    if old_labels == ((request.obj.get("metadata") or {}).get("labels") or {}):
        return
    config_map = lookup.config_map(*config)
    if config_map is None:
        return
    try:
        check_node(decode(request.obj, Node), config_map)
    except InputError as error:
        raise Denial(str(error)) from None
