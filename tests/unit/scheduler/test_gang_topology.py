"""Gangs with network topology requirements in the whole scheduler."""

import json
from typing import Any

import pytest
from tests.unit.scheduler.test_gangs import (
    condition,
    config,
    group,
    member,
    members,
    placed,
    world,
)
from tests.worlds import START_S, configuration, device, embedded, made, near, node, pod

from koordinator.api.cluster_network_topology import ClusterNetworkTopology
from koordinator.api.event import Event
from koordinator.api.labels import HOSTNAME
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.domain.placement_fork import replacement_of
from koordinator.foundation.clock import VirtualClock
from koordinator.scheduler.fork import follow_cluster
from koordinator.scheduler.loop import Bound
from koordinator.simulator import Embedded

API = "scheduling.koordinator.sh/v1alpha1"
INDEX = "gang.scheduling.koordinator.sh/network-topology-index"
SLOTS = (2, 1, 3, 2, 2, 4, 0, 1)  # h1 … h8: two halls p1, p2 of two racks of two nodes


def topology(*layers: tuple[str, str, str]) -> KubeObject:
    """Return a ClusterNetworkTopology; a layer is a name, a parent and a label."""
    layers = layers or (
        ("HallLayer", "", "hall"),
        ("RackLayer", "HallLayer", "rack"),
        ("NodeTopologyLayer", "RackLayer", ""),
    )
    entries = [
        {"topologyLayer": name, "parentTopologyLayer": parent, "labelKey": [key] if key else []}
        for name, parent, key in layers
    ]
    return made("ClusterNetworkTopology", "default", API, spec={"networkTopologySpec": entries})


def nodes(*cpus: int) -> list[Node]:
    return [
        node(f"h{n}", cpu, labels={"hall": f"p{(n + 3) // 4}", "rack": f"r{(n + 1) // 2}"})
        for n, cpu in enumerate(cpus, 1)
    ]


def gather(**layers: str | int) -> dict[str, Any]:
    """Return the annotation: ``must="RackLayer"``, or ``RackLayer=4`` for a multiple."""
    rules: list[dict[str, Any]] = []
    if "must" in layers:
        rules.append({"layer": layers.pop("must"), "strategy": "MustGather"})
    for layer, multiple in layers.items():
        rules.append({"layer": layer, "strategy": "PreferGather", "podCountMultiple": multiple})
    rules = rules or [{"layer": "RackLayer", "strategy": "PreferGather"}]
    return {"network_topology_spec": json.dumps({"gatherStrategy": rules})}


def cluster(*objects: KubeObject, slots: tuple[int, ...] = SLOTS, **args: Any) -> Embedded:
    return world(topology(), *nodes(*slots), *objects, awareNetworkTopology=True, **args)


def by_node(one: Embedded) -> dict[str, list[str]]:
    pods: dict[str, list[str]] = {}
    for name, where in sorted(placed(one).items()):
        pods.setdefault(where, []).append(name)
    return pods


@pytest.mark.parametrize("merge_runs", [True, False])
def test_a_job_goes_to_the_best_fitting_rack_in_the_order_of_its_names(merge_runs: bool) -> None:
    """As in the original, five members go to rack r2: three on h3 and two on h4."""
    one = cluster(group("w", 5, **gather()), *members("w", 5), options={"merge_runs": merge_runs})

    one.scheduler.step()

    assert by_node(one) == {"h3": ["w-0", "w-1", "w-2"], "h4": ["w-3", "w-4"]}
    one.state.validate()


def test_unplaced_job_has_the_best_domain_in_its_message() -> None:
    """Seven members fit in no rack; the message names the best one, and other members get it."""
    one = cluster(group("w", 7, **gather(must="RackLayer")), *members("w", 7))

    one.run_to_fixed_point()

    head = next(f"w-{i}" for i in range(7) if "GangGroup" not in condition(one, f"w-{i}")[1])
    message = condition(one, head)[1]
    assert message.startswith(
        "0/8 nodes are available: no candidate topology nodes can accommodate job, "
        "desiredOfferSlot: 7, topology topologyNode RackLayer/r1: 3;topology topologyNode "
        "RackLayer/r2: 5;topology topologyNode RackLayer/r3: 6;topology topologyNode RackLayer/r4:"
        " 1, 0/8 nodes are available: 8 Insufficient cpu."
    )
    assert "best was RackLayer/r3 with room for 6 of 7" in message
    assert all("RackLayer/r3: 6" in condition(one, f"w-{i}")[1] for i in range(7))
    assert not placed(one)
    one.state.validate()


