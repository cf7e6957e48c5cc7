"""Placed pods by row, and counts of pods per row.

Counts by label selector and by affinity term are updated with each placement, so spreading and pod
affinity never walk over pods.  Equal selectors share one counter.  Counters that no class of pods
uses and that were not read lately are dropped (``sweep``).
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum
from math import inf
from typing import Generic, TypeVar

import numpy as np
from msgspec import Struct

from koordinator.api.annotations.reservation import RESERVE_POD
from koordinator.api.pod import Pod
from koordinator.domain.pod_affinity import PodScope, scope_of
from koordinator.domain.reserve_pod import HIGHEST_PRIORITY
from koordinator.foundation.arrays import IntArray, extended
from koordinator.foundation.clock import to_epoch_s
from koordinator.foundation.errors import BugError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.memo import Memo
from koordinator.scheduler.rules.load.pod_load import scheduled_s
from koordinator.scheduler.snapshot.classes import PodClass
from koordinator.scheduler.snapshot.pod_allocation import NO_ALLOCATION, PodAllocation

NO_PODS = 1 << 62  # above every priority
NEW_BYTES = 1 << 25  # of counters and terms that came since the last sweep

_EMPTY: Mapping[str, str] = {}


class TermKind(StrEnum):
    """Kind of an affinity term by which a placed pod affects pods to come."""

    ANTI_AFFINITY = "required anti-affinity"
    AFFINITY = "required affinity"
    PREFERRED = "preferred affinity"  # weights add up; anti-affinity counts negative


class PlacedPod(Struct, eq=False):  # a struct: one is made per pod
    """A pod that has a node, assumed or bound; the same one while its node goes and returns."""

    key: str
    pod: Pod
    pod_class: PodClass
    row: int = -1  # of its node; -1 if that has never been there
    slot: int = -1  # place in the table's columns
    pod_allocation: PodAllocation = NO_ALLOCATION
    assigned_s: float = 0.0  # when it got its node, where its status has no time
    _since_s: float | None = None  # None: not looked up in this version of the pod

    @property
    def since_s(self) -> float:
        """When it got its node."""
        if self._since_s is None:
            bound_s = scheduled_s(self.pod)
            self._since_s = self.assigned_s if bound_s is None else bound_s
        return self._since_s

    @property
    def is_dated(self) -> bool:
        """Whether the times of this version of the pod have been read."""
        return self._since_s is not None

    def renew(self, pod: Pod) -> None:
        """Take over another version of the pod."""
        self.pod, self._since_s = pod, None

    @property
    def started_s(self) -> float:
        """Start time; infinity before the start, so that the pod counts as the latest."""
        return to_epoch_s(self.pod.status.start_time, default=inf)

    @property
    def priority(self) -> int:
        """The priority for preemption; a reserve pod is never a victim."""
        return _priority_of(self.pod_class)


@dataclass(slots=True, eq=False)
class PodCounter:
    """Pods per row that a scope covers, or (for a term) that hold the term."""

    scope: PodScope
    counts: IntArray  # (capacity,) of rows
    terminating: bool = True  # whether pods being deleted count
    topology_key: str = ""
    kind: TermKind | None = None
    total: int = 0  # sum of counts in absolute value: 0 means no pod holds the term
    was_read: bool = True  # since the last sweep


@dataclass(slots=True, eq=False)
class _LabelSet:
    id: int
    namespace: str
    labels: Mapping[str, str]
    terminating: bool
    counters: list[PodCounter] = field(default_factory=list)  # which count such a pod
    terms: list[PodCounter] = field(default_factory=list)  # which speak about such a pod


#: The terms, with weights, that a pod of a class brings along.
_TERMS: Memo[tuple[tuple[PodCounter, int], ...]] = Memo()

_Label = tuple[str, str]
Item = TypeVar("Item")


class _LabelIndex(Generic[Item]):
    """Items by one label that their scope requires.

    So a pod's labels lead to the few that may concern it.
    """

    def __init__(self) -> None:
        self._by_label: dict[_Label, list[Item]] = defaultdict(list)
        self._others: list[Item] = []

    def add(self, scope: PodScope, item: Item) -> None:
        label = _one_label(scope)
        (self._others if label is None else self._by_label[label]).append(item)

    def remove(self, scope: PodScope, item: Item) -> None:
        label = _one_label(scope)
        if label is None:
            self._others.remove(item)
            return
        same = self._by_label[label]
        same.remove(item)
        if not same:
            del self._by_label[label]

    def candidates(self, labels: Mapping[str, str]) -> Iterator[Item]:
        """Return the items whose scope may cover a pod with these labels."""
        yield from self._others
        for label in labels.items():
            yield from self._by_label.get(label, ())


def _one_label(scope: PodScope) -> _Label | None:
    """Return a label that every pod of the scope has, if its selector names one."""
    labels = scope.selector.match_labels if scope.selector is not None else {}
    return next(iter(labels.items()), None)


class PodTable:
    """All placed pods.  Rows are rows of the node table."""

    def __init__(self) -> None:
        self.by_key: dict[str, PlacedPod] = {}
        self.on_row: list[dict[str, PlacedPod]] = []
        self.namespaces: dict[str, Mapping[str, str]] = {}
        #: (capacity,) lowest priority of the pods on each row, NO_PODS where there are none
        self.lowest_priority: IntArray = np.zeros(0, np.int64)
        self._capacity = 0
        self._row = np.full(1024, -1, np.int64)
        self._labelset = np.zeros(1024, np.int64)
        self._free: list[int] = []
        self._used = 0
        self._labelsets: list[_LabelSet | None] = []  # None: the number is free
        self._free_labelsets: list[int] = []
        self._labelset_index: dict[object, int] = {}
        self._counters: dict[tuple[bytes, bool], PodCounter] = {}
        self._terms: dict[tuple[bytes, str, TermKind], PodCounter] = {}
        self.has_terms = False  # whether there are any
        self._counters_by_label = _LabelIndex[PodCounter]()
        self._terms_by_label = _LabelIndex[PodCounter]()
        self._labelsets_by_label: dict[_Label, list[_LabelSet]] = defaultdict(list)
        self._new_counters = 0  # counters and terms since the last sweep

    # -- rows and labels ---------------------------------------------------------------------

    def grow(self, capacity: int) -> None:
        """Make room for ``capacity`` rows."""
        more = capacity - self._capacity
        for counter in (*self._counters.values(), *self._terms.values()):
            counter.counts = extended(counter.counts, more)
        self.lowest_priority = extended(self.lowest_priority, more, fill=NO_PODS)
        self.on_row.extend({} for _ in range(capacity - len(self.on_row)))
        self._capacity = capacity

    def intern_labels(self, namespace: str, labels: Mapping[str, str], *, terminating: bool) -> int:
        """Return the id of this combination."""
        key = (namespace, frozenset(labels.items()), terminating)
        known = self._labelset_index.get(key)
        if known is None:
            if not self._free_labelsets:
                self._free_labelsets.append(len(self._labelsets))
                self._labelsets.append(None)
            known = self._labelset_index[key] = self._free_labelsets.pop()
            entry = self._labelsets[known] = _LabelSet(known, namespace, labels, terminating)
            self._link(entry)
            for label in labels.items():
                self._labelsets_by_label[label].append(entry)
        return known

    @property
    def known_labels(self) -> Iterator[tuple[str, str]]:
        """Keys and values of the labels that pods have, placed or not."""
        return (label for label, entries in self._labelsets_by_label.items() if entries)

    def set_namespace(self, name: str, labels: Mapping[str, str] | None) -> bool:
        """Set a namespace's labels (None: it was deleted); return whether any count changed."""
        if self.namespaces.get(name) == labels:
            return False
        if labels is None:
            self.namespaces.pop(name, None)
        else:
            self.namespaces[name] = labels
        everyone = (*self._counters.values(), *self._terms.values())
        if not any(counter.scope.namespace_selector for counter in everyone):
            return False
        for entry in self._known_labelsets:
            self._link(entry)
        for counter in self._counters.values():
            self._recount(counter)
        return True

    @property
    def is_due(self) -> bool:
        """Whether new counters and terms take so much memory that a sweep pays."""
        known = len(self._counters) + len(self._terms)
        new = self._new_counters
        return new * self._capacity * 8 > NEW_BYTES and 2 * new > known

    def sweep(self, classes: Iterable[PodClass]) -> None:
        """Drop labels that no class has, terms that no class has, and unused counters.

        ``classes`` are all classes.
        """
        used: set[int] = set()
        live_terms: set[int] = set()
        for pod_class in classes:
            used.add(pod_class.labelset)
            live_terms.update(id(term) for term, _ in _TERMS.peek(pod_class) or ())
        for key, number in [*self._labelset_index.items()]:
            if number not in used:
                del self._labelset_index[key]
                self._forget_labelset(number)
        # Label sets refer to counters and terms by object, so these are collected by id and removed
        # from all label sets in one pass.
        dropped: set[int] = set()
        for counter_key, counter in [*self._counters.items()]:
            if not counter.was_read:
                del self._counters[counter_key]
                self._counters_by_label.remove(counter.scope, counter)
                dropped.add(id(counter))
            counter.was_read = False
        for term_key, term in [*self._terms.items()]:
            if id(term) not in live_terms:
                del self._terms[term_key]
                self._terms_by_label.remove(term.scope, term)
                dropped.add(id(term))
        self.has_terms = bool(self._terms)
        if dropped:
            for entry in self._known_labelsets:
                entry.counters = [one for one in entry.counters if id(one) not in dropped]
                entry.terms = [one for one in entry.terms if id(one) not in dropped]
        self._new_counters = 0

    def _forget_labelset(self, number: int) -> None:
        entry, self._labelsets[number] = self._labelsets[number], None
        if entry is None:
            raise BugError(f"label set {number} is forgotten twice")
        self._free_labelsets.append(number)
        for label in entry.labels.items():
            same = self._labelsets_by_label[label]
            same.remove(entry)
            if not same:
                del self._labelsets_by_label[label]

    @property
    def _known_labelsets(self) -> Iterator[_LabelSet]:
        return (entry for entry in self._labelsets if entry is not None)

    # -- placing -----------------------------------------------------------------------------

    def add(self, placed: PlacedPod, row: int) -> None:
        """Put a pod on a row."""
        key, pod_class = placed.key, placed.pod_class
        if key in self.by_key:
            raise BugError(f"pod {key} is placed twice")
        slot = self._free.pop() if self._free else self._used
        if slot == self._used:
            self._used += 1
            if self._used > len(self._row):
                self._row = extended(self._row, len(self._row), fill=-1)
                self._labelset = extended(self._labelset, len(self._labelset))
        self._row[slot] = row
        self._labelset[slot] = pod_class.labelset
        placed.row, placed.slot = row, slot
        self.by_key[key] = placed
        self.on_row[row][key] = placed
        if placed.priority < self.lowest_priority[row]:  # noqa: PLR1730 (min is slower)
            self.lowest_priority[row] = placed.priority
        self._count(pod_class, row, 1)

    def add_all(
        self,
        placed: Sequence[PlacedPod],
        rows: IntArray,
        classes: Sequence[PodClass],
        kind: IntArray,
    ) -> None:
        """Put pods on rows; ``kind`` are their classes, as indices of ``classes``."""
        by_key, on_row, free = self.by_key, self.on_row, self._free
        taken = free[len(free) - min(len(free), len(placed)) :]
        del free[len(free) - len(taken) :]
        more = len(placed) - len(taken)
        slots = [*reversed(taken), *range(self._used, self._used + more)]
        self._used += more
        while self._used > len(self._row):
            self._row = extended(self._row, len(self._row), fill=-1)
            self._labelset = extended(self._labelset, len(self._labelset))
        self._row[slots] = rows
        self._labelset[slots] = np.array([one.labelset for one in classes], np.int64)[kind]
        for pod, row, slot in zip(placed, rows.tolist(), slots, strict=True):
            key = pod.key
            if key in by_key:
                raise BugError(f"pod {key} is placed twice")
            pod.row, pod.slot = row, slot
            by_key[key] = on_row[row][key] = pod
        lowest = np.array([_priority_of(one) for one in classes], np.int64)
        np.minimum.at(self.lowest_priority, rows, lowest[kind])
        for at, pod_class in enumerate(classes):
            self._count_all(pod_class, rows[kind == at] if len(classes) > 1 else rows)

    def _count_all(self, pod_class: PodClass, rows: IntArray) -> None:
        for counter in self._labelset_of(pod_class).counters:
            np.add.at(counter.counts, rows, 1)
        for term, weight in self.terms_of(pod_class):
            np.add.at(term.counts, rows, weight)
            term.total += abs(weight) * len(rows)

    def _labelset_of(self, pod_class: PodClass) -> _LabelSet:
        entry = self._labelsets[pod_class.labelset]
        if entry is None:
            raise BugError(f"the labels of class {pod_class.id} are forgotten")
        return entry

    def remove(self, placed: PlacedPod) -> None:
        """Take a pod off its row."""
        del self.by_key[placed.key]
        row = placed.row
        del self.on_row[row][placed.key]
        if placed.priority == self.lowest_priority[row]:
            left = self.on_row[row].values()
            self.lowest_priority[row] = min((p.priority for p in left), default=NO_PODS)
        self._row[placed.slot] = -1
        self._free.append(placed.slot)
        self._count(placed.pod_class, placed.row, -1)

    def reclassify(self, placed: PlacedPod, pod_class: PodClass) -> None:
        """Move a placed pod to another class of the same priority."""
        self._count(placed.pod_class, placed.row, -1)
        placed.pod_class = pod_class
        self._labelset[placed.slot] = pod_class.labelset
        self._count(pod_class, placed.row, 1)

    def _count(self, pod_class: PodClass, row: int, sign: int) -> None:
        for counter in self._labelset_of(pod_class).counters:
            counter.counts[row] += sign
        for term, weight in self.terms_of(pod_class):
            term.counts[row] += sign * weight
            term.total += sign * abs(weight)

    # -- counting ----------------------------------------------------------------------------

    def count(self, scope: PodScope, *, terminating: bool = True) -> IntArray:
        """Return the pods that the scope covers, ``(capacity,)``; a live array, read only."""
        key = (scope.identity, terminating)
        counter = self._counters.get(key)
        if counter is None:
            counter = PodCounter(scope, np.zeros(self._capacity, np.int64), terminating)
            self._counters[key] = counter
            self._new_counters += 1
            self._counters_by_label.add(counter.scope, counter)
            for entry in self._candidates(counter):
                if self._counts(counter, entry):
                    entry.counters.append(counter)
            self._recount(counter)
        counter.was_read = True
        return counter.counts

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        """Return the labels of a namespace; none if it is not known."""
        return self.namespaces.get(name, _EMPTY)

    def terms_about(self, pod_class: PodClass, kinds: Collection[TermKind]) -> list[PodCounter]:
        """Return the terms, held by some placed pod, that cover a pod of this class."""
        terms = self._labelset_of(pod_class).terms
        return [term for term in terms if term.total and term.kind in kinds] if terms else []

    def without_holders(
        self, terms: Sequence[PodCounter], holders: Iterable[PlacedPod]
    ) -> list[PodCounter]:
        """Return the terms without these holders; terms without holders are left out."""
        lessened = {id(term): term for term in terms}
        for placed in holders:
            for term_of_pod, weight in self.terms_of(placed.pod_class):
                term = lessened.get(id(term_of_pod))
                if term is None:
                    continue
                if term is term_of_pod:
                    term = lessened[id(term_of_pod)] = replace(
                        term_of_pod, counts=term_of_pod.counts.copy()
                    )
                term.counts[placed.row] -= weight
                term.total -= abs(weight)
        return [term for term in lessened.values() if term.total]

    def terms_of(self, pod_class: PodClass) -> tuple[tuple[PodCounter, int], ...]:
        """Return the terms, with weights, that a pod of this class brings along once placed."""
        return _TERMS.of(pod_class, self._build_terms, pod_class)

    def _build_terms(self, pod_class: PodClass) -> tuple[tuple[PodCounter, int], ...]:
        return tuple(self._find_terms(pod_class))

    def _find_terms(self, pod_class: PodClass) -> Iterable[tuple[PodCounter, int]]:
        affinity = pod_class.spec.affinity
        if affinity is None:
            return
        together, apart = affinity.pod_affinity, affinity.pod_anti_affinity
        for side, kind, sign in (
            (together, TermKind.AFFINITY, 1),
            (apart, TermKind.ANTI_AFFINITY, -1),
        ):
            if side is None:
                continue
            for term in side.required_during_scheduling_ignored_during_execution:
                scope = scope_of(term, pod_class.namespace, pod_class.labels)
                yield self._term(scope, term.topology_key, kind), 1
            for weighted in side.preferred_during_scheduling_ignored_during_execution:
                term = weighted.pod_affinity_term
                scope = scope_of(term, pod_class.namespace, pod_class.labels)
                yield (
                    self._term(scope, term.topology_key, TermKind.PREFERRED),
                    sign * weighted.weight,
                )

    def _term(self, scope: PodScope, topology_key: str, kind: TermKind) -> PodCounter:
        key = (scope.identity, topology_key, kind)
        term = self._terms.get(key)
        if term is None:
            counts = np.zeros(self._capacity, np.int64)
            term = PodCounter(scope, counts, topology_key=topology_key, kind=kind)
            self._terms[key] = term
            self.has_terms = True
            self._new_counters += 1
            self._terms_by_label.add(scope, term)
            for entry in self._candidates(term):
                if self._covers(term, entry):
                    entry.terms.append(term)
        return term

    def _link(self, entry: _LabelSet) -> None:
        """Find the counters and terms that a label set concerns."""
        counters = self._counters_by_label.candidates(entry.labels)
        entry.counters = [c for c in counters if self._counts(c, entry)]
        terms = self._terms_by_label.candidates(entry.labels)
        entry.terms = [t for t in terms if self._covers(t, entry)]

    def _candidates(self, counter: PodCounter) -> Iterable[_LabelSet]:
        """Return the label sets that the counter may concern."""
        label = _one_label(counter.scope)
        return self._known_labelsets if label is None else self._labelsets_by_label.get(label, ())

    def _covers(self, counter: PodCounter, entry: _LabelSet) -> bool:
        about = self.namespace_labels(entry.namespace)
        return counter.scope.covers(entry.namespace, entry.labels, about)

    def _counts(self, counter: PodCounter, entry: _LabelSet) -> bool:
        return (counter.terminating or not entry.terminating) and self._covers(counter, entry)

    def _recount(self, counter: PodCounter) -> None:
        counted = np.zeros(len(self._labelsets), bool)
        for entry in self._candidates(counter):
            counted[entry.id] = self._counts(counter, entry)
        rows, sets = self._row[: self._used], self._labelset[: self._used]
        is_placed = rows >= 0
        is_placed[is_placed] = counted[sets[is_placed]]
        counter.counts[:] = np.bincount(rows[is_placed], minlength=self._capacity)

    def validate(self) -> None:
        """Derive every count again and compare.  Raises BugError."""
        for counter in self._counters.values():
            kept = counter.counts.copy()
            self._recount(counter)
            if not np.array_equal(kept, counter.counts):
                raise BugError(f"pod counts of {counter.scope} are off")
        for row, pods in enumerate(self.on_row):
            lowest = min((placed.priority for placed in pods.values()), default=NO_PODS)
            if lowest != self.lowest_priority[row]:
                raise BugError(f"the lowest priority on row {row} is off")
        recounted: dict[int, IntArray] = {
            id(term): np.zeros(self._capacity, np.int64) for term in self._terms.values()
        }
        for placed in self.by_key.values():
            if self.on_row[placed.row].get(placed.key) is not placed:
                raise BugError(f"pod {placed.key} is not on its row")
            for term, weight in self.terms_of(placed.pod_class):
                recounted[id(term)][placed.row] += weight
        for term in self._terms.values():
            if not np.array_equal(recounted[id(term)], term.counts):
                raise BugError(f"holders of {term.scope} are off")


def _priority_of(pod_class: PodClass) -> int:
    if RESERVE_POD in pod_class.annotations:
        return HIGHEST_PRIORITY
    return pod_class.spec.priority or 0
