"""Resource fit, and scores by the resulting utilisation."""

import pytest
from tests.keywords import as_keywords
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.questions import built, hopeless, refused, scored
from tests.worlds import node, pod

from koordinator.scheduler.plugins.node_resources_fit import PLUGIN

FOO = "example.com/foo"


def test_a_pod_that_fits_exactly_is_accepted(world: World) -> None:
    """Requests may fill a node to the last milli-CPU, and not one more."""
    state = world(node("n", cpu=4), pod("p", cpu="3500m", on="n"))
    fit = built(PLUGIN, state)

    assert refused(fit, state, pod("new", cpu="500m")) == {}
    assert refused(fit, state, pod("new", cpu="501m")) == {"n": "Insufficient cpu"}


def test_every_missing_resource_is_named(world: World) -> None:
    """In the order of the resource axis; the pod count is one of them."""
    state = world(
        node("n", cpu=1, memory="1Gi", pods=1, **as_keywords({FOO: 1})),
        pod("p", requests={FOO: 1}, on="n"),
    )
    pending = pod("new", cpu=2, memory="2Gi", requests={FOO: 1, "example.com/bar": 1})

    assert refused(built(PLUGIN, state), state, pending) == {
        "n": "Insufficient cpu, Insufficient memory, Too many pods, "
        f"Insufficient {FOO}, Insufficient example.com/bar"
    }


def test_full_node_accepts_a_pod_without_requests(world: World) -> None:
    """Only the number of pods counts, even on an overcommitted node."""
    state = world(
        node("n", cpu=1), pod("p", cpu=2, on="n"), node("one", pods=1), pod("q", on="one")
    )

    assert refused(built(PLUGIN, state), state, pod("new")) == {"one": "Too many pods"}


def test_preemption_helps_only_where_the_empty_node_fits(world: World) -> None:
    """A request beyond allocatable is unresolvable; too many pods never are."""
    state = world(
        node("small", cpu=1),
        node("busy", cpu=4),
        pod("p", cpu=4, on="busy"),
        node("crowded", pods=0),
    )

    assert hopeless(built(PLUGIN, state), state, pod("new", cpu=2)) == {"small"}


def test_ignored_resources_are_not_checked(world: World) -> None:
    """By name, or by the group before the slash."""
    state = world(node("n"))
    pending = pod("new", requests={FOO: 1})

    assert refused(built(PLUGIN, state, ignoredResources=[FOO]), state, pending) == {}
    again = world(node("n"))
    assert (
        refused(built(PLUGIN, again, ignoredResourceGroups=["example.com"]), again, pending) == {}
    )


def test_ignored_resources_are_per_profile(world: World) -> None:
    """Profiles differ in their result also for a pod that both have checked."""
    state = world(node("n"))
    pending = pod("new", requests={FOO: 1})
    lax, strict = built(PLUGIN, state, ignoredResources=[FOO]), built(PLUGIN, state)

    assert refused(lax, state, pending) == {}
    assert refused(strict, state, pending) == {"n": f"Insufficient {FOO}"}


def test_least_allocated_is_the_mean_free_share(world: World) -> None:
    """(4000 - 1000) / 4000 of cpu is 75, (8 - 6) / 8 of memory is 25; their mean is 50."""
    state = world(node("n", cpu=4, memory="8Gi"), pod("p", cpu="500m", memory="2Gi", on="n"))

    assert scored(built(PLUGIN, state), state, pod("new", cpu="500m", memory="4Gi")) == {"n": 50}


def test_most_allocated_is_the_mean_used_share(world: World) -> None:
    """25 % of cpu and 75 % of memory; an overcommitted resource counts as full."""
    state = world(
        node("n", cpu=4, memory="8Gi"),
        pod("p", cpu="500m", memory="2Gi", on="n"),
        node("over", cpu=4, memory="8Gi"),
        pod("q", cpu=9, memory="4Gi", on="over"),
    )
    packed = built(PLUGIN, state, scoringStrategy={"type": "MostAllocated"})

    assert scored(packed, state, pod("new", cpu="500m", memory="4Gi")) == {"n": 50, "over": 100}


