"""Gangs through the whole scheduler: enough members get nodes, or none does."""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.worlds import START_S, configuration, embedded, made, node, pod

from koordinator.api.event import Event
from koordinator.api.kubescheduler import FeatureGates, KubeSchedulerConfiguration
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.api.pod_group import PodGroup
from koordinator.scheduler.loop import Bound
from koordinator.scheduler.queue import QueueState
from koordinator.simulator import Embedded

GANG = "gang.scheduling.koordinator.sh/"


def config(**args: Any) -> KubeSchedulerConfiguration:
    """Return kube-scheduler's profile with Coscheduling."""
    on = {"enabled": [{"name": "Coscheduling"}]}
    points = ("preEnqueue", "permit", "postFilter", "reserve", "postBind")
    return configuration(
        plugins=dict.fromkeys(points, on),
        pluginConfig=[{"name": "Coscheduling", "args": args}] if args else [],
    )


def world(*objects: KubeObject, options: dict[str, Any] | None = None, **args: Any) -> Embedded:
    return embedded(*objects, config=config(**args), **(options or {}))


def group(name: str, least: int, groups: Sequence[str] = (), **annotations: str) -> KubeObject:
    """Return a PodGroup; ``groups`` are the names of those that start together."""
    said = {f"{GANG}{key.replace('_', '-')}": text for key, text in annotations.items()}
    if groups:
        said[f"{GANG}groups"] = str([f"default/{one}" for one in groups]).replace("'", '"')
    return made(
        "PodGroup",
        name,
        "scheduling.sigs.k8s.io/v1alpha1",
        metadata={"namespace": "default", "annotations": said},
        spec={"minMember": least},
    )


def member(name: str, gang: str, cpu: int | str = 1, **more: Any) -> Pod:
    labels = {"pod-group.scheduling.sigs.k8s.io": gang} | more.pop("labels", {})
    return pod(name, cpu, labels=labels, **more)


def members(gang: str, count: int, cpu: int | str = 1, **more: Any) -> list[Pod]:
    return [member(f"{gang}-{index}", gang, cpu, **more) for index in range(count)]


def placed(one: Embedded) -> dict[str, str]:
    return {
        p.metadata.name: p.spec.node_name for p in one.cluster.list(Pod).items if p.spec.node_name
    }


def condition(one: Embedded, name: str) -> tuple[str, str]:
    stored = one.cluster.get(Pod, name, "default")
    return next(((c.reason, c.message) for c in stored.status.conditions), ("", ""))


def test_a_gang_that_fits_is_bound_as_a_whole() -> None:
    """All members get nodes in one step, and each says with how many others it was bound."""
    one = world(node("a", cpu=2), node("b", cpu=2), group("g", 4), *members("g", 4))

    outcomes = one.scheduler.step()

    assert len(placed(one)) == 4
    notes = [o.annotations for o in outcomes if isinstance(o, Bound)]
    assert {n["internal.scheduling.koordinator.sh/bind-gang-member-count"] for n in notes} == {"4"}
    assert {n["scheduling.koordinator.sh/bind-gang-group-id"] for n in notes} == {"default/g"}


def test_a_gang_that_does_not_fit_takes_nothing() -> None:
    """Three of four would fit: none is bound, and the room is there for others."""
    one = world(
        node("a", cpu=2), node("b", cpu=1), group("g", 4), *members("g", 4), pod("other", 2)
    )

    one.run_to_fixed_point()

    assert placed(one) == {"other": "a"}
    one.scheduler.validate()


def test_members_learn_what_happened_to_their_gang() -> None:
    """The member without a node is told why; the others are told which member that was."""
    one = world(node("a", cpu=3), group("g", 4), *members("g", 4))

    one.scheduler.step()

    told = {name: condition(one, f"g-{name}") for name in range(4)}
    own = (
        "0/1 nodes are available: 1 Insufficient cpu. "
        'Gang "default/g" gets rejected due to pod is unschedulable'
    )
    others = (
        '0/1 nodes are available: GangGroup "default/g" gets rejected due to member Pod '
        '"default/g-3" is unschedulable with reason "0/1 nodes are available: 1 Insufficient '
        'cpu.", alreadyWaitForBound: 3.'
    )
    assert told[3] == ("Unschedulable", own)
    assert told[0] == ("Unschedulable", others)


