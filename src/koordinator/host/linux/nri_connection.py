"""The plugin's connection to the runtime: kept up for ever, each call answered in time.

Three kinds of threads: one reads the socket and answers, a few work out answers, so that one that
hangs costs its container no more than a fraction of what the runtime waits.  A plugin that is late
or answers nonsense is dropped by the runtime, and the container starts without it.
"""

import logging
import queue
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Protocol

from koordinator.foundation.errors import HostError
from koordinator.host.nri.session import NriCall, NriRefusalError, NriSession

log = logging.getLogger(__name__)

_CHUNK: Final = 1 << 16
_WORKERS: Final = 4
_READY_POLL_S: Final = 0.1
_SETTLED_S: Final = 10.0  # who stayed connected for so long begins again with the shortest wait
#: Of what the runtime waits (2 s by default); it asks one plugin about one container at a time.
_SHARE_OF_TIMEOUT: Final = 0.25
_LONGEST_ANSWER_S: Final = 0.5


class NriPlugin(Protocol):
    """What is asked."""

    @property
    def is_ready(self) -> bool: ...

    def answer(self, call: NriCall) -> object: ...

    def give_up(self, call: NriCall, why: str) -> object: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NriSettings:
    """Where the runtime listens, who we are, and how long is waited between attempts, in seconds.

    The wait grows by ``backoff_factor`` up to ``backoff_cap_s``; ``backoff_steps`` bounds how often
    it grows.
    """

    socket_path: str
    plugin_name: str = "koordlet_nri"
    plugin_index: str = "00"
    connect_timeout_s: float = 6.0
    backoff_s: float = 1.0
    backoff_cap_s: float = 2.0
    backoff_factor: float = 2.0
    backoff_steps: int = 1 << 31
    answer_timeout_s: float = _LONGEST_ANSWER_S


@dataclass(slots=True)
class _Question:
    call: NriCall
    is_answered: threading.Event = field(default_factory=threading.Event)
    answer: object = None
    error: Exception | None = None


class NriConnection:
    """Connects when the plugin is ready, and again whenever the runtime has gone.

    ``on_state`` is told True when the runtime has taken the plugin, False when it is lost.
    """

    def __init__(
        self,
        plugin: NriPlugin,
        settings: NriSettings,
        *,
        on_state: Callable[[bool], None] | None = None,
    ) -> None:
        self._plugin = plugin
        self._settings = settings
        self._on_state = on_state
        self._stopping = threading.Event()
        self._questions: queue.SimpleQueue[_Question] = queue.SimpleQueue()
        self._waiting = 0  # questions that somebody is working on
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._threads = [
            threading.Thread(target=self._run, name="nri", daemon=True),
            *(
                threading.Thread(target=self._work, name=f"nri-hooks-{n}", daemon=True)
                for n in range(_WORKERS)
            ),
        ]

    def start(self) -> None:
        """Begin to connect."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Hang up.  What hangs in a hook is left behind."""
        self._stopping.set()
        with self._lock:
            if self._socket is not None:
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
        self._threads[0].join(self._settings.answer_timeout_s + 1.0)

    # -- the connection ----------------------------------------------------------------------

    def _run(self) -> None:
        settings = self._settings
        wait_s, grown = settings.backoff_s, 0
        while not self._plugin.is_ready:
            if self._stopping.wait(_READY_POLL_S):
                return
        problem_logged = ""
        while not self._stopping.is_set():
            was_registered, problem = self._converse()
            if was_registered:
                wait_s, grown, problem_logged = settings.backoff_s, 0, ""
            if self._stopping.is_set():
                return
            if problem != problem_logged:
                log.warning("no runtime", extra={"socket": settings.socket_path, "error": problem})
                problem_logged = problem
            self._stopping.wait(wait_s)
            if grown < settings.backoff_steps:
                wait_s = min(wait_s * settings.backoff_factor, settings.backoff_cap_s)
                grown += 1

    def _converse(self) -> tuple[bool, str]:
        """Return whether the runtime took the plugin, and why it is over."""
        settings = self._settings
        session = NriSession(settings.plugin_name, settings.plugin_index)
        is_told = False
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                with self._lock:
                    self._socket = connection
                connection.settimeout(settings.connect_timeout_s)
                connection.connect(settings.socket_path)
                connection.sendall(session.opening())
                while True:
                    data = connection.recv(_CHUNK)
                    if not data:
                        return is_told, "the runtime hung up"
                    for call in session.receive(data):
                        connection.sendall(self._answer(session, call))
                    refusals = session.refusals()
                    if refusals:
                        connection.sendall(refusals)
                    if session.is_registered and not is_told:
                        is_told = True
                        connection.settimeout(None)
                        self._tell(True)
        except (OSError, HostError) as error:
            return is_told, str(error)
        finally:
            with self._lock:
                self._socket = None
            if is_told:
                self._tell(False)

    def _tell(self, is_connected: bool) -> None:
        if self._on_state is not None:
            self._on_state(is_connected)

    # -- answers -----------------------------------------------------------------------------

    def _answer(self, session: NriSession, call: NriCall) -> bytes:
        try:
            if call.request is None:
                return session.answer(call.number, self._plugin.give_up(call, call.problem))
            question = self._ask(call)
            if question is None:
                why = f"no answer within {self._settings.answer_timeout_s:g} s"
                return session.answer(call.number, self._plugin.give_up(call, why))
            if isinstance(question.error, NriRefusalError):
                return session.failure(call.number, str(question.error))
            if question.error is not None:  # a mistake of ours stops no container
                error = question.error
                log.error("call not answered", extra={"method": call.method}, exc_info=error)
                why = f"{type(error).__name__}: {error}"
                return session.answer(call.number, self._plugin.give_up(call, why))
            return session.answer(call.number, question.answer)
        except NriRefusalError as error:
            return session.failure(call.number, str(error))

    def _ask(self, call: NriCall) -> _Question | None:
        """Return the answered question; None if it took too long, or nobody is free to answer."""
        with self._lock:
            if self._waiting >= _WORKERS:
                return None
            self._waiting += 1
        question = _Question(call)
        self._questions.put(question)
        return question if question.is_answered.wait(self._settings.answer_timeout_s) else None

    def _work(self) -> None:
        while True:
            question = self._questions.get()
            try:
                question.answer = self._plugin.answer(question.call)
            except Exception as error:  # noqa: BLE001 -- raised to who asked
                question.error = error
            question.is_answered.set()
            with self._lock:
                self._waiting -= 1