def test_score_is_the_truncated_weighted_mean(world: World) -> None:
    """Cpu is 2/3 free (66, truncated), memory 1/2: (3 * 66 + 1 * 50) / 4 = 62."""
    state = world(node("n", cpu=3, memory="2Gi"))
    resources = [{"name": "cpu", "weight": 3}, {"name": "memory", "weight": 1}]
    fit = built(PLUGIN, state, scoringStrategy={"type": "LeastAllocated", "resources": resources})

    assert scored(fit, state, pod("new", cpu=1, memory="1Gi")) == {"n": 62}


def test_requests_that_are_missing_count_with_defaults_in_the_score(world: World) -> None:
    """The defaults are 100 milli-CPU and 200 MiB per container: 90 % and 80 % stay free."""
    state = world(node("n", cpu=1, memory="1000Mi"))
    fit = built(PLUGIN, state)

    assert scored(fit, state, pod("new")) == {"n": 85}
    assert refused(fit, state, pod("new")) == {}


def test_extended_resource_counts_only_for_pods_that_request_it(world: World) -> None:
    """The resource has no effect on the score of nodes that lack it."""
    state = world(node("has", cpu=4, **as_keywords({FOO: 4})), node("lacks", cpu=4))
    resources = [{"name": "cpu", "weight": 1}, {"name": FOO, "weight": 1}]
    fit = built(PLUGIN, state, scoringStrategy={"type": "LeastAllocated", "resources": resources})

    assert scored(fit, state, pod("new", cpu=1)) == {"has": 75, "lacks": 75}
    assert scored(fit, state, pod("new", cpu=1, requests={FOO: 3})) == {"has": 50, "lacks": 75}


@pytest.mark.parametrize(
    ("cpu", "expected"),
    [("1", 20), ("2", 40), ("3", 70), ("4", 100)],
)
def test_requested_to_capacity_ratio_follows_the_curve(
    world: World, cpu: str, expected: int
) -> None:
    """Points (0, 0), (50, 4), (100, 10), scores times 10, lines between: 25 % is 20, 75 % is 70."""
    state = world(node("n", cpu=4))
    fit = built(PLUGIN, state, scoringStrategy=_ratio([(0, 0), (50, 4), (100, 10)]))

    assert scored(fit, state, pod("new", cpu=cpu)) == {"n": expected}


def test_requested_to_capacity_ratio_falls_too(world: World) -> None:
    """A falling line truncates towards zero change: at 33 % of (0, 10) to (100, 0) it is 67."""
    state = world(node("n", cpu=3))
    fit = built(PLUGIN, state, scoringStrategy=_ratio([(0, 10), (100, 0)]))

    assert scored(fit, state, pod("new", cpu=1)) == {"n": 67}


def test_requested_to_capacity_ratio_rounds_and_leaves_out_zero_scores(world: World) -> None:
    """Cpu at 33 % and memory at 66 %: 49.5 rounds to 50. Over capacity counts as full."""
    resources = [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]
    strategy = _ratio([(0, 0), (100, 10)]) | {"resources": resources}
    state = world(
        node("n", cpu=3, memory="3Gi"),
        node("over", cpu=2, memory="2Gi"),
        pod("p", cpu=2, on="over"),
        node("none", cpu=100, memory="3Ti"),
    )
    fit = built(PLUGIN, state, scoringStrategy=strategy)

    assert scored(fit, state, pod("new", cpu=1, memory="2Gi")) == {
        "n": 50,
        "over": 100,
        "none": 1,  # cpu alone: memory is at 0 %
    }


def _ratio(points: list[tuple[int, int]]) -> dict[str, object]:
    shape = [{"utilization": x, "score": y} for x, y in points]
    return {
        "type": "RequestedToCapacityRatio",
        "resources": [{"name": "cpu", "weight": 1}],
        "requestedToCapacityRatio": {"shape": shape},
    }
