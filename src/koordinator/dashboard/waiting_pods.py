"""Pending pods, one by one and as columns.

There may be 100,000 of them, and readers of as many tenants, so pods are counted, sorted and
filtered over columns.  Examining a pod takes microseconds and is done in slices, so that the number
of pending pods never blocks the scheduler's thread.
"""

from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple, overload

import msgspec
import numpy as np
import numpy.typing as npt

from koordinator.api.pod import Pod
from koordinator.domain.gangs import GangCache, gang_id, group_reference
from koordinator.foundation.clock import to_epoch_s
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.features.explanations.explainer import kind_of
from koordinator.scheduler.loop.handle import SchedulerHandle
from koordinator.scheduler.queue import QueuedPod, QueueState
from koordinator.simulator.gauge import waiting_cause

UNTRIED = "not tried yet"
SLICE = 1_000  # pods examined for one overview; takes about 3 ms

IntColumn = npt.NDArray[np.int64]
BoolColumn = npt.NDArray[np.bool_]


class WaitingPod(msgspec.Struct, frozen=True, gc=False):
    """A pod without a node."""

    namespace: str
    name: str
    cause: str  # sentence for the reason of most nodes
    plugin: str
    since_s: float
    position: int  # place in the scheduling order, from 1; 0 for a pod in no queue
    state: str  # QueueState; empty for a pod in no queue
    priority: int
    attempts: int
    gang: str
    gang_group: str = ""  # id of the gangs that start together; empty without a group
    kind: Hashable = None  # equal for pods that share an explanation

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class TextColumn:
    """Dictionary-encoded column of texts: ``texts[place[row]]``."""

    place: IntColumn
    texts: Sequence[str]

    @classmethod
    def of(cls, texts: Sequence[str]) -> "TextColumn":
        """Return the column with one row for each text."""
        known = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        return cls(np.array(list(map(known.__getitem__, texts)), np.int64), tuple(known))

    def only(self, kept: IntColumn) -> "TextColumn":
        """Return the column of some rows; unused texts stay."""
        return TextColumn(self.place[kept], self.texts)

    def renamed(self, names: Sequence[str]) -> "TextColumn":
        """Return the column with each text replaced by a name; equal names are merged."""
        known: dict[str, int] = {}
        new = np.array([known.setdefault(name, len(known)) for name in names], np.int64)
        return TextColumn(new[self.place] if len(new) else self.place, tuple(known))

    def used(self) -> IntColumn:
        """Return the indices of the texts that have a row."""
        return np.flatnonzero(self.counts())

    def counts(self) -> IntColumn:
        """Return the number of rows of each text."""
        return np.bincount(self.place, minlength=len(self.texts))


@dataclass(frozen=True)
class WaitingPods(Sequence[WaitingPod]):
    """All pending pods, the longest waiting first.

    The scheduler tries one member per gang; the other members have the cause of that member.
    """

    rows: Sequence[WaitingPod]  # pods as examined one by one; positions and causes are columns
    positions: IntColumn
    causes: TextColumn
    plugins: TextColumn
    namespaces: TextColumn
    gangs: TextColumn  # empty: none

    @classmethod
    def none(cls) -> "WaitingPods":
        """Return an empty sequence."""
        return cls.of((), np.zeros(0, np.int64))

    @classmethod
    def of(cls, rows: Sequence[WaitingPod], positions: IntColumn) -> "WaitingPods":
        """Return the pods sorted by waiting time and position."""
        since = np.array([one.since_s for one in rows], np.float64)
        order = np.lexsort((positions, since))
        rows = [rows[place] for place in order.tolist()]
        gangs = TextColumn.of([one.gang for one in rows])
        causes = TextColumn.of([one.cause for one in rows])
        plugins = TextColumn.of([one.plugin for one in rows])
        if any(gangs.texts):
            causes, plugins = _with_gang_causes(rows, causes, plugins)
        namespaces = TextColumn.of([one.namespace for one in rows])
        return cls(rows, positions[order], causes, plugins, namespaces, gangs)

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, place: int) -> WaitingPod: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[WaitingPod]: ...

    def __getitem__(self, place: int | slice) -> WaitingPod | Sequence[WaitingPod]:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(len(self)))]
        row = self.rows[place]
        return WaitingPod(
            row.namespace,
            row.name,
            self.causes.texts[self.causes.place[place]],
            self.plugins.texts[self.plugins.place[place]],
            row.since_s,
            int(self.positions[place]),
            row.state,
            row.priority,
            row.attempts,
            row.gang,
            row.gang_group,
            row.kind,
        )

    def only(self, kept: BoolColumn) -> "WaitingPods":
        """Return the pods selected by a mask."""
        places = np.flatnonzero(kept)
        return WaitingPods(
            [self.rows[place] for place in places.tolist()],
            self.positions[places],
            *(
                column.only(places)
                for column in (self.causes, self.plugins, self.namespaces, self.gangs)
            ),
        )

    def with_causes(self, names: Sequence[str]) -> "WaitingPods":
        """Return the pods with each of ``causes.texts`` replaced by a name."""
        return self.with_cause_column(self.causes.renamed(names))

    def with_cause_column(self, causes: TextColumn) -> "WaitingPods":
        """Return the pods with other causes."""
        positions, plugins, namespaces = self.positions, self.plugins, self.namespaces
        return WaitingPods(self.rows, positions, causes, plugins, namespaces, self.gangs)

    @cached_property
    def by_cause(self) -> Mapping[str, IntColumn]:
        """Indices of the pods of each cause; the cause with the most pods first."""
        place, texts = self.causes.place, self.causes.texts
        order = np.argsort(place, kind="stable")
        counts = self.causes.counts()
        ends = np.cumsum(counts)
        ranked = sorted(np.flatnonzero(counts).tolist(), key=lambda n: (-counts[n], texts[n]))
        return {texts[n]: order[ends[n] - counts[n] : ends[n]] for n in ranked}

    @cached_property
    def first_of_gang(self) -> Mapping[str, WaitingPod]:
        """The longest waiting member of each gang."""
        used, first = np.unique(self.gangs.place, return_index=True)
        pairs = zip(used.tolist(), first.tolist(), strict=True)
        return {
            self.gangs.texts[gang]: self[place] for gang, place in pairs if self.gangs.texts[gang]
        }


