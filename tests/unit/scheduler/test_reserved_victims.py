"""Preemption for whole jobs where victims use reservations or offer their own amounts."""

import json
from typing import Any

import pytest
from msgspec.structs import replace
from tests.reservations import reservation, uid
from tests.unit.scheduler.test_gangs import group, members, placed
from tests.unit.scheduler.test_holding_pods import FOR_WEB
from tests.unit.scheduler.test_job_preemption import HIGH, config_of, settled, world
from tests.worlds import node, pod

from koordinator.api.annotations.reservation import ALLOCATED
from koordinator.api.labels import OPERATING_MODE
from koordinator.api.meta import Condition
from koordinator.api.pod import Pod

BOTH = pytest.mark.parametrize(
    "config",
    [config_of("Reservation", jobs=False), config_of("Reservation", jobs=True)],
    ids=["off", "on"],
)
WEB = {"app": "web"}


def user(name: str, cpu: int) -> Pod:
    """Return a running pod that uses a reservation."""
    used = {ALLOCATED.key: json.dumps({"name": "warm", "uid": uid("warm")})}
    return pod(name, cpu, on="n", labels=WEB, annotations=used)


def holder(cpu: int) -> Pod:
    """Return a running pod that offers its amounts."""
    running = pod(
        "holder", cpu, on="n", labels={OPERATING_MODE: "Reservation"}, annotations=FOR_WEB
    )
    ready = (Condition(type="Ready", status="True"),)
    return replace(running, status=replace(running.status, conditions=ready))


@BOTH
def test_no_eviction_of_users_whose_room_stays_reserved(config: Any) -> None:
    """The users' amounts return to the reservation, which is for other pods."""
    warm = reservation("warm", 4, on="n")
    gang = members("g", 2, 2, priority=HIGH)
    one = world(node("n", cpu=4), warm, user("u", 4), group("g", 2), *gang, config=config)

    assert settled(one) == []


@BOTH
@pytest.mark.parametrize(("wanted", "victims"), [(2, ["u-0"]), (3, [])])
def test_users_free_what_they_take_beyond_the_reservation(
    config: Any, wanted: int, victims: list[str]
) -> None:
    """Two users of 3 CPUs share a reservation of 4: without one, 2 CPUs are free for others."""
    warm, users = reservation("warm", 4, on="n"), [user("u-0", 3), user("u-1", 3)]
    gang = members("g", 1, wanted, priority=HIGH)
    one = world(node("n", cpu=6), warm, *users, group("g", 1), *gang, config=config)

    assert settled(one) == victims


@BOTH
def test_owners_get_the_room_of_the_users_of_their_reservation(config: Any) -> None:
    """An evicted user gives its amounts back to the reservation."""
    warm = reservation("warm", 4, on="n")
    gang = members("g", 2, 2, priority=HIGH, labels=WEB)
    one = world(node("n", cpu=4), warm, user("u", 4), group("g", 2), *gang, config=config)

    assert settled(one) == ["u"]
    assert set(placed(one)) == {"g-0", "g-1"}


@BOTH
@pytest.mark.parametrize(("used", "victims"), [(3, []), (1, ["holder"])])
def test_evicting_an_offering_pod_frees_what_its_users_left(
    config: Any, used: int, victims: list[str]
) -> None:
    """Of 4 CPUs 3 go on being used, or 1; the users are as important as the gang."""
    offering = holder(4)
    uses = {ALLOCATED.key: json.dumps({"name": "holder", "uid": offering.metadata.uid})}
    web = pod("u", used, on="n", labels=WEB, annotations=uses, priority=HIGH)
    gang = members("g", 1, 3, priority=HIGH)
    one = world(node("n", cpu=4), offering, web, group("g", 1), *gang, config=config)

    assert settled(one) == victims
