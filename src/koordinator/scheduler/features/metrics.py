"""Metrics of the scheduler, with kube-scheduler's names.

Sources: kubernetes pkg/scheduler/metrics/metrics.go (names, labels, buckets); koordinator
pkg/scheduler/metrics.  One call of a plugin covers all nodes here, where the original's covers one.
"""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from time import perf_counter
from typing import Any, ClassVar, Protocol, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from koordinator.api.device import Device
from koordinator.api.kube_version import DEFAULT_LEVEL, V1_36, V1_37, KubeVersion
from koordinator.api.kubescheduler.gates import GENERIC_WORKLOAD
from koordinator.api.labels import SECONDARY_DEVICE_WELL_PLANNED
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.cluster.port import EventType, WatchEvent
from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.scheduler.binding import Assumed
from koordinator.scheduler.contract import (
    ActivePlugin,
    Arithmetic,
    ClusterEvent,
    EventHint,
    PluginHints,
    Profile,
    QueueingHint,
)
from koordinator.scheduler.loop.feature import Feature
from koordinator.scheduler.loop.handle import SchedulerHandle
from koordinator.scheduler.loop.instruments import Counter, Histogram, exponential
from koordinator.scheduler.loop.outcomes import (
    POD,
    AttemptEnded,
    DevicesAwaited,
    EventApplied,
    Fact,
    PermitWaited,
    PodFailed,
    PodRejected,
    PodsBound,
    PreemptionAttempt,
    VictimsEvicted,
)
from koordinator.scheduler.queue import QueuedPod, QueueState
from koordinator.scheduler.snapshot import Snapshot

#: Method of a plugin -> extension point under which its time is counted.
_POINT_OF = {
    "transform": "BeforePreFilter",
    "pre_enqueue": "PreEnqueue",
    "restorable": "AfterPreFilter",  # where Koordinator gives back what reservations hold
    "prefilter": "PreFilter",
    "filter": "Filter",
    "score": "Score",
    "score_among": "Score",
    "normalize": "ScoreExtensionNormalize",
    "prefer_nodes": "PreferNodesPlugin",
    "find_one_node": "FindOneNodePlugin",
    "next_pod": "NextPod",
    "reserve": "Reserve",
    "permit": "Permit",
    "pre_bind": "PreBind",
    "postfilter": "PostFilter",
    "post_bind": "PostBind",
    "placements": "PlacementGenerate",
    "score_placement": "PlacementScore",
    "normalize_placements": "PlacementScoreExtensionNormalize",
}
_POINT_OF_GROUPS = {"postfilter": "PodGroupPostFilter"}  # at the field pod_group_post_filter
_QUEUES_OF_GROUPS = ("incomplete", "pending")  # queues of kube-scheduler for pod groups
_QUEUES = {
    QueueState.ACTIVE: "active",
    QueueState.BACKOFF: "backoff",
    QueueState.UNSCHEDULABLE: "unschedulable",
    QueueState.GATED: "gated",
}


class FeatureCollector(Protocol):
    """Registered collector of a feature of the running scheduler."""

    def unwatch(self) -> None:
        """Drop all references to the scheduler that is shown; counters stay."""
        ...


CollectorT = TypeVar("CollectorT", bound=FeatureCollector)


