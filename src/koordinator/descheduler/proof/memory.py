"""Which nodes the pods of a workload have left lately, so that none moves in a circle.

A pod that replaces another has a new name; what lasts is its workload.  A circle of any length
ends at a node that the workload has left before, so it is enough to remember these.
"""

from collections.abc import Mapping
from typing import Final

from koordinator.api.annotations.descheduling import PROVEN_MOVE
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import PodMigrationJob
from koordinator.foundation.clock import to_epoch_s
from koordinator.foundation.errors import InputError

SWEPT_EVERY: Final = 1024  # notes


def lineage_of(pod: Pod) -> str:
    """Return what a pod and its replacements have in common: the uid of their controller.

    A pod of a StatefulSet keeps its name, so its siblings are not meant; one that nobody controls
    has no replacement.
    """
    for owner in pod.metadata.owner_references:
        if owner.controller:
            uid = owner.uid or f"{pod.metadata.namespace}/{owner.kind}/{owner.name}"
            sticky = owner.kind == "StatefulSet"
            return f"{uid}/{pod.metadata.name}" if sticky else uid
    return pod.metadata.uid


class MoveMemory:
    """Nodes that were left not longer than ``lasts_s`` ago."""

    def __init__(self, lasts_s: float) -> None:
        self._lasts_s = lasts_s
        self._left_s: dict[tuple[str, str], float] = {}  # (lineage, node) -> when
        self._notes = 0

    def note(self, lineage: str, node: str, at_s: float) -> None:
        """Take note that a pod of a lineage leaves a node."""
        known_s = self._left_s.get((lineage, node), at_s)
        self._left_s[lineage, node] = max(known_s, at_s)
        self._notes += 1
        if self._notes % SWEPT_EVERY == 0:
            self._sweep(at_s)

    def observe(self, job: PodMigrationJob) -> None:
        """Take note of a move that some descheduler has begun: jobs outlive processes."""
        try:
            move = PROVEN_MOVE.read(job.metadata)
        except InputError:
            return
        if move is not None and move.lineage:
            self.note(move.lineage, move.source, to_epoch_s(job.metadata.creation_timestamp))

    def left_ago_s(self, lineage: str, node: str, now_s: float) -> float | None:
        """Return how long ago a pod of the lineage left the node; None: never, or too long ago."""
        left_s = self._left_s.get((lineage, node))
        if left_s is None or now_s - left_s >= self._lasts_s:
            return None
        return now_s - left_s

    def _sweep(self, now_s: float) -> None:
        kept: Mapping[tuple[str, str], float] = {
            key: at_s for key, at_s in self._left_s.items() if now_s - at_s < self._lasts_s
        }
        self._left_s = dict(kept)
