"""A scheduler, put together: the only place that knows all features by name."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from koordinator.api.core import Namespace
from koordinator.api.kubescheduler import FeatureGates
from koordinator.api.kubescheduler.gates import CLEAN_EXPIRED_ALLOCATED, STRICT_TENANCY
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.cluster.port import NO_SELECTORS, Cluster
from koordinator.cluster.reconcile import SyncedWatch
from koordinator.domain.gangs import GangCache
from koordinator.foundation.clock import Clock
from koordinator.foundation.errors import FaultHandler, raise_fault
from koordinator.scheduler.contract import ActivePlugin, Profile, SchedulerExtender
from koordinator.scheduler.cycle import SchedulingCycle
from koordinator.scheduler.features.deferred_resizes import DeferredResizeFeature
from koordinator.scheduler.features.explanations import (
    ExplanationFeature,
    ScheduleExplanationFeature,
)
from koordinator.scheduler.features.extenders import ExtenderFeature
from koordinator.scheduler.features.gangs import GangFeature, NoPlaces
from koordinator.scheduler.features.load_reports import LoadReportFeature
from koordinator.scheduler.features.nodes import NodePagesFeature
from koordinator.scheduler.features.quotas import (
    JobQueueFeature,
    QuotaFeature,
    TerminatingPodFeature,
)
from koordinator.scheduler.features.reservations import ReservationFeature
from koordinator.scheduler.features.topology import TopologyFeature
from koordinator.scheduler.isolation import PluginIsolation
from koordinator.scheduler.loop import Scheduler, SchedulerOptions
from koordinator.scheduler.loop.feature import Feature
from koordinator.scheduler.loop.handle import SchedulerHandle
from koordinator.scheduler.plugins.elastic_quota import ElasticQuotaPlugin
from koordinator.scheduler.plugins.load_aware import LoadAwareScheduling
from koordinator.scheduler.plugins.reservation import Reservations
from koordinator.scheduler.snapshot import ClusterState

if TYPE_CHECKING:  # metrics are only loaded where they are served
    from koordinator.scheduler.features.audit import Audit
    from koordinator.scheduler.features.auditor import WorkloadAuditor
    from koordinator.scheduler.features.gangs.metrics import GangMetrics
    from koordinator.scheduler.features.metrics import SchedulerMetrics
    from koordinator.scheduler.features.quotas.metrics import QuotaMetrics
    from koordinator.scheduler.features.reservations.gauges import ReservationGauges


def build_scheduler(
    cluster: Cluster,
    clock: Clock,
    profiles: Sequence[Profile],
    state: ClusterState,
    watched: Sequence[type[KubeObject]],
    *,
    field_selectors: Mapping[type[KubeObject], str] = NO_SELECTORS,
    options: SchedulerOptions | None = None,
    metrics: "SchedulerMetrics | None" = None,
    audit: "Audit | None" = None,
    auditor: "WorkloadAuditor | None" = None,
    on_fault: FaultHandler = raise_fault,
    without: Collection[type[Feature]] = (),
    extenders: Sequence[SchedulerExtender] = (),
    observers: Sequence[Feature] = (),
) -> Scheduler:
    """Build a scheduler of these profiles with the features that they need.

    ``watched`` are the kinds that plugins read, besides nodes, pods and namespaces.  ``on_fault``
    receives faults; by default they are raised.  Features in ``without`` are left out;
    ``observers`` are further ones, whose hooks are called last.
    """
    options = options or SchedulerOptions()
    state.classes.resize = options.resize
    timed = [metrics.wrap(profile) for profile in profiles] if metrics is not None else profiles
    kinds: tuple[type[KubeObject], ...] = (Namespace, Node, *watched, Pod)
    # The order of the kinds is the order of the first lists: pods come last, when their namespaces,
    # nodes, quotas and claims are known, so that no pod is decided on half of the cluster.
    handle = SchedulerHandle.build(
        cluster,
        clock,
        state,
        {profile.scheduler_name: SchedulingCycle(profile, state, extenders) for profile in timed},
        PluginIsolation(profiles, on_fault),
        watch=SyncedWatch(lambda: cluster.watch(kinds, field_selectors)),
        options=options,
        gates={
            JobQueueFeature.gate: JobQueueFeature.gate_events,
            ExtenderFeature.gate: ExtenderFeature.gate_events,
        },
        stopwatch=metrics or audit,
    )
    # The order of the features is the order of their hooks.  Queues of quotas come before gangs: a
    # gang's report reads its place in the queue.  Metrics and audit come last, after the features
    # that they observe.
    features: list[Feature] = []
    caches = [active.plugin.gangs for profile in profiles for active in profile.gangs]
    quotas = _first(ElasticQuotaPlugin, [a for p in profiles for a in p.pre_filter])
    reservations = _first(Reservations, [a for p in profiles for a in p.reservation_plugins])
    measured = _Measured(metrics, options.gates)
    queues = None
    if quotas is not None and JobQueueFeature not in without:
        queues = JobQueueFeature(handle, quotas, caches, measured.quotas)
        features.append(queues)
    if caches:
        places = queues.places if queues is not None else NoPlaces()
        features.append(GangFeature(handle, caches, places, measured.gangs))
    writes = options.writes_network
    if options.report and (any(b.gathers for b in caches) if writes is None else writes):
        features.append(TopologyFeature(handle))
    if quotas is not None and quotas.quotas.ignores_terminating:
        features.append(TerminatingPodFeature(handle, quotas))
    if quotas is not None:
        features.append(QuotaFeature(handle, quotas, measured.quotas))
    if reservations is not None:
        state.holds.is_strict = STRICT_TENANCY in reservations.gates
        filters = {active.name for profile in profiles for active in profile.filter}
        features.append(
            ReservationFeature(
                handle,
                reservations.args,
                cleans_users=CLEAN_EXPIRED_ALLOCATED in reservations.gates,
                has_pages="Reservation" in filters,
            )
        )
    features += _resizes(handle, profiles, caches)
    features += _load_reports(handle, profiles)
    if extenders:
        features.append(ExtenderFeature(handle, extenders))
    features += [*_explanations(handle), NodePagesFeature(handle)]
    if metrics is not None:
        metrics.watch(handle)
        measured.watch(state)
        features.append(metrics)
    if audit is not None:
        audit.watch(state, profiles, caches, metrics, clock)
        features.append(audit)
    features += [*_auditors(handle, caches, auditor), *observers]
    kept = [feature for feature in features if type(feature) not in without]
    return Scheduler(handle, kept)


def _resizes(
    handle: SchedulerHandle, profiles: Sequence[Profile], gangs: Sequence[GangCache]
) -> list[Feature]:
    feature = DeferredResizeFeature(handle, profiles, gangs)
    return [feature] if feature.is_needed else []


def _load_reports(handle: SchedulerHandle, profiles: Sequence[Profile]) -> list[Feature]:
    plugins = [active.plugin for profile in profiles for active in profile.filter]
    feature = LoadReportFeature(
        handle, [plugin for plugin in plugins if isinstance(plugin, LoadAwareScheduling)]
    )
    return [feature] if feature.is_needed else []


def _auditors(
    handle: SchedulerHandle, gangs: Sequence[GangCache], auditor: "WorkloadAuditor | None"
) -> list[Feature]:
    if auditor is None:
        return []
    auditor.watch(handle, gangs)
    return [auditor]


def _explanations(handle: SchedulerHandle) -> list[Feature]:
    pages = ExplanationFeature(handle)
    return (
        [pages, ScheduleExplanationFeature(handle)]
        if handle.options.answers_explanations
        else [pages]
    )


class _Measured:
    """Metrics of the features; None without ``metrics``."""

    def __init__(self, metrics: "SchedulerMetrics | None", gates: FeatureGates) -> None:
        self.gangs: GangMetrics | None = None
        self.quotas: QuotaMetrics | None = None
        self._reservations: ReservationGauges | None = None
        if metrics is not None:
            from koordinator.scheduler.features.gangs import metrics as gangs  # noqa: PLC0415
            from koordinator.scheduler.features.quotas import metrics as quotas  # noqa: PLC0415
            from koordinator.scheduler.features.reservations import gauges  # noqa: PLC0415

            registry = metrics.registry
            self.gangs = metrics.collector(
                gangs.GangMetrics, lambda: gangs.GangMetrics(registry, gates)
            )
            self.quotas = metrics.collector(
                quotas.QuotaMetrics, lambda: quotas.QuotaMetrics(registry, metrics)
            )
            self._reservations = metrics.collector(
                gauges.ReservationGauges, lambda: gauges.ReservationGauges(registry)
            )

    def watch(self, state: ClusterState) -> None:
        if self._reservations is not None:
            self._reservations.watch(state)


PluginT = TypeVar("PluginT")


def _first(kind: type[PluginT], plugins: Iterable[ActivePlugin]) -> PluginT | None:
    """Return the first plugin of a kind; further profiles have equal ones."""
    candidates = (active.plugin for active in plugins)
    return next((plugin for plugin in candidates if isinstance(plugin, kind)), None)
