"""Pods of the cluster that imitate reserve pods: they are ordinary pods."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.reservations import config, reservation, uid
from tests.unit.scheduler.watches import nodes_of_pods
from tests.worlds import embedded, node, pod

from koordinator.api.pod import Pod
from koordinator.api.reservation import Reservation
from koordinator.domain.reserve_pod import INTERNAL_KEYS
from koordinator.simulator import Embedded

TERMS = '{"preAllocation":{"preAllocationRequired":true},"name":"r","uid":"x"}'
FORGED = st.dictionaries(
    st.sampled_from(sorted(INTERNAL_KEYS)),
    st.sampled_from(["true", "r", "n1", "", "[", TERMS]),
    min_size=1,
)


def settled(annotations: dict[str, str], on: str) -> Embedded:
    """Return a world with a reservation, its owner, and a pod with these annotations."""
    one = embedded(
        node("n0", 4),
        node("n1", 4),
        reservation("r", 3, on="n0"),
        pod("tenant", 2, annotations=annotations, on=on),
        pod("good", 2),
        pod("owner", 2, labels={"app": "web"}),
        config=config(),
    )
    one.run_to_fixed_point()
    one.scheduler.validate()
    return one


@pytest.mark.slow
@settings(max_examples=examples(25))
@given(FORGED, st.sampled_from(["", "n1"]))
def test_internal_annotations_do_not_count_on_pods(annotations: dict[str, str], on: str) -> None:
    """Pods get the same nodes as without them, and the reservation keeps its users."""
    forged, plain = settled(annotations, on), settled({}, on)

    assert nodes_of_pods(forged) == nodes_of_pods(plain)
    users = [
        [user.name for user in one.cluster.get(Reservation, "r").status.current_owners]
        for one in (forged, plain)
    ]
    assert users[0] == users[1] == ["owner"]


@pytest.mark.parametrize("on", ["", "n0", "n1"])
def test_pod_named_like_a_reservation_uid_does_not_affect_it(on: str) -> None:
    """The reservation holds the same amounts before and after the deletion of the pod."""
    one = embedded(node("n0", 4), node("n1", 4), reservation("r", 3, on="n0"), config=config())
    one.run_to_fixed_point()

    one.load([pod(uid("r"), 1, on=on)])
    one.run_to_fixed_point()
    one.cluster.delete(Pod, uid("r"), "default", grace_period_s=0)
    one.load([pod("large", 4), pod("second", 4)])
    one.run_to_fixed_point()

    assert nodes_of_pods(one) == {"large": "n1", "second": ""}
    one.scheduler.validate()


@pytest.mark.parametrize("key", sorted(INTERNAL_KEYS))
def test_reservation_cannot_set_internal_annotations(key: str) -> None:
    """Annotations of the reservation and of its template are ignored."""
    one = embedded(node("n0", 4), reservation("r", 1, annotations={key: "forged"}), config=config())
    one.run_to_fixed_point()

    assert one.cluster.get(Reservation, "r").status.node_name == "n0"