class SchedulerMetrics(Feature):
    """Counters and histograms of the scheduler; ``watch`` adds gauges read at scrapes.

    Only the scheduler's thread updates them; any thread may scrape.
    """

    def __init__(self, registry: CollectorRegistry, level: KubeVersion = DEFAULT_LEVEL) -> None:
        """``level`` is the Kubernetes release whose event and queue names are used."""
        self.registry, self.level = registry, level
        attempt = exponential(0.001, 2, 15)
        self._attempts = Counter(
            "schedule_attempts",
            "Number of attempts to schedule pods, by the result.",
            ["result", "profile"],
        )
        self._attempt_seconds = Histogram(
            "scheduling_attempt_duration_seconds",
            "From the start of an attempt to its end, binding included.",
            ["result", "profile"],
            attempt,
        )
        self._algorithm_seconds = Histogram(
            "scheduling_algorithm_duration_seconds", "Time to decide on one pod.", [], attempt
        )
        self._sli_seconds = Histogram(
            "pod_scheduling_sli_duration_seconds",
            "From the first time a pod could be tried to its binding.",
            ["attempts"],
            exponential(0.01, 2, 20),
        )
        self._pod_attempts = Histogram(
            "pod_scheduling_attempts", "Attempts that a pod needed.", [], exponential(1, 2, 5)
        )
        self._victims = Histogram(
            "preemption_victims", "Victims of one preemption.", [], exponential(1, 2, 7)
        )
        self._preemptions = Counter("preemption_attempts", "Preemption attempts.")
        self._point_seconds = Histogram(
            "framework_extension_point_duration_seconds",
            "Time of all plugins of an extension point in one attempt.",
            ["extension_point", "status", "profile"],
            exponential(0.0001, 2, 12),
        )
        self._plugin_seconds = Histogram(
            "plugin_execution_duration_seconds",
            "Time of one plugin at an extension point, over all nodes of the call.",
            ["plugin", "extension_point", "status"],
            exponential(0.00001, 1.5, 20),
        )
        self._evaluations = Counter(
            "plugin_evaluation",
            "Number of plugin calls.",
            ["plugin", "extension_point", "profile"],
        )
        self._event_seconds = Histogram(
            "event_handling_duration_seconds",
            "Time to handle one event of the cluster.",
            ["event"],
            exponential(0.0001, 2, 12),
        )
        self._permit_seconds = Histogram(
            "permit_wait_duration_seconds", "Time pods waited for a permit.", ["result"], attempt
        )
        self._hint_seconds = Histogram(
            "queueing_hint_execution_duration_seconds",
            "Time of a plugin's queueing hint.",
            ["plugin", "event", "hint"],
            exponential(0.00001, 1.5, 20),
        )
        self._after_flush = Counter(
            "pod_scheduled_after_flush",
            "Pods bound in the first attempt after they had waited too long for an event.",
        )
        self._device_waits = Counter(
            "dra_bindingconditions_allocations",
            "Allocated devices with binding conditions, by attempt.",
            ["profile", "driver", "status"],
        )
        self._device_wait_seconds = Histogram(
            "dra_bindingconditions_wait_duration_seconds",
            "Time pods waited for the binding conditions of their devices.",
            ["profile", "driver", "status"],
            exponential(0.1, 2, 14),
        )
        preemption = exponential(0.001, 2, 16)
        self._preemption_seconds = Histogram(
            "preemption_evaluation_duration_seconds",
            "Time to choose the victims of a preemption.",
            ["preemptor", "result"],
            preemption,
        )
        self._eviction_seconds = Histogram(
            "preemption_execution_duration_seconds",
            "Time to delete the victims of a preemption.",
            ["preemptor", "result"],
            preemption,
        )
        self._budget_violations = Counter(
            "preemption_pdb_violations",
            "Victims whose disruption budget was used up.",
            ["preemptor"],
        )
        self._disruptions = Histogram(
            "preemption_workload_disruptions",
            "Groups that a preemption evicted as a whole.",
            ["preemptor"],
            exponential(1, 2, 11),
        )
        self._has_groups = False  # whether the gate of PodGroups is on
        self._spent: dict[
            tuple[str, str], float
        ] = {}  # seconds in this attempt, by profile and point
        self.now_s: Callable[[], float] = perf_counter
        self._sizes: _Sizes | None = None
        self._collectors: dict[type[FeatureCollector], FeatureCollector] = {}
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        return ()  # nothing to check names against before the first scrape

    def collect(self) -> Iterator[Metric]:
        for kept in vars(self).values():
            if isinstance(kept, Histogram | Counter) and self._has(kept):
                yield kept.collect()

    def _has(self, metric: Histogram | Counter) -> bool:
        """Return whether kube-scheduler of the level has a metric."""
        if metric in (
            self._preemption_seconds,
            self._eviction_seconds,
            self._budget_violations,
            self._disruptions,
        ):
            return self._has_groups
        added = (self._after_flush, self._device_waits, self._device_wait_seconds)
        return self.level >= V1_36 or metric not in added

    # -- facts ---------------------------------------------------------------------------------

    observed: ClassVar[tuple[type[Fact], ...]] = (
        PodsBound,
        AttemptEnded,
        PodRejected,
        PodFailed,
        PermitWaited,
        DevicesAwaited,
        PreemptionAttempt,
        VictimsEvicted,
        EventApplied,
    )

    def observe(self, fact: Fact) -> None:
        """Record outcomes of pods."""
        match fact:
            case PodsBound():
                for assumed in fact.bound:
                    self._count_bound(assumed, fact.at_s)
            case EventApplied(event, took_s):
                self._event_seconds.observe(took_s, label_of(event, self.level))
            case AttemptEnded(attempt):
                self.decided(attempt.pods, attempt.took_s, attempt.spent_us)
            case PodRejected() if fact.tried:
                self._attempted(_profile_of(fact.queued), "unschedulable", fact.took_s)
            case PodFailed():
                self._attempts.inc("error", _profile_of(fact.queued))
            case PermitWaited():
                self._permit_seconds.observe(fact.waited_s, fact.result)
            case DevicesAwaited():
                self._devices_awaited(fact)
            case PreemptionAttempt() | VictimsEvicted():
                self._preemption(fact)

    def _preemption(self, fact: PreemptionAttempt | VictimsEvicted) -> None:
        if isinstance(fact, VictimsEvicted):
            result = "success" if fact.succeeded else "error"
            self._eviction_seconds.observe(fact.took_s, fact.preemptor, result)
            return
        if fact.preemptor == POD:
            self.preempted(fact.victims)
        result = "Success" if fact.succeeded else "Unschedulable"
        self._preemption_seconds.observe(fact.took_s, fact.preemptor, result)
        if fact.violations:
            self._budget_violations.inc(fact.preemptor, times=fact.violations)
        if fact.disruptions:
            self._disruptions.observe(fact.disruptions, fact.preemptor)

    def _devices_awaited(self, fact: DevicesAwaited) -> None:
        for driver in fact.drivers:
            self._device_waits.inc(fact.profile, driver, fact.result)
            self._device_wait_seconds.observe(fact.waited_s, fact.profile, driver, fact.result)

    def decided(self, pods: int, took_s: float, spent_us: dict[str, int] | None = None) -> None:
        """Record decisions made together, with equal shares of the time.

        ``spent_us``, if given, receives the microseconds by extension point.
        """
        self._algorithm_seconds.observe(took_s / pods, times=pods)
        for (profile, point), spent_s in self._spent.items():
            self._point_seconds.observe(spent_s, point, "Success", profile)
            if spent_us is not None:
                spent_us[point] = int(spent_s * 1e6)
        self._spent.clear()

    def _count_bound(self, assumed: Assumed, now_s: float) -> None:
        """Record a bound pod; ``now_s`` is the scheduler's time.

        The time of the API server includes concurrent binds of other pods.
        """
        queued, attempt = assumed.queued, assumed.attempt
        took_s = self.now_s() - (attempt.began_s if attempt is not None else 0.0)
        profile = _profile_of(queued)
        self._attempted(profile, "scheduled", took_s)
        bind_s = now_s - (assumed.sent_s or now_s)
        self._point_seconds.observe(bind_s, "Bind", "Success", profile)
        self._pod_attempts.observe(queued.attempts)
        if queued.was_flushed:
            self._after_flush.inc()
        since_s = now_s if queued.first_attempt_s is None else queued.first_attempt_s
        self._sli_seconds.observe(now_s - since_s, str(min(queued.attempts, 16)))

    def _attempted(self, profile: str, result: str, took_s: float) -> None:
        self._attempts.inc(result, profile)
        self._attempt_seconds.observe(took_s, result, profile)

    def preempted(self, victims: int) -> None:
        """Record a preemption attempt; it failed without victims."""
        self._preemptions.inc()
        if victims:
            self._victims.observe(victims)

    def seconds_by_plugin(self) -> dict[str, float]:
        """Return the cumulative time of plugins, by ``extension point/plugin``."""
        seconds: dict[str, float] = {}
        for (plugin, point, _), sum_s in self._plugin_seconds.sums.items():
            label = f"{point}/{plugin}"
            seconds[label] = seconds.get(label, 0.0) + sum_s
        return seconds

    # -- around plugins ----------------------------------------------------------------------

    def wrap(self, profile: Profile) -> Profile:
        """Return the profile with timed plugins."""
        wrapped: dict[str, ActivePlugin] = {}

        def wrap(actives: tuple[ActivePlugin, ...]) -> tuple[ActivePlugin, ...]:
            return tuple(
                replace(
                    active,
                    plugin=wrapped.setdefault(
                        active.name,
                        ActivePlugin.of(active.name, self._timed(active, profile.scheduler_name)),
                    ).plugin,
                )
                for active in actives
            )

        points: dict[str, Any] = {
            name: wrap(value)
            for name in profile.__dataclass_fields__
            if isinstance(value := getattr(profile, name), tuple)
        }
        name = profile.scheduler_name
        points["pod_group_post_filter"] = tuple(
            replace(active, plugin=self._timed(active, name, _POINT_OF_GROUPS))
            for active in profile.pod_group_post_filter
        )
        points["judge"] = self._timed_judge(profile)
        points["events"] = {
            name: tuple(self._timed_hint(name, hint) for hint in hints)
            for name, hints in profile.events.items()
        }
        return replace(profile, **points)

    def _timed_hint(self, plugin: str, hint: EventHint) -> EventHint:
        call = hint.hint
        if call is None:
            return hint

        def timed(pod: KubeObject, event: ClusterEvent) -> QueueingHint:
            began_s = perf_counter()
            answer = call(pod, event)
            took_s, label = perf_counter() - began_s, event_name(event.label, self.level)
            self._hint_seconds.observe(took_s, plugin, label, answer.value)
            return answer

        return replace(hint, hint=timed)

    def _timed(
        self, active: ActivePlugin, profile: str, points: Mapping[str, str] = _POINT_OF
    ) -> Any:
        timed = _TimedPlugin(active.plugin)
        for name, point in points.items():
            if name in active.has:
                call = self._timed_call(getattr(active.plugin, name), active.name, point, profile)
                setattr(timed, name, call)
        joint: dict[str, Any] = {
            name: self._timed_joint(call, active.name, profile)
            for name in ("judge", "rate")
            if (call := getattr(active.hints, name)) is not None
        }
        if joint:
            timed.hints = replace(active.hints, **joint)
        return timed

    def _timed_joint(
        self, call: Callable[..., Any], plugin: str, profile: str
    ) -> Callable[..., Any]:
        """Return a timed joint filter and score; each counts half of the time."""

        def timed(*args: object) -> Any:
            began_s = perf_counter()
            answer = call(*args)
            took_s = perf_counter() - began_s
            for point in ("Filter", "Score"):
                self._took(took_s / 2, plugin, point, profile)
            return answer

        return timed

    def _timed_call(
        self, call: Callable[..., Any], plugin: str, point: str, profile: str
    ) -> Callable[..., Any]:
        def timed(*args: object) -> Any:
            began_s = perf_counter()
            answer = call(*args)
            self._took(perf_counter() - began_s, plugin, point, profile)
            return answer

        return timed

    def _took(self, took_s: float, plugin: str, point: str, profile: str) -> None:
        self._plugin_seconds.observe(took_s, plugin, point, "Success")
        self._evaluations.inc(plugin, point, profile)
        key = (profile, point)
        self._spent[key] = self._spent.get(key, 0.0) + took_s

    def _timed_judge(
        self, profile: Profile
    ) -> Callable[[Arithmetic, Snapshot, BoolArray, IntArray], None]:
        """Return a timed evaluation of amounts; each plugin counts an equal share."""
        name = profile.scheduler_name

        def timed(arithmetic: Arithmetic, view: Snapshot, fits: BoolArray, total: IntArray) -> None:
            began_s = perf_counter()
            arithmetic.judge(view, fits, total)
            took_s = perf_counter() - began_s
            share_s = took_s / max(len(arithmetic.filters) + len(arithmetic.scores), 1)
            for point, plugins in (("Filter", arithmetic.filters), ("Score", arithmetic.scores)):
                for plugin in plugins:
                    self._took(share_s, plugin, point, name)

        return timed

    # -- gauges --------------------------------------------------------------------------------

    def watch(self, handle: SchedulerHandle) -> None:
        """Register gauges of the sizes of queue and state, in place of an earlier loop's."""
        if self._sizes is not None:
            self.registry.unregister(self._sizes)
        self._has_groups = GENERIC_WORKLOAD in handle.options.gates
        self._sizes = _Sizes(handle, self.level)
        self.registry.register(self._sizes)

    def unwatch(self) -> None:
        """Drop all references to the watched loop and to what its features show."""
        if self._sizes is not None:
            self.registry.unregister(self._sizes)
            self._sizes = None
        for collector in self._collectors.values():
            collector.unwatch()

    def collector(self, kind: type[CollectorT], build: Callable[[], CollectorT]) -> CollectorT:
        """Return the collector of a feature, which one scheduler after the other uses.

        The registry keeps what is registered, and all that it refers to, for the life of the
        process.
        """
        known = self._collectors.get(kind)
        if not isinstance(known, kind):
            known = self._collectors[kind] = build()
        return known


