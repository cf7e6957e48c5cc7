"""Index of nominated pods by node."""

import msgspec

from koordinator.api.meta import ObjectMeta
from koordinator.api.pod import Container, Pod, PodSpec, PodStatus
from koordinator.scheduler.queue import Nominator


def make_pod(name: str, nominated_node_name: str = "") -> Pod:
    return Pod(
        metadata=ObjectMeta(namespace="ns", name=name),
        spec=PodSpec(containers=(Container(name="main"),)),
        status=PodStatus(nominated_node_name=nominated_node_name),
    )


def test_a_pod_is_nominated_to_one_node_at_a_time() -> None:
    """A later nomination replaces the earlier one; pods of a node are in order of nomination."""
    nominator = Nominator()
    a, b = make_pod("a"), make_pod("b")
    nominator.add(a, "n1")
    nominator.add(b, "n1")
    assert nominator.on_node("n1") == (a, b)

    nominator.add(a, "n2")

    assert nominator.on_node("n1") == (b,)
    assert nominator.node_of("ns/a") == "n2"
    assert nominator.nodes() == ("n1", "n2")
    nominator.validate()


def test_without_a_node_the_status_of_the_pod_counts() -> None:
    """After a restart nominations are read from the API; without a node there is none."""
    nominator = Nominator()
    nominator.add(make_pod("a", "n1"))
    nominator.add(make_pod("b"))

    assert nominator.node_of("ns/a") == "n1"
    assert nominator.node_of("ns/b") == ""
    nominator.add(make_pod("a"))
    assert nominator.nodes() == ()


def test_update_without_nomination_keeps_it() -> None:
    """The update was sent before our write arrived; the new version of the pod is kept."""
    nominator = Nominator()
    old = make_pod("a")
    nominator.add(old, "n1")
    new = msgspec.structs.replace(old, metadata=ObjectMeta(namespace="ns", name="a", uid="1"))
    nominator.update(new)

    assert nominator.on_node("n1") == (new,)
    nominator.validate()


def test_nomination_in_an_update_wins() -> None:
    """The status in the API wins once it has a nomination."""
    nominator = Nominator()
    nominator.update(make_pod("a", "n1"))
    assert nominator.node_of("ns/a") == "n1"
    nominator.update(make_pod("a", "n2"))
    assert nominator.node_of("ns/a") == "n2"
    nominator.update(make_pod("a"))
    assert nominator.node_of("ns/a") == ""


def test_events_older_than_our_last_write_do_not_count() -> None:
    """The nomination was cleared and set again; the events of both arrive later."""
    nominator = Nominator()
    nominator.update(make_pod("a", "n1"))

    nominator.withdraw("ns/a")
    nominator.update(make_pod("a", "n1"))
    assert nominator.node_of("ns/a") == ""
    nominator.add(make_pod("a"), "n2")
    nominator.update(make_pod("a"))
    assert nominator.node_of("ns/a") == "n2"
    nominator.update(make_pod("a", "n2"))
    nominator.update(make_pod("a"))
    assert nominator.node_of("ns/a") == ""
    nominator.validate()


def test_a_removed_pod_leaves_no_trace() -> None:
    """Removing an unknown pod has no effect."""
    nominator = Nominator()
    nominator.add(make_pod("a"), "n1")
    nominator.remove("ns/a")
    nominator.remove("ns/b")

    assert nominator.on_node("n1") == ()
    assert nominator.nodes() == ()
    nominator.validate()
