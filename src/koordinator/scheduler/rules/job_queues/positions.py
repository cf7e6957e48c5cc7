"""Who is to be told of a place in a queue, and when again.

When ten thousand jobs wait, every start changes ten thousand places.  A job learns its place when
it comes, when half of those before it have gone, and every place of the last few.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from koordinator.scheduler.rules.job_queues.job import QueuedJob

NEAR = 5  # places from which on each is told


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """The place of a job; the first is 1."""

    job: QueuedJob
    position: int
    waiting: int  # jobs in the queue
    head: QueuedJob  # the first


class ReportedPositions:
    """The places that jobs know of."""

    def __init__(self) -> None:
        self.told: dict[str, int] = {}  # by job

    def forget(self, job_id: str) -> bool:
        """Forget a job that does not wait any more; returns whether it had been told a place."""
        return self.told.pop(job_id, None) is not None

    def due(self, jobs: Iterable[QueuedJob]) -> Iterator[QueuePosition]:
        """Yield the places to be told of a queue in its order."""
        ordered = list(jobs)
        for position, job in enumerate(ordered, start=1):
            known = self.told.get(job.id)
            if known is None or (
                position != known and (position <= NEAR or not known / 2 < position < known * 2)
            ):
                yield QueuePosition(job, position, len(ordered), ordered[0])

    def note(self, place: QueuePosition) -> None:
        """Note that a job has been told."""
        self.told[place.job.id] = place.position
