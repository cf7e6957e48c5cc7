"""Ctrl-C during a long run: keep what there is; a second one ends the program at once."""

import signal
from types import FrameType, TracebackType
from typing import Final, Self

from koordinator.cli.output import warn
from koordinator.simulator.interruption import RunInterrupted

INTERRUPTED: Final = 130  # what a shell says of a program that SIGINT has ended


class Interruption:
    """Between ``with`` and its end, the first Ctrl-C is only remembered."""

    def __init__(self) -> None:
        self.asked = False

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._ask)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        signal.signal(signal.SIGINT, self._before)

    def check(self) -> None:
        """Raise RunInterrupted once Ctrl-C has been pressed."""
        if self.asked:
            raise RunInterrupted

    def _ask(self, _signal: int, _frame: FrameType | None) -> None:
        self.asked = True
        signal.signal(signal.SIGINT, self._before)


def tell_interrupted(done: str) -> None:
    """Say how far a run was when it was ended."""
    warn(f"ended by Ctrl-C; the figures are of {done}")
