"""Explanations of pods with reservations, and of reservations."""

from typing import Any

import numpy as np
import pytest
from tests.reservations import affinity, config, exactly, reservation, uid
from tests.unit.scheduler.test_explained_pods import decisive, explained
from tests.worlds import embedded, node, pod

from koordinator.api.annotations.reservation import ALLOCATED, ReservationAllocated
from koordinator.foundation.errors import InputError
from koordinator.scheduler.explanations import Explanation
from koordinator.scheduler.snapshot import Snapshot
from koordinator.simulator.explanations import explain_pods

WEB = {"app": "web"}
NO_MATCH = "node(s) no reservations match reservation affinity"
WITHOUT = (
    "remove its reservation affinity (annotation scheduling.koordinator.sh/reservation-affinity)"
)
SHORT = "Reservation(s) Insufficient cpu, requested: 3000, used: 0, capacity: 2000"


def explain_last(*objects: Any, **options: Any) -> Explanation:
    return explained(*objects, config=config(), **options)


def test_owner_sees_the_node_with_its_reservation() -> None:
    """The shortage is what reservation and node together lack."""
    explanation = explain_last(
        node("n", cpu=8), reservation("r", 6, on="n"), pod("p", 9, labels=WEB)
    )

    assert decisive(explanation) == {"Insufficient cpu"}
    assert explanation.nearest[0].lacks == {"cpu": "1"}
    assert [r.text for r in explanation.remedies] == [
        "request at most 8 of cpu: n has that free",
        "add a node like n, but with 9 of cpu (it has 8)",
    ]


def test_small_reservation_is_the_cause() -> None:
    """The node has capacity, but the pod must use the restricted reservation."""
    reserved = reservation("r", 2, on="n", policy="Restricted")
    needs = pod("p", 3, labels=WEB, annotations=affinity(name="r"))
    explanation = explain_last(node("n", cpu=8), node("m", cpu=8), reserved, needs)

    assert explanation.verdict == "waits"
    assert decisive(explanation) == {SHORT, NO_MATCH}
    near = explanation.nearest[0]
    assert (near.node, near.details) == ("n", (SHORT,))


@pytest.mark.parametrize(
    ("annotations", "spec", "reason"),
    [
        (affinity(name="other"), {}, "of another name"),
        (
            affinity(reservationSelector={"pool": "x"}),
            {},
            "not selected by its reservation affinity",
        ),
        (affinity() | exactly("cpu"), {}, "without exactly the requested amounts"),
        (affinity(), {"unschedulable": True}, "unschedulable"),
        (
            affinity(),
            {"taints": [{"key": "a", "effect": "NoSchedule"}]},
            "with a taint that it does not tolerate ({a: })",
        ),
    ],
)
def test_reasons_of_unmatched_reservations(
    annotations: dict[str, str], spec: dict[str, Any], reason: str
) -> None:
    """A pod that requires a reservation has the reasons of those that it owns."""
    reserved = reservation("r", 6, on="n", **spec)
    explanation = explain_last(
        node("n", cpu=8), reserved, pod("p", 2, labels=WEB, annotations=annotations)
    )

    (cause,) = explanation.causes
    assert (cause.plugin, cause.reason) == ("Reservation", NO_MATCH)
    assert cause.detail == f"it is the owner of 1 reservation: 1 {reason}"


def test_pod_without_own_reservation() -> None:
    """The only reservation is of others."""
    needs = pod("p", 2, labels={"app": "db"}, annotations=affinity())
    explanation = explain_last(node("n", cpu=8), reservation("r", 6, on="n"), needs)

    assert [cause.detail for cause in explanation.causes] == ["it is the owner of no reservation"]


def test_blocking_reservation_is_called_by_its_name() -> None:
    """The reservation's end would help; a priority would not, because it is not preempted."""
    explanation = explain_last(node("n", cpu=8), reservation("r", 6, on="n"), pod("p", 4))

    assert explanation.remedies[0].text == "n takes it when reservation/r has ended"


def test_pending_reservation_is_explained() -> None:
    """The explanation has the reservation's own name."""
    explanation = explain_last(node("n", cpu=8), reservation("big", 9), name="reservation/big")

    assert explanation.pod == "reservation/big"
    assert decisive(explanation) == {"Insufficient cpu"}


