"""Sees PodMigrationJobs through: reservations, evictions, and what is left in the end.

Everything it knows of a job is in the job, so that whoever comes after it goes on where it stopped.
A change of a job is written only if nobody has written since it was read.  What it changes besides
jobs may be done twice without harm: a reservation has the uid of its job as name, and an eviction
is for one uid of a pod.
Source: koordinator pkg/descheduler/controllers/migration: controller.go, evict.go.
"""

import logging
from contextlib import suppress
from enum import StrEnum
from typing import TypeVar

from msgspec.structs import replace

from koordinator.api.annotations.descheduling import (
    EVICTION_ATTEMPT,
    JOB_CREATED_BY,
    EvictionAttempt,
)
from koordinator.api.codec import merge_patch
from koordinator.api.core import ObjectReference
from koordinator.api.labels import RESERVATION_ORDER, reservation_order
from koordinator.api.meta import JsonObject, KubeObject
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import (
    PodMigrationJob,
    PodMigrationJobConditionType,
    PodMigrationJobReason,
)
from koordinator.api.reservation import Reservation
from koordinator.cluster.reconcile import ReconcileQueue
from koordinator.descheduler.contract import (
    ERROR,
    SUCCESS,
    Handle,
)
from koordinator.descheduler.migration.arbiter import Arbiter
from koordinator.descheduler.migration.arguments import MigrationControllerArgs
from koordinator.descheduler.migration.decisions import (
    Close,
    Evict,
    GiveOrder,
    Happened,
    JobDecision,
    JobSituation,
    Open,
    Reserve,
    Wait,
    deadline_s,
    decide,
    is_evicted,
    is_usable,
    ttl_s,
)
from koordinator.descheduler.migration.events import descheduled, event_about
from koordinator.descheduler.migration.evictors import evictor_for
from koordinator.descheduler.migration.filters import MoveFilter
from koordinator.descheduler.migration.jobs import (
    JobIndex,
    attempt_of,
    condition_of,
    is_live,
    is_newer,
    pod_key,
    reason_of,
    reservation_ref,
    trigger_of,
)
from koordinator.descheduler.migration.object_limiters import EvictionBucket, ObjectLimiters
from koordinator.descheduler.migration.reservation_template import (
    is_for_pending_pod,
    job_reference_of,
    job_uid_of,
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
from koordinator.descheduler.migration.workloads import Workloads, controller_of
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
_OF_USED_RESERVATION = frozenset((JobEvent.RESERVATION_USED, JobEvent.RESERVATION_TAKEN))
_CLOCK_ERROR_MS = 3_600_000  # of the processes that gave reservations their orders
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


class JobWork:
    """The jobs of one profile, and all that is done for them between cycles."""

    def __init__(self, args: MigrationControllerArgs, handle: Handle) -> None:
        self._args, self._handle = args, handle
        self._view, self._writer, self._clock = handle.view, handle.writer, handle.clock
        self.jobs = JobIndex()
        self._workloads = Workloads(handle.view)
        self.filter = MoveFilter(args, handle.view, self.jobs, self._workloads)
        self.limiters = ObjectLimiters(args)
        burst = args.evict_burst
        self._rate = EvictionBucket(args.evictions_per_s, burst, float(burst), handle.clock.now_s())
        self._queue: ReconcileQueue[_Key] = ReconcileQueue()
        self._fresh: dict[str, Reservation] = {}  # newer than what the view may show
        self._owned: dict[str, dict[str, str]] = {}  # uid of a job -> its reservations and uids
        self._owner_of: dict[str, str] = {}  # reservation -> uid of its job
        self._interested: dict[str, str] = {}  # reservation, or key of a bound pod -> job
        self._counted: dict[str, None] = {}  # uids of jobs whose eviction the limiters know
        self._last_order = 0  # the largest order of a reservation of a job
        self._bereft: dict[str, str] = {}  # reservations of jobs that were deleted, and uids
        #: Jobs that may have evicted their pods, and may have opened their reservations if not.
        self._maybe_evicted: dict[str, None] = {}
        self._arbiter = Arbiter(
            args,
            handle,
            self.jobs,
            self.filter,
            is_mine=self.is_mine,
            happen=self._happen,
            look_again=self._look_again,
        )

    # -- events --------------------------------------------------------------------------------

    def observe(self, obj: KubeObject, *, deleted: bool) -> None:
        """Take note of a change, and look again at the jobs that it concerns."""
        self._workloads.observe(obj, deleted=deleted)
        match obj:
            case PodMigrationJob() if deleted:
                self.drop_job(obj)
            case PodMigrationJob():
                self.take_in_job(obj)
            case Reservation():
                self._observe_reservation(obj, deleted=deleted)
            case Pod():
                for job in self.jobs.named_like(obj.key):
                    self._queue.add((_Kind.JOB, job.metadata.name))
                if obj.key in self._interested:
                    self._queue.add((_Kind.JOB, self._interested[obj.key]))

    def take_in_job(self, job: PodMigrationJob) -> None:
        """Take note of a job as it is now."""
        before = self.jobs.by_name.get(job.metadata.name)
        if not self.jobs.put_job(job):
            return
        name, meta, state = job.metadata.name, job.metadata, self._state(job)
        self._arbiter.note(name, waits=state is JobState.WAITING)
        reference, bound = reservation_ref(job), job.status.pod_ref
        previous = None if before is None else reservation_ref(before)
        if previous is not None:
            self._interested.pop(previous.name, None)
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

    def drop_job(self, job: PodMigrationJob) -> None:
        """Take note that a job is gone."""
        name, uid = job.metadata.name, job.metadata.uid
        known = self.jobs.drop_job(name) or job
        self._arbiter.forget(name)
        self._maybe_evicted.pop(name, None)
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
        fresh = self._fresh.get(name)
        # The event of an own write starts no attempt: a refused eviction opens and closes the
        # reservation, and would be tried again without its backoff.
        is_own_write = fresh is not None and not is_newer(reservation, fresh, strictly=True)
        if deleted or (fresh is not None and is_newer(reservation, fresh)):
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
            if not self.jobs.has_uid(owner.uid):
                self._queue.add((_Kind.RESERVATION, name))
        if is_own_write and not deleted:
            return
        if owner is not None and owner.name in self.jobs.by_name:
            self._queue.add((_Kind.JOB, owner.name))
        if name in self._interested:
            self._queue.add((_Kind.JOB, self._interested[name]))

    def _note_owned(self, job_uid: str, reservation: Reservation) -> None:
        meta = reservation.metadata
        order = reservation_order(meta.labels)
        if order <= int(order_now(self._clock.now_s())) + _CLOCK_ERROR_MS:
            self._last_order = max(self._last_order, order)
        self._owned.setdefault(job_uid, {})[meta.name] = meta.uid
        self._owner_of[meta.name] = job_uid

    # -- work --------------------------------------------------------------------------------

    def step(self) -> int:
        """Let waiting jobs begin if it is time, and see those through that are due."""
        if self._handle.is_dry_run:
            return 0
        done = self._arbiter.step()
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
        times = (self._queue.next_s(), self._arbiter.next_s())
        return min((at_s for at_s in times if at_s is not None), default=None)

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
            job = self.jobs.by_name.get(name)
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
        job = self.jobs.by_name.get(name)
        if job is None or not self.is_mine(job):
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
                if event in _OF_USED_RESERVATION and (issued := self._issued_eviction(job)):
                    return issued  # its own replacement has used it
                return self._happen(job, event, facts)
            case Reserve(pod=pod):
                return self._reserve(job, pod)
            case GiveOrder(reservation=reservation):
                self._give_order(reservation)
            case Open(reservation=reservation):
                self._open(job, reservation)
            case Close(reservation=reservation):
                return self._issued_eviction(job) or self._close(job, reservation)
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
        next_eviction_s = 0.0 if pod is None else self.limiters.next_eviction_s(pod, now_s)
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
        found = self.known_reservation(name)
        if found is None or reference.uid not in {"", found.metadata.uid}:
            found = self._now(Reservation, name)
            if found is not None:
                self._fresh[name] = found
        is_same = found is not None and reference.uid in {"", found.metadata.uid}
        return found if is_same else None

    def known_reservation(self, name: str) -> Reservation | None:
        """Return a reservation as it was last seen."""
        return self._fresh.get(name) or self._view.objects(Reservation).get(name)

    def _look_again(self, name: str) -> None:
        job = self._now(PodMigrationJob, name)
        if job is not None:
            self.take_in_job(job)

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
        self.take_in_job(written)
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
        if not is_for_pending_pod(wanted):
            # Other replicas of the workload are its owners, too: it is opened for the eviction.
            wanted = replace(wanted, spec=replace(wanted.spec, unschedulable=True))
        try:
            made = self._writer.create(wanted)
        except AlreadyExistsError:
            made = self._writer.get(Reservation, wanted.metadata.name)
            owner = job_reference_of(made.metadata)
            if owner is None or owner.uid != job.metadata.uid:
                raise
        for name, uid in list(self._owned.get(job.metadata.uid, {}).items()):
            if name != made.metadata.name:  # the first one, which another pod has used
                self._delete_reservation(name, uid)
        self._fresh[made.metadata.name] = made
        self._note_owned(job.metadata.uid, made)
        return made

    def _give_order(self, reservation: Reservation) -> None:
        meta = reservation.metadata
        patch = {"metadata": {"uid": meta.uid, "labels": self._next_order()}}
        self._fresh[meta.name] = self._writer.patch(Reservation, meta.name, "", patch)

    def _evict(
        self, job: PodMigrationJob, pod: Pod, reservation: Reservation | None
    ) -> PodMigrationJob:
        """Evict the pod, once it is written that this is tried and the place is made sure of."""
        now_s = self._clock.now_s()
        if self._maybe_evicted:
            self._find_out_who_was_evicted()
            return self.jobs.by_name.get(job.metadata.name, job)  # judged anew
        attempt = self._attempt(pod)
        known = attempt_of(job)
        if known is None or known.pod_uid != attempt.pod_uid:
            annotations = {**job.metadata.annotations, **EVICTION_ATTEMPT.entry(attempt)}
            meta = replace(job.metadata, annotations=annotations)
            job = self._write(job, replace(job, metadata=meta))
            self._maybe_evicted.pop(job.metadata.name, None)  # not tried yet
        latest: Reservation | None = None
        if reservation is not None:
            name = reservation.metadata.name
            latest = self._writer.get(Reservation, name)
            if latest.metadata.uid != reservation.metadata.uid or not is_usable(latest, pod):
                self._fresh[name] = latest
                return job
        # The place is opened before the eviction: the next pod may come before the answer.
        self._maybe_evicted[job.metadata.name] = None
        if latest is not None:
            self._open(job, latest)
        self._rate.take(now_s, self._args.evictions_per_s)
        try:
            self._call_evictor(job, pod, now_s)
        except _REFUSALS as error:
            if latest is not None and isinstance(error, (TooManyRequestsError, InvalidError)):
                self._close(job, self._fresh.get(latest.metadata.name, latest))
            self._maybe_evicted.pop(job.metadata.name, None)
            raise
        self._count_eviction(job, now_s)
        return self._happen(job, JobEvent.EVICTION_ISSUED, EventFacts(node=pod.spec.node_name))

    def _open(self, job: PodMigrationJob, reservation: Reservation) -> None:
        """Let pods use the reservation of the job; one that was given stays as it is."""
        meta = reservation.metadata
        if not reservation.spec.unschedulable or job_uid_of(meta) != job.metadata.uid:
            return
        same = {
            "uid": meta.uid,
            "resourceVersion": meta.resource_version,
            "labels": self._next_order(),
        }
        patch: JsonObject = {"metadata": same, "spec": {"unschedulable": False}}
        self._fresh[meta.name] = self._writer.patch(Reservation, meta.name, "", patch)

    def _close(self, job: PodMigrationJob, reservation: Reservation) -> PodMigrationJob:
        """Keep pods from the reservation of a job whose pod is not evicted."""
        meta = reservation.metadata
        if not reservation.spec.unschedulable and job_uid_of(meta) == job.metadata.uid:
            same = {"uid": meta.uid, "resourceVersion": meta.resource_version}
            patch: JsonObject = {"metadata": same, "spec": {"unschedulable": True}}
            self._fresh[meta.name] = self._writer.patch(Reservation, meta.name, "", patch)
        return job

    def _next_order(self) -> dict[str, str]:
        """Return the label of a reservation that is used after all that were opened before.

        The replacement of a pod takes the open reservation of the smallest order, and so that of
        the job that was the first to evict.
        """
        self._last_order = max(int(order_now(self._clock.now_s())), self._last_order + 1)
        return {RESERVATION_ORDER: str(self._last_order)}

    def _issued_eviction(self, job: PodMigrationJob) -> PodMigrationJob | None:
        """Return the job with the eviction that was made although the view does not show it."""
        attempt, reference = attempt_of(job), job.spec.pod_ref
        if attempt is None:
            return None
        pod = self._now(Pod, reference.name, reference.namespace)
        if not is_evicted(pod, attempt):
            return None
        node = "" if pod is None else pod.spec.node_name
        return self._happen(job, JobEvent.EVICTION_ISSUED, EventFacts(node=node))

    def _find_out_who_was_evicted(self) -> None:
        for name in list(self._maybe_evicted):
            job = self.jobs.by_name[name]
            reference, attempt = job.spec.pod_ref, attempt_of(job)
            pod = self._now(Pod, reference.name, reference.namespace)
            if attempt is not None and is_evicted(pod, attempt):
                self._count_eviction(job, self._clock.now_s())
            elif self._state(job) is JobState.RESERVED and (kept := reservation_ref(job)):
                latest = self._now(Reservation, kept.name)
                if latest is not None and latest.metadata.uid == kept.uid:
                    self._close(job, latest)
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
        self.limiters.note_eviction(
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
        if found is None or owner is None or self.jobs.has_uid(owner.uid):
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

    def is_mine(self, job: PodMigrationJob) -> bool:
        """Return whether this profile sees to the job; the first one to those of nobody."""
        made_by, profiles = job.metadata.annotations.get(JOB_CREATED_BY), self._handle.profiles
        own = self._handle.profile
        return made_by == own or (made_by not in profiles and own == (*profiles, own)[0])


def _scavenging_s(job: PodMigrationJob) -> float:
    """Return when a job is deleted, whatever became of it."""
    lasts_s = ttl_s(job)
    after_s = lasts_s + SCAVENGED_AFTER_S if lasts_s else SCAVENGED_WITHOUT_TTL_S
    return to_epoch_s(job.metadata.creation_timestamp) + after_s
