"""Calls of other threads, run by the thread that owns the data."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from koordinator.foundation.errors import NotFoundError
from koordinator.process.loop_calls import LoopCalls


def test_function_runs_on_the_thread_of_the_loop() -> None:
    """The data that the function reads doesn't change meanwhile."""
    loop_calls = LoopCalls()
    with ThreadPoolExecutor(1) as client:
        answer = client.submit(loop_calls.call, threading.get_ident)
        while not answer.done():
            loop_calls.run_pending()

    assert answer.result() == threading.get_ident()


def test_error_of_a_function_is_raised_in_the_calling_thread() -> None:
    """The loop continues."""

    def function() -> str:
        raise NotFoundError("cannot find node n1")

    loop_calls = LoopCalls()
    with ThreadPoolExecutor(1) as client:
        answer = client.submit(loop_calls.call, function)
        while not answer.done():
            loop_calls.run_pending()

    assert isinstance(answer.exception(), NotFoundError)


def test_waiting_for_a_busy_loop_is_bounded() -> None:
    """A function whose caller has given up is not run."""
    put = []
    loop_calls = LoopCalls(patience_s=0.01)
    with pytest.raises(TimeoutError, match="busy"):
        loop_calls.call(lambda: put.append("late"))
    loop_calls.run_pending()

    assert put == []


def test_ended_loop_is_not_waited_for() -> None:
    """Calls before and after the end raise an error immediately."""
    loop_calls = LoopCalls(patience_s=60)
    with ThreadPoolExecutor(1) as client:
        early = client.submit(loop_calls.call, lambda: None)
        loop_calls.close()
        with pytest.raises(TimeoutError, match="shutting down"):
            loop_calls.call(lambda: None)

        assert isinstance(early.exception(timeout=60), TimeoutError)
