"""Owners of a reservation, apart from its remaining amounts."""

from typing import Any

import pytest
from tests.reservations import affinity, exactly, reservation

from koordinator.api.annotations.reservation import RESTRICTED_OPTIONS
from koordinator.api.labels import RESERVATION_ORDER
from koordinator.api.meta import LabelSelector, LabelSelectorRequirement, ObjectMeta, OwnerReference
from koordinator.api.reservation import ReservationOwner
from koordinator.foundation.errors import InputError
from koordinator.scheduler.rules.reservations.match import (
    MatchResult,
    ReservationRequester,
    read_reservation_selector,
)
from koordinator.scheduler.rules.reservations.offer import (
    OwnerCandidate,
    ReservationOffer,
    is_owner,
    offer_of,
)

WEB = {"app": "web"}
TAINT = {"key": "pool", "value": "warm", "effect": "NoSchedule"}


def verdict(
    annotations: dict[str, str], node_labels: dict[str, str] | None = None, **fields: Any
) -> MatchResult:
    """Return the result for a pod of the app web that requests 2 CPUs."""
    owner_candidate = OwnerCandidate("default", WEB)
    selector = read_reservation_selector(ObjectMeta(annotations=annotations))
    offer = offer_of(reservation("r", 4, on="n", **fields))
    return ReservationRequester(owner_candidate, selector, {"cpu": 2000, "memory": 0}).of(
        offer, node_labels or {}
    )


def term(key: str, operator: str, *values: str) -> dict[str, str]:
    terms = [{"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}]
    return affinity(
        requiredDuringSchedulingIgnoredDuringExecution={"reservationSelectorTerms": terms}
    )


@pytest.mark.parametrize(
    ("annotations", "fields", "expected"),
    [
        ({}, {}, MatchResult.MATCHED),
        ({}, {"for_app": "db"}, MatchResult.NOT_OWNER),
        ({}, {"unschedulable": True}, MatchResult.UNSCHEDULABLE),
        ({}, {"taints": [TAINT]}, MatchResult.TAINTED),
        ({}, {"taints": [{**TAINT, "effect": "PreferNoSchedule"}]}, MatchResult.MATCHED),
        (
            affinity(tolerations=[{"key": "pool", "operator": "Exists"}]),
            {"taints": [TAINT]},
            MatchResult.MATCHED,
        ),
        (affinity(), {"taints": [TAINT]}, MatchResult.TAINTED),
        (affinity(), {"taints": [{**TAINT, "effect": "PreferNoSchedule"}]}, MatchResult.MATCHED),
        (affinity(name="r"), {"taints": [TAINT], "unschedulable": True}, MatchResult.NAME_MATCHED),
        (affinity(name="q"), {}, MatchResult.OTHER_NAME),
        ({**affinity(name="r"), **exactly("cpu")}, {}, MatchResult.NOT_EXACT),
        (exactly("cpu"), {}, MatchResult.NOT_EXACT),
        (exactly("gpu", "cpu"), {}, MatchResult.NOT_EXACT),  # what neither has is ignored
        (exactly("cpu", "gpu"), {}, MatchResult.NOT_EXACT),
        (exactly("gpu"), {}, MatchResult.MATCHED),
        (affinity(reservationSelector={"pool": "x"}), {}, MatchResult.OTHER_AFFINITY),
        (
            affinity(reservationSelector={"pool": "x"}),
            {"labels": {"pool": "x"}},
            MatchResult.MATCHED,
        ),
        (term("size", "Gt", "3"), {"labels": {"size": "4"}}, MatchResult.MATCHED),
        (term("size", "Lt", "3"), {"labels": {"size": "4"}}, MatchResult.OTHER_AFFINITY),
        (term("size", "Exists"), {}, MatchResult.OTHER_AFFINITY),
        (term("size", "DoesNotExist"), {}, MatchResult.MATCHED),
        (term("size", "NotIn", "4"), {"labels": {"size": "4"}}, MatchResult.OTHER_AFFINITY),
    ],
)
def test_the_first_reason_that_holds(
    annotations: dict[str, str], fields: dict[str, Any], expected: MatchResult
) -> None:
    """In the order of the original: owner, name, unschedulable, taints, terms, amounts."""
    assert verdict(annotations, **fields) is expected


def test_labels_of_the_node_count_unless_the_reservation_has_its_own() -> None:
    """The reservation's hide the taints of its node."""
    needs = affinity(reservationSelector={"zone": "a"})

    assert verdict(needs, {"zone": "a"}) is MatchResult.MATCHED
    assert verdict(needs, {"zone": "a"}, labels={"zone": "b"}) is MatchResult.OTHER_AFFINITY


def test_unreadable_selector_matches_no_owner() -> None:
    """Nothing matches then, not even by another entry."""
    bad = LabelSelectorRequirement(key="app", operator="Like")
    owners = (ReservationOwner(label_selector=LabelSelector(match_expressions=(bad,))),)

    assert not is_owner(owners, OwnerCandidate("default", WEB))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, True),
        ({"namespace": "default"}, True),
        ({"namespace": "other"}, False),
        ({"controller": True}, True),
        ({"controller": False}, False),
        ({"uid": "2"}, False),
        ({"kind": "Job"}, False),
    ],
)
def test_a_controller_is_one_of_the_owner_references(
    fields: dict[str, Any], expected: bool
) -> None:
    """The given fields must match."""
    wanted = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "1", **fields}
    (owner,) = reservation("r", 1, owners=[{"controller": wanted}]).spec.owners
    reference = OwnerReference(
        api_version="apps/v1", kind="ReplicaSet", name="rs", uid="1", controller=True
    )

    assert is_owner((owner,), OwnerCandidate("default", {}, (reference,))) is expected


