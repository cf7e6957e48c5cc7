"""Jobs held back until their quota has room: QueueUnits for jobs, admission, and the way back.

One pass looks at all of it and answers with steps; each step is about one unit, its writes in the
order in which they must happen: what lets a job run comes after what counts it in its quota, and
what gives room back comes after the job has been told to stop.

Source: koord-queue 1.8, controller and job extensions.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from koordinator.api.codec import encode_part, merge_patch
from koordinator.api.core import ResourceRequirements
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.meta import JsonObject, KubeObject, ObjectMeta, OwnerReference
from koordinator.api.namespace import Namespace
from koordinator.api.pod import Container, PodSpec, PodTemplateSpec
from koordinator.api.priority import PriorityClass
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
from koordinator.api.quota_tree import ElasticQuotaTree
from koordinator.api.resource_quota import ResourceQuota
from koordinator.domain.amounts import to_quantities
from koordinator.foundation.clock import to_datetime
from koordinator.foundation.errors import InputError
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
from koordinator.manager.queue_units.life import (
    PREEMPTED,
    UnitGates,
    UnitTimes,
    admission_stamp,
    evicted,
    holds,
    let_in,
    step,
)
from koordinator.manager.queue_units.plugins import PluginWorld, QueuePlugins, QueuePluginSettings
from koordinator.manager.queue_units.pod_sets import JobPodSet
from koordinator.manager.queue_units.queues import UnitQueue
from koordinator.manager.writes import Create, Delete, Patch, Write

RFC3339: Final = "%Y-%m-%dT%H:%M:%SZ"
SOON_S: Final = 0.01  # not at once: what was written may have to be read again first
SHOWN_ITEMS: Final = 100  # of a queue's status
_ACTIVE: Final = "active"


@dataclass(frozen=True, slots=True)
class QueueChoice:
    """Queues by name: those named, or, if ``only`` is None, all; never those in ``but``."""

    only: frozenset[str] | None = None
    but: frozenset[str] = frozenset()

    def __contains__(self, name: str) -> bool:
        return name not in self.but and (self.only is None or name in self.only)


NO_QUEUE: Final = QueueChoice(frozenset())


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueUnitOptions:
    """Which kinds of jobs are held back, and how."""

    kinds: tuple[JobKind, ...] = ()
    manages_all: bool = False  # counts jobs that don't come suspended, too
    configuration: QueueConfiguration = field(default_factory=QueueConfiguration)
    oversell_rate: float = 1.0
    default_preemptible: bool = True
    default_policy: UnitPolicy = UnitPolicy.PRIORITY
    strict_queues: QueueChoice = NO_QUEUE  # whose units a scheduler has the last word about
    checks_available: bool = False  # of a tree only quotas count that the namespace names
    makes_queues: bool = True  # for each quota of a tree
    queue_namespace: str = "koord-queue"
    pods_ready_s: float = 600.0  # where the queue waits for pods
    initial_backoff_s: float = 1.0
    longest_backoff_s: float = 20.0


@dataclass(frozen=True, slots=True)
class QueueWorld:
    """What exists.  Jobs are those of all kinds that are held back."""

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
    """Steps, when to look again, and jobs that can't be read with the reason."""

    steps: list[tuple[str, tuple[Write, ...]]] = field(default_factory=list)  # about whom, and what
    again_s: float | None = None
    problems: dict[str, str] = field(default_factory=dict)
    rejected: dict[str, KubeObject] = field(default_factory=dict)  # the jobs of ``problems``

    def reject(self, job: KubeObject, problem: str) -> None:
        """Note that a job gets no unit."""
        self.problems[job.key], self.rejected[job.key] = problem, job


