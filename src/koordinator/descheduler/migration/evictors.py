"""Eviction policies: eviction API, deletion, or a soft-eviction annotation.

Source: koordinator pkg/descheduler/controllers/migration/evictor.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from koordinator.api.annotations.scheduling import (
    SOFT_EVICTION,
    EvictionPolicy,
    SoftEviction,
)
from koordinator.api.labels import EVICT_POLICY
from koordinator.api.meta import ObjectMeta
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import DeleteOptions, PodMigrationJob
from koordinator.descheduler.contract import ClusterWriter
from koordinator.descheduler.migration.jobs import reason_of, trigger_of
from koordinator.foundation.clock import to_datetime

#: Starts the eviction of a pod, matched by its uid, for a job; raises ClusterError.
PodEvictor = Callable[[ClusterWriter, Pod, PodMigrationJob, DeleteOptions | None, float], None]


def evictor_for(pod: Pod, job: PodMigrationJob, default: str) -> PodEvictor:
    """Return the evictor named by the label of the pod, else of the job, else the default.

    An unknown policy means the default, as in the original.
    """
    named = _label(pod.metadata) or _label(job.metadata)
    return EVICTORS.get(named) or EVICTORS[default]


def evict_by_api(
    writer: ClusterWriter,
    pod: Pod,
    job: PodMigrationJob,  # noqa: ARG001 -- the signature of an evictor
    options: DeleteOptions | None,
    now_s: float,  # noqa: ARG001 -- as above
) -> None:
    """Evict a pod through the eviction API, which enforces disruption budgets."""
    meta = pod.metadata
    grace_s = None if options is None else options.grace_period_seconds
    writer.evict(meta.namespace, meta.name, uid=meta.uid, grace_period_s=grace_s)


def delete_pod(
    writer: ClusterWriter,
    pod: Pod,
    job: PodMigrationJob,  # noqa: ARG001 -- the signature of an evictor
    options: DeleteOptions | None,
    now_s: float,  # noqa: ARG001 -- as above
) -> None:
    """Delete a pod without regard to disruption budgets."""
    meta = pod.metadata
    grace_s = None if options is None else options.grace_period_seconds
    writer.delete(Pod, meta.name, meta.namespace, uid=meta.uid, grace_period_s=grace_s)


def annotate_soft_eviction(
    writer: ClusterWriter,
    pod: Pod,
    job: PodMigrationJob,
    options: DeleteOptions | None,
    now_s: float,
) -> None:
    """Annotate a pod with a soft eviction, for the controller that handles them."""
    meta = pod.metadata
    request = SoftEviction(
        timestamp=to_datetime(now_s),
        delete_options=options,
        initiator=trigger_of(job),
        reason=reason_of(job),
    )
    patch = {"metadata": {"uid": meta.uid, "annotations": SOFT_EVICTION.entry(request)}}
    writer.patch(Pod, meta.name, meta.namespace, patch)


EVICTORS: Mapping[str, PodEvictor] = MappingProxyType(
    {
        EvictionPolicy.EVICTION.value: evict_by_api,
        EvictionPolicy.DELETE.value: delete_pod,
        EvictionPolicy.SOFT_EVICTION.value: annotate_soft_eviction,
    }
)


def _label(meta: ObjectMeta) -> str:
    return meta.labels.get(EVICT_POLICY, "")
