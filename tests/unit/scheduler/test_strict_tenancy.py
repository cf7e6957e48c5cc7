"""Reservations of one tenant are not those of another: gate StrictTenancy."""

import pytest
from msgspec.structs import replace
from tests.reservations import config, reservation
from tests.worlds import START_S, made, node, pod

from koordinator.api.kubescheduler import FeatureGates
from koordinator.api.meta import KubeObject, ObjectMeta
from koordinator.api.namespace import Namespace
from koordinator.api.pod import Pod
from koordinator.simulator import Embedded

IGNORED = "scheduling.koordinator.sh/reservation-ignored"
WEB = {"app": "web"}
STRICT = FeatureGates.parse("StrictTenancy=true")


def namespace(name: str, **labels: str) -> KubeObject:
    """Return a namespace."""
    return made("Namespace", name, Namespace.API_VERSION, metadata={"labels": labels})


def place(*objects: KubeObject, gates: FeatureGates = STRICT) -> dict[str, str]:
    """Return the node of each pod, on a node of 4 CPUs that a reservation of the bank holds."""
    one = Embedded(config(), now_s=START_S, gates=gates)
    hold = reservation("hold", 4, on="n1", policy="Restricted")
    template = replace(hold.spec.template, metadata=ObjectMeta(namespace="bank"))
    hold = replace(hold, spec=replace(hold.spec, template=template))
    one.load([namespace("bank"), node("n1", cpu=4), hold, *objects])
    one.run_to_fixed_point()
    return {p.metadata.name: p.spec.node_name for p in one.cluster.list(Pod).items}


@pytest.mark.parametrize("labels", [{}, {IGNORED: "true"}, WEB, {**WEB, IGNORED: "true"}])
def test_what_is_held_for_a_tenant_is_not_taken_by_another(labels: dict[str, str]) -> None:
    """Neither by a label that ignores reservations, nor by the label of the owners."""
    evil = pod("evil", cpu=4, namespace="evil", labels=labels)
    assert place(evil) == {"evil": ""}
    bank = pod("bank", cpu=4, namespace="bank", labels=WEB)
    assert place(evil, bank) == {"evil": "", "bank": "n1"}


@pytest.mark.parametrize("labels", [{IGNORED: "true"}, WEB])
def test_without_the_gate_labels_are_believed(labels: dict[str, str]) -> None:
    """As in the original."""
    evil = pod("evil", cpu=4, namespace="evil", labels=labels)
    assert place(evil, gates=FeatureGates.parse("")) == {"evil": "n1"}


def test_a_namespace_may_ignore_reservations() -> None:
    """Its label says so, which only operators write."""
    evil = pod("evil", cpu=4, namespace="evil", labels={IGNORED: "true"})
    assert place(evil, namespace("evil", **{IGNORED: "true"})) == {"evil": "n1"}


def test_an_owner_that_names_its_namespace_is_believed() -> None:
    """Whatever the namespace of the template is."""
    one = Embedded(config(), now_s=START_S, gates=STRICT)
    owner = {"object": {"namespace": "team", "name": "job"}}
    one.load([namespace("team"), node("n1", cpu=4), reservation("r", 4, on="n1", owners=[owner])])
    one.load([pod("job", cpu=4, namespace="team")])
    one.run_to_fixed_point()
    assert one.cluster.get(Pod, "job", "team").spec.node_name == "n1"
