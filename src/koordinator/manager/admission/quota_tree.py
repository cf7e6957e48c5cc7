"""Node affinity of pods for the nodes of their quota tree.

Source: koordinator pkg/webhook/pod/mutating/multi_quota_tree_affinity.go.
"""

from typing import Any

from koordinator.api.labels import QUOTA_NAME, QUOTA_TREE_ID
from koordinator.api.meta import JsonObject, LabelSelector
from koordinator.foundation.faults import FaultHandler, fault_of, raise_fault
from koordinator.manager.admission.lookup import Lookup
from koordinator.manager.admission.profiles import STAGE

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def with_tree_affinity(
    pod: JsonObject, namespace: str, lookup: Lookup, on_fault: FaultHandler = raise_fault
) -> JsonObject:
    """Return the pod with the node selector of its tree's profile in every required term.

    A profile that raises an unexpected error is skipped and reported to ``on_fault``.
    """
    meta = pod.get("metadata") or {}
    name = (meta.get("labels") or {}).get(QUOTA_NAME) or namespace
    quota = lookup.quotas().get(name)
    if quota is None:
        bound = lookup.quotas().bound_to(namespace) if name == namespace else []
        quota = lookup.quotas().get(bound[0]) if bound else None
    if quota is None or not quota.tree_id:
        return pod
    requirements = _requirements_of(quota.tree_id, lookup, on_fault)
    if requirements is None:
        return pod
    spec = pod.get("spec") or {}
    affinity = spec.get("affinity") or {}
    node_affinity = affinity.get("nodeAffinity") or {}
    terms = (node_affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
    extended = [
        {**term, "matchExpressions": [*(term.get("matchExpressions") or ()), *requirements]}
        for term in terms
    ]
    required = {_REQUIRED: {"nodeSelectorTerms": extended}}
    changed = {**affinity, "nodeAffinity": {**node_affinity, **required}}
    return {**pod, "spec": {**spec, "affinity": changed}}


def _requirements_of(
    tree: str, lookup: Lookup, on_fault: FaultHandler
) -> list[dict[str, Any]] | None:
    """Return the node requirements of the first profile of a tree; None if there is no profile."""
    for profile in sorted(lookup.quota_profiles(), key=lambda each: each.key):
        try:
            if profile.metadata.labels.get(QUOTA_TREE_ID) == tree:
                return _requirements(profile.spec.node_selector)
        except Exception as error:  # noqa: BLE001 -- reported to on_fault
            on_fault(fault_of(STAGE, error, about=f"{profile.KIND} {profile.key}"))
    return None


def _requirements(selector: LabelSelector) -> list[dict[str, Any]]:
    labels = sorted(selector.match_labels.items())
    requirements: list[dict[str, Any]] = [
        {"key": key, "operator": "In", "values": [value]} for key, value in labels
    ]
    for each in selector.match_expressions:
        requirement: dict[str, Any] = {"key": each.key, "operator": each.operator}
        if each.values:
            requirement["values"] = list(each.values)
        requirements.append(requirement)
    return requirements
