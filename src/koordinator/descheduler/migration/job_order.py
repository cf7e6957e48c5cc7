"""Which jobs begin after others, and which begin together: what a proven move says on its job."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from koordinator.api.annotations.descheduling import PASSED_ARBITRATION, PROVEN_MOVE, ProvenMove
from koordinator.api.pod_migration_job import PodMigrationJob
from koordinator.foundation.errors import InputError

_UNPROVEN = ProvenMove(source="", target="")


def proven_move_of(job: PodMigrationJob) -> ProvenMove:
    """Return what was proven of a job; of a text that can't be read, and of none, nothing."""
    try:
        return PROVEN_MOVE.read(job.metadata) or _UNPROVEN
    except InputError:
        return _UNPROVEN


def pods_before(job: PodMigrationJob) -> Sequence[str]:
    """Return the pods, ``namespace/name``, whose jobs have to end before this one begins."""
    return proven_move_of(job).after


def gang_of(job: PodMigrationJob) -> str:
    """Return what the jobs of a gang have in common; empty for a job of none."""
    return proven_move_of(job).gang


def gang_size_of(job: PodMigrationJob) -> int:
    """Return how many jobs begin together with this one, itself included."""
    return proven_move_of(job).gang_size


def gangs_among(jobs: Iterable[PodMigrationJob]) -> Mapping[str, Sequence[PodMigrationJob]]:
    """Return the jobs that begin together, by gang."""
    found: dict[str, list[PodMigrationJob]] = {}
    for job in jobs:
        if gang := gang_of(job):
            found.setdefault(gang, []).append(job)
    return found


def as_passed(job: PodMigrationJob) -> PodMigrationJob:
    """Return the job as arbitration would let it begin."""
    annotations = {**job.metadata.annotations, PASSED_ARBITRATION: "true"}
    return replace(job, metadata=replace(job.metadata, annotations=annotations))
