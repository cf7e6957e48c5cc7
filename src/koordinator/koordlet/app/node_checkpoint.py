"""A local copy of the objects that concern the node, for an agent that starts without API server.

It is in JSON lines: the node, its NodeSLO and NodeMetric, and its pods, as far as the agent reads
them.  It is never believed where the API server can be asked.
"""

import logging
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
    """``folder`` is where the copy is; empty keeps none."""

    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        self._path = f"{folder}/{FILE}" if folder else ""
        self._kept: Sequence[KubeObject] = ()
        self._next_s = 0.0

    def read(self) -> list[KubeObject]:
        """Return the objects of the copy; none if there is none, or it can't be read."""
        if not self._path:
            return []
        try:
            lines = self._files.read(self._path).splitlines()
            return [decode_object(line.encode()) for line in lines]
        except (HostError, InputError) as error:
            log.info("no checkpoint of the node", extra={"error": str(error)})
            return []

    def keep(self, objects: Sequence[KubeObject], now_s: float) -> None:
        """Write what has changed, at most every ten seconds."""
        if not self._path or now_s < self._next_s or _are_same(objects, self._kept):
            return
        self._next_s = now_s + _PERIOD_S
        text = "\n".join(encode(each).decode() for each in objects)
        try:
            self._files.replace(self._path, text)
        except HostError as error:
            log.warning("checkpoint not written", extra={"error": str(error)})
            return
        self._kept = objects


def _are_same(objects: Sequence[KubeObject], others: Sequence[KubeObject]) -> bool:
    """Return whether these are the same objects, which are frozen, in the same order."""
    return len(objects) == len(others) and all(map(_is_same, objects, others))


def _is_same(one: KubeObject, other: KubeObject) -> bool:
    return one is other
