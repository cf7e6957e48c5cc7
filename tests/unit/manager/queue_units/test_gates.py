"""Admission checks and strict mode, which delay the start of a unit with reserved quota."""

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
    """Return a queue with admission checks, some with label selectors."""
    made = queue()
    made["spec"]["admissionChecks"] = [
        *({"name": name} for name in names),
        *({"name": name, "labelSelector": it} for name, it in selectors.items()),
    ]
    return made


def answer(world: World, unit: str, **states: str) -> None:
    """Set the states of admission checks of a unit, as their controllers do."""
    result = world.unit(unit)
    checks = tuple(
        replace(check, state=states.get(check.name, check.state), message="so it is")
        for check in result.status.admission_checks
    )
    world.cluster.update_status(
        replace(result, status=replace(result.status, admission_checks=checks))
    )
    world.settle()


def say(world: World, unit: str, phase: str, **more: Any) -> None:
    """Set the phase of a unit, as a scheduler does."""
    result = world.unit(unit)
    world.cluster.update_status(replace(result, status=replace(result.status, phase=phase, **more)))
    world.settle()


def states(unit: QueueUnit) -> dict[str, str]:
    return {it.name: it.state for it in unit.status.admission_checks}


def true(unit: QueueUnit) -> set[str]:
    return {it.type for it in unit.status.conditions if it.status == "True"}


# -- admission checks -----------------------------------------------------------------------------


def test_a_unit_starts_when_all_checks_are_ready() -> None:
    """Until then its quota is reserved and not available to other units."""
    world = World(quota(cpu=1), checked("capacity", "budget"), job("a"))
    world.settle()
    assert world.phases() == {"a": "Reserved"}
    assert states(world.unit("a")) == {"capacity": "Pending", "budget": "Pending"}
    assert true(world.unit("a")) == {"QuotaReserved"}
    assert world.unit("a").status.message == (
        "quota reserved; waiting for admission checks: capacity, budget"
    )
    world.add(job("b", priority=9))
    world.settle()
    answer(world, "a", capacity="Ready")
    assert world.phases() == {"a": "Reserved", "b": "Enqueued"}
    assert not world.running()

    answer(world, "a", budget="Ready")
    assert world.running() == {"a"}
    assert true(world.unit("a")) == {"QuotaReserved", "Admitted", "PodsReady"}


def test_unit_is_requeued_after_the_retry_of_a_check() -> None:
    """The unit backs off and releases its quota, and its checks are reset to Pending."""
    world = World(quota(cpu=1), checked("capacity"), job("a"), initial_backoff_s=5.0)
    world.settle()
    answer(world, "a", capacity="Retry")
    unit = world.unit("a")
    assert unit.status.phase == "TimeoutBackoff"
    assert unit.status.message == "admission check capacity (so it is) requires a retry"
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
    """As in Kueue it stays out of the queue until a user activates it."""
    world = World(quota(cpu=1), checked("capacity"), job("a"), job("b"))
    world.settle()
    answer(world, "a", capacity="Rejected")
    assert world.unit("a").spec.active is False
    assert world.unit("a").status.message == "admission check capacity (so it is) rejected the unit"
    assert world.phases() == {"a": "Enqueued", "b": "Reserved"}
    world.cluster.patch(QueueUnit, "a", "default", {"spec": {"active": True}})
    answer(world, "b", capacity="Rejected")
    assert world.phases() == {"a": "Reserved", "b": "Enqueued"}


def test_check_with_a_selector_applies_to_matching_units() -> None:
    """A unit without checks starts immediately."""
    big = {"matchLabels": {"size": "big"}}
    world = World(quota(cpu=2), checked(capacity=big), job("a", labels={"size": "big"}), job("b"))
    world.settle()

    assert world.phases() == {"a": "Reserved", "b": "Running"}


def test_unit_waits_for_the_current_checks_of_its_queue() -> None:
    """A removed check is ignored, and an added check is required."""
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
def test_invalid_checks_of_a_queue_block_its_units(bad: JsonObject, problem: str) -> None:
    """Invalid checks are not ignored, since a user configured them."""
    world = World(quota(cpu=1), bad, job("a"))
    world.settle()

    assert not world.running()
    assert world.unit("a").status.message.startswith(problem)


def test_a_reserved_unit_may_be_preempted() -> None:
    """The unit's quota goes to the preemptor, and the unit is enqueued again."""
    world = World(quota(cpu=1), checked("capacity"), job("a"))
    world.settle()
    marks = {"metadata": {"annotations": {"koord-queue/enable-queueunit-preemption": "true"}}}
    world.cluster.patch(Queue, "team", "koord-queue", marks)
    answer(world, "a", capacity="Pending")
    world.add(job("b", priority=5))
    world.settle()
    assert world.phases() == {"a": "Enqueued", "b": "Reserved"}


