"""Reservations over what running pods use."""

from typing import Any

import pytest
from tests.reservations import config, reservation
from tests.unit.scheduler.conftest import NewEmbedded
from tests.unit.scheduler.test_reservations import Played
from tests.worlds import Amount, node, pod

from koordinator.api.kubescheduler import KubeSchedulerConfiguration
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.api.reservation import Reservation

WEB = {"app": "web"}
REQUIRED = {"scheduling.koordinator.sh/pre-allocation-required": "true"}
CANDIDATE = {"pod.koordinator.sh/is-pre-allocatable": "true"}


@pytest.fixture
def play(embedded: NewEmbedded) -> Any:
    def start(*objects: KubeObject, on: KubeSchedulerConfiguration | None = None) -> Played:
        return Played(embedded(*objects, config=on or config()))

    return start


def over(name: str, cpu: Amount, **more: Any) -> Reservation:
    """Return a reservation that may take over pods."""
    more = {"policy": "Restricted", "preAllocation": True, **more}
    return reservation(name, cpu, **more)


def several(mode: str = "Default") -> dict[str, object]:
    return {"preAllocationPolicy": {"mode": mode, "enableMultiple": True}}


def test_a_running_pod_becomes_the_user_of_a_new_reservation(play: Any) -> None:
    """What it uses counts once, and is the reservation's when it goes."""
    played = play(node("n", cpu=4), pod("a", 3, on="n", labels=WEB), over("r", 4), pod("x", 1))

    assert played.nodes()["r"] == "n"
    assert played.uses("a") == "r"
    assert [owner.name for owner in played.get("r").status.current_owners] == ["a"]
    assert played.nodes()["x"] == ""
    assert played.delete(Pod, "a").nodes()["x"] == ""
    assert played.add(pod("b", 4, labels=WEB)).uses("b") == "r"


def test_pods_of_others_are_left_alone(play: Any) -> None:
    """The reservation waits, as it would without the wish."""
    played = play(node("n", cpu=4), pod("a", 3, on="n"), over("r", 4))

    assert (played.nodes()["r"], played.uses("a")) == ("", "")


def test_one_pod_is_taken_over_unless_there_may_be_several(play: Any) -> None:
    """Of one, the one that fills the reservation most; of several, as many as it takes."""
    pods = [pod(name, 2, on="n", labels=WEB) for name in ("a", "b")]
    one = play(node("n", cpu=4), *pods, over("r", 4))
    assert one.nodes()["r"] == ""
    assert "1 Insufficient cpu by node" in one.message("r")

    both = play(node("n", cpu=4), *pods, over("r", 4, **several()))
    assert (both.uses("a"), both.uses("b")) == ("r", "r")


def test_only_a_restricted_reservation_takes_over_pods(play: Any) -> None:
    """Others could give more than they have."""
    played = play(node("n", cpu=4), pod("a", 3, on="n", labels=WEB), over("r", 4, policy="Aligned"))

    assert "pre allocation is unsupported with current attributes" in played.message("r")


def test_a_reservation_may_insist_on_pods(play: Any) -> None:
    """Then a free node is not good enough."""
    held = over("r", 2, labels=REQUIRED)
    played = play(node("full", cpu=2), node("free", cpu=4), held)
    assert "node(s) no pod match reservation with pre allocation required" in played.message("r")

    assert played.add(pod("a", 2, on="full", labels=WEB)).nodes()["r"] == "full"


def test_free_room_may_go_before_pods(play: Any) -> None:
    """If the configuration prefers that."""
    objects = (node("n", cpu=8), pod("a", 2, on="n", labels=WEB), over("r", 2))
    prefers = config(preAllocationConfig={"preferNoPreAllocatedPods": True})

    assert play(*objects).uses("a") == "r"
    assert play(*objects, on=prefers).uses("a") == ""


def test_any_marked_pod_may_be_taken_over_in_the_mode_cluster(play: Any) -> None:
    """Where the configuration has it, by the priority of their annotation."""
    first = {"pod.koordinator.sh/pre-allocatable-priority": "9"}
    objects = (
        node("n", cpu=4),
        pod("a", 2, on="n", labels=CANDIDATE),
        pod("b", 2, on="n", labels=CANDIDATE, annotations=first),
        over("r", 2, **several("Cluster")),
    )
    refused = play(*objects)
    assert "requires cluster mode pre-allocation which is disabled" in refused.message("r")

    allowed = config(preAllocationConfig={"enableClusterMode": True})
    played = play(*objects, on=allowed)
    assert (played.uses("a"), played.uses("b")) == ("", "r")
