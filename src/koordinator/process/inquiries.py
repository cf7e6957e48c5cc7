"""Questions to the thread that owns the data.

A component has one thread and no locks.  Server threads submit functions that read its data, and
the component's loop runs them between two steps.
"""

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

AnswerT = TypeVar("AnswerT")

PATIENCE_S = 10.0  # longer than a step of the loop takes; a client gives up about then as well


class Inquiries:
    """Queue of functions of any thread, run by one."""

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._waiting: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = (
            queue.SimpleQueue()
        )
        self._closed = threading.Event()

    def ask(self, question: Callable[[], AnswerT]) -> AnswerT:
        """Run a question on the answering thread; return its result or raise its error.

        Raises TimeoutError if the loop does not answer in time or has ended.
        """
        answer: Future[AnswerT] = Future()
        self._waiting.put((answer, question))
        if self._closed.is_set():
            self._dismiss()
        try:
            return answer.result(self._patience_s)
        except CancelledError:
            raise TimeoutError("shutting down") from None
        except TimeoutError:
            answer.cancel()
            raise TimeoutError(f"busy: no answer within {self._patience_s:g} s") from None

    def answer(self, most: int | None = None) -> int:
        """Answer pending questions, at most ``most``; called by the loop of the component.

        Returns how many there were.
        """
        answered = 0
        for answer, question in self._take(most):
            answered += 1
            if not answer.set_running_or_notify_cancel():
                continue
            try:
                answer.set_result(question())
            except Exception as error:  # noqa: BLE001 -- belongs to the caller, not to the loop
                answer.set_exception(error)
        return answered

    def close(self) -> None:
        """Reject all waiting and later inquiries, at the end of the loop."""
        self._closed.set()
        self._dismiss()

    def _dismiss(self) -> None:
        for answer, _ in self._take():
            answer.cancel()

    def _take(self, most: int | None = None) -> Iterator[tuple[Future[Any], Callable[[], Any]]]:
        """Pop the pending questions; later ones wait for the next call."""
        waiting = self._waiting.qsize()
        for _ in range(waiting if most is None else min(most, waiting)):
            try:
                yield self._waiting.get_nowait()
            except queue.Empty:
                return
