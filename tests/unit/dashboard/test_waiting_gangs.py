"""Members of gangs wait for what their gang lacks now, whatever was written when they came."""

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.unit.dashboard.dashboards import NOW
from tests.unit.dashboard.test_sources import Looks, nothing
from tests.unit.scheduler.test_gangs import config, group, members, world
from tests.worlds import node

from koordinator.api.pod import Pod, PodSchedulingGate
from koordinator.dashboard.overview import OverviewBuilder
from koordinator.dashboard.sources.cluster import LiveClusterSource

NEEDED = {"one": 3, "two": 2}
POD_NAMES = [f"{gang}-{n}" for gang, least in NEEDED.items() for n in range(least)]


@settings(max_examples=12)
@given(st.permutations(POD_NAMES), st.booleans(), st.sampled_from([None, "one", "two"]))
def test_members_have_one_cause_in_whatever_order_they_came(
    arrivals: list[str], starts_together: bool, lacks_a_member: str | None
) -> None:
    """A dashboard of a cluster says the same as the scheduler that decides on it."""
    together = tuple(NEEDED) if starts_together else ()
    cluster = world(
        node("n", cpu=2), *(group(gang, least, together) for gang, least in NEEDED.items())
    )
    pods = {one.metadata.name: one for gang in NEEDED for one in members(gang, NEEDED[gang], 3)}
    for name in arrivals:
        cluster.load([pods[name]])
        cluster.run_to_fixed_point()
    if lacks_a_member:
        cluster.cluster.delete(Pod, f"{lacks_a_member}-0", "default", grace_period_s=0)
        cluster.run_to_fixed_point()

    source = LiveClusterSource("live", cluster.cluster, config(), cluster.clock)
    source.follow(Looks(source, nothing))

    for handle in (source.handle, cluster.scheduler.handle):
        assert handle is not None
        waiting = OverviewBuilder(handle).build(NOW).waiting
        assert len(waiting) == len(pods) - bool(lacks_a_member)
        for one in waiting:
            expected = "too little cpu is free"
            if lacks_a_member and (starts_together or one.gang == f"default/{lacks_a_member}"):
                least = NEEDED[lacks_a_member]
                expected = (
                    f"its gang default/{lacks_a_member} starts with {least} members, "
                    f"and there are {least - 1}"
                )
            assert one.cause == expected


def test_a_member_with_a_closed_scheduling_gate_waits_for_that_gate() -> None:
    """The others wait for what the scheduler wrote, not for the gate."""
    cluster = world(node("n", cpu=2), group("g", 2))
    gated, *others = members("g", 3, cpu=3)
    gate = PodSchedulingGate(name="example.com/later")
    gated = replace(gated, spec=replace(gated.spec, scheduling_gates=(gate,)))
    cluster.load([gated, *others])
    cluster.run_to_fixed_point()
    source = LiveClusterSource("live", cluster.cluster, config(), cluster.clock)
    source.follow(Looks(source, nothing))

    for handle in (source.handle, cluster.scheduler.handle):
        assert handle is not None
        waiting = OverviewBuilder(handle).build(NOW).waiting
        assert {one.name: one.cause for one in waiting} == {
            "g-0": "scheduling gates are closed: [example.com/later]",
            "g-1": "too little cpu is free",
            "g-2": "too little cpu is free",
        }
