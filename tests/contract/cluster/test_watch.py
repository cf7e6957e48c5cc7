"""Watching, over every adapter."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.contract.cluster.conftest import HISTORY, Bed
from tests.contract.cluster.objects import node, pod

from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.cluster.port import Binding, Cluster, EventType, Watch, WatchEvent
from koordinator.foundation.errors import ClusterError, GoneError, InvalidError

Seen = tuple[str, str]


def poll(watch: Watch) -> list[WatchEvent]:
    watch.wait(5)
    return watch.poll()


def seen(events: list[WatchEvent]) -> list[Seen]:
    return [(event.type.value, event.object.metadata.name) for event in events]


def set_label(cluster: Cluster, name: str, value: str) -> Pod:
    return cluster.patch(Pod, name, "default", {"metadata": {"labels": {"x": value}}})


def test_changes_come_in_order(cluster: Cluster) -> None:
    """Every change after the list is seen once, in the order in which it was made."""
    cluster.create(pod("before"))
    watch = cluster.watch([Pod], cluster.list(Pod).resource_version)
    cluster.create(pod("a"))
    cluster.create(pod("b"))
    set_label(cluster, "a", "1")
    cluster.delete(Pod, "b", "default")
    cluster.bind([Binding("default", "a", "n1")])

    assert seen(poll(watch)) == [
        ("ADDED", "a"),
        ("ADDED", "b"),
        ("MODIFIED", "a"),
        ("DELETED", "b"),
        ("MODIFIED", "a"),
    ]
    assert watch.poll() == []


def test_versions_grow_along_a_watch(cluster: Cluster) -> None:
    """Every event has a version of its own, the deletion too, and later ones are higher."""
    watch = cluster.watch([Pod], cluster.list(Pod).resource_version)
    created = cluster.create(pod("a"))
    changed = set_label(cluster, "a", "1")
    cluster.delete(Pod, "a", "default")

    versions = [event.object.metadata.resource_version for event in poll(watch)]
    assert versions[:2] == [
        created.metadata.resource_version,
        changed.metadata.resource_version,
    ]
    assert len(set(versions)) == 3
    assert sorted(versions, key=int) == versions


def test_a_modification_knows_what_was_before(cluster: Cluster) -> None:
    """If the adapter gives the previous object, it is the one of the event before."""
    watch = cluster.watch([Pod], cluster.list(Pod).resource_version)
    created = cluster.create(pod("a"))
    changed = set_label(cluster, "a", "1")
    added, modified = poll(watch)

    assert (added.object, added.previous) == (created, None)
    assert modified.object == changed
    assert modified.previous in (created, None)


def test_a_watch_sees_its_kinds_only(cluster: Cluster) -> None:
    """One watch may follow several kinds, and no others."""
    since = cluster.list(Pod).resource_version
    both, nodes = cluster.watch([Pod, Node], since), cluster.watch([Node], since)
    cluster.create(pod("a"))
    cluster.create(node("n"))

    assert sorted(seen(poll(both))) == [("ADDED", "a"), ("ADDED", "n")]
    assert seen(poll(nodes)) == [("ADDED", "n")]


def test_a_watch_without_version_starts_with_what_exists(cluster: Cluster) -> None:
    """Existing objects are added, a bookmark ends them, then come changes."""
    cluster.create(pod("b"))
    created = cluster.create(pod("a"))
    watch = cluster.watch([Pod])
    assert watch.resource_version is None
    events = poll(watch)

    assert seen(events[:-1]) == [("ADDED", "a"), ("ADDED", "b")]
    assert events[0].object == created
    assert events[-1].type is EventType.BOOKMARK
    assert type(events[-1].object) is KubeObject
    assert events[-1].object.metadata.resource_version == watch.resource_version
    set_label(cluster, "b", "1")
    assert seen(poll(watch)) == [("MODIFIED", "b")]


def test_the_start_comes_kind_after_kind(cluster: Cluster) -> None:
    """Who needs nodes before pods names them first."""
    cluster.create(pod("a"))
    cluster.create(node("z"))

    events = poll(cluster.watch([Node, Pod]))
    assert [type(event.object) for event in events] == [Node, Pod, KubeObject]


def test_a_watch_resumes_where_another_ended(cluster: Cluster) -> None:
    """Nothing is missed and nothing repeated between two watches."""
    watch = cluster.watch([Pod], cluster.list(Pod).resource_version)
    cluster.create(pod("a"))
    poll(watch)
    watch.close()
    cluster.create(pod("b"))

    assert watch.poll() == []
    assert seen(poll(cluster.watch([Pod], watch.resource_version))) == [("ADDED", "b")]


def test_no_write_no_event(cluster: Cluster) -> None:
    """Failed writes and updates that change nothing are not seen."""
    created = cluster.create(pod("a"))
    watch = cluster.watch([Pod], created.metadata.resource_version)
    cluster.update(created)
    cluster.patch(Pod, "a", "default", {})
    with pytest.raises(ClusterError):
        cluster.create(pod("a"))

    assert watch.poll() == []


def test_wait_tells_whether_there_is_something(cluster: Cluster) -> None:
    """Waiting ends without an event too, and says so."""
    watch = cluster.watch([Pod], cluster.list(Pod).resource_version)
    assert watch.wait(0) is False
    cluster.create(pod("a"))
    assert watch.wait(5) is True
    watch.poll()
    assert watch.wait(0) is False


def test_a_version_that_is_too_old_is_gone(bed: Bed) -> None:
    """Who asks for forgotten history must list again."""
    cluster = bed.shorten_history().cluster
    since = cluster.list(Pod).resource_version
    cluster.create(pod("a"))
    for i in range(3 * HISTORY):
        set_label(cluster, "a", str(i))

    with pytest.raises(GoneError):
        cluster.watch([Pod], since).poll()


def test_a_watch_that_falls_behind_is_gone(bed: Bed) -> None:
    """A watch never skips changes: it fails, and keeps failing."""
    cluster = bed.shorten_history().cluster
    watch = cluster.watch([Pod], cluster.list(Pod).resource_version)
    cluster.create(pod("a"))
    for i in range(3 * HISTORY):
        set_label(cluster, "a", str(i))

    for _ in range(2):
        assert watch.wait(0) is True
        with pytest.raises(GoneError):
            watch.poll()


@pytest.mark.parametrize("since", ["abc", "999999999"])
def test_versions_that_never_were_are_refused(cluster: Cluster, since: str) -> None:
    """A version is one that a list, an object or a watch gave."""
    with pytest.raises(InvalidError):
        cluster.watch([Pod], since).poll()


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
            cluster.bind([Binding("default", name, f"n{tick}", annotations={"t": str(tick)})])
        elif action == "run":
            found = cluster.get(Pod, name, "default")
            cluster.update_status(replace(found, status=replace(found.status, phase="Running")))
        elif action in finalizers:
            patch = {"metadata": {"finalizers": finalizers[action]}}
            cluster.patch(Pod, name, "default", patch)
        else:
            grace_period_s = 0 if action == "kill" else None
            cluster.delete(Pod, name, "default", grace_period_s=grace_period_s)
    except ClusterError:
        pass


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_replay_from_any_version_ends_with_the_list(
    new_bed: Callable[[], Bed], steps: list[tuple[str, str]]
) -> None:
    """Whoever listed at some time and applied every event since has what a list gives now."""
    cluster = new_bed().cluster
    listings = [cluster.list(Pod)]
    for tick, (action, name) in enumerate(steps):
        act(cluster, action, name, tick)
        listings.append(cluster.list(Pod))

    final = {p.key: p for p in cluster.list(Pod).items}
    for listing in listings:
        state: dict[str, KubeObject] = {p.key: p for p in listing.items}
        watch = cluster.watch([Pod], listing.resource_version)
        for event in watch.poll():
            key = event.object.key
            assert (key in state) is (event.type is not EventType.ADDED)
            if event.type is EventType.DELETED:
                del state[key]
            else:
                assert event.previous in (state.get(key), None)
                state[key] = event.object
        assert state == final