def options(text: str) -> ReservationOffer:
    annotations = {RESTRICTED_OPTIONS.key: text} if text else {}
    reserved = reservation("r", 1, "1Gi", on="n", policy="Restricted", annotations=annotations)
    return offer_of(reserved)


def test_restricted_resources_are_among_the_reserved_ones() -> None:
    """Without any of them all are restricted."""
    assert options("").restricted == {"cpu", "memory"}
    assert options('{"resources":["cpu","gpu"]}').restricted == {"cpu"}
    assert options('{"resources":["gpu"]}').restricted == {"cpu", "memory"}


def test_options_of_restricted_mean_nothing_to_other_policies() -> None:
    """Readable or not."""
    for text in ('{"resources":["cpu"]}', "{"):
        reserved = reservation("r", 1, "1Gi", on="n", annotations={RESTRICTED_OPTIONS.key: text})
        assert offer_of(reserved).restricted == {"cpu", "memory"}


def test_cpus_withheld_by_number_count_as_cpu() -> None:
    """As they do in the annotation of a node."""
    inner = {"node.koordinator.sh/reservation": '{"resources":{"cpu":"1"},"reservedCPUs":"0-2"}'}
    reserved = reservation("r", 4, on="n", annotations=inner)

    assert offer_of(reserved).withheld == {"cpu": 3000}


@pytest.mark.parametrize(
    ("annotations", "problem"),
    [
        (term("size", "Near", "3"), "operator"),
        (term("size", "In"), "values"),
        (term("size", "Gt", "much"), "values"),
    ],
)
def test_invalid_terms_are_reported(annotations: dict[str, str], problem: str) -> None:
    """The message has the path."""
    with pytest.raises(
        InputError, match=rf"reservation-affinity.*matchExpressions\[0\]\.{problem}"
    ):
        read_reservation_selector(ObjectMeta(annotations=annotations))


@pytest.mark.parametrize(("text", "order"), [("7", 7), ("-3", -3), ("x", 0), ("", 0)])
def test_an_order_is_a_number(text: str, order: int) -> None:
    """A label that is no number means no order."""
    assert offer_of(reservation("r", 1, on="n", labels={RESERVATION_ORDER: text})).order == order
