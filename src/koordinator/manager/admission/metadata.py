"""Validation of metadata and of nodes.

The original admits an annotation that is nested too deep or too long. Here each component ignores
it, so admission rejects it.

Source: koordinator pkg/webhook/pod/validating/pod_enhanced_validator.go; koordinator
pkg/webhook/node.
"""

from collections.abc import Set as AbstractSet
from typing import Final

from msgspec.structs import replace

from koordinator.api.annotations.codec import annotation_path
from koordinator.api.codec import apply_merge_patch, decode, merge_patch
from koordinator.api.core import ConfigMap
from koordinator.api.labels import POD_SKIP_ENHANCED_VALIDATION, is_true
from koordinator.api.meta import ApiStruct, JsonObject, KubeObject
from koordinator.api.nesting import check_annotation
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.foundation.errors import InputError
from koordinator.manager.admission.gates import ManagerFeature
from koordinator.manager.admission.lookup import (
    AdmissionOperation,
    AdmissionRequest,
    Denial,
    Lookup,
)
from koordinator.manager.configuration.checks import check_node
from koordinator.manager.node_resources.ratios import amplified

_DOMAIN = "koordinator.sh/"

CONFIG_NAME: Final = "pod-enhanced-validator-config"

_INTERNAL = 500


def check_annotations(new: KubeObject, old: KubeObject | None) -> None:
    """Raise InputError for a new ``koordinator.sh`` annotation that no component would read.

    An annotation that the update does not change is not checked.
    """
    before = old.metadata.annotations if old is not None else {}
    for key, text in new.metadata.annotations.items():
        if _DOMAIN in key and before.get(key) != text:
            try:
                check_annotation(text.encode())
            except InputError as error:
                raise error.within(path=annotation_path(key)) from None


class LabelRule(ApiStruct, frozen=True, kw_only=True):
    """Labels that pods must have, except in the whitelisted namespaces."""

    name: str = ""
    required_labels: tuple[str, ...] = ()
    namespace_whitelist: tuple[str, ...] = ()


def read_label_rules(config: ConfigMap | None) -> tuple[LabelRule, ...]:
    """Return the rules; empty if they are disabled or can't be parsed."""
    if config is None or config.data.get("enable", "").strip().lower() != "true":
        return ()
    try:
        return decode(config.data.get("rules", "[]").encode(), tuple[LabelRule, ...])
    except InputError:
        return ()


def missing_labels(pod: Pod, rules: tuple[LabelRule, ...]) -> str:
    """Return a message with the labels that the first violated rule requires; empty if none is."""
    labels = pod.metadata.labels
    if is_true(labels, POD_SKIP_ENHANCED_VALIDATION):
        return ""
    for rule in rules:
        if pod.metadata.namespace in rule.namespace_whitelist:
            continue
        missing = [key for key in rule.required_labels if key not in labels]
        if len(missing) == 1:
            return f"required label '{missing[0]}' is missing"
        if missing:
            return f"required labels are missing: [{' '.join(missing)}]"
    return ""


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
