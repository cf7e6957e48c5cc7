"""Pages and metrics of gangs and quotas."""

import json
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from tests.unit.scheduler.plugins.test_elastic_quota import team
from tests.unit.scheduler.test_gangs import group, members
from tests.unit.scheduler.test_gangs_in_quotas import BOTH
from tests.unit.scheduler.test_job_queues import LABEL, queued
from tests.worlds import START_S, embedded, node, pod

from koordinator.cluster.memory.server import MemoryCluster
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.errors import NotFoundError
from koordinator.scheduler.assembly import build_scheduler
from koordinator.scheduler.features.gangs.metrics import job_size
from koordinator.scheduler.features.metrics import SchedulerMetrics
from koordinator.scheduler.loop import Scheduler
from koordinator.scheduler.profile import WATCHED, build_profiles
from koordinator.scheduler.snapshot import ClusterState

COSCHEDULING, QUOTAS = "/plugins/Coscheduling/", "/plugins/ElasticQuota/quotas"


def pages(scheduler: Scheduler) -> dict[str, Any]:
    return dict(scheduler.pages(lambda question: question()))


def test_a_gang_is_shown_with_its_members_by_state() -> None:
    """The keys equal koord-scheduler's; a set is an object with empty values."""
    one = embedded(node("n", cpu=1), group("g", 2), *members("g", 2), config=BOTH)
    one.run_to_fixed_point()

    page = pages(one.scheduler)[COSCHEDULING + "gang/{namespace}/{name}"]
    shown = page({"namespace": "default", "name": "g"})

    assert json.dumps(shown)
    assert shown["name"] == "default/g"
    assert shown["waitTime"] == 600_000_000_000
    assert shown["minRequiredNumber"] == 2
    assert shown["gangFrom"] == "GangFromPodGroupCrd"
    assert shown["pendingChildren"] == {"default/g-0": {}, "default/g-1": {}}
    assert shown["boundChildren"] == {}
    assert shown["gangGroupInfo"]["RepresentativePodKey"] in shown["pendingChildren"]
    assert list(pages(one.scheduler)[COSCHEDULING + "gangs"]({})) == ["default/g"]


def test_unknown_gang_is_not_found() -> None:
    """The message equals the original's."""
    one = embedded(node("n"), config=BOTH)

    page = pages(one.scheduler)[COSCHEDULING + "gang/{namespace}/{name}"]

    with pytest.raises(NotFoundError, match="cannot find gang default/g"):
        page({"namespace": "default", "name": "g"})


def test_quota_page_has_figures_and_optionally_pods() -> None:
    """Quantities are written as in objects."""
    pods = [pod("a", "500m", labels={LABEL: "team"}), pod("b", 9, labels={LABEL: "team"})]
    one = embedded(node("n", cpu=4), team("team", 3, 1), *pods, config=BOTH)
    one.run_to_fixed_point()

    shown = pages(one.scheduler)[QUOTAS + "/{name}"]({"name": "team", "includePods": "true"})

    assert (shown["name"], shown["parentName"], shown["tree"]) == (
        "team",
        "koordinator-root-quota",
        "",
    )
    assert (shown["used"], shown["max"], shown["min"], shown["runtime"]) == (
        {"cpu": "500m"},
        {"cpu": "3"},
        {"cpu": "1"},
        {"cpu": "3"},
    )
    assert shown["podCache"] == {
        "default/a": {"isAssigned": True, "resource": {"cpu": "500m"}},
        "default/b": {"isAssigned": False, "resource": {"cpu": "9"}},
    }
    every = pages(one.scheduler)[QUOTAS]({})
    assert set(every) == {"koordinator-default-quota", "koordinator-system-quota", "team"}
    assert every["team"]["podCache"] == {}


def test_unknown_quota_or_tree_is_not_found() -> None:
    """The message equals the original's."""
    shown = pages(embedded(node("n"), config=BOTH).scheduler)

    with pytest.raises(NotFoundError, match="cannot find quota X"):
        shown[QUOTAS + "/{name}"]({"name": "X"})
    with pytest.raises(NotFoundError, match="cannot find quota tree X"):
        shown[QUOTAS]({"tree": "X"})


def test_pages_exist_only_with_their_plugins() -> None:
    """Without its plugin a page does not exist."""
    assert not [path for path in pages(embedded(node("n")).scheduler) if "plugins" in path]


def test_gangs_quotas_and_queues_are_measured() -> None:
    """The names equal koord-scheduler's; figures of quotas are refreshed with their statuses."""
    clock, state, registry = VirtualClock(START_S), ClusterState(), CollectorRegistry()
    cluster = MemoryCluster(clock)
    one = pod("a", 2, labels={LABEL: "team"})
    large = pod("large", 9, labels={LABEL: "team"})
    waiting = pod("waiting", 1, labels={LABEL: "team"})
    cluster.load(
        [node("n", cpu=6), queued(most=8), group("g", 2), *members("g", 2), one, large, waiting],
        admit=True,
    )
    profiles = build_profiles(BOTH, state.axis).profiles
    metrics = SchedulerMetrics(registry)
    scheduler = build_scheduler(cluster, clock, profiles, state, WATCHED, metrics=metrics)
    scheduler.sync()
    for _ in range(3):
        scheduler.step()
        clock.advance_to(clock.now_s() + 2)

    def status(field: str, of: str = "status") -> float | None:
        labels = {"name": "team", "resource": "cpu", "tree": "", "is_parent": "false"}
        labels |= {"parent": "koordinator-root-quota", "field": field}
        return registry.get_sample_value(f"scheduler_elastic_quota_{of}", labels)

    value = registry.get_sample_value
    assert (status("used"), status("max"), status("request")) == (2000, 8000, 12000)
    assert (status("max", of="spec"), status("sharedWeight", of="spec")) == (8000, 8000)
    assert value("scheduler_job_queue_length", {"name": "team"}) == 2
    assert value("scheduler_waiting_gang_group_number") == 0
    labels = {"reason": "gang is already succeed", "job_size": "1-100"}
    assert value("scheduler_gang_schedule_cycle_duration_seconds_count", labels) == 1
    assert value("scheduler_update_elastic_quota_status_duration_seconds_count")
    latency = "scheduler_elastic_quota_process_latency_count"
    assert value(latency, {"operation": "update_status"})


@pytest.mark.parametrize(
    ("members_", "size"),
    [(0, "0"), (1, "1-100"), (100, "1-100"), (101, "101-200"), (1000, "901-1000"), (1001, "1000+")],
)
def test_jobs_are_counted_by_size(members_: int, size: str) -> None:
    """The size classes equal the original's."""
    assert job_size(members_) == size
