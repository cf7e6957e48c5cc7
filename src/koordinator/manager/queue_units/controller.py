"""Controller of queued jobs: QueueUnits of suspended jobs, admission, preemption and requeue.

One pass reads the whole state and returns steps.  Each step is about one object, with its writes in
the required order: a job is resumed only after its quota is charged, and the quota is released only
after the job is suspended and has no pods.

Source: koord-queue 1.8, controller and job extensions.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Final

from msgspec.structs import replace

from koordinator.api.codec import encode_part, merge_patch
from koordinator.api.core import Namespace, ResourceRequirements
from koordinator.api.elastic_quota import ElasticQuota, ElasticQuotaTree
from koordinator.api.meta import JsonObject, KubeObject, ObjectMeta, OwnerReference
from koordinator.api.pod import Container, PodSpec, PodTemplateSpec
from koordinator.api.policy import PriorityClass, ResourceQuota
from koordinator.api.queue_unit import (
    ConsumerRef,
    Queue,
    QueueItem,
    QueueUnit,
    QueueUnitSpec,
    QueueUnitStatus,
    UnitPhase,
    UnitPodSet,
    UnitPolicy,
    UnitQueueStatus,
)
from koordinator.domain.amounts import to_quantities
from koordinator.foundation.clock import to_datetime
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.manager.queue_units.admission import AdmissionPlan, WaitingUnit, plan_admission
from koordinator.manager.queue_units.configuration import JobTimes, QueueConfiguration
from koordinator.manager.queue_units.jobs import (
    ENQUEUED,
    ENQUEUED_AT,
    WaitingJob,
    is_unit_preemptible,
    read_job,
    resumed,
    suspended,
)
from koordinator.manager.queue_units.kinds import JobKind
from koordinator.manager.queue_units.ledgers import UnitQueue
from koordinator.manager.queue_units.life import (
    PREEMPTED,
    UnitGates,
    UnitTimes,
    admission_stamp,
    admit,
    evicted,
    is_counted,
    step,
)
from koordinator.manager.queue_units.plugins import PluginWorld, QueuePlugins, QueuePluginSettings
from koordinator.manager.queue_units.pod_sets import JobPodSet
from koordinator.manager.writes import Create, Delete, Patch, Write

RFC3339: Final = "%Y-%m-%dT%H:%M:%SZ"
SOON_S: Final = 0.01  # delay until the mirror has seen the writes of this pass
SHOWN_ITEMS: Final = 100  # in the status of a queue
_ACTIVE: Final = "active"


@dataclass(frozen=True, slots=True)
class QueueChoice:
    """Set of queue names: ``only``, or all if that is None, without ``but``."""

    only: frozenset[str] | None = None
    but: frozenset[str] = frozenset()

    def __contains__(self, name: str) -> bool:
        return name not in self.but and (self.only is None or name in self.only)


NO_QUEUE: Final = QueueChoice(frozenset())


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueUnitOptions:
    """Options of the controller."""

    kinds: tuple[JobKind, ...] = ()  # kinds of jobs that are queued
    manages_all: bool = False  # jobs that are created unsuspended are counted, too
    configuration: QueueConfiguration = field(default_factory=QueueConfiguration)
    oversell_rate: float = 1.0
    default_preemptible: bool = True
    default_policy: UnitPolicy = UnitPolicy.PRIORITY
    strict_queues: QueueChoice = NO_QUEUE  # queues whose units a scheduler must confirm
    checks_available: bool = False  # a unit may use only quotas that its namespace lists
    makes_queues: bool = True  # a Queue is created for each quota of a tree
    queue_namespace: str = "koord-queue"
    pods_ready_s: float = 600.0  # timeout of queues that wait for running pods
    initial_backoff_s: float = 1.0
    longest_backoff_s: float = 20.0


@dataclass(frozen=True, slots=True)
class QueueWorld:
    """Objects that the controller reads.  ``jobs`` are the jobs of all queued kinds."""

    jobs: Iterable[KubeObject]
    units: Mapping[str, QueueUnit]
    queues: Mapping[str, Queue]
    quotas: Iterable[ElasticQuota]
    trees: Iterable[ElasticQuotaTree]
    namespaces: Mapping[str, Namespace]
    resource_quotas: Iterable[ResourceQuota]
    priority_classes: Mapping[str, PriorityClass]


@dataclass(slots=True)
class QueuePass:
    """Result of a pass: steps, the time to requeue, and problems of jobs that can't be queued."""

    steps: list[tuple[str, tuple[Write, ...]]] = field(default_factory=list)  # object key, writes
    again_s: float | None = None
    problems: dict[str, str] = field(default_factory=dict)
    rejected: dict[str, KubeObject] = field(default_factory=dict)  # the jobs of ``problems``

    def reject(self, job: KubeObject, problem: str) -> None:
        """Record a job that can't be queued."""
        self.problems[job.key], self.rejected[job.key] = problem, job


