"""Choice of the node and the victims of a preemption."""

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
    preemptor: Pod,
    nominated: Sequence[tuple[str, Pod]] = (),
    **args: int,
) -> PostFilterResult:
    """Run the plugin after a failed attempt under the default profile."""
    (profile,) = build_profiles(configuration(), state.axis).profiles
    cycle, pod_class = SchedulingCycle(profile, state), state.classes.of(preemptor)
    diagnosis = cycle.scorecard(pod_class).diagnosis()
    assert not len(cycle.scorecard(pod_class).feasible)
    by_node: dict[str, list[tuple[Pod, PodClass]]] = {}
    for name, rival in nominated:
        by_node.setdefault(name, []).append((rival, state.classes.of(rival)))
    result: PostFilterResult = built(PLUGIN, state, **args).postfilter(
        cycle.attempt(
            preemptor,
            pod_class,
            diagnosis,
            by_node,
            nominated_node=preemptor.status.nominated_node_name,
        )
    )
    return result


def victims(result: PostFilterResult) -> list[str]:
    return [victim.pod.metadata.name for victim in result.victims]


def full(name: str, *pods: Pod, cpu: int = 4) -> tuple[object, ...]:
    return node(name, cpu=cpu), *pods


# -- victims -----------------------------------------------------------------------------------


def test_no_more_victims_than_needed(world: World) -> None:
    """Two of the four pods, the least important ones, free 2 CPUs."""
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


def test_one_large_victim_spares_more_important_pods(world: World) -> None:
    """Victims are reprieved in order of importance as long as the pod still fits."""
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
    """Preemption needs victims of lower priority."""
    state = world(*full("n", pod("same", cpu=4, priority=10, on="n")))

    assert preempt(state, pod("p", cpu=1, priority=10)) == PostFilterResult(
        "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
    )


def test_state_is_restored(world: World) -> None:
    """The state does not change, whatever was tried."""
    low = pod("low", cpu=4, priority=0, on="n")
    state = world(*full("n", low))
    preempt(state, pod("p", cpu=1, priority=10))

    assert list(state.pods.by_key) == [low.key]
    assert state.nodes.requested[0, 0] == 4000


# -- nodes -------------------------------------------------------------------------------------


def test_budget_is_violated_last(world: World) -> None:
    """The node with the more important pod is chosen because no budget covers it."""
    state = world(
        *full("a", pod("a1", cpu=4, priority=0, labels=WEB, on="a")),
        *full("b", pod("b1", cpu=4, priority=5, on="b")),
        budget("web", allowed=0, app="web"),
    )

    assert preempt(state, pod("p", cpu=4, priority=10)).node == "b"


def test_budget_with_disruptions_left_protects_nothing(world: World) -> None:
    """Pods of a budget with disruptions left are victims like others."""
    state = world(
        *full("a", pod("a1", cpu=4, priority=0, labels=WEB, on="a")),
        *full("b", pod("b1", cpu=4, priority=5, on="b")),
        budget("web", allowed=1, app="web"),
    )

    assert preempt(state, pod("p", cpu=4, priority=10)).node == "a"


def test_protected_pods_are_reprieved_first(world: World) -> None:
    """The budget allows one disruption; the uncovered pod is evicted despite its priority."""
    state = world(
        *full(
            "n",
            pod("w1", cpu=2, priority=0, labels=WEB, on="n"),
            pod("other", cpu=2, priority=5, on="n"),
        ),
        budget("web", allowed=0, app="web"),
    )

    assert victims(preempt(state, pod("p", cpu=2, priority=10))) == ["other"]


def test_budget_is_violated_if_nothing_else_helps(world: World) -> None:
    """Budgets are respected on a best-effort basis."""
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
    preemptor = pod("p", cpu=4, priority=10)

    assert preempt(state, preemptor).node == "n9"
    few = preempt(state, preemptor, minCandidateNodesPercentage=10, minCandidateNodesAbsolute=1)
    assert few.node == "n0"


# -- eligibility -------------------------------------------------------------------------------


def test_preemption_policy_never_prevents_evictions(world: World) -> None:
    """A pod with ``preemptionPolicy: Never`` evicts no pod of any priority."""
    state = world(*full("n", pod("low", cpu=4, on="n")))
    meek = pod("p", cpu=1, priority=10, preemptionPolicy="Never")

    refused = preempt(state, meek)
    assert refused.message == "preemption: not eligible due to preemptionPolicy=Never."
    assert not refused.victims


