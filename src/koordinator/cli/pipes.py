"""Standard output that ends the program quietly when nobody reads it any more: ``| head``.

Any other failure to write is told in a sentence: a full disk.
"""

import os
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import Any, Final, TextIO

from koordinator.foundation.errors import KoordinatorError

READER_GONE: Final = 141  # what a shell says of a program that SIGPIPE has ended


class ReaderGone(SystemExit):
    """Nobody reads standard output any more, so nothing is left to do."""


class _PipeEnd(FileIO):
    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            self._go_nowhere()
            raise ReaderGone(READER_GONE) from None
        except OSError as error:
            self._go_nowhere()
            text = f"standard output: can't be written: {error.strerror}"
            raise KoordinatorError(text) from None

    def _go_nowhere(self) -> None:
        """Take what is still buffered: it must not fail again."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)


def stream_to(stdout: TextIO) -> TextIO:
    """Return a stream to the same file, which raises ReaderGone once its reader has gone.

    KoordinatorError is raised for whatever else makes writing fail.

    SIGPIPE itself stays ignored: it would end a server whose client hangs up.
    """
    stdout.flush()
    raw = _PipeEnd(stdout.fileno(), "w", closefd=False)
    return TextIOWrapper(
        BufferedWriter(raw),
        encoding=stdout.encoding,
        errors=stdout.errors,
        line_buffering=stdout.isatty(),
    )
