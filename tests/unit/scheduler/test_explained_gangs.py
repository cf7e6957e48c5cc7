"""Explanations of gangs some of whose members have nodes."""

from typing import Any

import pytest
from tests.unit.scheduler.plugins.test_elastic_quota import team
from tests.unit.scheduler.test_explained_pods import explained
from tests.unit.scheduler.test_gangs import group, member, members, placed
from tests.unit.scheduler.test_gangs_in_quotas import BOTH, LABEL
from tests.worlds import embedded, node

from koordinator.api.labels import QUOTA_PREEMPTIBLE
from koordinator.api.pod import Pod
from koordinator.scheduler.cycle import SchedulingCycle
from koordinator.scheduler.features.explanations.explainer import explain
from koordinator.simulator import Embedded

RAISED_MAX = "raise the max of quota team by cpu:1"
RAISED_MIN = (
    "raise the min of quota team by cpu:3, or let the pod be preemptible: such pods are not held "
    "to the min"
)


@pytest.mark.parametrize("name", ["default/free", "default/kept-0"])
@pytest.mark.parametrize(
    ("most", "least", "text"),
    [
        (6, 1, RAISED_MIN),
        (5, 4, RAISED_MAX),
        (5, 1, f"{RAISED_MAX}; and {RAISED_MIN}"),
    ],
)
def test_quota_of_mixed_members_is_raised_by_what_each_limit_counts(
    name: str, most: int, least: int, text: str
) -> None:
    """One preemptible member of 2 CPUs and two others: the minimum counts those two only."""
    kept = {LABEL: "team", QUOTA_PREEMPTIBLE: "false"}
    explanation = explained(
        node("n", cpu=8),
        team("team", most=most, least=least),
        group("g", 3),
        member("free", "g", 2, labels={LABEL: "team"}),
        *(member(f"kept-{i}", "g", 2, labels=kept) for i in range(2)),
        config=BOTH,
        name=name,
    )

    texts = {one.text: one.sufficient for one in explanation.remedies if one.kind == "refusal"}
    assert texts == {text: True}


@pytest.mark.parametrize(("cpu", "starts"), [(4, False), (6, True)])
def test_running_members_keep_their_nodes(cpu: int, *, starts: bool) -> None:
    """The new member must fit beside the running one and the pending one."""
    explanation = explained(
        node("n", cpu=cpu),
        group("g", 3, match_policy="waiting-and-running"),
        member("g-0", "g", 2, on="n"),
        member("g-1", "g", 2),
        config=BOTH,
        name="default/g-1",
    )

    (create,) = (one for one in explanation.remedies if one.text.startswith("create 1 more member"))
    assert create.sufficient is starts


def waiting(count: int, cpu: int) -> Embedded:
    """Return a gang whose members that fit wait for the others."""
    one = embedded(
        node("n", cpu=cpu), group("g", count, mode="NonStrict"), *members("g", count), config=BOTH
    )
    one.scheduler.step()
    return one


def pending(one: Embedded) -> list[str]:
    return sorted(key for key in one.state.unbound if key not in one.state.pods.by_key)


def test_members_with_a_node_are_not_placed_again() -> None:
    """Two of four members wait for their permits when a third one is deleted."""
    one = waiting(4, cpu=2)
    deleted, left = pending(one)
    one.cluster.delete(Pod, deleted.partition("/")[2], "default", grace_period_s=0)
    one.scheduler.step()

    explanation = explain(one.scheduler.handle, left)

    assert (
        explanation.gang == "gang group default/g: 0 of 2 members find a place once 1 more exists"
    )
    nodes = next(one.text for one in explanation.remedies if one.kind == "add-node")
    assert nodes == "add a node like n: empty ones take the 2 members that find no place"


