"""Gangs in the whole scheduler: enough members get nodes, or none."""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.worlds import START_S, configuration, embedded, made, node, pod

from koordinator.api.event import Event
from koordinator.api.kubescheduler import FeatureGates, KubeSchedulerConfiguration
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.api.pod_groups import PodGroup
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
    """Return a PodGroup; ``groups`` are the gangs that must start together."""
    entries = {f"{GANG}{key.replace('_', '-')}": text for key, text in annotations.items()}
    if groups:
        entries[f"{GANG}groups"] = str([f"default/{one}" for one in groups]).replace("'", '"')
    return made(
        "PodGroup",
        name,
        "scheduling.sigs.k8s.io/v1alpha1",
        metadata={"namespace": "default", "annotations": entries},
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
    """All members get nodes in one step, and each records the number of pods bound together."""
    one = world(node("a", cpu=2), node("b", cpu=2), group("g", 4), *members("g", 4))

    outcomes = one.scheduler.step()

    assert len(placed(one)) == 4
    notes = [o.annotations for o in outcomes if isinstance(o, Bound)]
    assert {n["internal.scheduling.koordinator.sh/bind-gang-member-count"] for n in notes} == {"4"}
    assert {n["scheduling.koordinator.sh/bind-gang-group-id"] for n in notes} == {"default/g"}


def test_gang_that_does_not_fit_reserves_nothing() -> None:
    """Three of four would fit: none is bound, and others may use the capacity."""
    one = world(
        node("a", cpu=2), node("b", cpu=1), group("g", 4), *members("g", 4), pod("other", 2)
    )

    one.run_to_fixed_point()

    assert placed(one) == {"other": "a"}
    one.scheduler.validate()


def test_members_are_notified_about_their_gang() -> None:
    """The unplaced member has the reason; the others have a message that names it."""
    one = world(node("a", cpu=3), group("g", 4), *members("g", 4))

    one.scheduler.step()

    conditions = {name: condition(one, f"g-{name}") for name in range(4)}
    own = (
        "0/1 nodes are available: 1 Insufficient cpu. "
        'Gang "default/g" gets rejected due to pod is unschedulable'
    )
    others = (
        '0/1 nodes are available: GangGroup "default/g" gets rejected due to member Pod '
        '"default/g-3" is unschedulable with reason "0/1 nodes are available: 1 Insufficient '
        'cpu.", alreadyWaitForBound: 3.'
    )
    assert conditions[3] == ("Unschedulable", own)
    assert conditions[0] == ("Unschedulable", others)


def test_other_members_are_not_notified_with_the_gate_off() -> None:
    """Only the unplaced member has a message."""
    gates = FeatureGates.parse("GangPendingPodsConditionPatch=false")
    one = Embedded(config(), now_s=START_S, gates=gates)
    one.load([node("a", cpu=3), group("g", 4), *members("g", 4)])

    one.scheduler.step()

    conditions = [condition(one, f"g-{index}")[0] for index in range(4)]
    assert conditions == ["", "", "", "Unschedulable"]


def test_incomplete_gang_is_gated_with_a_message() -> None:
    """No attempt is made; condition and event have the number of missing members."""
    one = world(node("a"), group("g", 3), *members("g", 2))

    one.scheduler.step()

    assert one.scheduler.attempts == 0
    assert one.scheduler.queue.counts()[QueueState.GATED] == 2
    text = "gang default/g needs 3 members; there were 2 when this was written"
    assert condition(one, "g-1") == ("SchedulingGated", text)
    assert text in {event.note for event in one.cluster.list(Event).items}


def test_members_of_different_schedulers_are_reported() -> None:
    """No scheduler can start such a gang: its pods have this reason, not that they wait."""
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


def test_last_member_starts_the_gang() -> None:
    """Earlier members wait without attempts; with the last one all are bound."""
    one = world(node("a"), group("g", 3), *members("g", 2))
    one.run_to_fixed_point()

    one.load([member("g-2", "g")])
    one.run_to_fixed_point()

    assert len(placed(one)) == 3


def test_a_gang_whose_object_is_missing_waits_for_it() -> None:
    """The PodGroup may be created after its pods."""
    one = world(node("a"), *members("g", 2))
    one.run_to_fixed_point()
    assert condition(one, "g-0")[1] == "PodGroup default/g does not exist"

    one.load([group("g", 2)])
    one.run_to_fixed_point()

    assert len(placed(one)) == 2


def test_annotations_alone_make_a_gang() -> None:
    """No PodGroup is needed; the first member with valid settings decides."""
    annotations = {f"{GANG}name": "etl", f"{GANG}min-available": "3"}
    pods = [pod(f"e{index}", 1, annotations=annotations) for index in range(3)]
    one = world(node("a", cpu=2), *pods)
    one.run_to_fixed_point()
    assert placed(one) == {}

    one.load([node("b", cpu=2)])
    one.run_to_fixed_point()

    assert len(placed(one)) == 3


def test_waiting_gang_is_retried_when_capacity_is_freed() -> None:
    """One event requeues the unplaced member, and with it the whole gang."""
    one = world(node("a", cpu=4), pod("old", 2, on="a"), group("g", 4), *members("g", 4))
    one.run_to_fixed_point()
    assert len(placed(one)) == 1

    one.cluster.delete(Pod, "old", "default", grace_period_s=0)
    one.run_to_fixed_point()

    assert len(placed(one)) == 4


def test_surplus_members_start_as_far_as_they_fit() -> None:
    """Two of four are required, three fit: the fourth waits alone."""
    one = world(node("a", cpu=3), group("g", 2), *members("g", 4))

    one.run_to_fixed_point()

    assert len(placed(one)) == 3
    assert condition(one, "g-3")[1].startswith("0/1 nodes are available: 1 Insufficient cpu.")


def test_gangs_of_a_group_start_together() -> None:
    """The workers fit, their parameter server does not: no pod starts."""
    both = ("ps", "worker")
    objects = [group("ps", 1, both), group("worker", 3, both)]
    one = world(node("a", cpu=4), *objects, *members("worker", 3), member("ps-0", "ps", cpu=2))
    one.run_to_fixed_point()
    assert placed(one) == {}

    one.load([node("b", cpu=2)])
    one.run_to_fixed_point()

    assert len(placed(one)) == 4


def test_a_gang_group_waits_for_a_gang_that_is_not_there() -> None:
    """The message names the missing gang."""
    one = world(node("a"), group("ps", 1, ("ps", "worker")), member("ps-0", "ps"))

    one.run_to_fixed_point()

    assert condition(one, "ps-0") == ("SchedulingGated", "gang default/worker is not known")


def test_members_of_a_nonstrict_gang_keep_their_nodes() -> None:
    """Placed members wait for the others up to the waiting time."""
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


def test_members_of_a_nonstrict_gang_time_out() -> None:
    """The nodes of the members are then free for others."""
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
def test_match_policy_decides_whether_running_members_count(policy: str, *, starts: bool) -> None:
    """One of two members was lost; the policy decides whether its replacement may start alone."""
    one = world(
        node("a", cpu=4), group("g", 2, match_policy=policy), *members("g", 2), defaultTimeout="9s"
    )
    one.run_to_fixed_point()
    assert len(placed(one)) == 2
    one.cluster.delete(Pod, "g-1", "default", grace_period_s=0)

    one.load([member("g-2", "g")])
    one.run_to_fixed_point()

    assert ("g-2" in placed(one)) is starts


def test_gang_without_bound_members_must_start_completely() -> None:
    """OnceSatisfied holds only while a member is bound."""
    one = world(node("a", cpu=4), group("g", 2), *members("g", 2))
    one.run_to_fixed_point()
    for name in ("g-0", "g-1"):
        one.cluster.delete(Pod, name, "default", grace_period_s=0)

    one.load([member("g-2", "g")])
    one.run_to_fixed_point()

    assert placed(one) == {}


def test_a_deleted_representative_is_replaced() -> None:
    """The queued member is deleted; enough are left, and one of them represents the gang."""
    one = world(node("a", cpu=2), group("g", 3), *members("g", 4, cpu=1))
    one.run_to_fixed_point()
    assert placed(one) == {}
    names = [q.pod.metadata.name for q in one.scheduler.queue.pods(QueueState.UNSCHEDULABLE)]
    assert len(names) == 1

    one.cluster.delete(Pod, names[0], "default", grace_period_s=0)
    one.load([node("b", cpu=2)])
    one.run_to_fixed_point()

    assert len(placed(one)) == 3


def test_gang_that_becomes_incomplete_is_gated() -> None:
    """The gang fails, then becomes incomplete: it is not retried, whatever is freed."""
    one = world(node("a", cpu=1), group("g", 3), *members("g", 3))
    one.run_to_fixed_point()
    one.cluster.delete(Pod, "g-0", "default", grace_period_s=0)

    one.load([node("b", cpu=8)])
    one.run_to_fixed_point()

    assert placed(one) == {}
    assert one.scheduler.queue.counts()[QueueState.GATED] == 2


def test_gated_member_does_not_count() -> None:
    """A gang is complete when the last scheduling gate of a required member is removed."""
    gated = member("g-1", "g", schedulingGates=[{"name": "wait"}])
    one = world(node("a"), group("g", 2), member("g-0", "g"), gated)
    one.run_to_fixed_point()
    assert placed(one) == {}
    assert "1 with closed scheduling gates" in condition(one, "g-0")[1]

    one.cluster.patch(Pod, "g-1", "default", {"spec": {"schedulingGates": None}})
    one.run_to_fixed_point()

    assert len(placed(one)) == 2


def test_status_and_phase_follow_the_members() -> None:
    """The phase follows from Pending over PreScheduling and Scheduled to Running."""
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


def test_invalid_settings_of_a_gang_are_reported() -> None:
    """A PodGroup with an invalid setting has an event that names it."""
    one = world(node("a"), group("g", 1, mode="Loose"), member("g-0", "g"))

    one.scheduler.step()

    (note,) = [e.note for e in one.cluster.list(Event).items if e.reason.startswith("Invalid")]
    assert "mode: must be Strict or NonStrict, got 'Loose'" in note


def test_pods_without_a_gang_are_still_decided_in_runs() -> None:
    """The plugin does not affect them."""
    pods = [pod(f"p{index}", 1) for index in range(20)]
    one = world(node("a", cpu=20), *pods)

    one.run_to_fixed_point()

    assert len(placed(one)) == 20


def test_standby_writes_nothing_about_gangs() -> None:
    """A standby tracks events without deciding, and writes reports once it leads."""
    one = world(node("a"), group("g", 3), *members("g", 2))

    one.scheduler.step(limit=0)
    assert condition(one, "g-0") == ("", "")
    assert status(one).phase == ""

    one.scheduler.step()
    assert condition(one, "g-0")[0] == "SchedulingGated"
    assert status(one).phase == "Pending"


def test_recreated_member_starts_with_the_others() -> None:
    """A newer pod of the same name counts in place of the old one."""
    one = world(node("a"), group("g", 2), *members("g", 2))
    stale = one.cluster.get(Pod, "g-1", "default")
    one.scheduler.step(limit=0)
    one.cluster.delete(Pod, "g-1", "default", grace_period_s=0)
    one.load([member("g-1", "g")])

    one.run_to_fixed_point()

    assert stale.metadata.uid != one.cluster.get(Pod, "g-1", "default").metadata.uid
    assert len(placed(one)) == 2


def test_members_of_different_kinds_are_placed_together() -> None:
    """The gang has a large and several small members; the large one fits nowhere."""
    kinds = [*members("g", 3), member("big", "g", cpu=8)]
    one = world(node("a", cpu=4), group("g", 4), *kinds)
    one.run_to_fixed_point()
    assert placed(one) == {}

    one.load([node("b", cpu=8)])
    one.run_to_fixed_point()

    assert len(placed(one)) == 4


@pytest.mark.parametrize(
    ("free", "sizes", "least"), [((6, 2, 1), (5, 5, 3, 3), 2), ((4,), (5, 4, 1, 2, 3), 2)]
)
def test_small_members_start_a_gang_whose_first_members_are_large(
    free: Sequence[int], sizes: Sequence[int], least: int
) -> None:
    """The other kind of members is tried first once the first kind has taken too much."""
    pods = [member(f"g-{n}", "g", cpu) for n, cpu in enumerate(sizes)]
    one = world(*(node(f"n{n}", cpu=cpu) for n, cpu in enumerate(free)), group("g", least), *pods)

    one.run_to_fixed_point()

    assert len(placed(one)) >= least
    one.scheduler.validate()
