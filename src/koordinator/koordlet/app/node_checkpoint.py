"""Local copy of the node's objects, for a start of the agent without an API server.

The file has one JSON object per line: the node, its NodeSLO and NodeMetric, and its pods, with the
fields that the agent reads.  The API server always takes precedence.
"""

import logging
import operator
from collections.abc import Sequence
from typing import Final

from koordinator.api.codec import decode_object, encode
from koordinator.api.meta import KubeObject
from koordinator.foundation.errors import HostError, InputError
from koordinator.host.port import Files

log = logging.getLogger(__name__)

FILE: Final = "node-state.json"
_PERIOD_S: Final = 10.0


class NodeCheckpoint:
    """Checkpoint in ``folder``; an empty folder disables it."""

    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        self._path = f"{folder}/{FILE}" if folder else ""
        self._saved: Sequence[KubeObject] = ()
        self._next_s = 0.0

    def read(self) -> list[KubeObject]:
        """Return the objects of the checkpoint; empty if it is missing or unreadable."""
        if not self._path:
            return []
        try:
            lines = self._files.read(self._path).splitlines()
            return [decode_object(line.encode()) for line in lines]
        except (HostError, InputError) as error:
            log.info("no checkpoint of the node restored", extra={"error": str(error)})
            return []

    def save(self, objects: Sequence[KubeObject], now_s: float) -> None:
        """Write the objects if they have changed, at most every ten seconds."""
        if not self._path or now_s < self._next_s or _are_same(objects, self._saved):
            return
        self._next_s = now_s + _PERIOD_S
        text = "\n".join(encode(each).decode() for each in objects)
        try:
            self._files.replace(self._path, text)
        except HostError as error:
            log.warning("checkpoint not written", extra={"error": str(error)})
            return
        self._saved = objects


def _are_same(objects: Sequence[KubeObject], others: Sequence[KubeObject]) -> bool:
    """Compare by identity and order: objects are frozen."""
    return len(objects) == len(others) and all(map(operator.is_, objects, others))
