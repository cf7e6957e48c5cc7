"""Which node a pod makes room on, and at whose expense."""

from collections.abc import Sequence

import msgspec
import pytest
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.questions import built
from tests.worlds import budget, configuration, near, node, pod, spread

from koordinator.api.meta import Condition, KubeObject
from koordinator.api.pod import DISRUPTION_TARGET, PREEMPTED, Pod
from koordinator.scheduler.cycle import SchedulingCycle
from koordinator.scheduler.plugins.default_preemption import PLUGIN
from koordinator.scheduler.post_filter import PostFilterResult
from koordinator.scheduler.profile import build_profiles
from koordinator.scheduler.snapshot import ClusterState, PodClass

WEB = {"app": "web"}


def preempt(
    state: ClusterState,
    asked: Pod,
    nominated: Sequence[tuple[str, Pod]] = (),
    **args: int,
) -> PostFilterResult:
    """Ask the plugin after a failed attempt under the default profile."""
    (profile,) = build_profiles(configuration(), state.axis).profiles
    cycle, pod_class = SchedulingCycle(profile, state), state.classes.of(asked)
    diagnosis = cycle.scorecard(pod_class).diagnosis()
    assert not len(cycle.scorecard(pod_class).feasible)
    by_node: dict[str, list[tuple[Pod, PodClass]]] = {}
    for name, rival in nominated:
        by_node.setdefault(name, []).append((rival, state.classes.of(rival)))
    result: PostFilterResult = built(PLUGIN, state, **args).postfilter(
        cycle.attempt(
            asked,
            pod_class,
            diagnosis,
            by_node,
            nominated_node=asked.status.nominated_node_name,
        )
    )
    return result


def victims(result: PostFilterResult) -> list[str]:
    return [victim.pod.metadata.name for victim in result.victims]


def full(name: str, *pods: Pod, cpu: int = 4) -> tuple[object, ...]:
    return node(name, cpu=cpu), *pods


# -- who must go -----------------------------------------------------------------------------


def test_no_more_victims_than_needed(world: World) -> None:
    """Two of the four pods make room for 2 CPU: the least important ones."""
    state = world(
        *full(
            "n",
            pod("old", cpu=1, priority=1, on="n", started="08:00"),
            pod("new", cpu=1, priority=1, on="n", started="09:00"),
            pod("low", cpu=1, priority=0, on="n", started="07:00"),
            pod("high", cpu=1, priority=5, on="n"),
        )
    )
    result = preempt(state, pod("p", cpu=2, priority=10))

    assert (result.node, victims(result)) == ("n", ["new", "low"])


def test_one_large_victim_rather_than_what_is_more_important(world: World) -> None:
    """Victims are put back in order of importance as long as the pod still fits."""
    state = world(
        *full(
            "n",
            pod("high", cpu=1, priority=5, on="n"),
            pod("large", cpu=2, priority=3, on="n"),
            pod("low", cpu=1, priority=1, on="n"),
        )
    )

    assert victims(preempt(state, pod("p", cpu=2, priority=10))) == ["large"]


def test_pods_of_the_same_or_higher_priority_stay(world: World) -> None:
    """Then there is nobody to evict."""
    state = world(*full("n", pod("same", cpu=4, priority=10, on="n")))

    assert preempt(state, pod("p", cpu=1, priority=10)) == PostFilterResult(
        "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
    )


def test_the_state_is_as_before(world: World) -> None:
    """Whatever was tried."""
    low = pod("low", cpu=4, priority=0, on="n")
    state = world(*full("n", low))
    preempt(state, pod("p", cpu=1, priority=10))

    assert list(state.pods.by_key) == [low.key]
    assert state.nodes.requested[0, 0] == 4000


# -- which node ------------------------------------------------------------------------------


def test_a_budget_is_the_last_thing_to_break(world: World) -> None:
    """The node with the more important pod is taken, since nothing protects it."""
    state = world(
        *full("a", pod("a1", cpu=4, priority=0, labels=WEB, on="a")),
        *full("b", pod("b1", cpu=4, priority=5, on="b")),
        budget("web", allowed=0, app="web"),
    )

    assert preempt(state, pod("p", cpu=4, priority=10)).node == "b"


