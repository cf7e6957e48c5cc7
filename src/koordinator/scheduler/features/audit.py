"""Audit trail of a scheduler, in memory and in files, and its pages.

Only the scheduler's thread calls it.  Cheap facts are recorded for every pod.  The scores of the
best nodes cost as much as many decisions: they are computed for as many attempts as fit into
``scores_share`` of the time, which is every attempt while the scheduler is not busy.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from time import perf_counter
from typing import Any, ClassVar, Protocol

import msgspec
import numpy as np

from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.cluster.port import EventType, WatchEvent
from koordinator.domain.audit import (
    AuditChoice,
    AuditedPod,
    AuditEntry,
    AuditOutcome,
    AuditSummary,
    ScoredNode,
    summarise,
    to_lines,
)
from koordinator.domain.gangs import GangCache
from koordinator.foundation.clock import Clock
from koordinator.foundation.errors import InputError
from koordinator.scheduler.binding import Assumed
from koordinator.scheduler.contract import Profile
from koordinator.scheduler.cycle import Scorecard, scorecard
from koordinator.scheduler.loop.feature import CallInLoop, Feature, StatePage
from koordinator.scheduler.loop.outcomes import (
    AttemptBegan,
    AttemptEnded,
    Evicted,
    Fact,
    NodeChosen,
    OutcomesTaken,
    PodEvicted,
    PodFailed,
    PodRejected,
    PodsBound,
)
from koordinator.scheduler.queue import QueuedPod
from koordinator.scheduler.snapshot import ClusterState, PodClass

MOST_ENTRIES = 1000  # per response, without a limit parameter

AUDIT_FILE = "audit.jsonl"  # name inside the audit folder
CAPACITY = 100_000  # approximate number of pods in the ring
BEST_NODES = 3
SCORES_SHARE = 0.005  # share of time for scores of the best nodes

TIMES_EVERY_S = 10.0  # interval of entries with plugin times

_BOUND = AuditOutcome.BOUND  # looking up a member takes a third of making an entry


def audit_services(audit: "Audit", in_loop: CallInLoop) -> dict[str, StatePage]:
    """Return the pages by path; ``in_loop`` runs a query on the scheduler's thread.

    Both accept pod, node, job, plugin, outcome (several separated by commas) and since (seconds
    since the epoch); both accept limit: of entries, or of the rows of each list.
    """

    def entries(given: Mapping[str, str]) -> object:
        entries = in_loop(partial(audit.entries, choice_of(given), _limit(given, MOST_ENTRIES)))
        return {"entries": msgspec.to_builtins(entries)}

    def summary(given: Mapping[str, str]) -> object:
        return msgspec.to_builtins(
            in_loop(partial(audit.summary, choice_of(given), _limit(given, 10))), str_keys=True
        )

    return {"/audit": entries, "/audit/summary": summary}


def choice_of(given: Mapping[str, str]) -> AuditChoice:
    """Return the filter that the query parameters describe.  Raises InputError."""
    return AuditChoice(
        pod=given.get("pod", ""),
        node=given.get("node", ""),
        job=given.get("job", ""),
        plugin=given.get("plugin", ""),
        outcomes=outcomes_of(given.get("outcome", "")),
        since_s=_number(given, "since", 0.0),
    )


def outcomes_of(text: str) -> frozenset[AuditOutcome]:
    """Return the outcomes of a comma-separated list.  Raises InputError."""
    names = list(filter(None, text.split(",")))
    wrong = [name for name in names if name not in set(AuditOutcome)]
    if wrong:
        accepted = ", ".join(AuditOutcome)
        raise InputError(f"must be one of {accepted}, got {wrong[0]!r}", source="outcome")
    return frozenset(map(AuditOutcome, names))


def _limit(given: Mapping[str, str], default: int) -> int:
    limit = _number(given, "limit", default)
    if limit < 1 or limit != int(limit):
        raise InputError(f"must be an integer above 0, got {given['limit']!r}", source="limit")
    return int(limit)


def _number(given: Mapping[str, str], name: str, default: Any) -> float:
    try:
        return float(given.get(name, default))
    except ValueError:
        raise InputError(f"must be a number, got {given[name]!r}", source=name) from None


class PluginTimes(Protocol):
    """Source of plugin times.

    Rule R3: features, such as the metrics, do not import each other.
    """

    now_s: Callable[[], float]  # a stopwatch

    def seconds_by_plugin(self) -> Mapping[str, float]:
        """Return the cumulative time of plugins, by ``extension point/plugin``."""
        ...


class Audit(Feature):
    """Audit trail of scheduling decisions.

    ``sink`` receives the lines of new entries from ``flush``; None discards them.
    """

    def __init__(
        self,
        sink: Callable[[bytes], None] | None = None,
        *,
        capacity: int = CAPACITY,
        scores_share: float = SCORES_SHARE,
    ) -> None:
        self._sink = sink
        self._capacity, self._scores_share = capacity, scores_share
        self.now_s: Callable[[], float] = perf_counter  # a stopwatch
        self._ring: deque[AuditEntry] = deque()
        self._pods = 0  # in the ring; an outcome of a node counts as one
        self._fresh: list[AuditEntry] = []
        self._open_entry: AuditEntry | None = None  # entry of the current attempt
        self._began_s = 0.0  # start of the attempt, by the stopwatch
        self._refused: list[AuditEntry] = []  # rejections in the current attempt
        self._profiles: Mapping[str, Profile] = {}
        self._gangs: Sequence[GangCache] = ()
        self._state: ClusterState | None = None
        self._clock: Clock | None = None
        self._closed: dict[str, str] = {}  # reason by node that accepts no new pods
        self._scores_from_s = -math.inf  # attempts that begin earlier get no scores
        self._spent_by_plugin: Callable[[], Mapping[str, float]] = dict
        self._spent_before: Mapping[str, float] = {}
        self._decided = 0  # pods since the last entry of plugin times
        self._times_at_s = -math.inf

    def watch(
        self,
        state: ClusterState,
        profiles: Sequence[Profile],
        gangs: Sequence[GangCache],
        metrics: PluginTimes | None,
        clock: Clock,
    ) -> None:
        """Set the audited state and profiles, whose plugins compute the scores.

        Without metrics plugin times are unknown.
        """
        self._state, self._gangs, self._clock = state, gangs, clock
        if metrics is not None:
            self.now_s, self._spent_by_plugin = metrics.now_s, metrics.seconds_by_plugin
        self._times_at_s = self.now_s()
        self._profiles = {profile.scheduler_name: profile for profile in profiles}

    def unwatch(self) -> None:
        """Drop all references to the audited scheduler; its entries stay."""
        self._state, self._gangs, self._clock = None, (), None
        self._profiles = {}
        self._closed.clear()  # the next scheduler lists the nodes again

    # -- events and facts --------------------------------------------------------------------

    def on_object_event(self, event: WatchEvent) -> None:
        """Record changes of a node's schedulability."""
        if isinstance(event.object, Node) and self._clock is not None:
            self.node_changed(self._clock.now_s(), event, event.object)

    observed: ClassVar[tuple[type[Fact], ...]] = (
        PodsBound,
        AttemptBegan,
        NodeChosen,
        AttemptEnded,
        PodRejected,
        PodFailed,
        PodEvicted,
        OutcomesTaken,
    )

    def observe(self, fact: Fact) -> None:
        """Record outcomes of pods."""
        match fact:
            case PodsBound():
                self.bound(fact.at_s, fact.bound)
            case AttemptBegan():
                self._begin(fact)
            case NodeChosen():
                self.compare(fact.pod_class)
            case AttemptEnded():
                self._end(fact)
            case PodRejected():
                self.rejected(fact.at_s, fact.queued, fact.plugin, fact.reason, fact.nominated)
            case PodFailed():
                self.failed(fact.at_s, fact.queued, fact.message)
            case PodEvicted():
                self.evicted(fact.at_s, fact.outcome)
            case OutcomesTaken():
                if fact.last:
                    self.note_times(fact.at_s)
                self.flush(fact.at_s)

    def _begin(self, fact: AttemptBegan) -> None:
        """Begin the entry of an attempt; it joins the trail with its first pods."""
        attempt = fact.attempt
        self._open_entry = attempt.entry = AuditEntry(
            at_s=0.0, outcome=_BOUND, profile=fact.profile, turn_pods=attempt.pods
        )
        self._began_s = attempt.began_s

    def _end(self, fact: AttemptEnded) -> None:
        """Complete the entry at the end of an attempt."""
        open_entry = self._open_entry
        if open_entry is None:
            return
        open_entry.took_s, open_entry.spent_us = fact.attempt.took_s, fact.attempt.spent_us
        self._decided += open_entry.turn_pods
        self._open_entry = None
        if self._refused:
            _move_figures(open_entry, self._refused[0])
            self._extend(self._refused, len(self._refused))
            self._refused = []

    def compare(self, pod_class: PodClass) -> None:
        """Compute the scores of the best nodes for such a pod, if the time budget allows.

        An attempt decides pods of several classes: the scores are those for its first placed pod.
        """
        open_entry = self._open_entry
        if (
            open_entry is None
            or open_entry.best
            or self._began_s < self._scores_from_s
            or self._state is None
        ):
            return
        began_s = self.now_s()
        card = scorecard(self._profiles[open_entry.profile], self._state, pod_class)
        open_entry.best = best_nodes(card)
        open_entry.plugin = _decisive(open_entry.best)
        ended_s = self.now_s()
        self._scores_from_s = ended_s + (ended_s - began_s) * (1.0 / self._scores_share - 1.0)

    def bound(self, at_s: float, bound: Sequence[Assumed]) -> None:
        """Record bound pods."""
        entries = []
        for open_entry, pods in _by_attempt(bound):
            entry = open_entry
            if entry is None or entry is self._open_entry or entry.pods:
                entry = AuditEntry(at_s=at_s, outcome=_BOUND)
                if open_entry is not None and not open_entry.at_s:  # recorded by no entry yet
                    entry.profile = open_entry.profile
                    entry.best, open_entry.best = open_entry.best, ()
                    entry.plugin, open_entry.plugin = open_entry.plugin, ""
            entry.at_s, entry.pods = at_s, pods
            entries.append(entry)
        self._extend(entries, len(bound))

    def rejected(
        self, at_s: float, queued: QueuedPod, plugin: str, reason: str, nominated: str = ""
    ) -> None:
        """Record an attempt that found no node."""
        entry = AuditEntry(
            at_s=at_s,
            outcome=AuditOutcome.UNSCHEDULABLE,
            profile=queued.pod.spec.scheduler_name,
            pods=(AuditedPod(queued.key, "", queued.attempts),),
            node=nominated,
            plugin=plugin,
            reason=reason,
            job=self._job(queued.pod),
        )
        if self._open_entry is None:
            self._add(entry)
        else:
            self._refused.append(entry)

    def failed(self, at_s: float, queued: QueuedPod, reason: str) -> None:
        """Record a decision whose binding failed."""
        self._add(
            AuditEntry(
                at_s=at_s,
                outcome=AuditOutcome.FAILED,
                profile=queued.pod.spec.scheduler_name,
                pods=(AuditedPod(queued.key, "", queued.attempts),),
                reason=reason,
                job=self._job(queued.pod),
            )
        )

    def evicted(self, at_s: float, outcome: Evicted) -> None:
        """Record an eviction."""
        self._add(
            AuditEntry(
                at_s=at_s,
                outcome=AuditOutcome.EVICTED,
                pods=(AuditedPod(outcome.pod),),
                by=outcome.by,
                reason=outcome.reason,
            )
        )

    def node_changed(self, at_s: float, event: WatchEvent, node: Node) -> None:
        """Record that a known node starts or stops accepting new pods."""
        name = node.metadata.name
        why = "deleted" if event.type is EventType.DELETED else why_closed(node)
        is_known = event.previous is not None or event.type is EventType.DELETED
        before = self._closed.pop(name, "")
        if why:
            self._closed[name] = why
        if is_known and bool(why) is not bool(before):
            outcome = AuditOutcome.NODE_CLOSED if why else AuditOutcome.NODE_OPEN
            self._add(AuditEntry(at_s=at_s, outcome=outcome, node=name, reason=why or before))
        if event.type is EventType.DELETED:
            del self._closed[name]

    def note_times(self, at_s: float) -> None:
        """Record plugin times since the last such entry."""
        before, self._spent_before = self._spent_before, dict(self._spent_by_plugin())
        self._times_at_s = self.now_s()
        more = {w: int((s - before.get(w, 0.0)) * 1e6) for w, s in self._spent_before.items()}
        if not self._decided:
            return
        self._add(
            AuditEntry(
                at_s=at_s,
                outcome=AuditOutcome.PLUGIN_TIMES,
                turn_pods=self._decided,
                spent_us={stage: us for stage, us in more.items() if us},
            )
        )
        self._decided = 0

    def flush(self, at_s: float) -> None:
        """Write new entries to the sink."""
        if self._decided and self.now_s() - self._times_at_s >= TIMES_EVERY_S:
            self.note_times(at_s)
        if self._sink is not None and self._fresh:
            fresh, self._fresh = self._fresh, []
            self._sink(to_lines(fresh))

    def pages(self, in_loop: CallInLoop) -> Mapping[str, StatePage]:
        """Return the pages of the trail."""
        return audit_services(self, in_loop)

    # -- queries -----------------------------------------------------------------------------

    def entries(self, choice: AuditChoice, most: int) -> list[AuditEntry]:
        """Return the newest selected entries, oldest first."""
        return list(islice(choice.select(reversed(self._ring)), most))[::-1]

    def summary(self, choice: AuditChoice, most: int = 10) -> AuditSummary:
        """Return the summary of the selected entries."""
        return summarise(choice.select(self._ring), most)

    # -- internals ---------------------------------------------------------------------------

    def _add(self, entry: AuditEntry) -> None:
        self._extend([entry], len(entry.pods) or 1)

    def _extend(self, entries: Sequence[AuditEntry], pods: int) -> None:
        """Add entries of ``pods`` pods; an outcome of a node counts as one."""
        self._ring += entries
        self._pods += pods
        while self._pods > self._capacity and len(self._ring) > 1:
            self._pods -= len(self._ring.popleft().pods) or 1
        if self._sink is not None:
            self._fresh += entries

    def _job(self, pod: Pod) -> str:
        """Return the gang or the controller of a pod; empty without either."""
        for gangs in self._gangs:
            gang = gangs.gang_of(pod)
            if gang is not None:
                return gang.id
        meta = pod.metadata
        owner = meta.controller
        return f"{meta.namespace}/{owner.name}" if owner is not None else ""