# -- strict mode -----------------------------------------------------------------------------------


def test_job_in_strict_mode_starts_after_sched_succeed() -> None:
    """Until then its unit is SchedReady with reserved quota."""
    world = World(quota(cpu=2), job("a"), strict_queues=ALL)
    world.settle()
    assert (world.phases(), world.running()) == ({"a": "SchedReady"}, set())
    assert world.unit("a").status.attempts == 1
    say(world, "a", "SchedSucceed")
    assert (world.phases(), world.running()) == ({"a": "Running"}, {"a"})
    assert true(world.unit("a")) == {"QuotaReserved", "Admitted", "PodsReady"}


def test_unit_is_requeued_with_backoff_after_sched_failed() -> None:
    """The unit keeps the scheduler's message and releases its quota immediately."""
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


def test_scheduler_may_drop_the_conditions_of_a_unit() -> None:
    """A client of koord-queue 1.8.0 does so when it updates the status."""
    world = World(quota(cpu=1), job("a"), strict_queues=ALL)
    world.settle()
    say(world, "a", "SchedSucceed", conditions=())

    assert world.running() == {"a"}


def test_sched_succeed_of_a_deactivated_unit_is_ignored() -> None:
    """The quota may be in use by another unit by then."""
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


def test_units_of_lower_priority_wait_while_others_are_sched_ready() -> None:
    """Units of equal priority proceed."""
    world = World(quota(cpu=4), job("a", priority=5), strict_queues=ALL)
    world.settle()
    world.add(job("b", priority=1), job("c", priority=5))
    world.settle()
    assert world.phases() == {"a": "SchedReady", "b": "Enqueued", "c": "SchedReady"}
    assert world.unit("b").status.message == (
        "units of priority 5 in the same queue are waiting for a scheduler"
    )
    say(world, "a", "SchedSucceed")
    say(world, "c", "SchedFailed")
    assert world.phases()["b"] == "SchedReady"


def test_strict_mode_applies_to_the_listed_queues() -> None:
    """The list may include or exclude queues."""
    for choice, phase in (
        (QueueChoice(frozenset(("team",))), "SchedReady"),
        (QueueChoice(frozenset(("other",))), "Running"),
        (QueueChoice(None, frozenset(("team",))), "Running"),
    ):
        world = World(quota(cpu=1), job("a"), strict_queues=choice)
        world.settle()
        assert world.phases() == {"a": phase}


def test_checks_come_before_the_scheduler() -> None:
    """The phases are Reserved, SchedReady and Running."""
    world = World(quota(cpu=1), checked("capacity"), job("a"), strict_queues=ALL)
    world.settle()
    assert world.phases() == {"a": "Reserved"}
    answer(world, "a", capacity="Ready")
    assert world.phases() == {"a": "SchedReady"}
    say(world, "a", "SchedSucceed")
    assert world.running() == {"a"}


@pytest.mark.parametrize("strict", [True, False])
def test_job_that_a_user_resumes_keeps_its_quota(*, strict: bool) -> None:
    """The usage of the resumed job is counted once."""
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


def test_pods_ready_timeout_begins_with_the_start_of_the_job() -> None:
    """The reservation of quota does not start it."""
    made = checked("capacity")
    made["metadata"]["annotations"] = {"koord-queue/wait-for-pods-running": "true"}
    world = World(quota(cpu=1), made, job("a"), pods_ready_s=60.0)
    world.settle()
    world.pass_time(300)
    assert world.phases() == {"a": "Reserved"}
    result = world.unit("a")
    ready = (AdmissionCheckState(name="capacity", state="Ready"),)
    world.cluster.update_status(
        replace(result, status=replace(result.status, admission_checks=ready))
    )
    world.settle(pods_run=False)
    world.pass_time(50, pods_run=False)
    assert world.phases() == {"a": "Dequeued"}
    world.pass_time(11, pods_run=False)
    assert world.phases() == {"a": "TimeoutBackoff"}


def test_units_proceed_without_stored_conditions() -> None:
    """The CRD of the original drops conditions and requeueState; the backoff still applies."""
    world = World(quota(cpu=1), job("a"), strict_queues=ALL, initial_backoff_s=5.0)
    world.settle()
    say(world, "a", "SchedFailed", conditions=(), requeue_state=None)
    forgotten = {"conditions": (), "requeue_state": None}
    for phase in ("SchedFailed", "SchedFailed"):
        result = world.unit("a")
        world.cluster.update_status(
            replace(result, status=replace(result.status, phase=phase, **forgotten))
        )
        world.settle()
    assert (world.phases(), world.running()) == ({"a": "SchedFailed"}, set())
    world.pass_time(6)
    assert world.phases() == {"a": "SchedReady"}
    say(world, "a", "SchedSucceed", **forgotten)
    assert world.running() == {"a"}
