"""Quotas and pods for these tests; amounts of cpu in cores, of everything else in units."""

from typing import Any

from koordinator.api.annotations.quota import NAMESPACES, SHARED_WEIGHT, TOTAL_RESOURCE
from koordinator.api.codec import decode
from koordinator.api.elastic_quota import ROOT_QUOTA, ElasticQuota
from koordinator.domain.quota import QuotaPod, QuotaSpec, QuotaTree
from koordinator.foundation.quantity import Quantity

CHIP = "example.com/chip"
PREFIX = "quota.scheduling.koordinator.sh/"
GIB = 1 << 30


def quota(
    name: str,
    parent: str = "",
    *,
    namespace: str = "tenants",
    most: dict[str, Any] | None = None,
    least: dict[str, Any] | None = None,
    weight: dict[str, Any] | None = None,
    lends: bool = True,
    is_parent: bool = False,
    bound: tuple[str, ...] = (),
    tree: str = "",
    total: dict[str, Any] | None = None,
    used: dict[str, Any] | None = None,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
) -> ElasticQuota:
    """Return the object; with a total it is the root of its tree."""
    texts = {
        "parent": parent,
        "is-parent": "true" if is_parent else "",
        "allow-lent-resource": "" if lends else "false",
        "tree-id": tree,
        "is-root": "true" if total is not None else "",
    }
    written: dict[str, str] = {}
    for codec, value in ((SHARED_WEIGHT, weight), (TOTAL_RESOURCE, total)):
        if value is not None:
            written[codec.key] = codec.write(
                {key: Quantity.parse(str(amount)) for key, amount in value.items()}
            )
    if bound:
        written |= NAMESPACES.entry(bound)
    return decode(
        {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": {PREFIX + key: text for key, text in texts.items() if text}
                | (labels or {}),
                "annotations": written | (annotations or {}),
            },
            "spec": {"max": most or {}, "min": least or {}},
            "status": {"used": used or {}},
        },
        ElasticQuota,
    )


def pod(
    key: str,
    *,
    label: str = "",
    preemptible: bool = True,
    priority: int = 0,
    started_s: float = 0.0,
    **requests: int,
) -> QuotaPod:
    """Return a pod; its namespace stands before the slash of the key.  ``chip`` is CHIP."""
    named = {CHIP if name == "chip" else name: amount for name, amount in requests.items()}
    return QuotaPod(
        key=key,
        namespace=key.partition("/")[0],
        requests=named,
        quota_label=label,
        is_preemptible=preemptible,
        priority=priority,
        started_s=started_s,
    )


def grow(
    tree: QuotaTree,
    name: str,
    parent: str = ROOT_QUOTA,
    *,
    most: int,
    least: int,
    weight: int | None = None,
    request: int = 0,
    used: int = 0,
    lends: bool = True,
) -> None:
    """Add a quota of chips to a tree, with a pod that uses what is used and one for the rest."""
    tree.put(
        QuotaSpec(
            name=name,
            parent=parent,
            max={CHIP: most},
            min={CHIP: least},
            weight={CHIP: most if weight is None else weight},
            lends=lends,
        )
    )
    want(tree, name, request - used)
    if used:
        tree.put_pod(name, pod(f"ns/{name}-used", chip=used))
        tree.assign(name, f"ns/{name}-used")


def want(tree: QuotaTree, name: str, chips: int) -> None:
    """Set what pods that wait in a quota request."""
    tree.put_pod(name, pod(f"ns/{name}-waits", chip=chips))


def chips(tree: QuotaTree, *names: str) -> list[int]:
    """Return the runtime of quotas."""
    return [tree.runtime(name)[CHIP] for name in names]
