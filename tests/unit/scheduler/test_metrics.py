"""Metrics of the scheduler, with the names and labels that dashboards of kube-scheduler use."""

from typing import ClassVar

import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from tests.reservations import config, reservation
from tests.unit.scheduler.watches import restarted
from tests.worlds import START_S, configuration, made, metric, node, pod

from koordinator.api.kube_version import V1_36, V1_37, KubeVersion
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.quantity import Quantity
from koordinator.scheduler.assembly import build_scheduler
from koordinator.scheduler.contract import NoArgs, PluginSpec, Reads
from koordinator.scheduler.features.gangs.metrics import MOST_JOBS, GangMetrics
from koordinator.scheduler.features.metrics import SchedulerMetrics
from koordinator.scheduler.features.quotas.metrics import QuotaMetrics
from koordinator.scheduler.loop import Scheduler
from koordinator.scheduler.loop.instruments import exponential
from koordinator.scheduler.profile import WATCHED, build_profiles
from koordinator.scheduler.snapshot import ClusterState, PodClass, ResourceAxis, Snapshot

PROFILE = {"profile": "default-scheduler"}


ADDED = "UnscheduledPodAdd"  # up to 1.36: UnschedulablePodAdd


def world(
    level: KubeVersion = V1_37,
) -> tuple[Scheduler, MemoryCluster, VirtualClock, CollectorRegistry]:
    """Return a node with capacity for one more pod, and a scheduler with metrics."""
    clock, registry = VirtualClock(START_S), CollectorRegistry()
    cluster = MemoryCluster(clock)
    cluster.load([node("n", cpu=2), pod("victim", cpu=1, on="n", priority=0)])
    scheduler = restarted(cluster, clock, metrics=SchedulerMetrics(registry, level))
    return scheduler, cluster, clock, registry


def test_attempts_are_counted_by_result() -> None:
    """One pod is scheduled, one is not; each attempt has a duration."""
    scheduler, cluster, _, registry = world()
    cluster.load([pod("a", cpu=1), pod("b", cpu=5)])
    scheduler.step()

    value = registry.get_sample_value
    for result in ("scheduled", "unschedulable"):
        labels = {"result": result, **PROFILE}
        assert value("scheduler_schedule_attempts_total", labels) == 1
        assert value("scheduler_scheduling_attempt_duration_seconds_count", labels) == 1
    assert value("scheduler_pod_scheduling_attempts_count") == 1
    assert value("scheduler_pod_scheduling_sli_duration_seconds_count", {"attempts": "1"}) == 1
    assert value("scheduler_scheduling_algorithm_duration_seconds_count") == 2


def test_pending_pods_are_counted_by_queue_and_plugin() -> None:
    """By queue, and by the plugin that rejected them."""
    scheduler, cluster, _, registry = world()
    cluster.load([pod("big", cpu=5), pod("gated", schedulingGates=[{"name": "g"}])])
    scheduler.step()

    value = registry.get_sample_value
    assert value("scheduler_pending_pods", {"queue": "unschedulable"}) == 1
    assert value("scheduler_pending_pods", {"queue": "gated"}) == 1
    assert value("scheduler_pending_pods", {"queue": "active"}) == 0
    fit = {"plugin": "NodeResourcesFit", **PROFILE}
    assert value("scheduler_unschedulable_pods", fit) == 1
    added = {"queue": "active", "event": ADDED}
    assert value("scheduler_queue_incoming_pods_total", added) == 1
    failed = {"queue": "unschedulable", "event": "ScheduleAttemptFailure"}
    assert value("scheduler_queue_incoming_pods_total", failed) == 1
    assert value("scheduler_cache_size", {"type": "nodes"}) == 1
    assert value("scheduler_cache_size", {"type": "pods"}) == 1


def test_preemption_is_counted_with_its_victims() -> None:
    """An attempt without victims counts too."""
    scheduler, cluster, _, registry = world()
    cluster.load([pod("urgent", cpu=2, priority=9)])
    scheduler.step()

    value = registry.get_sample_value
    assert value("scheduler_preemption_attempts_total") == 1
    assert value("scheduler_preemption_victims_sum") == 1


def test_plugins_and_extension_points_have_durations() -> None:
    """A called plugin has a series at its extension point."""
    scheduler, cluster, _, registry = world()
    cluster.load([pod("a", cpu=1)])
    scheduler.step()

    value = registry.get_sample_value
    fit = {"plugin": "NodeResourcesFit", "extension_point": "Filter"}
    seconds = "scheduler_plugin_execution_duration_seconds_count"
    assert (value(seconds, {**fit, "status": "Success"}) or 0) >= 1
    assert (value("scheduler_plugin_evaluation_total", {**fit, **PROFILE}) or 0) >= 1
    series = "scheduler_framework_extension_point_duration_seconds_count"
    for name in ("PreEnqueue", "Filter", "Score", "Bind"):
        point = {"extension_point": name, "status": "Success", **PROFILE}
        assert value(series, point) == 1, name


