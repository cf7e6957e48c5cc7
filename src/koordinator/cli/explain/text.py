"""Text of explanations, and the history of a pod's moves."""

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod, is_terminal
from koordinator.cli.output import print_indented
from koordinator.domain.audit import AuditEntry, AuditOutcome
from koordinator.foundation.clock import UTC
from koordinator.foundation.quantity import Quantity
from koordinator.foundation.text import listed, pluralized
from koordinator.scheduler.diagnosis import amount_text
from koordinator.scheduler.explanations import (
    Explanation,
    QueueStatus,
    Remedy,
    by_cause,
    changed_object,
    in_short,
    sentence_of,
)
from koordinator.scheduler.explanations.sentences import sentence

_GANG = "gang "  # no name of a pod has a space
NAMED = 3  # pods that are named before the rest is only counted

#: Descriptions of the states of a pod in the scheduling queue.
_STATES = {
    "active": "active, to be tried when it is first",
    "backoff": "in backoff after a failed attempt",
    "unschedulable": "unschedulable until an event that could help",
    "gated": "gated by the reason above",
    "in-flight": "being placed",
}

EVENTS_NAMED = 4  # objects of events that are named before the rest is only counted
IndentedLine = tuple[int, str]  # indentation and text


def nothing_waits(objects: Iterable[KubeObject], *, is_live: bool) -> str:
    """Return the message for a cluster in which a scheduler would place every pod.

    The scheduler of a pod that nevertheless has no node in a live cluster does not work.
    """
    unbound = sum(
        isinstance(obj, Pod)
        and not (obj.spec.node_name or obj.spec.scheduling_gates or is_terminal(obj))
        for obj in objects
    )
    if not is_live or not unbound:
        return "no pod waits"
    return (
        f"no pod waits: {pluralized(unbound, 'pod')} without a node would be placed now\n"
        "if they stay pending, their scheduler does not run, or has another schedulerName: koord "
        "doctor cluster"
    )


def print_explanations(explained: Sequence[Explanation]) -> None:
    """Print explanations; pods with the same explanation are printed together."""
    groups: dict[object, list[Explanation]] = {}
    for one in explained:
        groups.setdefault(_alike(one), []).append(one)
    for alike in groups.values():
        print_indented(_lines(alike[0], [one.pod for one in alike]))


def print_gangs(gangs: Sequence[tuple[str, int, Explanation]]) -> None:
    """Print gangs with their names, numbers of pods, and the explanation of one member."""
    for gang, count, one in gangs:
        print_indented(_lines(one, [f"gang {gang} ({_pods(count)})"]))


def print_overview(
    explained: Sequence[tuple[Explanation, Sequence[str]]],
    total: int,
    gangs: Mapping[str, str],
) -> None:
    """Print causes with their pods and a remedy for the first pod; most pods first.

    ``gangs`` maps pods to their gangs.
    """
    print_indented(_overview(by_cause(explained), total, gangs))


def why_in_short(one: Explanation) -> str:
    """Return the headline of an explanation."""
    detail = next((c.detail for c in one.causes if c.nodes and c.detail and c.decisive), "")
    words = in_short(one)
    progress, _, next_one = one.gang.partition("; ")
    progress = progress.partition(": ")[2]
    joint = "; the next one: " if next_one else ": "
    text = f"{progress}{joint}{words}" if progress else words
    return f"{text} ({detail})" if detail else text


def _overview(
    causes: Iterable[tuple[str, list[tuple[Explanation, Sequence[str]]]]],
    total: int,
    gangs: Mapping[str, str],
) -> Iterator[IndentedLine]:
    causes = list(causes)
    kinds = "one reason" if len(causes) == 1 else f"{len(causes)} reasons"
    yield 0, f"{_pods(total)} {'waits' if total == 1 else 'wait'}, for {kinds}"
    for cause, explained in causes:
        names = [pod for _, pods in explained for pod in pods]
        first, _ = max(explained, key=lambda each: len(each[1]))
        yield 0, f"{_pods(len(names))}: {cause}"
        yield 4, f"pods: {_listed_with_gangs(names, gangs)}"
        detail = next((c.detail for c in first.causes if c.detail and c.decisive), "")
        if detail:
            on = next((c.on[0] for c in first.causes if c.detail == detail and c.on), first.pod)
            yield 4, f"such as {on}: {detail}"
        enough = [r for r in first.remedies if r.sufficient]
        for helping in (enough or first.remedies)[:1]:
            is_only = len(explained) == 1 and len(names) == 1
            subject = "" if is_only else f" ({_member(first.pod, gangs)})"
            yield 4, f"would help{subject}: {helping.text}{_qualification(helping)}"
    yield 0, "koord explain pod NAMESPACE/NAME explains one of them in full"


