"""The nodes of the quota tree that a pod belongs to.

Source: koordinator pkg/webhook/pod/mutating/multi_quota_tree_affinity.go.
"""

from typing import Any

from koordinator.api.labels import QUOTA_NAME, QUOTA_TREE_ID
from koordinator.api.meta import JsonObject, LabelSelector
from koordinator.manager.admission.lookup import Lookup

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def with_tree_affinity(pod: JsonObject, namespace: str, lookup: Lookup) -> JsonObject:
    """Return the pod with the node selector of its tree's profile in every required term."""
    meta = pod.get("metadata") or {}
    name = (meta.get("labels") or {}).get(QUOTA_NAME) or namespace
    quota = lookup.quotas().get(name)
    if quota is None:
        bound = lookup.quotas().bound_to(namespace) if name == namespace else []
        quota = lookup.quotas().get(bound[0]) if bound else None
    if quota is None or not quota.tree_id:
        return pod
    profile = next(
        (
            each
            for each in sorted(lookup.quota_profiles(), key=lambda each: each.key)
            if each.metadata.labels.get(QUOTA_TREE_ID) == quota.tree_id
        ),
        None,
    )
    if profile is None:
        return pod
    requirements = _requirements(profile.spec.node_selector)
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


def _requirements(selector: LabelSelector) -> list[dict[str, Any]]:
    labels = sorted(selector.match_labels.items())
    found: list[dict[str, Any]] = [
        {"key": key, "operator": "In", "values": [value]} for key, value in labels
    ]
    for each in selector.match_expressions:
        requirement: dict[str, Any] = {"key": each.key, "operator": each.operator}
        if each.values:
            requirement["values"] = list(each.values)
        found.append(requirement)
    return found
