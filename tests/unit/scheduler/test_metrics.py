"""What the scheduler measures: the names and labels that dashboards of kube-scheduler use."""

from prometheus_client import CollectorRegistry
from tests.unit.scheduler.test_app import restarted
from tests.worlds import START_S, node, pod

from koordinator.cluster.memory.server import MemoryCluster
from koordinator.foundation.clock import VirtualClock
from koordinator.scheduler.app import Scheduler
from koordinator.scheduler.app.metrics import Metrics

PROFILE = {"profile": "default-scheduler"}


def world() -> tuple[Scheduler, MemoryCluster, VirtualClock, CollectorRegistry]:
    """Return a node with room for one more pod, and a scheduler that is measured."""
    clock, registry = VirtualClock(START_S), CollectorRegistry()
    cluster = MemoryCluster(clock)
    cluster.load([node("n", cpu=2), pod("victim", cpu=1, on="n", priority=0)])
    scheduler = restarted(cluster, clock, metrics=Metrics(registry))
    return scheduler, cluster, clock, registry


def test_attempts_are_counted_by_result() -> None:
    """One is scheduled, one is not; each attempt has a duration."""
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


def test_who_waits_and_why_is_shown() -> None:
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
    added = {"queue": "active", "event": "PodAdd"}
    assert value("scheduler_queue_incoming_pods_total", added) == 1
    failed = {"queue": "unschedulable", "event": "ScheduleAttemptFailure"}
    assert value("scheduler_queue_incoming_pods_total", failed) == 1
    assert value("scheduler_cache_size", {"type": "nodes"}) == 1
    assert value("scheduler_cache_size", {"type": "pods"}) == 1


def test_preemption_is_counted_with_its_victims() -> None:
    """An attempt that finds nobody to evict counts too."""
    scheduler, cluster, _, registry = world()
    cluster.load([pod("urgent", cpu=2, priority=9)])
    scheduler.step()

    value = registry.get_sample_value
    assert value("scheduler_preemption_attempts_total") == 1
    assert value("scheduler_preemption_victims_sum") == 1


def test_plugins_and_extension_points_have_durations() -> None:
    """A plugin that was asked shows up at the point it was asked at."""
    scheduler, cluster, _, registry = world()
    cluster.load([pod("a", cpu=1)])
    scheduler.step()

    value = registry.get_sample_value
    fit = {"plugin": "NodeResourcesFit", "extension_point": "Filter"}
    seconds = "scheduler_plugin_execution_duration_seconds_count"
    assert (value(seconds, {**fit, "status": "Success"}) or 0) >= 1
    assert (value("scheduler_plugin_evaluation_total", {**fit, **PROFILE}) or 0) >= 1
    point = {"extension_point": "Score", "status": "Success", **PROFILE}
    assert value("scheduler_framework_extension_point_duration_seconds_count", point) == 1


def test_events_have_durations() -> None:
    """By what happened to what."""
    scheduler, cluster, _, registry = world()
    cluster.load([pod("a", cpu=1)])
    scheduler.step()

    value = registry.get_sample_value
    seconds = "scheduler_event_handling_duration_seconds_count"
    assert value(seconds, {"event": "NodeAdd"}) == 1
    assert value(seconds, {"event": "PodAdd"}) == 2


def test_measuring_changes_no_decision() -> None:
    """The same world is scheduled in the same way with and without."""

    def places(*, measured: bool) -> dict[str, int]:
        clock = VirtualClock(START_S)
        cluster = MemoryCluster(clock)
        nodes = [node(f"n{i}", cpu=4 + i % 3, zone=f"z{i % 2}") for i in range(5)]
        cluster.load([*nodes, *(pod(f"p{i}", cpu=1 + i % 2) for i in range(15))])
        metrics = Metrics(CollectorRegistry()) if measured else None
        scheduler = restarted(cluster, clock, metrics=metrics)
        scheduler.step()
        return {key: placed.row for key, placed in scheduler.state.pods.by_key.items()}

    assert places(measured=True) == places(measured=False)