def label_of(event: WatchEvent, level: KubeVersion) -> str:
    """Return the metric label of an event, such as AssignedPodAdd."""
    change = {EventType.ADDED: "Add", EventType.MODIFIED: "Update"}.get(event.type, "Delete")
    if isinstance(event.object, Pod):
        if event.object.spec.node_name:
            return f"AssignedPod{change}"
        return f"{_waiting_pod(level)}{change}"
    return f"{event.object.KIND}{change}"


def event_name(label: str, level: KubeVersion) -> str:
    """Return the metric label in a release for an event label of the queue."""
    if label == "PodUpdate" and level >= V1_37:
        return "TargetPodUpdate"
    if label in {"PodAdd", "PodUpdate", "PodDelete"}:
        return f"{_waiting_pod(level)}{label.removeprefix('Pod')}"
    return label


def _waiting_pod(level: KubeVersion) -> str:
    return "UnscheduledPod" if level >= V1_37 else "UnschedulablePod"


def _profile_of(queued: QueuedPod) -> str:
    return queued.pod.spec.scheduler_name


class _TimedPlugin:
    """Plugin with some methods wrapped; other attributes are delegated."""

    hints: PluginHints

    def __init__(self, plugin: object) -> None:
        self._plugin = plugin

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plugin, name)


