"""The scheduling queue: events that requeue pods."""

import msgspec
import pytest
from tests.unit.scheduler.queues import (
    ACTIVE,
    BACKOFF,
    EVERYTHING,
    GATED,
    HINTS,
    NODE_ADDED,
    NODE_TAINTED,
    POD_DELETED,
    UNSCHEDULABLE,
    in_flight,
    make_pod,
    make_queue,
    names,
    pop,
)

from koordinator.api.core import Toleration
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.scheduler.contract import Action, ClusterEvent, EventHint, QueueGate, QueueingHint
from koordinator.scheduler.queue import pod_changes
from koordinator.scheduler.queue.pools import EventLog

# Hints.


def test_only_rejecting_plugins_evaluate_events() -> None:
    """A removed taint does not help a pod that lacks CPU."""
    queue = make_queue()
    queue.reject(in_flight(queue, "big"), {"Fit"}, set(), "no", 0.0)
    queue.reject(in_flight(queue, "picky"), {"Taints"}, set(), "no", 0.0)

    assert queue.on_event(NODE_TAINTED, 5.0) == ["ns/picky"]
    assert queue.on_event(POD_DELETED, 5.0) == ["ns/big"]


def test_unregistered_events_change_nothing() -> None:
    """Pending pods and pods in flight ignore such events."""
    queue = make_queue()
    queue.reject(in_flight(queue), {"Fit"}, set(), "no", 0.0)
    flying = in_flight(queue, "b")

    assert queue.on_event(ClusterEvent("Node", Action.UPDATE_LABELS), 5.0) == []
    assert queue.on_event(ClusterEvent("Device", Action.ADD), 5.0) == []
    queue.reject(flying, {"Fit"}, set(), "no", 5.0)

    assert queue.counts()[UNSCHEDULABLE] == 2


def test_hint_decides_per_pod() -> None:
    """QueueSkip leaves the pod; one Queue among several plugins suffices."""
    events: list[ClusterEvent] = []

    def not_for_a(pod: KubeObject, event: ClusterEvent) -> QueueingHint:
        events.append(event)
        return QueueingHint.SKIP if pod.metadata.name == "a" else QueueingHint.QUEUE

    hints = {**HINTS, "Ports": [EventHint("AssignedPod", Action.DELETE, not_for_a)]}
    queue = make_queue(hints)
    for name, rejected_by in (("a", {"Ports"}), ("b", {"Ports"}), ("c", {"Ports", "Fit"})):
        queue.reject(in_flight(queue, name), rejected_by, set(), "no", 0.0)

    assert sorted(queue.on_event(POD_DELETED, 5.0)) == ["ns/b", "ns/c"]
    assert queue.pods(UNSCHEDULABLE) == [queue.get("ns/a")]
    assert all(event is POD_DELETED for event in events)


def test_a_hint_that_raises_counts_as_queue_and_is_reported() -> None:
    """A faulty plugin must not block pods forever."""

    def broken(_pod: KubeObject, _event: ClusterEvent) -> QueueingHint:
        raise ZeroDivisionError

    queue = make_queue({"Fit": [EventHint("Node", Action.ADD, broken)]})
    queue.reject(in_flight(queue), {"Fit"}, set(), "no", 0.0)

    assert queue.on_event(NODE_ADDED, 5.0) == ["ns/a"]
    assert isinstance(queue.hint_errors["Fit"], ZeroDivisionError)


def test_event_with_several_actions_matches_each_of_them() -> None:
    """An update of labels and taints is an event of taints."""
    queue = make_queue()
    queue.reject(in_flight(queue), {"Taints"}, set(), "no", 0.0)
    both = ClusterEvent("Node", Action.UPDATE_TAINTS | Action.UPDATE_LABELS)

    assert queue.on_event(both, 5.0) == ["ns/a"]


def test_requeued_pod_waits_for_the_rest_of_its_backoff() -> None:
    """A requeued pod is active immediately if its backoff has ended."""
    queue = make_queue()
    queue.reject(in_flight(queue, "soon"), {"Fit"}, set(), "no", 0.0)
    queue.on_event(NODE_ADDED, 1.5)
    assert names(queue.pods(BACKOFF)) == ["soon"]
    queue.remove("ns/soon")

    queue.reject(in_flight(queue, "later"), {"Fit"}, set(), "no", 0.0)
    queue.on_event(NODE_ADDED, 2.0)
    assert names(queue.pods(ACTIVE)) == ["later"]


