"""Every kind that this program can read and write.

A module of ``koordinator.api`` that declares kinds ends in ``KINDS``; it gets one line here.
"""

from koordinator.api import (
    cluster_network_topology,
    colocation,
    control_plane,
    core,
    device,
    dynamic_resources,
    elastic_quota,
    event,
    node,
    node_metric,
    node_slo,
    pod,
    pod_groups,
    pod_migration_job,
    policy,
    queue_unit,
    reservation,
    schedule_explanation,
    volume,
    workload,
)
from koordinator.api.meta import KubeObject
from koordinator.foundation.errors import InputError

KINDS: tuple[type[KubeObject], ...] = (
    *core.KINDS,
    *node.KINDS,
    *pod.KINDS,
    *policy.KINDS,
    *volume.KINDS,
    *workload.KINDS,
    *control_plane.KINDS,
    *event.KINDS,
    *device.KINDS,
    *dynamic_resources.KINDS,
    *reservation.KINDS,
    *pod_groups.KINDS,
    *elastic_quota.KINDS,
    *cluster_network_topology.KINDS,
    *node_metric.KINDS,
    *node_slo.KINDS,
    *colocation.KINDS,
    *pod_migration_job.KINDS,
    *schedule_explanation.KINDS,
    *queue_unit.KINDS,
)

BY_NAME: dict[tuple[str, str], type[KubeObject]] = {
    (kind.API_VERSION, kind.KIND): kind for kind in KINDS
}


def find_kind(api_version: str, kind: str) -> type[KubeObject]:
    """Return the type of an ``apiVersion`` and ``kind``.

    Raises InputError that lists what is accepted instead, unless both are missing.
    """
    known = BY_NAME.get((api_version, kind))
    if known is not None:
        return known
    versions = sorted(version for version, name in BY_NAME if name == kind)
    if versions:
        raise InputError(
            f"must be {' or '.join(versions)} for kind {kind}, got {api_version!r}",
            path="apiVersion",
        )
    if not api_version and not kind:
        raise InputError("apiVersion and kind are required")
    accepted = ", ".join(sorted({name for _, name in BY_NAME}))
    raise InputError(
        f"unknown kind {api_version or '(no apiVersion)'}/{kind or '(no kind)'}; "
        f"must be one of {accepted}",
        path="kind",
    )
