"""Error types by who must act, and the handler of faults in the program itself.

KoordinatorError
├── InputError      a file the user gave is wrong: fix the file (exit code 2)
├── ClusterError    the API server refused or failed: the caller decides whether to retry
│   ├── NotFoundError, AlreadyExistsError, ConflictError, InvalidError
│   ├── TooManyRequestsError  the same request may succeed later
│   └── GoneError             the requested history is no longer kept: list again
├── ExtenderError   a scheduler extender failed or sent an invalid answer: its operator must act
│   └── SilentExtenderError   it can't be reached, or took too long
├── HostError       the node rejected or failed an operation: the value was not written
│   └── MissingFileError      it does not exist any more, or never did
└── BugError        an invariant of this program is broken: report it

A rejected pod is not an error: it is a code per node and a reason.

A component has few places that catch every exception.  Each undoes the incomplete work, wraps the
exception in a ``Fault``, passes it to the component's handler and continues.  Without a handler the
fault is raised immediately, as in tests and simulations.
KeyboardInterrupt, SystemExit and MemoryError are never caught.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.text import cut

_SHOWN = 300  # characters of the exception's text, which may quote the input of a tenant


class KoordinatorError(Exception):
    """Base of everything this project raises on purpose."""


class InputError(KoordinatorError):
    """Input that a user must correct.

    ``source`` names the file, ``subject`` the object in it, ``path`` the field
    (``spec.foo[0].bar``).  ``problem`` has one of these forms:

    - ``must be EXPECTED, got VALUE``, such as ``must be at least 1, got 0``;
    - ``is required``, or ``is required and must be EXPECTED``;
    - ``unknown field; did you mean "enabled"?``, or the known names where none is similar;
    - ``requires --trace`` and ``can't be used with --trace`` for flags.
    """

    def __init__(
        self, problem: str, *, source: str = "", subject: str = "", path: str = ""
    ) -> None:
        self.problem, self.source, self.subject, self.path = problem, source, subject, path
        super().__init__(": ".join(part for part in (source, subject, path, problem) if part))

    def within(self, *, source: str = "", subject: str = "", path: str = "") -> "InputError":
        """Return the same problem with the blanks filled in by a caller who knows more.

        A ``path`` given here is put in front of the one already known.
        """
        joined = path + self.path if self.path.startswith("[") or not path else path
        if path and self.path and not self.path.startswith("["):
            joined = f"{path}.{self.path}"
        return InputError(
            self.problem,
            source=self.source or source,
            subject=self.subject or subject,
            path=joined,
        )


class ClusterError(KoordinatorError):
    """The API server answered with a failure."""


class NotFoundError(ClusterError):
    """The object does not exist (HTTP 404)."""


class AlreadyExistsError(ClusterError):
    """An object of that name exists (HTTP 409, reason AlreadyExists)."""


class ConflictError(ClusterError):
    """The object changed since it was read (HTTP 409, reason Conflict)."""


class InvalidError(ClusterError):
    """The request is malformed, or admission or validation refused it (HTTP 400, 403 or 422)."""


class TooManyRequestsError(ClusterError):
    """Not now: a disruption budget is used up, or the server is busy (HTTP 429)."""


class GoneError(ClusterError):
    """The changes since that version are no longer known (HTTP 410): list again."""


class ExtenderError(KoordinatorError):
    """A scheduler extender did not answer, refused, or answered what makes no sense."""


class SilentExtenderError(ExtenderError):
    """A scheduler extender can't be reached, or took too long."""


class HostError(KoordinatorError):
    """The machine refused or failed: a read-only file, a value that the kernel doesn't take."""


class MissingFileError(HostError):
    """There is no such file (any more): a pod has ended, or the kernel lacks the feature."""


class BugError(KoordinatorError):
    """An invariant of this program does not hold."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Unexpected exception with its context.

    ``stage`` is the operation, from a closed set; ``source`` is the plugin, controller or strategy,
    or empty; ``about`` is the name of the object in messages.
    """

    stage: str
    error: Exception
    source: str = ""
    about: str = ""

    @property
    def problem(self) -> str:
        """Text of the fault for logs, events and conditions."""
        origin = f'{self.stage} of "{self.source}"' if self.source else self.stage
        text = cut(str(self.error), _SHOWN)
        return f"internal error: {origin}: {type(self.error).__name__}: {text}".removesuffix(": ")

    def __str__(self) -> str:
        return f"{self.about}: {self.problem}" if self.about else self.problem


def fault_of(stage: str, error: Exception, source: str = "", about: str = "") -> Fault:
    """Return the fault.  Raises the error itself if it is a ClusterError or MemoryError."""
    if isinstance(error, MemoryError | ClusterError):
        try:
            raise error
        finally:
            del error  # the traceback refers to this frame
    return Fault(stage, error, source, about)


FaultHandler = Callable[[Fault], None]


def raise_fault(fault: Fault) -> None:
    """Raise the exception of a fault; the default handler."""
    try:
        raise fault.error
    finally:
        del fault  # the traceback refers to this frame


class FaultLog:
    """Handler for commands: collects faults, which ``check`` raises at the end."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []

    def __call__(self, fault: Fault) -> None:
        self.faults.append(fault)

    def check(self) -> None:
        """Raise BugError with every fault, if there are any."""
        if self.faults:
            texts = "; ".join(dict.fromkeys(map(str, self.faults)))
            raise BugError(f"{texts}. Please report this.") from self.faults[0].error


def not_installed(extra: str) -> str:
    """Return the end of a message about a library that comes with an extra of this package."""
    return f"is not installed; run: pip install 'koordinator[{extra}]'"


def library(name: str) -> Any:
    """Return an optional module.  Raises InputError with the command that installs it."""
    try:
        return import_module(name)
    except ModuleNotFoundError:
        raise InputError(not_installed("research"), source=name.partition(".")[0]) from None