def test_a_budget_with_room_protects_nothing(world: World) -> None:
    """Its pods are as good as others."""
    state = world(
        *full("a", pod("a1", cpu=4, priority=0, labels=WEB, on="a")),
        *full("b", pod("b1", cpu=4, priority=5, on="b")),
        budget("web", allowed=1, app="web"),
    )

    assert preempt(state, pod("p", cpu=4, priority=10)).node == "a"


def test_protected_pods_are_put_back_first(world: World) -> None:
    """The budget lets one of two go; the unprotected pod goes although it is more important."""
    state = world(
        *full(
            "n",
            pod("w1", cpu=2, priority=0, labels=WEB, on="n"),
            pod("other", cpu=2, priority=5, on="n"),
        ),
        budget("web", allowed=0, app="web"),
    )

    assert victims(preempt(state, pod("p", cpu=2, priority=10))) == ["other"]


def test_a_budget_gives_way_when_nothing_else_helps(world: World) -> None:
    """It is best effort."""
    state = world(
        *full("n", pod("w1", cpu=4, labels=WEB, on="n")), budget("web", allowed=0, app="web")
    )

    assert victims(preempt(state, pod("p", cpu=4, priority=10))) == ["w1"]


@pytest.mark.parametrize(
    ("a", "b", "better"),
    [
        ([(5, "")], [(4, ""), (4, "")], "b"),  # lowest highest priority …
        ([(5, ""), (4, "")], [(5, ""), (3, "")], "b"),  # … smallest sum of priorities …
        ([(5, ""), (5, "")], [(5, "")], "b"),  # … which also counts the pods …
        ([(5, "08:00")], [(5, "09:00")], "b"),  # … latest start of the earliest most important …
        ([(5, "08:00"), (4, "10:00")], [(5, "07:00"), (4, "11:00")], "a"),
        ([(5, "08:00")], [(5, "08:00")], "a"),  # … first.
    ],
)
def test_the_cheapest_node_is_taken(
    world: World, a: list[tuple[int, str]], b: list[tuple[int, str]], better: str
) -> None:
    """Every pod on the two nodes must go; given are their priorities and start times."""
    objects: list[KubeObject] = []
    for name, pods in (("a", a), ("b", b)):
        objects.append(node(name, cpu=4))
        for index, (priority, started) in enumerate(pods):
            share = 4 // len(pods)
            objects.append(
                pod(f"{name}{index}", cpu=share, priority=priority, started=started, on=name)
            )
    state = world(*objects)

    assert preempt(state, pod("p", cpu=4, priority=10)).node == better


def test_only_as_many_nodes_as_configured_are_tried(world: World) -> None:
    """The first of ten nodes is not the cheapest, but it is enough."""
    objects = [
        part
        for i in range(10)
        for part in full(f"n{i}", pod(f"p{i}", cpu=4, priority=9 - i, on=f"n{i}"))
    ]
    state = world(*objects)
    asked = pod("p", cpu=4, priority=10)

    assert preempt(state, asked).node == "n9"
    few = preempt(state, asked, minCandidateNodesPercentage=10, minCandidateNodesAbsolute=1)
    assert few.node == "n0"


# -- who may not -----------------------------------------------------------------------------


def test_a_pod_whose_policy_is_never_evicts_nobody(world: World) -> None:
    """Whatever its priority."""
    state = world(*full("n", pod("low", cpu=4, on="n")))
    meek = pod("p", cpu=1, priority=10, preemptionPolicy="Never")

    refused = preempt(state, meek)
    assert refused.message == "preemption: not eligible due to preemptionPolicy=Never."
    assert not refused.victims


def test_a_pod_waits_for_victims_that_are_still_ending(world: World) -> None:
    """On the node that it was nominated to; elsewhere they do not matter."""
    state = world(
        *full("n", _preempted(pod("low", cpu=4, deleted=True, on="n"))),
        *full("m", pod("other", cpu=4, on="m")),
    )
    waiting = pod("p", cpu=1, priority=10)

    assert preempt(state, _nominated(waiting, "n")).message == (
        "preemption: not eligible due to a terminating pod on the nominated node."
    )
    assert preempt(state, _nominated(waiting, "m")).node


