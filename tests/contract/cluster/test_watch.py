"""Watching, over every adapter."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.contract.cluster.conftest import Bed
from tests.contract.cluster.objects import node, pod
from tests.examples import examples

from koordinator.api.meta import KubeObject, ObjectMeta
from koordinator.api.node import Node
from koordinator.api.pod import Pod, PodSpec
from koordinator.cluster.port import Binding, Cluster, EventType, Watch, WatchEvent
from koordinator.foundation.errors import ClusterError, InvalidError

Seen = tuple[str, str]


def poll(cluster: Cluster, watch: Watch, at_least: int = 1) -> list[WatchEvent]:
    """Return what comes, at least that many events if they come within a minute."""
    events = list(watch.poll())
    while len(events) < at_least and cluster.wait(60):
        events += watch.poll()
    return events


def seen(events: Sequence[WatchEvent]) -> list[Seen]:
    return [(event.type.value, event.object.metadata.name) for event in events]


def without_marks(events: Sequence[WatchEvent]) -> list[WatchEvent]:
    """Return the events but for those that only mark a pod as being deleted.

    A real API server marks pods even if they then go at once.
    """
    marks = [e for e in events if e.type is EventType.MODIFIED and is_marked(e)]
    return [e for e in events if e not in marks]


def is_marked(event: WatchEvent) -> bool:
    return event.object.metadata.deletion_timestamp is not None


def started(cluster: Cluster, *kinds: type[KubeObject]) -> Watch:
    """Return a watch that has delivered what exists."""
    watch = cluster.watch(kinds)
    while EventType.BOOKMARK not in [event.type for event in poll(cluster, watch)]:
        pass
    return watch


def set_label(cluster: Cluster, name: str, value: str) -> Pod:
    return cluster.patch(Pod, name, "default", {"metadata": {"labels": {"x": value}}})


def set_phase(cluster: Cluster, name: str, phase: str) -> Pod:
    return cluster.patch(Pod, name, "default", {"status": {"phase": phase}}, "status")


def test_changes_come_in_order(cluster: Cluster) -> None:
    """Every change after the start is seen once, in the order in which it was made."""
    cluster.create(pod("before"))
    watch = started(cluster, Pod)
    cluster.create(pod("a"))
    cluster.create(pod("b"))
    set_label(cluster, "a", "1")
    cluster.delete(Pod, "b", "default", grace_period_s=0)
    cluster.bind([Binding("default", "a", "n1")]).results()

    events: list[WatchEvent] = []
    while len(without_marks(events)) < 5:
        events += poll(cluster, watch)
    assert seen(without_marks(events)) == [
        ("ADDED", "a"),
        ("ADDED", "b"),
        ("MODIFIED", "a"),
        ("DELETED", "b"),
        ("MODIFIED", "a"),
    ]
    assert not watch.poll()


def test_versions_grow_along_a_watch(cluster: Cluster) -> None:
    """Every event has a version of its own, the deletion too, and later ones are higher."""
    watch = started(cluster, Pod)
    created = cluster.create(pod("a"))
    changed = set_label(cluster, "a", "1")
    cluster.delete(Pod, "a", "default", grace_period_s=0)

    versions = [event.object.metadata.resource_version for event in poll(cluster, watch, 3)]
    assert versions[:2] == [
        created.metadata.resource_version,
        changed.metadata.resource_version,
    ]
    assert len(set(versions)) == len(versions)
    assert sorted(versions, key=int) == versions


def test_modification_has_the_previous_object(cluster: Cluster) -> None:
    """The previous object is the one that this watch delivered before."""
    existing = cluster.create(pod("old"))
    watch = started(cluster, Pod)
    created = cluster.create(pod("a"))
    changed = set_label(cluster, "a", "1")
    set_label(cluster, "old", "1")
    added, modified, other = poll(cluster, watch, 3)

    assert (added.object, added.previous) == (created, None)
    assert (modified.object, modified.previous) == (changed, created)
    assert other.previous == existing


def test_a_watch_sees_its_kinds_only(cluster: Cluster) -> None:
    """One watch may follow several kinds, and no others."""
    both, nodes = started(cluster, Pod, Node), started(cluster, Node)
    cluster.create(pod("a"))
    cluster.create(node("n"))

    assert sorted(seen(poll(cluster, both, 2))) == [("ADDED", "a"), ("ADDED", "n")]
    assert seen(poll(cluster, nodes)) == [("ADDED", "n")]


def test_a_watch_starts_with_what_exists(cluster: Cluster) -> None:
    """Existing objects are added, a bookmark ends them, then come changes."""
    cluster.create(pod("b"))
    created = cluster.create(pod("a"))
    watch = cluster.watch([Pod])
    events = poll(cluster, watch, 3)

    assert seen(events[:-1]) == [("ADDED", "a"), ("ADDED", "b")]
    assert events[0].object == created
    assert events[-1].type is EventType.BOOKMARK
    assert type(events[-1].object) is KubeObject
    set_label(cluster, "b", "1")
    assert seen(poll(cluster, watch)) == [("MODIFIED", "b")]


def test_initial_objects_are_delivered_kind_by_kind(cluster: Cluster) -> None:
    """Kinds are delivered in the order in which the caller lists them."""
    cluster.create(pod("a"))
    cluster.create(node("z"))

    events = poll(cluster, cluster.watch([Node, Pod]), 3)
    assert [type(event.object) for event in events] == [Node, Pod, KubeObject]


def test_watch_delivers_transformed_objects(cluster: Cluster) -> None:
    """In place of the object, before and after; other kinds are as they are."""
    cluster.create(pod("a"))
    cluster.create(node("n"))

    def bare(obj: KubeObject) -> KubeObject:
        meta = obj.metadata
        kept = ObjectMeta(
            name=meta.name,
            namespace=meta.namespace,
            uid=meta.uid,
            resource_version=meta.resource_version,
        )
        return Pod(metadata=kept, spec=PodSpec(containers=()))

    watch = cluster.watch([Node, Pod], transforms={Pod: bare})
    of_node, added, _ = poll(cluster, watch, 3)
    assert of_node.object == cluster.get(Node, "n")
    assert added.object == bare(cluster.get(Pod, "a", "default"))
    changed = set_label(cluster, "a", "1")
    (modified,) = poll(cluster, watch)
    assert (modified.object, modified.previous) == (bare(changed), added.object)
    cluster.delete(Pod, "a", "default", grace_period_s=0)
    deleted = modified
    while deleted.type is not EventType.DELETED:  # a real API server marks the pod before
        (*_, deleted) = poll(cluster, watch)
    assert deleted.object.metadata.labels == {}
    assert deleted.object.key == "default/a"


def test_a_closed_watch_is_silent(cluster: Cluster) -> None:
    """Nothing comes after the end, and ending twice is no mistake."""
    watch = started(cluster, Pod)
    cluster.create(pod("a"))
    watch.close()
    watch.close()

    assert not watch.poll()


def test_no_write_no_event(cluster: Cluster) -> None:
    """Failed writes and updates that change nothing are not seen."""
    created = cluster.create(pod("a"))
    watch = started(cluster, Pod)
    cluster.update(created)
    cluster.patch(Pod, "a", "default", {})
    with pytest.raises(ClusterError):
        cluster.create(pod("a"))
    cluster.create(pod("last"))

    assert seen(poll(cluster, watch)) == [("ADDED", "last")]


def test_wait_returns_whether_there_is_an_event(cluster: Cluster) -> None:
    """Waiting without an event ends with False."""
    watch = started(cluster, Pod)
    assert cluster.wait(0) is False
    cluster.create(pod("a"))
    assert cluster.wait(60) is True
    watch.poll()
    assert cluster.wait(0) is False


def test_a_field_selector_keeps_the_rest_away(cluster: Cluster) -> None:
    """An object that begins or ceases to match comes or goes, for who watches only those."""
    for name in ("finished", "running"):
        cluster.create(pod(name))
    set_phase(cluster, "finished", "Succeeded")
    watch = cluster.watch([Pod], {Pod: "status.phase!=Succeeded"})
    assert seen(poll(cluster, watch, 2))[:-1] == [("ADDED", "running")]
    set_label(cluster, "finished", "1")
    set_label(cluster, "running", "1")
    set_phase(cluster, "running", "Succeeded")
    set_phase(cluster, "finished", "Pending")

    assert seen(poll(cluster, watch, 3)) == [
        ("MODIFIED", "running"),
        ("DELETED", "running"),
        ("ADDED", "finished"),
    ]


def test_a_field_that_is_not_offered_is_refused(cluster: Cluster) -> None:
    """A wrong selector is an error, not a watch that never sees anything."""
    with pytest.raises(InvalidError):
        poll(cluster, cluster.watch([Pod], {Pod: "spec.priority=1"}))


def test_changes_during_a_broken_stream_are_delivered(bed: Bed) -> None:
    """A watcher that lost changes receives the difference, then later changes."""
    cluster = bed.cluster
    for name in ("changed", "deleted", "same"):
        cluster.create(pod(name))
    watch = started(cluster, Pod)
    cluster.create(pod("added"))
    set_label(cluster, "changed", "1")
    cluster.delete(Pod, "deleted", "default", grace_period_s=0)
    bed.break_watches()

    events: list[WatchEvent] = []
    while len(without_marks(events)) < 3:
        events += poll(cluster, watch)
    assert sorted(seen(without_marks(events))) == [
        ("ADDED", "added"),
        ("DELETED", "deleted"),
        ("MODIFIED", "changed"),
    ]
    set_label(cluster, "same", "1")
    assert seen(poll(cluster, watch)) == [("MODIFIED", "same")]


def test_a_refreshed_watch_is_up_to_date(bed: Bed) -> None:
    """Earlier changes are delivered before the bookmark, and none twice."""
    cluster = bed.cluster
    cluster.create(pod("old"))
    watch = started(cluster, Node, Pod)
    cluster.create(pod("a"))
    cluster.create(node("n"))
    set_label(cluster, "old", "1")
    watch.refresh()

    events: list[WatchEvent] = []
    while EventType.BOOKMARK not in [event.type for event in events]:
        events += poll(cluster, watch)
    assert events[-1].type is EventType.BOOKMARK
    assert sorted(seen(events[:-1])) == [("ADDED", "a"), ("ADDED", "n"), ("MODIFIED", "old")]
    set_label(cluster, "a", "1")
    assert seen(poll(cluster, watch)) == [("MODIFIED", "a")]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["create", "label", "bind", "run", "delete", "kill", "hold", "release"]),
        st.sampled_from(["a", "b", "c"]),
    ),
    max_size=25,
)


def act(cluster: Cluster, action: str, name: str, tick: int) -> None:
    """Try one action; whether it is possible in this state is no matter."""
    finalizers = {"hold": ["koordinator.sh/hold"], "release": None}
    try:
        if action == "create":
            cluster.create(pod(name))
        elif action == "label":
            set_label(cluster, name, str(tick))
        elif action == "bind":
            cluster.bind(
                [Binding("default", name, f"n{tick}", annotations={"t": str(tick)})]
            ).results()
        elif action == "run":
            stored = cluster.get(Pod, name, "default")
            cluster.update_status(replace(stored, status=replace(stored.status, phase="Running")))
        elif action in finalizers:
            patch = {"metadata": {"finalizers": finalizers[action]}}
            cluster.patch(Pod, name, "default", patch)
        else:
            grace_period_s = 0 if action == "kill" else None
            cluster.delete(Pod, name, "default", grace_period_s=grace_period_s)
    except ClusterError:
        pass


@settings(max_examples=examples(25), deadline=None)
@given(steps=STEPS, opened=st.integers(0, 25))
def test_a_watch_ends_with_the_list(
    new_bed: Callable[[], Bed], steps: list[tuple[str, str]], opened: int
) -> None:
    """Events applied in order add up to the current list, from any start."""
    cluster = new_bed().cluster
    watch = cluster.watch([Pod]) if opened >= len(steps) else None
    for tick, (action, name) in enumerate(steps):
        if tick == opened:
            watch = cluster.watch([Pod])
        act(cluster, action, name, tick)
    assert watch is not None
    last = cluster.create(pod("last"))

    state: dict[str, KubeObject] = {}
    while last.key not in state:
        for event in poll(cluster, watch):
            if event.type is EventType.BOOKMARK:
                continue
            key = event.object.key
            assert (key in state) is (event.type is not EventType.ADDED)
            assert event.type is EventType.DELETED or event.previous == state.get(key)
            if event.type is EventType.DELETED:
                del state[key]
            else:
                state[key] = event.object
    assert state == {p.key: p for p in cluster.list(Pod).items}
