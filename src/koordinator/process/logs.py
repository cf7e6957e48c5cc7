"""Logging of a process, and files that are rotated.

Code logs ``log.warning("pod not bound", extra={"pod": key, "error": text})``: a constant message,
and what varies as ``extra``.  Both formats show every extra.

Source: k8s.io/klog/v2 klog.go and internal/serialize; k8s.io/component-base logs/json/json.go.
"""

import datetime as dt
import json
import logging
import os
import sys
from enum import StrEnum
from io import FileIO
from pathlib import Path
from typing import Any, TextIO

import msgspec

from koordinator.foundation.clock import UTC
from koordinator.foundation.errors import InputError
from koordinator.foundation.files import open_private

DEBUG_FROM = 4  # the verbosity that Kubernetes calls debug level
EVERYTHING_FROM = 8  # from here on libraries log their details too
_MOST_DIGITS = 3

_OURS = __name__.partition(".")[0]
_NOT_EXTRA = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}

LARGEST_BYTES = 64 << 20
KEPT = 8  # former files

log = logging.getLogger(__name__)


class LogFormat(StrEnum):
    """The values of ``--logging-format``."""

    TEXT = "text"
    JSON = "json"


class _LineFormatter(logging.Formatter):
    r"""Formatter that escapes users' text, so that it affects no terminal and no other line.

    Every character that can't be printed is escaped as in JSON, a line break, too.  Subclasses
    give one line in ``line``; a traceback follows, indented.
    """

    def format(self, record: logging.LogRecord) -> str:
        text = escaped(self.line(record))
        if record.exc_info and self.shows_traceback:
            lines = self.formatException(record.exc_info).split("\n")
            text += "".join(f"\n    {escaped(line)}" for line in lines)
        return text

    shows_traceback = False

    def line(self, record: logging.LogRecord) -> str:
        """Return the record without its traceback."""
        raise NotImplementedError


class TextFormatter(_LineFormatter):
    r"""One line: ``W0203 15:04:05.123456 7 koordinator.x] "message" pod="a/b" tries=2``.

    The letter is the level, then come month and day, time (UTC), process and logger.  Strings are
    quoted as in JSON, so that what a user typed can't begin a line of its own.  A traceback follows
    on further lines.
    """

    shows_traceback = True

    def line(self, record: logging.LogRecord) -> str:
        when = dt.datetime.fromtimestamp(record.created, UTC)
        line = (
            f"{record.levelname[0]}{when:%m%d %H:%M:%S.%f} {record.process:7} {record.name}] "
            f"{_shown(record.getMessage())}"
        )
        return line + "".join(f" {name}={_shown(value)}" for name, value in _extras(record))


class JsonFormatter(_LineFormatter):
    """One object per line: ``ts`` in milliseconds since the epoch, msg, level, logger, extras."""

    def line(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "ts": round(record.created * 1e3, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        line |= {name: value for name, value in _extras(record) if name not in line}
        if record.exc_info:
            line["stacktrace"] = self.formatException(record.exc_info)
        try:
            return msgspec.json.encode(line, enc_hook=str).decode()
        except UnicodeEncodeError:  # half a character, as in the name of a file
            return json.dumps(line, default=str, ensure_ascii=False)


class PlainFormatter(_LineFormatter):
    """Formatter of sentences for users of a command: ``warning: pod not bound (pod: a/b)``."""

    def line(self, record: logging.LogRecord) -> str:
        fields = ", ".join(f"{name}: {value}" for name, value in _extras(record))
        details = f" ({fields})" if fields else ""
        return f"{record.levelname.lower()}: {record.getMessage()}{details}"


def escaped(text: str) -> str:
    r"""Return a text with ``\\u001b`` and the like for every character that can't be printed."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def print_warnings(stream: TextIO | None = None) -> None:
    """Print warnings and worse, until ``set_up_logging`` decides otherwise."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(PlainFormatter())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger(_OURS).setLevel(logging.WARNING)


def set_up_logging(
    log_format: LogFormat = LogFormat.TEXT, verbosity: int = 0, stream: TextIO | None = None
) -> None:
    """Send what is logged from now on to ``stream`` (standard error), in place of any before."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format is LogFormat.JSON else TextFormatter())
    logging.basicConfig(handlers=[handler], force=True)
    _set_levels(verbosity)


def set_verbosity(text: str) -> str:
    """Change how much is logged, as ``-v`` does; return a sentence about it.

    From 0 on what operators want to know, from 4 on details, from 8 on details of libraries too.
    Raises InputError if the text is no such number.
    """
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS):
        problem = f"must be an integer from 0 to 999, got {text[:20]!r}"
        raise InputError(problem, path="v")
    verbosity = int(digits)
    _set_levels(verbosity)
    return f"successfully set verbosity to {verbosity}"


def _set_levels(verbosity: int) -> None:
    ours = logging.DEBUG if verbosity >= DEBUG_FROM else logging.INFO
    others = logging.DEBUG if verbosity >= EVERYTHING_FROM else logging.WARNING
    logging.getLogger(_OURS).setLevel(ours)
    logging.getLogger().setLevel(others)


def _extras(record: logging.LogRecord) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in vars(record).items() if name not in _NOT_EXTRA]


def _shown(value: object) -> str:
    if isinstance(value, bool | int | float | None):
        return str(value)
    return json.dumps(str(value), ensure_ascii=False)


class RotatedFile:
    """Appends to a file; at ``largest_bytes`` it becomes ``NAME.1``, that ``NAME.2``, and so on.

    The oldest of ``kept`` former files is deleted.  Lines that can't be written, such as on a full
    disk, are dropped, and the failure is logged once.  A line that was truncated by a full disk or
    by the end of a process is terminated before the next.  Only the owner may read the files.
    Raises InputError if the folder can't be used.
    """

    def __init__(
        self, folder: Path, name: str, *, largest_bytes: int = LARGEST_BYTES, kept: int = KEPT
    ) -> None:
        self._path, self._largest_bytes, self._kept = folder / name, largest_bytes, kept
        self._failed = self._is_torn = False
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = self._open()
            for number in range(1, kept + 1):
                if self._former(number).is_file():  # as another version has left it
                    self._former(number).chmod(0o600)
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror}", source=str(folder)) from None

    def write(self, lines: bytes) -> None:
        """Append whole lines."""
        try:
            if self._file.tell() and self._file.tell() + len(lines) > self._largest_bytes:
                self._rotate()
            if self._is_torn:
                lines = b"\n" + lines
            written = self._file.write(lines)
        except OSError as error:
            self._lose(error.strerror)
        else:
            self._is_torn = written < len(lines)
            if self._is_torn:
                self._lose("the disk is full")
            else:
                self._failed = False

    def _lose(self, why: str | None) -> None:
        if not self._failed:
            log.warning("lines are lost", extra={"path": str(self._path), "error": why})
        self._failed = True

    def close(self) -> None:
        self._file.close()

    def _open(self) -> FileIO:
        flags = os.O_RDWR | os.O_APPEND
        file = FileIO(open_private(self._path, flags), "a+")
        size = file.tell()
        if size:
            file.seek(size - 1)
        self._is_torn = bool(size) and file.read(1) != b"\n"
        return file

    def _rotate(self) -> None:
        for number in range(self._kept - 1, 0, -1):
            former = self._former(number)
            if former.exists():
                former.replace(self._former(number + 1))
        self._path.replace(self._former(1))
        self._file.close()
        self._file = self._open()

    def _former(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")