class Relabelling:
    """Plugin that transforms every pod."""

    reads: ClassVar = Reads.NODE

    def transform(self, pod: Pod) -> Pod:
        return pod

    def prefer_nodes(self, _snapshot: Snapshot, _pod: PodClass) -> list[int]:
        return []


def _relabelling(_args: NoArgs, _axis: ResourceAxis) -> Relabelling:
    return Relabelling()


def test_extension_points_of_koordinator_have_durations() -> None:
    """The points are the transformation before PreFilter, and restoring reservations after it."""
    clock, registry = VirtualClock(START_S), CollectorRegistry()
    labels = {"app": "web"}
    cluster, state = MemoryCluster(clock), ClusterState()
    cluster.load([node("n", cpu=2), reservation("r", 1, on="n"), pod("a", labels=labels)])
    with_plugin = config("Relabelling", at=["preFilter"])
    out_of_tree = [PluginSpec("Relabelling", NoArgs, _relabelling)]
    plugins = build_profiles(with_plugin, state.axis, out_of_tree=out_of_tree)
    metrics = SchedulerMetrics(registry)
    build_scheduler(cluster, clock, plugins.profiles, state, WATCHED, metrics=metrics).step()

    for plugin, point in (("Relabelling", "BeforePreFilter"), ("Reservation", "AfterPreFilter")):
        where = {"extension_point": point, "status": "Success"}
        for name, more in (
            ("framework_extension_point_duration_seconds", PROFILE),
            ("plugin_execution_duration_seconds", {"plugin": plugin}),
        ):
            assert registry.get_sample_value(f"scheduler_{name}_count", where | more), point


def test_joint_filter_and_score_counts_at_both_points() -> None:
    """Each point gets half of the time."""
    clock, registry = VirtualClock(START_S), CollectorRegistry()
    cluster = MemoryCluster(clock)
    cluster.load([node("n", cpu=2), node("m", cpu=2), metric("n", cpu=1), pod("a", cpu=1)])
    config = configuration(plugins={"multiPoint": {"enabled": [{"name": "LoadAwareScheduling"}]}})
    restarted(cluster, clock, config, metrics=SchedulerMetrics(registry)).step()

    seconds = "scheduler_plugin_execution_duration_seconds_sum"
    filtering, scoring = (
        registry.get_sample_value(
            seconds,
            {"plugin": "LoadAwareScheduling", "extension_point": point, "status": "Success"},
        )
        for point in ("Filter", "Score")
    )
    assert filtering == scoring
    assert (filtering or 0) > 0


def test_events_have_durations() -> None:
    """Durations of events are labelled by object and change."""
    scheduler, cluster, _, registry = world()
    cluster.load([pod("a", cpu=1)])
    scheduler.step()

    value = registry.get_sample_value
    seconds = "scheduler_event_handling_duration_seconds_count"
    assert value(seconds, {"event": "NodeAdd"}) == 1
    assert value(seconds, {"event": ADDED}) == 1
    assert value(seconds, {"event": "AssignedPodAdd"}) == 1


@pytest.mark.parametrize(
    ("level", "added", "changed"),
    [
        (V1_36, "UnschedulablePodAdd", "UnschedulablePodUpdate"),
        (V1_37, "UnscheduledPodAdd", "TargetPodUpdate"),
    ],
)
def test_event_names_follow_the_release(level: KubeVersion, added: str, changed: str) -> None:
    """From 1.37 on they are events of a target pod, and entities are counted, too."""
    scheduler, cluster, _, registry = world(level)
    gated = pod("a", cpu=1, schedulingGates=[{"name": "g"}])
    cluster.load([gated])
    scheduler.step(limit=0)
    stored = cluster.get(Pod, "a", "default")
    cluster.update(replace(stored, spec=replace(stored.spec, scheduling_gates=())))
    scheduler.step()

    value = registry.get_sample_value
    incoming = "scheduler_queue_incoming_pods_total"
    assert value(incoming, {"queue": "gated", "event": added}) == 1
    assert value(incoming, {"queue": "active", "event": changed}) == 1
    entity = {"queue": "active", "event": changed, "type": "pod"}
    entities = value("scheduler_queue_incoming_entities_total", entity)
    assert entities == (1 if level >= V1_37 else None)


def test_metrics_change_no_decision() -> None:
    """The same world is scheduled equally with and without them."""

    def places(*, measured: bool) -> dict[str, int]:
        clock = VirtualClock(START_S)
        cluster = MemoryCluster(clock)
        nodes = [node(f"n{i}", cpu=4 + i % 3, zone=f"z{i % 2}") for i in range(5)]
        cluster.load([*nodes, *(pod(f"p{i}", cpu=1 + i % 2) for i in range(15))])
        metrics = SchedulerMetrics(CollectorRegistry()) if measured else None
        scheduler = restarted(cluster, clock, metrics=metrics)
        scheduler.step()
        return {key: placed.row for key, placed in scheduler.state.pods.by_key.items()}

    assert places(measured=True) == places(measured=False)


