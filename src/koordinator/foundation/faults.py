"""Exceptions that nobody foresaw, kept to the object and the part of the program that they are of.

A component has few places that catch everything.  Each undoes what was half done, makes a ``Fault``
of the exception, hands it to the component's handler and goes on with the rest.  Without a handler
the fault is raised there and then: so it is in tests and simulations.
KeyboardInterrupt, SystemExit and MemoryError are nobody's fault: they are never caught.
"""

from collections.abc import Callable
from dataclasses import dataclass

from koordinator.foundation.errors import BugError, ClusterError

_SHOWN = 300  # characters of what an exception says: it may quote what a tenant wrote


@dataclass(frozen=True, slots=True)
class Fault:
    """An exception nobody foresaw.

    ``stage`` is what was being done, of a closed set, ``source`` the plugin, controller or strategy
    that did it, empty if it is no one's; ``about`` is the object, as messages call it.
    """

    stage: str
    error: Exception
    source: str = ""
    about: str = ""

    @property
    def problem(self) -> str:
        """What is told to whom it concerns."""
        where = f'{self.stage} of "{self.source}"' if self.source else self.stage
        said = str(self.error)
        said = said if len(said) <= _SHOWN else f"{said[:_SHOWN]}…"
        return f"internal error: {where}: {type(self.error).__name__}: {said}".removesuffix(": ")

    def __str__(self) -> str:
        return f"{self.about}: {self.problem}" if self.about else self.problem


def fault_of(stage: str, error: Exception, source: str = "", about: str = "") -> Fault:
    """Return the fault.  Raises what is none: the cluster's refusals, and lack of memory."""
    if isinstance(error, MemoryError | ClusterError):
        raise error
    return Fault(stage, error, source, about)


FaultHandler = Callable[[Fault], None]


def raise_fault(fault: Fault) -> None:
    """Raise what happened: the handler of whoever has none."""
    raise fault.error


class FaultLog:
    """A handler for commands: the work goes on, and ``check`` tells afterwards."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []

    def __call__(self, fault: Fault) -> None:
        self.faults.append(fault)

    def check(self) -> None:
        """Raise BugError with every fault, if there are any."""
        if self.faults:
            said = "; ".join(dict.fromkeys(map(str, self.faults)))
            raise BugError(f"{said}. Please report this.") from self.faults[0].error
