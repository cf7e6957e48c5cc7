"""How many pods of a kind fit: a bound that is kept while the cluster changes."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.worlds import add, configuration, node, placed_on, pod, world

from koordinator.scheduler.cycle import Cycle
from koordinator.scheduler.profile import build_profiles

changes = st.lists(
    st.tuples(st.sampled_from(["place", "displace", "node", "drop"]), st.integers(0, 20)),
    max_size=12,
)


@settings(max_examples=40, deadline=None)
@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=6), events=changes)
def test_the_bound_is_never_below_what_fits(
    sizes: list[int], events: list[tuple[str, int]]
) -> None:
    """A gang that the bound calls hopeless is hopeless."""
    state = world(*(node(f"n{i}", cpu=size) for i, size in enumerate(sizes)))
    (profile,) = build_profiles(configuration(), state.axis).profiles
    cycle = Cycle(profile, state)
    wanted = state.classes.of(pod("wanted", cpu=2))
    rows = cycle.choose_run([wanted] * 100)
    assert rows is not None
    room = cycle.room(wanted, len(rows))
    assert cycle.room_at_most(wanted, room) == len(rows)

    for number, (what, size) in enumerate(events):
        names, pods = list(state.nodes.rows), list(state.pods.by_key)
        if what == "place" and names:
            small = pod(f"p{number}", cpu=1 + size % 3)
            add(state, placed_on(small, names[size % len(names)]))
        elif what == "displace" and pods:
            state.displace(pods[size % len(pods)])
        elif what == "node":
            add(state, node(f"n{size % 8}", cpu=1 + size % 7))
        elif what == "drop" and names:
            state.drop_node(names[size % len(names)])
        rows = cycle.choose_run([wanted] * 100)
        assert rows is not None
        assert len(rows) <= cycle.room_at_most(wanted, room)