def reconcile_queue_units(world: QueueWorld, options: QueueUnitOptions, now_s: float) -> QueuePass:
    """Return what is to be written now."""
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
            done.reject(obj, f"{known.id} has the unit {job.unit_key} already")
    found = _queues_of(world, options)
    queues = {
        queue.metadata.name: UnitQueue.of(
            queue,
            options.default_policy,
            is_strict=queue.metadata.name in options.strict_queues,
        )
        for queue in found
    }
    plugins = plugins_over(world, options)
    living = _Pass(world, options, done, now_s, plugins, queues)
    units: list[WaitingUnit] = []
    for key, unit in world.units.items():
        job_of_unit = jobs.get(key)
        if job_of_unit is None or not _belongs(unit, job_of_unit):
            if unit.spec.consumer_ref is not None and _is_ours(unit, options, done):
                done.steps.append((key, (_deletion(unit),)))
            continue
        units.append(living.live(unit, job_of_unit))
    for key, job in jobs.items():
        is_managed = _is_managed(job, everything=options.manages_all)
        if key in world.units or not (is_managed or _is_orphan(job)):
            continue
        created = living.created(job)
        done.steps.append((key, (Create(created), _marks(job, now_s))))
        if holds(created, job):  # somebody has deleted the unit of a job that runs
            units.append(living.waiting(created, job))
    plan = _admit(units, living)
    done.steps += [(about, (write,)) for about, write in plugins.queue_writes()]
    done.steps += _shown(found, plan.order)
    return done


def plugins_over(world: QueueWorld, options: QueueUnitOptions) -> QueuePlugins:
    """Return the plugins that are on, over what exists."""
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
    """Return the queues that count: not those that a tenant has made elsewhere."""
    return [it for it in world.queues.values() if it.metadata.namespace == options.queue_namespace]


# -- units ----------------------------------------------------------------------------------------


def _unit(job: WaitingJob, spec: QueueUnitSpec) -> QueueUnit:
    """Return the unit of a job that has none."""
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
    """Return the note on a job that it has a unit."""
    meta = job.obj.metadata
    marks = {ENQUEUED: "true", ENQUEUED_AT: to_datetime(now_s).strftime(RFC3339)}
    return Patch(type(job.obj), meta.name, {"metadata": {"annotations": marks}}, meta.namespace)


def _spec(job: WaitingJob, classes: Mapping[str, PriorityClass], queue: str) -> QueueUnitSpec:
    meta = job.obj.metadata
    class_name = next((it.priority_class for it in job.pod_sets if it.priority_class), "")
    found = classes.get(class_name)
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
        priority=found.value if found is not None else number or 0,
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
    """Return what stands for pods that no template describes; the original's CRD demands one."""
    resources = ResourceRequirements(requests=to_quantities(pod_set.request))
    container = Container(name=pod_set.name, resources=resources)
    return PodTemplateSpec(spec=PodSpec(containers=(container,)))


@dataclass(frozen=True, slots=True)
class _Pass:
    """What one pass stands on."""

    world: QueueWorld
    options: QueueUnitOptions
    done: QueuePass
    now_s: float
    plugins: QueuePlugins
    queues: dict[str, UnitQueue]

    def created(self, job: WaitingJob) -> QueueUnit:
        """Return the unit of a job that has none."""
        unit = _unit(job, self._spec(job))
        place = self.plugins.places.place(unit)
        return _with(unit, replace(unit.spec, queue=place.queue), unit.status)

    def live(self, unit: QueueUnit, job: WaitingJob) -> WaitingUnit:
        """Let one unit live on; return it as it is stored, or will be."""
        options, done, queue = self.options, self.done, self.queues.get(unit.spec.queue)
        times, gates = _times(options, job, queue), _gates(options, unit, queue)
        result = step(unit, job, times, self.now_s, gates)
        if result.again_s is not None:
            self.look_again(result.again_s)
        spec = unit.spec
        if not holds(unit, job) and not job.is_over:
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
        """Return a unit with what admission goes by."""
        preemptible = is_unit_preemptible(
            unit.metadata.labels, default=self.options.default_preemptible
        )
        place = self.plugins.places.place(unit)
        return WaitingUnit(unit, job, place, unit.spec.priority or 0, preemptible)

    def _spec(self, job: WaitingJob) -> QueueUnitSpec:
        queue = job.quota if self.plugins.uses_names else ""
        return _spec(job, self.world.priority_classes, queue)

    def look_again(self, at_s: float) -> None:
        """Look at everything again then, if not earlier."""
        again_s = self.done.again_s
        self.done.again_s = at_s if again_s is None else min(again_s, at_s)


