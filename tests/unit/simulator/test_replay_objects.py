"""Replays repeat what the scheduler writes into other objects than pods, too."""

from msgspec.structs import replace
from tests.reservations import config, reservation
from tests.unit.scheduler.test_gangs import config as gangs
from tests.unit.scheduler.test_gangs import group, members
from tests.unit.simulator.recordings import Session, new_pod
from tests.unit.simulator.test_replay import nodes
from tests.worlds import node

from koordinator.api.pod import Pod


def new(one: Pod) -> Pod:
    """Return the pod as a user creates it."""
    return replace(one, metadata=replace(one.metadata, uid="", creation_timestamp=None))


def test_a_reservation_is_placed_again_and_used_again() -> None:
    """The replay chooses the place: no status is taken from the recording."""
    one = Session(node("a", cpu=4), node("b", cpu=8), config=config())
    one.add(reservation("r", 6))
    one.submit(new_pod("user", cpu=5, labels={"app": "web"}))
    one.submit(new_pod("other", cpu=5))
    one.wait(30)
    outcomes = one.replayed()

    assert {name: node for name, node in one.nodes_of.items() if "user" in name} == nodes(outcomes)
    assert nodes(outcomes) == {"default/user": "b"}
    assert outcomes.comparison().differences == ()


def test_a_gang_is_placed_together_again() -> None:
    """The gang waits until it is complete, and for capacity for all members."""
    one = Session(node("a", cpu=4), node("b", cpu=4), config=gangs())
    one.add(group("g", 4))
    one.submit(new_pod("before", cpu=3))
    gang = [new(member) for member in members("g", 4, cpu=2)]
    one.submit(*gang[:2])
    one.wait(3)
    one.submit(*gang[2:])
    one.wait(3)
    one.delete("before")
    one.wait(20)
    outcomes = one.replayed()

    assert len(nodes(outcomes)) == 5
    assert nodes(outcomes) == one.nodes_of
    assert outcomes.comparison().differences == ()
