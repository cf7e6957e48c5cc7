"""Jobs that wait in one quota, and their order."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from itertools import islice

from koordinator.api.annotations.quota import QueueOrder, QueuePolicy
from koordinator.api.kubescheduler import ElasticQuotaArgs
from koordinator.domain.amounts import NOTHING, Amounts, add
from koordinator.domain.quota.spec import QueueTerms
from koordinator.foundation.errors import BugError

Rank = tuple[int, float, int]


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
    def rank(self) -> Rank:
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

_ALL = ""  # key of the only line without fair share


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
        """Go on to the next job; False if there is none."""
        add(self._taken, self.job.request)
        self._at += 1
        if self._at == len(self._line):
            return False
        rank = self.job.rank
        self._key = (rank[0], self._share_of(self._namespace, self._taken), rank)
        return True

    def __lt__(self, other: "_NextJob") -> bool:
        return self._key < other._key


def _rank(job: QueuedJob) -> Rank:
    return job.rank
