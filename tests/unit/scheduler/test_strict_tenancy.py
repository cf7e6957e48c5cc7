"""Reservations between tenants: gate StrictTenancy."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.examples import examples
from tests.reservations import config, reservation, uid
from tests.unit.scheduler.watches import nodes_of_pods
from tests.worlds import START_S, made, node, pod

from koordinator.api.annotations.reservation import ALLOCATED, ReservationAllocated
from koordinator.api.core import Namespace
from koordinator.api.kubescheduler import FeatureGates
from koordinator.api.meta import KubeObject, ObjectMeta
from koordinator.api.pod import Pod
from koordinator.api.reservation import Reservation
from koordinator.simulator import Embedded

IGNORED = "scheduling.koordinator.sh/reservation-ignored"
WEB = {"app": "web"}
STRICT = FeatureGates.parse("StrictTenancy=true")
FORGED = ALLOCATED.entry(ReservationAllocated(name="hold", uid=uid("hold")))
CANDIDATE = {"pod.koordinator.sh/is-pre-allocatable": "true"}
CLUSTER = {"preAllocationPolicy": {"mode": "Cluster"}}


def namespace(name: str, **labels: str) -> KubeObject:
    """Return a namespace."""
    return made("Namespace", name, Namespace.API_VERSION, metadata={"labels": labels})


def place(*objects: KubeObject, gates: FeatureGates = STRICT) -> dict[str, str]:
    """Return the node of each pod, with one node of 4 CPUs that a reservation of the bank holds."""
    one = Embedded(config(), now_s=START_S, gates=gates)
    one.load([namespace("bank"), node("n1", cpu=4), of_bank("hold", on="n1"), *objects])
    one.run_to_fixed_point()
    return nodes_of_pods(one)


def of_bank(name: str, **more: Any) -> Reservation:
    """Return a reservation of 4 CPUs for pods of the bank."""
    made = reservation(name, 4, policy="Restricted", **more)
    template = replace(made.spec.template, metadata=ObjectMeta(namespace="bank"))
    return replace(made, spec=replace(made.spec, template=template))


def users(one: Embedded) -> list[str]:
    """Return the users in the status of the reservation."""
    return [each.name for each in one.cluster.get(Reservation, "hold").status.current_owners]


@pytest.mark.parametrize("labels", [{}, {IGNORED: "true"}, WEB, {**WEB, IGNORED: "true"}])
def test_reservation_of_a_tenant_is_not_used_by_another(labels: dict[str, str]) -> None:
    """A label that ignores reservations, or the owners' label, does not help."""
    evil = pod("evil", cpu=4, namespace="evil", labels=labels)
    assert place(evil) == {"evil": ""}
    bank = pod("bank", cpu=4, namespace="bank", labels=WEB)
    assert place(evil, bank) == {"evil": "", "bank": "n1"}


@pytest.mark.parametrize("labels", [{IGNORED: "true"}, WEB])
def test_labels_count_without_the_gate(labels: dict[str, str]) -> None:
    """Without the gate the scheduler decides as the original."""
    evil = pod("evil", cpu=4, namespace="evil", labels=labels)
    assert place(evil, gates=FeatureGates.parse("")) == {"evil": "n1"}


def test_a_namespace_may_ignore_reservations() -> None:
    """A label of the namespace, which only operators write, allows it."""
    evil = pod("evil", cpu=4, namespace="evil", labels={IGNORED: "true"})
    assert place(evil, namespace("evil", **{IGNORED: "true"})) == {"evil": "n1"}


