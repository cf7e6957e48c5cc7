"""Rate-limited reports of queue positions of jobs."""

from collections.abc import Callable, Iterator, Sequence

from koordinator.api.annotations.quota import QUEUE_POLICY, QueuePolicy
from koordinator.domain.gangs import GangCache
from koordinator.scheduler.features.quotas.queues import JobQueues
from koordinator.scheduler.loop.feature_kinds import GateReport
from koordinator.scheduler.loop.reporter import GATED, Reporter
from koordinator.scheduler.rules.job_queues import (
    QueuedJob,
    QueuePosition,
    QueueRules,
    ReportedPositions,
    is_smaller,
)
from koordinator.scheduler.snapshot import ClusterState

INTERVAL_S = 1.0  # between two batches of reports
BATCH = 50  # reports per interval
_AHEAD = 5  # jobs ahead that are listed
_HEAD_CHARS = 200  # of the first job's message in reports about others


class QueuePlaces:
    """Queue positions, reported to the pod that represents a job and kept for PodGroups.

    Changed PodGroups are marked in the ``gangs`` caches.
    """

    def __init__(
        self,
        queues: JobQueues,
        state: ClusterState,
        gangs: Sequence[GangCache],
        reporter: Reporter,
        message_of: Callable[[str], str],
    ) -> None:
        """``message_of`` returns the message of a pending pod by key."""
        self._queues, self._state, self._gangs = queues, state, gangs
        self._reporter, self._message_of = reporter, message_of
        self._reported = ReportedPositions()
        self._texts: dict[str, tuple[int, str]] = {}  # position and reason by job
        self._due_s = 0.0

    def place_of(self, job_id: str) -> tuple[int, str] | None:
        """Return the position and reason last reported for a job."""
        return self._texts.get(job_id)

    def report(self, job: QueuedJob) -> GateReport:
        """Return the position of a job behind the front, with remedies."""
        quota = self._queues.cache.quota_of(job.id)
        rules = self._queues.cache.queues[quota].rules
        order = list(self._queues.in_order(quota))
        position = next(n for n, other in enumerate(order, start=1) if other.id == job.id)
        first = order[0]
        detail = f"position {position} of {len(order)} ({rules.policy}); {first.id} is first"
        why = self._why_first_waits(job, first)
        if why:
            detail += f" and waits: {why.rstrip('. ')}"
        return GateReport(
            f"waits for its turn in the queue of quota {quota}",
            detail,
            position,
            tuple(other.id for other in order[: position - 1][:_AHEAD]),
            tuple(_ways_to_pass(job, first, position, quota, rules)),
        )

    def _why_first_waits(self, job: QueuedJob, first: QueuedJob) -> str:
        """Return the message of the first job; empty for a job of another namespace."""
        if first.pod.partition("/")[0] != job.pod.partition("/")[0]:
            return ""
        return self._message_of(first.pod).partition(" preemption:")[0][:_HEAD_CHARS]

    def is_waiting(self, job_id: str) -> bool:
        """Return whether a job is in a queue."""
        return self._queues.cache.job(job_id) is not None

    def next_wakeup_s(self) -> float | None:
        """Return when the next report is due; None without one."""
        return self._due_s if self._queues.moved else None

    def drop_finished(self) -> None:
        """Drop finished jobs, without writes."""
        for job_id in self._queues.finished:
            if self._reported.forget(job_id) and not self.is_waiting(job_id):
                self._texts.pop(job_id, None)
                self._note_groups(job_id)
        self._queues.finished.clear()

    def step(self, now_s: float) -> None:
        """Report due positions, at most ``BATCH``."""
        queues = self._queues
        if not queues.moved or now_s < self._due_s:
            return
        self._due_s = now_s + INTERVAL_S
        left = BATCH
        for quota in list(queues.moved):
            for place in self._reported.due(queues.in_order(quota)):
                if not left:
                    return
                left -= 1
                self._reported.note(place)
                self._report(quota, place)
            del queues.moved[quota]

    def _report(self, quota: str, place: QueuePosition) -> None:
        job, cache = place.job, self._queues.cache
        text = (
            f"position {place.position} of {place.waiting} in the queue of quota {quota} "
            f"({cache.queues[quota].rules.policy}) when this was written"
        )
        if place.position > 1:
            text += f"; the first is {place.head.id}"
            why = self._why_first_waits(job, place.head)
            if why:
                text += f", which waits: {why}"
        self._texts[job.id] = (place.position, text)
        self._note_groups(job.id)
        pending = self._state.unbound.get(job.pod)
        if pending is not None and not cache.may_be_tried(job.id):
            self._reporter.report_unschedulable(pending[0], text, GATED)

    def _note_groups(self, job_id: str) -> None:
        for gangs in self._gangs:
            for gang_id in job_id.split(","):
                if gang_id in gangs.gangs:
                    gangs.changed[gang_id] = None


def _ways_to_pass(
    job: QueuedJob, first: QueuedJob, position: int, quota: str, rules: QueueRules
) -> Iterator[tuple[str, str]]:
    """Yield the remedies that bring a job to the front."""
    if position == 2:  # noqa: PLR2004 -- the next one
        yield "wait", f"wait until {first.id} starts, or delete it: {job.id} is next"
    text = f"a priority above {first.priority} (it has {job.priority})"
    yield "priority", f"{text}: it is first in the queue then"
    if rules.policy is QueuePolicy.STRICT and is_smaller(job.request, first.request):
        yield (
            "queue-policy",
            (
                f"set the annotation {QUEUE_POLICY} of quota {quota} to {QueuePolicy.BACKFILL}: "
                "jobs that request less than the first may then pass it"
            ),
        )
