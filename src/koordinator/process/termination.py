"""Termination of a process: the first SIGTERM or SIGINT requests it, the second forces it.

Source: k8s.io/apiserver pkg/server/signal.go ``SetupSignalHandler``.
"""

import os
import signal
import socket
import threading

SIGNALS = (signal.SIGTERM, signal.SIGINT)
FORCED_EXIT_CODE = 1


def stop_on_signals() -> threading.Event:
    """Return the event that the first signal sets; call it once, in the main thread.

    Signals are followed in a thread of their own.  So the second one ends the process even while
    the main thread is in a long computation, and the event is never set from inside a signal
    handler, where the lock of the event might be held by the code that was interrupted.
    """
    stopping = threading.Event()
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
