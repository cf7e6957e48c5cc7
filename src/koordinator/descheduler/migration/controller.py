"""The MigrationController: makes jobs of evictions, lets them begin, and sees them through.

Everything it knows of a job is in the job, so that whoever comes after it goes on where it stopped.
A change of a job is written only if nobody has written since it was read.  What it changes besides
jobs may be done twice without harm: a reservation has the uid of its job as name, and an eviction
is for one uid of a pod.
Source: koordinator pkg/descheduler/controllers/migration: controller.go, evict.go.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import TypeVar
from uuid import UUID, uuid5

from msgspec.structs import replace

from koordinator.api.annotations.descheduling import (
    EVICT_REASON,
    EVICT_TRIGGER,
    EVICTION_ATTEMPT,
    JOB_CREATED_BY,
    PROVEN_MOVE,
    EvictionAttempt,
)
from koordinator.api.codec import merge_patch
from koordinator.api.core import ObjectReference
from koordinator.api.defaults import with_defaults
from koordinator.api.labels import RESERVATION_ORDER
from koordinator.api.meta import JsonObject, KubeObject, ObjectMeta
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import (
    PodMigrationJob,
    PodMigrationJobConditionType,
    PodMigrationJobMode,
    PodMigrationJobReason,
    PodMigrationJobSpec,
)
from koordinator.api.reservation import Reservation
from koordinator.api.selectors import parse_label_selector
from koordinator.cluster.reconcile import ReconcileQueue
from koordinator.descheduler.contract import (
    ERROR,
    SUCCESS,
    DeschedulerPluginSpec,
    EvictOptions,
    Handle,
)
from koordinator.descheduler.migration.arbitration import (
    in_arbitration_order,
    migrating_by_group,
    paired,
)
from koordinator.descheduler.migration.arguments import EvictionGate, MigrationControllerArgs
from koordinator.descheduler.migration.decisions import (
    Evict,
    GiveOrder,
    Happened,
    JobDecision,
    JobSituation,
    Reserve,
    Wait,
    deadline_s,
    decide,
    is_evicted,
    is_timed_out,
    is_usable,
    reference_to_pod,
    ttl_s,
)
from koordinator.descheduler.migration.events import descheduled, event_about
from koordinator.descheduler.migration.evictors import evictor_for
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
    attempt_of,
    condition_of,
    has_passed,
    is_live,
    mode_of,
    pod_key,
    reason_of,
    reservation_ref,
    trigger_of,
)
from koordinator.descheduler.migration.object_limiters import EvictionBucket, ObjectLimiters
from koordinator.descheduler.migration.reservation_template import (
    job_reference_of,
    options_avoiding,
    order_now,
    reservation_for,
)
from koordinator.descheduler.migration.transitions import (
    LAST_STATES,
    NO_FACTS,
    EventFacts,
    JobAnnouncement,
    JobEvent,
    JobState,
    apply_event,
    state_of,
)
from koordinator.descheduler.migration.workloads import WORKLOAD_KINDS, Workloads, controller_of
from koordinator.descheduler.node_fit import fits_elsewhere, is_ready
from koordinator.descheduler.pod_filters import selected_nodes
from koordinator.foundation.clock import to_datetime, to_epoch_s
from koordinator.foundation.errors import (
    AlreadyExistsError,
    BugError,
    ClusterError,
    ConflictError,
    InputError,
    InvalidError,
    NotFoundError,
    TooManyRequestsError,
)

KindT = TypeVar("KindT", bound=KubeObject)

log = logging.getLogger(__name__)

NO_CLAIMS = "DisablePVCReservation"  # a feature gate
KEYS_PER_STEP = 64  # so that the loop gets round
LONGEST_BACKOFF_S = 15.0
SCAVENGED_AFTER_S = 300.0  # after the ttl
SCAVENGED_WITHOUT_TTL_S = 1800.0
_MOVES_PER_LOOK = 16  # more than the longest life of a job has
_SECOND_S = 1.0  # times of objects have whole seconds
#: Answers to an eviction that say that it has not been made.
_REFUSALS = (TooManyRequestsError, NotFoundError, ConflictError, InvalidError)
_NAMES = UUID("b0a3c1de-70a7-5b0f-9d52-3f8a4f3c9f55")
_MUST_BE_SURE = frozenset(
    (JobState.ADMITTED, JobState.DIRECT, JobState.UNRESERVED, JobState.RESERVED)
)


class _Kind(StrEnum):
    JOB = "job"
    RESERVATION = "reservation"


_Key = tuple[_Kind, str]


class _ThrottledError(Exception):
    """The rate of evictions is used up; what failed before is not forgotten meanwhile."""

    def __init__(self, until_s: float) -> None:
        super().__init__(until_s)
        self.until_s = until_s


class MigrationController:
    """Moves pods by PodMigrationJobs: evicts, filters, and works between cycles."""

    def __init__(self, args: MigrationControllerArgs, handle: Handle) -> None:
        self._args, self._handle = args, handle
        self._view, self._writer, self._clock = handle.view, handle.writer, handle.clock
        self._jobs = JobIndex()
        self._workloads = Workloads(handle.view)
        self._filter = MoveFilter(args, handle.view, self._jobs, self._workloads)
        self._limiters = ObjectLimiters(args)
        burst = args.evict_burst
        self._rate = EvictionBucket(args.evictions_per_s, burst, float(burst), handle.clock.now_s())
        self._queue: ReconcileQueue[_Key] = ReconcileQueue()
        self._next_arbitration_s = 0.0
        self._waiting: dict[str, None] = {}  # names of jobs
        self._fresh: dict[str, Reservation] = {}  # newer than what the view may show
        self._owned: dict[str, dict[str, str]] = {}  # uid of a job -> its reservations and uids
        self._owner_of: dict[str, str] = {}  # reservation -> uid of its job
        self._interested: dict[str, str] = {}  # reservation, or key of a bound pod -> job
        self._counted: dict[str, None] = {}  # uids of jobs whose eviction the limiters know
        self._bereft: dict[str, str] = {}  # reservations of jobs that were deleted, and uids
        #: Jobs of which it is not known whether the last write arrived: names.
        self._maybe_passed: dict[str, None] = {}
        self._maybe_evicted: dict[str, None] = {}

    # -- what plugins ask --------------------------------------------------------------------

    def filter(self, pod: Pod) -> bool:
        """Return whether a job may be made for the pod."""
        refusal = self._filter.refusal(pod)
        if refusal is not None:
            log.debug("pod stays", extra={"pod": pod.key, "check": str(refusal)})
        return refusal is None

    def pre_eviction_filter(self, pod: Pod) -> bool:
        """Return whether some ready node could take the pod, if ``nodeFit`` asks for it."""
        if not self._args.node_fit or self._args.skips(EvictionGate.NODE_FIT):
            return True
        nodes = selected_nodes(
            tuple(self._view.objects(Node).values()), parse_label_selector(self._args.node_selector)
        )
        return fits_elsewhere((node for node in nodes if is_ready(node)), pod, self._view)

    def evict(self, pod: Pod, options: EvictOptions) -> bool:
        """Make a job for the pod; return whether there is one now."""
        extra = {"pod": pod.key, "plugin": options.plugin, "reason": options.reason}
        if self._args.dry_run:
            log.info("pod would be moved, but for the dry run", extra=extra)
            return True
        now_s = self._clock.now_s()
        refusal = self._filter.refusal(pod)
        if refusal is not None:
            log.info("pod not moved", extra={**extra, "why": str(refusal)})
            return False
        next_s = self._limiters.next_eviction_s(pod, now_s)
        if next_s > now_s:
            log.info("pod not moved", extra={**extra, "why": "objectLimiters", "until_s": next_s})
            return False
        try:
            self._take_in_job(self._writer.create(self._job_for(pod, options, now_s)))
        except ClusterError as error:
            log.warning("job not created", extra={**extra, "error": str(error)})
            return False
        return True

    def evict_together(self, pods: Sequence[tuple[Pod, EvictOptions]]) -> bool:
        """Make jobs for all of the pods, or for none; return whether there are jobs now."""
        made: list[str] = []
        for pod, options in pods:
            if not self.evict(pod, options):
                for name in made:
                    self._take_back(name)
                return False
            made += [job.metadata.name for job in self._jobs.live_about(pod)]
        return True

    def place_to_reserve(self, pod: Pod, avoided_nodes: tuple[str, ...] = ()) -> Reservation | None:
        """Return the reservation that a job for the pod would make; None: it makes none.

        Raises InputError if none can be made.
        """
        if self._args.default_job_mode != PodMigrationJobMode.RESERVATION_FIRST:
            return None
        now_s = self._clock.now_s()
        nobody = EvictOptions(plugin="", profile=self._handle.profile, avoided_nodes=avoided_nodes)
        job = self._job_for(pod, nobody, now_s)
        uid = job.metadata.name
        job = replace(job, metadata=replace(job.metadata, uid=uid))
        drops = NO_CLAIMS in self._handle.gates
        made = with_defaults(reservation_for(job, pod, now_s, drops_claims=drops))
        return replace(made, metadata=replace(made.metadata, uid=uid))

    def moves_under_way(self) -> Iterator[tuple[Pod, Reservation | None]]:
        """Yield the pods of live jobs whose places are not reserved yet, the oldest job first."""
        pods, now_s = self._view.objects(Pod), self._clock.now_s()
        drops = NO_CLAIMS in self._handle.gates
        jobs = sorted(
            (to_epoch_s(job.metadata.creation_timestamp), job.metadata.name, job)
            for job in self._jobs.live()
            if self._is_mine(job) and not job.spec.paused
        )
        for _, _, job in jobs:
            pod = pods.get(pod_key(job.spec.pod_ref))
            if (
                pod is None
                or pod.metadata.deletion_timestamp is not None
                or not pod.spec.node_name
                or job.spec.pod_ref.uid not in {"", pod.metadata.uid}
            ):
                continue
            if mode_of(job, self._args.default_job_mode) == PodMigrationJobMode.EVICT_DIRECTLY:
                yield pod, None
                continue
            reference = reservation_ref(job)
            reservation = None if reference is None else self._known_reservation(reference.name)
            if reservation is None:
                with suppress(InputError):
                    made = with_defaults(reservation_for(job, pod, now_s, drops_claims=drops))
                    yield pod, replace(made, metadata=replace(made.metadata, uid=job.metadata.uid))
            elif not reservation.status.node_name:
                yield pod, reservation

    def _known_reservation(self, name: str) -> Reservation | None:
        return self._fresh.get(name) or self._view.objects(Reservation).get(name)

    def _take_back(self, name: str) -> None:
        """Delete a job that has not begun."""
        job = self._jobs.by_name.get(name)
        if job is None:
            return
        try:
            self._writer.delete(PodMigrationJob, name, uid=job.metadata.uid)
        except ClusterError as error:
            log.warning("job not taken back", extra={"job": name, "error": str(error)})
        else:
            self._drop_job(job)

    def _job_for(self, pod: Pod, options: EvictOptions, now_s: float) -> PodMigrationJob:
        proven, mode = options.proven, self._args.default_job_mode
        return PodMigrationJob(
            metadata=ObjectMeta(
                name=str(uuid5(_NAMES, f"{pod.metadata.uid} {now_s}")),
                annotations={
                    EVICT_REASON: options.reason,
                    EVICT_TRIGGER: options.plugin,
                    JOB_CREATED_BY: self._handle.profile,
                    **(PROVEN_MOVE.entry(proven) if proven is not None else {}),
                },
            ),
            spec=PodMigrationJobSpec(
                pod_ref=reference_to_pod(pod),
                # A gang lands as one: places kept for single members would be none for the gang.
                mode=PodMigrationJobMode.EVICT_DIRECTLY if proven and proven.gang else mode,
                ttl=self._args.default_job_ttl,
                delete_options=options.delete_options or self._args.default_delete_options,
                reservation_options=options_avoiding(pod, options.avoided_nodes),
            ),
        )

    # -- events --------------------------------------------------------------------------------

    def observe(self, obj: KubeObject, *, deleted: bool) -> None:
        """Take note of a change, and look again at the jobs that it concerns."""
        self._workloads.observe(obj, deleted=deleted)
        match obj:
            case PodMigrationJob() if deleted:
                self._drop_job(obj)
            case PodMigrationJob():
                self._take_in_job(obj)
            case Reservation():
                self._observe_reservation(obj, deleted=deleted)
            case Pod():
                for job in self._jobs.named_like(obj.key):
                    self._queue.add((_Kind.JOB, job.metadata.name))
                if obj.key in self._interested:
                    self._queue.add((_Kind.JOB, self._interested[obj.key]))

    def _take_in_job(self, job: PodMigrationJob) -> None:
        if not self._jobs.put_job(job):
            return
        name, meta, state = job.metadata.name, job.metadata, self._state(job)
        if state is JobState.WAITING:
            self._waiting[name] = None
        else:
            self._waiting.pop(name, None)
        reference, bound = reservation_ref(job), job.status.pod_ref
        if reference is not None:
            self._interested[reference.name] = name
        if bound is not None and is_live(job):
            self._interested[pod_key(bound)] = name
        if meta.uid not in self._counted and attempt_of(job) is not None:
            eviction = condition_of(job, PodMigrationJobConditionType.EVICTION)
            if eviction is None:
                self._maybe_evicted[name] = None
            else:
                when_s = to_epoch_s(eviction.last_transition_time) + _SECOND_S
                self._count_eviction(job, min(when_s, self._clock.now_s()))
        self._queue.add((_Kind.JOB, name))

    def _drop_job(self, job: PodMigrationJob) -> None:
        name, uid = job.metadata.name, job.metadata.uid
        known = self._jobs.drop_job(name) or job
        self._waiting.pop(name, None)
        for names in (self._maybe_passed, self._maybe_evicted):
            names.pop(name, None)
        self._counted.pop(uid, None)
        self._queue.forget((_Kind.JOB, name))
        reference, bound = reservation_ref(known), known.status.pod_ref
        if reference is not None:
            self._interested.pop(reference.name, None)
            self._bereave(reference.name, reference.uid)
        if bound is not None:
            self._interested.pop(pod_key(bound), None)
        for reservation, its_uid in self._owned.get(uid, {}).items():
            self._bereave(reservation, its_uid)

    def _bereave(self, reservation: str, uid: str) -> None:
        self._bereft[reservation] = uid
        self._queue.add((_Kind.RESERVATION, reservation))

    def _observe_reservation(self, reservation: Reservation, *, deleted: bool) -> None:
        name = reservation.metadata.name
        self._fresh.pop(name, None)
        before = self._owner_of.pop(name, "")
        if before:
            self._owned[before].pop(name, None)
            if not self._owned[before]:
                del self._owned[before]
        owner = job_reference_of(reservation.metadata)
        if deleted:
            self._bereft.pop(name, None)
        elif owner is not None:
            self._note_owned(owner.uid, reservation)
            if not self._jobs.has_uid(owner.uid):
                self._queue.add((_Kind.RESERVATION, name))
        if owner is not None and owner.name in self._jobs.by_name:
            self._queue.add((_Kind.JOB, owner.name))
        if name in self._interested:
            self._queue.add((_Kind.JOB, self._interested[name]))

    def _note_owned(self, job_uid: str, reservation: Reservation) -> None:
        meta = reservation.metadata
        self._owned.setdefault(job_uid, {})[meta.name] = meta.uid
        self._owner_of[meta.name] = job_uid

    # -- work --------------------------------------------------------------------------------

    def step(self) -> int:
        """Let waiting jobs begin if it is time, and see those through that are due."""
        if self._handle.is_dry_run:
            return 0
        done = self._arbitrate()
        for _ in range(KEYS_PER_STEP):
            key = self._queue.pop(self._clock.now_s())
            if key is None:
                break
            self._reconcile(key)
            done += 1
        return done

    def next_wakeup_s(self) -> float | None:
        """Return when something is due although nothing happens; None if never."""
        if self._handle.is_dry_run:
            return None
        times = [at_s for at_s in (self._queue.next_s(),) if at_s is not None]
        if self._waiting:
            times.append(self._next_arbitration_s)
        return min(times, default=None)

    def _arbitrate(self) -> int:
        now_s = self._clock.now_s()
        if not self._waiting or now_s < self._next_arbitration_s:
            return 0
        self._next_arbitration_s = now_s + self._args.arbitration_interval_s
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
            job = self._now(PodMigrationJob, name)
            if job is not None:
                self._take_in_job(job)
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

    def _reconcile(self, key: _Key) -> None:
        kind, name = key
        work = self._reconcile_job if kind is _Kind.JOB else self._reconcile_reservation
        now_s = self._clock.now_s()
        try:
            again_s = work(name)
        except _ThrottledError as throttled:
            self._queue.add_at(key, throttled.until_s)
        except ClusterError as error:
            self._queue.failed(key, now_s)
            self._queue.add_at(key, now_s + LONGEST_BACKOFF_S)
            job = self._jobs.by_name.get(name)
            if kind is _Kind.JOB and job is not None:
                self._queue.add_at(key, self._next_date_s(job))
            extra = {kind.value: name, "error": str(error)}
            log.info("tried again later", extra=extra)
        except Exception:
            self._queue.failed(key, now_s)
            raise
        else:
            self._queue.succeeded(key, again_s)

    def _reconcile_job(self, name: str) -> float | None:
        job = self._jobs.by_name.get(name)
        if job is None or not self._is_mine(job):
            return None
        now_s = self._clock.now_s()
        if now_s >= _scavenging_s(job):
            self._scavenge(job)
            return None
        for _ in range(_MOVES_PER_LOOK):
            if self._state(job) in LAST_STATES:
                self._clean_up(job)
                return self._next_date_s(job)
            decision = decide(self._look_at(job))
            if isinstance(decision, Wait):
                dates = [self._next_date_s(job)]
                if decision.until_s is not None:
                    dates.append(decision.until_s)
                return min(dates)
            if isinstance(decision, Evict) and self._rate.next_s(now_s) > now_s:
                raise _ThrottledError(min(self._rate.next_s(now_s), self._next_date_s(job)))
            job = self._carry_out(job, decision)
        raise BugError(f"PodMigrationJob {name} never comes to rest")

    def _carry_out(self, job: PodMigrationJob, decision: JobDecision) -> PodMigrationJob:
        match decision:
            case Happened(event=event, facts=facts):
                return self._happen(job, event, facts)
            case Reserve(pod=pod):
                return self._reserve(job, pod)
            case GiveOrder(reservation=reservation):
                self._give_order(reservation)
            case Evict(pod=pod, reservation=reservation):
                return self._evict(job, pod, reservation)
        return job

    def _next_date_s(self, job: PodMigrationJob) -> float:
        """Return when time alone makes something of a job: it fails, or is deleted."""
        at_s = deadline_s(job) if is_live(job) and not job.spec.paused else None
        return _scavenging_s(job) if at_s is None else at_s

    # -- what a job depends on ---------------------------------------------------------------

    def _look_at(self, job: PodMigrationJob) -> JobSituation:
        now_s, state = self._clock.now_s(), self._state(job)
        pod = self._pod_of(job, state)
        next_eviction_s = 0.0 if pod is None else self._limiters.next_eviction_s(pod, now_s)
        bound = job.status.pod_ref
        return JobSituation(
            job=job,
            now_s=now_s,
            default_mode=self._args.default_job_mode,
            pod=pod,
            reservation=self._reservation_of(job),
            bound_pod=self._bound_pod(bound) if bound and state is JobState.BOUND else None,
            next_eviction_s=next_eviction_s,
        )

    def _pod_of(self, job: PodMigrationJob, state: JobState) -> Pod | None:
        """Return the pod of that name; whether it is gone is made sure where a job ends by it."""
        reference = job.spec.pod_ref
        found = self._view.objects(Pod).get(pod_key(reference))
        is_there = found is not None and reference.uid in {"", found.metadata.uid}
        if is_there or state not in _MUST_BE_SURE or not reference.name:
            return found
        return self._now(Pod, reference.name, reference.namespace)

    def _bound_pod(self, reference: ObjectReference) -> Pod | None:
        found = self._view.objects(Pod).get(pod_key(reference))
        if found is None:
            found = self._now(Pod, reference.name, reference.namespace)
        is_same = found is not None and reference.uid in {"", found.metadata.uid}
        return found if is_same else None

    def _reservation_of(self, job: PodMigrationJob) -> Reservation | None:
        reference = reservation_ref(job)
        if reference is None:
            return None
        name = reference.name
        found = self._fresh.get(name) or self._view.objects(Reservation).get(name)
        if found is None or reference.uid not in {"", found.metadata.uid}:
            found = self._now(Reservation, name)
            if found is not None:
                self._fresh[name] = found
        is_same = found is not None and reference.uid in {"", found.metadata.uid}
        return found if is_same else None

    def _now(self, kind: type[KindT], name: str, namespace: str = "") -> KindT | None:
        try:
            return self._writer.get(kind, name, namespace)
        except NotFoundError:
            return None

    # -- what is done ------------------------------------------------------------------------

    def _happen(
        self,
        job: PodMigrationJob,
        event: JobEvent,
        facts: EventFacts = NO_FACTS,
    ) -> PodMigrationJob:
        """Write what an event makes of a job, if nobody has written since; then tell it."""
        default = self._args.default_job_mode
        now_s = self._clock.now_s()
        moved = apply_event(job, event, to_datetime(now_s), facts, default_mode=default)
        written = self._write(job, moved.job)
        log.info(
            "job goes on",
            extra={"job": job.metadata.name, "pod": pod_key(job.spec.pod_ref), "event": event.name},
        )
        self._writer.report([event_about(written, each, now_s) for each in moved.announcements])
        return written

    def _write(self, before: PodMigrationJob, after: PodMigrationJob) -> PodMigrationJob:
        change = merge_patch(before, after)
        status = change.pop("status", None)
        written = self._patch_job(before, change) if change else before
        return self._patch_job(written, {"status": status}, "status") if status else written

    def _patch_job(
        self, job: PodMigrationJob, change: JsonObject, subresource: str = ""
    ) -> PodMigrationJob:
        meta = job.metadata
        same = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        patch = {**change, "metadata": {**change.get("metadata", {}), **same}}
        written = self._writer.patch(PodMigrationJob, meta.name, "", patch, subresource)
        self._take_in_job(written)
        return written

    def _reserve(self, job: PodMigrationJob, pod: Pod) -> PodMigrationJob:
        try:
            reservation = self._create_reservation(job, pod)
        except (ClusterError, InputError) as error:
            self._happen(job, JobEvent.RESERVATION_REFUSED, EventFacts(message=str(error)))
            raise ClusterError(str(error)) from error
        meta = reservation.metadata
        reference = ObjectReference(
            kind=Reservation.KIND,
            api_version=Reservation.API_VERSION,
            name=meta.name,
            uid=meta.uid,
        )
        return self._happen(job, JobEvent.RESERVATION_MADE, EventFacts(reservation=reference))

    def _create_reservation(self, job: PodMigrationJob, pod: Pod) -> Reservation:
        """Return the reservation of the job, be it that an earlier answer was lost.

        Raises InputError, and ClusterError if the name is somebody else's.
        """
        wanted = reservation_for(
            job, pod, self._clock.now_s(), drops_claims=NO_CLAIMS in self._handle.gates
        )
        try:
            made = self._writer.create(wanted)
        except AlreadyExistsError:
            made = self._writer.get(Reservation, wanted.metadata.name)
            owner = job_reference_of(made.metadata)
            if owner is None or owner.uid != job.metadata.uid:
                raise
        self._fresh[made.metadata.name] = made
        self._note_owned(job.metadata.uid, made)
        return made

    def _give_order(self, reservation: Reservation) -> None:
        meta = reservation.metadata
        label = {RESERVATION_ORDER: order_now(self._clock.now_s())}
        patch = {"metadata": {"uid": meta.uid, "labels": label}}
        self._fresh[meta.name] = self._writer.patch(Reservation, meta.name, "", patch)

    def _evict(
        self, job: PodMigrationJob, pod: Pod, reservation: Reservation | None
    ) -> PodMigrationJob:
        """Evict the pod, once it is written that this is tried and the place is made sure of."""
        now_s = self._clock.now_s()
        if self._maybe_evicted:
            self._find_out_who_was_evicted()
            return self._jobs.by_name.get(job.metadata.name, job)  # judged anew
        attempt = self._attempt(pod)
        known = attempt_of(job)
        if known is None or known.pod_uid != attempt.pod_uid:
            annotations = {**job.metadata.annotations, **EVICTION_ATTEMPT.entry(attempt)}
            meta = replace(job.metadata, annotations=annotations)
            job = self._write(job, replace(job, metadata=meta))
            self._maybe_evicted.pop(job.metadata.name, None)  # not tried yet
        if reservation is not None:
            name = reservation.metadata.name
            latest = self._writer.get(Reservation, name)
            if latest.metadata.uid != reservation.metadata.uid or not is_usable(latest, pod):
                self._fresh[name] = latest
                return job
        self._rate.take(now_s, self._args.evictions_per_s)
        self._call_evictor(job, pod, now_s)
        self._count_eviction(job, now_s)
        return self._happen(job, JobEvent.EVICTION_ISSUED, EventFacts(node=pod.spec.node_name))

    def _find_out_who_was_evicted(self) -> None:
        for name in list(self._maybe_evicted):
            job = self._jobs.by_name[name]
            reference, attempt = job.spec.pod_ref, attempt_of(job)
            pod = self._now(Pod, reference.name, reference.namespace)
            if attempt is not None and is_evicted(pod, attempt):
                self._count_eviction(job, self._clock.now_s())
            self._maybe_evicted.pop(name, None)

    def _call_evictor(self, job: PodMigrationJob, pod: Pod, now_s: float) -> None:
        options = job.spec.delete_options or self._args.default_delete_options
        evictor = evictor_for(pod, job, self._args.eviction_policy)
        trigger, reason = trigger_of(job), reason_of(job)
        try:
            evictor(self._writer, pod, job, options, now_s)
        except ClusterError as error:
            self._handle.count(trigger, pod, ERROR)
            note = f'Failed evict Pod "{pod.key}" caused by {error}'
            told = JobAnnouncement(PodMigrationJobReason.EVICTING, note, is_warning=True)
            self._writer.report([event_about(job, told, now_s)])
            if not isinstance(error, _REFUSALS):
                self._maybe_evicted[job.metadata.name] = None
            raise
        self._handle.count(trigger, pod, SUCCESS)
        self._writer.report([descheduled(pod, reason, now_s)])
        extra = {"pod": pod.key, "node": pod.spec.node_name, "reason": reason, "trigger": trigger}
        log.info("pod evicted", extra=extra)

    def _attempt(self, pod: Pod) -> EvictionAttempt:
        owner, uid = controller_of(pod), pod.metadata.uid
        if owner is None:
            return EvictionAttempt(pod_uid=uid)
        scale = self._workloads.scale_of(owner, pod.metadata.namespace)
        replicas = 0 if scale.is_ending else scale.replicas
        return EvictionAttempt(pod_uid=uid, workload_uid=owner.uid, workload_replicas=replicas)

    def _count_eviction(self, job: PodMigrationJob, when_s: float) -> None:
        attempt = attempt_of(job)
        if attempt is None:
            return
        self._counted[job.metadata.uid] = None
        self._maybe_evicted.pop(job.metadata.name, None)
        self._limiters.note_eviction(
            attempt.workload_uid,
            job.spec.pod_ref.namespace,
            attempt.workload_replicas,
            when_s,
        )

    # -- what is left ------------------------------------------------------------------------

    def _clean_up(self, job: PodMigrationJob) -> None:
        """Delete the reservation of a job that came to nothing."""
        if self._state(job) is JobState.SUCCEEDED:
            return
        left = dict(self._owned.get(job.metadata.uid, {}))
        reference = reservation_ref(job)
        if reference is not None and job.status.reason == PodMigrationJobReason.TIMEOUT:
            left[reference.name] = reference.uid  # as the original, also one that was given
        for name, uid in left.items():
            self._delete_reservation(name, uid)

    def _scavenge(self, job: PodMigrationJob) -> None:
        reference = reservation_ref(job)
        left = dict(self._owned.get(job.metadata.uid, {}))
        if reference is not None:
            left[reference.name] = reference.uid
        for name, uid in left.items():
            self._delete_reservation(name, uid)
        with suppress(NotFoundError, ConflictError):
            self._writer.delete(PodMigrationJob, job.metadata.name, uid=job.metadata.uid)

    def _reconcile_reservation(self, name: str) -> None:
        """Delete a reservation whose job is gone."""
        if name in self._bereft:
            self._delete_reservation(name, self._bereft[name])
            self._bereft.pop(name, None)
            return
        found = self._view.objects(Reservation).get(name)
        owner = None if found is None else job_reference_of(found.metadata)
        if found is None or owner is None or self._jobs.has_uid(owner.uid):
            return
        job = self._now(PodMigrationJob, owner.name)
        if job is None or job.metadata.uid != owner.uid:
            self._delete_reservation(name, found.metadata.uid)

    def _delete_reservation(self, name: str, uid: str) -> None:
        with suppress(NotFoundError, ConflictError):  # gone already, or another one by now
            self._writer.delete(Reservation, name, uid=uid)

    # -- parts -------------------------------------------------------------------------------

    def _state(self, job: PodMigrationJob) -> JobState:
        return state_of(job, self._args.default_job_mode)

    def _is_mine(self, job: PodMigrationJob) -> bool:
        """Return whether this profile sees to the job; the first one to those of nobody."""
        made_by, profiles = job.metadata.annotations.get(JOB_CREATED_BY), self._handle.profiles
        own = self._handle.profile
        return made_by == own or (made_by not in profiles and own == (*profiles, own)[0])


def _scavenging_s(job: PodMigrationJob) -> float:
    """Return when a job is deleted, whatever became of it."""
    lasts_s = ttl_s(job)
    after_s = lasts_s + SCAVENGED_AFTER_S if lasts_s else SCAVENGED_WITHOUT_TTL_S
    return to_epoch_s(job.metadata.creation_timestamp) + after_s


def build(args: MigrationControllerArgs, handle: Handle) -> MigrationController:
    """Return the controller of a profile."""
    return MigrationController(args, handle)


MIGRATION_CONTROLLER = DeschedulerPluginSpec(
    "MigrationController",
    MigrationControllerArgs,
    build,
    watches=(PodMigrationJob, Reservation, *WORKLOAD_KINDS),
)
