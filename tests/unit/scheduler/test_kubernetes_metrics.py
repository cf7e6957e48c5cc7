"""Metrics that kube-scheduler has since 1.36 and 1.37."""

from typing import Any, ClassVar

import pytest
from prometheus_client import CollectorRegistry
from tests.unit.scheduler.plugins.test_dynamic_resources import (
    DRIVER,
    GPUS,
    claim,
    slice_of,
    user,
)
from tests.unit.scheduler.plugins.test_extended_resources import gpu_class, requesting
from tests.unit.scheduler.test_gangs import config
from tests.unit.scheduler.test_scheduling_pod_groups import member, pod_group
from tests.unit.scheduler.test_topology_placements import RACK, rack
from tests.unit.scheduler.watches import run_until
from tests.worlds import START_S, budget, configuration, node, pod

from koordinator.api.dynamic_resources import ResourceClaim
from koordinator.api.kube_version import V1_35, V1_36, V1_37, KubeVersion
from koordinator.api.kubescheduler import FeatureGates, KubeSchedulerConfiguration
from koordinator.api.meta import KubeObject
from koordinator.scheduler.contract import (
    Action,
    EventHint,
    NoArgs,
    PluginSpec,
    Reads,
    Rejections,
)
from koordinator.scheduler.features.metrics import SchedulerMetrics
from koordinator.scheduler.snapshot import PodClass, ResourceAxis, Snapshot
from koordinator.simulator import Embedded
from koordinator.simulator.embedded import STOCK

PROFILE = {"profile": "default-scheduler"}
GROUPS = "GenericWorkload=true,TopologyAwareWorkloadScheduling=true"


class Measured:
    """Cluster with a scheduler of a release and its metrics."""

    def __init__(
        self,
        *objects: KubeObject,
        level: KubeVersion = V1_37,
        gates: str = "",
        profile: KubeSchedulerConfiguration = STOCK,
        out_of_tree: tuple[PluginSpec[Any], ...] = (),
    ) -> None:
        self._registry = CollectorRegistry()
        self.cluster = Embedded(
            profile,
            now_s=START_S,
            gates=FeatureGates.parse(gates, level),
            metrics=SchedulerMetrics(self._registry, level),
            out_of_tree=out_of_tree,
        )
        self.cluster.load(objects)
        self.cluster.scheduler.step()

    def step_at(self, seconds: float) -> None:
        """Advance the clock until so many seconds after the start, and decide what is due."""
        self.cluster.clock.advance_to(START_S + seconds)
        self.cluster.scheduler.step()
        self.cluster.scheduler.validate()

    def value(self, name: str, **labels: str) -> float | None:
        return self._registry.get_sample_value(name, labels)

    def names(self) -> set[str]:
        return {family.name for family in self._registry.collect()}


@pytest.mark.parametrize("profile", [STOCK, config()], ids=["GangScheduling", "Coscheduling"])
def test_attempts_of_a_pod_group_that_preempts_are_counted(
    profile: KubeSchedulerConfiguration,
) -> None:
    """The group waits for its victims first, as in 1.37.2."""
    low = pod("low", 4, on="n", priority=1)
    high = [member(f"m{at}", cpu=2, priority=9) for at in range(2)]
    group = pod_group(least=2, priority=9)
    objects = (node("n", cpu=4), low, group, *high)
    one = Measured(*objects, gates="GenericWorkload=true", profile=profile)
    run_until(one.cluster, 60)

    for result in ("waiting_on_preemption", "scheduled"):
        labels = {"result": result, **PROFILE}
        assert one.value("scheduler_podgroup_schedule_attempts_total", **labels) == 1
        assert one.value("scheduler_podgroup_scheduling_attempt_duration_seconds_count", **labels)
    assert one.value("scheduler_podgroup_scheduling_algorithm_duration_seconds_count") == 2
    assert one.value("scheduler_workload_preemption_attempts_total", result="Success") == 1
    assert one.value("scheduler_workload_preemption_victims_sum") == 1
    done = {"preemptor": "podgroup", "result": "Success"}
    assert one.value("scheduler_preemption_evaluation_duration_seconds_count", **done) == 1
    evicted = {"preemptor": "podgroup", "result": "success"}
    assert one.value("scheduler_preemption_execution_duration_seconds_count", **evicted) == 1
    assert one.value("scheduler_preemption_attempts_total") == 0
    assert one.value("scheduler_preemption_victims_count") is None
    assert (
        one.value("scheduler_preemption_workload_disruptions_count", preemptor="podgroup") is None
    )


