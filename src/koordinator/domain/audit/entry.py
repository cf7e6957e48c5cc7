"""Audit trail entry and its JSON line format."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase

import msgspec

from koordinator.foundation.decoders import decoder_of
from koordinator.foundation.errors import InputError


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
    best: tuple[ScoredNode, ...] = ()  # best first; for the attempt's first pod, sampled


_DECODER = decoder_of(AuditEntry)
_ENCODER = msgspec.json.Encoder()
_BEGIN = b'{"atS":'  # prefix of every line
LONGEST_LINE_BYTES = 64 << 20  # ten times the pods of the largest jobs


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
        raise first
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

    def takes(self, entry: AuditEntry) -> bool:
        """Return whether the entry matches."""
        nodes = (entry.node, *(it.node for it in entry.pods)) if self.node else ()
        return (
            entry.at_s >= self.since_s
            and (not self.outcomes or entry.outcome in self.outcomes)
            and (not self.plugin or entry.plugin == self.plugin)
            and (not self.job or fnmatchcase(entry.job, self.job))
            and (not self.pod or any(fnmatchcase(it.pod, self.pod) for it in entry.pods))
            and (not self.node or any(fnmatchcase(node, self.node) for node in nodes))
        )
