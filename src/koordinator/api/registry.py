"""Every kind that this program can read and write.

A module of ``koordinator.api`` that declares kinds ends in ``KINDS``; it gets one line here.
"""

from koordinator.api import (
    api_service,
    authentication,
    authorization,
    cluster_colocation_profile,
    cluster_network_topology,
    config_map,
    device,
    dynamic_resources,
    elastic_quota,
    event,
    lease,
    namespace,
    node,
    node_metric,
    node_resource_topology,
    node_slo,
    pod,
    pod_group,
    pod_migration_job,
    policy,
    priority,
    queue_unit,
    queued_jobs,
    quota_tree,
    recommendation,
    reservation,
    resource_quota,
    schedule_explanation,
    scheduling_pod_group,
    scheduling_workload,
    secret,
    service,
    volume,
    webhook_configuration,
    workload,
)
from koordinator.api.meta import KubeObject
from koordinator.foundation.errors import InputError

KINDS: tuple[type[KubeObject], ...] = (
    *namespace.KINDS,
    *node.KINDS,
    *pod.KINDS,
    *priority.KINDS,
    *policy.KINDS,
    *volume.KINDS,
    *service.KINDS,
    *workload.KINDS,
    *lease.KINDS,
    *event.KINDS,
    *authentication.KINDS,
    *authorization.KINDS,
    *config_map.KINDS,
    *secret.KINDS,
    *webhook_configuration.KINDS,
    *api_service.KINDS,
    *device.KINDS,
    *dynamic_resources.KINDS,
    *reservation.KINDS,
    *pod_group.KINDS,
    *scheduling_workload.KINDS,
    *scheduling_pod_group.KINDS,
    *elastic_quota.KINDS,
    *cluster_network_topology.KINDS,
    *node_resource_topology.KINDS,
    *node_metric.KINDS,
    *node_slo.KINDS,
    *cluster_colocation_profile.KINDS,
    *pod_migration_job.KINDS,
    *schedule_explanation.KINDS,
    *recommendation.KINDS,
    *queue_unit.KINDS,
    *queued_jobs.KINDS,
    *quota_tree.KINDS,
    *resource_quota.KINDS,
)

BY_NAME: dict[tuple[str, str], type[KubeObject]] = {
    (kind.API_VERSION, kind.KIND): kind for kind in KINDS
}


def find_kind(api_version: str, kind: str) -> type[KubeObject]:
    """Return the type of an ``apiVersion`` and ``kind``.

    Raises InputError that lists what is accepted instead.
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
    accepted = ", ".join(sorted({name for _, name in BY_NAME}))
    raise InputError(
        f"unknown kind {api_version or '(no apiVersion)'}/{kind or '(no kind)'}; "
        f"must be one of {accepted}",
        path="kind",
    )
