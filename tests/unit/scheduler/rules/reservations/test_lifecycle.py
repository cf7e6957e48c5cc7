"""The status of reservations over time."""

import datetime as dt
from typing import Any

import pytest
from msgspec.structs import replace
from tests.reservations import reservation
from tests.worlds import pod

from koordinator.api.pod import Pod
from koordinator.domain.reserve_pod import HIGHEST_PRIORITY, reserve_pod, template_requests
from koordinator.domain.resized_pods import DEFAULT_RULES
from koordinator.scheduler.rules.reservations import lifecycle

NOW = dt.datetime(2023, 11, 15, tzinfo=dt.UTC)
CREATED_S = dt.datetime(2023, 11, 14, 22, tzinfo=dt.UTC).timestamp()


def named(name: str, cpu: int) -> Pod:
    made = pod(name, cpu, on="n")
    return replace(made, metadata=replace(made.metadata, uid=name))


# -- the reserve pod -------------------------------------------------------------------------------


def test_the_pod_has_what_the_template_has() -> None:
    """The uid is the reservation's; no pod of the cluster can have the name; labels go before."""
    reserved = reservation("r", 2, labels={"a": "1"}, template={"nodeSelector": {"disk": "ssd"}})
    made = reserve_pod(reserved)

    assert made.metadata.uid == reserved.metadata.uid
    assert made.metadata.name == f"reservation:{reserved.metadata.uid}"
    assert (made.metadata.namespace, made.spec.scheduler_name) == ("default", "default-scheduler")
    assert made.metadata.labels == {"a": "1"}
    assert made.spec.node_selector == {"disk": "ssd"}
    assert (made.spec.node_name, made.spec.priority) == ("", HIGHEST_PRIORITY)


def test_priority_is_of_the_template_or_a_label_of_the_reservation() -> None:
    """By default nothing is more important; a label of the template is for pods."""
    label = {"koordinator.sh/priority": "5"}

    assert (
        reserve_pod(reservation("r", 1, template={"priority": 7}, labels=label)).spec.priority == 7
    )
    assert reserve_pod(reservation("r", 1, labels=label)).spec.priority == 5
    of_pods = reservation("r", 1)
    template = of_pods.spec.template
    template = replace(template, metadata=replace(template.metadata, labels=label))
    of_pods = replace(of_pods, spec=replace(of_pods.spec, template=template))
    assert reserve_pod(of_pods).spec.priority == HIGHEST_PRIORITY


def test_available_reservation_requests_the_amounts_of_its_status() -> None:
    """A later change of the template has no influence."""
    reserved = reservation("r", 2, "1Gi", on="n")
    status = replace(reserved.status, allocatable={"cpu": reserved.status.allocatable["cpu"]})
    made = reserve_pod(replace(reserved, status=status))

    assert made.spec.node_name == "n"
    assert {name: str(q) for name, q in template_requests(made.spec).items()} == {"cpu": "2"}


# -- status --------------------------------------------------------------------------------------


def test_annotated_amounts_go_before_those_of_the_template() -> None:
    """A reservation that a plugin resized holds the new amounts."""
    resized = {
        "scheduling.koordinator.sh/reservation-resize-allocatable": '{"resources":{"cpu":"3"}}'
    }
    status = lifecycle.available(reservation("r", 2, "1Gi", annotations=resized), "n", NOW)

    assert {name: str(q) for name, q in status.allocatable.items()} == {"cpu": "3", "memory": "1Gi"}


def test_the_same_failure_is_written_once() -> None:
    """A different message keeps the time of the transition."""
    first = lifecycle.unschedulable(reservation("r", 1), "no room", NOW)
    assert first is not None
    failed = replace(reservation("r", 1), status=first)
    later = NOW + dt.timedelta(hours=1)

    assert lifecycle.unschedulable(failed, "no room", later) is None
    again = lifecycle.unschedulable(failed, "no node", later)
    assert again is not None
    assert again.conditions[0].last_transition_time == NOW


def test_owners_are_listed_by_uid_with_what_they_take() -> None:
    """Of what is reserved; without a change there is nothing to write."""
    reserved = reservation("r", 4, on="n")
    pods = [named("b", 1), named("a", 2)]
    status = lifecycle.used(reserved, pods, NOW, DEFAULT_RULES)

    assert status is not None
    assert [owner.name for owner in status.current_owners] == ["a", "b"]
    assert str(status.allocated["cpu"]) == "3"
    assert status.phase == "Available"
    updated = replace(reserved, status=status)
    assert lifecycle.used(updated, reversed(pods), NOW, DEFAULT_RULES) is None


def test_with_its_first_owner_a_reservation_used_once_has_succeeded() -> None:
    """With the time of the transition."""
    reserved = reservation("r", 4, on="n", once=True)
    status = lifecycle.used(reserved, [named("a", 1)], NOW, DEFAULT_RULES)

    assert status is not None
    assert status.phase == "Succeeded"
    ended = replace(reserved, status=status)
    assert lifecycle.is_collectable(ended)
    assert lifecycle.ended_s(ended) == NOW.timestamp()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, CREATED_S + 24 * 3600),
        ({"ttl": "1h"}, CREATED_S + 3600),
        ({"ttl": "0s"}, None),
        ({"ttl": "0s", "expires": "2023-11-14T23:30:00Z"}, None),
        ({"ttl": "5h", "expires": "2023-11-14T23:30:00Z"}, CREATED_S + 1.5 * 3600),
        ({"ttl": "1h", "expires": "2023-11-14T23:30:00Z"}, CREATED_S + 3600),
    ],
)
def test_the_earlier_time_ends_it(fields: dict[str, Any], expected: float | None) -> None:
    """A ttl of 0 switches off both."""
    assert lifecycle.expires_s(reservation("r", 1, on="n", **fields)) == expected


def test_a_pending_reservation_does_not_expire() -> None:
    """A pending reservation holds nothing."""
    assert lifecycle.expires_s(reservation("r", 1, ttl="1s")) is None


def test_what_failed_otherwise_is_left_to_its_user() -> None:
    """Only what expired or succeeded is collected."""
    reserved = reservation("r", 1, on="n")
    failed = replace(reserved, status=replace(reserved.status, phase="Failed"))
    expired = replace(reserved, status=lifecycle.expired(reserved, NOW))

    assert not lifecycle.is_collectable(failed)
    assert lifecycle.is_collectable(expired)
    assert lifecycle.ended_s(expired) == NOW.timestamp()
