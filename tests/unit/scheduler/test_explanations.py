"""ScheduleExplanation objects and their status."""

from typing import Any

from tests.unit.scheduler.broken_plugins import breaks, plugins_of
from tests.unit.scheduler.test_gangs import config, group, members
from tests.worlds import START_S, embedded, made, node, pod

from koordinator.api.meta import KubeObject
from koordinator.api.schedule_explanation import ScheduleExplanation, ScheduleExplanationStatus
from koordinator.foundation.errors import Fault
from koordinator.scheduler.features.explanations.answers import HEARTBEAT_S, REFRESH_S, Explanations
from koordinator.scheduler.loop import SchedulerOptions
from koordinator.simulator import Embedded


def question(about: str, name: str = "why", **spec: Any) -> KubeObject:
    return made(
        "ScheduleExplanation",
        name,
        "scheduling.koordinator.sh/v1alpha1",
        metadata={"namespace": "default"},
        spec={"questionObjectKey": about, **spec},
    )


def explained(one: Embedded) -> Explanations:
    """Run the scheduler and return the status."""
    one.run_to_fixed_point()
    explanations = Explanations(one.scheduler.handle)
    explanations.step()
    return explanations


def status(one: Embedded, name: str = "why") -> ScheduleExplanationStatus:
    return one.cluster.get(ScheduleExplanation, name, "default").status


def test_a_waiting_pod_is_explained() -> None:
    """The status has plugins, reasons, nodes and possible victims."""
    one = embedded(
        node("n", cpu=2),
        pod("low", 2, on="n", priority=1),
        pod("p", 2, priority=5, preemptionPolicy="Never"),
        question("default/p"),
    )
    explained(one)

    answer = status(one)
    (domain,) = answer.detailed_explanation
    (detail,) = domain.schedule_explanation.node_failed_details
    assert (answer.schedulable, answer.schedulable_after_preemption) == (False, True)
    assert answer.failed_message == "none of 1 nodes takes it: 1 Insufficient cpu"
    assert (detail.failed_plugin, detail.reason, detail.failed_nodes) == (
        "NodeResourcesFit",
        "Insufficient cpu",
        ("n",),
    )
    assert detail.preempt_might_help
    (victims,) = domain.node_possible_victims
    assert [v.name for v in victims.possible_victims] == ["low"]


def test_running_pod_is_schedulable() -> None:
    """The status has its node."""
    one = embedded(node("n", cpu=2), pod("p", 2), question("default/p"))
    explained(one)

    (result,) = status(one).detailed_explanation[0].schedule_explanation.feasible_scheduling_result
    assert status(one).schedulable
    assert (result.name, result.node_name) == ("p", "n")


def test_gang_is_explained_by_its_name() -> None:
    """The explanation is that of a member."""
    one = embedded(
        node("n", cpu=3), group("g", 4), *members("g", 4), question("default/g"), config=config()
    )
    explained(one)

    assert status(one).failed_message.startswith("gang group default/g: 3 of 4 members find")


def test_unknown_object_is_reported() -> None:
    """The failed message names the problem."""
    one = embedded(question("default/nobody"))
    explained(one)

    assert "no pod default/nobody" in status(one).failed_message


def test_unchanged_explanation_is_refreshed() -> None:
    """``lastUpdateTime`` is at most a minute old."""
    one = embedded(node("n", cpu=1), pod("p", 2), question("default/p"))
    explanations = explained(one)
    for _ in range(5):
        one.clock.advance_to(one.clock.now_s() + REFRESH_S)
        explanations.step()
        written = status(one).last_update_time
        assert written is not None
        assert one.clock.now_s() - written.timestamp() < HEARTBEAT_S


def test_running_gang_is_schedulable() -> None:
    """A running gang is reported under the name of its PodGroup."""
    one = embedded(
        node("n", cpu=8), group("g", 2), *members("g", 2), question("default/g"), config=config()
    )
    explained(one)

    assert status(one).schedulable
    assert not status(one).failed_message


def test_explanation_follows_the_cluster() -> None:
    """A pending pod is explained regularly, and the status is written only when it differs."""
    one = embedded(node("n", cpu=1), pod("p", 2), question("default/p"))
    explanations = explained(one)
    first = one.cluster.get(ScheduleExplanation, "why", "default").metadata.resource_version

    one.clock.advance_to(one.clock.now_s() + REFRESH_S)
    explanations.step()
    again = one.cluster.get(ScheduleExplanation, "why", "default").metadata.resource_version
    assert again == first

    one.cluster.create(node("m", cpu=2))
    one.run_to_fixed_point()
    one.clock.advance_to(one.clock.now_s() + REFRESH_S)
    explanations.step()
    assert status(one).schedulable


def test_explanation_is_deleted_after_its_ttl() -> None:
    """No user has to clean up."""
    one = embedded(node("n", cpu=1))
    one.cluster.create(question("default/p", ttl="60s"))
    explanations = explained(one)
    assert status(one).failed_message

    one.clock.advance_to(one.clock.now_s() + 61)
    explanations.step()
    assert not one.cluster.list(ScheduleExplanation).items


def test_failing_explanation_does_not_affect_others() -> None:
    """The fault names the object, and other explanations are written."""
    faults: list[Fault] = []
    options = SchedulerOptions(answers_explanations=True)
    one = Embedded(now_s=START_S, options=options, on_fault=faults.append)
    one.load([node("n", cpu=1), pod("large", 9), pod("small", 1)])
    one.run_to_fixed_point()
    raised = breaks(plugins_of(one)["NodeResourcesFit"], "detail", only_on_evil=False)
    one.cluster.create(question("default/large", "bad"))
    one.cluster.create(question("default/small", "good"))

    one.scheduler.step()

    assert raised
    assert [(fault.stage, fault.about) for fault in faults] == [
        ("detail", "ScheduleExplanation default/bad")
    ]
    answered = one.cluster.get(ScheduleExplanation, "good", "default")
    assert answered.status.schedulable
