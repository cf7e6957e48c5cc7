"""Unexpected exceptions, confined to one object and one part of the program.

A component has few places that catch every exception.  Each undoes the incomplete work, wraps the
exception in a ``Fault``, passes it to the component's handler and continues.  Without a handler the
fault is raised immediately, as in tests and simulations.
KeyboardInterrupt, SystemExit and MemoryError are never caught.
"""

from collections.abc import Callable
from dataclasses import dataclass

from koordinator.foundation.errors import BugError, ClusterError

_SHOWN = 300  # characters of the exception's text, which may quote the input of a tenant


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
        where = f'{self.stage} of "{self.source}"' if self.source else self.stage
        text = str(self.error)
        text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
        return f"internal error: {where}: {type(self.error).__name__}: {text}".removesuffix(": ")

    def __str__(self) -> str:
        return f"{self.about}: {self.problem}" if self.about else self.problem


def fault_of(stage: str, error: Exception, source: str = "", about: str = "") -> Fault:
    """Return the fault.  Raises the error itself if it is a ClusterError or MemoryError."""
    if isinstance(error, MemoryError | ClusterError):
        raise error
    return Fault(stage, error, source, about)


FaultHandler = Callable[[Fault], None]


def raise_fault(fault: Fault) -> None:
    """Raise the exception of a fault; the default handler."""
    raise fault.error


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