def test_owner_with_an_explicit_namespace_counts() -> None:
    """The namespace of the template does not matter."""
    one = Embedded(config(), now_s=START_S, gates=STRICT)
    owner = {"object": {"namespace": "team", "name": "job"}}
    one.load([namespace("team"), node("n1", cpu=4), reservation("r", 4, on="n1", owners=[owner])])
    one.load([pod("job", cpu=4, namespace="team")])
    one.run_to_fixed_point()
    assert one.cluster.get(Pod, "job", "team").spec.node_name == "n1"


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("labels", [{}, WEB, {**WEB, **CANDIDATE}])
def test_forged_user_takes_nothing_from_the_reservation(labels: dict[str, str], once: bool) -> None:
    """The forged user counts beside the reservation in any order, and the owner fits."""
    one = Embedded(config(), now_s=START_S, gates=STRICT)
    forged = pod("evil", cpu=4, on="n1", namespace="evil", labels=labels, annotations=FORGED)
    one.load([node("n1", cpu=8), forged, of_bank("hold", on="n1", once=once)])
    one.load([pod("late", cpu=1, on="n1", namespace="evil", annotations=FORGED)])
    one.run_to_fixed_point()
    assert users(one) == []

    one.cluster.delete(Pod, "late", "evil", grace_period_s=0)
    one.load([pod("other", cpu=4, namespace="evil")])
    one.load([pod("bank", cpu=4, namespace="bank", labels=WEB)])
    one.run_to_fixed_point()

    assert nodes_of_pods(one) == {"evil": "n1", "other": "", "bank": "n1"}
    assert users(one) == ["bank"]
    one.scheduler.validate()


LABELS = st.sampled_from([{}, WEB, CANDIDATE, {**WEB, **CANDIDATE}])


@pytest.mark.slow
@settings(max_examples=examples(30))
@given(
    st.permutations(["pod", "hold", "node"]),
    st.sampled_from(["bank", "evil"]),
    LABELS,
    st.lists(LABELS, max_size=3),
    st.booleans(),
)
def test_user_with_changing_labels_is_tracked(
    order: list[str],
    of: str,
    labels: dict[str, str],
    changes: list[dict[str, str]],
    in_cluster: bool,
) -> None:
    """The pod uses the reservation while it is an owner, in any order of events."""
    one = Embedded(config(), now_s=START_S, gates=STRICT)
    running = pod("a", cpu=2, on="n1", namespace=of, labels=labels, annotations=FORGED)
    more: dict[str, Any] = {"preAllocation": True, **CLUSTER} if in_cluster else {}
    there = {"pod": running, "hold": of_bank("hold", on="n1", **more), "node": node("n1", cpu=4)}
    one.load([there[name] for name in order])
    for now in (labels, *changes):
        patch = {"metadata": {"labels": dict.fromkeys((*WEB, *CANDIDATE), None) | now}}
        one.cluster.patch(Pod, "a", of, patch)
        one.run_to_fixed_point()

        may = of == "bank" and (in_cluster or "app" in now)
        assert users(one) == (["a"] if may else [])
        one.scheduler.validate()


@pytest.mark.parametrize("policy", [{}, CLUSTER])
def test_only_pods_of_its_namespace_are_taken_over(policy: dict[str, Any]) -> None:
    """A reservation over running pods ignores labels of other namespaces.

    Without the gate labels count, as in the original.
    """

    def taken(gates: FeatureGates) -> list[str]:
        on = config(preAllocationConfig={"enableClusterMode": True})
        one = Embedded(on, now_s=START_S, gates=gates)
        labels = {**WEB, **CANDIDATE}
        pods = [
            pod(name, cpu=3, on=f"n-{name}", namespace=name, labels=labels)
            for name in ("bank", "evil")
        ]
        nodes = [node(f"n-{name}", cpu=4) for name in ("evil", "bank")]
        one.load([*nodes, *pods, of_bank("hold", preAllocation=True, **policy)])
        one.run_to_fixed_point()
        first = users(one)
        one.cluster.delete(Pod, first[0], first[0], grace_period_s=0)
        one.load([of_bank("hold2", preAllocation=True, **policy)])
        one.run_to_fixed_point()
        one.scheduler.validate()
        node_of = one.cluster.get(Reservation, "hold2").status.node_name
        return [*first, node_of]

    assert taken(STRICT) == ["bank", ""]
    assert taken(FeatureGates.parse(""))[1] != ""