def _with_gang_causes(
    rows: Sequence[WaitingPod], causes: TextColumn, plugins: TextColumn
) -> tuple[TextColumn, TextColumn]:
    """Copy the cause of a gang's representative to the members without a cause.

    The representative is a member that this scheduler tried.  Where another scheduler decides, it
    is a member whose cause comes from its pod condition, not from a gate.
    """
    groups = TextColumn.of([one.gang_group or one.gang for one in rows])
    is_tried = np.array([one.attempts > 0 for one in rows], np.bool_)
    has_cause = np.array([one.cause != UNTRIED for one in rows], np.bool_)
    is_refused = np.array([bool(one.state) and not one.plugin for one in rows], np.bool_)
    representative = np.full(len(groups.texts), -1, np.int64)
    # The second assignment wins: tried members take precedence over those with a condition.
    for candidates in (has_cause & is_refused, has_cause & is_tried):
        places = np.flatnonzero(candidates)
        representative[groups.place[places]] = places
    if "" in groups.texts:
        representative[groups.texts.index("")] = -1
    of_group = representative[groups.place]
    source = np.where(has_cause | (of_group < 0), np.arange(len(rows)), of_group)
    return (
        TextColumn(causes.place[source], causes.texts),
        TextColumn(plugins.place[source], plugins.texts),
    )


_Rank = tuple[int, int, float, int]  # gated, priority, since, sequence


@dataclass(frozen=True, slots=True)
class _Survey:
    pods: WaitingPods
    ranks: Sequence[_Rank]


class _GangState(NamedTuple):
    plugin: str  # plugin that manages the gang
    group: str  # id of the gangs that start together
    shortage: str  # reason why the gang cannot be tried yet; empty if it can


class _Examined(msgspec.Struct, gc=False):
    pod: Pod
    inputs: tuple[object, ...]  # queue and gang state from which ``result`` was derived
    result: WaitingPod


