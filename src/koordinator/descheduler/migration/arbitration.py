"""Arbitration: admission of waiting jobs in the order of their eviction cost, within the limits.

Source: koordinator pkg/descheduler/controllers/migration/arbitrator: arbitrator.go, sort.go;
controller.go ``trackEvictedPod``, ``checkPodExceedObjectLimiter``; golang.org/x/time/rate.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import (
    PodMigrationJob,
)
from koordinator.api.workload import Job
from koordinator.descheduler.candidates import SortKey, eviction_rank
from koordinator.descheduler.contract import (
    Handle,
)
from koordinator.descheduler.migration.arguments import (
    LimitedObject,
    MigrationControllerArgs,
    MigrationObjectLimiter,
)
from koordinator.descheduler.migration.decisions import (
    is_timed_out,
)
from koordinator.descheduler.migration.filters import MoveFilter
from koordinator.descheduler.migration.jobs import (
    JobIndex,
    as_passed,
    has_passed,
    jobs_by_gang,
    pod_key,
    proven_move_of,
)
from koordinator.descheduler.migration.transitions import (
    JobEvent,
)
from koordinator.descheduler.migration.workloads import resolved_limit
from koordinator.foundation.clock import to_epoch_s
from koordinator.foundation.errors import (
    ClusterError,
)
from koordinator.foundation.lazy_dataclass import dataclass

_EXPIRED_AFTER = 1.5  # durations since the last eviction
SPARE_BUCKETS = 64  # expired buckets kept before a sweep

log = logging.getLogger(__name__)

_FIRST: SortKey = ()  # a job without a pod: it fails without moving anything


@dataclass(frozen=True, slots=True)
class ArbitratedJob:
    """Waiting job with its pod, None if the pod does not exist."""

    job: PodMigrationJob
    pod: Pod | None

    @property
    def group(self) -> str:
        """Uid of the batch Job that owns the pod, else empty."""
        owner = None if self.pod is None else self.pod.metadata.controller
        return owner.uid if owner is not None and owner.kind == Job.KIND else ""


def in_arbitration_order(
    waiting: Iterable[ArbitratedJob], migrating: Mapping[str, int]
) -> list[ArbitratedJob]:
    """Return jobs in the order of arbitration.

    Jobs are sorted by the eviction rank of their pods, then newest first; the sort is stable.  Jobs
    for pods of one batch Job are grouped at the place of their first.  Groups with more pods
    ``migrating``, by uid of the batch Job, come before all others.
    """
    ordered = sorted(
        waiting, key=lambda each: -int(to_epoch_s(each.job.metadata.creation_timestamp))
    )
    ordered.sort(key=_pod_rank)
    places: dict[str, int] = {}
    for index, each in enumerate(ordered):
        places.setdefault(each.group or each.job.metadata.name, index)
    ordered.sort(key=lambda each: places[each.group or each.job.metadata.name])
    ordered.sort(key=lambda each: -migrating.get(each.group, 0) if each.group else 0)
    return ordered


def migrating_by_group(
    passed: Iterable[PodMigrationJob], pods: Mapping[str, Pod]
) -> Mapping[str, int]:
    """Return the number of admitted jobs by the uid of the batch Job."""
    known = (ArbitratedJob(job, pods.get(pod_key(job.spec.pod_ref))) for job in passed)
    return Counter(each.group for each in known if each.group)


def _pod_rank(waiting: ArbitratedJob) -> SortKey:
    return _FIRST if waiting.pod is None else eviction_rank(waiting.pod)


def paired(jobs: Sequence[PodMigrationJob], pods: Mapping[str, Pod]) -> list[ArbitratedJob]:
    """Return the jobs with their pods."""
    return [ArbitratedJob(job, pods.get(pod_key(job.spec.pod_ref))) for job in jobs]


class Arbiter:
    """Arbiter of the jobs of one profile.

    ``is_own`` selects the jobs of the profile, ``write_event`` writes an event to a job, and
    ``refresh`` reads a job from the API server.  The last two may raise ClusterError.
    """

    def __init__(
        self,
        args: MigrationControllerArgs,
        handle: Handle,
        jobs: JobIndex,
        moves: MoveFilter,
        *,
        is_own: Callable[[PodMigrationJob], bool],
        write_event: Callable[[PodMigrationJob, JobEvent], object],
        refresh: Callable[[str], object],
    ) -> None:
        self._args, self._view, self._clock = args, handle.view, handle.clock
        self._jobs, self._filter = jobs, moves
        self._is_mine, self._write_event, self._refresh = is_own, write_event, refresh
        self._next_s = 0.0
        self._waiting: dict[str, None] = {}  # names of jobs
        #: Names of jobs whose admission was written without an answer.
        self._unknown_admissions: dict[str, None] = {}

    def note(self, name: str, *, waits: bool) -> None:
        """Add a job to the waiting ones, or remove it."""
        if waits:
            self._waiting[name] = None
        else:
            self._waiting.pop(name, None)

    def forget(self, name: str) -> None:
        """Remove a deleted job."""
        self._waiting.pop(name, None)
        self._unknown_admissions.pop(name, None)

    def next_s(self) -> float | None:
        """Return the time of the next arbitration; None if no job waits."""
        return self._next_s if self._waiting else None

    def step(self) -> int:
        """Arbitrate if the interval has passed; return the number of jobs written."""
        now_s = self._clock.now_s()
        if not self._waiting or now_s < self._next_s:
            return 0
        self._next_s = now_s + self._args.arbitration_interval_s
        try:
            self._resolve_unknown_admissions()
        except ClusterError as error:
            log.warning("arbitration postponed", extra={"error": str(error)})
            return 0
        pods = self._view.objects(Pod)
        by_name = self._jobs.by_name
        waiting = [by_name[name] for name in self._waiting]
        waiting = [
            job
            for job in waiting
            if self._is_mine(job) and not job.spec.paused and not is_timed_out(job, now_s)
        ]
        waiting = self._eligible(waiting)
        passed = (job for job in self._jobs.live() if has_passed(job))
        ordered = in_arbitration_order(paired(waiting, pods), migrating_by_group(passed, pods))
        done = 0
        for each in ordered:
            try:
                done += self._arbitrate_job(each.job, each.pod)
            except ClusterError as error:  # the limits depend on whether this one passed
                self._unknown_admissions[each.job.metadata.name] = None
                extra = {"job": each.job.metadata.name, "error": str(error)}
                log.warning("arbitration ended early", extra=extra)
                break
        return done

    def _eligible(self, waiting: Sequence[PodMigrationJob]) -> list[PodMigrationJob]:
        """Return the jobs that wait for no other job, and only complete gangs."""
        free = [
            job
            for job in waiting
            if not any(any(self._jobs.named_like(key)) for key in proven_move_of(job).after)
        ]
        deferred: set[str] = set()
        for gang, jobs in jobs_by_gang(free).items():
            began = any(
                has_passed(job) for job in self._jobs.live() if proven_move_of(job).gang == gang
            )
            if not began and not self._may_start_together(jobs):
                deferred.update(job.metadata.name for job in jobs)
        return [job for job in free if job.metadata.name not in deferred]

    def _may_start_together(self, jobs: Sequence[PodMigrationJob]) -> bool:
        """Return whether no limit is exceeded when all jobs of a gang start."""
        if len(jobs) < proven_move_of(jobs[0]).gang_size:
            return False
        pods, started = self._view.objects(Pod), []
        try:
            for job in jobs:
                pod = pods.get(pod_key(job.spec.pod_ref))
                if pod is None or self._filter.lasting_refusal(pod):
                    return True  # their arbitration ends in failure for each
                if self._filter.passing_refusal(pod, arbitrating=True) is not None:
                    return False
                started.append(job)
                self._jobs.put_job(as_passed(job))  # so that the next one counts it; undone below
        finally:
            for job in started:
                self._jobs.put_job(job)
        return True

    def _resolve_unknown_admissions(self) -> None:
        for name in list(self._unknown_admissions):
            self._refresh(name)
            self._unknown_admissions.pop(name, None)

    def _arbitrate_job(self, job: PodMigrationJob, pod: Pod | None) -> bool:
        event, uid = JobEvent.ADMITTED, job.spec.pod_ref.uid
        extra = {"job": job.metadata.name, "pod": pod_key(job.spec.pod_ref)}
        if pod is not None and uid in {
            "",
            pod.metadata.uid,
        }:  # otherwise the next step reports it missing
            lasting = self._filter.lasting_refusal(pod)
            passing = None if lasting else self._filter.passing_refusal(pod, arbitrating=True)
            if passing is not None:
                log.debug("job waits", extra={**extra, "check": str(passing)})
                return False
            if lasting is not None:
                log.info("job forbidden", extra={**extra, "check": str(lasting)})
                event = JobEvent.FORBIDDEN
        self._write_event(job, event)
        return True


@dataclass(slots=True)
class EvictionBucket:
    """Token bucket; a new one is full."""

    rate_per_s: float
    burst: int
    tokens: float
    counted_s: float

    def available(self, now_s: float) -> float:
        """Return the number of tokens, which may be negative."""
        earned = max(0.0, now_s - self.counted_s) * self.rate_per_s
        return min(float(self.burst), self.tokens + earned)

    def take(self, now_s: float, rate_per_s: float) -> None:
        """Take a token if one is available, and set the refill rate."""
        tokens = self.available(now_s)
        self.tokens = tokens - 1 if tokens >= 1 else tokens
        self.counted_s = max(now_s, self.counted_s)
        self.rate_per_s = rate_per_s

    def next_s(self, now_s: float) -> float:
        """Return when a token is available."""
        shortfall = 1 - self.available(now_s)
        return now_s if shortfall <= 0 else now_s + shortfall / self.rate_per_s


class ObjectLimiters:
    """Rate limits of evictions: a token bucket per workload and per namespace.

    The buckets depend on past evictions only: after a restart they are rebuilt from the evictions
    recorded in jobs.
    """

    def __init__(self, args: MigrationControllerArgs) -> None:
        self._per_workload = args.max_migrating_per_workload
        self._limiters = {
            LimitedObject(name): limiter
            for name, limiter in args.object_limiters.items()
            if limiter.duration.total_seconds() > 0
        }
        self._buckets: dict[tuple[LimitedObject, str], EvictionBucket] = {}
        self._swept = SPARE_BUCKETS

    def next_eviction_s(self, pod: Pod, now_s: float) -> float:
        """Return the earliest time at which a pod may be evicted."""
        owner = pod.metadata.controller
        keys = self._keys("" if owner is None else owner.uid, pod.metadata.namespace)
        return max((self._next_s(kind, name, now_s) for kind, _, name in keys), default=now_s)

    def note_eviction(
        self, workload_uid: str, namespace: str, replicas: int, when_s: float
    ) -> None:
        """Count an eviction; ``replicas`` is the scale of the workload at that time."""
        for kind, limiter, name in self._keys(workload_uid, namespace):
            most = self._most(kind, limiter, replicas)
            if most <= 0:
                continue
            rate_per_s = most / limiter.duration.total_seconds()
            bucket = self._buckets.get((kind, name))
            if bucket is None or self._is_expired(kind, bucket, when_s):
                burst = limiter.burst or 1
                bucket = EvictionBucket(rate_per_s, burst, float(burst), when_s)
                self._buckets[kind, name] = bucket
            bucket.take(when_s, rate_per_s)
        self._sweep(when_s)

    def _keys(
        self, workload_uid: str, namespace: str
    ) -> Iterator[tuple[LimitedObject, MigrationObjectLimiter, str]]:
        for kind, limiter in self._limiters.items():
            name = workload_uid if kind is LimitedObject.WORKLOAD else namespace
            if name:
                yield kind, limiter, name

    def _next_s(self, kind: LimitedObject, name: str, now_s: float) -> float:
        bucket = self._buckets.get((kind, name))
        if bucket is None or self._is_expired(kind, bucket, now_s):
            return now_s
        return bucket.next_s(now_s)

    def _most(self, kind: LimitedObject, limiter: MigrationObjectLimiter, replicas: int) -> int:
        amount = limiter.max_migrating
        if kind is LimitedObject.NAMESPACE:
            # A percentage has no base: as in the original, no limit.
            return amount if isinstance(amount, int) else 0
        return resolved_limit(replicas, self._per_workload if amount is None else amount)

    def _is_expired(self, kind: LimitedObject, bucket: EvictionBucket, now_s: float) -> bool:
        kept_s = self._limiters[kind].duration.total_seconds() * _EXPIRED_AFTER
        return now_s > bucket.counted_s + kept_s

    def _sweep(self, now_s: float) -> None:
        if len(self._buckets) < self._swept:
            return
        self._buckets = {
            key: bucket
            for key, bucket in self._buckets.items()
            if not self._is_expired(key[0], bucket, now_s)
        }
        self._swept = 2 * len(self._buckets) + SPARE_BUCKETS
