"""Connection of the NRI plugin to the runtime: reconnects, and answers each call in time.

The thread that reads a call also computes and sends the response, because a hand-over to another
thread could be delayed by the agent's loop.  If that takes too long, a watchdog sends a response
instead and starts another reader, so that a hanging hook costs its container only a fraction of the
runtime's timeout.  The runtime drops a plugin that is late or sends invalid responses, and starts
the container without it.
"""

import logging
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import field
from typing import Final, Protocol

from koordinator.foundation.errors import HostError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.host.nri.session import NriCall, NriRefusalError, NriSession

log = logging.getLogger(__name__)

_CHUNK: Final = 1 << 16
_MOST_HUNG: Final = 4  # threads in a hook whose call the watchdog has answered
_CHECKS: Final = 5  # of the watchdog, within the timeout of a response
_READY_POLL_S: Final = 0.1
_LONGEST_ANSWER_S: Final = 0.5


class NriPlugin(Protocol):
    """Plugin that answers the calls.

    Rule R1: the node agent, which implements it, is above ``host``.
    """

    @property
    def is_ready(self) -> bool: ...

    def answer(self, call: NriCall) -> object: ...

    def give_up(self, call: NriCall, why: str) -> object: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NriSettings:
    """Socket, identity of the plugin, and backoff of the connection attempts in seconds.

    The backoff grows by ``backoff_factor``, at most ``backoff_steps`` times, up to
    ``backoff_cap_s``.
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
    """Connection; its leader is the thread that reads calls and answers them."""

    connection: socket.socket
    session: NriSession
    calls: deque[NriCall] = field(default_factory=deque)  # received, not started
    is_reported: bool = False  # ``on_state`` was called with True


@dataclass(slots=True, eq=False)
class _PendingCall:
    """Call in progress; the leader or the watchdog sets ``is_over`` when it takes the response."""

    call: NriCall
    conversation: _Conversation
    due_s: float
    is_over: bool = False


@dataclass(slots=True)
class _Waiting:
    """Backoff before the next attempt to connect."""

    wait_s: float
    grown: int = 0
    problem: str = ""  # logged last


class _LostLeadError(Exception):
    """Another thread has become the leader of the conversation."""


class NriConnection:
    """Connection that is established when the plugin is ready, and restored after each loss.

    ``on_state`` is called with True when the runtime has registered the plugin, and with False
    when the connection is lost.
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
        self._pending: _PendingCall | None = None
        self._hung = 0  # threads in a hook whose call the watchdog has answered
        self._waiting = _Waiting(settings.backoff_s)
        self._leader = self._new_leader(None)
        self._watchdog = threading.Thread(target=self._watch, name="nri-watchdog", daemon=True)

    def start(self) -> None:
        """Start connecting."""
        self._leader.start()
        self._watchdog.start()

    def stop(self) -> None:
        """Close the connection.  Threads that hang in a hook are abandoned."""
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
        """Connect and converse until stopped, or until another thread becomes the leader."""
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
        """Wait before the next attempt, with growing backoff."""
        settings = self._settings
        if was_registered:
            self._waiting = _Waiting(settings.backoff_s)
        if self._stopping.is_set():
            return
        waiting = self._waiting
        if problem != waiting.problem:
            log.warning(
                "container runtime not reachable",
                extra={"socket": settings.socket_path, "error": problem},
            )
            waiting.problem = problem
        self._stopping.wait(waiting.wait_s)
        if waiting.grown < settings.backoff_steps:
            waiting.wait_s = min(waiting.wait_s * settings.backoff_factor, settings.backoff_cap_s)
            waiting.grown += 1

    def _converse(self, conversation: _Conversation | None) -> tuple[bool, str]:
        """Return whether the runtime registered the plugin, and why the connection ended.

        ``conversation`` is one to go on with.  Raises _LostLeadError.
        """
        try:
            if conversation is None:
                conversation = self._connect()
            problem = self._answer_calls(conversation)
        except (OSError, HostError) as error:
            problem = str(error)
        if conversation is None:
            return False, problem
        with self._lock:
            self._socket = None
        conversation.connection.close()
        if conversation.is_reported:
            self._report_state(False)
        return conversation.is_reported, problem

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

    def _answer_calls(self, conversation: _Conversation) -> str:
        """Answer the calls of the runtime; return why the connection ended."""
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
            if session.is_registered and not conversation.is_reported:
                conversation.is_reported = True
                connection.settimeout(None)
                self._report_state(True)
            data = connection.recv(_CHUNK)
            if not data:
                return "the runtime hung up"
            calls.extend(session.receive(data))
        return "stopped"

    def _report_state(self, is_connected: bool) -> None:
        if self._on_state is not None:
            self._on_state(is_connected)

    # -- answers -----------------------------------------------------------------------------

    def _answer(self, conversation: _Conversation, call: NriCall) -> bytes:
        """Return the response to a call.  Raises _LostLeadError if the watchdog was faster."""
        session = conversation.session
        if call.request is None:
            return self._give_up(session, call, call.problem)
        if self._hung >= _MOST_HUNG:
            return self._give_up(session, call, self._too_late())
        due_s = time.monotonic() + self._settings.answer_timeout_s
        pending = self._pending = _PendingCall(call, conversation, due_s)
        answer: object = None
        problem: Exception | None = None
        try:
            answer = self._plugin.answer(call)
        except Exception as error:  # noqa: BLE001 -- reported below
            problem = error
        with self._lock:
            if pending.is_over:
                self._hung -= 1
                raise _LostLeadError
            pending.is_over = True
        if problem is None:
            return session.answer(call.number, answer)
        if isinstance(problem, NriRefusalError):
            return session.failure(call.number, str(problem))
        # An error of ours must not block a container.
        log.error("NRI call failed", extra={"method": call.method}, exc_info=problem)
        return self._give_up(session, call, f"{type(problem).__name__}: {problem}")

    def _give_up(self, session: NriSession, call: NriCall, why: str) -> bytes:
        try:
            return session.answer(call.number, self._plugin.give_up(call, why))
        except NriRefusalError as error:
            return session.failure(call.number, str(error))

    def _too_late(self) -> str:
        return f"no answer within {self._settings.answer_timeout_s:g} s"

    def _watch(self) -> None:
        """Answer calls that take too long, and start another leader."""
        while not self._stopping.wait(self._settings.answer_timeout_s / _CHECKS):
            pending = self._pending
            if pending is None or pending.is_over or time.monotonic() < pending.due_s:
                continue
            with self._lock:
                if pending.is_over:
                    continue
                pending.is_over = True
                self._hung += 1
            conversation = pending.conversation
            answer = self._give_up(conversation.session, pending.call, self._too_late())
            with suppress(OSError):  # the new leader detects a broken connection
                conversation.connection.sendall(answer)
            self._leader = self._new_leader(conversation)
            self._leader.start()
