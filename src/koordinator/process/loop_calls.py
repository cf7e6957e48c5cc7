"""Calls of server threads, run by the thread that owns the data.

A component has one thread and no locks.  Server threads submit functions that read its data, and
the component's loop runs them between two steps.
"""

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")

PATIENCE_S = 10.0  # longer than a step of the loop takes; a client gives up about then as well


class LoopCalls:
    """Queue of functions that any thread submits and one thread runs."""

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._waiting: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = (
            queue.SimpleQueue()
        )
        self._closed = threading.Event()

    def call(self, function: Callable[[], ResultT]) -> ResultT:
        """Run a function on the loop's thread; return its result or raise its error.

        Raises TimeoutError if the loop does not run it in time or has ended.
        """
        future: Future[ResultT] = Future()
        self._waiting.put((future, function))
        if self._closed.is_set():
            self._cancel_waiting()
        try:
            return future.result(self._patience_s)
        except CancelledError:
            raise TimeoutError("shutting down") from None
        except TimeoutError:
            future.cancel()
            raise TimeoutError(f"busy: no answer within {self._patience_s:g} s") from None

    def run_pending(self, most: int | None = None) -> int:
        """Run pending functions, at most ``most``; called by the loop of the component.

        Returns their number.
        """
        count = 0
        for future, function in self._take(most):
            count += 1
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(function())
            except Exception as error:  # noqa: BLE001 -- belongs to the caller, not to the loop
                future.set_exception(error)
        return count

    def close(self) -> None:
        """Cancel all waiting and later calls, at the end of the loop."""
        self._closed.set()
        self._cancel_waiting()

    def _cancel_waiting(self) -> None:
        for future, _ in self._take():
            future.cancel()

    def _take(self, most: int | None = None) -> Iterator[tuple[Future[Any], Callable[[], Any]]]:
        """Pop the pending functions; later ones wait for the next call."""
        waiting = self._waiting.qsize()
        for _ in range(waiting if most is None else min(most, waiting)):
            try:
                yield self._waiting.get_nowait()
            except queue.Empty:
                return