def test_a_job_starts_when_its_rack_has_room() -> None:
    """A deleted pod in rack r3 frees capacity for the seventh member, another rack does not."""
    one = cluster(
        pod("in-r2", 1, on="h3"),
        pod("in-r3", 1, on="h5"),
        group("w", 6, **gather(must="RackLayer")),
        *members("w", 6),
    )
    one.run_to_fixed_point()
    one.cluster.delete(Pod, "in-r2", "default", grace_period_s=0)
    one.run_to_fixed_point()
    assert len(placed(one)) == 1

    one.cluster.delete(Pod, "in-r3", "default", grace_period_s=0)
    one.run_to_fixed_point()

    assert by_node(one) == {"h6": ["w-0", "w-1", "w-2", "w-3"], "h5": ["w-4", "w-5"]}


def test_a_job_starts_when_a_node_moves_into_its_rack() -> None:
    """New labels of a node can complete a domain."""
    one = cluster(group("w", 7, **gather(must="RackLayer")), *members("w", 7))
    one.run_to_fixed_point()

    one.cluster.patch(Node, "h8", "", {"metadata": {"labels": {"rack": "r3"}}})
    one.run_to_fixed_point()

    assert by_node(one)["h8"] == ["w-6"]


def test_ranks_determine_neighbours() -> None:
    """The index precedes the name, and w-2 precedes w-10."""
    indexed = [
        member(f"w-{name}", "w", annotations={INDEX: str(rank)})
        for rank, name in enumerate((10, 2, 1, 0, 3))
    ]
    one = cluster(group("w", 5, **gather()), *indexed)
    other = cluster(group("w", 5, **gather()), *(member(f"w-{n}", "w") for n in (10, 9, 8, 2, 1)))

    one.scheduler.step()
    other.scheduler.step()

    assert by_node(one) == {"h3": ["w-1", "w-10", "w-2"], "h4": ["w-0", "w-3"]}
    assert by_node(other) == {"h3": ["w-1", "w-2", "w-8"], "h4": ["w-10", "w-9"]}


def test_roles_of_a_gang_group_share_the_domain() -> None:
    """A leader of three CPUs and three workers need a rack with room for both: r3."""
    one = cluster(
        group("lead", 1, ("lead", "work"), **gather(must="RackLayer")),
        group("work", 3, ("lead", "work"), **gather(must="RackLayer")),
        member("lead-0", "lead", cpu=3),
        *members("work", 3),
    )

    one.scheduler.step()

    assert by_node(one) == {"h6": ["lead-0", "work-0"], "h5": ["work-1", "work-2"]}
    one.state.validate()


def test_roles_that_do_not_fit_together_reserve_nothing() -> None:
    """Four CPUs for the leader and four workers: each fits in r3, both do not."""
    one = cluster(
        group("lead", 1, ("lead", "work"), **gather(must="RackLayer")),
        group("work", 4, ("lead", "work"), **gather(must="RackLayer")),
        member("lead-0", "lead", cpu=4),
        *members("work", 4),
    )

    one.run_to_fixed_point()

    assert not placed(one)
    one.scheduler.validate()


def test_recreated_member_goes_to_the_domain_of_the_others() -> None:
    """Rack r1 would fit better, but the job must stay in r2."""
    one = cluster(group("w", 5, **gather(must="RackLayer")), *members("w", 5))
    one.scheduler.step()
    one.cluster.delete(Pod, "w-1", "default", grace_period_s=0)
    one.scheduler.step()

    one.load([member("w-5", "w")])
    one.scheduler.step()
    assert placed(one)["w-5"] == "h3"

    one.load([member("w-6", "w")])
    one.run_to_fixed_point()
    assert "w-6" not in placed(one)
    assert "RackLayer/r2: 0" in condition(one, "w-6")[1]


def test_members_beyond_the_least_number_are_left_out_if_the_domain_is_full() -> None:
    """Eight are created, four are required, six fit in the best rack."""
    one = cluster(group("w", 4, **gather(must="RackLayer")), *members("w", 8))

    one.run_to_fixed_point()

    assert by_node(one) == {"h6": ["w-0", "w-1", "w-2", "w-3"], "h5": ["w-4", "w-5"]}


def test_devices_count_as_room() -> None:
    """Two GPUs a member: a node with two of them takes one, whatever CPU it has."""
    gpus: dict[str, Any] = {"requests": {"koordinator.sh/gpu": 200}}
    labels = [{"hall": "a", "rack": rack} for rack in ("r1", "r1", "r2")]
    many: dict[str, Any] = {"koordinator.sh/gpu": 800}
    on, devices = ({"enabled": [{"name": name}]} for name in ("Coscheduling", "DeviceShare"))
    config = configuration(
        plugins={"permit": on} | dict.fromkeys(("preFilter", "filter", "reserve"), devices),
        pluginConfig=[{"name": "Coscheduling", "args": {"awareNetworkTopology": True}}],
    )
    one = embedded(
        topology(),
        *(node(f"n{i}", 64, labels=own, **many) for i, own in enumerate(labels)),
        *(device(f"n{i}", gpus) for i, gpus in enumerate((2, 4, 4))),
        group("g", 3, **gather(must="RackLayer")),
        *(member(f"g-{i}", "g", **gpus) for i in range(3)),
        config=config,
    )

    one.scheduler.step()

    assert by_node(one) == {"n1": ["g-0", "g-1"], "n0": ["g-2"]}
    one.state.validate()


