"""Gang members show the current shortage of their gang, whatever their messages say."""

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.examples import examples
from tests.unit.dashboard.dashboards import NOW
from tests.unit.dashboard.test_sources import Steps, nothing
from tests.unit.scheduler.test_gangs import config, group, members, world
from tests.worlds import node, pod

from koordinator.api.pod import Pod, PodSchedulingGate
from koordinator.dashboard.overview import OverviewBuilder
from koordinator.dashboard.sources.cluster import LiveClusterSource

NEEDED = {"one": 3, "two": 2}
POD_NAMES = [f"{gang}-{n}" for gang, least in NEEDED.items() for n in range(least)]


@settings(max_examples=examples(12))
@given(st.permutations(POD_NAMES), st.booleans(), st.sampled_from([None, "one", "two"]))
def test_members_have_one_cause_for_any_order_of_arrival(
    arrivals: list[str], starts_together: bool, incomplete_gang: str | None
) -> None:
    """The dashboard of a cluster agrees with the scheduler that decides on it."""
    together = tuple(NEEDED) if starts_together else ()
    cluster = world(
        node("n", cpu=2), *(group(gang, least, together) for gang, least in NEEDED.items())
    )
    pods = {one.metadata.name: one for gang in NEEDED for one in members(gang, NEEDED[gang], 3)}
    for name in arrivals:
        cluster.load([pods[name]])
        cluster.run_to_fixed_point()
    if incomplete_gang:
        cluster.cluster.delete(Pod, f"{incomplete_gang}-0", "default", grace_period_s=0)
        cluster.run_to_fixed_point()

    source = LiveClusterSource("live", cluster.cluster, config(), cluster.clock)
    source.follow(Steps(source, nothing))

    for handle in (source.handle, cluster.scheduler.handle):
        assert handle is not None
        waiting = OverviewBuilder(handle).build(NOW).waiting
        assert len(waiting) == len(pods) - bool(incomplete_gang)
        for one in waiting:
            expected = "too little cpu is free"
            if incomplete_gang and (starts_together or one.gang == f"default/{incomplete_gang}"):
                least = NEEDED[incomplete_gang]
                expected = (
                    f"gang default/{incomplete_gang} starts with {least} members, "
                    f"and there are {least - 1}"
                )
            assert one.cause == expected


def test_gated_member_has_its_own_cause() -> None:
    """The other members have the scheduler's message."""
    cluster = world(node("n", cpu=2), group("g", 2))
    gated, *others = members("g", 3, cpu=3)
    gate = PodSchedulingGate(name="example.com/later")
    gated = replace(gated, spec=replace(gated.spec, scheduling_gates=(gate,)))
    cluster.load([gated, *others])
    cluster.run_to_fixed_point()
    source = LiveClusterSource("live", cluster.cluster, config(), cluster.clock)
    source.follow(Steps(source, nothing))

    for handle in (source.handle, cluster.scheduler.handle):
        assert handle is not None
        waiting = OverviewBuilder(handle).build(NOW).waiting
        assert {one.name: one.cause for one in waiting} == {
            "g-0": "it has scheduling gates: [example.com/later]",
            "g-1": "too little cpu is free",
            "g-2": "too little cpu is free",
        }


def test_members_have_the_place_of_their_representative() -> None:
    """The last member completed the gang and is queued for all; they stand together, by name."""
    cluster = world(node("n", cpu=2), group("ring", 3), *members("ring", 3, cpu=6), pod("p", 9))
    cluster.run_to_fixed_point()
    handle = cluster.scheduler.handle
    queued = handle.queue.get("default/ring-0")
    assert queued is not None
    assert queued.gated_by

    waiting = OverviewBuilder(handle).build(NOW).waiting

    assert [(one.name, one.position) for one in waiting] == [
        ("ring-0", 1),
        ("ring-1", 2),
        ("ring-2", 3),
        ("p", 4),
    ]


def test_incomplete_gang_stands_behind_the_pods_that_can_be_tried() -> None:
    cluster = world(node("n", cpu=2), group("ring", 3), *members("ring", 2, cpu=6), pod("p", 9))
    cluster.run_to_fixed_point()

    waiting = OverviewBuilder(cluster.scheduler.handle).build(NOW).waiting

    assert {one.name: one.position for one in waiting} == {"p": 1, "ring-0": 2, "ring-1": 3}