def test_pod_group_is_one_entity_of_the_queue() -> None:
    """Moves of its two members from queue to queue count once; a pod without a group counts."""
    members = [member(f"m{at}", cpu=2) for at in range(2)]
    objects = (node("n", cpu=3), pod_group(least=2), *members, pod("alone", 9))
    one = Measured(*objects, gates="GenericWorkload=true")

    def entities(queue: str, event: str = "") -> list[float | None]:
        name = "scheduler_queue_incoming_entities_total" if event else "scheduler_queued_entities"
        labels = {"queue": queue, "event": event} if event else {"queue": queue}
        return [one.value(name, type=type_, **labels) for type_ in ("pod", "podgroup")]

    assert entities("unschedulable") == [1, 1]
    assert entities("active", "UnscheduledPodAdd") == [1, 1]
    assert entities("unschedulable", "ScheduleAttemptFailure") == [1, 1]

    one.cluster.load([node("more", cpu=3)])
    run_until(one.cluster, 60)
    assert entities("unschedulable") == [1, 0]
    assert entities("active", "RoomUpdate") == [None, 1]
    assert entities("unschedulable", "ScheduleAttemptFailure") == [2, 1]


def test_without_the_gate_members_of_groups_are_pods() -> None:
    one = Measured(node("n", cpu=1), pod_group(least=2), member("m", cpu=2))
    assert one.value("scheduler_queued_entities", queue="unschedulable", type="pod") == 1
    assert one.value("scheduler_queued_entities", queue="unschedulable", type="podgroup") is None


def test_groups_that_go_as_a_whole_are_counted_as_disruptions() -> None:
    """Two pods of one group are one, and break a budget that allows one of them to go."""
    low = [member(f"l{at}", group="low", cpu=2, on="n", labels={"app": "low"}) for at in range(2)]
    groups = (pod_group("low", least=2, disruptionMode={"all": {}}), pod_group(least=2, priority=9))
    high = [member(f"m{at}", cpu=2, priority=9) for at in range(2)]
    one = Measured(
        node("n", cpu=4),
        budget("low", 1, app="low"),
        *groups,
        *low,
        *high,
        gates="GenericWorkload=true",
    )
    run_until(one.cluster, 60)

    by = {"preemptor": "podgroup"}
    assert one.value("scheduler_preemption_workload_disruptions_sum", **by) == 1
    assert one.value("scheduler_preemption_pdb_violations_total", **by) == 1
    assert one.value("scheduler_workload_preemption_victims_sum") == 2


@pytest.mark.parametrize("gates", ["", "GenericWorkload=true"])
def test_preemption_for_a_pod_is_measured_with_the_gate(gates: str) -> None:
    """One victim has a budget that is used up; the second pod is too large for any node."""
    low = pod("low", 4, on="n", priority=1, labels={"app": "low"})
    pods = (pod("high", 4, priority=9), pod("large", 5, priority=9))
    one = Measured(node("n", cpu=4), budget("low", 0, app="low"), low, *pods, gates=gates)

    metric = "scheduler_preemption_evaluation_duration_seconds_count"
    evicted = {"preemptor": "pod", "result": "success"}
    values = [
        one.value(metric, preemptor="pod", result="Success"),
        one.value(metric, preemptor="pod", result="Unschedulable"),
        one.value("scheduler_preemption_execution_duration_seconds_count", **evicted),
        one.value("scheduler_preemption_pdb_violations_total", preemptor="pod"),
    ]
    assert values == ([1, 1, 1, 1] if gates else [None] * 4)
    assert one.value("scheduler_preemption_attempts_total") == 2
    assert one.value("scheduler_preemption_victims_sum") == 1


def test_a_pod_group_without_capacity_and_a_contradictory_one_are_counted() -> None:
    """The members of the second have another priority than their group."""
    one = Measured(
        node("n", cpu=4),
        pod_group("big", least=2),
        *(member(f"b{at}", group="big", cpu=3) for at in range(2)),
        pod_group("odd", least=1, priority=5),
        member("o", group="odd"),
        gates="GenericWorkload=true",
    )

    name = "scheduler_podgroup_schedule_attempts_total"
    assert one.value(name, result="unschedulable", **PROFILE) == 1
    assert one.value(name, result="error", **PROFILE) == 1