def reconcile_queue_units(world: QueueWorld, options: QueueUnitOptions, now_s: float) -> QueuePass:
    """Return the writes of one pass over all jobs, units and queues."""
    done = QueuePass()
    by_type = {kind.type: kind for kind in options.kinds}
    jobs: dict[str, WaitingJob] = {}
    for obj in world.jobs:
        try:
            job = read_job(obj, by_type[type(obj)])
        except InputError as error:
            done.reject(obj, str(error))
            continue
        known = jobs.setdefault(job.unit_key, job)
        if known is not job:
            done.reject(obj, f"QueueUnit {job.unit_key} already belongs to {known.id}")
    queue_objects = _queues_of(world, options)
    queues = {
        queue.metadata.name: UnitQueue.of(
            queue,
            options.default_policy,
            is_strict=queue.metadata.name in options.strict_queues,
        )
        for queue in queue_objects
    }
    plugins = plugins_over(world, options)
    current = _Pass(world, options, done, now_s, plugins, queues)
    units: list[WaitingUnit] = []
    for key, unit in world.units.items():
        job_of_unit = jobs.get(key)
        if job_of_unit is None or not _belongs(unit, job_of_unit):
            if unit.spec.consumer_ref is not None and _is_ours(unit, options, done):
                done.steps.append((key, (_deletion(unit),)))
            continue
        units.append(current.advance(unit, job_of_unit))
    for key, job in jobs.items():
        is_managed = _is_managed(job, everything=options.manages_all)
        if key in world.units or not (is_managed or _is_orphan(job)):
            continue
        created = current.created(job)
        done.steps.append((key, (Create(created), _marks(job, now_s))))
        if is_counted(created, job):  # the unit of a running job was deleted
            units.append(current.waiting(created, job))
    plan = _admit(units, current)
    done.steps += [(about, (write,)) for about, write in plugins.queue_writes()]
    done.steps += _queue_statuses(queue_objects, plan.order)
    return done


def plugins_over(world: QueueWorld, options: QueueUnitOptions) -> QueuePlugins:
    """Return the enabled plugins over the current objects."""
    return QueuePlugins(
        PluginWorld(
            queues=_queues_of(world, options),
            quotas=tuple(world.quotas),
            trees=world.trees,
            namespaces=world.namespaces,
            resource_quotas=world.resource_quotas,
        ),
        QueuePluginSettings(
            configuration=options.configuration,
            oversell_rate=options.oversell_rate,
            default_policy=options.default_policy,
            namespace=options.queue_namespace,
            checks_available=options.checks_available,
            makes_queues=options.makes_queues,
        ),
    )


def _queues_of(world: QueueWorld, options: QueueUnitOptions) -> list[Queue]:
    """Return the queues in the queue namespace; queues in other namespaces are ignored."""
    return [it for it in world.queues.values() if it.metadata.namespace == options.queue_namespace]


# -- units ----------------------------------------------------------------------------------------


def _unit(job: WaitingJob, spec: QueueUnitSpec) -> QueueUnit:
    """Return a new unit for a job."""
    meta = job.obj.metadata
    namespace, _, name = job.unit_key.partition("/")
    owner = OwnerReference(
        api_version=job.obj.API_VERSION,
        kind=job.obj.KIND,
        name=meta.name,
        uid=meta.uid,
        controller=True,
        block_owner_deletion=True,
    )
    return QueueUnit(
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            labels=meta.labels,
            annotations=meta.annotations,
            owner_references=(owner,),
        ),
        spec=spec,
    )