def _lines(one: Explanation, pods: Sequence[str]) -> Iterator[IndentedLine]:
    verb = one.verdict if len(pods) == 1 else {"waits": "wait", "fits": "fit"}.get(one.verdict)
    yield 0, f"{listed(pods, NAMED)} {verb or one.verdict}: {_headline(one)}"
    yield from _causes(one)
    yield from _nearest(one)
    shown = {cause.reason for cause in one.causes if not cause.nodes}
    never = "" if one.empty_cluster is None or one.empty_cluster.fits else one.empty_cluster.why
    if never and never not in shown:
        whole = sentence(never)
        parts = [whole] if whole != never else map(sentence, never.split(", "))
        yield 2, f"not even if all other pods were gone: {'; '.join(parts)}"
    yield from _remedies(one.remedies)
    if one.queue is not None:
        yield from _queue(one.queue)
    if one.forecast is not None:
        at = one.forecast
        text = f"{at.at} on {at.node}" if at.at else f"unknown: {at.why}"
        yield 2, f"start: {text}"


def _headline(one: Explanation) -> str:
    if one.verdict != "waits" or not one.causes:
        return one.summary
    everywhere = [sentence_of(cause) for cause in one.causes if not cause.nodes]
    count = _nodes_of(one)
    nodes = [f"none of {count} nodes takes it"] if count else []
    return "; ".join(filter(None, (one.gang, *everywhere, *nodes)))


def _nodes_of(one: Explanation) -> str:
    """Return the number of nodes if none of them accepts the pod; empty otherwise."""
    _, separator, rest = one.summary.partition("none of ")
    return rest.split(" ", 1)[0] if separator else ""


def _causes(one: Explanation) -> Iterator[IndentedLine]:
    for cause in one.causes:
        if not cause.nodes:
            lines = [text for text in (cause.detail,) if text]
            if cause.plugin:
                verb = "say" if ", " in cause.plugin else "says"
                lines.append(f"{cause.plugin} {verb}: {cause.reason}")
            yield from ((2, text) for text in lines)
            continue
        many = "1 node" if cause.nodes == 1 else f"{cause.nodes} nodes"
        rank = "" if cause.decisive else ", where other causes remain as well"
        example = f"such as {cause.on[0]}: " if cause.nodes > 1 else f"{cause.on[0]}: "
        detail = f" ({example}{cause.detail})" if cause.detail else f" ({example.rstrip(': ')})"
        yield 2, f"{many}{rank}: {sentence_of(cause)}{detail} [{cause.plugin}]"


def _nearest(one: Explanation) -> Iterator[IndentedLine]:
    if not one.nearest:
        return
    yield 2, "nearest nodes:"
    for near in one.nearest:
        shortfall = ", ".join(f"{_format_amount(name, n)} {name}" for name, n in near.lacks.items())
        shortage = f"{near.node} lacks {shortfall}" if shortfall else near.node
        others = [sentence(text) for text in near.details]
        yield 4, f"{shortage} ({'; '.join(others)})" if others else shortage


def _remedies(remedies: Sequence[Remedy]) -> Iterator[IndentedLine]:
    if remedies:
        yield 2, "what would help:"
    for one in remedies:
        yield 4, f"- {one.text}{_qualification(one)}"


def _qualification(one: Remedy) -> str:
    """Return the limitation of a remedy; empty if it suffices alone."""
    if not one.tried:
        return " (not tried)"
    return "" if one.sufficient else " (not enough alone)"


def _queue(queue_status: QueueStatus) -> Iterator[IndentedLine]:
    before = f", {_pods(queue_status.position - 1)} before it" if queue_status.position > 1 else ""
    tries = "once" if queue_status.attempts == 1 else f"{queue_status.attempts} times"
    tried = f"tried {tries}" if queue_status.attempts else "not tried yet"
    state = _STATES.get(queue_status.state, queue_status.state)
    yield 2, f"queue: {state}{before}; {tried} since {queue_status.since}"
    events = [word for one in queue_status.woken_by for word in one.partition(": ")[2].split(", ")]
    if events:
        yield 4, f"tried again when: {_in_short(list(dict.fromkeys(events)))}"
    if queue_status.retry_at:
        yield 4, f"tried again at {queue_status.retry_at} at the latest"


