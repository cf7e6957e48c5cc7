"""Handler of Ctrl-C in long runs: the first keeps the result so far, the second ends the run."""

import signal
from types import FrameType, TracebackType
from typing import Final, Self

from koordinator.cli.output import warn
from koordinator.simulator.run import RunInterrupted

INTERRUPTED: Final = 130  # the status that a shell reports for a program ended by SIGINT


class Interruption:
    """Context in which the first Ctrl-C only sets ``is_requested``."""

    def __init__(self) -> None:
        self.is_requested = False

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._request)
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
        if self.is_requested:
            raise RunInterrupted

    def _request(self, _signal: int, _frame: FrameType | None) -> None:
        self.is_requested = True
        signal.signal(signal.SIGINT, self._before)


def warn_interrupted(progress: str) -> None:
    """Print how far a run was when Ctrl-C ended it."""
    warn(f"ended by Ctrl-C; the figures are of {progress}")