class WaitingSurvey:
    """Incremental survey of the pending pods of one scheduler; unchanged pods are cached."""

    def __init__(self, handle: SchedulerHandle) -> None:
        self._handle = handle
        self._previous: dict[str, _Examined] = {}  # of the last complete survey, by key
        self._remaining: deque[str] | None = None  # keys of the survey in progress
        self._current: dict[str, _Examined] = {}  # of the survey in progress
        self._ranks: list[_Rank] = []  # queue order of ``_current``
        self._decided_with: list[str] = []  # gang groups that the pods are decided with
        self._is_changed = False  # since the last complete survey
        self._last: _Survey | None = None

    def update(self, *, is_complete: bool) -> WaitingPods:
        """Examine the next ``SLICE`` pods; return the pods of the last complete survey.

        ``is_complete`` restarts the survey and examines all pods.  Returns the same object while
        nothing has changed.
        """
        last = self._last
        most = None if is_complete or last is None else SLICE
        if self._remaining is None or most is None:
            self._remaining = deque(self._handle.state.unbound)
            self._current, self._is_changed = {}, False
            self._ranks, self._decided_with = [], []
        count = len(self._remaining)
        for _ in range(count if most is None else min(most, count)):
            self._examine(self._remaining.popleft())
        if self._remaining and last is not None:
            return last.pods
        is_changed = self._is_changed or len(self._current) != len(self._previous)
        ranks = _with_representatives(self._ranks, self._decided_with)
        if last is None or is_changed or ranks != last.ranks:
            rows = [one.result for one in self._current.values()]
            last = _Survey(WaitingPods.of(rows, _positions(ranks)), ranks)
        self._previous, self._last, self._remaining = self._current, last, None
        return last.pods

    def _examine(self, key: str) -> None:
        state, queued = self._handle.state, self._handle.queue.get(key)
        unbound = state.unbound.get(key)
        if unbound is None or key in state.pods.by_key:
            return
        pod = unbound[0]
        if queued is None:
            inputs: tuple[object, ...] = ()
            self._ranks.append(_UNRANKED)
        else:
            refusal = (queued.message, queued.rejected_by, queued.pending_on, queued.gated_by)
            times = (queued.attempts, queued.first_attempt_s, queued.queued_at_s)
            inputs = (*refusal, queued.state, *times)
            is_gated = queued.state is QueueState.GATED
            rank = (int(is_gated), -queued.priority, queued.queued_at_s, queued.sequence)
            self._ranks.append(rank)
        gang, kind = self._gang(pod), kind_of(self._handle, key)
        group = ""
        if queued is not None and gang is not None and not gang.shortage:
            group = gang.group if queued.gated_by in ("", gang.plugin) else ""
        self._decided_with.append(group)
        inputs = (*inputs, gang, kind)
        examined = self._previous.get(key)
        if examined is None or examined.pod is not pod or examined.inputs != inputs:
            self._is_changed = True
            examined = _Examined(pod, inputs, self._waiting_pod(pod, queued, gang, kind))
        self._current[key] = examined

    def _gang(self, pod: Pod) -> _GangState | None:
        """Return the current state of the pod's gang; None for a pod without a gang."""
        cycle = self._handle.cycles.get(pod.spec.scheduler_name)
        for active in cycle.profile.gangs if cycle is not None else ():
            gangs = active.plugin.gangs
            if gangs.is_member(pod):
                gang = gangs.gang_of(pod)
                group = gang.terms.group_id if gang is not None and gang.terms is not None else ""
                return _GangState(active.name, group, gangs.shortage(pod))
        return None

    def _waiting_pod(
        self, pod: Pod, queued: QueuedPod | None, gang: _GangState | None, kind: Hashable
    ) -> WaitingPod:
        message, plugin = self._reason(pod, queued, gang)
        meta = pod.metadata
        first_s = queued.first_attempt_s or queued.queued_at_s if queued is not None else 0.0
        return WaitingPod(
            meta.namespace,
            meta.name,
            waiting_cause(message) if message else UNTRIED,
            plugin,
            to_epoch_s(meta.creation_timestamp, first_s),
            0,
            str(queued.state or "") if queued is not None else "",
            pod.spec.priority or 0,
            queued.attempts if queued is not None else 0,
            gang_id(meta, group_reference(pod.spec)),
            gang.group if gang is not None else "",
            kind,
        )

    def _reason(
        self, pod: Pod, queued: QueuedPod | None, gang: _GangState | None
    ) -> tuple[str, str]:
        """Return the reason and the plugin, from the queue or from the pod's condition.

        The shortage of a gang is always current: messages are written when a member arrives and
        are not updated when more members arrive.
        """
        gated_by = queued.gated_by if queued is not None else ""
        if gang is not None and gang.shortage and gated_by in ("", gang.plugin):
            return gang.shortage, gang.plugin
        is_outdated = gang is not None and gated_by == gang.plugin
        if queued is not None and queued.message and not is_outdated:
            plugins = queued.rejectors or ((queued.gated_by,) if queued.gated_by else ())
            return queued.message, ", ".join(sorted(plugins))
        for condition in pod.status.conditions:
            is_unscheduled = condition.type == "PodScheduled" and condition.status == "False"
            is_outdated = gang is not None and GangCache.is_gate_reason(condition.message)
            if is_unscheduled and not is_outdated:
                return condition.message or condition.reason, ""
        if queued is None and pod.metadata.deletion_timestamp is not None:
            return "it is being deleted", ""
        if queued is None and pod.spec.scheduler_name not in self._handle.cycles:
            return f"no profile has its schedulerName, {pod.spec.scheduler_name}", ""
        return "", ""


_UNRANKED: _Rank = (0, 0, 0.0, -1)  # in no queue


def _with_representatives(ranks: Sequence[_Rank], groups: Sequence[str]) -> Sequence[_Rank]:
    """Return the ranks; members of a gang group get the rank of their queued representative.

    The other members are gated, but the scheduler decides them together with it.
    """
    first: dict[str, _Rank] = {}
    for rank, group in zip(ranks, groups, strict=True):
        if group:
            first[group] = min(rank, first.get(group, rank))
    return [first.get(group, rank) for rank, group in zip(ranks, groups, strict=True)]


def _positions(ranks: Sequence[_Rank]) -> IntColumn:
    """Return the scheduling order from 1, as if all pods were ready; 0 for pods in no queue.

    Gated pods, such as those queued behind a quota, come last.
    """
    columns = np.array(ranks, np.float64).reshape(-1, 4)
    order = np.lexsort((columns[:, 3], columns[:, 2], columns[:, 1], columns[:, 0]))
    order = order[columns[order, 3] >= 0]
    positions = np.zeros(len(ranks), np.int64)
    positions[order] = np.arange(1, len(order) + 1)
    return positions
