"""Reservations of jobs: on another node than the pod's."""

import pytest
from msgspec.structs import replace
from tests.unit.descheduler.migration.world import job, replicas

from koordinator.api.core import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from koordinator.api.pod import Pod
from koordinator.descheduler.migration.reservation_template import reservation_for

NEAR_DISKS = NodeSelectorRequirement(key="disk", operator="Exists")
ELSEWHERE = NodeSelectorRequirement(key="metadata.name", operator="NotIn", values=("n1",))
NOWHERE = NodeSelectorTerm()


@pytest.mark.parametrize(
    ("terms", "narrowed"),
    [
        ((), (NodeSelectorTerm(match_fields=(ELSEWHERE,)),)),
        (
            (NodeSelectorTerm(match_expressions=(NEAR_DISKS,)), NOWHERE),
            (
                NodeSelectorTerm(match_expressions=(NEAR_DISKS,), match_fields=(ELSEWHERE,)),
                NOWHERE,
            ),
        ),
        ((NOWHERE,), (NOWHERE,)),
    ],
)
def test_reservation_excludes_the_node_in_each_term(
    terms: tuple[NodeSelectorTerm, ...], narrowed: tuple[NodeSelectorTerm, ...]
) -> None:
    """An empty term matches no node, and must not match the others afterwards."""
    (pod,) = (each for each in replicas("web", on=["n1"]) if isinstance(each, Pod))
    if terms:
        required = NodeSelector(node_selector_terms=terms)
        nodes = NodeAffinity(required_during_scheduling_ignored_during_execution=required)
        pod = replace(pod, spec=replace(pod.spec, affinity=Affinity(node_affinity=nodes)))

    made = reservation_for(job("move", "web-0"), pod, 0.0)

    affinity = made.spec.template.spec.affinity
    assert affinity is not None
    assert affinity.node_affinity is not None
    required_terms = affinity.node_affinity.required_during_scheduling_ignored_during_execution
    assert required_terms == NodeSelector(node_selector_terms=narrowed)
