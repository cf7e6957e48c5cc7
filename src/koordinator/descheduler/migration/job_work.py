"""Reconciliation of PodMigrationJobs: reservations, evictions and cleanup.

All state of a job is in its object, so a new process continues where the last one stopped.  Writes
to a job require that it has not changed since it was read.  All other writes are idempotent: a
reservation is named after the uid of its job, and an eviction is for one uid of a pod.
Source: koordinator pkg/descheduler/controllers/migration: controller.go, evict.go.
"""

import logging
from contextlib import suppress
from enum import StrEnum
from typing import TypeVar

from msgspec.structs import replace

from koordinator.api.annotations.scheduling import (
    EVICTION_ATTEMPT,
    JOB_CREATED_BY,
    EvictionAttempt,
)
from koordinator.api.codec import merge_patch
from koordinator.api.conditions import find_condition
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
from koordinator.descheduler.migration.arbitration import Arbiter, EvictionBucket, ObjectLimiters
from koordinator.descheduler.migration.arguments import MigrationControllerArgs
from koordinator.descheduler.migration.decisions import (
    AssignReservationOrder,
    CloseReservation,
    CreateReservation,
    Evict,
    JobDecision,
    JobSituation,
    OpenReservation,
    Transition,
    Wait,
    deadline_s,
    decide,
    is_evicted,
    is_usable,
    ttl_s,
)
from koordinator.descheduler.migration.evictors import evictor_for
from koordinator.descheduler.migration.filters import MoveFilter
from koordinator.descheduler.migration.jobs import (
    JobAnnouncement,
    JobIndex,
    attempt_of,
    descheduled,
    event_about,
    is_live,
    is_newer,
    pod_key,
    reason_of,
    reservation_ref,
    trigger_of,
)
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
    JobEvent,
    JobState,
    apply_event,
    state_of,
)
from koordinator.descheduler.migration.workloads import Workloads
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
KEYS_PER_STEP = 64  # so that one step stays short
LONGEST_BACKOFF_S = 15.0
SCAVENGED_AFTER_S = 300.0  # after the ttl
SCAVENGED_WITHOUT_TTL_S = 1800.0
_STEPS_PER_RECONCILE = 16  # more than the longest path through the states has
_SECOND_S = 1.0  # timestamps of objects are whole seconds
#: Errors after which an eviction has certainly not been made.
_REFUSALS = (TooManyRequestsError, NotFoundError, ConflictError, InvalidError)
#: Events that an eviction of the job, whose answer was lost, explains as well.
_ALSO_AFTER_EVICTION = frozenset(
    (JobEvent.RESERVATION_USED, JobEvent.RESERVATION_TAKEN, JobEvent.POD_FINISHED)
)
_CLOCK_ERROR_MS = 3_600_000  # of the processes that gave reservations their orders
_NEEDS_FRESH_POD = frozenset(
    (JobState.ADMITTED, JobState.DIRECT, JobState.UNRESERVED, JobState.RESERVED)
)


class _Kind(StrEnum):
    JOB = "job"
    RESERVATION = "reservation"


_Key = tuple[_Kind, str]


class _ThrottledError(Exception):
    """Rate limit of evictions; it does not reset the backoff of the job."""

    def __init__(self, until_s: float) -> None:
        super().__init__(until_s)
        self.until_s = until_s


