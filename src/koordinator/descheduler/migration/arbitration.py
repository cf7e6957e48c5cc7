"""Which waiting jobs may begin: one pass over them, in an order in which the cheapest come first.

Source: koordinator pkg/descheduler/controllers/migration/arbitrator: arbitrator.go, sort.go.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import PodMigrationJob
from koordinator.api.workload import Job
from koordinator.descheduler.migration.jobs import pod_key
from koordinator.descheduler.migration.workloads import controller_of
from koordinator.descheduler.pod_order import Rank, eviction_rank
from koordinator.foundation.clock import to_epoch_s

_FIRST: Rank = ()  # a job without a pod: it is only to be told so


@dataclass(frozen=True, slots=True)
class ArbitratedJob:
    """A waiting job with its pod, which may be gone."""

    job: PodMigrationJob
    pod: Pod | None

    @property
    def group(self) -> str:
        """The uid of the Job (a workload that runs to its end) whose pod it is, else empty."""
        owner = None if self.pod is None else controller_of(self.pod)
        return owner.uid if owner is not None and owner.kind == Job.KIND else ""


def in_arbitration_order(
    waiting: Iterable[ArbitratedJob], migrating: Mapping[str, int]
) -> list[ArbitratedJob]:
    """Return jobs in the order in which they are let through.

    Jobs whose pods may go first come first, of equals the newest, and else as they are given.  Jobs
    about pods of one Job stand together where the first of them stands, and before all others those
    of which most pods are ``migrating`` already, by the uid of the Job.
    """
    ordered = sorted(
        waiting, key=lambda each: -int(to_epoch_s(each.job.metadata.creation_timestamp))
    )
    ordered.sort(key=_pod_rank)
    places: dict[str, int] = {}
    for index, each in enumerate(ordered):
        places.setdefault(each.group or each.job.metadata.name, index)
    ordered.sort(key=lambda each: places[each.group or each.job.metadata.name])
    ordered.sort(key=lambda each: -migrating.get(each.group, 0) if each.group else 0)
    return ordered


def migrating_by_group(
    passed: Iterable[PodMigrationJob], pods: Mapping[str, Pod]
) -> Mapping[str, int]:
    """Return how many jobs that have been let through there are by the uid of their Job."""
    known = (ArbitratedJob(job, pods.get(pod_key(job.spec.pod_ref))) for job in passed)
    return Counter(each.group for each in known if each.group)


def _pod_rank(waiting: ArbitratedJob) -> Rank:
    return _FIRST if waiting.pod is None else eviction_rank(waiting.pod)


def paired(jobs: Sequence[PodMigrationJob], pods: Mapping[str, Pod]) -> list[ArbitratedJob]:
    """Return the jobs with the pods that they name."""
    return [ArbitratedJob(job, pods.get(pod_key(job.spec.pod_ref))) for job in jobs]
