"""What a unit waits for between its room and its start: admission checks, and a scheduler."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.manager.queue_units.worlds import World, job, queue, quota

from koordinator.api.meta import JsonObject
from koordinator.api.queue_unit import AdmissionCheckState, Queue, QueueUnit
from koordinator.api.workload import Job
from koordinator.manager.queue_units.controller import QueueChoice

ALL = QueueChoice()


def checked(*names: str, **selectors: JsonObject) -> JsonObject:
    """Return a queue with admission checks, some of them for certain units."""
    made = queue()
    made["spec"]["admissionChecks"] = [
        *({"name": name} for name in names),
        *({"name": name, "labelSelector": it} for name, it in selectors.items()),
    ]
    return made


def answer(world: World, unit: str, **states: str) -> None:
    """Let controllers of checks say something about a unit."""
    found = world.unit(unit)
    checks = tuple(
        replace(check, state=states.get(check.name, check.state), message="so it is")
        for check in found.status.admission_checks
    )
    world.cluster.update_status(
        replace(found, status=replace(found.status, admission_checks=checks))
    )
    world.settle()


def say(world: World, unit: str, phase: str, **more: Any) -> None:
    """Let a scheduler say something about a unit."""
    found = world.unit(unit)
    world.cluster.update_status(replace(found, status=replace(found.status, phase=phase, **more)))
    world.settle()


def states(unit: QueueUnit) -> dict[str, str]:
    return {it.name: it.state for it in unit.status.admission_checks}


def true(unit: QueueUnit) -> set[str]:
    return {it.type for it in unit.status.conditions if it.status == "True"}


# -- admission checks -----------------------------------------------------------------------------


def test_a_unit_starts_when_all_checks_are_ready() -> None:
    """Until then it has its room, and nobody else has it."""
    world = World(quota(cpu=1), checked("capacity", "budget"), job("a"))
    world.settle()
    assert world.phases() == {"a": "Reserved"}
    assert states(world.unit("a")) == {"capacity": "Pending", "budget": "Pending"}
    assert true(world.unit("a")) == {"QuotaReserved"}
    assert world.unit("a").status.message == (
        "it has its room and waits for admission checks: capacity, budget"
    )
    world.add(job("b", priority=9))
    world.settle()
    answer(world, "a", capacity="Ready")
    assert world.phases() == {"a": "Reserved", "b": "Enqueued"}
    assert not world.running()

    answer(world, "a", budget="Ready")
    assert world.running() == {"a"}
    assert true(world.unit("a")) == {"QuotaReserved", "Admitted", "PodsReady"}


def test_a_check_that_wants_a_unit_to_come_again_sends_it_back() -> None:
    """It backs off, others may have its room meanwhile, and all checks are asked anew."""
    world = World(quota(cpu=1), checked("capacity"), job("a"), initial_backoff_s=5.0)
    world.settle()
    answer(world, "a", capacity="Retry")
    unit = world.unit("a")
    assert unit.status.phase == "TimeoutBackoff"
    assert unit.status.message == "admission check capacity (so it is) wants it to come again"
    assert unit.status.requeue_state is not None
    world.add(job("b"))
    world.settle()
    assert world.phases() == {"a": "TimeoutBackoff", "b": "Reserved"}
    answer(world, "b", capacity="Ready")
    world.end("b")
    world.pass_time(6)
    assert states(world.unit("a")) == {"capacity": "Pending"}
    answer(world, "a", capacity="Ready")
    assert world.running() == {"a"}


def test_a_check_that_rejects_a_unit_deactivates_it() -> None:
    """As in Kueue: it does not come again until somebody activates it."""
    world = World(quota(cpu=1), checked("capacity"), job("a"), job("b"))
    world.settle()
    answer(world, "a", capacity="Rejected")
    assert world.unit("a").spec.active is False
    assert world.unit("a").status.message == "admission check capacity (so it is) rejected it"
    assert world.phases() == {"a": "Enqueued", "b": "Reserved"}
    world.cluster.patch(QueueUnit, "a", "default", {"spec": {"active": True}})
    answer(world, "b", capacity="Rejected")
    assert world.phases() == {"a": "Reserved", "b": "Enqueued"}


def test_a_check_may_be_for_some_units_only() -> None:
    """By their labels; who needs none starts at once."""
    big = {"matchLabels": {"size": "big"}}
    world = World(quota(cpu=2), checked(capacity=big), job("a", labels={"size": "big"}), job("b"))
    world.settle()

    assert world.phases() == {"a": "Reserved", "b": "Running"}


def test_checks_of_the_queue_are_those_that_it_has_now() -> None:
    """One that was taken from the queue is not waited for, one that was added is."""
    world = World(quota(cpu=1), checked("old"), job("a"))
    world.settle()
    spec = {"spec": {"admissionChecks": [{"name": "new"}]}}
    world.cluster.patch(Queue, "team", "koord-queue", spec)
    world.settle()
    assert states(world.unit("a")) == {"new": "Pending"}
    answer(world, "a", new="Ready")
    assert world.running() == {"a"}


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (
            checked(odd={"matchExpressions": [{"key": "a", "operator": "Near"}]}),
            "queue team: spec.admissionChecks[odd].labelSelector.operator: must be In, NotIn",
        ),
        (
            checked(*(f"c{n}" for n in range(9))),
            "queue team: spec.admissionChecks: must be at most 8, got '9 checks'",
        ),
    ],
)
def test_checks_that_can_t_be_waited_for_let_nobody_in(bad: JsonObject, problem: str) -> None:
    """They are not left out: somebody wanted them."""
    world = World(quota(cpu=1), bad, job("a"))
    world.settle()

    assert not world.running()
    assert world.unit("a").status.message.startswith(problem)


def test_a_reserved_unit_may_be_preempted() -> None:
    """Its checks are asked anew when it comes again."""
    world = World(quota(cpu=1), checked("capacity"), job("a"))
    world.settle()
    marks = {"metadata": {"annotations": {"koord-queue/enable-queueunit-preemption": "true"}}}
    world.cluster.patch(Queue, "team", "koord-queue", marks)
    answer(world, "a", capacity="Pending")
    world.add(job("b", priority=5))
    world.settle()
    assert world.phases() == {"a": "Enqueued", "b": "Reserved"}


# -- a scheduler has the last word ----------------------------------------------------------------


def test_in_strict_mode_a_scheduler_says_whether_a_job_starts() -> None:
    """SchedReady, with its room, until SchedSucceed."""
    world = World(quota(cpu=2), job("a"), strict_queues=ALL)
    world.settle()
    assert (world.phases(), world.running()) == ({"a": "SchedReady"}, set())
    assert world.unit("a").status.attempts == 1
    say(world, "a", "SchedSucceed")
    assert (world.phases(), world.running()) == ({"a": "Running"}, {"a"})
    assert true(world.unit("a")) == {"QuotaReserved", "Admitted", "PodsReady"}


def test_a_unit_that_no_node_takes_comes_again_after_a_while() -> None:
    """SchedFailed, with what the scheduler says; its room is free at once."""
    world = World(quota(cpu=1), job("a"), strict_queues=ALL, initial_backoff_s=5.0)
    world.settle()
    say(world, "a", "SchedFailed", message="0/3 nodes")
    unit = world.unit("a")
    assert (unit.status.phase, unit.status.message) == ("SchedFailed", "0/3 nodes")
    assert unit.status.requeue_state is not None
    world.add(job("b"))
    world.settle()
    assert world.phases() == {"a": "SchedFailed", "b": "SchedReady"}
    say(world, "b", "SchedSucceed")
    world.end("b")
    world.pass_time(6)
    assert world.phases() == {"a": "SchedReady", "b": "Succeed"}
    assert world.unit("a").status.attempts == 2


def test_a_scheduler_that_knows_no_conditions_may_drop_them() -> None:
    """A client of koord-queue 1.8.0 does so when it updates the status."""
    world = World(quota(cpu=1), job("a"), strict_queues=ALL)
    world.settle()
    say(world, "a", "SchedSucceed", conditions=())

    assert world.running() == {"a"}


def test_a_word_about_a_unit_that_was_sent_back_does_not_count() -> None:
    """Its room may be somebody else's by now."""
    world = World(quota(cpu=1), job("a"), strict_queues=ALL)
    world.settle()
    world.cluster.patch(QueueUnit, "a", "default", {"spec": {"active": False}})
    world.settle()
    world.add(job("b"))
    world.settle()
    say(world, "a", "SchedSucceed")
    say(world, "b", "SchedSucceed")

    assert world.running() == {"b"}
    assert world.phases() == {"a": "Enqueued", "b": "Running"}


