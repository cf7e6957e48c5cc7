"""Reports, over every adapter: writes in the background that arrive eventually."""

from tests.contract.cluster.objects import pod
from tests.contract.cluster.waiting import eventually

from koordinator.api.core import MicroTime, ObjectReference
from koordinator.api.event import Event
from koordinator.api.meta import Condition, ObjectMeta
from koordinator.api.pod import Pod, PodStatus
from koordinator.cluster.port import Cluster, ObjectPatch, PodReport
from koordinator.foundation.clock import UTC
from koordinator.foundation.errors import ClusterError


def status(cluster: Cluster, name: str) -> PodStatus:
    return cluster.get(Pod, name, "default").status


def conditions(cluster: Cluster, name: str) -> dict[str, tuple[str, str]]:
    return {c.type: (c.status, c.message) for c in status(cluster, name).conditions}


def unschedulable(message: str) -> Condition:
    return Condition(type="PodScheduled", status="False", reason="Unschedulable", message=message)


def note(name: str, text: str) -> Event:
    return Event(
        metadata=ObjectMeta(name=name, namespace="default"),
        event_time=MicroTime.fromtimestamp(1_700_000_000, UTC),
        reporting_controller="test",
        reporting_instance="test",
        action="Testing",
        reason="Tested",
        regarding=ObjectReference(api_version="v1", kind="Pod", namespace="default", name="a"),
        note=text,
        type="Normal",
    )


def test_a_condition_takes_the_place_of_its_type_only(cluster: Cluster) -> None:
    """Conditions of other types stay; the newest of one type is what can be read."""
    cluster.create(pod("a"))
    ready = {"conditions": [{"type": "Ready", "status": "False", "message": "theirs"}]}
    cluster.patch(Pod, "a", "default", {"status": ready}, "status")
    cluster.report([PodReport("default", "a", condition=unschedulable("one"))])
    cluster.report([PodReport("default", "a", condition=unschedulable("two"))])

    wanted = {"Ready": ("False", "theirs"), "PodScheduled": ("False", "two")}
    assert eventually(cluster, lambda: conditions(cluster, "a") == wanted)


def test_nomination_is_set_and_cleared(cluster: Cluster) -> None:
    """An empty name takes the nomination back; a report without one leaves it."""
    cluster.create(pod("a"))
    cluster.report([PodReport("default", "a", nominated_node="n1")])
    assert eventually(cluster, lambda: status(cluster, "a").nominated_node_name == "n1")
    cluster.report([PodReport("default", "a", condition=unschedulable("one"))])
    assert eventually(cluster, lambda: "PodScheduled" in conditions(cluster, "a"))
    assert status(cluster, "a").nominated_node_name == "n1"
    cluster.report([PodReport("default", "a", nominated_node="")])
    assert eventually(cluster, lambda: not status(cluster, "a").nominated_node_name)


def test_a_report_about_another_pod_of_that_name_is_dropped(cluster: Cluster) -> None:
    """The uid identifies the pod; a deleted pod is no error."""
    cluster.create(pod("a"))
    cluster.report(
        [
            PodReport("default", "missing", condition=unschedulable("one")),
            PodReport("default", "a", uid="another", condition=unschedulable("two")),
        ]
    )
    cluster.report([PodReport("default", "a", nominated_node="n1")])

    assert eventually(cluster, lambda: status(cluster, "a").nominated_node_name == "n1")
    assert "PodScheduled" not in conditions(cluster, "a")


def test_a_deletion_waits_for_what_has_been_reported(cluster: Cluster) -> None:
    """The reason is readable before the pod is deleted."""
    names = [f"p{index}" for index in range(10)]
    for name in names:
        cluster.create(pod(name, finalizers=("test/kept",)))
    watch = cluster.watch([Pod])
    for name in names:
        cluster.report([PodReport("default", name, condition=unschedulable("why"))])
        cluster.delete(Pod, name, "default")

    first: dict[str, Pod] = {}

    def all_seen() -> bool:
        for event in watch.poll():
            if isinstance(event.object, Pod) and event.object.metadata.deletion_timestamp:
                first.setdefault(event.object.metadata.name, event.object)
        return len(first) == len(names)

    assert eventually(cluster, all_seen)
    watch.close()
    assert all(it.status.conditions[0].message == "why" for it in first.values())


def test_an_event_takes_the_place_of_its_name(cluster: Cluster) -> None:
    """Repeating an event updates it, and a new one is stored."""
    cluster.report([note("x", "first")])
    cluster.report([note("x", "second"), note("y", "other")])

    def notes() -> dict[str, str]:
        try:
            return {n: cluster.get(Event, n, "default").note for n in ("x", "y")}
        except ClusterError:
            return {}

    assert eventually(cluster, lambda: notes() == {"x": "second", "y": "other"})


def labels(cluster: Cluster, name: str) -> dict[str, str]:
    return cluster.get(Pod, name, "default").metadata.labels


def labelled(name: str, uid: str = "", **given: str | None) -> ObjectPatch:
    return ObjectPatch(Pod, "default", name, {"metadata": {"labels": given}}, uid=uid)


def test_patch_arrives_in_the_background(cluster: Cluster) -> None:
    """Several patches of one object come to the same as one after the other."""
    cluster.create(pod("a"))
    cluster.report([labelled("a", x="1", y="1")])
    cluster.report([labelled("a", x="2"), labelled("a", y=None, z="3")])

    assert eventually(cluster, lambda: labels(cluster, "a") == {"x": "2", "z": "3"})


def test_a_patch_of_a_status_leaves_the_rest(cluster: Cluster) -> None:
    """With the subresource, changes of other fields are ignored."""
    cluster.create(pod("a"))
    change = {"status": {"message": "here"}, "metadata": {"labels": {"x": "1"}}}
    cluster.report([ObjectPatch(Pod, "default", "a", change, subresource="status")])

    assert eventually(cluster, lambda: status(cluster, "a").message == "here")
    assert labels(cluster, "a") == {}


def test_a_patch_that_cannot_be_is_dropped(cluster: Cluster) -> None:
    """Of a missing object, or of another one of that name; the next one arrives."""
    cluster.create(pod("a"))
    cluster.report([labelled("missing", x="1"), labelled("a", uid="another", x="1")])
    cluster.report([labelled("a", z="3")])

    assert eventually(cluster, lambda: labels(cluster, "a") == {"z": "3"})
