"""Why pods wait that may use reservations, and reservations themselves."""

from typing import Any

import pytest
from tests.reservations import affinity, config, exactly, reservation, uid
from tests.unit.scheduler.test_explained_pods import decisive, explained
from tests.worlds import node, pod

from koordinator.api.annotations.reservation import ALLOCATED, ReservationAllocated
from koordinator.foundation.errors import InputError
from koordinator.scheduler.explain import Explanation
from koordinator.simulator.explanations import explain_pods

WEB = {"app": "web"}
NO_MATCH = "node(s) no reservations match reservation affinity"
WITHOUT = (
    "take its reservation affinity (annotation scheduling.koordinator.sh/reservation-affinity) away"
)
SHORT = "Reservation(s) Insufficient cpu, requested: 3000, used: 0, capacity: 2000"


def asked(*objects: Any, **options: Any) -> Explanation:
    return explained(*objects, config=config(), **options)


def test_an_owner_sees_the_node_without_what_is_kept_for_it() -> None:
    """It lacks only what the reservation and the rest of the node together don't have."""
    found = asked(node("n", cpu=8), reservation("r", 6, on="n"), pod("p", 9, labels=WEB))

    assert decisive(found) == {"Insufficient cpu"}
    assert found.nearest[0].lacks == {"cpu": "1"}
    assert [r.text for r in found.remedies] == [
        "ask for at most 8 of cpu: n has that free",
        "add a node like n, but with 9 of cpu (it has 8)",
    ]


def test_a_reservation_that_is_too_small_is_the_cause() -> None:
    """Restricted: the node has room, but the pod must take it from the reservation."""
    held = reservation("r", 2, on="n", policy="Restricted")
    needs = pod("p", 3, labels=WEB, annotations=affinity(name="r"))
    found = asked(node("n", cpu=8), node("m", cpu=8), held, needs)

    assert found.verdict == "waits"
    assert decisive(found) == {SHORT, NO_MATCH}
    near = found.nearest[0]
    assert (near.node, near.details) == ("n", (SHORT,))


@pytest.mark.parametrize(
    ("annotations", "spec", "told"),
    [
        (affinity(name="other"), {}, "of another name"),
        (
            affinity(reservationSelector={"pool": "x"}),
            {},
            "not selected by its reservation affinity",
        ),
        (affinity() | exactly("cpu"), {}, "without exactly the amounts that it asks for"),
        (affinity(), {"unschedulable": True}, "unschedulable"),
        (
            affinity(),
            {"taints": [{"key": "a", "effect": "NoSchedule"}]},
            "with a taint that it does not tolerate ({a: })",
        ),
    ],
)
def test_what_is_against_each_reservation_is_told(
    annotations: dict[str, str], spec: dict[str, Any], told: str
) -> None:
    """A pod that needs one hears why those that it owns don't do."""
    held = reservation("r", 6, on="n", **spec)
    found = asked(node("n", cpu=8), held, pod("p", 2, labels=WEB, annotations=annotations))

    (cause,) = found.causes
    assert (cause.plugin, cause.reason) == ("Reservation", NO_MATCH)
    assert cause.detail == f"it is the owner of 1 reservation: 1 {told}"


def test_who_owns_no_reservation_is_told_so() -> None:
    """There is one, for others."""
    needs = pod("p", 2, labels={"app": "db"}, annotations=affinity())
    found = asked(node("n", cpu=8), reservation("r", 6, on="n"), needs)

    assert [cause.detail for cause in found.causes] == ["it is the owner of no reservation"]


def test_a_reservation_in_the_way_is_called_by_its_name() -> None:
    """Its end would help; no priority would, for nobody preempts it."""
    found = asked(node("n", cpu=8), reservation("r", 6, on="n"), pod("p", 4))

    assert found.remedies[0].text == "n takes it when reservation/r has ended"


def test_a_reservation_that_waits_is_explained() -> None:
    """By its own name, as pods are."""
    found = asked(node("n", cpu=8), reservation("big", 9), name="reservation/big")

    assert found.pod == "reservation/big"
    assert decisive(found) == {"Insufficient cpu"}


