"""Cache of all job queues and their fronts."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count

from koordinator.foundation.errors import BugError
from koordinator.scheduler.rules.job_queues.queue import JobQueue, QueuedJob, QueueRules, ShareOf

NEAR = 5  # positions up to this one are always reported


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """The position of a job; the first is 1."""

    job: QueuedJob
    position: int
    waiting: int  # number of jobs in the queue
    head: QueuedJob  # the first


class ReportedPositions:
    """Last reported position of each job."""

    def __init__(self) -> None:
        self.reported: dict[str, int] = {}  # by job id

    def forget(self, job_id: str) -> bool:
        """Forget a job that left the queue; return whether a position was reported."""
        return self.reported.pop(job_id, None) is not None

    def due(self, jobs: Iterable[QueuedJob]) -> Iterator[QueuePosition]:
        """Yield the positions to report for a queue in its order."""
        ordered = list(jobs)
        for position, job in enumerate(ordered, start=1):
            known = self.reported.get(job.id)
            if known is None or (
                position != known and (position <= NEAR or not known / 2 < position < known * 2)
            ):
                yield QueuePosition(job, position, len(ordered), ordered[0])

    def note(self, place: QueuePosition) -> None:
        """Record a reported position."""
        self.reported[place.job.id] = place.position


class JobQueueCache:
    """Queues by the name of their quota; a job is in at most one.

    A job in front stays there until it leaves its queue or other jobs overtake it.
    """

    def __init__(self) -> None:
        self.queues: dict[str, JobQueue] = {}
        self.stale: dict[str, None] = {}  # quotas whose front may have changed
        self._home: dict[str, str] = {}  # job id -> quota
        self._front: dict[str, dict[str, None]] = {}  # quota -> ids of jobs in front
        self._job_of: dict[str, str] = {}  # key of the representative pod -> job id
        self._sequence = count()

    def set_rules(self, rules: Mapping[str, QueueRules]) -> list[str]:
        """Set the quotas with queues; return the pods of jobs that have no queue any more."""
        freed = []
        for quota in list(self.queues):
            queue = self.queues[quota]
            if rules.get(quota) == queue.rules:
                continue
            jobs = list(queue.jobs.values())
            del self.queues[quota]
            self._front.pop(quota, None)
            self.stale.pop(quota, None)
            if quota in rules:
                fresh = self.queues[quota] = JobQueue(rules[quota])
                for job in jobs:
                    fresh.put(job)
                self.stale[quota] = None
                continue
            for job in jobs:
                del self._home[job.id]
                del self._job_of[job.pod]
                freed.append(job.pod)
        for quota in rules.keys() - self.queues.keys():
            self.queues[quota] = JobQueue(rules[quota])
        return freed

    def job(self, job_id: str) -> QueuedJob | None:
        """Return a waiting job."""
        quota = self._home.get(job_id)
        return None if quota is None else self.queues[quota].jobs[job_id]

    def job_of(self, pod: str) -> QueuedJob | None:
        """Return the job that a pod (by key) represents."""
        job_id = self._job_of.get(pod)
        return None if job_id is None else self.job(job_id)

    def quota_of(self, job_id: str) -> str:
        """Return the quota whose queue contains the job; empty if there is none."""
        return self._home.get(job_id, "")

    def next_sequence(self) -> int:
        """Return a sequence number for a new job."""
        return next(self._sequence)

    def put(self, quota: str, job: QueuedJob) -> None:
        """Add a job to a queue, or update it."""
        known = self.job(job.id)
        if known == job and self._home[job.id] == quota:
            return
        if known is not None:
            del self._job_of[known.pod]
            if self._home[job.id] != quota:
                self._take_out(job.id)
        if job.pod in self._job_of:  # e.g. a single pod that has joined a gang
            self.leave(self._job_of[job.pod])
        self._home[job.id] = quota
        self._job_of[job.pod] = job.id
        self.queues[quota].put(job)
        self.stale[quota] = None

    def leave(self, job_id: str) -> QueuedJob | None:
        """Remove a job that started or can't start any more."""
        job = self.job(job_id)
        if job is not None:
            del self._job_of[job.pod]
            self._take_out(job_id)
        return job

    def may_be_tried(self, job_id: str) -> bool:
        """Return whether a waiting job is in front."""
        return job_id in self._front.get(self._home[job_id], ())

    def advance(self, quota: str, share_of: ShareOf) -> list[QueuedJob]:
        """Recompute the front of a queue; return the jobs that are new in it."""
        self.stale.pop(quota, None)
        queue = self.queues[quota]
        before = self._front.get(quota, {})
        jobs = queue.in_front(share_of)
        self._front[quota] = dict.fromkeys(job.id for job in jobs)
        return [job for job in jobs if job.id not in before]

    def validate(self) -> None:
        """Recompute all derived state and raise BugError where it differs."""
        home = {job_id: name for name, queue in self.queues.items() for job_id in queue.jobs}
        if home != self._home:
            raise BugError(f"jobs wait in {home}. Noted: {self._home}.")
        pods = {job.pod: job.id for queue in self.queues.values() for job in queue.jobs.values()}
        if pods != self._job_of:
            raise BugError(f"pods that stand for jobs are {pods}. Noted: {self._job_of}.")
        for queue in self.queues.values():
            queue.validate()
        for quota, front in self._front.items():
            if quota not in self.stale and not _are_in(front, self.queues[quota]):
                raise BugError(f"jobs that are gone stand in front of the queue of {quota}.")

    def _take_out(self, job_id: str) -> None:
        quota = self._home.pop(job_id)
        self.queues[quota].drop(job_id)
        self._front.get(quota, {}).pop(job_id, None)
        self.stale[quota] = None


def _are_in(ids: Iterable[str], queue: JobQueue) -> bool:
    return all(one in queue.jobs for one in ids)
