"""How far reading is, for people at a terminal who wait for a large file."""

import sys
from typing import Final, TextIO

from koordinator.foundation.clock import Clock, SystemClock
from koordinator.foundation.files import MEBI

PATIENCE_S: Final = 2.0  # before anything is shown
INTERVAL_S: Final = 0.5


class ReadingProgress:
    """A line on standard error that replaces itself, and is gone at the end."""

    def __init__(self, stream: TextIO | None = None, clock: Clock | None = None) -> None:
        self._stream, self._clock = stream or sys.stderr, clock or SystemClock()
        self._next_s = self._clock.now_s() + PATIENCE_S
        self._is_shown = False

    def show(self, source: str, done: int, total: int) -> None:
        """Say that so many bytes of so many have been read, unless that was said just now."""
        if not self._stream.isatty() or self._clock.now_s() < self._next_s:
            return
        self._next_s = self._clock.now_s() + INTERVAL_S
        self._is_shown = True
        self._stream.write(f"\r\033[Kreading {source}: {done / MEBI:.0f} of {total / MEBI:.0f} MiB")
        self._stream.flush()

    def end(self) -> None:
        """Take the line away."""
        if self._is_shown:
            self._stream.write("\r\033[K")
            self._stream.flush()