def test_what_is_reserved_for_a_pod_stays_when_others_go() -> None:
    """A pod that needs the reservation is told of its users, not that it can never run."""
    held = reservation("r", 6, on="n", policy="Restricted")
    used = ALLOCATED.entry(ReservationAllocated(name="r", uid=uid("r")))
    user = pod("user", 4, on="n", labels=WEB, annotations=used)
    needs = pod("p", 3, labels=WEB, annotations=affinity())
    found = asked(node("n", cpu=8), held, user, needs)

    assert found.empty_cluster is not None
    assert (found.empty_cluster.fits, found.empty_cluster.node) == (True, "n")
    (remedy,) = found.remedies  # a node more would have no reservation
    assert (remedy.kind, remedy.pods, remedy.sufficient) == ("fewer-pods", (user.key,), True)


def test_what_never_fits_into_a_reservation_is_told_so() -> None:
    """It is the reservation that is too small, whoever uses it."""
    held = reservation("r", 2, on="n", policy="Restricted")
    needs = pod("p", 3, labels=WEB, annotations=affinity(name="r"))
    found = asked(node("n", cpu=8), held, needs)

    assert found.empty_cluster is not None
    assert (found.empty_cluster.fits, found.empty_cluster.why) == (False, SHORT)
    assert [remedy.text for remedy in found.remedies] == [f"{WITHOUT}: n takes it then"]


@pytest.mark.parametrize(
    ("policy", "needs", "lacking"),
    [
        ("Restricted", {}, "5"),  # too small to be used: what is beside it has to do
        ("Aligned", {}, "3"),
        ("Aligned", affinity(), "3"),
    ],
)
def test_what_a_node_lacks_is_what_would_have_to_be_added(
    policy: str, needs: dict[str, str], lacking: str
) -> None:
    """A pod uses one reservation, not what all of them hold together."""
    held = [reservation(name, 2, on="n", policy=policy) for name in ("r1", "r2")]
    wanted = pod("p", 5, labels=WEB, annotations=needs)

    (near,) = asked(node("n", cpu=4), *held, wanted).nearest
    assert near.lacks == {"cpu": lacking}

    more = node("n", cpu=4 + int(lacking))
    assert asked(more, *held, wanted).verdict == "placed"


def test_a_pod_without_a_reservation_that_it_needs_never_starts() -> None:
    """However empty the cluster is."""
    found = asked(node("n", cpu=8), pod("p", 1, annotations=affinity()))

    assert found.empty_cluster is not None
    assert (found.empty_cluster.fits, found.empty_cluster.why) == (False, NO_MATCH)


@pytest.mark.parametrize(
    ("may", "labels", "kind"),
    [
        (False, {}, "fewer-pods"),
        (True, {}, "preempt"),
        (True, {"scheduling.koordinator.sh/disable-preemptible": "true"}, "fewer-pods"),
    ],
)
def test_whether_a_reservation_may_preempt_is_up_to_its_plugin(
    may: bool, labels: dict[str, str], kind: str
) -> None:
    """And to the label of pods that are not to be evicted; other pods ask DefaultPreemption."""
    there = pod("there", 4, on="n", labels=labels)
    waiting = reservation("r", 4, template={"preemptionPolicy": "Never"})
    found = explained(
        node("n", cpu=4), there, waiting, config=config(enablePreemption=may), name="reservation/r"
    )

    assert found.remedies[0].kind == kind


def test_reservations_are_called_by_name_where_others_are_asked_for() -> None:
    """Nobody knows the uid that the scheduler calls them by."""
    with pytest.raises(InputError, match=r"waiting pods: reservation/r$"):
        explain_pods([node("n", cpu=1), reservation("r", 4)], ["default/x"], config())


def test_what_no_node_has_is_lacking_nowhere() -> None:
    """Also beside a reservation; that nobody has it is the cause."""
    wanted = pod("p", 1, labels=WEB, requests={"example.com/tpu": 1})
    found = asked(node("n", cpu=4), reservation("r", 1, on="n"), wanted)

    assert [near.lacks for near in found.nearest] == [{}]
    assert decisive(found) == {"Insufficient example.com/tpu"}
