"""Preemption for gangs that must stay in one network domain."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.scheduler.test_gang_topology import gather, nodes, topology
from tests.unit.scheduler.test_gangs import condition, group, members, placed
from tests.unit.scheduler.test_job_preemption import HIGH, settled
from tests.worlds import configuration, embedded, pod

from koordinator.api.pod import Pod
from koordinator.scheduler.loop import Evicted
from koordinator.simulator import Embedded

ONLY = {"disabled": [{"name": "*"}], "enabled": [{"name": "Coscheduling"}]}
CONFIG = configuration(
    plugins={
        "multiPoint": {"enabled": [{"name": "Coscheduling"}]},
        "queueSort": ONLY,
        "postFilter": ONLY,
    },
    pluginConfig=[
        {
            "name": "Coscheduling",
            "args": {"enablePreemption": True, "awareNetworkTopology": True},
        }
    ],
)
RACK = {"h1": "r1", "h2": "r1", "h3": "r2", "h4": "r2", "h5": "r3", "h6": "r3"}


def world(slots: tuple[int, ...], *objects: Any) -> Embedded:
    return embedded(topology(), *nodes(*slots), *objects, config=CONFIG)


def full(*slots: int, priority: int = 0) -> list[Pod]:
    """Return pods of one cpu that fill the nodes."""
    return [
        pod(f"low-{n}-{i}", 1, on=f"h{n}", priority=priority)
        for n, count in enumerate(slots, 1)
        for i in range(count)
    ]


def test_victims_are_in_the_rack_of_the_gang() -> None:
    """Four slots of two racks would suffice in number, but the gang must stay in one."""
    gang = members("g", 4, 1, priority=HIGH)
    spec = gather(must="RackLayer")
    one = world((2, 2, 2, 2), *full(2, 2, 2, 2), group("g", 4, **spec), *gang)

    victims = settled(one)

    where = {RACK[node] for name, node in placed(one).items() if name.startswith("g-")}
    assert len(victims) == 4
    assert len(where) == 1
    assert len([name for name in placed(one) if name.startswith("g-")]) == 4


def test_no_eviction_if_no_rack_fits_the_gang() -> None:
    """There are five members and racks of four slots."""
    gang = members("g", 5, 1, priority=HIGH)
    one = world((2, 2, 2, 2), *full(2, 2, 2, 2), group("g", 5, **gather(must="RackLayer")), *gang)

    assert settled(one) == []
    assert not any(name.startswith("g-") for name in placed(one))
    assert condition(one, "g-0")[0]


def test_plan_that_breaks_a_multiple_is_rejected() -> None:
    """Pairs per node are required, but every node fits one more only: no pod is evicted."""
    spec = gather(must="RackLayer", NodeTopologyLayer=2)
    gang = members("g", 2, 1, priority=HIGH)
    one = world((1, 1, 1, 1), *full(1, 1, 1, 1), group("g", 2, **spec), *gang)

    assert settled(one) == []


@settings(max_examples=examples(20), deadline=None)
@given(
    slots=st.lists(st.integers(0, 3), min_size=4, max_size=6),
    size=st.integers(2, 5),
    important=st.sets(st.integers(1, 6)),
)
def test_no_eviction_without_effect(slots: list[int], size: int, important: set[int]) -> None:
    """After an eviction the gang starts in one rack, and no victim had its priority."""
    pods = [
        pod(f"p-{n}-{i}", 1, on=f"h{n}", priority=HIGH if n in important else 0)
        for n, count in enumerate(slots, 1)
        for i in range(count)
    ]
    one = world(
        tuple(slots),
        *pods,
        group("g", size, **gather(must="RackLayer")),
        *members("g", size, 1, priority=HIGH),
    )
    outcomes = one.run_to_fixed_point()

    victims = [o.pod for o in outcomes if isinstance(o, Evicted)]
    mine = {name: node for name, node in placed(one).items() if name.startswith("g-")}
    assert len(mine) in (0, size)
    assert bool(mine) or not victims
    assert len({RACK[node] for node in mine.values()}) <= 1
    assert all(int(key.split("-")[1]) not in important for key in victims)
    one.scheduler.validate()


def test_message_has_domains_without_less_important_pods() -> None:
    """As in the original it has the current state, and the state without these pods."""
    one = world((2, 2), *full(2, 1), group("w", 5, **gather(must="RackLayer")))
    one.load(members("w", 5, priority=HIGH))
    settled(one)

    messages = "".join(condition(one, f"w-{n}")[1] for n in range(5))
    now, without = "topologyNode RackLayer/r1: 1", "topologyNode RackLayer/r1: 4"
    assert "no candidate topology nodes can accommodate job, desiredOfferSlot: 5" in messages
    assert now in messages
    assert "preemption: no candidate topology nodes" in messages
    assert without in messages