def test_others_are_not_told_if_a_gate_is_off() -> None:
    """Only the member without a node says why."""
    gates = FeatureGates.parse("GangPendingPodsConditionPatch=false")
    one = Embedded(config(), now_s=START_S, gates=gates)
    one.load([node("a", cpu=3), group("g", 4), *members("g", 4)])

    one.scheduler.step()

    told = [condition(one, f"g-{index}")[0] for index in range(4)]
    assert told == ["", "", "", "Unschedulable"]


def test_a_gang_short_of_members_waits_before_the_queue_and_says_so() -> None:
    """No attempt is made; condition and event tell how many members are missing."""
    one = world(node("a"), group("g", 3), *members("g", 2))

    one.scheduler.step()

    assert one.scheduler.attempts == 0
    assert one.scheduler.queue.counts()[QueueState.GATED] == 2
    text = "gang default/g needs 3 members; there were 2 when this was written"
    assert condition(one, "g-1") == ("SchedulingGated", text)
    assert text in {event.note for event in one.cluster.list(Event).items}


def test_members_of_different_schedulers_are_told_so() -> None:
    """No scheduler can start such a gang: its pods say what is wrong, not that they wait."""
    one = world(
        node("a"),
        group("g", 3),
        *members("g", 2),
        member("g-2", "g", schedulerName="other"),
    )

    one.run_to_fixed_point()

    assert placed(one) == {}
    text = (
        "gang default/g needs 3 members of one schedulerName; there were 2 for default-scheduler "
        "and 1 for other when this was written"
    )
    assert condition(one, "g-0") == ("SchedulingGated", text)


def test_the_last_member_lets_the_gang_start() -> None:
    """Members that came before wait without cost; with the last one all are bound."""
    one = world(node("a"), group("g", 3), *members("g", 2))
    one.run_to_fixed_point()

    one.load([member("g-2", "g")])
    one.run_to_fixed_point()

    assert len(placed(one)) == 3


def test_a_gang_whose_object_is_missing_waits_for_it() -> None:
    """The PodGroup may come after its pods."""
    one = world(node("a"), *members("g", 2))
    one.run_to_fixed_point()
    assert condition(one, "g-0")[1] == "PodGroup default/g does not exist"

    one.load([group("g", 2)])
    one.run_to_fixed_point()

    assert len(placed(one)) == 2


def test_annotations_alone_make_a_gang() -> None:
    """No PodGroup is needed; the settings are those of the first member that has legal ones."""
    said = {f"{GANG}name": "etl", f"{GANG}min-available": "3"}
    pods = [pod(f"e{index}", 1, annotations=said) for index in range(3)]
    one = world(node("a", cpu=2), *pods)
    one.run_to_fixed_point()
    assert placed(one) == {}

    one.load([node("b", cpu=2)])
    one.run_to_fixed_point()

    assert len(placed(one)) == 3


def test_a_waiting_gang_is_tried_again_when_there_is_room() -> None:
    """One event wakes the member that found no place, and with it the whole gang."""
    one = world(node("a", cpu=4), pod("old", 2, on="a"), group("g", 4), *members("g", 4))
    one.run_to_fixed_point()
    assert len(placed(one)) == 1

    one.cluster.delete(Pod, "old", "default", grace_period_s=0)
    one.run_to_fixed_point()

    assert len(placed(one)) == 4


def test_more_members_than_needed_start_as_far_as_there_is_room() -> None:
    """Two of four are needed, three fit: the fourth waits alone."""
    one = world(node("a", cpu=3), group("g", 2), *members("g", 4))

    one.run_to_fixed_point()

    assert len(placed(one)) == 3
    assert condition(one, "g-3")[1].startswith("0/1 nodes are available: 1 Insufficient cpu.")


