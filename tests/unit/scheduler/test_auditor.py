"""Lifecycles of workloads in a running scheduler, under the metric names of koord-scheduler."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry
from tests.unit.scheduler.test_gangs import config, group, members
from tests.worlds import START_S, node, placed_on, pod

from koordinator.api.kubescheduler import KubeSchedulerConfiguration
from koordinator.api.pod import Pod, PodSchedulingGate
from koordinator.scheduler.features.auditor import AuditorMetrics, WorkloadAuditor
from koordinator.scheduler.features.auditor.metrics import MOST_SERIES
from koordinator.scheduler.features.auditor.workload_life import AlertLimits
from koordinator.scheduler.features.metrics import SchedulerMetrics
from koordinator.simulator import Embedded
from koordinator.simulator.embedded import STOCK

PREFIX = "scheduler_workload_auditor_"


class AuditedWorld:
    """World with two CPUs on node ``a`` and the auditor's measures."""

    def __init__(
        self,
        config: KubeSchedulerConfiguration = STOCK,
        labels: Mapping[str, str] | None = None,
        limits: AlertLimits | None = None,
    ) -> None:
        self.registry = CollectorRegistry()
        labels = labels or {}
        self.metrics = AuditorMetrics(self.registry, ("priority", *labels))
        self.auditor = WorkloadAuditor(self.metrics, limits or AlertLimits(), labels)
        self.world = Embedded(
            config,
            now_s=START_S,
            metrics=SchedulerMetrics(CollectorRegistry()),
            auditor=self.auditor,
        )
        self.world.load([node("a", cpu=2)])

    def wait(self, seconds: float) -> None:
        self.world.clock.advance_to(self.world.clock.now_s() + seconds)
        self.world.scheduler.step()

    def figure(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(PREFIX + name, {"priority": "", **labels}) or 0.0

    def events(self, outcome: str, **labels: str) -> dict[str, float]:
        """Return the number of events per type of a workload at its end."""
        family = next(f for f in self.registry.collect() if f.name.endswith("before_outcome"))
        return {
            sample.labels["event_type"]: sample.value
            for sample in family.samples
            if sample.name.endswith("_sum")
            and {"outcome": outcome, "priority": "", **labels}.items() <= sample.labels.items()
        }


def test_a_pod_that_starts_has_two_events() -> None:
    """No record of it remains."""
    one = AuditedWorld()
    one.world.load([pod("p", cpu=1)])
    one.world.run_to_fixed_point()

    assert one.events("scheduled") == {"create": 1, "scheduled": 1}
    assert one.auditor.waiting == 0


def test_preemption_is_measured_until_the_preemptor_starts() -> None:
    """The victim's termination is measured from the nomination, the start from the termination."""
    one = AuditedWorld()
    one.world.load([placed_on(pod("victim", cpu=2), "a"), pod("p", cpu=2, priority=100)])
    one.world.run_to_fixed_point()

    assert one.events("scheduled") == {
        "create": 1,
        "preemptNominated": 1,
        "victimAllDeleted": 1,
        "scheduled": 1,
    }
    assert one.figure("preemption_to_victim_deleted_seconds_count") == 1
    assert one.figure("victim_reschedule_duration_seconds_count") == 1
    assert one.figure("preemption_invalidations_total") == 0


def test_a_pod_without_room_fails_until_it_is_deleted() -> None:
    """No pod has lower priority, so there are no victims."""
    one = AuditedWorld()
    one.world.load([pod("p", cpu=64)])
    one.world.scheduler.step()
    one.world.cluster.delete(Pod, "p", "default")
    one.world.scheduler.step()

    assert one.events("deleted") == {"create": 1, "preemptFailure": 1}
    assert one.auditor.waiting == 0


def test_gates_end_a_round_of_waiting(caplog: pytest.LogCaptureFixture) -> None:
    """A pod gated for an hour raises no alert."""
    one = AuditedWorld()
    gated = pod("p", cpu=1)
    gates = (PodSchedulingGate(name="example.com/queue"),)
    one.world.load([replace(gated, spec=replace(gated.spec, scheduling_gates=gates))])
    one.wait(3600)
    stored = one.world.cluster.get(Pod, "p", "default")
    one.world.cluster.update(replace(stored, spec=replace(stored.spec, scheduling_gates=())))
    one.wait(1)

    assert one.events("scheduled") == {
        "create": 1,
        "gatedByQueueAdmission": 1,
        "admissionPassed": 1,
        "scheduled": 1,
    }
    assert "workload auditor" not in caplog.text


def test_pod_that_is_not_tried_for_long_raises_an_alert(caplog: pytest.LogCaptureFixture) -> None:
    """The log names the pod."""
    one = AuditedWorld(limits=AlertLimits(interval_s=30))
    one.world.load([pod("p", cpu=64)])
    one.world.scheduler.step()
    one.wait(301)  # it is tried again whatever happens

    record = next(r for r in caplog.records if r.getMessage() == "workload auditor")
    assert record.__dict__["workload"].startswith("default/p/")
    assert "nothing happened for 301 s" in record.__dict__["alert"]


def test_a_gang_is_one_workload() -> None:
    """The workload starts once as many members as required have nodes."""
    one = AuditedWorld(config())
    one.world.load([group("g", 2), *members("g", 2)])
    one.world.run_to_fixed_point()

    assert one.events("gangScheduled") == {
        "create": 1,
        "gangMinMemberSatisfied": 1,
        "scheduled": 1,
    }
    assert one.auditor.waiting == 0


def test_failed_gang_is_recorded_once_per_attempt() -> None:
    """The number of members does not matter; it ends with the last member."""
    one = AuditedWorld(config())
    one.world.load([group("g", 3), *members("g", 3)])
    one.world.scheduler.step()
    for name in ("g-0", "g-1", "g-2"):
        one.world.cluster.delete(Pod, name, "default")
    one.world.scheduler.step()

    events = one.events("gangDeleted")
    assert events["create"] == events["gangAllPodsAlreadyAttempted"] == 1
    assert one.auditor.waiting == 0


def test_series_have_configured_labels() -> None:
    """Labels come from pod labels under other names; the number of series is limited."""
    one = AuditedWorld(labels={"quota_name": "quota.scheduling.koordinator.sh/name"})
    one.world.load([pod("p", 1, labels={"quota.scheduling.koordinator.sh/name": "team-a"})])
    one.world.run_to_fixed_point()

    assert one.events("scheduled", quota_name="team-a") == {"create": 1, "scheduled": 1}
    known = {one.metrics.series(("", f"team-{number}")) for number in range(2 * MOST_SERIES)}
    assert len(known) <= MOST_SERIES + 1
