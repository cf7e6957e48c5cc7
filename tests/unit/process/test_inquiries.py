"""Data of one thread is read by that thread."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from koordinator.foundation.errors import NotFoundError
from koordinator.process.inquiries import Inquiries


def test_a_question_is_put_by_the_thread_that_answers() -> None:
    """The data that the question reads doesn't change meanwhile."""
    inquiries = Inquiries()
    with ThreadPoolExecutor(1) as client:
        answer = client.submit(inquiries.ask, threading.get_ident)
        while not answer.done():
            inquiries.answer()

    assert answer.result() == threading.get_ident()


def test_a_failure_belongs_to_the_asker() -> None:
    """The loop goes on."""

    def question() -> str:
        raise NotFoundError("cannot find node n1")

    inquiries = Inquiries()
    with ThreadPoolExecutor(1) as client:
        answer = client.submit(inquiries.ask, question)
        while not answer.done():
            inquiries.answer()

    assert isinstance(answer.exception(), NotFoundError)


def test_waiting_for_a_busy_loop_is_bounded() -> None:
    """A question whose caller has given up is not answered."""
    put = []
    inquiries = Inquiries(patience_s=0.01)
    with pytest.raises(TimeoutError, match="busy"):
        inquiries.ask(lambda: put.append("late"))
    inquiries.answer()

    assert put == []


def test_ended_loop_is_not_waited_for() -> None:
    """Neither who asked before nor who asks after."""
    inquiries = Inquiries(patience_s=60)
    with ThreadPoolExecutor(1) as client:
        early = client.submit(inquiries.ask, lambda: None)
        inquiries.close()
        with pytest.raises(TimeoutError, match="shutting down"):
            inquiries.ask(lambda: None)

        assert isinstance(early.exception(timeout=60), TimeoutError)