def test_less_important_units_don_t_go_while_more_important_ones_wait_for_the_scheduler() -> None:
    """Those as important may."""
    world = World(quota(cpu=4), job("a", priority=5), strict_queues=ALL)
    world.settle()
    world.add(job("b", priority=1), job("c", priority=5))
    world.settle()
    assert world.phases() == {"a": "SchedReady", "b": "Enqueued", "c": "SchedReady"}
    assert world.unit("b").status.message == (
        "units of its queue of priority 5 wait for a scheduler"
    )
    say(world, "a", "SchedSucceed")
    say(world, "c", "SchedFailed")
    assert world.phases()["b"] == "SchedReady"


def test_strict_mode_is_for_the_queues_of_the_list() -> None:
    """``team`` or ``!team``."""
    for choice, phase in (
        (QueueChoice(frozenset(("team",))), "SchedReady"),
        (QueueChoice(frozenset(("other",))), "Running"),
        (QueueChoice(None, frozenset(("team",))), "Running"),
    ):
        world = World(quota(cpu=1), job("a"), strict_queues=choice)
        world.settle()
        assert world.phases() == {"a": phase}


def test_checks_come_before_the_scheduler() -> None:
    """Reserved, SchedReady, then it starts."""
    world = World(quota(cpu=1), checked("capacity"), job("a"), strict_queues=ALL)
    world.settle()
    assert world.phases() == {"a": "Reserved"}
    answer(world, "a", capacity="Ready")
    assert world.phases() == {"a": "SchedReady"}
    say(world, "a", "SchedSucceed")
    assert world.running() == {"a"}


