"""Controller of quota profiles: a root quota with the sum of the profile's nodes.

Source: koordinator pkg/quota-controller/profile/profile_controller.go.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from koordinator.api.annotations.quota import (
    DEFAULT_RESOURCE_KEYS,
    RESOURCE_KEYS,
    TOTAL_RESOURCE,
    UNSCHEDULABLE_RESOURCE,
)
from koordinator.api.codec import merge_patch
from koordinator.api.core import ResourceList
from koordinator.api.elastic_quota import ElasticQuota, ElasticQuotaProfile, ElasticQuotaSpec
from koordinator.api.labels import QUOTA_IS_ROOT, QUOTA_PROFILE, QUOTA_TREE_ID
from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node
from koordinator.api.resource_names import CPU, MEMORY
from koordinator.api.selectors import matches
from koordinator.foundation.errors import InputError
from koordinator.foundation.quantity import Quantity
from koordinator.manager.writes import Create, Patch, Write

RESYNC_S: Final = 10.0  # changes of nodes do not enqueue profiles
_UNLIMITED: Final = (2**63 - 1) // 2000
_FNV_OFFSET, _FNV_PRIME, _FNV_BITS = 0xCBF29CE484222325, 0x100000001B3, 64
_READY = "Ready"


def reconcile_quota_profile(
    profile: ElasticQuotaProfile, quota: ElasticQuota | None, nodes: Iterable[Node]
) -> Sequence[Write]:
    """Return the writes that label a profile with its tree and update the root of the tree.

    Raises InputError for an invalid node selector.
    """
    meta = profile.metadata
    writes: list[Write] = []
    tree = meta.labels.get(QUOTA_TREE_ID, "")
    if not tree:
        tree = tree_id(profile.key)
        body = {"metadata": {"labels": {QUOTA_TREE_ID: tree}}}
        writes.append(Patch(ElasticQuotaProfile, meta.name, body, meta.namespace))
    selected = [n for n in nodes if matches(profile.spec.node_selector, n.metadata.labels)]
    total = _sum(selected, profile)
    unschedulable = _sum((node for node in selected if not _is_schedulable(node)), profile)
    labels = {
        QUOTA_PROFILE: meta.name,
        **profile.spec.quota_labels,
        QUOTA_TREE_ID: tree,
        QUOTA_IS_ROOT: "true",
    }
    annotations = {
        **TOTAL_RESOURCE.entry(total),
        **UNSCHEDULABLE_RESOURCE.entry(unschedulable),
    }
    keys = _resource_keys(profile)
    spec = ElasticQuotaSpec(
        min={key: total.get(key, Quantity(0)) for key in keys},
        max={key: Quantity.from_int(_UNLIMITED) for key in keys},
    )
    if quota is None:
        new_meta = ObjectMeta(
            name=profile.spec.quota_name,
            namespace=meta.namespace,
            labels=labels,
            annotations=annotations,
        )
        return [*writes, Create(ElasticQuota(metadata=new_meta, spec=spec))]
    old = quota.metadata
    wanted = replace(
        quota,
        metadata=replace(
            old,
            labels={**old.labels, **labels},
            annotations={**old.annotations, **annotations},
        ),
        spec=spec,
    )
    patch = merge_patch(quota, wanted)
    if patch:
        writes.append(Patch(ElasticQuota, old.name, patch, old.namespace))
    return writes


def tree_id(key: str) -> str:
    """Return the tree ID of a profile: the decimal FNV-1a hash of ``namespace/name``."""
    digest = _FNV_OFFSET
    for byte in key.encode():
        digest = (digest ^ byte) * _FNV_PRIME % (1 << _FNV_BITS)
    return str(digest)


def _is_schedulable(node: Node) -> bool:
    ready = next((each for each in node.status.conditions if each.type == _READY), None)
    return not node.spec.unschedulable and ready is not None and ready.status == "True"


def _sum(nodes: Iterable[Node], profile: ElasticQuotaProfile) -> ResourceList:
    sums: ResourceList = {}
    for node in nodes:
        for name, amount in node.status.allocatable.items():
            sums[name] = sums[name] + amount if name in sums else amount
    if profile.spec.resource_ratio is None:
        return sums
    ratio = _ratio(profile.spec.resource_ratio)
    return {name: _part(name, amount, ratio) for name, amount in sums.items()}


def _part(name: str, amount: Quantity, ratio: float) -> Quantity:
    if name == CPU:
        return Quantity.from_milli(int(amount.milli() * ratio))
    return Quantity.from_int(int(amount.value() * ratio), binary=name == MEMORY)


def _ratio(text: str) -> float:
    try:
        ratio = float(text)
    except ValueError:
        return 1.0
    return ratio if math.isfinite(ratio) and 0 < ratio <= 1 else 1.0


def _resource_keys(profile: ElasticQuotaProfile) -> tuple[str, ...]:
    try:
        return RESOURCE_KEYS.read(profile.metadata) or DEFAULT_RESOURCE_KEYS
    except InputError:
        return DEFAULT_RESOURCE_KEYS
