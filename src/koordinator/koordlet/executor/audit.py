"""Audit trail of changes to the machine, in memory and in rotated files.

Source: koordinator pkg/koordlet/audit/auditor.go, event_logger.go (names, sizes, JSON fields).
"""

import datetime as dt
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from koordinator.foundation.clock import to_datetime
from koordinator.foundation.decoders import decode_json
from koordinator.foundation.errors import HostError
from koordinator.host.port import Files

LOG_NAME: Final = "audit.log"
ROTATED_BYTES: Final = 2 << 20
KEPT_EVENTS: Final = 2048  # in memory


class AuditEvent(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Change of the machine, or a failed attempt.

    ``type`` is cgroup, file, resctrl, oom, core, network, hook or eviction; ``owner`` a pod, a tier
    or the node; ``target`` the file.
    """

    created_at: dt.datetime
    type: str
    owner: str = ""
    target: str = ""
    before: str = ""
    after: str = ""
    reason: str = ""
    error: str = ""

    @property
    def message(self) -> str:
        """The event as one line of text."""
        change = f"{self.target}: {self.before or '?'} -> {self.after}" if self.after else ""
        outcome = f" FAILED: {self.error}" if self.error else ""
        return f"{self.owner} {change or self.target}{outcome} ({self.reason})".strip()


class AgentAuditTrail:
    """Audit trail: the newest events in memory, and files in ``folder`` up to ``most_bytes``.

    Without a folder there are no files.  A failed write to the folder is recorded in ``problem``
    and never prevents a change of the machine.
    """

    def __init__(self, files: Files, folder: str = "", most_bytes: int = 16 << 20) -> None:
        self.events: deque[AuditEvent] = deque(maxlen=KEPT_EVENTS)
        self._files = files
        self._folder = folder
        self._kept_files = max(most_bytes // ROTATED_BYTES, 1)
        self._pending: list[bytes] = []
        self._written = 0
        self.problem = ""  #: error of the last flush; empty if it succeeded

    def add(self, event: AuditEvent) -> None:
        """Record an event; ``flush`` writes it to the file."""
        self.events.append(event)
        if self._folder:
            self._pending.append(msgspec.json.encode(event))

    def flush(self, now_s: float) -> None:
        """Write the recorded events in one append."""
        if not self._pending:
            return
        lines = b"\n".join(self._pending).decode() + "\n"
        self._pending.clear()
        path = f"{self._folder}/{LOG_NAME}"
        try:
            if self._written + len(lines) > ROTATED_BYTES:
                self._rotate(path, now_s)
            self._files.append(path, lines)
        except HostError as error:
            self.problem = str(error)
            return
        self.problem = ""
        self._written += len(lines)

    def _rotate(self, path: str, now_s: float) -> None:
        stamp = to_datetime(now_s).strftime("%Y%m%d%H%M%S")
        if self._files.exists(path):
            self._files.replace(f"{self._folder}/audit-{stamp}-0.log", self._files.read(path))
            self._files.remove(path)
        self._written = 0
        old = [name for name in self._files.names(self._folder) if name.startswith("audit-")]
        for name in old[: max(len(old) - self._kept_files + 1, 0)]:
            self._files.remove(f"{self._folder}/{name}")


def read_events(files: Files, folder: str) -> Iterator[AuditEvent]:
    """Yield the events in the files of a folder, the newest first.

    Undecodable lines, such as the last one after a crash, are skipped.
    Raises HostError if there is no log.
    """
    names = sorted(name for name in files.names(folder) if name.startswith("audit-"))
    paths = [f"{folder}/{LOG_NAME}", *(f"{folder}/{name}" for name in reversed(names))]
    if not any(files.exists(path) for path in paths):
        raise HostError(f"no audit log in {folder}")
    for path in paths:
        if files.exists(path):
            yield from _decoded(files.read(path).split("\n"))


def _decoded(lines: Sequence[str]) -> Iterator[AuditEvent]:
    for line in reversed(lines):
        try:
            yield decode_json(line, AuditEvent)
        except (msgspec.ValidationError, msgspec.DecodeError):
            continue
