"""Aggregates of an audit trail."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import TypeVar

import msgspec

from koordinator.domain.audit.entry import AuditEntry, AuditOutcome

CauseT = TypeVar("CauseT")

#: Minimum number of closings of a flapping node.
FLAPS_FROM = 2


class PluginTime(msgspec.Struct, frozen=True, rename="camel"):
    """Seconds spent in a plugin at an extension point."""

    plugin: str
    point: str
    seconds: float
    share: float  # fraction of the time of all plugins
    pods: int  # pods decided in that period


class RejectedJob(msgspec.Struct, frozen=True, rename="camel"):
    """A job whose pods were rejected."""

    job: str
    rejections: int
    pods: int  # distinct pods
    plugin: str  # most frequent deciding plugin
    reason: str  # most frequent reason


class FlappingNode(msgspec.Struct, frozen=True, rename="camel"):
    """A node that became unschedulable repeatedly."""

    node: str
    closed: int  # times
    reason: str  # most frequent reason


class AuditSummary(msgspec.Struct, frozen=True, rename="camel"):
    """Aggregates from ``from_s`` to ``to_s``, seconds since the epoch; worst first."""

    entries: int
    from_s: float
    to_s: float
    pods: dict[str, int]  # outcome -> pods
    decisive: dict[str, int]  # plugin -> pods whose rejection it decided
    deciding_s: float
    slowest: tuple[PluginTime, ...]
    rejected: tuple[RejectedJob, ...]
    flapping: tuple[FlappingNode, ...]


def summarise(entries: Iterable[AuditEntry], most: int = 10) -> AuditSummary:
    """Aggregate entries; every list has at most ``most`` rows."""
    tally = _Tally()
    for entry in entries:
        tally.add(entry)
    return tally.summary(most)


class _Tally:
    def __init__(self) -> None:
        self._times: list[float] = []
        self._pods: Counter[str] = Counter()
        self._decisive: Counter[str] = Counter()
        self._spent_us: Counter[str] = Counter()
        self._attempted_pods: Counter[str] = Counter()
        self._jobs: defaultdict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
        self._members: defaultdict[str, set[str]] = defaultdict(set)
        self._closed: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._deciding_s = 0.0

    def add(self, entry: AuditEntry) -> None:
        self._times.append(entry.at_s)
        self._deciding_s += entry.took_s
        if entry.pods:
            self._pods[entry.outcome] += len(entry.pods)
        if entry.outcome is AuditOutcome.PLUGIN_TIMES:
            for where, spent_us in entry.spent_us.items():
                self._spent_us[where] += spent_us
                self._attempted_pods[where] += entry.turn_pods
        elif entry.outcome is AuditOutcome.NODE_CLOSED:
            self._closed[entry.node][entry.reason] += 1
        elif entry.outcome in (AuditOutcome.UNSCHEDULABLE, AuditOutcome.FAILED):
            if entry.plugin:
                self._decisive[entry.plugin] += len(entry.pods)
            for audited in entry.pods:
                job = entry.job or audited.pod
                self._jobs[job][entry.plugin, entry.reason] += 1
                self._members[job].add(audited.pod)

    def summary(self, most: int) -> AuditSummary:
        spent_us = self._spent_us.total()
        return AuditSummary(
            entries=len(self._times),
            from_s=min(self._times, default=0.0),
            to_s=max(self._times, default=0.0),
            pods=dict(self._pods.most_common()),
            decisive=dict(self._decisive.most_common(most)),
            deciding_s=self._deciding_s,
            slowest=tuple(
                PluginTime(
                    plugin, point, us / 1e6, us / max(spent_us, 1), self._attempted_pods[where]
                )
                for where, us in self._spent_us.most_common(most)
                for point, _, plugin in [where.partition("/")]
            ),
            rejected=tuple(self._rejected(job) for job in _worst(self._jobs)[:most]),
            flapping=tuple(
                FlappingNode(node, self._closed[node].total(), _first(self._closed[node]))
                for node in _worst(self._closed)[:most]
                if self._closed[node].total() >= FLAPS_FROM
            ),
        )

    def _rejected(self, job: str) -> RejectedJob:
        causes = self._jobs[job]
        plugin, reason = _first(causes)
        return RejectedJob(job, causes.total(), len(self._members[job]), plugin, reason)


def _worst(counted: defaultdict[str, Counter[CauseT]]) -> list[str]:
    return sorted(counted, key=lambda name: (-counted[name].total(), name))


def _first(causes: Counter[CauseT]) -> CauseT:
    return causes.most_common(1)[0][0]
