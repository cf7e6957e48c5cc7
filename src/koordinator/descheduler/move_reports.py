"""Reports of move verdicts: events about skipped moves, and the audit trail."""

from collections.abc import Callable
from typing import Final

from koordinator.cluster.port import Cluster
from koordinator.descheduler.contract import SkippedMove
from koordinator.descheduler.evictor import MoveVerdict
from koordinator.descheduler.migration.jobs import JobAnnouncement, event_about
from koordinator.domain.audit import AuditedPod, AuditEntry, AuditOutcome, to_lines
from koordinator.foundation.clock import Clock

NOT_MOVED: Final = "NotMoved"  # Pod: a plugin wanted to evict it, and a limit or proof forbids it
FEWEST_S: Final = 300.0
MOST_KNOWN: Final = 1 << 14  # entries; beyond it the table is cleared and events may repeat


class SkippedMoveEvents:
    """Reporter of events about skipped moves, once per pod and reason in ``again_after_s``."""

    def __init__(self, cluster: Cluster, clock: Clock, again_after_s: float) -> None:
        self._cluster, self._clock = cluster, clock
        self._again_after_s = max(again_after_s, FEWEST_S)
        self._reported_s: dict[tuple[str, str], float] = {}  # (uid, why) -> when

    def observe(self, verdict: MoveVerdict) -> None:
        """Report a skipped move unless it was reported recently; limits are not reported."""
        skipped, pod, now_s = verdict.skipped, verdict.pod, self._clock.now_s()
        if not isinstance(skipped, SkippedMove):
            return
        key = (pod.metadata.uid, skipped.why)
        reported_s = self._reported_s.get(key)
        if reported_s is not None and now_s - reported_s < self._again_after_s:
            return
        if len(self._reported_s) >= MOST_KNOWN:
            self._reported_s.clear()
        self._reported_s[key] = now_s
        origin = f"; requested by {verdict.plugin}: {verdict.reason}" if verdict.reason else ""
        announcement = JobAnnouncement(NOT_MOVED, f"{skipped}{origin}")
        self._cluster.report([event_about(pod, announcement, now_s)])


class MoveTrail:
    """Audit trail of the descheduler; ``sink`` receives one line of JSON per verdict."""

    def __init__(self, clock: Clock, sink: Callable[[bytes], None]) -> None:
        self._clock, self._sink = clock, sink

    def observe(self, verdict: MoveVerdict) -> None:
        """Write the entry of a verdict."""
        self._sink(to_lines([entry_of(verdict, self._clock.now_s())]))


def entry_of(verdict: MoveVerdict, now_s: float) -> AuditEntry:
    """Return the audit entry of a verdict; ``node`` is the node of the pod."""
    pod = verdict.pod
    owner = pod.metadata.controller
    parts = [verdict.reason]
    if verdict.skipped is not None:
        parts.append(str(verdict.skipped))
    if verdict.gain is not None:
        parts.append(f"gain: {verdict.gain.text}")
    if verdict.after:
        parts.append(f"after {', '.join(verdict.after)}")
    return AuditEntry(
        at_s=now_s,
        outcome=AuditOutcome.MOVED if verdict.skipped is None else AuditOutcome.STAYS,
        profile=verdict.profile,
        pods=(AuditedPod(pod.key, verdict.target),),
        node=pod.spec.node_name,
        plugin=verdict.plugin,
        reason="; ".join(filter(None, parts)),
        job="" if owner is None else f"{pod.metadata.namespace}/{owner.name}",
    )
