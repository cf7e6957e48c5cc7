"""The plugin's connection to the runtime: kept up for ever, each call answered in time.

Who reads a call from the socket works out the answer and sends it, without a hand-over to another
thread, which the loop of the agent might delay.  A watchdog looks whether that takes too long: it
answers then, and another thread goes on reading, so that a hook that hangs costs its container no
more than a fraction of what the runtime waits.  A plugin that is late or answers nonsense is
dropped by the runtime, and the container starts without it.
"""

import logging
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Protocol

from koordinator.foundation.errors import HostError
from koordinator.host.nri.session import NriCall, NriRefusalError, NriSession

log = logging.getLogger(__name__)

_CHUNK: Final = 1 << 16
_MOST_HUNG: Final = 4  # threads that wait for a hook and are answered for
_LOOKS: Final = 5  # of the watchdog, in the time that an answer may take
_READY_POLL_S: Final = 0.1
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


@dataclass(slots=True, eq=False)
class _Conversation:
    """One connection; whoever leads reads from it and answers."""

    connection: socket.socket
    session: NriSession
    calls: deque[NriCall] = field(default_factory=deque)  # received, and not yet begun
    is_told: bool = False


@dataclass(slots=True, eq=False)
class _Question:
    """A call that is being answered; ``is_over`` for whoever took it up or gave it up."""

    call: NriCall
    conversation: _Conversation
    due_s: float
    is_over: bool = False


@dataclass(slots=True)
class _Waiting:
    """How long is waited before the next attempt to connect."""

    wait_s: float
    grown: int = 0
    problem: str = ""  # logged last


class _LostLeadError(Exception):
    """Another thread goes on with the conversation."""


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
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._question: _Question | None = None
        self._hung = 0  # questions that were answered by the watchdog, and whose thread is not back
        self._waiting = _Waiting(settings.backoff_s)
        self._leader = self._new_leader(None)
        self._watchdog = threading.Thread(target=self._watch, name="nri-watchdog", daemon=True)

    def start(self) -> None:
        """Begin to connect."""
        self._leader.start()
        self._watchdog.start()

    def stop(self) -> None:
        """Hang up.  What hangs in a hook is left behind."""
        self._stopping.set()
        with self._lock:
            if self._socket is not None:
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
        self._leader.join(self._settings.answer_timeout_s + 1.0)

    # -- the connection ----------------------------------------------------------------------

    def _new_leader(self, conversation: _Conversation | None) -> threading.Thread:
        return threading.Thread(target=self._lead, args=(conversation,), name="nri", daemon=True)

    def _lead(self, conversation: _Conversation | None) -> None:
        """Connect and converse until told to stop, or another thread does."""
        while not self._plugin.is_ready:
            if self._stopping.wait(_READY_POLL_S):
                return
        while not self._stopping.is_set():
            try:
                was_registered, problem = self._converse(conversation)
            except _LostLeadError:
                return
            conversation = None
            self._wait(was_registered=was_registered, problem=problem)

    def _wait(self, *, was_registered: bool, problem: str) -> None:
        """Wait before the next attempt, the longer the more attempts there were."""
        settings = self._settings
        if was_registered:
            self._waiting = _Waiting(settings.backoff_s)
        if self._stopping.is_set():
            return
        waiting = self._waiting
        if problem != waiting.problem:
            log.warning("no runtime", extra={"socket": settings.socket_path, "error": problem})
            waiting.problem = problem
        self._stopping.wait(waiting.wait_s)
        if waiting.grown < settings.backoff_steps:
            waiting.wait_s = min(waiting.wait_s * settings.backoff_factor, settings.backoff_cap_s)
            waiting.grown += 1

    def _converse(self, conversation: _Conversation | None) -> tuple[bool, str]:
        """Return whether the runtime took the plugin, and why it is over.

        ``conversation`` is one to go on with.  Raises _LostLeadError.
        """
        try:
            if conversation is None:
                conversation = self._connect()
            problem = self._talk(conversation)
        except (OSError, HostError) as error:
            problem = str(error)
        if conversation is None:
            return False, problem
        with self._lock:
            self._socket = None
        conversation.connection.close()
        if conversation.is_told:
            self._tell(False)
        return conversation.is_told, problem

    def _connect(self) -> _Conversation:
        settings = self._settings
        session = NriSession(settings.plugin_name, settings.plugin_index)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(settings.connect_timeout_s)
            connection.connect(settings.socket_path)
            connection.sendall(session.opening())
        except BaseException:
            connection.close()
            raise
        with self._lock:
            self._socket = connection
        return _Conversation(connection, session)

    def _talk(self, conversation: _Conversation) -> str:
        """Answer what the runtime asks; return why it is over."""
        connection, session, calls = (
            conversation.connection,
            conversation.session,
            conversation.calls,
        )
        while not self._stopping.is_set():
            while calls:
                connection.sendall(self._answer(conversation, calls.popleft()))
            refusals = session.refusals()
            if refusals:
                connection.sendall(refusals)
            if session.is_registered and not conversation.is_told:
                conversation.is_told = True
                connection.settimeout(None)
                self._tell(True)
            data = connection.recv(_CHUNK)
            if not data:
                return "the runtime hung up"
            calls.extend(session.receive(data))
        return "told to stop"

    def _tell(self, is_connected: bool) -> None:
        if self._on_state is not None:
            self._on_state(is_connected)

    # -- answers -----------------------------------------------------------------------------

    def _answer(self, conversation: _Conversation, call: NriCall) -> bytes:
        """Return the answer to a call.  Raises _LostLeadError if it comes too late."""
        session = conversation.session
        if call.request is None:
            return self._give_up(session, call, call.problem)
        if self._hung >= _MOST_HUNG:
            return self._give_up(session, call, self._too_late())
        due_s = time.monotonic() + self._settings.answer_timeout_s
        question = self._question = _Question(call, conversation, due_s)
        answer: object = None
        problem: Exception | None = None
        try:
            answer = self._plugin.answer(call)
        except Exception as error:  # noqa: BLE001 -- told below
            problem = error
        with self._lock:
            if question.is_over:
                self._hung -= 1
                raise _LostLeadError
            question.is_over = True
        if problem is None:
            return session.answer(call.number, answer)
        if isinstance(problem, NriRefusalError):
            return session.failure(call.number, str(problem))
        # A mistake of ours stops no container.
        log.error("call not answered", extra={"method": call.method}, exc_info=problem)
        return self._give_up(session, call, f"{type(problem).__name__}: {problem}")

    def _give_up(self, session: NriSession, call: NriCall, why: str) -> bytes:
        try:
            return session.answer(call.number, self._plugin.give_up(call, why))
        except NriRefusalError as error:
            return session.failure(call.number, str(error))

    def _too_late(self) -> str:
        return f"no answer within {self._settings.answer_timeout_s:g} s"

    def _watch(self) -> None:
        """Answer for who takes too long, and let another thread go on."""
        while not self._stopping.wait(self._settings.answer_timeout_s / _LOOKS):
            question = self._question
            if question is None or question.is_over or time.monotonic() < question.due_s:
                continue
            with self._lock:
                if question.is_over:
                    continue
                question.is_over = True
                self._hung += 1
            conversation = question.conversation
            answer = self._give_up(conversation.session, question.call, self._too_late())
            with suppress(OSError):  # whoever leads then finds it out
                conversation.connection.sendall(answer)
            self._leader = self._new_leader(conversation)
            self._leader.start()