def test_pod_waits_for_its_terminating_victims(world: World) -> None:
    """Only victims on its nominated node matter."""
    state = world(
        *full("n", _preempted(pod("low", cpu=4, deleted=True, on="n"))),
        *full("m", pod("other", cpu=4, on="m")),
    )
    waiting = pod("p", cpu=1, priority=10)

    assert preempt(state, _nominated(waiting, "n")).message == (
        "preemption: not eligible due to a terminating pod on the nominated node."
    )
    assert preempt(state, _nominated(waiting, "m")).node


def test_pod_deleted_for_another_reason_is_not_waited_for(world: World) -> None:
    """A pod that a user deleted may take long to terminate."""
    state = world(
        *full("n", pod("ending", cpu=2, deleted=True, on="n"), pod("low", cpu=2, on="n")),
    )

    assert victims(preempt(state, _nominated(pod("p", cpu=1, priority=10), "n"))) == ["low"]


def test_victims_are_not_waited_for_on_an_infeasible_node(world: World) -> None:
    """The nominated node has been cordoned, so another node is chosen."""
    state = world(
        node("n", cpu=4, unschedulable=True),
        _preempted(pod("low", cpu=4, deleted=True, on="n")),
        *full("m", pod("other", cpu=4, on="m")),
    )

    assert preempt(state, _nominated(pod("p", cpu=1, priority=10), "n")).node == "m"


# -- nodes where it does not help --------------------------------------------------------------


def test_unresolvable_nodes_are_not_tried(world: World) -> None:
    """A taint, a node that is too small, and a selector are counted as such."""
    state = world(
        node("tainted", taints=["a=1:NoSchedule"]),
        node("small", cpu=1),
        pod("low", on="small"),
        node("cordoned", unschedulable=True),
    )

    assert preempt(state, pod("p", cpu=2, priority=10)).message == (
        "preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
    )


def test_reason_without_lower_priority_pods_is_reported(world: World) -> None:
    """The message gives the reason that remains without them."""
    state = world(*full("n", pod("low", cpu=1, on="n"), pod("high", cpu=3, priority=20, on="n")))

    assert preempt(state, pod("p", cpu=2, priority=10)).message == (
        "preemption: 0/1 nodes are available: 1 Insufficient cpu."
    )


def test_evicting_pods_makes_room_for_ports_and_lifts_anti_affinity(world: World) -> None:
    """Victims are pods that block, by a spread too, not only pods that use capacity."""
    state = world(
        node("n", zone="a"),
        node("m", zone="b", taints=["a=1:NoSchedule"]),
        pod("low", ports=[80], labels=WEB, on="n"),
        pod("bystander", on="n"),
    )
    variants: list[dict[str, object]] = [
        {"ports": [80]},
        {"affinity": {"podAntiAffinity": near("web")}},
        {"labels": WEB, "topologySpreadConstraints": [spread()]},
    ]
    for more in variants:
        assert victims(preempt(state, pod("p", priority=10, **more))) == ["low"]  # type: ignore[arg-type]  # by name


def test_node_whose_victims_include_required_affinity_is_skipped(world: World) -> None:
    """Without its less important pods the pod's required affinity fails, as in kube-scheduler."""
    state = world(
        node("n", cpu=4, zone="a"),
        pod("friend", cpu=2, labels=WEB, on="n"),
        pod("other", cpu=2, priority=5, on="n"),
    )
    preemptor = pod("p", cpu=2, priority=10, affinity={"podAffinity": near("web")})

    assert preempt(state, preemptor).message == (
        "preemption: 0/1 nodes are available: 1 node(s) didn't match pod affinity rules."
    )


def test_capacity_of_a_nominated_pod_is_not_free(world: World) -> None:
    """A nominated pod of at least the same priority counts on n, so capacity for both is needed."""
    state = world(*full("n", pod("n1", cpu=2, on="n"), pod("n2", cpu=2, on="n")))
    preemptor, rival = pod("p", cpu=2, priority=10), pod("rival", cpu=2, priority=10)

    assert victims(preempt(state, preemptor)) == ["n2"]
    assert victims(preempt(state, preemptor, [("n", rival)])) == ["n1", "n2"]
    assert victims(preempt(state, preemptor, [("n", pod("meek", cpu=2, priority=9))])) == ["n2"]


def _preempted(original: Pod) -> Pod:
    target = Condition(type=DISRUPTION_TARGET, status="True", reason=PREEMPTED)
    status = msgspec.structs.replace(original.status, conditions=(target,))
    return msgspec.structs.replace(original, status=status)


def _nominated(original: Pod, name: str) -> Pod:
    status = msgspec.structs.replace(original.status, nominated_node_name=name)
    return msgspec.structs.replace(original, status=status)
