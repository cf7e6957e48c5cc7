"""The audit trail of the descheduler: what became of each pod that a plugin wanted to go."""

from collections.abc import Callable

from koordinator.descheduler.evictor import MoveVerdict
from koordinator.domain.audit import AuditedPod, AuditEntry, AuditOutcome
from koordinator.domain.audit.entry import to_lines
from koordinator.foundation.clock import Clock


class MoveTrail:
    """Writes a line per verdict; ``sink`` takes lines of JSON."""

    def __init__(self, clock: Clock, sink: Callable[[bytes], None]) -> None:
        self._clock, self._sink = clock, sink

    def observe(self, verdict: MoveVerdict) -> None:
        """Write down a verdict."""
        self._sink(to_lines([entry_of(verdict, self._clock.now_s())]))


def entry_of(verdict: MoveVerdict, now_s: float) -> AuditEntry:
    """Return a verdict as an entry of the trail: ``node`` is the one that the pod leaves."""
    pod = verdict.pod
    parts = [verdict.reason]
    if verdict.stays is not None:
        parts.append(str(verdict.stays))
    if verdict.gain is not None:
        parts.append(f"gain: {verdict.gain.text}")
    if verdict.after:
        parts.append(f"after {', '.join(verdict.after)}")
    return AuditEntry(
        at_s=now_s,
        outcome=AuditOutcome.MOVED if verdict.stays is None else AuditOutcome.STAYS,
        profile=verdict.profile,
        pods=(AuditedPod(pod.key, verdict.target),),
        node=pod.spec.node_name,
        plugin=verdict.plugin,
        reason="; ".join(filter(None, parts)),
        job=_owner(verdict),
    )


def _owner(verdict: MoveVerdict) -> str:
    """Return the workload whose pod it is, ``namespace/name``."""
    meta = verdict.pod.metadata
    name = next((owner.name for owner in meta.owner_references if owner.controller), "")
    return f"{meta.namespace}/{name}" if name else ""
