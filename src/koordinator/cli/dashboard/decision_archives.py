"""Archives of a scheduler's decisions for ``koord dashboard``: its files, or its server."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from koordinator.cli.audit import AuditEntries, decode_answer, read_trail, trail_files
from koordinator.domain.audit import AuditEntry

_OVERLAP_S = 10.0  # requested again, since entries of one moment may arrive late


@dataclass(frozen=True, slots=True)
class FileArchive:
    """Files and folders of ``--audit-dir``; of several replicas they are put together."""

    paths: Sequence[Path]

    @property
    def title(self) -> str:
        """Their names."""
        return ", ".join(map(str, self.paths))

    def newest(self, most: int) -> Sequence[AuditEntry]:
        """Return so many entries, oldest first; of rotated files no more are read than needed.

        Raises InputError for what can't be read.
        """
        entries: list[AuditEntry] = []
        for path in self.paths:
            own: list[AuditEntry] = []
            for file in reversed(trail_files(path)):
                own[:0] = read_trail(file, lambda _: None)
                if len(own) >= most:
                    break
            entries += own[-most:]
        if len(self.paths) > 1:
            entries.sort(key=attrgetter("at_s"))
        return entries[-most:]


class ServerArchive:
    """Running scheduler; only new entries are requested."""

    def __init__(self, server: str, ask: Callable[[str, dict[str, str]], bytes]) -> None:
        """``ask`` sends a path and parameters, and returns the answer or raises ClusterError."""
        self.title = server
        self._ask = ask
        self._lock = threading.Lock()
        self._entries: list[AuditEntry] = []

    def newest(self, most: int) -> Sequence[AuditEntry]:
        """Return so many entries, oldest first, including those before a restart of the scheduler.

        Raises ClusterError if the scheduler does not answer.
        """
        with self._lock:
            from_s = max((e.at_s for e in self._entries[-most:]), default=0.0) - _OVERLAP_S
            parameters = {"limit": str(most), "since": str(max(from_s, 0.0))}
            answer = self._ask("/apis/v1/audit", parameters)
            fresh = decode_answer(answer, AuditEntries, self.title).entries
            known = [entry for entry in self._entries if entry.at_s < from_s]
            self._entries = [*known, *fresh][-most:]
            return self._entries
