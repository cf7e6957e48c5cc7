"""The jobs that wait in one quota, in order.

Jobs of the highest priority are first.  Among these it is who came first (FIFO), or a job of the
namespace that uses the smallest part of the quota (fair share): what counts is the resource of
which it uses most, and jobs further in front count as if they ran already.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heapreplace
from itertools import islice

from koordinator.api.annotations.quota import QueueOrder, QueuePolicy
from koordinator.domain.quota.amounts import NOTHING, Amounts, add
from koordinator.foundation.errors import BugError
from koordinator.scheduler.rules.job_queues.job import QueuedJob, Rank
from koordinator.scheduler.rules.job_queues.rules import QueueRules

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