def test_members_with_anti_affinity_use_a_node_each() -> None:
    """With anti-affinity by host a node takes one member, however much is free."""
    shy: dict[str, Any] = {
        "labels": {"app": "shy"},
        "affinity": {"podAntiAffinity": near("shy", "kubernetes.io/hostname")},
    }
    one = cluster(
        group("w", 2, **gather(must="RackLayer")), *(member(f"w-{i}", "w", **shy) for i in "01")
    )

    one.scheduler.step()

    assert len(by_node(one)) == 2
    one.state.validate()


def test_without_a_topology_only_mandatory_gathering_waits() -> None:
    """A job that prefers proximity starts; one that requires it has the reason."""
    one = world(
        *nodes(4, 4),
        group("must", 2, **gather(must="RackLayer")),
        *members("must", 2),
        group("may", 2, **gather()),
        *members("may", 2),
        awareNetworkTopology=True,
    )

    one.run_to_fixed_point()

    assert set(placed(one)) == {"may-0", "may-1"}
    assert "no cluster network topology" in condition(one, "must-0")[1]
    one.load([topology()])
    one.run_to_fixed_point()
    assert len(placed(one)) == 4


def test_topology_that_is_no_chain_is_reported() -> None:
    """An event gives the problem; pods without network demands are not affected."""
    broken = topology(("NodeTopologyLayer", "A", ""), ("A", "B", "a"), ("B", "A", "b"))
    one = world(
        broken,
        *nodes(4),
        group("w", 1, **gather(must="A")),
        member("w-0", "w"),
        pod("plain", 1),
        awareNetworkTopology=True,
    )

    one.run_to_fixed_point()

    assert set(placed(one)) == {"plain"}
    assert "names a parent of itself" in condition(one, "w-0")[1]
    events = [e for e in one.cluster.list(Event).items if e.regarding.kind == topology().KIND]
    assert len(events) == 1
    assert events[0].metadata.namespace == "default"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "network-topology-spec"),
        ('{"gatherStrategy":[{"layer":"RackLayer","strategy":"Must"}]}', "MustGather"),
    ],
)
def test_invalid_network_spec_is_reported_and_ignored(text: str, message: str) -> None:
    """As upstream the job starts; unlike upstream its PodGroup has an event."""
    one = cluster(group("w", 2, network_topology_spec=text), *members("w", 2))

    one.run_to_fixed_point()

    assert len(placed(one)) == 2
    assert any(message in e.note for e in one.cluster.list(Event).items)


def test_spec_without_rules_prefers_proximity() -> None:
    """As upstream: five members share a rack."""
    one = cluster(group("w", 5, network_topology_spec="{}"), *members("w", 5))

    one.scheduler.step()

    assert set(by_node(one)) == {"h3", "h4"}


def test_gang_by_annotations_is_gathered() -> None:
    """Every member has the spec; there is no PodGroup."""
    annotations = {
        "gang.scheduling.koordinator.sh/name": "w",
        "gang.scheduling.koordinator.sh/min-available": "5",
        "gang.scheduling.koordinator.sh/network-topology-spec": gather()["network_topology_spec"],
    }
    one = cluster(*(pod(f"w-{index}", 1, annotations=annotations) for index in range(5)))

    one.scheduler.step()

    assert set(by_node(one)) == {"h3", "h4"}


def test_unknown_layer_is_reported() -> None:
    """The message lists the existing layers."""
    one = cluster(group("w", 1, **gather(must="RowLayer")), member("w-0", "w"))

    one.run_to_fixed_point()

    assert "must be one of" in condition(one, "w-0")[1]


def test_without_the_switch_the_spec_has_no_effect() -> None:
    """Six members would otherwise all be in rack r3."""
    one = world(topology(), *nodes(*SLOTS), group("w", 6, **gather(must="RackLayer")),
                *members("w", 6))  # fmt: skip

    one.scheduler.step()

    assert len(placed(one)) == 6
    assert len(by_node(one)) > 2


