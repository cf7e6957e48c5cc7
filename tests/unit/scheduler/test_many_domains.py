"""Jobs that fit in one of very many domains find it."""

import pytest
from tests.unit.scheduler.test_gang_topology import gather, topology
from tests.unit.scheduler.test_gangs import group, member, members, placed
from tests.unit.scheduler.test_job_preemption import HIGH, settled
from tests.unit.scheduler.test_topology_preemption import CONFIG
from tests.worlds import embedded, node, pod

from koordinator.api.node import Node

MANY = 60  # racks that won't do


def rack(name: str, *cpus: int) -> list[Node]:
    """Return a rack with nodes of a number of CPUs."""
    return [
        node(f"{name}-{i}", cpu, labels={"hall": "p0", "rack": name}) for i, cpu in enumerate(cpus)
    ]


@pytest.mark.parametrize("cpus", [(4,), (3, 1, 1)], ids=["too small", "in too small pieces"])
def test_a_job_of_two_kinds_finds_the_one_rack_for_both(cpus: tuple[int, ...]) -> None:
    """All racks fit each kind alone; the one that fits both has most capacity and is tried last."""
    racks = [one for number in range(MANY) for one in rack(f"r{number:02}", *cpus)]
    one = embedded(
        topology(),
        *racks,
        *rack("good", 3, 3),
        group("g", 2, **gather(must="RackLayer")),
        member("g-0", "g", 3),
        member("g-1", "g", 2),
        config=CONFIG,
    )
    one.scheduler.step()

    assert {name.rpartition("-")[0] for name in placed(one).values()} == {"good"}
    assert len(placed(one)) == 2


def test_preemption_finds_the_rack_with_enough_victims() -> None:
    """Racks with more free capacity are full of protected pods."""
    racks = [one for number in range(MANY) for one in rack(f"r{number:02}", 4, 4)]
    kept = [
        pod(f"kept-{one.metadata.name}", 3, on=one.metadata.name, priority=HIGH) for one in racks
    ]
    one = embedded(
        topology(),
        *racks,
        *kept,
        *rack("good", 4, 4),
        *(pod(f"low-{i}", 4, on=f"good-{i}") for i in range(2)),
        group("g", 2, **gather(must="RackLayer")),
        *members("g", 2, 4, priority=HIGH),
        config=CONFIG,
    )

    assert settled(one) == ["low-0", "low-1"]
    assert {placed(one)[name] for name in ("g-0", "g-1")} == {"good-0", "good-1"}
