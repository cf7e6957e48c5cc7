"""Waiting pods are tried again after every event that removes the reason of their rejection."""

from collections import defaultdict
from typing import Any

import pytest
from tests.reservations import affinity, config, reservation
from tests.unit.scheduler.conftest import NewEmbedded
from tests.unit.scheduler.test_reserved_victims import user
from tests.unit.scheduler.test_resized_pods import resized
from tests.worlds import configuration, device, made, node, pod

from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.reservation import Reservation
from koordinator.scheduler.contract import Action, ClusterEvent
from koordinator.scheduler.profile import builtin_plugins
from koordinator.scheduler.queue.hints import HintTable, Wake
from koordinator.scheduler.queue.queued_pod import QueuedPod
from koordinator.simulator import Embedded

WEB = {"app": "web"}
WAITS_S = 60.0  # longer than every backoff, shorter than the time until a pod is tried anyway


def place(one: Embedded) -> str:
    """Return the node of the pod or reservation ``new`` after its backoff."""
    one.run_to_fixed_point()
    one.clock.advance_to(one.clock.now_s() + WAITS_S)
    one.run_to_fixed_point()
    nodes = {r.metadata.name: r.status.node_name for r in one.cluster.list(Reservation).items}
    return nodes.get("new") or one.cluster.get(Pod, "new", "default").spec.node_name


def owner(cpu: int, **wish: Any) -> Pod:
    """Return a pod that needs a reservation."""
    return pod("new", cpu, labels=WEB, annotations=affinity(**wish))


def test_a_resized_user_gives_room_in_its_reservation_back(embedded: NewEmbedded) -> None:
    """When the kubelet has carried the resize out."""
    reserved = reservation("warm", 4, on="n", policy="Restricted")
    one = embedded(node("n"), reserved, resized(user("u", 3), 3), owner(2), config=config())
    assert place(one) == ""

    one.cluster.overwrite(resized(user("u", 1), 3))
    assert place(one) == ""

    one.cluster.overwrite(resized(user("u", 1), 1))
    assert place(one) == "n"


def test_a_label_of_the_node_makes_a_reservation_match(embedded: NewEmbedded) -> None:
    """The terms of reservation affinity select labels of nodes, too."""
    zone = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    wish = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"reservationSelectorTerms": [zone]},
    }
    one = embedded(node("n"), reservation("warm", 4, on="n"), owner(2, **wish), config=config())
    assert place(one) == ""

    one.cluster.patch(Node, "n", "", {"metadata": {"labels": {"zone": "a"}}})
    assert place(one) == "n"


def test_a_larger_node_has_room_beside_a_reservation(embedded: NewEmbedded) -> None:
    """A pod of 4 CPUs uses one of two reservations of 2 CPUs, and 2 more of the node."""
    reserved = [reservation(name, 2, on="n") for name in ("r1", "r2")]
    one = embedded(node("n", cpu=4), *reserved, owner(4), config=config())
    assert place(one) == ""

    one.cluster.overwrite(node("n", cpu=8))
    assert place(one) == "n"


@pytest.mark.parametrize(
    "candidate", [pod("new", 2, on="n", labels=WEB), pod("more", 2, on="n", labels=WEB)]
)
def test_a_running_pod_becomes_one_to_take_over(embedded: NewEmbedded, candidate: Pod) -> None:
    """A reservation that requires pre-allocation waits for a candidate."""
    required = {"scheduling.koordinator.sh/pre-allocation-required": "true"}
    reserved = reservation("new", 2, policy="Restricted", preAllocation=True, labels=required)
    one = embedded(node("n", cpu=4), pod("new", 2, on="n"), reserved, config=config())
    place(one)
    assert one.cluster.get(Reservation, "new").status.node_name == ""

    if candidate.metadata.name == "new":
        one.cluster.overwrite(candidate)
    else:
        one.load([candidate])
    place(one)
    assert one.cluster.get(Reservation, "new").status.node_name == "n"


def test_a_hinted_node_is_added(embedded: NewEmbedded) -> None:
    """Until then all nodes are outside the hint."""
    on = {"enabled": [{"name": "SchedulingHint"}]}
    hint = {"internal.scheduling.koordinator.sh/scheduling-hint": '{"nodeNames": ["b"]}'}
    profile = configuration(plugins={"preFilter": on, "filter": on})
    one = embedded(node("a"), pod("new", 1, annotations=hint), config=profile)
    assert place(one) == ""

    one.load([node("b")])
    assert place(one) == "b"


def claim(**status: Any) -> KubeObject:
    """Return a claim, allocated for the pod."""
    return made(
        "ResourceClaim",
        "c",
        "resource.k8s.io/v1",
        metadata={"namespace": "default"},
        status={"allocation": {}, **status},
    )


def waits_for(claim_name: str) -> Pod:
    return pod("new", 1, resourceClaims=[{"name": "d", "resourceClaimName": claim_name}])


READY = {"driver": "d", "pool": "p", "device": "0", "conditions": [{"type": "R", "status": "True"}]}
SHARED = [{"name": "v", "persistentVolumeClaim": {"claimName": "shared"}}]


@pytest.mark.parametrize(
    ("plugin", "waiting", "event"),
    [
        (
            "DynamicResources",
            waits_for("c"),
            ClusterEvent("ResourceClaim", Action.UPDATE, claim(), claim(devices=[READY])),
        ),
        (
            "DynamicResources",
            waits_for("c"),
            ClusterEvent("Node", Action.UPDATE_ALLOCATABLE, node("n", cpu=2), node("n", cpu=4)),
        ),
        (
            "NodeVolumeLimits",
            pod("new", 1, volumes=SHARED),
            ClusterEvent("AssignedPod", Action.ADD, None, pod("a", 1, on="n", volumes=SHARED)),
        ),
        (
            "NodeVolumeLimits",
            pod("new", 1, volumes=SHARED),
            ClusterEvent("CSINode", Action.DELETE, made("CSINode", "n", "storage.k8s.io/v1")),
        ),
        (
            "NodeNUMAResource",
            pod("new", 1),
            ClusterEvent("Device", Action.UPDATE, device("n"), device("n", gpus=2)),
        ),
        (
            "InterPodAffinity",
            pod("new", 1),
            ClusterEvent("Namespace", Action.UPDATE, None, made("Namespace", "team")),
        ),
    ],
    ids=lambda it: it.label if isinstance(it, ClusterEvent) else None,
)
def test_the_event_requeues_the_pod(plugin: str, waiting: Pod, event: ClusterEvent) -> None:
    """A device is ready, a node has grown, a volume is attached, a limit was removed, and so on."""
    spec = next(one for one in builtin_plugins() if one.name == plugin)
    hints = HintTable({plugin: [*spec.events, *(gated for _, gated in spec.gated_events)]})
    queued = QueuedPod(waiting.key, waiting, None, 0, 0.0, 0, rejected_by=frozenset((plugin,)))

    assert hints.wake_for(queued, event) is not Wake.NO


@pytest.mark.parametrize("part", ["DeviceShare", "NodeNUMAResource"])
def test_reservation_registers_the_events_of_the_plugins_that_it_uses(part: str) -> None:
    """Reservation rejects nodes for reasons of these plugins, too."""
    specs = {one.name: one for one in builtin_plugins()}
    actions: defaultdict[str, Action] = defaultdict(lambda: Action(0))
    for event in specs["Reservation"].events:
        actions[event.resource] |= event.action

    missing = [
        (event.resource, event.action & ~actions[event.resource])
        for event in specs[part].events
        if event.action & ~actions[event.resource]
    ]

    assert not missing
