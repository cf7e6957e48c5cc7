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
    """A gang group or a single pod; all its members wait where the first of them does."""

    id: str  # of the gang group; of a single pod its key
    pod: str  # key of the pod that is tried for the job
    namespace: str
    priority: int
    arrived_s: float  # since the epoch
    sequence: int  # who was seen first; breaks ties
    request: Amounts = field(default_factory=dict)  # of all members together

    @property
    def rank(self) -> Rank:
        """Sorts jobs: the highest priority first, then who came first."""
        return -self.priority, self.arrived_s, self.sequence


@dataclass(frozen=True, slots=True)
class QueueRules:
    """In which order jobs wait, and how many may be tried at once."""

    policy: QueuePolicy
    order: QueueOrder = QueueOrder.FIFO
    depth: int = 32  # jobs from the first on that policies other than strict look at

    @classmethod
    def of(cls, terms: QueueTerms, args: ElasticQuotaArgs) -> "QueueRules | None":
        """Return the rules of a quota; None if its jobs don't wait for each other."""
        policy = terms.policy or QueuePolicy(args.default_queue_policy)
        if policy is QueuePolicy.NONE:
            return None
        order = terms.order or QueueOrder(args.default_queue_order)
        return cls(policy, order, terms.depth or args.default_queue_depth)


#: What part of the quota a namespace uses, if it used so much more: 1 is all of it.
ShareOf = Callable[[str, Amounts], float]

_ALL = ""  # the line of everybody where there are no shares


class JobQueue:
    """Jobs by id, each in the line of its namespace or, without shares, in the only one."""

    def __init__(self, rules: QueueRules) -> None:
        self.rules = rules
        self.jobs: dict[str, QueuedJob] = {}
        self._lines: dict[str, list[QueuedJob]] = {}  # by rank; none is empty

    def __len__(self) -> int:
        return len(self.jobs)

    @property
    def is_shared(self) -> bool:
        """Whether the order depends on what is used."""
        return self.rules.order is QueueOrder.FAIR_SHARE

    def put(self, job: QueuedJob) -> None:
        """Add a job, or its new version."""
        self.drop(job.id)
        self.jobs[job.id] = job
        insort(self._lines.setdefault(self._line_of(job), []), job, key=_rank)

    def drop(self, job_id: str) -> QueuedJob | None:
        """Take a job out; None if it is not here."""
        job = self.jobs.pop(job_id, None)
        if job is not None:
            line = self._lines[self._line_of(job)]
            del line[bisect_left(line, job.rank, key=_rank)]
            if not line:
                del self._lines[self._line_of(job)]
        return job

    def in_order(self, share_of: ShareOf) -> Iterator[QueuedJob]:
        """Yield all jobs, first the one whose turn it is."""
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
        """Derive everything redundant again and raise BugError where it differs."""
        lined = [job for line in self._lines.values() for job in line]
        if len(lined) != len(self.jobs) or any(self.jobs.get(job.id) is not job for job in lined):
            raise BugError(f"a queue has {len(self.jobs)} jobs. In lines: {len(lined)}.")
        for line in self._lines.values():
            if not line or line != sorted(line, key=_rank):
                raise BugError("the line of a queue is empty or in disorder.")

    def _line_of(self, job: QueuedJob) -> str:
        return job.namespace if self.is_shared else _ALL


def is_smaller(request: Amounts, other: Amounts) -> bool:
    """Return whether one asks for less of some resource and for more of none."""
    return request != other and all(
        amount <= other.get(resource, 0) for resource, amount in request.items()
    )


class _NextJob:
    """The next job of a namespace, to be compared with those of others."""

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
