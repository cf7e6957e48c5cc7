"""How a pod is made to go: through the eviction API, by a deletion, or by asking somebody to.

Source: koordinator pkg/descheduler/controllers/migration/evictor.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

from koordinator.api.annotations.descheduling import (
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


class PodEvictor(Protocol):
    """Makes one pod go."""

    def __call__(
        self,
        writer: ClusterWriter,
        pod: Pod,
        job: PodMigrationJob,
        options: DeleteOptions | None,
        now_s: float,
    ) -> None:
        """Begin it; of a pod of the same name that came since, nothing is changed.

        Raises ClusterError.
        """


def evictor_for(pod: Pod, job: PodMigrationJob, default: str) -> PodEvictor:
    """Return the evictor that the label of the pod names, else that of the job, else the default.

    A policy that nobody knows is the default, as in the original.
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
    """Evict a pod unless its disruption budget is used up."""
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
    """Delete a pod whatever its disruption budget says."""
    meta = pod.metadata
    grace_s = None if options is None else options.grace_period_seconds
    writer.delete(Pod, meta.name, meta.namespace, uid=meta.uid, grace_period_s=grace_s)


def ask_to_evict(
    writer: ClusterWriter,
    pod: Pod,
    job: PodMigrationJob,
    options: DeleteOptions | None,
    now_s: float,
) -> None:
    """Write on a pod that it should go: whoever looks after such pods sees to it."""
    meta = pod.metadata
    asked = SoftEviction(
        timestamp=to_datetime(now_s),
        delete_options=options,
        initiator=trigger_of(job),
        reason=reason_of(job),
    )
    patch = {"metadata": {"uid": meta.uid, "annotations": SOFT_EVICTION.entry(asked)}}
    writer.patch(Pod, meta.name, meta.namespace, patch)


EVICTORS: Mapping[str, PodEvictor] = MappingProxyType(
    {
        EvictionPolicy.EVICTION.value: evict_by_api,
        EvictionPolicy.DELETE.value: delete_pod,
        EvictionPolicy.SOFT_EVICTION.value: ask_to_evict,
    }
)


def _label(meta: ObjectMeta) -> str:
    return meta.labels.get(EVICT_POLICY, "")
