"""Causes of pending pods as ``koord explain pods`` groups them, with a remedy for each.

An explanation takes milliseconds, so one pod of each kind is explained, one kind at a time.  Until
then its pods have the main reason of their condition.
"""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from koordinator.dashboard.frames import MAX_CAUSES
from koordinator.dashboard.waiting_pods import IntColumn, TextColumn, WaitingPods
from koordinator.foundation.errors import NotFoundError
from koordinator.scheduler.explain import group_text
from koordinator.scheduler.features.explanation import explain
from koordinator.scheduler.loop.handle import SchedulerHandle

log = logging.getLogger(__name__)

TTL_S = 10.0  # after it, a kind is explained again
TIME_SHARE = 30  # explanations may use 1/30 of the time


@dataclass(frozen=True, slots=True)
class _Explained:
    at_s: float
    main_reason: str  # of the pod's condition: with another one the explanation is out of date
    cause: str
    remedy: str


@dataclass(frozen=True)
class _Kinds:
    """Kinds of pending pods by main reason, the one with the most pods first."""

    waiting: WaitingPods
    of_pod: IntColumn  # kind of each pod
    first: IntColumn  # first pod of each kind

    @classmethod
    def of(cls, waiting: WaitingPods) -> "_Kinds":
        numbers: dict[tuple[object, int], int] = {}
        causes = waiting.causes.place.tolist()
        pairs = zip((row.kind for row in waiting.rows), causes, strict=True)
        found = np.fromiter(
            (numbers.setdefault(pair, len(numbers)) for pair in pairs), np.int64, len(waiting)
        )
        _, first, of_pod, counts = np.unique(
            found, return_index=True, return_inverse=True, return_counts=True
        )
        order = np.lexsort((first, -counts))
        return cls(waiting, np.argsort(order)[of_pod], first[order])


class ExplainedCauses:
    """Explanations of the kinds of pending pods of one scheduler.

    Only the ``MAX_CAUSES`` kinds with the most pods are explained.  The thread that owns the
    scheduler calls it.
    """

    def __init__(self, handle: SchedulerHandle) -> None:
        self._handle = handle
        self._kinds = _Kinds.of(WaitingPods.none())
        self._explained: dict[str, _Explained] = {}  # by key of the first pod of the kind
        self._due_s: float | None = None  # None before the first explanation
        self._applied: WaitingPods | None = None  # of ``_kinds``; None after a change

    def apply(self, waiting: WaitingPods) -> WaitingPods:
        """Return the pods with the causes of their explanations, the same object if unchanged."""
        if waiting is not self._kinds.waiting:
            self._kinds, self._applied = _Kinds.of(waiting), None
        if self._applied is None:
            self._applied = self._with_causes()
        return self._applied

    def _with_causes(self) -> WaitingPods:
        kinds, waiting = self._kinds, self._kinds.waiting
        texts = list(waiting.causes.texts)
        explained = np.full(len(kinds.first), -1, np.int64)
        for kind, first in enumerate(kinds.first[:MAX_CAUSES].tolist()):
            one = waiting[first]
            known = self._explained.get(one.key)
            if known is not None and known.main_reason == one.cause:
                explained[kind] = len(texts)
                texts.append(known.cause)
        place = explained[kinds.of_pod]
        place = np.where(place < 0, waiting.causes.place, place)
        return waiting.with_cause_column(TextColumn(place, texts).renamed(texts))

    def remedies(self) -> Mapping[str, str]:
        """Return the remedies by key of the explained pod."""
        return {key: one.remedy for key, one in self._explained.items()}

    def explain_next(self, now_s: float) -> None:
        """Explain the kind whose last explanation is the oldest, within the time share.

        The first explanation does not count against the time share: it includes what a scheduler
        derives once, which takes seconds with 100,000 different pods.
        """
        if self._due_s is not None and now_s < self._due_s:
            return
        waiting = self._kinds.waiting
        firsts = [waiting[place] for place in self._kinds.first[:MAX_CAUSES].tolist()]
        current = {one.key: one.cause for one in firsts}
        self._explained = {
            key: one for key, one in self._explained.items() if current.get(key) == one.main_reason
        }
        due = {key: self._explained[key].at_s if key in self._explained else 0.0 for key in current}
        key = min(due, key=due.__getitem__, default="")
        if not key or (key in self._explained and now_s - due[key] < TTL_S):
            return
        began_s = time.thread_time()
        before = self._explained.get(key)
        after = self._explained[key] = _explained(self._handle, key, current[key], now_s)
        if before is None or before.cause != after.cause:
            self._applied = None
        took_s = time.thread_time() - began_s
        is_first = self._due_s is None
        self._due_s = now_s if is_first else now_s + TIME_SHARE * took_s


def _explained(handle: SchedulerHandle, key: str, main_reason: str, now_s: float) -> _Explained:
    try:
        explanation = explain(handle, key)
    except NotFoundError:
        return _Explained(now_s, main_reason, main_reason, "")
    except Exception:
        log.warning("pod not explained", extra={"pod": key}, exc_info=True)
        return _Explained(now_s, main_reason, main_reason, "")
    remedy = next((one.text for one in explanation.remedies if one.sufficient), "")
    return _Explained(now_s, main_reason, group_text(explanation), remedy)
