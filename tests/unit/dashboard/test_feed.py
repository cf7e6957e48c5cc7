"""The dashboard groups pending pods as ``koord explain pods`` does."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.dashboard.dashboards import NOW, settled
from tests.unit.scheduler.plugins.test_elastic_quota import team
from tests.unit.scheduler.test_gangs import group, member, members
from tests.unit.scheduler.test_gangs_in_quotas import BOTH
from tests.worlds import START_S, node, pod

from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.dashboard.feed import TIME_SHARE, ExplainedCauses
from koordinator.dashboard.overview import OverviewBuilder
from koordinator.dashboard.waiting_pods import WaitingPods
from koordinator.scheduler.explanations import by_cause
from koordinator.simulator.explanations import explain_waiting

QUOTA = "quota.scheduling.koordinator.sh/name"

Groups = dict[str, set[str]]


def groups(waiting: WaitingPods) -> Groups:
    """Return the pods of each cause."""
    return {
        cause: {waiting[place].key for place in places.tolist()}
        for cause, places in waiting.by_cause.items()
    }


def explained(objects: Sequence[KubeObject]) -> Groups:
    """Return the groups of ``koord explain pods``."""
    return {
        cause: {pod for _, pods in parts for pod in pods}
        for cause, parts in by_cause(explain_waiting(objects, BOTH, now_s=START_S))
    }


def shown(objects: Sequence[KubeObject]) -> Groups:
    """Return the groups of the dashboard once every kind of pod has been explained."""
    handle = settled(*objects, config=BOTH).scheduler.handle
    causes = ExplainedCauses(handle)
    waiting = OverviewBuilder(handle).build(NOW).waiting
    for step in range(len(waiting)):
        causes.apply(waiting)
        causes.explain_next(START_S + step * TIME_SHARE)
    return groups(causes.apply(waiting))


def crowd() -> list[KubeObject]:
    """Return nodes of three kinds, and pods that wait for different reasons."""
    gated = member("g-2", "g", 3, schedulingGates=[{"name": "x.io/approval"}])
    return [
        node("small", cpu=2),
        node("tainted", cpu=16, taints=["dedicated=infra:NoSchedule"]),
        node("full", cpu=16),
        team("team", most=1),
        pod("fills", 15, on="full", priority=9),
        pod("large", 4),
        *(pod(f"picky-{n}", 1, nodeSelector={"disk": "ssd"}) for n in range(2)),
        pod("limited", 2, labels={QUOTA: "team"}),
        pod("lost", 1, schedulerName="absent"),
        group("g", 2),
        *members("g", 2, 3),
        gated,
        group("short", 3),
        *members("short", 2),
    ]


def test_pods_are_grouped_as_by_the_command() -> None:
    """By all causes of a pod, not by the reason of most nodes; a gated member is apart."""
    expected = explained(crowd())

    assert shown(crowd()) == expected
    assert sorted(sorted(pods) for pods in expected.values()) == [
        ["default/g-0", "default/g-1", "default/large"],
        ["default/g-2"],
        ["default/limited"],
        ["default/lost"],
        ["default/picky-0", "default/picky-1"],
        ["default/short-0", "default/short-1"],
    ]


@settings(max_examples=examples(15))
@given(
    nodes=st.lists(st.tuples(st.integers(1, 6), st.sampled_from([(), ("a=b:NoSchedule",)]))),
    pods=st.lists(
        st.tuples(st.integers(1, 6), st.sampled_from(["", "g", "team"])), min_size=1, max_size=8
    ),
)
def test_any_pods_are_grouped_as_by_the_command(
    nodes: list[tuple[int, tuple[str, ...]]], pods: list[tuple[int, str]]
) -> None:
    objects: list[KubeObject] = [team("team", most=4), group("g", 3)]
    objects += [
        node(f"n{number}", cpu=cpu, taints=list(taints))
        for number, (cpu, taints) in enumerate(nodes)
    ]
    for number, (cpu, belongs_to) in enumerate(pods):
        name = f"p-{number}"
        if belongs_to == "g":
            objects.append(member(name, "g", cpu))
        else:
            objects.append(pod(name, cpu, labels={QUOTA: "team"} if belongs_to else {}))

    assert shown(objects) == explained(objects)


def test_causes_change_only_with_the_pods_or_an_explanation() -> None:
    """Frames are encoded again only for another object."""
    handle = settled(*crowd(), config=BOTH).scheduler.handle
    causes = ExplainedCauses(handle)
    waiting = OverviewBuilder(handle).build(NOW).waiting
    before = causes.apply(waiting)
    assert groups(before) == groups(waiting)
    assert causes.apply(waiting) is before

    causes.explain_next(START_S)
    after = causes.apply(waiting)

    assert after is not before
    assert causes.apply(waiting) is after


def test_explanation_of_another_reason_is_dropped() -> None:
    """The pod waits for something else by now; it is explained again."""
    world = settled(node("n", cpu=2), pod("p", 4), config=BOTH)
    handle = world.scheduler.handle
    causes = ExplainedCauses(handle)
    builder = OverviewBuilder(handle)
    causes.apply(builder.build(NOW).waiting)
    causes.explain_next(START_S)
    assert causes.remedies()["default/p"]

    world.cluster.delete(Node, "n")
    world.cluster.load([node("m", cpu=8, taints=["a=b:NoSchedule"])])
    world.run_to_fixed_point()
    waiting = builder.build(NOW).waiting

    (cause,) = groups(causes.apply(waiting))
    assert cause == waiting[0].cause
    assert "taint" in cause