def _marks(job: WaitingJob, now_s: float) -> Patch:
    """Return the patch that annotates a job as enqueued."""
    meta = job.obj.metadata
    marks = {ENQUEUED: "true", ENQUEUED_AT: to_datetime(now_s).strftime(RFC3339)}
    return Patch(type(job.obj), meta.name, {"metadata": {"annotations": marks}}, meta.namespace)


def _spec(job: WaitingJob, classes: Mapping[str, PriorityClass], queue: str) -> QueueUnitSpec:
    meta = job.obj.metadata
    class_name = next((it.priority_class for it in job.pod_sets if it.priority_class), "")
    priority_class = classes.get(class_name)
    number = next((it.priority for it in job.pod_sets if it.priority is not None), None)
    amounts = to_quantities(job.request)
    return QueueUnitSpec(
        consumer_ref=ConsumerRef(
            api_version=job.obj.API_VERSION,
            kind=job.obj.KIND,
            name=meta.name,
            namespace=meta.namespace,
            uid=meta.uid,
        ),
        priority=priority_class.value if priority_class is not None else number or 0,
        priority_class_name=class_name,
        queue=queue,
        resource=amounts,
        request=amounts,
        pod_sets=tuple(
            UnitPodSet(name=it.name, template=it.template or _template(it), count=it.count)
            for it in job.pod_sets
        ),
    )


def _template(pod_set: JobPodSet) -> PodTemplateSpec:
    """Return a template for pods without one; the original's CRD requires a template."""
    resources = ResourceRequirements(requests=to_quantities(pod_set.request))
    container = Container(name=pod_set.name, resources=resources)
    return PodTemplateSpec(spec=PodSpec(containers=(container,)))


@dataclass(frozen=True, slots=True)
class _Pass:
    """State of one pass."""

    world: QueueWorld
    options: QueueUnitOptions
    done: QueuePass
    now_s: float
    plugins: QueuePlugins
    queues: dict[str, UnitQueue]

    def created(self, job: WaitingJob) -> QueueUnit:
        """Return a new unit for a job, with its queue."""
        unit = _unit(job, self._spec(job))
        place = self.plugins.places.place(unit)
        return _with(unit, replace(unit.spec, queue=place.queue), unit.status)

    def advance(self, unit: QueueUnit, job: WaitingJob) -> WaitingUnit:
        """Advance one unit, except for admission; return it as it will be stored."""
        options, done, queue = self.options, self.done, self.queues.get(unit.spec.queue)
        times, gates = _times(options, job, queue), _gates(options, unit, queue)
        result = step(unit, job, times, self.now_s, gates)
        if result.again_s is not None:
            self.requeue_at(result.again_s)
        spec = unit.spec
        if not is_counted(unit, job) and not job.is_over:
            spec = _merged(spec, self._spec(job))
            place = self.plugins.places.place(_with(unit, spec, unit.status))
            spec = replace(spec, queue=place.queue)
        if result.deactivate:
            spec = replace(spec, active=False)
        writes: list[Write] = []
        if result.status != unit.status:
            writes.append(_status(unit, result.status, self.now_s))
        if _without_templates(spec) != _without_templates(unit.spec):
            patch = merge_patch(unit, _with(unit, spec, unit.status))
            writes.append(_patch(unit, {"spec": patch["spec"]}))
        if result.job:
            writes.append(_switch(unit, job, self.now_s, resume=result.job == "resume"))
        if writes:
            done.steps.append((unit.key, tuple(writes)))
        return self.waiting(_with(unit, spec, result.status), job)

    def waiting(self, unit: QueueUnit, job: WaitingJob) -> WaitingUnit:
        """Return a unit with its queue, quota and priority."""
        preemptible = is_unit_preemptible(
            unit.metadata.labels, default=self.options.default_preemptible
        )
        place = self.plugins.places.place(unit)
        return WaitingUnit(unit, job, place, unit.spec.priority or 0, preemptible)

    def _spec(self, job: WaitingJob) -> QueueUnitSpec:
        queue = job.quota if self.plugins.uses_names else ""
        return _spec(job, self.world.priority_classes, queue)

    def requeue_at(self, at_s: float) -> None:
        """Schedule the next pass at ``at_s``, unless an earlier one is scheduled."""
        again_s = self.done.again_s
        self.done.again_s = at_s if again_s is None else min(again_s, at_s)