def test_gangs_of_a_group_start_together() -> None:
    """The workers fit, their parameter server does not: nobody starts."""
    both = ("ps", "worker")
    objects = [group("ps", 1, both), group("worker", 3, both)]
    one = world(node("a", cpu=4), *objects, *members("worker", 3), member("ps-0", "ps", cpu=2))
    one.run_to_fixed_point()
    assert placed(one) == {}

    one.load([node("b", cpu=2)])
    one.run_to_fixed_point()

    assert len(placed(one)) == 4


def test_a_gang_group_waits_for_a_gang_that_is_not_there() -> None:
    """A group that names a missing gang says which one."""
    one = world(node("a"), group("ps", 1, ("ps", "worker")), member("ps-0", "ps"))

    one.run_to_fixed_point()

    assert condition(one, "ps-0") == ("SchedulingGated", "gang default/worker is not known")


def test_members_of_a_loose_gang_keep_their_places() -> None:
    """NonStrict: who has a place waits for the others, up to the waiting time."""
    one = world(
        node("a", cpu=2),
        group("g", 3, mode="NonStrict"),
        *members("g", 3),
        defaultTimeout="60s",
    )
    one.scheduler.step()
    assert placed(one) == {}
    assert one.state.pods.on_row[0].keys() == {"default/g-0", "default/g-1"}

    one.load([node("b", cpu=1)])
    one.run_to_fixed_point()

    assert len(placed(one)) == 3


def test_members_of_a_loose_gang_give_up_after_their_time() -> None:
    """What was kept for them is free again for others."""
    one = world(
        node("a", cpu=2),
        group("g", 3, mode="NonStrict"),
        *members("g", 3),
        defaultTimeout="60s",
    )
    one.scheduler.step()
    one.load([pod("other", 2, priority=5, preemptionPolicy="Never")])
    one.clock.advance_to(START_S + 61)
    one.scheduler.step()

    one.clock.advance_to(START_S + 72)
    one.scheduler.step()

    assert placed(one) == {"other": "a"}


@pytest.mark.parametrize(
    ("policy", "starts"),
    [("once-satisfied", True), ("waiting-and-running", True), ("only-waiting", False)],
)
def test_match_policies_say_whether_running_members_count(policy: str, *, starts: bool) -> None:
    """One of two members was lost; whether its replacement may start alone is a choice."""
    one = world(
        node("a", cpu=4), group("g", 2, match_policy=policy), *members("g", 2), defaultTimeout="9s"
    )
    one.run_to_fixed_point()
    assert len(placed(one)) == 2
    one.cluster.delete(Pod, "g-1", "default", grace_period_s=0)

    one.load([member("g-2", "g")])
    one.run_to_fixed_point()

    assert ("g-2" in placed(one)) is starts


def test_a_gang_that_has_gone_must_start_as_a_whole_again() -> None:
    """Once satisfied means: while a member is bound."""
    one = world(node("a", cpu=4), group("g", 2), *members("g", 2))
    one.run_to_fixed_point()
    for name in ("g-0", "g-1"):
        one.cluster.delete(Pod, name, "default", grace_period_s=0)

    one.load([member("g-2", "g")])
    one.run_to_fixed_point()

    assert placed(one) == {}


def test_a_deleted_representative_is_replaced() -> None:
    """The member in the queue goes away; enough are left, and one of them takes over."""
    one = world(node("a", cpu=2), group("g", 3), *members("g", 4, cpu=1))
    one.run_to_fixed_point()
    assert placed(one) == {}
    names = [q.pod.metadata.name for q in one.scheduler.queue.pods(QueueState.UNSCHEDULABLE)]
    assert len(names) == 1

    one.cluster.delete(Pod, names[0], "default", grace_period_s=0)
    one.load([node("b", cpu=2)])
    one.run_to_fixed_point()

    assert len(placed(one)) == 3


