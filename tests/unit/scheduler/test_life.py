"""States of a pod with an assumed node, and their transitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.worlds import node, pod, world

from koordinator.foundation.errors import BugError
from koordinator.scheduler.binding import Assumed, LifeEvent, LifeState
from koordinator.scheduler.binding.life import TRANSITIONS
from koordinator.scheduler.contract import NOTHING
from koordinator.scheduler.queue import QueuedPod

ENDS = {LifeState.BOUND, LifeState.UNDONE}


def assumed() -> Assumed:
    """Return a newly assumed pod."""
    state, one = world(node("n")), pod("p", 1)
    (placed,) = state.place_all([(one.key, one)], [state.classes.of(one)], np.array([0]))
    queued = QueuedPod(key=one.key, pod=one, run_key=None, priority=0, queued_at_s=0.0, sequence=0)
    return Assumed(queued, "n", NOTHING, placed)


@given(st.lists(st.sampled_from(list(LifeEvent))))
def test_assumed_pod_is_bound_or_unreserved_once(events: list[LifeEvent]) -> None:
    """Legal events follow the table; others raise and change nothing."""
    one = assumed()
    seen = [one.state]
    for event in events:
        before = one.state
        if before in TRANSITIONS[event]:
            one.move(event)
            assert one.state is TRANSITIONS[event][before]
        else:
            with pytest.raises(BugError, match=r"default/p on n"):
                one.move(event)
            assert one.state is before
        seen.append(one.state)
    ended = [state for state in seen if state in ENDS]
    assert len(set(ended)) <= 1  # what has ended stays so


def test_every_state_leads_to_a_final_one() -> None:
    """No pod holds a node forever."""
    for state in set(LifeState) - ENDS:
        following = {moves[state] for moves in TRANSITIONS.values() if state in moves}
        assert LifeState.UNDONE in following
    reached, more = set[LifeState](), {LifeState.ASSUMED}
    while more:
        reached |= more
        more = {m[s] for m in TRANSITIONS.values() for s in reached if s in m} - reached
    assert reached == set(LifeState)


def test_illegal_event_reports_the_legal_ones() -> None:
    """The error has the pod's history."""
    one = assumed()
    with pytest.raises(BugError, match=r"confirm of a pod that is assumed .* wait, allow, undo"):
        one.move(LifeEvent.CONFIRM)
