"""Answers that are kept for a while."""

import pytest
from tests.soak.census import census

from koordinator.dashboard.answers import MOST_ANSWERS, AnswerCache
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.errors import NotFoundError


def test_an_answer_is_asked_for_once_while_it_counts() -> None:
    """And again afterwards."""
    clock, asked = VirtualClock(), []
    answers = AnswerCache(clock)

    def answer() -> int:
        asked.append(clock.now_s())
        return len(asked)

    assert [answers.get("key", answer), answers.get("key", answer)] == [1, 1]
    clock.advance_to(60.0)
    assert answers.get("key", answer) == 2


def test_questions_without_an_answer_leave_nothing() -> None:
    """Whoever makes names up can't fill the memory with them."""
    answers = AnswerCache(VirtualClock())

    def nobody() -> None:
        raise NotFoundError("there is no such pod")

    for number in range(4 * MOST_ANSWERS):
        with pytest.raises(NotFoundError):
            answers.get(number, nobody)

    assert max(census(answers).values()) <= 2 * MOST_ANSWERS