def _without_templates(spec: QueueUnitSpec) -> bytes:
    """Return the encoded spec without templates, to compare specs.

    The original's CRD stores templates only in part.
    """
    bare = tuple(replace(pod_set, template=None) for pod_set in spec.pod_sets)
    return encode_part(replace(spec, pod_sets=bare))


def _times(options: QueueUnitOptions, job: WaitingJob, queue: UnitQueue | None) -> UnitTimes:
    """Return the timeouts of a unit: by its kind of jobs, else its queue, else the flags."""
    stated = options.configuration.times.get(job.kind.name, JobTimes())
    queue = queue or UnitQueue("")
    ready_s = stated.running_s
    if ready_s is None and queue.waits_for_pods:
        ready_s = options.pods_ready_s
    initial_s, longest_s = queue.initial_backoff_s, queue.longest_backoff_s
    return UnitTimes(
        ready_s,
        options.initial_backoff_s if initial_s is None else initial_s,
        options.longest_backoff_s if longest_s is None else longest_s,
        stated.backoff_s,
    )


def _gates(options: QueueUnitOptions, unit: QueueUnit, queue: UnitQueue | None) -> UnitGates:
    """Return the gates of a unit; with an unknown queue or selector, its checks are unchanged."""
    is_strict = unit.spec.queue in options.strict_queues
    if queue is None:
        return UnitGates(None, is_strict)
    try:
        return UnitGates(queue.checks_of(unit.metadata.labels), is_strict)
    except InputError:
        return UnitGates(None, is_strict)


def _merged(spec: QueueUnitSpec, wanted: QueueUnitSpec) -> QueueUnitSpec:
    """Return the spec by the current job, with the fields that users may set in the unit."""
    return replace(
        wanted,
        active=spec.active,
        maximum_execution_time_seconds=spec.maximum_execution_time_seconds,
        priority=spec.priority,
        queue=wanted.queue or spec.queue,
    )


def _admit(every: Sequence[WaitingUnit], current: _Pass) -> AdmissionPlan:
    """Add the steps that admit units and preempt victims."""
    options, done, now_s = current.options, current.done, current.now_s
    for one in every:  # defaults also apply to queues without an object
        is_strict = one.queue in options.strict_queues
        current.queues.setdefault(
            one.queue, UnitQueue(one.queue, policy=options.default_policy, is_strict=is_strict)
        )
    plan = plan_admission(every, current.queues, current.plugins.ledger)
    busy = {key for key, _ in done.steps}
    for victim, by in plan.preempted:
        message = f"preempted by unit {by}"
        status = evicted(victim.unit, PREEMPTED, message, now_s)
        writes = (
            _status(victim.unit, status, now_s),
            _switch(victim.unit, victim.job, now_s, resume=False),
        )
        done.steps.append((victim.unit.key, writes))
    for one, gates in plan.admitted:
        if one.unit.key in busy:  # this pass already writes the unit: admit it in the next one
            current.requeue_at(now_s + SOON_S)
            continue
        status = admit(one.unit, one.job, now_s, gates)
        admitted = _with(one.unit, one.unit.spec, status)
        writes_of_unit: list[Write] = [_status(one.unit, status, now_s)]
        if status.phase == UnitPhase.DEQUEUED:
            writes_of_unit.append(_switch(admitted, one.job, now_s, resume=True))
        done.steps.append((one.unit.key, tuple(writes_of_unit)))
    for one in every:
        reason = plan.reasons.get(one.unit.key, "")
        if reason and reason != one.unit.status.message and one.unit.key not in busy:
            status = replace(one.unit.status, message=reason, phase=UnitPhase.ENQUEUED)
            done.steps.append((one.unit.key, (_status(one.unit, status, now_s),)))
    return plan


