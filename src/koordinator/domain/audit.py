"""Audit entries of scheduling decisions, and their summary.

``entry``    one outcome of one or more pods, and its cause
``choice``   filter of entries
``summary``  aggregates: slow plugins, rejected jobs, flapping nodes

``scheduler.features.audit`` writes the trail.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TypeVar

import msgspec

from koordinator.foundation.decoders import decoder_of
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass

_ENCODER = msgspec.json.Encoder()
_BEGIN = b'{"atS":'  # prefix of every line
LONGEST_LINE_BYTES = 64 << 20  # ten times the pods of the largest jobs

#: Minimum number of closings of a flapping node.
FLAPS_FROM = 2


class AuditOutcome(StrEnum):
    """Outcome of the pods of an entry, or of a node."""

    BOUND = "bound"
    UNSCHEDULABLE = "unschedulable"  # no feasible node, or rejected before filtering
    FAILED = "failed"  # failed after the decision: bind rejected, permit timeout, …
    EVICTED = "evicted"  # preempted, or overuse of a quota revoked
    MOVED = "moved"  # by the descheduler, after a successful dry run
    STAYS = "stays"  # descheduler candidate whose dry run failed
    NODE_CLOSED = "node-closed"  # unschedulable or deleted
    PLUGIN_TIMES = "plugin-times"  # durations of plugins since the last such entry
    NODE_OPEN = "node-open"  # schedulable again


class AuditedPod(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A pod with its node (empty: none) and attempt number."""

    pod: str  # namespace/name
    node: str = ""
    attempt: int = 0


class ScoredNode(msgspec.Struct, frozen=True, gc=False):
    """A top-ranked node, with the weighted scores that add up to its total."""

    node: str
    total: int
    scores: Mapping[str, int]  # by plugin


class AuditEntry(msgspec.Struct, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """One outcome, of one pod or of several that were decided together.

    Not frozen: the entry is created when the attempt begins and filled in as results arrive, which
    halves the cost of building it afterwards.

    ``plugin`` is the deciding plugin: it rejected most nodes or the pod, or separated the chosen
    node from the next best; empty if there is none or it is unknown.  ``took_s``, ``turn_pods`` and
    ``spent_us`` describe the attempt; if an attempt has several outcomes, only its first entry has
    them, so that sums are correct. An entry of PLUGIN_TIMES has the time by ``extension
    point/plugin``, and the decided pods, since the previous one.
    """

    at_s: float  # the scheduler's time, seconds since the epoch
    outcome: AuditOutcome
    profile: str = ""
    pods: tuple[AuditedPod, ...] = ()
    node: str = ""  # of an eviction, a move or a node outcome; the nominated node of a rejected pod
    plugin: str = ""
    reason: str = ""
    job: str = ""  # gang or owner of unplaced pods, ``namespace/name``
    by: str = ""  # of an eviction: the preemptor
    took_s: float = 0.0  # scheduling duration without binding
    turn_pods: int = 0
    spent_us: dict[str, int] = {}  # microseconds by extension point
    best: tuple[
        ScoredNode, ...
    ] = ()  # best first; for the first placed pod of the attempt, sampled


_DECODER = decoder_of(AuditEntry)


def to_lines(entries: Iterable[AuditEntry]) -> bytes:
    """Encode one line of JSON per entry."""
    return _ENCODER.encode_lines(list(entries))


def from_lines(
    lines: Iterable[bytes], source: str, complain: Callable[[str], object] = lambda _: None
) -> Iterator[AuditEntry]:
    """Yield the entries of JSON lines; empty lines are skipped.

    An incomplete last line is skipped. Other invalid lines, for instance torn by a crash or a full
    disk, are skipped with a warning. Raises InputError with the line number if no line is valid.
    """
    entries, odd = 0, 0
    first: InputError | None = None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            entry = _DECODER.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            if line.startswith(_BEGIN) and not line.endswith(b"\n"):
                break
            accepted = "an entry of the audit trail, as koord scheduler --audit-dir writes it"
            text = f"must be {accepted}, got {str(error)[:200]}"
            odd += 1
            first = first or InputError(text, source=f"{source}:{number}")
        else:
            entries += 1
            yield entry
    if first is not None and not entries:
        try:
            raise first
        finally:
            del first  # the traceback refers to this frame
    if first is not None:
        complain(f"{odd} lines are left out, the first: {first}")


@dataclass(frozen=True, slots=True)
class AuditChoice:
    """Conjunction of filters; ``pod``, ``node`` and ``job`` may contain ``*``."""

    pod: str = ""  # namespace/name
    node: str = ""
    job: str = ""
    plugin: str = ""
    outcomes: frozenset[AuditOutcome] = frozenset()
    since_s: float = 0.0  # seconds since the epoch

    def select(self, entries: Iterable[AuditEntry]) -> Iterator[AuditEntry]:
        """Yield the entries that match, each with its matching pods only."""
        for entry in entries:
            if (
                entry.at_s >= self.since_s
                and (not self.outcomes or entry.outcome in self.outcomes)
                and (not self.plugin or entry.plugin == self.plugin)
                and (not self.job or fnmatchcase(entry.job, self.job))
            ):
                yield from self._of_pods(entry)

    def _of_pods(self, entry: AuditEntry) -> Iterator[AuditEntry]:
        if not self.pod and not self.node:
            yield entry
        elif entry.pods:
            pods = tuple(
                it
                for it in entry.pods
                if (not self.pod or fnmatchcase(it.pod, self.pod))
                and (not self.node or self._is_of_node(it.node) or self._is_of_node(entry.node))
            )
            if pods:
                yield entry if pods == entry.pods else msgspec.structs.replace(entry, pods=pods)
        elif not self.pod and self._is_of_node(entry.node):
            yield entry

    def _is_of_node(self, node: str) -> bool:
        return fnmatchcase(node, self.node)


CauseT = TypeVar("CauseT")


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
            for stage, spent_us in entry.spent_us.items():
                self._spent_us[stage] += spent_us
                self._attempted_pods[stage] += entry.turn_pods
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
                    plugin, point, us / 1e6, us / max(spent_us, 1), self._attempted_pods[stage]
                )
                for stage, us in self._spent_us.most_common(most)
                for point, _, plugin in [stage.partition("/")]
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
