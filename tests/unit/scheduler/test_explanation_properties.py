"""Remedies of explanations, applied on random clusters with every kind of obstacle."""

import re
from collections.abc import Sequence
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.examples import examples
from tests.reservations import config, reserved_rooms, reserving_pods
from tests.unit.scheduler.test_explained_pods import explained
from tests.worlds import embedded, node, placed_on, pod

from koordinator.api.codec import decode
from koordinator.api.core import Toleration
from koordinator.api.kubescheduler import KubeSchedulerConfiguration
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Container, ContainerPort, Pod
from koordinator.api.reservation import Reservation
from koordinator.domain.reserve_pod import is_available
from koordinator.foundation.quantity import Quantity
from koordinator.scheduler.explanations import NearNode, Remedy
from koordinator.simulator import Embedded
from koordinator.simulator.embedded import STOCK

HOSTNAME, ZONE = "kubernetes.io/hostname", "zone"
WEB = {"app": "web"}
NEAR_WEB = {"labelSelector": {"matchLabels": WEB}}
RESERVING = config()
PORT = (ContainerPort(container_port=80, host_port=80, protocol="TCP"),)

#: Requirements of the pod besides amounts.
RULES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "apart by node": {
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": HOSTNAME, **NEAR_WEB}
                ]
            }
        }
    },
    "apart by zone": {
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": ZONE, **NEAR_WEB}
                ]
            }
        }
    },
    "spread": {
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", **NEAR_WEB}
        ]
    },
}
NODES = st.lists(
    st.tuples(
        st.integers(1, 4),
        st.sampled_from([{}, {"disk": "ssd"}]),
        st.booleans(),
        st.sampled_from([[], ["a=b:NoSchedule"]]),
        st.sampled_from(["a", "b"]),
    ),
    min_size=1,
    max_size=4,
)
RUNNING = st.lists(
    st.tuples(
        st.integers(0, 3), st.integers(1, 3), st.integers(0, 9), st.booleans(), st.booleans()
    ),
    max_size=6,
)


@settings(max_examples=examples(60), deadline=None)
@given(
    nodes=NODES,
    running=RUNNING,
    cpu=st.integers(1, 5),
    picky=st.booleans(),
    rule=st.sampled_from(sorted(RULES)),
    listens=st.booleans(),
)
def test_pod_starts_after_every_sufficient_remedy(
    nodes: list[Any], running: list[Any], cpu: int, *, picky: bool, rule: str, listens: bool
) -> None:
    """Each remedy is applied; the result for an empty cluster is verified as well."""
    made: list[Node] = [
        node(
            f"n{i}",
            cpu=c,
            labels={**labels, ZONE: zone, HOSTNAME: f"n{i}"},
            unschedulable=cordoned,
            taints=taints,
        )
        for i, (c, labels, cordoned, taints, zone) in enumerate(nodes)
    ]
    free = {one.metadata.name: c for one, (c, *_) in zip(made, nodes, strict=True)}
    pods = []
    for index, (where, size, priority, is_web, has_port) in enumerate(running):
        name = f"n{where % len(nodes)}"
        if free[name] >= size:
            free[name] -= size
            there = pod(f"r{index}", size, priority=priority, labels=WEB if is_web else {})
            pods.append(placed_on(listening(there) if has_port else there, name))
    selector = {"disk": "ssd"} if picky else {}
    wanted = pod(
        "p",
        cpu,
        priority=3,
        preemptionPolicy="Never",
        nodeSelector=selector,
        labels=WEB,
        **RULES[rule],
    )
    wanted = listening(wanted) if listens else wanted
    explanation = explained(*made, *pods, wanted)

    if explanation.verdict == "placed":
        assert not explanation.causes
        return
    assert explanation.causes
    for remedy in explanation.remedies:
        assert remedy.sufficient
        assert _starts(*_after(remedy, made, pods, wanted)), remedy
    if rule == "nothing":
        assert explanation.empty_cluster is not None
    if explanation.empty_cluster is not None and explanation.empty_cluster.fits:
        assert _starts(*made, wanted)
        assert explanation.remedies or rule != "nothing"
    elif explanation.empty_cluster is not None:
        assert not _starts(*made, wanted)