def test_member_that_waits_is_explained_by_one_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node for all pending members was added since: they have the same explanation."""
    calls: list[str] = []
    choose = SchedulingCycle.choose

    def counted(self: SchedulingCycle, pod: Pod, *args: Any, **more: Any) -> Any:
        calls.append(pod.key)
        return choose(self, pod, *args, **more)

    one = waiting(8, cpu=2)
    one.load([node("m", cpu=8)])
    one.scheduler.step(limit=0)
    monkeypatch.setattr(SchedulingCycle, "choose", counted)
    first = pending(one)[0]
    explain(one.scheduler.handle, first)
    alone = len(calls)
    calls.clear()

    (waits, *_) = sorted(one.state.unbound.keys() - {*pending(one)})
    explanation = explain(one.scheduler.handle, waits)

    assert explanation.node == "n"
    assert 0 < len(calls) <= alone


@pytest.mark.parametrize(("order", "is_sure"), [((1, 0, 2), True), ((0, 1, 2), False)])
def test_smaller_gang_is_tried_in_the_order_of_arrival(order: list[int], *, is_sure: bool) -> None:
    """The scheduler tries that order first, and only some others: those are no proof."""
    pods = [member(f"g-{n}", "g", cpu) for n, cpu in enumerate((1, 3, 9))]
    arriving = [pods[n] for n in order]
    nodes = [node("a", cpu=3), node("b", cpu=1)]

    explanation = explained(*nodes, group("g", 3), *arriving, config=BOTH, name="default/g-2")

    (smaller,) = (one for one in explanation.remedies if one.text.startswith("set minMember"))
    assert "to 2: that many members find a place" in smaller.text
    assert smaller.sufficient is is_sure
    one = embedded(*nodes, group("g", 2), *arriving, config=BOTH)
    one.run_to_fixed_point()
    assert placed(one).keys() == {"g-0", "g-1"}


#: Pods that hold 3 CPUs, 1 of them requested by their container.
SHAPES: dict[str, dict[str, Any]] = {
    "sidecar": {
        "initContainers": [
            {
                "name": "proxy",
                "restartPolicy": "Always",
                "resources": {"requests": {"cpu": "2"}},
            }
        ]
    },
    "init container": {
        "initContainers": [{"name": "load", "resources": {"requests": {"cpu": "3"}}}]
    },
    "overhead": {"overhead": {"cpu": "2"}},
    "whole pod": {"resources": {"requests": {"cpu": "3"}}},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_quota_is_raised_by_all_that_the_members_hold(shape: str) -> None:
    """Two of three members of 3 CPUs exceed a maximum of 4."""
    gang = members("g", 3, labels={LABEL: "team"}, **SHAPES[shape])
    there = [node("n", cpu=20), group("g", 3), *gang]

    explanation = explained(*there, team("team", most=4), config=BOTH, name="default/g-0")

    assert "raise the max of quota team by cpu:5" in [
        one.text for one in explanation.remedies if one.sufficient
    ]
    one = embedded(*there, team("team", most=9), config=BOTH)
    one.run_to_fixed_point()
    assert len(placed(one)) == 3


def test_gang_that_fits_is_explained_alike_by_all_members() -> None:
    """Small members placed before a large one would take its node."""
    gang = [member(f"g-{at}", "g", cpu) for at, cpu in enumerate((3, 3, 1, 1))]
    one = embedded(node("a", cpu=4), node("b", cpu=4), group("g", 4), *gang, config=BOTH)
    one.scheduler.step(limit=0)

    by_key = {key: explain(one.scheduler.handle, key) for key in sorted(one.state.unbound)}

    assert {each.verdict for each in by_key.values()} == {"fits"}
    one.run_to_fixed_point()
    assert {f"default/{name}": on for name, on in placed(one).items()} == {
        key: each.node for key, each in by_key.items()
    }


@pytest.mark.parametrize("name", ["g-0", "g-1", "g-2"])
def test_every_quota_of_the_members_is_raised_by_its_own_part(name: str) -> None:
    """Two members of 2 CPUs are in one quota, one in another; each admits 1 CPU."""
    gang = [member(f"g-{at}", "g", 2, labels={LABEL: of}) for at, of in enumerate("aba")]
    there = [node("n", cpu=20), group("g", 3), *gang]

    explanation = explained(
        *there, team("a", most=1), team("b", most=1), config=BOTH, name=f"default/{name}"
    )

    assert [each.text for each in explanation.remedies if each.sufficient] == [
        "raise the max of quota a by cpu:3; and raise the max of quota b by cpu:1"
    ]
    one = embedded(*there, team("a", most=4), team("b", most=2), config=BOTH)
    one.run_to_fixed_point()
    assert len(placed(one)) == 3


def test_members_of_gangs_that_start_together_have_one_explanation() -> None:
    """One of the gangs lacks a member; two of the others find no node, for different reasons."""
    ids = ["g", "h"]
    selecting = member("g-1", "g", nodeSelector={"disk": "ssd"})
    pods = [member("g-0", "g", 9), selecting, member("h-0", "h")]
    one = embedded(node("n", cpu=4), group("g", 2, ids), group("h", 2, ids), *pods, config=BOTH)
    one.run_to_fixed_point()

    explanations = [explain(one.scheduler.handle, f"default/{pod.metadata.name}") for pod in pods]

    assert {each.gang for each in explanations} == {
        "gang group default/g,default/h: 2 of 4 members find a place once 1 more exists"
    }
    assert len({each.causes for each in explanations}) == 1
    assert len({each.remedies for each in explanations}) == 1