def _without_templates(spec: QueueUnitSpec) -> bytes:
    """Return what of a spec says whether it is as it should be.

    Templates are for those who read units, and the original's CRD stores them only in part.
    """
    bare = tuple(replace(pod_set, template=None) for pod_set in spec.pod_sets)
    return encode_part(replace(spec, pod_sets=bare))


def _times(options: QueueUnitOptions, job: WaitingJob, queue: UnitQueue | None) -> UnitTimes:
    """Return how long a unit waits: as its kind of jobs, its queue or the flags say."""
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
    """Return what a unit that has its room must pass; what is unknown is as it was."""
    is_strict = unit.spec.queue in options.strict_queues
    if queue is None:
        return UnitGates(None, is_strict)
    try:
        return UnitGates(queue.checks_of(unit.metadata.labels), is_strict)
    except InputError:
        return UnitGates(None, is_strict)


def _merged(spec: QueueUnitSpec, wanted: QueueUnitSpec) -> QueueUnitSpec:
    """Return what a job asks for by now, with what a user may have said in the unit."""
    return replace(
        wanted,
        active=spec.active,
        maximum_execution_time_seconds=spec.maximum_execution_time_seconds,
        priority=spec.priority,
        queue=wanted.queue or spec.queue,
    )


def _admit(every: Sequence[WaitingUnit], living: _Pass) -> AdmissionPlan:
    """Let in who has room, and send back who has to go for others."""
    options, done, now_s = living.options, living.done, living.now_s
    for one in every:  # what is so of all queues is so of those that have no object yet
        is_strict = one.queue in options.strict_queues
        living.queues.setdefault(
            one.queue, UnitQueue(one.queue, policy=options.default_policy, is_strict=is_strict)
        )
    plan = plan_admission(every, living.queues, living.plugins.account)
    busy = {key for key, _ in done.steps}
    for victim, by in plan.sent_back:
        message = f"it had to go for {by}"
        status = evicted(victim.unit, PREEMPTED, message, now_s)
        writes = (
            _status(victim.unit, status, now_s),
            _switch(victim.unit, victim.job, now_s, resume=False),
        )
        done.steps.append((victim.unit.key, writes))
    for one, gates in plan.let_in:
        if one.unit.key in busy:  # it is written in this pass already: it is let in with the next
            living.look_again(now_s + SOON_S)
            continue
        status = let_in(one.unit, one.job, now_s, gates)
        admitted = _with(one.unit, one.unit.spec, status)
        lets_in: list[Write] = [_status(one.unit, status, now_s)]
        if status.phase == UnitPhase.DEQUEUED:
            lets_in.append(_switch(admitted, one.job, now_s, resume=True))
        done.steps.append((one.unit.key, tuple(lets_in)))
    for one in every:
        why = plan.reasons.get(one.unit.key, "")
        if why and why != one.unit.status.message and one.unit.key not in busy:
            status = replace(one.unit.status, message=why, phase=UnitPhase.ENQUEUED)
            done.steps.append((one.unit.key, (_status(one.unit, status, now_s),)))
    return plan


def _shown(
    queues: Iterable[Queue], order: Mapping[str, list[WaitingUnit]]
) -> list[tuple[str, tuple[Write, ...]]]:
    """Return writes by which queues show who waits in them."""
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
    """Return whether a job comes suspended, or may come otherwise, and nobody else decides."""
    owners = job.obj.metadata.owner_references
    owned = any(it.controller and it.kind != "CronJob" for it in owners)
    return (
        (job.is_suspended or everything)
        and not job.is_over
        and not owned
        and job.obj.metadata.deletion_timestamp is None
    )


def _is_orphan(job: WaitingJob) -> bool:
    """Return whether a job was in a queue and runs, though nothing stands for it any more."""
    marked = job.obj.metadata.annotations.get(ENQUEUED) == "true"
    return marked and not job.is_over and (not job.is_suspended or job.has_pods)


def _belongs(unit: QueueUnit, job: WaitingJob) -> bool:
    ref = unit.spec.consumer_ref
    return ref is not None and (not ref.uid or ref.uid == job.obj.metadata.uid)


def _is_ours(unit: QueueUnit, options: QueueUnitOptions, done: QueuePass) -> bool:
    """Return whether the job of a unit would be known if it existed."""
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
    """Return the write of a status, with what the original's CRD demands of each."""
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