def _queue_statuses(
    queues: Iterable[Queue], order: Mapping[str, list[WaitingUnit]]
) -> list[tuple[str, tuple[Write, ...]]]:
    """Return the writes that list the pending units in the status of their queue."""
    steps: list[tuple[str, tuple[Write, ...]]] = []
    for queue in queues:
        waiting = order.get(queue.metadata.name, [])[:SHOWN_ITEMS]
        items = tuple(
            QueueItem(
                name=one.unit.metadata.name,
                namespace=one.unit.metadata.namespace,
                priority=one.priority,
                position=position,
            )
            for position, one in enumerate(waiting, start=1)
        )
        if items != queue.status.queue_item_details.get(_ACTIVE, ()):
            status = UnitQueueStatus(queue_item_details={_ACTIVE: items})
            after = Queue(metadata=queue.metadata, spec=queue.spec, status=status)
            body = merge_patch(queue, after)
            meta = queue.metadata
            steps.append((queue.key, (Patch(Queue, meta.name, body, meta.namespace, "status"),)))
    return steps


# -- writes ---------------------------------------------------------------------------------------


def _is_managed(job: WaitingJob, *, everything: bool) -> bool:
    """Return whether a job is queued: suspended (or ``everything``), and not owned by another."""
    owners = job.obj.metadata.owner_references
    owned = any(it.controller and it.kind != "CronJob" for it in owners)
    return (
        (job.is_suspended or everything)
        and not job.is_over
        and not owned
        and job.obj.metadata.deletion_timestamp is None
    )


def _is_orphan(job: WaitingJob) -> bool:
    """Return whether an enqueued job runs although its unit was deleted."""
    marked = job.obj.metadata.annotations.get(ENQUEUED) == "true"
    return marked and not job.is_over and (not job.is_suspended or job.has_pods)


def _belongs(unit: QueueUnit, job: WaitingJob) -> bool:
    ref = unit.spec.consumer_ref
    return ref is not None and (not ref.uid or ref.uid == job.obj.metadata.uid)


def _is_ours(unit: QueueUnit, options: QueueUnitOptions, done: QueuePass) -> bool:
    """Return whether the unit refers to a job of a queued kind, so that it can be deleted."""
    ref = unit.spec.consumer_ref
    if ref is None or f"{ref.namespace}/{ref.name}" in done.problems:
        return False
    kinds = {(kind.type.API_VERSION, kind.type.KIND) for kind in options.kinds}
    return (ref.api_version, ref.kind) in kinds and unit.metadata.deletion_timestamp is None


def _with(unit: QueueUnit, spec: QueueUnitSpec, status: QueueUnitStatus) -> QueueUnit:
    return QueueUnit(metadata=unit.metadata, spec=spec, status=status)


def _patch(unit: QueueUnit, body: JsonObject, subresource: str = "") -> Patch:
    meta = unit.metadata
    whole: JsonObject = {"metadata": {"uid": meta.uid}, **body}
    return Patch(QueueUnit, meta.name, whole, meta.namespace, subresource)


def _status(unit: QueueUnit, status: QueueUnitStatus, now_s: float) -> Patch:
    """Return the patch of a status, with the fields that the original's CRD requires."""
    status = replace(
        status,
        phase=status.phase or UnitPhase.ENQUEUED,
        last_update_time=status.last_update_time or to_datetime(now_s),
    )
    body = merge_patch(unit, _with(unit, unit.spec, status))
    patch = _patch(unit, {"status": body.get("status", {})}, "status")
    patch.body["metadata"]["resourceVersion"] = unit.metadata.resource_version
    return patch


def _switch(unit: QueueUnit, job: WaitingJob, now_s: float, *, resume: bool) -> Patch:
    meta = job.obj.metadata
    at = to_datetime(now_s).strftime(RFC3339)
    body = resumed(job, at, admission_stamp(unit)) if resume else suspended(job)
    body = {**body, "metadata": {**body.get("metadata", {}), "uid": meta.uid}}
    return Patch(type(job.obj), meta.name, body, meta.namespace)


def _deletion(unit: QueueUnit) -> Delete:
    meta = unit.metadata
    return Delete(QueueUnit, meta.name, meta.uid, meta.namespace)
