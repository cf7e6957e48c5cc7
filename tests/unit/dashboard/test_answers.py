"""Cache of expensive answers."""

import pytest
from tests.soak.census import census

from koordinator.dashboard.queries import MAX_ANSWERS, AnswerCache
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.errors import NotFoundError


def test_cached_answer_is_computed_once_until_it_expires() -> None:
    clock, computed = VirtualClock(), []
    answers = AnswerCache(clock)

    def answer() -> int:
        computed.append(clock.now_s())
        return len(computed)

    assert [answers.get("key", answer), answers.get("key", answer)] == [1, 1]
    clock.advance_to(60.0)
    assert answers.get("key", answer) == 2


def test_keys_of_failed_answers_are_bounded() -> None:
    """Queries with invented names cannot exhaust the memory."""
    answers = AnswerCache(VirtualClock())

    def missing() -> None:
        raise NotFoundError("there is no such pod")

    for number in range(4 * MAX_ANSWERS):
        with pytest.raises(NotFoundError):
            answers.get(number, missing)

    assert max(census(answers).values()) <= 2 * MAX_ANSWERS
