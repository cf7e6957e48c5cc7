"""Lets waiting jobs begin, in their order, as far as the limits allow.

Source: koordinator pkg/descheduler/controllers/migration/arbitrator/arbitrator.go.
"""

import logging
from collections.abc import Callable, Sequence

from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import (
    PodMigrationJob,
)
from koordinator.descheduler.contract import (
    Handle,
)
from koordinator.descheduler.migration.arbitration import (
    in_arbitration_order,
    migrating_by_group,
    paired,
)
from koordinator.descheduler.migration.arguments import MigrationControllerArgs
from koordinator.descheduler.migration.decisions import (
    is_timed_out,
)
from koordinator.descheduler.migration.filters import MoveFilter
from koordinator.descheduler.migration.job_order import (
    as_passed,
    gang_of,
    gang_size_of,
    gangs_among,
    pods_before,
)
from koordinator.descheduler.migration.jobs import (
    JobIndex,
    has_passed,
    pod_key,
)
from koordinator.descheduler.migration.transitions import (
    JobEvent,
)
from koordinator.foundation.errors import (
    ClusterError,
)

log = logging.getLogger(__name__)


class Arbiter:
    """Arbitrates the jobs of one profile; knows which of them wait.

    ``is_mine`` tells whose jobs are meant, ``happen`` writes what an event makes of a job, and
    ``look_again`` takes in a job as the cluster has it now.  These may raise ClusterError.
    """

    def __init__(
        self,
        args: MigrationControllerArgs,
        handle: Handle,
        jobs: JobIndex,
        moves: MoveFilter,
        *,
        is_mine: Callable[[PodMigrationJob], bool],
        happen: Callable[[PodMigrationJob, JobEvent], object],
        look_again: Callable[[str], object],
    ) -> None:
        self._args, self._view, self._clock = args, handle.view, handle.clock
        self._jobs, self._filter = jobs, moves
        self._is_mine, self._happen, self._look_again = is_mine, happen, look_again
        self._next_s = 0.0
        self._waiting: dict[str, None] = {}  # names of jobs
        #: Jobs of which it is not known whether the last write arrived: names.
        self._maybe_passed: dict[str, None] = {}

    def note(self, name: str, *, waits: bool) -> None:
        """Take note of whether a job waits."""
        if waits:
            self._waiting[name] = None
        else:
            self._waiting.pop(name, None)

    def forget(self, name: str) -> None:
        """Take note that a job is gone."""
        self._waiting.pop(name, None)
        self._maybe_passed.pop(name, None)

    def next_s(self) -> float | None:
        """Return when to arbitrate next; None if nothing waits."""
        return self._next_s if self._waiting else None

    def step(self) -> int:
        """Let waiting jobs begin if it is time; return how many did."""
        now_s = self._clock.now_s()
        if not self._waiting or now_s < self._next_s:
            return 0
        self._next_s = now_s + self._args.arbitration_interval_s
        try:
            self._find_out_who_passed()
        except ClusterError as error:
            log.warning("arbitration put off", extra={"error": str(error)})
            return 0
        pods = self._view.objects(Pod)
        by_name = self._jobs.by_name
        waiting = [by_name[name] for name in self._waiting]
        waiting = [
            job
            for job in waiting
            if self._is_mine(job) and not job.spec.paused and not is_timed_out(job, now_s)
        ]
        waiting = self._in_their_turn(waiting)
        passed = (job for job in self._jobs.live() if has_passed(job))
        ordered = in_arbitration_order(paired(waiting, pods), migrating_by_group(passed, pods))
        done = 0
        for each in ordered:
            try:
                done += self._arbitrate_one(each.job, each.pod)
            except ClusterError as error:  # the limits can't be judged without knowing of this one
                self._maybe_passed[each.job.metadata.name] = None
                extra = {"job": each.job.metadata.name, "error": str(error)}
                log.warning("arbitration ended early", extra=extra)
                break
        return done

    def _in_their_turn(self, waiting: Sequence[PodMigrationJob]) -> list[PodMigrationJob]:
        """Return the jobs without those that wait for others, and gangs only whole."""
        free = [job for job in waiting if not any(map(self._is_moving, pods_before(job)))]
        held: set[str] = set()
        for gang, jobs in gangs_among(free).items():
            began = any(has_passed(job) for job in self._jobs.live() if gang_of(job) == gang)
            if not began and not self._may_begin_together(jobs):
                held.update(job.metadata.name for job in jobs)
        return [job for job in free if job.metadata.name not in held]

    def _is_moving(self, key: str) -> bool:
        return next(self._jobs.named_like(key), None) is not None

    def _may_begin_together(self, jobs: Sequence[PodMigrationJob]) -> bool:
        """Return whether no limit is exceeded when all jobs of a gang begin at once."""
        if len(jobs) < gang_size_of(jobs[0]):
            return False
        pods, begun = self._view.objects(Pod), []
        try:
            for job in jobs:
                pod = pods.get(pod_key(job.spec.pod_ref))
                if pod is None or self._filter.lasting_refusal(pod):
                    return True  # all fail, or are found to be without their pods
                if self._filter.passing_refusal(pod, arbitrating=True) is not None:
                    return False
                begun.append(job)
                self._jobs.put_job(as_passed(job))  # in thought
        finally:
            for job in begun:
                self._jobs.put_job(job)
        return True

    def _find_out_who_passed(self) -> None:
        for name in list(self._maybe_passed):
            self._look_again(name)
            self._maybe_passed.pop(name, None)

    def _arbitrate_one(self, job: PodMigrationJob, pod: Pod | None) -> bool:
        event, uid = JobEvent.ADMITTED, job.spec.pod_ref.uid
        extra = {"job": job.metadata.name, "pod": pod_key(job.spec.pod_ref)}
        if pod is not None and uid in {"", pod.metadata.uid}:  # else it is found to be missing
            lasting = self._filter.lasting_refusal(pod)
            passing = None if lasting else self._filter.passing_refusal(pod, arbitrating=True)
            if passing is not None:
                log.debug("job waits", extra={**extra, "check": str(passing)})
                return False
            if lasting is not None:
                log.info("job forbidden", extra={**extra, "check": str(lasting)})
                event = JobEvent.FORBIDDEN
        self._happen(job, event)
        return True