def _in_short(events: Sequence[str]) -> str:
    """Return the events that requeue the pod in one line; ``-o json`` lists them in full.

    Of changed objects only the objects are named.
    """
    things = list(dict.fromkeys(filter(None, map(changed_object, events))))
    parts = [event for event in events if not changed_object(event)]
    if things:
        parts.append(f"{listed(things, EVENTS_NAMED)} changes")
    return ", or ".join(parts)


def _alike(one: Explanation) -> object:
    """Return a key that is equal for explanations that differ only in the pod."""
    if one.gang:
        return one.gang.partition(";")[0]
    if one.forecast is not None or one.verdict != "waits":
        return one.pod
    state = one.queue.state if one.queue is not None else ""
    return msgspec.json.encode((one.causes, one.nearest, one.remedies, state))


def _listed_with_gangs(names: Sequence[str], gangs: Mapping[str, str]) -> str:
    """Return the first names, with gangs in place of their members, and the number of the rest."""
    counts = Counter(_member(name, gangs) for name in names)
    first = list(counts)[:NAMED]
    more = len(names) - sum(counts[name] for name in first)
    listed = [
        f"{name} ({_pods(counts[name])})" if name.startswith(_GANG) else name for name in first
    ]
    return ", ".join(listed) + (f" and {more} more" if more > 0 else "")


def _member(pod: str, gangs: Mapping[str, str]) -> str:
    """Return the printed name of a pod: its gang if it is in one."""
    return f"{_GANG}{gangs[pod]}" if pod in gangs else pod


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"


def _format_amount(name: str, amount: str) -> str:
    return amount if name == "cpu" else amount_text(name, Quantity.parse(amount).value())


_ABOUT_MOVES = frozenset((AuditOutcome.MOVED, AuditOutcome.STAYS))
MOST_ENTRIES = 20  # per pod, the newest


def moves_of(
    paths: Sequence[Path], names: Iterable[str], objects: Iterable[KubeObject]
) -> Mapping[str, Sequence[AuditEntry]]:
    """Return the entries about each pod, ``namespace/name``, oldest first.

    For a pod that exists, entries about other pods of its workload are included, since it may have
    replaced one of them.  Raises InputError for files that can't be read.
    """
    wanted = dict.fromkeys(names, "")
    for obj in objects:
        if isinstance(obj, Pod) and obj.key in wanted:
            owner = obj.metadata.controller
            wanted[obj.key] = f"{obj.metadata.namespace}/{owner.name}" if owner is not None else ""
    moves: dict[str, list[AuditEntry]] = {name: [] for name in wanted}
    if not wanted:
        return moves
    from koordinator.cli.audit import read_entries  # noqa: PLC0415 -- only with an audit trail

    for entry in read_entries(paths):
        if entry.outcome not in _ABOUT_MOVES:
            continue
        pods = {each.pod for each in entry.pods}
        for name, workload in wanted.items():
            if name in pods or (workload and entry.job == workload):
                moves[name].append(entry)
    return {name: entries[-MOST_ENTRIES:] for name, entries in moves.items()}


def print_moves(moves: Mapping[str, Sequence[AuditEntry]]) -> None:
    """Print a line per entry."""
    for name, entries in moves.items():
        texts = [entry_text(entry) for entry in entries] or ["none"]
        heading = f"Moves of {name} and its workload in the audit trail:"
        print_indented([(0, heading), *((2, text) for text in texts)])


def entry_text(entry: AuditEntry) -> str:
    """Return an entry as a sentence."""
    at = dt.datetime.fromtimestamp(entry.at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    pod = entry.pods[0]
    if entry.outcome is AuditOutcome.MOVED:
        route = f"{entry.node} -> {pod.node}" if pod.node else f"away from {entry.node}"
        return f"{at} {pod.pod} moved {route} by {entry.plugin}: {entry.reason}"
    return f"{at} {pod.pod} stayed on {entry.node}; {entry.plugin}: {entry.reason}"
