"""Invariants of the queue: no pod is lost or duplicated, and the order of popping holds."""

import itertools
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.examples import examples
from tests.unit.scheduler.queues import (
    ACTIVE,
    BACKOFF,
    EVERYTHING,
    HINTS,
    IN_FLIGHT,
    NODE_ADDED,
    NODE_TAINTED,
    POD_DELETED,
    make_pod,
    make_queue,
)

from koordinator.api.core import Toleration
from koordinator.api.meta import KubeObject
from koordinator.scheduler.contract import Action, ClusterEvent, EventHint, QueueingHint
from koordinator.scheduler.queue import QueuedPod, QueueState

GROUPS = {"a": "x", "b": "x", "c": "x", "d": "y", "e": "y"}  # pods f, g and h have none
NAMES = st.sampled_from("abcdefgh")
RUN_KEYS = st.sampled_from([None, "x", "y"])
REJECTORS = st.frozensets(st.sampled_from(["Fit", "Taints", "Ports", "Unheard"]), max_size=2)
EVENTS = st.sampled_from(
    [NODE_ADDED, NODE_TAINTED, POD_DELETED, EVERYTHING, ClusterEvent("Device", Action.ADD)]
)


def only_vowels(pod: KubeObject, _event: ClusterEvent) -> QueueingHint:
    return QueueingHint.QUEUE if pod.metadata.name in "aeiou" else QueueingHint.SKIP


PORTS = {"Ports": [EventHint("AssignedPod", Action.DELETE, only_vowels)]}


class QueueMachine(RuleBasedStateMachine):
    """Model with the priority of each pod, and time and number of its last queueing."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = make_queue({**HINTS, **PORTS}, has_groups=True)
        self.now_s = 0.0
        self.priority: dict[str, int] = {}
        self.queued: dict[str, tuple[float, int]] = {}
        self.numbers = itertools.count()
        self.outdated: list[QueuedPod] = []

    @rule(name=NAMES, priority=st.integers(0, 2), run_key=RUN_KEYS, gated=st.booleans())
    def add_or_update(self, name: str, priority: int, run_key: str | None, gated: bool) -> None:
        known = self.queue.get(f"ns/{name}")
        group = GROUPS.get(name, "")
        if known is None:
            gates = ["g"] if gated else []
            self.queue.add(
                make_pod(name, priority, gates=gates, group=group),
                run_key,
                self.now_s,
            )
            self.note_queued(f"ns/{name}")
        else:
            tolerations = [Toleration(operator="Exists")] if gated else []
            new = make_pod(name, priority, tolerations=tolerations, group=GROUPS.get(name, ""))
            if priority != known.priority:
                self.queued[known.key] = (known.queued_at_s, next(self.numbers))
            self.queue.update(known.pod, new, run_key, self.now_s)
        self.priority[f"ns/{name}"] = priority

    @rule(name=NAMES)
    def remove(self, name: str) -> None:
        known = self.queue.get(f"ns/{name}")
        if known is not None and known.state is IN_FLIGHT:
            self.outdated.append(known)
        self.queue.remove(f"ns/{name}")
        self.forget(f"ns/{name}")

    @rule(limit=st.integers(1, 4))
    def pop_run(self, limit: int) -> None:
        self.queue.flush(self.now_s)
        expected = self.pods(ACTIVE, self.rank)
        if not expected:
            rejected = self.pods(BACKOFF, lambda q: (self.ends_s(q), *self.rank(q)))
            expected = [q for q in rejected if q.rejectors]

        run = self.queue.pop_run(self.now_s, limit)

        assert run == expected[: len(run)]
        assert bool(run) == bool(expected)
        alike = {(q.priority, q.run_key) for q in run}
        assert len(alike) <= 1
        if run and run[0].run_key is not None and len(run) < min(limit, len(expected)):
            follower = expected[len(run)]
            assert (follower.priority, follower.run_key) not in alike

    @rule(name=NAMES)
    def take(self, name: str) -> None:
        self.queue.take(f"ns/{name}")

    @precondition(lambda self: self.queue.counts()[IN_FLIGHT])
    @rule(data=st.data(), rejected_by=REJECTORS, pending_on=REJECTORS)
    def reject(
        self, data: st.DataObject, rejected_by: frozenset[str], pending_on: frozenset[str]
    ) -> None:
        queued = data.draw(st.sampled_from(self.queue.pods(IN_FLIGHT)))
        self.queue.reject(queued, rejected_by, pending_on, "no", self.now_s)
        self.note_queued(queued.key)

    @precondition(lambda self: self.queue.counts()[IN_FLIGHT])
    @rule(data=st.data())
    def bind(self, data: st.DataObject) -> None:
        queued = data.draw(st.sampled_from(self.queue.pods(IN_FLIGHT)))
        self.queue.done(queued)
        self.forget(queued.key)

    @precondition(lambda self: self.outdated)
    @rule()
    def settle_what_was_removed(self) -> None:
        self.queue.fail(self.outdated.pop(), "boom", self.now_s)

    @rule(event=EVENTS)
    def see(self, event: ClusterEvent) -> None:
        for key in self.queue.on_event(event, self.now_s):
            woken = self.queue.get(key)
            assert woken is not None
            assert woken.state in (ACTIVE, BACKOFF)

    @rule(name=NAMES)
    def activate(self, name: str) -> None:
        self.queue.activate([f"ns/{name}"], self.now_s)

    @rule(seconds=st.sampled_from([0.3, 1.0, 4.5, 400.0]), flush=st.booleans())
    def wait(self, seconds: float, flush: bool) -> None:
        self.now_s += seconds
        if flush:
            self.queue.flush(self.now_s)
            due_s = self.queue.next_wakeup_s()
            assert due_s is None or due_s > self.now_s

    @invariant()
    def every_pod_is_there_once(self) -> None:
        self.queue.validate()
        everywhere = [q.key for state in QueueState for q in self.queue.pods(state)]
        assert sorted(everywhere) == sorted(self.priority)
        assert self.queue.is_empty == (not everywhere)

    def teardown(self) -> None:
        """Check that every pod is finally popped, except gated ones and those in flight."""
        self.queue.flush(self.now_s + 1_000.0)
        counts = self.queue.counts()
        assert counts[ACTIVE] + counts[QueueState.GATED] + counts[IN_FLIGHT] == len(self.priority)

    def note_queued(self, key: str) -> None:
        self.queued[key] = (self.now_s, next(self.numbers))

    def forget(self, key: str) -> None:
        self.priority.pop(key, None)
        self.queued.pop(key, None)

    def rank(self, queued: QueuedPod) -> tuple[float, ...]:
        return (-self.priority[queued.key], *self.queued[queued.key])

    def ends_s(self, queued: QueuedPod) -> int:
        """Return the second in which the backoff ends: after 1 s, 2 s … up to 10 s."""
        failures = queued.error_count or queued.unschedulable_count
        return int(self.queued[queued.key][0] + min(2 ** (failures - 1), 10))

    def pods(
        self, state: QueueState, rank: Callable[[QueuedPod], tuple[float, ...]]
    ) -> list[QueuedPod]:
        return sorted(self.queue.pods(state), key=rank)


TestQueue = pytest.mark.slow(QueueMachine.TestCase)
TestQueue.settings = settings(max_examples=examples(25), stateful_step_count=40, deadline=None)
