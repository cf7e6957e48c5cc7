"""Job queues: order, admission and backfill of jobs.

No I/O, no clock.  A job is a complete gang group or a single pod.

The original has no queues; the design follows kube-queue (github.com/kube-queue/kube-queue).
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from heapq import heapify, heappop, heapreplace
from itertools import count, islice

from koordinator.api.annotations.quota import QueueOrder, QueuePolicy
from koordinator.api.kubescheduler import ElasticQuotaArgs
from koordinator.domain.amounts import NOTHING, Amounts, add
from koordinator.domain.quota.spec import QueueTerms
from koordinator.foundation.errors import BugError
from koordinator.foundation.lazy_dataclass import dataclass

JobRank = tuple[int, float, int]

_ALL = ""  # key of the only line without fair share

NEAR = 5  # positions up to this one are always reported


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A gang group or a single pod; all members wait in the queue of the first one's quota."""

    id: str  # gang group id, or key of a single pod
    pod: str  # key of the representative pod
    namespace: str
    priority: int
    arrived_s: float  # since the epoch
    sequence: int  # order of arrival in this process; tie-breaker
    request: Amounts = field(default_factory=dict)  # sum over all members

    @property
    def rank(self) -> JobRank:
        """Sort key: highest priority first, then earliest arrival."""
        return -self.priority, self.arrived_s, self.sequence


@dataclass(frozen=True, slots=True)
class QueueRules:
    """Order of jobs, and number of jobs tried at a time."""

    policy: QueuePolicy
    order: QueueOrder = QueueOrder.FIFO
    depth: int = 32  # number of jobs considered by policies other than strict

    @classmethod
    def of(cls, terms: QueueTerms, args: ElasticQuotaArgs) -> "QueueRules | None":
        """Return the rules of a quota; None if its jobs are not queued."""
        policy = terms.policy or QueuePolicy(args.default_queue_policy)
        if policy is QueuePolicy.NONE:
            return None
        order = terms.order or QueueOrder(args.default_queue_order)
        return cls(policy, order, terms.depth or args.default_queue_depth)


#: Share of the quota that a namespace would use with an additional request; 1 is all of it.
ShareOf = Callable[[str, Amounts], float]


class JobQueue:
    """Jobs by id, each in the line of its namespace or, without fair share, in the only one."""

    def __init__(self, rules: QueueRules) -> None:
        self.rules = rules
        self.jobs: dict[str, QueuedJob] = {}
        self._lines: dict[str, list[QueuedJob]] = {}  # by rank; none is empty

    def __len__(self) -> int:
        return len(self.jobs)

    @property
    def is_shared(self) -> bool:
        """Whether the order depends on usage."""
        return self.rules.order is QueueOrder.FAIR_SHARE

    def put(self, job: QueuedJob) -> None:
        """Add or update a job."""
        self.drop(job.id)
        self.jobs[job.id] = job
        insort(self._lines.setdefault(self._line_of(job), []), job, key=_rank)

    def drop(self, job_id: str) -> QueuedJob | None:
        """Remove and return a job; None if it is not in the queue."""
        job = self.jobs.pop(job_id, None)
        if job is not None:
            line = self._lines[self._line_of(job)]
            del line[bisect_left(line, job.rank, key=_rank)]
            if not line:
                del self._lines[self._line_of(job)]
        return job

    def in_order(self, share_of: ShareOf) -> Iterator[QueuedJob]:
        """Yield all jobs in order."""
        if not self.is_shared:
            yield from self._lines.get(_ALL, ())
            return
        attempts = [_NextJob(line, namespace, share_of) for namespace, line in self._lines.items()]
        heapify(attempts)
        while attempts:
            attempt = attempts[0]
            yield attempt.job
            if attempt.go_on():
                heapreplace(attempts, attempt)
            else:
                heappop(attempts)

    def in_front(self, share_of: ShareOf) -> list[QueuedJob]:
        """Return the jobs that may be tried now, in order."""
        rules = self.rules
        if rules.policy is QueuePolicy.STRICT:
            return list(islice(self.in_order(share_of), 1))
        near = list(islice(self.in_order(share_of), rules.depth))
        if rules.policy is QueuePolicy.BACKFILL:
            return near[:1] + [job for job in near[1:] if is_smaller(job.request, near[0].request)]
        return near

    def validate(self) -> None:
        """Recompute all derived state and raise BugError where it differs."""
        lined = [job for line in self._lines.values() for job in line]
        if len(lined) != len(self.jobs) or any(self.jobs.get(job.id) is not job for job in lined):
            raise BugError(f"a queue has {len(self.jobs)} jobs. In lines: {len(lined)}.")
        for line in self._lines.values():
            if not line or line != sorted(line, key=_rank):
                raise BugError("the line of a queue is empty or in disorder.")

    def _line_of(self, job: QueuedJob) -> str:
        return job.namespace if self.is_shared else _ALL


def is_smaller(request: Amounts, other: Amounts) -> bool:
    """Return whether a request is smaller in some resource and larger in none."""
    return request != other and all(
        amount <= other.get(resource, 0) for resource, amount in request.items()
    )


class _NextJob:
    """The next job of a namespace, ordered by fair share."""

    def __init__(self, line: list[QueuedJob], namespace: str, share_of: ShareOf) -> None:
        self._line, self._namespace, self._share_of = line, namespace, share_of
        self._at = 0
        self._taken: dict[str, int] = {}
        self._key = (line[0].rank[0], share_of(namespace, NOTHING), line[0].rank)

    @property
    def job(self) -> QueuedJob:
        return self._line[self._at]

    def go_on(self) -> bool:
        """Advance to the next job; return False if there is none."""
        add(self._taken, self.job.request)
        self._at += 1
        if self._at == len(self._line):
            return False
        rank = self.job.rank
        self._key = (rank[0], self._share_of(self._namespace, self._taken), rank)
        return True

    def __lt__(self, other: "_NextJob") -> bool:
        return self._key < other._key


def _rank(job: QueuedJob) -> JobRank:
    return job.rank


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
            if quota not in self.stale and any(one not in self.queues[quota].jobs for one in front):
                raise BugError(f"the queue begins with jobs that do not exist: {quota}.")

    def _take_out(self, job_id: str) -> None:
        quota = self._home.pop(job_id)
        self.queues[quota].drop(job_id)
        self._front.get(quota, {}).pop(job_id, None)
        self.stale[quota] = None
