"""Reconcile loop of the manager: watch events become keys of a queue, and keys become writes.

One ``step`` processes all pending events and then reconciles due keys, at most ``limit``.  Nothing
runs between steps, so the caller controls time.
"""

import logging
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import field
from hashlib import sha256
from types import MappingProxyType

from koordinator.api.codec import subject_of
from koordinator.api.colocation import ClusterColocationProfile
from koordinator.api.core import ConfigMap, Namespace
from koordinator.api.device import Device
from koordinator.api.elastic_quota import ElasticQuota, ElasticQuotaProfile
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node, NodeResourceTopology
from koordinator.api.node_metric import NodeMetric
from koordinator.api.node_slo import NodeSlo
from koordinator.api.pod import Pod
from koordinator.api.slo_config import CONFIG_NAME, CONFIG_NAMESPACE
from koordinator.cluster.port import Cluster, EventType, WatchEvent
from koordinator.cluster.reconcile import ReconcileQueue, SyncedWatch
from koordinator.domain.transforms import replaced_resources
from koordinator.foundation.clock import Clock
from koordinator.foundation.errors import (
    AlreadyExistsError,
    ClusterError,
    FaultHandler,
    InputError,
    InvalidError,
    NotFoundError,
    fault_of,
    raise_fault,
)
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.manager.admission.lookup import Denial
from koordinator.manager.configuration.reader import SloConfig, read_config
from koordinator.manager.configuration.strategies import Strategies
from koordinator.manager.controllers import (
    RESYNC_S,
    chosen_pods,
    is_managed,
    pod_patch,
    reconcile_node_metric,
    reconcile_node_slo,
    reconcile_quota_profile,
)
from koordinator.manager.metrics import ManagerMetrics
from koordinator.manager.mirror import Controller, Key, Mirror, QueueMirror
from koordinator.manager.node_resources.calculation import ALL_PLUGINS, NodePlugin
from koordinator.manager.node_resources.reconciler import LastWrites, reconcile_node_resource
from koordinator.manager.queue_units.controller import QueueUnitOptions, reconcile_queue_units
from koordinator.manager.queue_units.visibility import QueueVisibility
from koordinator.manager.writes import (
    CREATE_QUOTA_FAILED,
    INVALID_QUOTA_PROFILE,
    JOB_NOT_QUEUED,
    UPDATE_QUOTA_FAILED,
    ColocationProfileOptions,
    Create,
    Delete,
    Patch,
    RateLimiter,
    Write,
    warning,
)

#: Kinds that only the controller of quota profiles watches.
_KEPT_QUOTAS: tuple[type[KubeObject], ...] = (ElasticQuota, ElasticQuotaProfile)
_KEPT_NODES: tuple[type[KubeObject], ...] = (
    ConfigMap,
    Node,
    NodeMetric,
    NodeSlo,
    NodeResourceTopology,
    Device,
)
#: Kinds that the controller of colocation profiles watches, in addition to pods without a node.
_RELABELLING: tuple[type[KubeObject], ...] = (ClusterColocationProfile, Namespace)
#: Kinds that are watched by default.
WATCHED: tuple[type[KubeObject], ...] = (*_KEPT_NODES, *_KEPT_QUOTAS, Pod)
#: Verbs of the writes by default, by kind; the status of nodes is patched, too.
WRITTEN: Mapping[type[KubeObject], tuple[str, ...]] = MappingProxyType(
    {
        Node: ("patch",),
        NodeMetric: ("create", "patch", "delete"),
        NodeSlo: ("create", "patch", "delete"),
        NodeResourceTopology: ("patch",),
        ElasticQuota: ("create", "patch"),
        ElasticQuotaProfile: ("patch",),
    }
)
SYNC_GPU_SHARED = "EnableSyncGPUSharedResource"
PROFILE_CONTROLLER = "ColocationProfileController"
REPLACE_RESOURCES = "ReplaceResourcesTransformer"
#: Added to the expiry of a NodeMetric, which is too old only *after* that time.
_JUST_AFTER_S = 0.001
RETRY_S = 1.0  # delay before failed writes of queues are retried
_OF_NODES = (Controller.NODE_METRIC, Controller.NODE_SLO, Controller.NODE_RESOURCE)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerOptions:
    """Controllers that run, and the name of the ConfigMap that configures them."""

    config_namespace: str = CONFIG_NAMESPACE
    config_name: str = CONFIG_NAME
    controllers: AbstractSet[Controller] = frozenset(Controller)
    plugins: AbstractSet[NodePlugin] = ALL_PLUGINS
    gates: AbstractSet[str] = frozenset()
    profiles: ColocationProfileOptions = field(default_factory=ColocationProfileOptions)
    queue_units: QueueUnitOptions = field(default_factory=QueueUnitOptions)

    @property
    def working(self) -> AbstractSet[Controller]:
        """Controllers that are neither excluded by a flag nor disabled by a feature gate."""
        off = set()
        if PROFILE_CONTROLLER not in self.gates:
            off.add(Controller.COLOCATION_PROFILE)
        if not self.queue_units.kinds:
            off.add(Controller.QUEUE_UNITS)
        return self.controllers - off