@settings(max_examples=examples(120), deadline=None)
@given(there=reserved_rooms(), wanted=reserving_pods())
@pytest.mark.integration
def test_explanations_are_right_with_reservations(there: list[KubeObject], wanted: Pod) -> None:
    """Remedies, shortages and the result without other pods agree with real placements."""
    stays = {_key(o) for o in _reservations_after(*there) if is_available(o)}
    there = [o for o in there if not isinstance(o, Reservation) or _key(o) in stays]
    explanation = explained(*there, wanted, config=RESERVING)

    if explanation.verdict == "placed":
        return
    nodes = [one for one in there if isinstance(one, Node)]
    reserved = [one for one in there if isinstance(one, Reservation)]
    for remedy in explanation.remedies:
        if remedy.sufficient and remedy.kind == "fewer-pods":
            rest = [one for one in there if _key(one) not in remedy.pods]
            assert _starts(*rest, wanted, config=RESERVING), remedy
    for near in explanation.nearest:
        if set(near.lacks) == {"cpu"}:
            grown = [_grown(one, near) if isinstance(one, Node) else one for one in there]
            again = explained(*grown, wanted, config=RESERVING)
            left = next((it for it in again.nearest if it.node == near.node), None)
            assert left is None or not any(it.startswith("Insufficient") for it in left.reasons)
    if explanation.empty_cluster is not None:
        one_stays = [(), *((one,) for one in reserved)]
        assert explanation.empty_cluster.fits == any(
            _starts(*nodes, *one, wanted, config=RESERVING) for one in one_stays
        )


def _key(one: KubeObject) -> str:
    return f"reservation/{one.metadata.name}" if isinstance(one, Reservation) else one.key


def _grown(one: Node, near: NearNode) -> Node:
    """Return the node with its shortage added."""
    if one.metadata.name != near.node:
        return one
    more = one.status.allocatable["cpu"].milli() + Quantity.parse(near.lacks["cpu"]).milli()
    allocatable = {**one.status.allocatable, "cpu": Quantity.from_milli(more)}
    return replace(one, status=replace(one.status, allocatable=allocatable))


def listening(one: Pod) -> Pod:
    """Return the pod with a host port."""
    containers: tuple[Container, ...] = (replace(one.spec.containers[0], ports=PORT),)
    return replace(one, spec=replace(one.spec, containers=containers))


def _after(remedy: Remedy, nodes: list[Node], pods: list[Pod], wanted: Pod) -> list[KubeObject]:
    match remedy.kind:
        case "fewer-pods" | "preempt":
            return [*nodes, *(p for p in pods if p.key not in remedy.pods), wanted]
        case "add-node":
            like = next(n for n in nodes if n.metadata.name == remedy.nodes[0])
            labels = {**like.metadata.labels, HOSTNAME: "more"}
            more = replace(like, metadata=replace(like.metadata, name="more", labels=labels))
            size = re.search(r"but with (\d+) of cpu", remedy.text)
            if size:
                cpu = Quantity.parse(size.group(1))
                allocatable = {**more.status.allocatable, "cpu": cpu}
                more = replace(more, status=replace(more.status, allocatable=allocatable))
            return [*nodes, more, *pods, wanted]
        case "change-pod":
            return [*nodes, *pods, _changed_as_described(remedy.text, wanted)]
        case "ask-less":
            requirements = pod("q", int(remedy.text.split()[3])).spec.containers[0].resources
            container = replace(wanted.spec.containers[0], resources=requirements)
            spec = replace(wanted.spec, containers=(container,))
            return [*nodes, *pods, replace(wanted, spec=spec)]
        case _:
            rest = (p for p in pods if p.key not in remedy.pods)
            return [*(_mended(n, remedy.nodes[0]) for n in nodes), *rest, wanted]


def _changed_as_described(text: str, wanted: Pod) -> Pod:
    """Return the pod changed as the text of a remedy describes."""
    spec = wanted.spec
    tolerations = re.search(r"tolerations: (\[.*\])", text)
    if tolerations:
        added = [
            decode(each, Toleration) for each in yaml.load(tolerations.group(1), yaml.CSafeLoader)
        ]
        spec = replace(spec, tolerations=(*spec.tolerations, *added))
    if "remove disk=ssd from its nodeSelector" in text:
        spec = replace(spec, node_selector={})
    if "to ScheduleAnyway" in text:
        (one,) = spec.topology_spread_constraints
        soft = replace(one, when_unsatisfiable="ScheduleAnyway")
        spec = replace(spec, topology_spread_constraints=(soft,))
    assert spec != wanted.spec, text
    return replace(wanted, spec=spec)


def _mended(one: Node, name: str) -> Node:
    if one.metadata.name != name:
        return one
    labels = {**one.metadata.labels, "disk": "ssd"}
    return replace(
        one,
        metadata=replace(one.metadata, labels=labels),
        spec=replace(one.spec, taints=(), unschedulable=False),
    )


def _reservations_after(*objects: KubeObject) -> Sequence[Reservation]:
    one: Embedded = embedded(*objects, config=RESERVING)
    one.run_to_fixed_point()
    return one.cluster.list(Reservation).items


def _starts(*objects: KubeObject, config: KubeSchedulerConfiguration = STOCK) -> bool:
    one: Embedded = embedded(*objects, config=config)
    one.run_to_fixed_point()
    return bool(one.cluster.get(Pod, "p", "default").spec.node_name)