def test_pending_plugin_skips_the_backoff() -> None:
    """The awaited event has occurred; a Queue of another plugin still means backoff."""
    queue = make_queue({"Fit": HINTS["Fit"], "Volumes": [EventHint("Claim", Action.ADD)]})
    queue.reject(in_flight(queue), {"Fit"}, {"Volumes"}, "not yet", 0.0)
    queue.on_event(ClusterEvent("Claim", Action.ADD), 0.1)
    assert queue.counts()[ACTIVE] == 1

    queue.reject(pop(queue, 0.1), {"Fit"}, {"Volumes"}, "not yet", 0.1)
    queue.on_event(NODE_ADDED, 0.2)
    assert queue.counts()[BACKOFF] == 1


def test_pending_plugin_is_evaluated_after_a_rejecting_one() -> None:
    """The better result of the two plugins counts."""
    queue = make_queue({"Fit": HINTS["Fit"], "Gang": [EventHint("Node", Action.ADD)]})
    queue.reject(in_flight(queue), {"Fit"}, {"Gang"}, "not yet", 0.0)
    queue.on_event(NODE_ADDED, 0.1)

    assert queue.counts()[ACTIVE] == 1


def test_wildcard_event_requeues_every_unschedulable_pod() -> None:
    """Rejecting plugins without registered events are included; gated pods are not."""
    queue = make_queue()
    queue.reject(in_flight(queue), {"Unheard"}, set(), "no", 0.0)
    queue.add(make_pod("closed", gates=["g"]), None, 0.0)

    assert queue.on_event(NODE_ADDED, 5.0) == []
    assert queue.on_event(EVERYTHING, 5.0) == ["ns/a"]


def test_popped_pod_has_no_rejectors() -> None:
    """Earlier rejections do not affect this attempt."""
    queue = make_queue()
    queue.reject(in_flight(queue), {"Fit"}, {"Volumes"}, "no", 0.0)
    queue.on_event(EVERYTHING, 5.0)

    queued = pop(queue, 5.0)

    assert queued.rejectors == frozenset()
    assert (queued.first_attempt_s, queued.attempts, queued.message) == (0.0, 2, "no")


# Events during an attempt.


def test_an_event_during_the_attempt_is_not_missed() -> None:
    """The node was added after the pod was popped and may not have been considered."""
    queue = make_queue()
    queued = in_flight(queue)
    queue.on_event(NODE_ADDED, 0.1)
    queue.reject(queued, {"Fit"}, set(), "no", 0.2)

    assert queued.state is BACKOFF


def test_events_before_the_attempt_and_of_others_do_not_count() -> None:
    """Each pod gets events since its own pop, for its rejecting plugins."""
    queue = make_queue()
    first = in_flight(queue, "first")
    queue.on_event(NODE_ADDED, 0.1)
    second = in_flight(queue, "second")
    queue.on_event(NODE_TAINTED, 0.2)

    queue.reject(second, {"Fit"}, set(), "no", 0.3)
    queue.reject(first, {"Fit"}, set(), "no", 0.3)

    assert (first.state, second.state) == (BACKOFF, UNSCHEDULABLE)
    queue.validate()


def test_pending_plugin_evaluates_all_events_of_the_attempt() -> None:
    """A Queue of the pending plugin precedes an earlier Queue of a rejecting one."""
    queue = make_queue({"Fit": HINTS["Fit"], "Volumes": [EventHint("Claim", Action.ADD)]})
    queued = in_flight(queue)
    queue.on_event(NODE_ADDED, 0.1)
    queue.on_event(ClusterEvent("Claim", Action.ADD), 0.1)
    queue.reject(queued, {"Fit"}, {"Volumes"}, "not yet", 0.2)

    assert queued.state is ACTIVE


def test_own_change_during_the_attempt_counts_for_the_pod_only() -> None:
    """A toleration added to one pod helps only that pod."""
    queue = make_queue()
    changed, other = in_flight(queue, "changed"), in_flight(queue, "other")
    tolerant = make_pod("changed", tolerations=[Toleration(operator="Exists")])
    queue.update(changed.pod, tolerant, None, 0.1)

    queue.reject(changed, {"Taints"}, set(), "no", 0.2)
    queue.reject(other, {"Taints"}, set(), "no", 0.2)

    assert (changed.state, other.state) == (BACKOFF, UNSCHEDULABLE)
    assert changed.pod is tolerant