class Manager:
    """Controllers over one cluster, driven by ``step``."""

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        options: ManagerOptions | None = None,
        *,
        wall_clock: Clock | None = None,
        metrics: ManagerMetrics | None = None,
        on_fault: FaultHandler = raise_fault,
    ) -> None:
        """Create the controllers; ``clock`` measures deadlines.

        Timestamps of objects are compared with ``wall_clock``, which defaults to ``clock``.
        ``on_fault`` receives unexpected errors; by default they are raised and end the loop.
        """
        self._on_fault = on_fault
        self.options = options or ManagerOptions()
        self.mirror = Mirror()
        self._strategies = Strategies(SloConfig())
        self._cluster = cluster
        self._clock = clock
        self._wall_clock = wall_clock or clock
        self._metrics = metrics
        self._queue: ReconcileQueue[Key] = ReconcileQueue()
        self._watch = SyncedWatch(lambda: cluster.watch(self._watched(), self._selectors()))
        self._is_configured = False
        self._synced: dict[str, LastWrites] = {}
        self._controllers = self.options.working
        self._replaces_resources = REPLACE_RESOURCES in self.options.gates
        self._rate_limiter = RateLimiter(self.options.profiles)
        self._reconcilers: dict[Controller, Callable[[str], float | None]] = {
            Controller.NODE_METRIC: self._reconcile_metric,
            Controller.NODE_SLO: self._reconcile_slo,
            Controller.NODE_RESOURCE: self._reconcile_resource,
            Controller.QUOTA_PROFILE: self._reconcile_quota_profile,
            Controller.COLOCATION_PROFILE: self._reconcile_colocation_profile,
            Controller.QUEUE_UNITS: self._reconcile_queue_units,
        }
        has_queues = Controller.QUEUE_UNITS in self._controllers
        self._queue_mirror = QueueMirror(self.options.queue_units) if has_queues else None
        self._profile_problems: dict[str, str] = {}  # of quota profiles, as last reported, by key
        #: Problems of jobs that can't be queued, as last reported, by job.
        self._unreadable: dict[str, str] = {}
        #: Errors of the writes that failed in the last pass over the queues, by object.
        self.unwritten_queues: dict[str, str] = {}

    @property
    def config(self) -> SloConfig:
        """The configuration in effect."""
        return self._strategies.config

    @property
    def is_synced(self) -> bool:
        """Whether the watch has delivered every object that existed at the last ``sync``."""
        return self._watch.is_synced

    def queue_visibility(self) -> QueueVisibility:
        """Return the current state of the queues; call it on the thread of the loop.

        Raises ClusterError before the first sync has completed, or without queue controller.
        """
        if self._queue_mirror is None or not self.is_synced:
            raise ClusterError("the manager has not synced with the cluster yet")
        return QueueVisibility(self._queue_mirror.world(), self.options.queue_units)

    def sync(self) -> None:
        """List the whole cluster and watch it from there.

        A further call repeats the list, so that no earlier change is missed.  Nothing is written
        until ``is_synced``.
        """
        self._watch.list_or_resync()
        self._process_events()

    def step(self, limit: int | None = None) -> int:
        """Process all events and reconcile due keys; return the number of keys reconciled."""
        self._process_events()
        if not self.is_synced:
            return 0
        return self._queue.reconcile_due(self._clock, self._reconcile, limit)

    def next_wakeup_s(self) -> float | None:
        """Return the time at which the next key is due; None if no key is queued."""
        return self._queue.next_s()

    # -- events --------------------------------------------------------------------------------

    def _watched(self) -> tuple[type[KubeObject], ...]:
        kinds: list[type[KubeObject]] = [*_KEPT_NODES, Pod]
        if Controller.QUOTA_PROFILE in self._controllers:
            kinds += _KEPT_QUOTAS
        if Controller.COLOCATION_PROFILE in self._controllers:
            kinds += _RELABELLING
        if self._queue_mirror is not None:
            kinds += [kind for kind in self._queue_mirror.kinds if kind not in kinds]
        return tuple(kinds)

    def _selectors(self) -> Mapping[type[KubeObject], str]:
        options = self.options
        only = f"metadata.name={options.config_name},metadata.namespace={options.config_namespace}"
        pods = "status.phase!=Succeeded,status.phase!=Failed"
        if Controller.COLOCATION_PROFILE not in self._controllers:
            pods = f"spec.nodeName!=,{pods}"
        return {ConfigMap: only, Pod: pods}

    def _process_events(self) -> None:
        for event in self._watch.events():
            self._handle_isolated(event)
        if self.is_synced and not self._is_configured:
            self._configure(None)

    def _handle_isolated(self, event: WatchEvent) -> None:
        """Handle an event; treat an object that raises an unexpected error as absent."""
        try:
            self._handle(event)
        except Exception as error:  # noqa: BLE001 -- reported to on_fault
            obj, kind = event.object, event.object.KIND
            fault = fault_of("news", error, kind, subject_of(obj))
            with suppress(Exception):
                self._forget(obj)
            if self.mirror.keeps(obj):
                with suppress(Exception):
                    for key in self.mirror.drop(obj):
                        self._add(key)
            self._on_fault(fault)
            del fault  # the traceback of its error refers to this frame

    def _handle(self, event: WatchEvent) -> None:
        obj = event.object
        if isinstance(obj, ConfigMap):
            if event.type is not EventType.DELETED:  # after a deletion the last one stays in effect
                self._configure(obj)
            return
        deleted = event.type is EventType.DELETED
        if self._queue_mirror is not None and self._queue_mirror.take(obj, deleted=deleted):
            self._add((Controller.QUEUE_UNITS, ""))
        if not self.mirror.keeps(obj):
            return
        if isinstance(obj, Pod) and self._replaces_resources:
            obj = replaced_resources(obj)
        if event.type is EventType.DELETED:
            self._forget(obj)
            concerned = self.mirror.drop(obj)
        else:
            concerned = self.mirror.put(obj)
        for key in concerned:
            self._add(key)

    def _forget(self, obj: KubeObject) -> None:
        if isinstance(obj, NodeMetric | Node):
            self._synced.pop(obj.key, None)
        if isinstance(obj, NodeResourceTopology) and obj.key in self._synced:
            self._synced[obj.key] = LastWrites(status_s=self._synced[obj.key].status_s)
        if isinstance(obj, Node) and self._metrics is not None:
            self._metrics.forget(obj.key)

    def _add(self, key: Key) -> None:
        if key[0] in self._controllers:
            self._queue.add(key)

    def _configure(self, config_map: ConfigMap | None) -> None:
        last = self.config if self._is_configured else None
        config, problems = read_config(config_map, last)
        self._is_configured = True
        for problem in problems:
            log.warning(
                "configuration rejected", extra={"key": problem.key, "error": problem.message}
            )
            if self._metrics is not None:
                self._metrics.rejected(problem.key)
            if config_map is not None:
                digest = sha256(f"{problem.key} {problem.message}".encode()).hexdigest()[:16]
                event = warning(
                    config_map,
                    problem.reason,
                    problem.message,
                    action="Configuring",
                    name=f"{config_map.metadata.name}.{digest}",
                    now_s=self._wall_clock.now_s(),
                )
                self._cluster.report([event])
        if config != self.config or last is None:
            self._strategies = Strategies(config)
            for name in self.mirror.nodes:
                for controller in _OF_NODES:
                    self._add((controller, name))

    # -- work --------------------------------------------------------------------------------

    def _reconcile(self, key: Key) -> None:
        controller, name = key
        ahead_s = self._wall_clock.now_s() - self._clock.now_s()
        try:
            again_s = self._reconcilers[controller](name)
        except ClusterError as error:
            delay_s = self._queue.failed(key, self._clock.now_s())
            extra = {
                "controller": controller,
                "object": name,
                "error": str(error),
                "retry_after_s": delay_s,
            }
            log.warning("reconciliation failed", extra=extra)
            return
        except Exception as error:  # noqa: BLE001 -- reported to on_fault
            fault = fault_of("reconcile", error, controller, name)
            self._queue.failed(key, self._clock.now_s())
            self._on_fault(fault)
            del fault  # the traceback of its error refers to this frame
            return
        self._queue.succeeded(key, None if again_s is None else again_s - ahead_s)

    def _reconcile_metric(self, name: str) -> None:
        mirror = self.mirror
        writes = reconcile_node_metric(
            mirror.nodes.get(name), mirror.metrics.get(name), self._strategies
        )
        if self._metrics is not None and name in mirror.nodes:
            self._metrics.collects()
        for write in writes:
            self._write(Controller.NODE_METRIC, write)

    def _reconcile_slo(self, name: str) -> None:
        mirror = self.mirror
        outcome = reconcile_node_slo(mirror.nodes.get(name), mirror.slos.get(name), self.config)
        if outcome.problem:
            log.warning("node partly ignored", extra={"node": name, "error": outcome.problem})
        if self._metrics is not None:
            self._metrics.rendered(succeeded=not outcome.problem)
        for write in outcome.writes:
            self._write(Controller.NODE_SLO, write)

    def _reconcile_resource(self, name: str) -> float | None:
        view = self.mirror.node_view(name)
        if view is None:
            return None
        outcome = reconcile_node_resource(
            view,
            self._strategies,
            self._synced.get(name, LastWrites()),
            self._wall_clock.now_s(),
            plugins=self.options.plugins,
            shows_shared_gpus=SYNC_GPU_SHARED in self.options.gates,
        )
        for plugin, problem in outcome.problems:
            extra = {"node": name, "plugin": plugin, "error": problem}
            log.debug("node resources not calculated", extra=extra)
        if self._metrics is not None:
            self._metrics.calculated(name, outcome)
        failures = []
        for write in outcome.writes:  # of different objects: one must not keep the other back
            try:
                self._write(Controller.NODE_RESOURCE, write)
            except ClusterError as error:
                failures.append(str(error))
        if failures:
            raise ClusterError("; ".join(failures))
        self._synced[name] = outcome.synced
        return None if outcome.again_s is None else outcome.again_s + _JUST_AFTER_S

    def _reconcile_quota_profile(self, key: str) -> float | None:
        mirror = self.mirror
        profile = mirror.quota_profiles.get(key)
        if profile is None or profile.metadata.deletion_timestamp is not None:
            self._profile_problems.pop(key, None)
            return None
        again_s = self._wall_clock.now_s() + RESYNC_S
        quota = mirror.quotas.get(f"{profile.metadata.namespace}/{profile.spec.quota_name}")
        outcome = reconcile_quota_profile(
            profile, quota, mirror.nodes.values(), mirror.quota_profiles.values()
        )
        self._note_profile_problem(profile, outcome.problem)
        for write in outcome.writes:
            try:
                self._write(Controller.QUOTA_PROFILE, write)
            except InvalidError as error:  # denied by admission: report it and retry later
                self._report_quota_failure(profile, write, error)
        return again_s

    def _reconcile_colocation_profile(self, name: str) -> float | None:
        mirror, options, now_s = self.mirror, self.options.profiles, self._wall_clock.now_s()
        profile = mirror.colocation_profiles.get(name)
        if profile is None or not is_managed(profile, by_default=options.reconcile_by_default):
            return None
        extra = {"profile": name}
        try:
            for pod in list(chosen_pods(profile, mirror.pending_pods.values(), mirror.namespaces)):
                key = profile.metadata.resource_version, pod.metadata.uid
                if self._rate_limiter.is_done(key, now_s) or not self._rate_limiter.take(now_s):
                    continue
                try:
                    patch = pod_patch(profile, pod)
                    if patch is not None:
                        self._write(Controller.COLOCATION_PROFILE, patch)
                except (ClusterError, InputError) as error:
                    log.warning(
                        "pod not changed", extra={**extra, "pod": pod.key, "error": str(error)}
                    )
                else:
                    self._rate_limiter.note(key, now_s)
        except (InputError, Denial) as error:
            log.warning("profile ignored", extra={**extra, "error": str(error)})
        return now_s + options.interval_s

    def _reconcile_queue_units(self, _: str) -> float | None:
        if self._queue_mirror is None:
            return None
        now_s, options = self._wall_clock.now_s(), self.options.queue_units
        done = reconcile_queue_units(self._queue_mirror.world(), options, now_s)
        for job, problem in done.problems.items():
            if self._unreadable.get(job) != problem:
                log.warning("job not queued", extra={"job": job, "error": problem})
                self._report_rejected(done.rejected[job], problem)
        self._unreadable = done.problems
        again_s, unwritten = done.again_s, dict[str, str]()
        for about, writes in done.steps:
            try:
                for write in writes:  # in order; a failed write skips those that depend on it
                    self._send(write)
            except ClusterError as error:
                extra = {"about": about, "error": str(error)}
                if self.unwritten_queues.get(about) != str(error):
                    log.warning("queue not written", extra=extra)
                unwritten[about] = str(error)
                retry_s = now_s + RETRY_S
                again_s = retry_s if again_s is None else min(again_s, retry_s)
        self.unwritten_queues = unwritten
        return again_s

    def _report_rejected(self, job: KubeObject, problem: str) -> None:
        event = warning(
            job,
            JOB_NOT_QUEUED,
            problem,
            action="Queueing",
            name=f"{job.metadata.name}.job-not-queued",
            now_s=self._wall_clock.now_s(),
        )
        self._cluster.report([event])

    def _note_profile_problem(self, profile: ElasticQuotaProfile, problem: str) -> None:
        """Report the problem of a quota profile once, until it changes."""
        if problem == self._profile_problems.get(profile.key, ""):
            return
        self._profile_problems[profile.key] = problem
        if not problem:
            return
        log.warning("quota profile is invalid", extra={"error": problem})
        event = warning(
            profile,
            INVALID_QUOTA_PROFILE,
            problem,
            action="Reconciling",
            name=f"{profile.metadata.name}.invalid-quota-profile",
            now_s=self._wall_clock.now_s(),
        )
        self._cluster.report([event])

    def _report_quota_failure(
        self, profile: ElasticQuotaProfile, write: Write, error: InvalidError
    ) -> None:
        verb = "create" if isinstance(write, Create) else "update"
        event = warning(
            profile,
            CREATE_QUOTA_FAILED if isinstance(write, Create) else UPDATE_QUOTA_FAILED,
            f"failed to {verb} quota, err: {error}",
            action="Reconciling",
            name=f"{profile.metadata.name}.{verb}-quota-failed",
            now_s=self._wall_clock.now_s(),
        )
        self._cluster.report([event])

    def _write(self, controller: Controller, write: Write) -> None:
        """Send a write; ignore that it was done already or its object is missing.

        Raises ClusterError.
        """
        action = f"{type(write).__name__.lower()}{_kind_of(write).KIND}"
        try:
            self._send(write)
        except (NotFoundError, AlreadyExistsError):
            pass  # the watch delivers the object's state
        except ClusterError:
            if self._metrics is not None:
                self._metrics.wrote(controller, action, succeeded=False)
            raise
        if self._metrics is not None:
            self._metrics.wrote(controller, action, succeeded=True)

    def _send(self, write: Write) -> None:
        match write:
            case Create(obj=obj):
                self._note(self._cluster.create(obj))
            case Patch():
                self._note(
                    self._cluster.patch(
                        write.kind, write.name, write.namespace, write.body, write.subresource
                    )
                )
            case Delete():
                self._cluster.delete(write.kind, write.name, write.namespace, uid=write.uid)

    def _note(self, written: KubeObject) -> None:
        if self._queue_mirror is not None and self._queue_mirror.take(written, deleted=False):
            self._add((Controller.QUEUE_UNITS, ""))
        if not self.mirror.keeps(written):
            return
        for key in self.mirror.put_written(written):
            self._add(key)  # a written annotation may require a further write


def _kind_of(write: Write) -> type[KubeObject]:
    return type(write.obj) if isinstance(write, Create) else write.kind