def test_own_reservation_stays_when_others_are_removed() -> None:
    """The explanation names its users, not that the pod can never run."""
    reserved = reservation("r", 6, on="n", policy="Restricted")
    used = ALLOCATED.entry(ReservationAllocated(name="r", uid=uid("r")))
    user = pod("user", 4, on="n", labels=WEB, annotations=used)
    needs = pod("p", 3, labels=WEB, annotations=affinity())
    explanation = explain_last(node("n", cpu=8), reserved, user, needs)

    assert explanation.empty_cluster is not None
    assert (explanation.empty_cluster.fits, explanation.empty_cluster.node) == (True, "n")
    (remedy,) = explanation.remedies  # a node more would have no reservation
    assert (remedy.kind, remedy.pods, remedy.sufficient) == ("fewer-pods", (user.key,), True)


def test_reservation_too_small_for_the_pod() -> None:
    """The reservation would be too small even without users."""
    reserved = reservation("r", 2, on="n", policy="Restricted")
    needs = pod("p", 3, labels=WEB, annotations=affinity(name="r"))
    explanation = explain_last(node("n", cpu=8), reserved, needs)

    assert explanation.empty_cluster is not None
    assert (explanation.empty_cluster.fits, explanation.empty_cluster.why) == (False, SHORT)
    assert [remedy.text for remedy in explanation.remedies] == [f"{WITHOUT}: n takes it then"]


@pytest.mark.parametrize(
    ("policy", "needs", "missing"),
    [
        ("Restricted", {}, "5"),  # too small to be used: what is beside it has to do
        ("Aligned", {}, "3"),
        ("Aligned", affinity(), "3"),
    ],
)
def test_shortage_of_a_node_is_the_amount_to_add(
    policy: str, needs: dict[str, str], missing: str
) -> None:
    """A pod uses one reservation, not the sum of all."""
    reserved = [reservation(name, 2, on="n", policy=policy) for name in ("r1", "r2")]
    wanted = pod("p", 5, labels=WEB, annotations=needs)

    (near,) = explain_last(node("n", cpu=4), *reserved, wanted).nearest
    assert near.lacks == {"cpu": missing}

    more = node("n", cpu=4 + int(missing))
    assert explain_last(more, *reserved, wanted).verdict == "placed"


def test_missing_required_reservation_blocks_an_empty_cluster() -> None:
    """The amount of free capacity has no influence."""
    explanation = explain_last(node("n", cpu=8), pod("p", 1, annotations=affinity()))

    assert explanation.empty_cluster is not None
    assert (explanation.empty_cluster.fits, explanation.empty_cluster.why) == (False, NO_MATCH)


@pytest.mark.parametrize(
    ("may", "labels", "kind"),
    [
        (False, {}, "fewer-pods"),
        (True, {}, "preempt"),
        (True, {"scheduling.koordinator.sh/disable-preemptible": "true"}, "fewer-pods"),
    ],
)
def test_preemption_by_reservations_depends_on_the_plugin(
    may: bool, labels: dict[str, str], kind: str
) -> None:
    """The label of non-preemptible pods counts; other pods use DefaultPreemption."""
    there = pod("there", 4, on="n", labels=labels)
    waiting = reservation("r", 4, template={"preemptionPolicy": "Never"})
    explanation = explained(
        node("n", cpu=4), there, waiting, config=config(enablePreemption=may), name="reservation/r"
    )

    assert explanation.remedies[0].kind == kind


def test_reservations_have_names_in_explanations() -> None:
    """The internal uid is not shown."""
    with pytest.raises(InputError, match=r"waiting pods: reservation/r$"):
        explain_pods([node("n", cpu=1), reservation("r", 4)], ["default/x"], config())


def test_resource_of_no_node_is_not_a_shortage() -> None:
    """The cause is that no node has it, also beside a reservation."""
    wanted = pod("p", 1, labels=WEB, requests={"example.com/tpu": 1})
    explanation = explain_last(node("n", cpu=4), reservation("r", 1, on="n"), wanted)

    assert [near.lacks for near in explanation.nearest] == [{}]
    assert decisive(explanation) == {"Insufficient example.com/tpu"}


def test_few_reservations_of_a_node_are_proposed() -> None:
    """Each proposal is tried on the node; a node may have many reservations of the pod."""
    taints = [{"key": "only", "value": "batch", "effect": "NoSchedule"}]
    reserved = [reservation(f"r{n}", 1, on="n", taints=taints) for n in range(9)]
    one = embedded(node("n", cpu=9), *reserved, pod("p", 1, labels=WEB), config=config())
    one.run_to_fixed_point()
    it, pod_class = one.state.unbound["default/p"]
    (plugin,) = (
        active.plugin
        for active in one.scheduler.cycles[it.spec.scheduler_name].profile.filter
        if active.name == "Reservation"
    )

    proposed = plugin.hold_remedies(Snapshot(one.state)[np.array([0])], pod_class, it)

    assert len({text for text, _ in proposed}) == len(proposed) == 2
