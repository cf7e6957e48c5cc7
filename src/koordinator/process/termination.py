"""Termination of a process: signals, faults, and the limit of open files.

Source: k8s.io/apiserver pkg/server/signal.go ``SetupSignalHandler``.
"""

import logging
import os
import resource
import signal
import socket
import threading
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter

from koordinator.foundation.errors import Fault

SIGNALS = (signal.SIGTERM, signal.SIGINT)
FORCED_EXIT_CODE = 1

log = logging.getLogger(__name__)


class StopEvent(threading.Event):
    """Event that calls ``on_set`` after it was set, in the thread that sets it."""

    def __init__(self) -> None:
        super().__init__()
        self.on_set: Callable[[], None] = lambda: None

    def set(self) -> None:
        super().set()
        self.on_set()


def stop_on_signals() -> StopEvent:
    """Return the event that the first signal sets; call it once, in the main thread.

    Signals are followed in a thread of their own.  So the second one ends the process even while
    the main thread is in a long computation, and the event is never set from inside a signal
    handler, where the lock of the event might be held by the code that was interrupted.
    """
    stopping = StopEvent()
    received, wakeup = socket.socketpair()
    wakeup.setblocking(False)
    signal.set_wakeup_fd(wakeup.fileno())
    for number in SIGNALS:
        signal.signal(number, lambda *_: None)  # a signal without handler wakes no select
    threading.Thread(
        target=_follow, args=(received, wakeup, stopping), name="signals", daemon=True
    ).start()
    return stopping


def _follow(received: socket.socket, wakeup: socket.socket, stopping: threading.Event) -> None:
    with received, wakeup:
        while True:
            for number in received.recv(1):
                if number not in SIGNALS:
                    continue
                if stopping.is_set():
                    os._exit(FORCED_EXIT_CODE)
                stopping.set()


class FaultMetrics:
    """The handler of a component: the counter ``<component>_internal_errors_total``, and the log.

    Labels are of closed sets: stages and sources are in the code, an object is not among them.
    """

    def __init__(self, component: str, registry: CollectorRegistry) -> None:
        self._counter = Counter(
            f"{component}_internal_errors",
            "Unexpected exceptions, by operation and source.",
            ("stage", "source"),
            registry=registry,
        )
        self._log = FirstOfKind()

    def __call__(self, fault: Fault) -> None:
        self._counter.labels(fault.stage, fault.source).inc()
        self._log(fault)


class FirstOfKind:
    """Logs the first fault of a kind with its traceback, later ones at debug level.

    A hostile object can bring about one at every step.
    """

    def __init__(self) -> None:
        self._known: set[tuple[str, str, type[Exception]]] = set()

    def __call__(self, fault: Fault) -> None:
        kind = (fault.stage, fault.source, type(fault.error))
        is_new = kind not in self._known
        self._known.add(kind)
        extra = {"stage": fault.stage, "source": fault.source, "object": fault.about,
                 "error": fault.problem}  # fmt: skip
        trace = fault.error if is_new else None
        log.log(
            logging.ERROR if is_new else logging.DEBUG,
            "internal error",
            extra=extra,
            exc_info=trace,
        )


def allow_all_descriptors() -> int:
    """Raise the soft limit to the hard one, and return it.

    The soft one is kept low for programs that use select(2), as container runtimes and systemd do;
    a node agent has thousands of files of cgroups open.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
