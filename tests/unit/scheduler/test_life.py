"""The life of a pod that has a place: what may happen in each state, and nothing else."""

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
    """Return a pod that has just been given a place."""
    state, one = world(node("n")), pod("p", 1)
    (placed,) = state.place_run([(one.key, one, state.classes.of(one), 0)])
    queued = QueuedPod(key=one.key, pod=one, run_key=None, priority=0, queued_at_s=0.0, sequence=0)
    return Assumed(queued, "n", NOTHING, placed)


@given(st.lists(st.sampled_from(list(LifeEvent))))
def test_whatever_happens_a_pod_is_bound_or_loses_its_place_once(events: list[LifeEvent]) -> None:
    """Legal events move it as the table says; the others raise and change nothing."""
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


def test_every_state_leads_to_an_end() -> None:
    """Nobody holds a place for ever because no event could end that."""
    for state in set(LifeState) - ENDS:
        following = {moves[state] for moves in TRANSITIONS.values() if state in moves}
        assert LifeState.UNDONE in following
    reached, more = set[LifeState](), {LifeState.ASSUMED}
    while more:
        reached |= more
        more = {m[s] for m in TRANSITIONS.values() for s in reached if s in m} - reached
    assert reached == set(LifeState)


def test_an_illegal_move_says_what_would_have_been_legal() -> None:
    """With the pod's story."""
    one = assumed()
    with pytest.raises(BugError, match=r"confirm of a pod that is assumed .* wait, allow, undo"):
        one.move(LifeEvent.CONFIRM)
