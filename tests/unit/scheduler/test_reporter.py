"""Conditions and events for users and controllers."""

from tests.unit.scheduler.conftest import NewEmbedded
from tests.worlds import node, pod

from koordinator.api.event import Event
from koordinator.api.pod import Pod
from koordinator.simulator import Embedded


def events(one: Embedded, about: str) -> list[Event]:
    return [it for it in one.cluster.list(Event).items if it.regarding.name == about]


def test_condition_has_the_observed_generation(embedded: NewEmbedded) -> None:
    """A spec change updates the condition even if the reason stays."""
    one = embedded(node("n", taints=["a=1:NoSchedule"]), pod("p"))
    one.scheduler.step()
    one.cluster.patch(Pod, "p", "default", {"spec": {"tolerations": [{"key": "b"}]}})
    one.run_to_fixed_point()

    stored = one.cluster.get(Pod, "p", "default")

    (condition,) = stored.status.conditions
    assert condition.observed_generation == stored.metadata.generation == 1


def test_event_about_a_victim_names_the_preemptor(embedded: NewEmbedded) -> None:
    """The preemptor is the event's related object, and in its text."""
    one = embedded(node("n", cpu=1), pod("low", cpu=1, on="n"), pod("high", cpu=1, priority=10))
    one.run_to_fixed_point()

    (event,) = events(one, "low")

    assert event.related is not None
    assert (event.related.kind, event.related.name) == ("Pod", "high")


def test_a_pod_with_the_longest_name_has_events(embedded: NewEmbedded) -> None:
    """The name of the event is derived from the pod's and truncated."""
    name = "p" * 229 + "-" + "q" * 23
    one = embedded(node("n"), pod(name))
    one.run_to_fixed_point()

    (event,) = events(one, name)

    assert len(event.metadata.name) <= 253
    assert event.metadata.name.startswith("p" * 229 + ".")