def test_a_pod_that_ends_for_another_reason_is_not_waited_for(world: World) -> None:
    """Somebody has deleted it, and that may take long."""
    state = world(
        *full("n", pod("ending", cpu=2, deleted=True, on="n"), pod("low", cpu=2, on="n")),
    )

    assert victims(preempt(state, _nominated(pod("p", cpu=1, priority=10), "n"))) == ["low"]


def test_victims_are_not_waited_for_where_the_pod_can_not_go_any_more(world: World) -> None:
    """The nominated node has been cordoned: room is made elsewhere."""
    state = world(
        node("n", cpu=4, unschedulable=True),
        _preempted(pod("low", cpu=4, deleted=True, on="n")),
        *full("m", pod("other", cpu=4, on="m")),
    )

    assert preempt(state, _nominated(pod("p", cpu=1, priority=10), "n")).node == "m"


# -- where it does not help ------------------------------------------------------------------


def test_what_no_eviction_can_cure_is_not_tried(world: World) -> None:
    """A taint, a node that is too small, a selector; each is counted."""
    state = world(
        node("tainted", taints=["a=1:NoSchedule"]),
        node("small", cpu=1),
        pod("low", on="small"),
        node("cordoned", unschedulable=True),
    )

    assert preempt(state, pod("p", cpu=2, priority=10)).message == (
        "preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
    )


def test_why_a_node_is_still_too_full_is_said(world: World) -> None:
    """After all less important pods are gone."""
    state = world(*full("n", pod("low", cpu=1, on="n"), pod("high", cpu=3, priority=20, on="n")))

    assert preempt(state, pod("p", cpu=2, priority=10)).message == (
        "preemption: 0/1 nodes are available: 1 Insufficient cpu."
    )


def test_evicting_pods_makes_room_for_ports_and_lifts_anti_affinity(world: World) -> None:
    """And evens a spread: victims are what stands in the way, not only what takes room."""
    state = world(
        node("n", zone="a"),
        node("m", zone="b", taints=["a=1:NoSchedule"]),
        pod("low", ports=[80], labels=WEB, on="n"),
        pod("bystander", on="n"),
    )
    asked: list[dict[str, object]] = [
        {"ports": [80]},
        {"affinity": {"podAntiAffinity": near("web")}},
        {"labels": WEB, "topologySpreadConstraints": [spread()]},
    ]
    for more in asked:
        assert victims(preempt(state, pod("p", priority=10, **more))) == ["low"]  # type: ignore[arg-type]  # by name


def test_a_node_where_a_friend_is_among_the_less_important_is_given_up(world: World) -> None:
    """All of them are taken off first, and then the affinity has nobody left (as in kube)."""
    state = world(
        node("n", cpu=4, zone="a"),
        pod("friend", cpu=2, labels=WEB, on="n"),
        pod("other", cpu=2, priority=5, on="n"),
    )
    asked = pod("p", cpu=2, priority=10, affinity={"podAffinity": near("web")})

    assert preempt(state, asked).message == (
        "preemption: 0/1 nodes are available: 1 node(s) didn't match pod affinity rules."
    )


def test_room_that_was_made_for_another_pod_is_not_free(world: World) -> None:
    """A rival of at least the same priority is nominated to n: room for both must be made."""
    state = world(*full("n", pod("n1", cpu=2, on="n"), pod("n2", cpu=2, on="n")))
    asked, rival = pod("p", cpu=2, priority=10), pod("rival", cpu=2, priority=10)

    assert victims(preempt(state, asked)) == ["n2"]
    assert victims(preempt(state, asked, [("n", rival)])) == ["n1", "n2"]
    assert victims(preempt(state, asked, [("n", pod("meek", cpu=2, priority=9))])) == ["n2"]


def _preempted(original: Pod) -> Pod:
    target = Condition(type=DISRUPTION_TARGET, status="True", reason=PREEMPTED)
    status = msgspec.structs.replace(original.status, conditions=(target,))
    return msgspec.structs.replace(original, status=status)


def _nominated(original: Pod, name: str) -> Pod:
    status = msgspec.structs.replace(original.status, nominated_node_name=name)
    return msgspec.structs.replace(original, status=status)
