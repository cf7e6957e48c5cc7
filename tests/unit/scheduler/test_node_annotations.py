"""Annotations of nodes as plugins see them, and the decision time."""

from tests.worlds import node, world

from koordinator.scheduler.snapshot import ClusterState, Snapshot

AT = "example.com/maintenance-at"


def seen(state: ClusterState) -> dict[str, str | None]:
    """Return the annotation by node."""
    ids, values = Snapshot(state).annotation(AT)
    return {
        name: values[ids[row]] if ids[row] >= 0 else None for name, row in state.nodes.rows.items()
    }


def test_annotations_follow_their_nodes() -> None:
    """Nodes are changed, deleted and recreated, beyond the initial capacity."""
    state = world(node("a", annotations={AT: "now"}), node("b"))
    assert seen(state) == {"a": "now", "b": None}

    state.put_node(node("b", annotations={AT: "later"}))
    state.put_node(node("a"))
    assert seen(state) == {"a": None, "b": "later"}

    state.drop_node("b")
    state.put_node(node("c"))
    assert seen(state) == {"a": None, "c": None}

    for number in range(200):
        state.put_node(node(f"n{number}", annotations={AT: str(number)}))
    assert seen(state)["n199"] == "199"


def test_unused_annotation_is_dropped_and_read_again() -> None:
    """A sweep between decisions changes no result."""
    state = world(node("a", annotations={AT: "now"}))
    assert seen(state) == {"a": "now"}
    state.sweep()
    state.sweep()
    state.put_node(node("a", annotations={AT: "later"}))

    assert seen(state) == {"a": "later"}


def test_decision_time_is_passed_to_plugins() -> None:
    """No plugin reads a clock."""
    state = world(node("a"))
    state.advance(12.5)

    assert Snapshot(state).now_s == 12.5
