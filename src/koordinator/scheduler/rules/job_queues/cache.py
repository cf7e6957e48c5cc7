"""All queues: which job waits in which, and who has newly come to the front."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count

from koordinator.foundation.errors import BugError
from koordinator.scheduler.rules.job_queues.queue import JobQueue, QueuedJob, QueueRules, ShareOf

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


class JobQueueCache:
    """Queues by the name of their quota; a job is in at most one.

    A job in front stays there until it leaves its queue or others come before it.
    """

    def __init__(self) -> None:
        self.queues: dict[str, JobQueue] = {}
        self.stale: dict[str, None] = {}  # queues whose front may have changed
        self._home: dict[str, str] = {}  # job id -> quota
        self._front: dict[str, dict[str, None]] = {}  # quota -> ids of jobs that may be tried
        self._job_of: dict[str, str] = {}  # pod that stands for a job -> job id
        self._sequence = count()

    def set_rules(self, rules: Mapping[str, QueueRules]) -> list[str]:
        """Say which quotas have queues; returns the pods of jobs that have none any more."""
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
        """Return a job that waits."""
        quota = self._home.get(job_id)
        return None if quota is None else self.queues[quota].jobs[job_id]

    def job_of(self, pod: str) -> QueuedJob | None:
        """Return the job that a pod (by key) stands for."""
        job_id = self._job_of.get(pod)
        return None if job_id is None else self.job(job_id)

    def quota_of(self, job_id: str) -> str:
        """Return the quota in which a job waits; empty if it does not."""
        return self._home.get(job_id, "")

    def next_sequence(self) -> int:
        """Return a number for a job that is seen for the first time."""
        return next(self._sequence)

    def put(self, quota: str, job: QueuedJob) -> None:
        """Let a job wait in a queue, or change what is known of it."""
        known = self.job(job.id)
        if known == job and self._home[job.id] == quota:
            return
        if known is not None:
            del self._job_of[known.pod]
            if self._home[job.id] != quota:
                self._take_out(job.id)
        if job.pod in self._job_of:  # such as a single pod that is in a gang now
            self.leave(self._job_of[job.pod])
        self._home[job.id] = quota
        self._job_of[job.pod] = job.id
        self.queues[quota].put(job)
        self.stale[quota] = None

    def leave(self, job_id: str) -> QueuedJob | None:
        """Forget a job: it has started, or it can't any more."""
        job = self.job(job_id)
        if job is not None:
            del self._job_of[job.pod]
            self._take_out(job_id)
        return job

    def may_be_tried(self, job_id: str) -> bool:
        """Return whether a job that waits is in front."""
        return job_id in self._front.get(self._home[job_id], ())

    def advance(self, quota: str, share_of: ShareOf) -> list[QueuedJob]:
        """Find out who is in front of a queue now; returns those who were not before."""
        self.stale.pop(quota, None)
        queue = self.queues[quota]
        before = self._front.get(quota, {})
        jobs = queue.in_front(share_of)
        self._front[quota] = dict.fromkeys(job.id for job in jobs)
        return [job for job in jobs if job.id not in before]

    def validate(self) -> None:
        """Derive everything redundant again and raise BugError where it differs."""
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