def test_placements_of_pod_groups_are_counted_by_result() -> None:
    """Of two racks one takes both members."""
    group = pod_group(least=2, schedulingConstraints={"topology": [{"key": RACK}]})
    members = [member(f"m{at}", cpu=3) for at in range(2)]
    one = Measured(*rack("r1", 1), *rack("r2", 2), group, *members, gates=GROUPS)

    assert one.value("scheduler_generated_placements_total", **PROFILE) == 2
    for result in ("feasible", "infeasible"):
        labels = {"result": result, **PROFILE}
        assert one.value("scheduler_placement_evaluations_total", **labels) == 1
        assert one.value("scheduler_placement_evaluation_duration_seconds_count", **labels) == 1
    seconds = "scheduler_framework_extension_point_duration_seconds_count"
    for point in ("PlacementGenerate", "PlacementScore", "PlacementScoreExtensionNormalize"):
        assert one.value(seconds, extension_point=point, status="Success", **PROFILE) == 1


def test_metrics_of_pod_groups_are_there_with_their_gates_only() -> None:
    names = Measured(node("n")).names()

    assert not {name for name in names if "podgroup" in name or "placement" in name}
    on = Measured(node("n"), gates="GenericWorkload=true").names()
    assert "scheduler_podgroup_schedule_attempts" in on
    assert "scheduler_generated_placements" not in on


class OpenNodes:
    """Plugin that accepts nodes with a label, and does not listen to new nodes."""

    reads: ClassVar = Reads.NODE

    def filter(self, snapshot: Snapshot, _pod: PodClass) -> Rejections:
        return Rejections.where(snapshot.label("open")[0] < 0, "closed")


def _open_nodes(_args: NoArgs, _axis: ResourceAxis) -> OpenNodes:
    return OpenNodes()


OPEN_NODES = PluginSpec(
    "OpenNodes", NoArgs, _open_nodes, events=(EventHint("Service", Action.ADD),)
)


@pytest.mark.parametrize(("level", "count"), [(V1_35, None), (V1_36, 1), (V1_37, 1)])
def test_a_pod_that_no_event_requeued_is_counted_when_it_is_bound(
    level: KubeVersion, count: float | None
) -> None:
    """The plugin should have listened to another event; a pod bound at once does not count."""
    enabled = {"filter": {"enabled": [{"name": "OpenNodes"}]}}
    one = Measured(
        node("n"),
        pod("late"),
        level=level,
        profile=configuration(plugins=enabled),
        out_of_tree=(OPEN_NODES,),
    )
    one.step_at(600)
    assert one.value("scheduler_pod_scheduled_after_flush_total") == (None if count is None else 0)

    one.cluster.load([node("open", labels={"open": ""})])
    one.step_at(4000)
    one.cluster.load([pod("early")])
    one.step_at(4001)
    assert one.value("scheduler_pod_scheduled_after_flush_total") == count
    assert one.value("scheduler_schedule_attempts_total", result="scheduled", **PROFILE) == 2


@pytest.mark.parametrize(
    ("level", "name", "labels"),
    [
        (V1_36, "scheduler_resourceclaim_creates_total", {}),
        (
            V1_37,
            "dynamic_resource_allocation_resourceclaim_creates_total",
            {"admin_access": "false", "owner_api_group": "", "owner_api_kind": "Pod"},
        ),
    ],
)
def test_created_claims_are_counted_under_the_name_of_the_release(
    level: KubeVersion, name: str, labels: dict[str, str]
) -> None:
    """For extended resources that a DeviceClass serves."""
    one = Measured(node("n"), slice_of("n", 1), gpu_class(), requesting("p"), level=level)

    assert one.value(name, status="success", **labels) == 1


@pytest.mark.parametrize("result", ["success", "failure", "timeout"])
def test_waits_for_devices_are_counted_by_driver_and_result(result: str) -> None:
    slow = {"name": "gpu-0", "bindingConditions": ["Up"], "bindingFailureConditions": ["Down"]}
    one = Measured(node("n"), slice_of("n", 0, devices=[slow]), GPUS, claim("c"), user("p", "c"))
    if result == "timeout":
        one.step_at(601)
    else:
        kind = {"success": "Up", "failure": "Down"}[result]
        conditions = [{"type": kind, "status": "True", "reason": "Said"}]
        about = {"driver": DRIVER, "pool": "n", "device": "gpu-0", "conditions": conditions}
        status = {"status": {"devices": [about]}}
        one.cluster.cluster.patch(ResourceClaim, "c", "default", status, "status")
        one.step_at(1)

    labels = {"driver": DRIVER, "status": result, **PROFILE}
    assert one.value("scheduler_dra_bindingconditions_allocations_total", **labels) == 1
    assert one.value("scheduler_dra_bindingconditions_wait_duration_seconds_count", **labels) == 1
