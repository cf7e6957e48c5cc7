"""One entry of the audit trail, and its form as a line of JSON."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase

import msgspec

from koordinator.foundation.decoders import decoder_of
from koordinator.foundation.errors import InputError


class AuditOutcome(StrEnum):
    """What became of the pods of an entry, or of a node."""

    BOUND = "bound"
    UNSCHEDULABLE = "unschedulable"  # no node, or refused as a whole
    FAILED = "failed"  # a decision that did not come true: bind refused, permit timed out, …
    EVICTED = "evicted"  # to make room, or to give back what a quota lent
    MOVED = "moved"  # by the descheduler, to where its replacement was proven to land
    STAYS = "stays"  # a plugin of the descheduler wanted it to go; the move was not proven
    NODE_CLOSED = "node-closed"  # it takes no new pods any more, or is gone
    PLUGIN_TIMES = "plugin-times"  # not an outcome: what plugins took since the last such entry
    NODE_OPEN = "node-open"  # it takes pods again


class AuditedPod(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A pod, where it went, and at which attempt; ``node`` empty: nowhere."""

    pod: str  # namespace/name
    node: str = ""
    attempt: int = 0


class ScoredNode(msgspec.Struct, frozen=True, gc=False):
    """A node among the best, with the weighted scores that add up to its total."""

    node: str
    total: int
    scores: Mapping[str, int]  # by plugin


class AuditEntry(msgspec.Struct, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """One outcome, of one pod or of several that were decided together.

    Not frozen: the entry of an attempt comes into being when the attempt begins, and is filled in
    as more is known, which costs half of making it out of what was noted elsewhere.

    ``plugin`` is the one that decided: it keeps most nodes away, or refused, or set the chosen
    node apart from the next best; empty if nothing did, or it is not known.  ``took_s``,
    ``turn_pods`` and ``spent_us`` are of the attempt in which the pods were decided; when an
    attempt had several outcomes only the first entry has them, so that they add up.
    An entry of PLUGIN_TIMES has the time by ``extension point/plugin``, and the pods decided, since
    the one before.
    """

    at_s: float  # the scheduler's time, seconds since the epoch
    outcome: AuditOutcome
    profile: str = ""
    pods: tuple[AuditedPod, ...] = ()
    node: str = (
        ""  # of an eviction, a move or an outcome of a node; of a refused pod the nominated one
    )
    plugin: str = ""
    reason: str = ""
    job: str = ""  # gang or owner of what was not placed, ``namespace/name``
    by: str = ""  # of an eviction: for whom
    took_s: float = 0.0  # seconds of deciding, binding not included
    turn_pods: int = 0
    spent_us: dict[str, int] = {}  # microseconds of the attempt by extension point
    best: tuple[ScoredNode, ...] = ()  # best first; of the attempt's first pod, not of all attempts


_DECODER = decoder_of(AuditEntry)
_ENCODER = msgspec.json.Encoder()
_BEGIN = b'{"atS":'  # of every entry
LONGEST_LINE_BYTES = 64 << 20  # all pods of the largest jobs take a tenth of it


def to_lines(entries: Iterable[AuditEntry]) -> bytes:
    """Return one line of JSON per entry."""
    return _ENCODER.encode_lines(list(entries))


def from_lines(
    lines: Iterable[bytes], source: str, complain: Callable[[str], object] = lambda _: None
) -> Iterator[AuditEntry]:
    """Yield the entries of lines of JSON; empty lines are skipped.

    A last line that is being written is left out; so are others that are no entries, such as those
    that a crash or a full disk has torn, with a warning.
    Raises InputError that names the line if there are no others.
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
    """Every restriction that is given must hold; ``pod``, ``node`` and ``job`` may have ``*``."""

    pod: str = ""  # namespace/name
    node: str = ""
    job: str = ""
    plugin: str = ""
    outcomes: frozenset[AuditOutcome] = frozenset()
    since_s: float = 0.0  # seconds since the epoch

    def takes(self, entry: AuditEntry) -> bool:
        """Return whether the entry is chosen."""
        nodes = (entry.node, *(it.node for it in entry.pods)) if self.node else ()
        return (
            entry.at_s >= self.since_s
            and (not self.outcomes or entry.outcome in self.outcomes)
            and (not self.plugin or entry.plugin == self.plugin)
            and (not self.job or fnmatchcase(entry.job, self.job))
            and (not self.pod or any(fnmatchcase(it.pod, self.pod) for it in entry.pods))
            and (not self.node or any(fnmatchcase(node, self.node) for node in nodes))
        )