def test_event_log_is_empty_without_pods_in_flight() -> None:
    """The last settled pod clears it."""
    queue = make_queue()
    first, second = in_flight(queue, "first"), in_flight(queue, "second")
    for _ in range(3):
        queue.on_event(NODE_ADDED, 0.1)
    queue.done(first)
    queue.validate()
    assert len(queue._pools.log) == 3
    queue.remove(second.key)

    assert len(queue._pools.log) == 0
    queue.on_event(NODE_ADDED, 0.2)
    assert len(queue._pools.log) == 0


def test_full_event_log_drops_its_older_half() -> None:
    """A reader that falls behind is notified; the queue then requeues."""
    log = EventLog(capacity=4)
    early = log.open()
    for _ in range(3):
        log.append(NODE_ADDED)
    late = log.open()
    for _ in range(2):
        log.append(POD_DELETED)

    assert log.since(early) is None
    assert log.since(late) == [(POD_DELETED, None)] * 2
    log.close(early)
    log.validate([late])

    queue = make_queue()
    queue._pools.log = EventLog(capacity=2)
    queued = in_flight(queue)
    for _ in range(3):
        queue.on_event(NODE_TAINTED, 0.0)
    queue.reject(queued, {"Fit"}, set(), "no", 0.0)
    assert queued.state is BACKOFF


# The pod itself changes.


def test_helpful_change_of_a_pod_requeues_it() -> None:
    """Other pods, and pods whose rejecting plugin ignores the change, keep waiting."""
    queue = make_queue()
    for name in ("a", "b"):
        queue.reject(in_flight(queue, name), {"Taints"}, set(), "no", 0.0)
    tolerant = make_pod("a", tolerations=[Toleration(operator="Exists")])

    queue.update(make_pod("b"), make_pod("b", cpu="500m"), None, 5.0)
    queue.update(make_pod("a"), tolerant, None, 5.0)

    assert names(queue.pods(ACTIVE)) == ["a"]
    assert names(queue.pods(UNSCHEDULABLE)) == ["b"]


def test_a_pod_recreated_under_its_name_starts_over() -> None:
    """A pod with a new uid is another pod, whether or not the deletion was seen."""
    queue = make_queue()
    queue.add(make_pod("a", uid="1"), None, 0.0)
    old = pop(queue)
    queue.add(make_pod("a", uid="2"), None, 5.0)

    new = queue.get("ns/a")
    assert new is not None
    assert new is not old
    assert (new.state, new.attempts, new.queued_at_s) == (ACTIVE, 0, 5.0)
    queue.validate()


def test_adding_a_pod_twice_is_an_update() -> None:
    """A relist repeats known pods; an update of an unknown pod adds it."""
    queue = make_queue()
    queue.add(make_pod("a"), None, 0.0)
    queue.add(make_pod("a"), "key", 9.0)
    queue.update(make_pod("b"), make_pod("b"), None, 9.0)

    assert [(q.key, q.run_key, q.queued_at_s) for q in queue.pods(ACTIVE)] == [
        ("ns/a", "key", 0.0),
        ("ns/b", None, 9.0),
    ]


@pytest.mark.parametrize(
    ("new", "changes"),
    [
        (make_pod("a"), Action(0)),
        (make_pod("a", tolerations=[Toleration(key="k")]), Action.UPDATE_TOLERATIONS),
        (make_pod("a", cpu="500m"), Action.UPDATE_SCALE_DOWN | Action.UPDATE_OTHER),
        (make_pod("a", cpu="2"), Action.UPDATE_OTHER),
        (make_pod("a", gates=["g"]), Action(0)),
    ],
)
def test_update_is_classified_by_its_changes(new: Pod, changes: Action) -> None:
    """A lower request is a scale-down; a new gate helps no pod."""
    assert pod_changes(make_pod("a"), new) == changes


