"""Pods without a node: what is told of each, and all of them as columns.

There may be 100,000, and readers of as many tenants: what is counted, sorted or kept from somebody
is done over columns.  Looking at each pod takes microseconds, so it is done slice by slice: the
scheduler's thread is never held up by how many wait.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, overload

import msgspec
import numpy as np
import numpy.typing as npt

from koordinator.api.pod import Pod
from koordinator.domain.gangs import GangCache, gang_id, group_reference
from koordinator.foundation.clock import to_epoch_s
from koordinator.scheduler.loop.handle import SchedulerHandle
from koordinator.scheduler.queue import QueuedPod, QueueState
from koordinator.simulator.gauge import waiting_cause

UNTRIED = "nobody has tried it yet"
SLICE = 1_000  # pods that are looked at for one overview: some 3 ms

IntColumn = npt.NDArray[np.int64]
BoolColumn = npt.NDArray[np.bool_]


class WaitingPod(msgspec.Struct, frozen=True, gc=False):
    """A pod without a node."""

    namespace: str
    name: str
    cause: str  # in words, the one of the most nodes
    plugin: str
    since_s: float
    position: int  # 1: nobody is tried before it; 0: it is in no queue
    state: str  # of the queue; empty: it is in none
    priority: int
    attempts: int
    gang: str
    gang_group: str = ""  # gangs that start together; empty: it is in none

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class TextColumn:
    """A text for each row; ``texts`` are the different ones."""

    place: IntColumn
    texts: Sequence[str]

    @classmethod
    def of(cls, texts: Sequence[str]) -> "TextColumn":
        """Return the column of these texts."""
        known = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        return cls(np.array(list(map(known.__getitem__, texts)), np.int64), tuple(known))

    def only(self, kept: IntColumn) -> "TextColumn":
        """Return the column of some rows; texts without a row stay."""
        return TextColumn(self.place[kept], self.texts)

    def renamed(self, names: Sequence[str]) -> "TextColumn":
        """Return the column with a name for each of the texts; those of one name become one."""
        known: dict[str, int] = {}
        new = np.array([known.setdefault(name, len(known)) for name in names], np.int64)
        return TextColumn(new[self.place] if len(new) else self.place, tuple(known))

    def used(self) -> IntColumn:
        """Return the places of the texts that some row has."""
        return np.flatnonzero(self.counts())

    def counts(self) -> IntColumn:
        """Return how many rows have each text."""
        return np.bincount(self.place, minlength=len(self.texts))


@dataclass(frozen=True)
class WaitingPods(Sequence[WaitingPod]):
    """All of them, the longest waiting first.

    Members of a gang that wait for the one that stands for all of them have the cause of that one.
    """

    rows: Sequence[WaitingPod]  # what was told of each alone, without its position
    positions: IntColumn
    causes: TextColumn
    plugins: TextColumn
    namespaces: TextColumn
    gangs: TextColumn  # empty: none

    @classmethod
    def nobody(cls) -> "WaitingPods":
        """Return none."""
        return cls.of((), np.zeros(0, np.int64))

    @classmethod
    def of(cls, rows: Sequence[WaitingPod], positions: IntColumn) -> "WaitingPods":
        """Return these pods in order."""
        since = np.array([one.since_s for one in rows], np.float64)
        order = np.lexsort((positions, since))
        rows = [rows[place] for place in order.tolist()]
        gangs = TextColumn.of([one.gang for one in rows])
        causes = TextColumn.of([one.cause for one in rows])
        plugins = TextColumn.of([one.plugin for one in rows])
        if any(gangs.texts):
            causes, plugins = _with_their_gangs(rows, causes, plugins)
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
        )

    def only(self, kept: BoolColumn) -> "WaitingPods":
        """Return some of them."""
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
        """Return them with another name for each of ``causes.texts``."""
        causes = self.causes.renamed(names)
        positions, plugins, namespaces = self.positions, self.plugins, self.namespaces
        return WaitingPods(self.rows, positions, causes, plugins, namespaces, self.gangs)

    @cached_property
    def by_cause(self) -> Mapping[str, IntColumn]:
        """The pods of each cause, by place; the cause of the most pods first."""
        place, texts = self.causes.place, self.causes.texts
        order = np.argsort(place, kind="stable")
        counts = self.causes.counts()
        ends = np.cumsum(counts)
        ranked = sorted(np.flatnonzero(counts).tolist(), key=lambda n: (-counts[n], texts[n]))
        return {texts[n]: order[ends[n] - counts[n] : ends[n]] for n in ranked}

    @cached_property
    def first_of_gang(self) -> Mapping[str, WaitingPod]:
        """Of each gang the one that has waited longest."""
        used, first = np.unique(self.gangs.place, return_index=True)
        pairs = zip(used.tolist(), first.tolist(), strict=True)
        return {
            self.gangs.texts[gang]: self[place] for gang, place in pairs if self.gangs.texts[gang]
        }


def _with_their_gangs(
    rows: Sequence[WaitingPod], causes: TextColumn, plugins: TextColumn
) -> tuple[TextColumn, TextColumn]:
    """Give members without a cause that of the member that represents their gang.

    That is one that was tried here or, where another scheduler decides, one with a cause that comes
    from the pod's condition, not from a gate.
    """
    groups = TextColumn.of([one.gang_group or one.gang for one in rows])
    is_tried = np.array([one.attempts > 0 for one in rows], np.bool_)
    has_cause = np.array([one.cause != UNTRIED for one in rows], np.bool_)
    is_refused = np.array([bool(one.state) and not one.plugin for one in rows], np.bool_)
    speaker = np.full(len(groups.texts), -1, np.int64)
    # Members that were tried take the place of those with a cause.
    for speaks in (has_cause & is_refused, has_cause & is_tried):
        places = np.flatnonzero(speaks)
        speaker[groups.place[places]] = places
    if "" in groups.texts:
        speaker[groups.texts.index("")] = -1
    for_each = speaker[groups.place]
    told_by = np.where(has_cause | (for_each < 0), np.arange(len(rows)), for_each)
    return (
        TextColumn(causes.place[told_by], causes.texts),
        TextColumn(plugins.place[told_by], plugins.texts),
    )


_Rank = tuple[int, int, float, int]  # gated, priority, since, sequence


@dataclass(frozen=True, slots=True)
class _Survey:
    pods: WaitingPods
    ranks: Sequence[_Rank]


class _GangState(NamedTuple):
    plugin: str  # that keeps the gang
    group: str  # ids of the gangs that start together
    shortage: str  # why it can't be tried yet; empty if it can


class _Known(msgspec.Struct, gc=False):
    pod: Pod
    heard: tuple[object, ...]  # what the queue had to say of it
    told: WaitingPod


class WaitingSurvey:
    """Looks at the pods of one scheduler that have no node; remembers what hardly ever changes."""

    def __init__(self, handle: SchedulerHandle) -> None:
        self._handle = handle
        self._known: dict[str, _Known] = {}  # of the last survey, by key
        self._left: deque[str] | None = None  # keys, of the survey under way
        self._seen: dict[str, _Known] = {}  # in it
        self._ranks: list[_Rank] = []  # of ``_seen``, as the queue orders them
        self._is_different = False  # from the last survey
        self._last: _Survey | None = None

    def look(self, *, is_whole: bool) -> WaitingPods:
        """Look at ``SLICE`` pods more; return those of the last survey that came to its end.

        ``is_whole``: begin anew, and look at all of them.  The same object is returned as long as
        nothing has changed.
        """
        last = self._last
        most = None if is_whole or last is None else SLICE
        if self._left is None or most is None:
            self._left = deque(self._handle.state.unbound)
            self._seen, self._ranks, self._is_different = {}, [], False
        for _ in range(len(self._left) if most is None else min(most, len(self._left))):
            self._look_at(self._left.popleft())
        if self._left and last is not None:
            return last.pods
        is_different = self._is_different or len(self._seen) != len(self._known)
        if last is None or is_different or self._ranks != last.ranks:
            rows = [one.told for one in self._seen.values()]
            last = _Survey(WaitingPods.of(rows, _positions(self._ranks)), self._ranks)
        self._known, self._last, self._left = self._seen, last, None
        return last.pods

    def _look_at(self, key: str) -> None:
        state, queued = self._handle.state, self._handle.queue.get(key)
        unbound = state.unbound.get(key)
        if unbound is None or key in state.pods.by_key:
            return
        pod = unbound[0]
        if queued is None:
            heard: tuple[object, ...] = ()
            self._ranks.append(_UNRANKED)
        else:
            said = (queued.message, queued.rejected_by, queued.pending_on, queued.gated_by)
            times = (queued.attempts, queued.first_attempt_s, queued.queued_at_s)
            heard = (*said, queued.state, *times)
            is_gated = queued.state is QueueState.GATED
            rank = (int(is_gated), -queued.priority, queued.queued_at_s, queued.sequence)
            self._ranks.append(rank)
        gang = self._gang(pod)
        heard = (*heard, gang)
        known = self._known.get(key)
        if known is None or known.pod is not pod or known.heard != heard:
            self._is_different = True
            known = _Known(pod, heard, self._told(pod, queued, gang))
        self._seen[key] = known

    def _gang(self, pod: Pod) -> _GangState | None:
        """Return how the pod's gang is now; None if it is in none."""
        cycle = self._handle.cycles.get(pod.spec.scheduler_name)
        for active in cycle.profile.gangs if cycle is not None else ():
            gangs = active.plugin.gangs
            if gangs.is_member(pod):
                gang = gangs.gang_of(pod)
                group = gang.terms.group_id if gang is not None and gang.terms is not None else ""
                return _GangState(active.name, group, gangs.shortage(pod))
        return None

    def _told(self, pod: Pod, queued: QueuedPod | None, gang: _GangState | None) -> WaitingPod:
        message, plugin = self._why(pod, queued, gang)
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
        )

    def _why(self, pod: Pod, queued: QueuedPod | None, gang: _GangState | None) -> tuple[str, str]:
        """Return the scheduler's words, or those of the one that decides on this cluster.

        What a member's gang lacks is what it lacks now: messages are written when the member comes,
        and nothing writes them again when more members come.
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
            return f"no profile schedules it: its schedulerName is {pod.spec.scheduler_name}", ""
        return "", ""


_UNRANKED: _Rank = (0, 0, 0.0, -1)  # in no queue


def _positions(ranks: Sequence[_Rank]) -> IntColumn:
    """Return who would be tried when, if all of them were ready; 0 for those in no queue.

    Pods that a gate keeps out, such as the queue of a quota, come after all others.
    """
    columns = np.array(ranks, np.float64).reshape(-1, 4)
    order = np.lexsort((columns[:, 3], columns[:, 2], columns[:, 1], columns[:, 0]))
    order = order[columns[order, 3] >= 0]
    positions = np.zeros(len(ranks), np.int64)
    positions[order] = np.arange(1, len(order) + 1)
    return positions