class JobWork:
    """Reconciler of the jobs of one profile."""

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
        #: Reservations by name as last written or read, until the view shows that version.
        self._written: dict[str, Reservation] = {}
        self._owned: dict[str, dict[str, str]] = {}  # uid of a job -> reservation -> its uid
        self._owner_of: dict[str, str] = {}  # reservation -> uid of its job
        self._job_of: dict[str, str] = {}  # reservation, or key of a bound pod -> job
        self._counted_jobs: dict[str, None] = {}  # uids of jobs whose evictions are counted
        self._last_order = 0  # the largest order label of a reservation of a job
        self._orphaned_reservations: dict[str, str] = {}  # of deleted jobs: name -> uid
        #: Names of jobs that may have evicted their pods, or else opened their reservations.
        #: They are resolved before any further eviction.
        self._unknown_evictions: dict[str, None] = {}
        self._arbiter = Arbiter(
            args,
            handle,
            self.jobs,
            self.filter,
            is_own=self.is_own,
            write_event=self._write_event,
            refresh=self._refresh,
        )

    # -- events --------------------------------------------------------------------------------

    def observe(self, obj: KubeObject, *, deleted: bool) -> None:
        """Process an event, and requeue the jobs that it concerns."""
        self._workloads.observe(obj, deleted=deleted)
        match obj:
            case PodMigrationJob() if deleted:
                self.drop_job(obj)
            case PodMigrationJob():
                self.put_job(obj)
            case Reservation():
                self._observe_reservation(obj, deleted=deleted)
            case Pod():
                for job in self.jobs.named_like(obj.key):
                    self._queue.add((_Kind.JOB, job.metadata.name))
                if obj.key in self._job_of:
                    self._queue.add((_Kind.JOB, self._job_of[obj.key]))

    def put_job(self, job: PodMigrationJob) -> None:
        """Add or update a job."""
        before = self.jobs.by_name.get(job.metadata.name)
        if not self.jobs.put_job(job):
            return
        name, meta, state = job.metadata.name, job.metadata, self._state(job)
        self._arbiter.note(name, waits=state is JobState.WAITING)
        reference, bound = reservation_ref(job), job.status.pod_ref
        previous = None if before is None else reservation_ref(before)
        if previous is not None:
            self._job_of.pop(previous.name, None)
        if reference is not None:
            self._job_of[reference.name] = name
        if bound is not None and is_live(job):
            self._job_of[pod_key(bound)] = name
        if meta.uid not in self._counted_jobs and attempt_of(job) is not None:
            eviction = find_condition(job.status.conditions, PodMigrationJobConditionType.EVICTION)
            if eviction is None:
                self._unknown_evictions[name] = None
            else:
                when_s = to_epoch_s(eviction.last_transition_time) + _SECOND_S
                self._count_eviction(job, min(when_s, self._clock.now_s()))
        self._queue.add((_Kind.JOB, name))

    def drop_job(self, job: PodMigrationJob) -> None:
        """Remove a deleted job, and queue its reservations for deletion."""
        name, uid = job.metadata.name, job.metadata.uid
        known = self.jobs.drop_job(name) or job
        self._arbiter.forget(name)
        self._unknown_evictions.pop(name, None)
        self._counted_jobs.pop(uid, None)
        self._queue.forget((_Kind.JOB, name))
        reference, bound = reservation_ref(known), known.status.pod_ref
        if reference is not None:
            self._job_of.pop(reference.name, None)
            self._orphan(reference.name, reference.uid)
        if bound is not None:
            self._job_of.pop(pod_key(bound), None)
        for reservation, its_uid in self._owned.get(uid, {}).items():
            self._orphan(reservation, its_uid)

    def _orphan(self, reservation: str, uid: str) -> None:
        self._orphaned_reservations[reservation] = uid
        self._queue.add((_Kind.RESERVATION, reservation))

    def _observe_reservation(self, reservation: Reservation, *, deleted: bool) -> None:
        name = reservation.metadata.name
        fresh = self._written.get(name)
        # The event of an own write starts no attempt: a refused eviction opens and closes the
        # reservation, and would be tried again without its backoff.
        is_own_write = fresh is not None and not is_newer(reservation, fresh, strictly=True)
        if deleted or (fresh is not None and is_newer(reservation, fresh)):
            self._written.pop(name, None)
        before = self._owner_of.pop(name, "")
        if before:
            self._owned[before].pop(name, None)
            if not self._owned[before]:
                del self._owned[before]
        owner = job_reference_of(reservation.metadata)
        if deleted:
            self._orphaned_reservations.pop(name, None)
        elif owner is not None:
            self._note_owned(owner.uid, reservation)
            if not self.jobs.has_uid(owner.uid):
                self._queue.add((_Kind.RESERVATION, name))
        if is_own_write and not deleted:
            return
        if owner is not None and owner.name in self.jobs.by_name:
            self._queue.add((_Kind.JOB, owner.name))
        if name in self._job_of:
            self._queue.add((_Kind.JOB, self._job_of[name]))

    def _note_owned(self, job_uid: str, reservation: Reservation) -> None:
        meta = reservation.metadata
        order = reservation_order(meta.labels)
        if order <= int(order_now(self._clock.now_s())) + _CLOCK_ERROR_MS:
            self._last_order = max(self._last_order, order)
        self._owned.setdefault(job_uid, {})[meta.name] = meta.uid
        self._owner_of[meta.name] = job_uid

    # -- work --------------------------------------------------------------------------------

    def step(self) -> int:
        """Arbitrate waiting jobs and reconcile those that are due; return how many."""
        if self._handle.is_dry_run:
            return 0
        arbitrated = self._arbiter.step()
        return arbitrated + self._queue.reconcile_due(self._clock, self._reconcile, KEYS_PER_STEP)

    def next_wakeup_s(self) -> float | None:
        """Return when a step is due without events; None if never."""
        if self._handle.is_dry_run:
            return None
        times = (self._queue.next_s(), self._arbiter.next_s())
        return min((at_s for at_s in times if at_s is not None), default=None)

    def _reconcile(self, key: _Key) -> None:
        kind, name = key
        work = self._reconcile_job if kind is _Kind.JOB else self._reconcile_reservation
        now_s = self._clock.now_s()
        try:
            next_s = work(name)
        except _ThrottledError as throttled:
            self._queue.add_at(key, throttled.until_s)
        except ClusterError as error:
            self._queue.failed(key, now_s)
            self._queue.add_at(key, now_s + LONGEST_BACKOFF_S)
            job = self.jobs.by_name.get(name)
            if kind is _Kind.JOB and job is not None:
                self._queue.add_at(key, self._next_deadline_s(job))
            extra = {kind.value: name, "error": str(error)}
            log.info("retried later", extra=extra)
        except Exception:
            self._queue.failed(key, now_s)
            raise
        else:
            self._queue.succeeded(key, next_s)

    def _reconcile_job(self, name: str) -> float | None:
        job = self.jobs.by_name.get(name)
        if job is None or not self.is_own(job):
            return None
        now_s = self._clock.now_s()
        if now_s >= _scavenge_at_s(job):
            self._scavenge(job)
            return None
        for _ in range(_STEPS_PER_RECONCILE):
            if self._state(job) in LAST_STATES:
                self._clean_up(job)
                return self._next_deadline_s(job)
            decision = decide(self._situation_of(job))
            if isinstance(decision, Wait):
                dates = [self._next_deadline_s(job)]
                if decision.until_s is not None:
                    dates.append(decision.until_s)
                return min(dates)
            if isinstance(decision, Evict) and self._rate.next_s(now_s) > now_s:
                raise _ThrottledError(min(self._rate.next_s(now_s), self._next_deadline_s(job)))
            job = self._execute(job, decision)
        raise BugError(
            f"PodMigrationJob {name}: more than {_STEPS_PER_RECONCILE} steps in one reconciliation"
        )

    def _execute(self, job: PodMigrationJob, decision: JobDecision) -> PodMigrationJob:
        match decision:
            case Transition(event=event, facts=facts):
                if event in _ALSO_AFTER_EVICTION and (issued := self._record_issued_eviction(job)):
                    return issued
                return self._write_event(job, event, facts)
            case CreateReservation(pod=pod):
                return self._reserve(job, pod)
            case AssignReservationOrder(reservation=reservation):
                self._assign_reservation_order(reservation)
            case OpenReservation(reservation=reservation):
                self._open(job, reservation)
            case CloseReservation(reservation=reservation):
                return self._record_issued_eviction(job) or self._close(job, reservation)
            case Evict(pod=pod, reservation=reservation):
                return self._evict(job, pod, reservation)
        return job

    def _next_deadline_s(self, job: PodMigrationJob) -> float:
        """Return when the job fails or is deleted without further events."""
        at_s = deadline_s(job) if is_live(job) and not job.spec.paused else None
        return _scavenge_at_s(job) if at_s is None else at_s

    # -- situation ---------------------------------------------------------------------------

    def _situation_of(self, job: PodMigrationJob) -> JobSituation:
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
        """Return the pod of the name; where its absence ends a job, ask the API server."""
        reference = job.spec.pod_ref
        pod = self._view.objects(Pod).get(pod_key(reference))
        exists = pod is not None and reference.uid in {"", pod.metadata.uid}
        if exists or state not in _NEEDS_FRESH_POD or not reference.name:
            return pod
        return self._get(Pod, reference.name, reference.namespace)

    def _bound_pod(self, reference: ObjectReference) -> Pod | None:
        pod = self._view.objects(Pod).get(pod_key(reference))
        if pod is None:
            pod = self._get(Pod, reference.name, reference.namespace)
        is_same = pod is not None and reference.uid in {"", pod.metadata.uid}
        return pod if is_same else None

    def _reservation_of(self, job: PodMigrationJob) -> Reservation | None:
        reference = reservation_ref(job)
        if reference is None:
            return None
        name = reference.name
        reservation = self.known_reservation(name)
        if reservation is None or reference.uid not in {"", reservation.metadata.uid}:
            reservation = self._get(Reservation, name)
            if reservation is not None:
                self._written[name] = reservation
        is_same = reservation is not None and reference.uid in {"", reservation.metadata.uid}
        return reservation if is_same else None

    def known_reservation(self, name: str) -> Reservation | None:
        """Return the last known version of a reservation, None if it is unknown."""
        return self._written.get(name) or self._view.objects(Reservation).get(name)

    def _refresh(self, name: str) -> None:
        job = self._get(PodMigrationJob, name)
        if job is not None:
            self._handle.announce(job)

    def _get(self, kind: type[KindT], name: str, namespace: str = "") -> KindT | None:
        try:
            return self._writer.get(kind, name, namespace)
        except NotFoundError:
            return None

    # -- execution ---------------------------------------------------------------------------

    def _write_event(
        self,
        job: PodMigrationJob,
        event: JobEvent,
        facts: EventFacts = NO_FACTS,
    ) -> PodMigrationJob:
        """Apply an event and write the job unless it has changed; then report the events."""
        default = self._args.default_job_mode
        now_s = self._clock.now_s()
        result = apply_event(job, event, to_datetime(now_s), facts, default_mode=default)
        written = self._write(job, result.job)
        log.info(
            "job changed",
            extra={"job": job.metadata.name, "pod": pod_key(job.spec.pod_ref), "event": event.name},
        )
        self._writer.report([event_about(written, each, now_s) for each in result.announcements])
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
        self._handle.announce(written)
        return written

    def _reserve(self, job: PodMigrationJob, pod: Pod) -> PodMigrationJob:
        try:
            reservation = self._create_reservation(job, pod)
        except (ClusterError, InputError) as error:
            self._write_event(job, JobEvent.RESERVATION_REFUSED, EventFacts(message=str(error)))
            raise ClusterError(str(error)) from error
        meta = reservation.metadata
        reference = ObjectReference(
            kind=Reservation.KIND,
            api_version=Reservation.API_VERSION,
            name=meta.name,
            uid=meta.uid,
        )
        return self._write_event(job, JobEvent.RESERVATION_MADE, EventFacts(reservation=reference))

    def _create_reservation(self, job: PodMigrationJob, pod: Pod) -> Reservation:
        """Create the reservation of the job, or adopt it after a lost answer.

        Raises InputError, and ClusterError if the name is in use.
        """
        wanted = reservation_for(
            job, pod, self._clock.now_s(), drops_claims=NO_CLAIMS in self._handle.gates
        )
        if not is_for_pending_pod(wanted):
            # Other replicas match its owners too; it is closed until the eviction.
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
        self._written[made.metadata.name] = made
        self._note_owned(job.metadata.uid, made)
        return made

    def _assign_reservation_order(self, reservation: Reservation) -> None:
        meta = reservation.metadata
        patch = {"metadata": {"uid": meta.uid, "labels": self._next_order()}}
        self._written[meta.name] = self._writer.patch(Reservation, meta.name, "", patch)

    def _evict(
        self, job: PodMigrationJob, pod: Pod, reservation: Reservation | None
    ) -> PodMigrationJob:
        """Evict the pod after recording the attempt and checking the reservation.

        The order of writes matters: record the attempt, open the reservation, evict.  A process
        that ends in between leaves a job from which the next one knows what may have happened.
        """
        now_s = self._clock.now_s()
        if self._unknown_evictions:
            self._resolve_unknown_evictions()
            return self.jobs.by_name.get(job.metadata.name, job)  # decide again
        attempt = self._attempt(pod)
        known = attempt_of(job)
        if known is None or known.pod_uid != attempt.pod_uid:
            annotations = {**job.metadata.annotations, **EVICTION_ATTEMPT.entry(attempt)}
            meta = replace(job.metadata, annotations=annotations)
            job = self._write(job, replace(job, metadata=meta))
            self._unknown_evictions.pop(job.metadata.name, None)  # not attempted yet
        latest: Reservation | None = None
        if reservation is not None:
            name = reservation.metadata.name
            latest = self._writer.get(Reservation, name)
            if latest.metadata.uid != reservation.metadata.uid or not is_usable(latest, pod):
                self._written[name] = latest
                return job
        # Open the reservation first: the replacement may be scheduled before the answer arrives.
        self._unknown_evictions[job.metadata.name] = None
        if latest is not None:
            self._open(job, latest)
        self._rate.take(now_s, self._args.evictions_per_s)
        try:
            self._call_evictor(job, pod, now_s)
        except _REFUSALS as error:
            if latest is not None and isinstance(error, (TooManyRequestsError, InvalidError)):
                self._close(job, self._written.get(latest.metadata.name, latest))
            self._unknown_evictions.pop(job.metadata.name, None)
            raise
        self._count_eviction(job, now_s)
        return self._write_event(job, JobEvent.EVICTION_ISSUED, EventFacts(node=pod.spec.node_name))

    def _open(self, job: PodMigrationJob, reservation: Reservation) -> None:
        """Open the reservation of the job to pods; one that the user named is not changed."""
        meta = reservation.metadata
        if not reservation.spec.unschedulable or job_uid_of(meta) != job.metadata.uid:
            return
        same = {
            "uid": meta.uid,
            "resourceVersion": meta.resource_version,
            "labels": self._next_order(),
        }
        patch: JsonObject = {"metadata": same, "spec": {"unschedulable": False}}
        self._written[meta.name] = self._writer.patch(Reservation, meta.name, "", patch)

    def _close(self, job: PodMigrationJob, reservation: Reservation) -> PodMigrationJob:
        """Close the reservation of a job whose pod is not evicted."""
        meta = reservation.metadata
        if not reservation.spec.unschedulable and job_uid_of(meta) == job.metadata.uid:
            same = {"uid": meta.uid, "resourceVersion": meta.resource_version}
            patch: JsonObject = {"metadata": same, "spec": {"unschedulable": True}}
            self._written[meta.name] = self._writer.patch(Reservation, meta.name, "", patch)
        return job

    def _next_order(self) -> dict[str, str]:
        """Return the label of a reservation that is used after all that were opened before.

        The replacement of a pod takes the open reservation of the smallest order, and so that of
        the job that was the first to evict.
        """
        self._last_order = max(int(order_now(self._clock.now_s())), self._last_order + 1)
        return {RESERVATION_ORDER: str(self._last_order)}

    def _record_issued_eviction(self, job: PodMigrationJob) -> PodMigrationJob | None:
        """Return the job with the eviction that was made although the view does not show it."""
        attempt, reference = attempt_of(job), job.spec.pod_ref
        if attempt is None:
            return None
        pod = self._get(Pod, reference.name, reference.namespace)
        if not is_evicted(pod, attempt):
            return None
        node = "" if pod is None else pod.spec.node_name
        return self._write_event(job, JobEvent.EVICTION_ISSUED, EventFacts(node=node))

    def _resolve_unknown_evictions(self) -> None:
        for name in list(self._unknown_evictions):
            job = self.jobs.by_name[name]
            reference, attempt = job.spec.pod_ref, attempt_of(job)
            pod = self._get(Pod, reference.name, reference.namespace)
            if attempt is not None and is_evicted(pod, attempt):
                self._count_eviction(job, self._clock.now_s())
            elif self._state(job) is JobState.RESERVED and (kept := reservation_ref(job)):
                latest = self._get(Reservation, kept.name)
                if latest is not None and latest.metadata.uid == kept.uid:
                    self._close(job, latest)
            self._unknown_evictions.pop(name, None)

    def _call_evictor(self, job: PodMigrationJob, pod: Pod, now_s: float) -> None:
        options = job.spec.delete_options or self._args.default_delete_options
        evictor = evictor_for(pod, job, self._args.eviction_policy)
        trigger, reason = trigger_of(job), reason_of(job)
        try:
            evictor(self._writer, pod, job, options, now_s)
        except ClusterError as error:
            self._handle.count(trigger, pod, ERROR)
            note = f'Failed evict Pod "{pod.key}" caused by {error}'
            failure = JobAnnouncement(PodMigrationJobReason.EVICTING, note, is_warning=True)
            self._writer.report([event_about(job, failure, now_s)])
            raise
        self._handle.count(trigger, pod, SUCCESS)
        self._writer.report([descheduled(pod, reason, now_s)])
        extra = {"pod": pod.key, "node": pod.spec.node_name, "reason": reason, "trigger": trigger}
        log.info("pod evicted", extra=extra)

    def _attempt(self, pod: Pod) -> EvictionAttempt:
        owner, uid = pod.metadata.controller, pod.metadata.uid
        if owner is None:
            return EvictionAttempt(pod_uid=uid)
        scale = self._workloads.scale_of(owner, pod.metadata.namespace)
        replicas = 0 if scale.is_ending else scale.replicas
        return EvictionAttempt(pod_uid=uid, workload_uid=owner.uid, workload_replicas=replicas)

    def _count_eviction(self, job: PodMigrationJob, when_s: float) -> None:
        attempt = attempt_of(job)
        if attempt is None:
            return
        self._counted_jobs[job.metadata.uid] = None
        self._unknown_evictions.pop(job.metadata.name, None)
        self.limiters.note_eviction(
            attempt.workload_uid,
            job.spec.pod_ref.namespace,
            attempt.workload_replicas,
            when_s,
        )

    # -- cleanup -----------------------------------------------------------------------------

    def _clean_up(self, job: PodMigrationJob) -> None:
        """Delete the reservations of a failed job."""
        if self._state(job) is JobState.SUCCEEDED:
            return
        left = dict(self._owned.get(job.metadata.uid, {}))
        reference = reservation_ref(job)
        if reference is not None and job.status.reason == PodMigrationJobReason.TIMEOUT:
            left[reference.name] = reference.uid  # as the original, also one that the user named
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
        """Delete a reservation whose job does not exist."""
        if name in self._orphaned_reservations:
            self._delete_reservation(name, self._orphaned_reservations[name])
            self._orphaned_reservations.pop(name, None)
            return
        reservation = self._view.objects(Reservation).get(name)
        owner = None if reservation is None else job_reference_of(reservation.metadata)
        if reservation is None or owner is None or self.jobs.has_uid(owner.uid):
            return
        job = self._get(PodMigrationJob, owner.name)
        if job is None or job.metadata.uid != owner.uid:
            self._delete_reservation(name, reservation.metadata.uid)

    def _delete_reservation(self, name: str, uid: str) -> None:
        with suppress(NotFoundError, ConflictError):  # deleted already, or replaced
            self._writer.delete(Reservation, name, uid=uid)

    # -- parts -------------------------------------------------------------------------------

    def _state(self, job: PodMigrationJob) -> JobState:
        return state_of(job, self._args.default_job_mode)

    def is_own(self, job: PodMigrationJob) -> bool:
        """Return whether this profile reconciles the job.

        The first profile with a MigrationController has the jobs of no such profile.
        """
        made_by, profiles = job.metadata.annotations.get(JOB_CREATED_BY), self._handle.profiles
        own = self._handle.profile
        return made_by == own or (made_by not in profiles and own == (*profiles, own)[0])


def _scavenge_at_s(job: PodMigrationJob) -> float:
    """Return when a job is deleted, finished or not."""
    lasts_s = ttl_s(job)
    after_s = lasts_s + SCAVENGED_AFTER_S if lasts_s else SCAVENGED_WITHOUT_TTL_S
    return to_epoch_s(job.metadata.creation_timestamp) + after_s