class _Sizes:
    """Collector of counters that the scheduler keeps anyway."""

    def __init__(self, handle: SchedulerHandle, level: KubeVersion) -> None:
        self._queue, self._state, self._bindings = handle.queue, handle.state, handle.bindings
        self._creations = handle.binder.creations
        self._level = level

    def _entities(self) -> Iterator[Metric]:
        """Yield queued entities in the form of Kubernetes 1.37: groups, and pods without one."""
        groups = self._queue.groups
        pods = Tally(self._queue.counts())
        entities = {"pod": pods}
        moves = {"pod": self._queue.incoming}
        if groups is not None:
            pods.subtract(groups.members_by_state())
            entities["podgroup"] = groups.groups_by_queue()
            moves = {"pod": groups.incoming_pods, "podgroup": groups.incoming_groups}
        queued = GaugeMetricFamily(
            "scheduler_queued_entities", "Pending entities by queue.", labels=["queue", "type"]
        )
        for entity, numbers in entities.items():
            for state, name in _QUEUES.items():
                queued.add_metric([name, entity], numbers[state])
        incoming = CounterMetricFamily(
            "scheduler_queue_incoming_entities",
            "Entities added to a queue, by event.",
            labels=["queue", "event", "type"],
        )
        for entity, counts in moves.items():
            for (state, event), times in list(counts.items()):
                name = event_name(event, self._level)
                incoming.add_metric([_QUEUES[state], name, entity], times)
        yield queued
        yield incoming

    def _claim_creations(self) -> Metric:
        """Return the creations of claims for extended resources, by the name of the release."""
        if self._level < V1_37:
            creations = CounterMetricFamily(
                "scheduler_resourceclaim_creates",
                "Created ResourceClaims by result.",
                labels=["status"],
            )
            for result, times in list(self._creations.items()):
                creations.add_metric([result], times)
            return creations
        creations = CounterMetricFamily(
            "dynamic_resource_allocation_resourceclaim_creates",
            "Created ResourceClaims by result and owner.",
            labels=["status", "admin_access", "owner_api_group", "owner_api_kind"],
        )
        for result, times in list(self._creations.items()):
            creations.add_metric([result, "false", "", "Pod"], times)
        return creations

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        pending = GaugeMetricFamily(
            "scheduler_pending_pods", "Pending pods by queue.", labels=["queue"]
        )
        counts = self._queue.counts()
        for state, name in _QUEUES.items():
            pending.add_metric([name], counts[state])
        for name in _QUEUES_OF_GROUPS if self._level >= V1_37 else ():
            pending.add_metric([name], 0)
        yield pending
        incoming = CounterMetricFamily(
            "scheduler_queue_incoming_pods",
            "Pods added to a queue, by event.",
            labels=["queue", "event"],
        )
        for (state, event), times in list(self._queue.incoming.items()):
            incoming.add_metric([_QUEUES[state], event_name(event, self._level)], times)
        yield incoming
        if self._level >= V1_37:
            yield from self._entities()
        cached = GaugeMetricFamily(
            "scheduler_cache_size", "Cached objects by type.", labels=["type"]
        )
        cached.add_metric(["nodes"], len(self._state.nodes.rows))
        cached.add_metric(["pods"], len(self._state.pods.by_key))
        cached.add_metric(["assumed_pods"], self._bindings.assumed)
        yield cached
        blocked = GaugeMetricFamily(
            "scheduler_unschedulable_pods",
            "Pending pods by a plugin that rejected them.",
            labels=["plugin", "profile"],
        )
        for (plugin, profile), pods in self._queue.rejections().items():
            blocked.add_metric([plugin, profile], pods)
        yield blocked
        in_flight = GaugeMetricFamily(
            "scheduler_inflight_events",
            "Events kept for pods in flight.",
            labels=["event"],
        )
        for event, times in self._queue.events_in_flight().items():
            in_flight.add_metric([event_name(event, self._level)], times)
        yield in_flight
        yield self._claim_creations()
        unplanned = GaugeMetricFamily(
            "scheduler_secondary_device_not_well_planned",
            "1 for a node whose NICs are labelled as not well planned with its GPUs.",
            labels=["node_name"],
        )
        for device in list(self._state.objects.all(Device)):
            if device.metadata.labels.get(SECONDARY_DEVICE_WELL_PLANNED) == "false":
                unplanned.add_metric([device.metadata.name], 1.0)
        yield unplanned
