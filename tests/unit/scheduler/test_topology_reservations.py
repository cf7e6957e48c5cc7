"""Gathered gangs that own reservations."""

import json
from collections import Counter

import pytest
from tests.keywords import as_keywords
from tests.reservations import affinity, reservation
from tests.unit.scheduler.conftest import NewEmbedded
from tests.unit.scheduler.test_gang_topology import by_node, gather, nodes, topology
from tests.unit.scheduler.test_gangs import group, members, placed
from tests.worlds import configuration, device, node, pod

from koordinator.api.annotations.devices import ALLOCATED as DEVICES_ALLOCATED
from koordinator.api.annotations.reservation import ALLOCATED
from koordinator.api.kubescheduler import KubeSchedulerConfiguration
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.simulator import Embedded

OWNERS = {"labels": {"app": "web"}}
RACK = {"hall": "p1", "rack": "r1"}


def config(*more: str) -> KubeSchedulerConfiguration:
    names = ("Reservation", "Coscheduling", *more)
    return configuration(
        plugins={
            "multiPoint": {"enabled": [{"name": name} for name in names]},
            "queueSort": {"disabled": [{"name": "*"}], "enabled": [{"name": "Coscheduling"}]},
        },
        pluginConfig=[{"name": "Coscheduling", "args": {"awareNetworkTopology": True}}],
    )


def users(one: Embedded) -> Counter[str]:
    """Return the number of pods per used reservation; empty means none."""
    read = [ALLOCATED.read(p.metadata) for p in one.cluster.list(Pod).items if p.spec.node_name]
    return Counter(allocation.name if allocation is not None else "" for allocation in read)


def world(embedded: NewEmbedded, *objects: KubeObject, more: tuple[str, ...] = ()) -> Embedded:
    one: Embedded = embedded(topology(), *objects, config=config(*more))
    one.run_to_fixed_point()
    return one


def rack_of(*cpus: int) -> list[KubeObject]:
    return [node(f"h{n}", cpu, labels=RACK) for n, cpu in enumerate(cpus, 1)]


@pytest.mark.parametrize(
    ("policy", "inside"), [("Aligned", {"r": 3}), ("Restricted", {"r": 1, "": 2})]
)
def test_owners_use_their_reservations(
    embedded: NewEmbedded, policy: str, inside: dict[str, int]
) -> None:
    """Aligned, all three are inside and beside it; restricted, one is inside and two beside."""
    one = world(
        embedded,
        *rack_of(64),
        reservation("r", 20, on="h1", policy=policy),
        group("w", 3, **gather()),
        *members("w", 3, 20, **OWNERS),
    )

    assert by_node(one) == {"h1": ["w-0", "w-1", "w-2"]}
    assert users(one) == inside


@pytest.mark.parametrize("count", [4, 5])
def test_reservation_is_restored_once(embedded: NewEmbedded, count: int) -> None:
    """Members of 20 CPUs on 64 with 20 held for them: three fit, as without the reservation."""
    one = world(
        embedded,
        *rack_of(64),
        reservation("r", 20, on="h1"),
        group("w", count, **gather()),
        *members("w", count, 20, **OWNERS),
    )

    assert not placed(one)


def test_others_do_not_use_the_reservation(embedded: NewEmbedded) -> None:
    one = world(
        embedded,
        *rack_of(64),
        reservation("r", 20, on="h1"),
        group("w", 3, **gather()),
        *members("w", 3, 20),
    )

    assert not placed(one)


def test_a_gang_that_needs_reservations_finds_them_in_one_rack(embedded: NewEmbedded) -> None:
    """A reservation is used once: the rack with one does not suffice, even with empty nodes."""
    reserved = [reservation(f"r{n}", 2, on=f"h{n}", once=True) for n in (1, 5, 6)]
    needs = {**OWNERS, "annotations": affinity()}
    one = world(
        embedded,
        *nodes(64, 64, 64, 64, 2, 2),
        *reserved,
        group("w", 2, **gather(must="RackLayer")),
        *members("w", 2, 2, **needs),
    )

    assert by_node(one) == {"h5": ["w-0"], "h6": ["w-1"]}
    assert users(one) == {"r5": 1, "r6": 1}


def test_a_gang_that_needs_reservations_waits_for_enough_of_them(embedded: NewEmbedded) -> None:
    needs = {**OWNERS, "annotations": affinity()}
    one = world(
        embedded,
        *rack_of(8, 8),
        reservation("r1", 2, on="h1", once=True),
        group("w", 2, **gather(must="RackLayer")),
        *members("w", 2, 2, **needs),
    )
    assert not placed(one)

    one.load([reservation("r2", 2, on="h2", once=True)])
    one.run_to_fixed_point()

    assert users(one) == {"r1": 1, "r2": 1}


def test_members_get_reserved_devices(embedded: NewEmbedded) -> None:
    """There are four GPUs, two of them reserved: two members take those, a third one another."""
    names = ("koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio")
    whole = dict.fromkeys(names, 100)
    entries = [{"minor": minor, "resources": dict.fromkeys(names, "100")} for minor in (2, 3)]
    kept = reservation(
        "r",
        2,
        on="h1",
        policy="Restricted",
        requests=dict.fromkeys(names, 200),
        annotations={DEVICES_ALLOCATED.key: json.dumps({"gpu": entries})},
    )
    one = world(
        embedded,
        node("h1", 8, labels=RACK, **as_keywords(dict.fromkeys(names, 400))),
        device("h1", gpus=4),
        kept,
        group("w", 3, **gather()),
        *members("w", 3, 1, requests=whole, **OWNERS),
        more=("DeviceShare",),
    )

    taken = [
        DEVICES_ALLOCATED.read(p.metadata) for p in one.cluster.list(Pod).items if p.spec.node_name
    ]
    minors = sorted(
        each.minor
        for allocation in taken
        if allocation
        for kind in allocation.values()
        for each in kind
    )
    assert len(minors) == len(set(minors)) == 3
    assert {2, 3} <= set(minors)
    assert users(one) == {"r": 2, "": 1}


def test_headroom_of_owners_includes_their_reservation(embedded: NewEmbedded) -> None:
    """Two of 25 CPUs on 64 with 20 held for them and two others of 10: one of these is evicted."""
    one = world(
        embedded,
        *rack_of(64),
        reservation("r", 20, on="h1"),
        pod("low-0", 10, on="h1"),
        pod("low-1", 10, on="h1"),
        group("w", 2, **gather(must="RackLayer")),
        *members("w", 2, 25, priority=10, **OWNERS),
    )

    assert users(one) == {"r": 2, "": 1}
    assert sum(name.startswith("low") for name in placed(one)) == 1