def test_status_lists_all_domains() -> None:
    """Parents precede children by name; it is written once, and again after a node has moved."""
    one = cluster(slots=(1, 1, 1))
    one.scheduler.step()

    stored = one.cluster.get(ClusterNetworkTopology, "default")
    details = [
        (d.topology_info.topology_name, d.node_num, d.child_topology_layer, d.child_topology_names)
        for d in stored.status.detail_status
    ]
    assert details == [
        ("", 3, "HallLayer", ("p1",)),
        ("p1", 3, "RackLayer", ("r1", "r2")),
        ("r1", 2, "NodeTopologyLayer", ()),
        ("r2", 1, "NodeTopologyLayer", ()),
    ]
    one.cluster.patch(Node, "h1", "", {"metadata": {"labels": {"rack": "r2"}}})
    one.scheduler.step()
    assert one.cluster.get(ClusterNetworkTopology, "default").status == stored.status
    one.clock.advance_to(one.scheduler.next_wakeup_s() or 0)
    one.scheduler.step()
    later = one.cluster.get(ClusterNetworkTopology, "default").status
    assert [d.node_num for d in later.detail_status] == [3, 3, 1, 2]


def test_pod_with_a_selector_goes_near_the_selected_pods() -> None:
    """The first pod's rack is preferred, then its hall; without topology nothing is scored."""
    on = {"enabled": [{"name": "Coscheduling"}]}
    only = {"enabled": [{"name": "Coscheduling", "weight": 1}], "disabled": [{"name": "*"}]}
    config = configuration(plugins={"permit": on, "score": only})
    job: dict[str, Any] = {
        "annotations": {"scheduling.koordinator.sh/network-topology-selector": "job"}
    }
    for layers in ([topology()], []):
        one = embedded(
            *layers, *nodes(1, 1, 1, 1, 1, 1), pod("a", 1, on="h4", **job), config=config
        )
        one.load([pod(name, 1, **job) for name in "bcd"])
        one.scheduler.step()
        assert [placed(one)[name] for name in "bcd"] == (
            ["h3", "h1", "h2"] if layers else ["h1", "h2", "h3"]
        )


def test_flag_enables_the_status() -> None:
    """``--enable-network-topology-manager`` decides, with or without a profile that gathers."""
    enabled = embedded(topology(), *nodes(1), writes_network=True)
    declined = cluster(slots=(1,), options={"writes_network": False})
    for one in (enabled, declined):
        one.scheduler.step()

    details = [
        one.cluster.get(ClusterNetworkTopology, "default").status.detail_status
        for one in (enabled, declined)
    ]
    assert [bool(detail) for detail in details] == [True, False]


def test_scores_of_gathered_members_are_recorded_on_demand() -> None:
    """``koord schedule --scores`` shows the score of each node."""
    one = cluster(group("w", 2, **gather()), *members("w", 2), options={"explain": True})

    outcomes = one.scheduler.step()

    assert all(isinstance(o, Bound) and o.scorecard is not None for o in outcomes)
    assert len(outcomes) == 2


def test_members_with_and_without_anti_affinity_are_distinguished() -> None:
    """Two members may be anywhere, two not on one node; all request one CPU."""
    apart: dict[str, Any] = {
        "affinity": {"podAntiAffinity": near("apart", "kubernetes.io/hostname")}
    }
    free = [member(f"w-{n}", "w") for n in (0, 1)]
    shy = [member(f"w-{n}", "w", labels={"app": "apart"}, **apart) for n in (2, 3)]
    job = group("w", 4, **gather(must="RackLayer"))

    one = cluster(job, *free, *shy, slots=(8,))
    one.run_to_fixed_point()
    assert placed(one) == {}

    one = cluster(job, *free, *shy, slots=(8, 8))
    one.run_to_fixed_point()
    assert placed(one)["w-2"] != placed(one)["w-3"]


def test_trial_of_a_move_keeps_members_in_one_rack() -> None:
    """Members that move together stay in a rack; without room in any rack, none of them moves."""
    moving = [member(f"w-{i}", "w", on="h1") for i in range(4)]
    clock = VirtualClock(START_S)
    state = MemoryCluster(clock)
    state.load([topology(), *nodes(4, 0, 3, 2, 2, 1), *moving])
    state.load([group("w", 4, **gather(must="RackLayer"))])
    trial = follow_cluster(state, clock, config(awareNetworkTopology=True))
    trial.follow()
    fresh = [replacement_of(one, f"{one.metadata.name}-next") for one in moving]

    for taken, expected in (({"h1": 4}, {"h3", "h4"}), ({"h1": 4, "h4": 2}, {""})):
        with trial.world() as tried:
            for one in moving:
                tried.remove(one.key)
            for name, cpu in taken.items():
                other = pod(f"at-{name}", cpu, nodeSelector={HOSTNAME: name})
                assert tried.land(other).node == name
            assert {landing.node for landing in tried.land_together(fresh)} == expected
