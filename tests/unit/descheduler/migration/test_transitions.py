"""State machine of jobs: transitions follow the table."""

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.unit.descheduler.migration.world import job

from koordinator.api.core import ObjectReference
from koordinator.api.pod_migration_job import PodMigrationJob, PodMigrationJobMode
from koordinator.descheduler.migration.transitions import (
    LAST_STATES,
    TRANSITIONS,
    EventFacts,
    IllegalMoveError,
    JobEvent,
    JobState,
    apply_event,
    state_of,
)

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
FACTS = EventFacts(
    message="why",
    node="n2",
    pod=ObjectReference(namespace="default", name="web-9", uid="u9"),
    reservation=ObjectReference(name="kept", uid="r1"),
)
DEFAULT = PodMigrationJobMode.RESERVATION_FIRST


def begun(mode: str) -> PodMigrationJob:
    new = job("move", "web-0", mode=mode)
    return replace(new, metadata=replace(new.metadata, uid="j1", creation_timestamp=NOW))


@pytest.mark.parametrize("mode", list(PodMigrationJobMode))
@given(data=st.data())
def test_state_after_each_event_is_that_of_the_table(mode: str, data: st.DataObject) -> None:
    """The state is derived from the object, and final states are final."""
    moving = begun(mode)
    started = {
        PodMigrationJobMode.EVICT_DIRECTLY: JobEvent.STARTED_DIRECTLY,
        PodMigrationJobMode.RESERVATION_FIRST: JobEvent.STARTED_RESERVING,
    }[PodMigrationJobMode(mode)]
    other = ({JobEvent.STARTED_DIRECTLY, JobEvent.STARTED_RESERVING} - {started}).pop()
    for _ in range(20):
        state = state_of(moving, DEFAULT)
        possible = sorted(TRANSITIONS[state].keys() - {other})
        if not possible:
            break
        event = data.draw(st.sampled_from(possible))
        moving = apply_event(moving, event, NOW, FACTS).job
        assert state_of(moving, DEFAULT) is TRANSITIONS[state][event]
    assert (state_of(moving, DEFAULT) in LAST_STATES) == (
        moving.status.phase in {"Succeeded", "Failed"}
    )


def test_illegal_event_raises_with_the_history_of_the_job() -> None:
    """The error has the conditions of the job."""
    moving = begun("ReservationFirst")
    for event in (JobEvent.ADMITTED, JobEvent.STARTED_RESERVING, JobEvent.RESERVATION_MADE):
        moving = apply_event(moving, event, NOW, FACTS).job
    with pytest.raises(IllegalMoveError) as raised:
        apply_event(moving, JobEvent.POD_BOUND, NOW, FACTS)
    assert str(raised.value) == (
        'PodMigrationJob move: "a pod uses the reservation" cannot happen while it is "waiting for '
        'a node for the reservation"; history: created 00:00:00 for default/web-0; 00:00:00 '
        "ReservationCreated True; now Running"
    )


def test_no_pod_is_evicted_before_its_reservation_has_a_node() -> None:
    """In ReservationFirst only a reserved job can evict."""
    evicting = {s for s, events in TRANSITIONS.items() if JobEvent.EVICTION_ISSUED in events}
    assert evicting == {JobState.DIRECT, JobState.RESERVED}


def test_every_state_but_final_ones_has_a_timeout() -> None:
    """No job exceeds its ttl."""
    for state, events in TRANSITIONS.items():
        assert state in LAST_STATES or events[JobEvent.TIMED_OUT] is JobState.FAILED