@pytest.mark.parametrize("strict", [True, False])
def test_a_job_that_somebody_resumes_meanwhile_keeps_its_room(*, strict: bool) -> None:
    """It counts once, as any job that runs."""
    world = World(
        quota(cpu=1),
        *(() if strict else (checked("capacity"),)),
        job("a"),
        job("b"),
        strict_queues=ALL if strict else QueueChoice(frozenset()),
    )
    world.settle()
    world.cluster.patch(Job, "a", "default", {"spec": {"suspend": False}})
    world.settle()

    assert world.phases() == {"a": "Running", "b": "Enqueued"}


def test_waiting_for_pods_begins_when_the_job_may_start() -> None:
    """Not when its room was reserved."""
    made = checked("capacity")
    made["metadata"]["annotations"] = {"koord-queue/wait-for-pods-running": "true"}
    world = World(quota(cpu=1), made, job("a"), pods_ready_s=60.0)
    world.settle()
    world.pass_time(300)
    assert world.phases() == {"a": "Reserved"}
    found = world.unit("a")
    ready = (AdmissionCheckState(name="capacity", state="Ready"),)
    world.cluster.update_status(
        replace(found, status=replace(found.status, admission_checks=ready))
    )
    world.settle(pods_run=False)
    world.pass_time(50, pods_run=False)
    assert world.phases() == {"a": "Dequeued"}
    world.pass_time(11, pods_run=False)
    assert world.phases() == {"a": "TimeoutBackoff"}


def test_a_cluster_with_the_original_s_crd_forgets_conditions_and_all_goes_on() -> None:
    """It stores neither conditions nor requeueState: nobody starts by an old word, or at once."""
    world = World(quota(cpu=1), job("a"), strict_queues=ALL, initial_backoff_s=5.0)
    world.settle()
    say(world, "a", "SchedFailed", conditions=(), requeue_state=None)
    forgotten = {"conditions": (), "requeue_state": None}
    for phase in ("SchedFailed", "SchedFailed"):
        found = world.unit("a")
        world.cluster.update_status(
            replace(found, status=replace(found.status, phase=phase, **forgotten))
        )
        world.settle()
    assert (world.phases(), world.running()) == ({"a": "SchedFailed"}, set())
    world.pass_time(6)
    assert world.phases() == {"a": "SchedReady"}
    say(world, "a", "SchedSucceed", **forgotten)
    assert world.running() == {"a"}