def test_metadata_changes_are_distinguished_and_status_is_ignored() -> None:
    """Status updates of the scheduler arrive as updates and must not requeue the pod."""
    old = make_pod("a", gates=["g"])
    replace = msgspec.structs.replace
    labelled = replace(old, metadata=replace(old.metadata, labels={"a": "b"}))
    annotated = replace(old, metadata=replace(old.metadata, annotations={"a": "b"}))
    nominated = replace(old, status=replace(old.status, nominated_node_name="n"))

    assert pod_changes(old, labelled) == Action.UPDATE_LABELS
    assert pod_changes(old, annotated) == Action.UPDATE_ANNOTATIONS
    assert pod_changes(old, nominated) == Action(0)
    assert pod_changes(old, make_pod("a")) == Action.UPDATE_GATES_ELIMINATED


# Gates.


def test_gated_pod_is_not_tried_until_its_gate_opens() -> None:
    """The pod has no backoff, and its first attempt counts from the opening."""
    queue = make_queue()
    closed = make_pod("a", gates=["g", "h"])
    queue.add(closed, None, 0.0)
    queued = queue.get("ns/a")
    assert queued is not None
    assert queue.pop(0.0) is None
    assert (queued.gated_by, queued.message) == (
        "SchedulingGates",
        "waiting for scheduling gates",
    )

    half_open = make_pod("a", gates=["g"])
    queue.update(closed, half_open, None, 1.0)
    assert queued.state is GATED
    queue.update(half_open, make_pod("a"), None, 2.0)

    assert (queued.state, queued.gated_by, queued.first_attempt_s) == (ACTIVE, "", 2.0)


def test_gate_is_evaluated_on_its_events_only() -> None:
    """The event may not suffice, or another gate may hold the pod."""
    open_gates: set[str] = set()
    evaluated: list[str] = []

    def pre_enqueue(pod: Pod) -> QueueGate | None:
        evaluated.append(pod.metadata.name)
        closed = [gate for gate in ("Gang", "Quota") if gate not in open_gates]
        return QueueGate(closed[0], f"{closed[0]} is not ready") if closed else None

    hints = {
        "Gang": [EventHint("PodGroup", Action.UPDATE)],
        "Quota": [EventHint("ElasticQuota", Action.UPDATE)],
        **HINTS,
    }
    group = ClusterEvent("PodGroup", Action.UPDATE_OTHER)
    quota = ClusterEvent("ElasticQuota", Action.UPDATE_OTHER)
    queue = make_queue(hints, pre_enqueue)
    queue.add(make_pod("a"), None, 0.0)

    for event in (quota, NODE_ADDED, EVERYTHING):
        assert queue.on_event(event, 1.0) == []
    assert queue.flush(1_000.0) == []
    assert len(evaluated) == 1
    assert queue.on_event(group, 1.0) == []
    assert len(evaluated) == 2

    open_gates.add("Gang")
    assert queue.on_event(group, 1.0) == []
    queue.validate()
    open_gates.add("Quota")
    assert queue.on_event(group, 1.0) == []
    assert queue.on_event(quota, 1.0) == ["ns/a"]


def test_a_gate_can_close_after_an_attempt() -> None:
    """Gates are evaluated on every way into active or backoff."""
    closed: list[QueueGate] = []
    queue = make_queue(pre_enqueue=lambda _pod: closed[0] if closed else None)
    queued = in_flight(queue)
    queue.reject(queued, {"Fit"}, set(), "no", 0.0)
    closed.append(QueueGate("Gang", "too few members"))
    queue.on_event(NODE_ADDED, 9.0)

    assert (queued.state, queued.rejectors) == (GATED, frozenset({"Gang"}))
    queue.validate()


@pytest.mark.parametrize("is_other", [False, True])
def test_pod_with_a_changed_class_is_retried(is_other: bool) -> None:
    """Pending pods and pods in flight are retried; other changes do not requeue."""
    queue = make_queue()
    queue.reject(in_flight(queue, "waits"), {"Fit"}, set(), "no", 0.0)
    flying = in_flight(queue, "flies")
    for name in ("waits", "flies"):
        queue.update(make_pod(name), make_pod(name), None, 5.0, is_other=is_other)
    queue.reject(flying, {"Fit"}, set(), "no", 5.0)

    expected = 0 if is_other else 2
    assert queue.counts()[UNSCHEDULABLE] == expected