def _by_attempt(
    bound: Sequence[Assumed],
) -> Iterator[tuple[AuditEntry | None, tuple[AuditedPod, ...]]]:
    """Yield the pods of each attempt; pods decided together are adjacent."""
    group: list[AuditedPod] = []
    open_entry = None
    for assumed in bound:
        entry = assumed.attempt.entry if assumed.attempt is not None else None
        if entry is not open_entry and group:
            yield open_entry, tuple(group)
            group = []
        open_entry, queued = entry, assumed.queued
        group.append(AuditedPod(queued.key, assumed.node, queued.attempts))
    if group:
        yield open_entry, tuple(group)


def _move_figures(open_entry: AuditEntry, first: AuditEntry) -> None:
    """Move the figures of an attempt to its first entry, unless another entry has them."""
    if not open_entry.pods:
        first.took_s, first.turn_pods = open_entry.took_s, open_entry.turn_pods
        first.spent_us = open_entry.spent_us
        open_entry.pods = first.pods  # marks the figures as moved


def best_nodes(card: Scorecard) -> tuple[ScoredNode, ...]:
    """Return the best nodes with their scores, best first."""
    order = np.argsort(-card.total, kind="stable")[:BEST_NODES].tolist()
    rows = card.feasible.tolist()
    return tuple(
        ScoredNode(
            card.names[rows[i]],
            int(card.total[i]),
            {plugin: int(scores[i]) for plugin, scores in card.scores.items()},
        )
        for i in order
    )


def _decisive(best: Sequence[ScoredNode]) -> str:
    """Return the plugin that separates the two best nodes most; empty for a tie."""
    if len(best) < 2 or best[0].total == best[1].total:  # noqa: PLR2004 -- the best and the next
        return ""
    first, second = best[0].scores, best[1].scores
    return max(first, key=lambda plugin: first[plugin] - second[plugin])


def why_closed(node: Node) -> str:
    """Return why a node accepts no new pods; empty if it does.  Taints of owners do not count."""
    if node.spec.unschedulable:
        return "unschedulable"
    for taint in node.spec.taints:
        if taint.key.startswith("node.kubernetes.io/") and taint.effect != "PreferNoSchedule":
            return taint.key
    return ""