def test_reservations_have_gauges_of_amounts_and_phase() -> None:
    """CPU is in cores, memory in Gi; the current phase is 1."""
    scheduler, cluster, _, registry = world()
    kept = reservation("r", 2, "4Gi", on="n")
    status = replace(kept.status, allocated={"cpu": Quantity.parse("500m")})
    cluster.load([replace(kept, status=status)])
    scheduler.step()

    value = registry.get_sample_value
    name = "scheduler_reservation_resource"
    of = {"name": "r", "resource": "cpu"}
    assert value(name, {**of, "type": "allocatable", "unit": "core"}) == 2
    assert value(name, {**of, "type": "allocated", "unit": "core"}) == 0.5
    assert value(name, {**of, "type": "utilization", "unit": "ratio"}) == 0.25
    memory = {"name": "r", "resource": "memory", "type": "allocatable", "unit": "Gi"}
    assert value(name, memory) == 4
    phases = {
        phase: value("scheduler_reservation_status_phase", {"name": "r", "phase": phase})
        for phase in ("Pending", "Available", "Succeeded", "Failed")
    }
    assert phases == {"Pending": 0, "Available": 1, "Succeeded": 0, "Failed": 0}


def test_hints_are_timed_by_result() -> None:
    """A claim of another name does not help a pod that waits for its own."""
    scheduler, cluster, _, registry = world()
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "mine"}}]
    cluster.load([pod("p", cpu=1, volumes=volumes)])
    scheduler.step()

    def evaluations(hint: str) -> float:
        name = "scheduler_queueing_hint_execution_duration_seconds_count"
        of = {"event": "PersistentVolumeClaimAdd", "hint": hint}
        return sum(
            sample.value
            for family in registry.collect()
            for sample in family.samples
            if sample.name == name and of.items() <= sample.labels.items()
        )

    cluster.load([claim("other")])
    scheduler.step()
    assert (evaluations("QueueSkip") > 0, evaluations("Queue") > 0) == (True, False)
    cluster.load([claim("mine")])
    scheduler.step()
    assert evaluations("Queue") > 0


def claim(name: str) -> KubeObject:
    metadata, spec = {"namespace": "default"}, {"accessModes": ["ReadWriteOnce"]}
    return made("PersistentVolumeClaim", name, metadata=metadata, spec=spec)


def test_durations_are_counted_in_the_buckets_of_the_originals() -> None:
    """The bounds are labels, which queries compare as text."""
    gangs = (0.1, 0.5, 1, 2, 3, 5, 7.5, 10, 12.5, 15, 20, 25, 30, 45, 60, 120)
    registry = CollectorRegistry()
    metrics = SchedulerMetrics(registry)
    gang_metrics, quota_metrics = GangMetrics(registry), QuotaMetrics(registry, metrics)
    gang_metrics.gang_decided(3, 1.0, placed=True)
    quota_metrics.hook_called("x", "y", 1.0)
    gang_metrics.preempted("default/j", "success", 1.0)

    buckets = {family.name: bounds(family) for family in registry.collect() if bounds(family)}
    assert buckets["scheduler_gang_schedule_cycle_duration_seconds"] == [
        *map(str, map(float, gangs))
    ]
    hooks = buckets["scheduler_elastic_quota_hook_plugin_latency"]
    jobs = buckets["scheduler_job_preemption_duration_seconds"]
    assert (hooks[0], len(hooks)) == ("1e-06", 24)
    assert (jobs[0], len(jobs)) == ("0.001", 20)


def test_durations_are_kept_of_the_latest_jobs_only() -> None:
    """Jobs come and go, and each has a name of its own."""
    registry = CollectorRegistry()
    metrics = GangMetrics(registry)
    for number in range(3 * MOST_JOBS):
        metrics.preempted(f"default/j{number}", "success", 1.0)
        metrics.preempted("default/last", "success", 1.0)

    jobs = [
        sample.labels["jobName"]
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "scheduler_job_preemption_duration_seconds_count"
    ]
    assert len(jobs) == MOST_JOBS
    assert {"default/last", f"default/j{3 * MOST_JOBS - 1}"} <= set(jobs)


def test_bounds_are_rounded_one_after_the_other() -> None:
    """Each bound is the previous one times the factor, as in Go."""
    assert exponential(1e-5, 1.5, 6)[-1] == 1e-5 * 1.5 * 1.5 * 1.5 * 1.5 * 1.5


def bounds(family: Metric) -> list[str]:
    """Return the upper bounds of a histogram's buckets except the last."""
    labels = dict.fromkeys(s.labels["le"] for s in family.samples if "le" in s.labels)
    return [bound for bound in labels if bound != "+Inf"]