def test_a_gang_that_loses_members_goes_back_before_the_queue() -> None:
    """The gang fails, then becomes too small: it isn't tried any more, however much room comes."""
    one = world(node("a", cpu=1), group("g", 3), *members("g", 3))
    one.run_to_fixed_point()
    one.cluster.delete(Pod, "g-0", "default", grace_period_s=0)

    one.load([node("b", cpu=8)])
    one.run_to_fixed_point()

    assert placed(one) == {}
    assert one.scheduler.queue.counts()[QueueState.GATED] == 2


def test_a_member_behind_its_own_gate_does_not_count() -> None:
    """A gang is whole when the last scheduling gate of a needed member has gone."""
    gated = member("g-1", "g", schedulingGates=[{"name": "wait"}])
    one = world(node("a"), group("g", 2), member("g-0", "g"), gated)
    one.run_to_fixed_point()
    assert placed(one) == {}
    assert "1 with closed scheduling gates" in condition(one, "g-0")[1]

    one.cluster.patch(Pod, "g-1", "default", {"spec": {"schedulingGates": None}})
    one.run_to_fixed_point()

    assert len(placed(one)) == 2


def test_status_and_phase_follow_the_members() -> None:
    """Pending, then PreScheduling, Scheduled, Running, as members come, are bound and run."""
    one = world(node("a"), group("g", 2), member("g-0", "g"))
    one.scheduler.step()
    assert status(one).phase == "Pending"

    one.load([member("g-1", "g")])
    one.run_to_fixed_point()
    one.scheduler.step()
    assert (status(one).phase, status(one).scheduled) == ("Scheduled", 2)

    for name in ("g-0", "g-1"):
        one.cluster.patch(Pod, name, "default", {"status": {"phase": "Running"}}, "status")
    one.scheduler.step()
    assert (status(one).phase, status(one).running) == ("Running", 2)


def status(one: Embedded) -> Any:
    return one.cluster.get(PodGroup, "g", "default").status


def test_what_a_gang_says_wrongly_is_not_ignored_silently() -> None:
    """A PodGroup with a broken setting gets an event that names it."""
    one = world(node("a"), group("g", 1, mode="Loose"), member("g-0", "g"))

    one.scheduler.step()

    (note,) = [e.note for e in one.cluster.list(Event).items if e.reason.startswith("Invalid")]
    assert "mode: must be Strict or NonStrict, got 'Loose'" in note


def test_pods_without_a_gang_are_still_decided_in_runs() -> None:
    """The plugin has nothing to say about them."""
    pods = [pod(f"p{index}", 1) for index in range(20)]
    one = world(node("a", cpu=20), *pods)

    one.run_to_fixed_point()

    assert len(placed(one)) == 20


def test_who_only_follows_the_cluster_writes_nothing_about_gangs() -> None:
    """A standby takes events in without deciding; what there is to tell, it tells as a leader."""
    one = world(node("a"), group("g", 3), *members("g", 2))

    one.scheduler.step(limit=0)
    assert condition(one, "g-0") == ("", "")
    assert status(one).phase == ""

    one.scheduler.step()
    assert condition(one, "g-0")[0] == "SchedulingGated"
    assert status(one).phase == "Pending"


def test_a_member_that_was_replaced_starts_with_the_others() -> None:
    """A pod of the same name that was created since counts in place of the old one."""
    one = world(node("a"), group("g", 2), *members("g", 2))
    stale = one.cluster.get(Pod, "g-1", "default")
    one.scheduler.step(limit=0)
    one.cluster.delete(Pod, "g-1", "default", grace_period_s=0)
    one.load([member("g-1", "g")])

    one.run_to_fixed_point()

    assert stale.metadata.uid != one.cluster.get(Pod, "g-1", "default").metadata.uid
    assert len(placed(one)) == 2


def test_members_of_different_kinds_are_placed_together() -> None:
    """A gang of a large and several small members; the large one finds no node."""
    kinds = [*members("g", 3), member("big", "g", cpu=8)]
    one = world(node("a", cpu=4), group("g", 4), *kinds)
    one.run_to_fixed_point()
    assert placed(one) == {}

    one.load([node("b", cpu=8)])
    one.run_to_fixed_point()

    assert len(placed(one)) == 4
