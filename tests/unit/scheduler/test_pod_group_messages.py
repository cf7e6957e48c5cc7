"""Messages for members and PodGroups of scheduling.k8s.io."""

from typing import Any

import pytest
from tests.unit.scheduler.test_gangs import condition, config, placed
from tests.unit.scheduler.test_scheduling_pod_groups import (
    EITHER,
    RELEASES,
    member,
    pod_group,
    world,
)
from tests.unit.scheduler.watches import run_until
from tests.worlds import embedded, node, pod

from koordinator.api.codec import decode, to_manifest
from koordinator.api.event import Event
from koordinator.api.kube_version import KubeVersion
from koordinator.api.kubescheduler import FeatureGates, KubeSchedulerConfiguration
from koordinator.api.pod import Pod
from koordinator.api.pod_groups import SchedulingPodGroup, SchedulingPodGroupV1Alpha2
from koordinator.simulator import Embedded

SHORT = "minCount (2) cannot be satisfied: 1 scheduled, 0 remaining"
NONE = "pod group preemption: No preemption victims found for incoming preemptor"
NO_ROOM = "0/1 nodes are available: 1 Insufficient cpu."
BAD = "pod group is unschedulable"


def condition_of_group(
    one: Embedded, kind: type[SchedulingPodGroup] = SchedulingPodGroup
) -> tuple[str, str, str, str]:
    (condition,) = one.cluster.get(kind, "train", "default").status.conditions
    return condition.type, condition.status, condition.reason, condition.message


def pair(cpu: int = 3, **more: Any) -> list[Pod]:
    return [member(name, cpu=cpu, **more) for name in "ab"]


@EITHER
def test_message_of_a_failed_gang_in_1_37(profile: KubeSchedulerConfiguration) -> None:
    """One node of 4 CPUs, two pods of 3, both required: the text of kube-scheduler 1.37.2."""
    one = world(node("n", 4), pod_group(least=2), *pair(), profile=profile)

    assert condition(one, "a") == ("Unschedulable", f"{BAD}, {SHORT}, {NONE}")
    assert condition(one, "b") == ("Unschedulable", NO_ROOM)
    assert condition_of_group(one) == (
        "PodGroupInitiallyScheduled",
        "False",
        "Unschedulable",
        f"{SHORT}, {NONE}",
    )


@EITHER
def test_message_of_a_member_that_was_not_tried(profile: KubeSchedulerConfiguration) -> None:
    """The second of three members fails, so the third is not tried: as in kube-scheduler 1.37.2."""
    trio = [member(name, cpu=3) for name in "abc"]
    one = world(node("n", 4), pod_group(least=3), *trio, profile=profile)

    text = "minCount (3) cannot be satisfied: 1 scheduled, 1 remaining"
    assert [condition(one, name)[1] for name in "abc"] == [
        f"{BAD}, {text}, {NONE}",
        NO_ROOM,
        text,
    ]


def test_message_of_a_failed_gang_in_1_36() -> None:
    """The text is that of kube-scheduler 1.36.3 with preemption of whole groups."""
    names = "GenericWorkload=true,GangScheduling=true,WorkloadAwarePreemption=true"
    one = embedded(
        node("n", 4),
        pod_group(least=2, release="1.36"),
        *pair(),
        gates=FeatureGates.parse(names, KubeVersion(36)),
    )
    one.run_to_fixed_point()

    assert condition(one, "a")[1] == (
        f"{BAD}, waiting for minCount pods from a gang to be scheduled, one or more plugins asked "
        "to wait and no plugin rejected pod"
    )
    assert condition(one, "b")[1] == (
        f"{NO_ROOM} no new claims to deallocate, preemption: not eligible due to workload aware "
        "preemption enabled"
    )
    assert condition_of_group(one, SchedulingPodGroupV1Alpha2)[:3] == (
        "PodGroupScheduled",
        "False",
        "Unschedulable",
    )


@EITHER
def test_surplus_members_are_tried_until_too_many_fail(
    profile: KubeSchedulerConfiguration,
) -> None:
    """One of five pods fits, three are required: three fail themselves, the last is not tried."""
    names = "abcde"
    members = [member(name, cpu=3) for name in names]
    one = world(node("n", 4), pod_group(least=3), *members, profile=profile)
    text = "minCount (3) cannot be satisfied: 1 scheduled, 1 remaining"

    assert [condition(one, name)[1] for name in names] == [
        f"{BAD}, {text}, {NONE}",
        *[NO_ROOM] * 3,
        text,
    ]


@EITHER
@RELEASES
def test_condition_of_a_scheduled_group_stays_true(
    profile: KubeSchedulerConfiguration, release: str
) -> None:
    """A later member that does not fit changes nothing."""
    kind = SchedulingPodGroupV1Alpha2 if release == "1.36" else SchedulingPodGroup
    one = world(
        node("n", 6), pod_group(least=2, release=release), *pair(), profile=profile, release=release
    )
    assert condition_of_group(one, kind)[1:] == ("True", "Scheduled", "")

    one.load([member("c", cpu=3)])
    run_until(one)
    assert len(placed(one)) == 2
    assert condition_of_group(one, kind)[1:] == ("True", "Scheduled", "")


def test_surplus_member_is_rejected_for_its_own_reason() -> None:
    """There are three members, two are required, two fit."""
    members = [member(name, cpu=3) for name in "abc"]
    one = world(node("n", 4), node("m", 4), pod_group(least=2), *members)

    assert sorted(placed(one)) == ["a", "b"]
    assert condition(one, "c")[1].startswith("0/2 nodes are available: 2 Insufficient cpu.")


@EITHER
def test_condition_turns_true_after_a_failure(
    profile: KubeSchedulerConfiguration,
) -> None:
    """The condition turns True when enough members have nodes."""
    one = world(node("n", 4), pod_group(least=2), *pair(), profile=profile)
    assert condition_of_group(one)[1] == "False"

    one.load([node("m", 4)])
    run_until(one)
    assert len(placed(one)) == 2
    assert condition_of_group(one)[1:] == ("True", "Scheduled", "")


def test_members_of_other_priority_than_their_group_are_not_placed() -> None:
    """The group's priority is that of its spec, 0 without one."""
    text = (
        "all pods in a single pod group should have the same priority as the pod group's priority, "
        "got 5 and 0"
    )
    one = world(node("n", 9), pod_group(least=2), *pair(priority=5))

    assert not placed(one)
    assert {condition(one, name) for name in "ab"} == {("SchedulerError", text)}
    assert condition_of_group(one)[1:] == ("False", "SchedulerError", text)

    one.cluster.overwrite(pod_group(least=2, priority=5))
    run_until(one, 100)
    assert len(placed(one)) == 2


@pytest.mark.parametrize("policy", ["Never", "PreemptLowerPriority"])
def test_members_need_one_preemption_policy(policy: str) -> None:
    """A member without a policy may preempt."""
    members = [member("a"), member("b", priority=0, preemptionPolicy=policy)]
    one = world(node("n", 9), pod_group(least=2), *members)

    assert len(placed(one)) == (0 if policy == "Never" else 2)


def test_message_has_the_number_of_victims() -> None:
    """Two pods of lower priority block; both are evicted for the group."""
    low = [pod(name, 3, on=on, priority=1) for name, on in (("x", "n"), ("y", "m"))]
    nodes = [node("n", 4), node("m", 4)]
    one = world(*nodes, *low, pod_group(least=2, priority=9), *pair(priority=9))
    uid = one.cluster.get(SchedulingPodGroup, "train", "default").metadata.uid
    prefix = "pod group preemption: found a placement for podgroup, preempting 2 victims"

    notes = {
        e.regarding.name: e.note for e in one.cluster.list(Event).items if e.reason == "Preempted"
    }
    assert notes == dict.fromkeys("xy", f"Preempted by podgroup {uid} on node cluster")
    assert condition_of_group(one)[1:] in {
        ("True", "Scheduled", ""),
        (
            "False",
            "Unschedulable",
            f"minCount (2) cannot be satisfied: 0 scheduled, 1 remaining, {prefix}",
        ),
    }
    run_until(one, 60)
    assert {name: placed(one).get(name) is not None for name in "ab"} == dict.fromkeys("ab", True)


def test_message_of_a_gang_that_may_not_preempt() -> None:
    """The members have ``preemptionPolicy: Never``."""
    low = pod("x", 3, on="n", priority=1)
    members = pair(priority=9, preemptionPolicy="Never")
    one = world(node("n", 4), low, pod_group(least=2, priority=9), *members)

    assert condition_of_group(one)[3] == (
        "minCount (2) cannot be satisfied: 0 scheduled, 1 remaining, "
        "pod group preemption: not eligible due to preemptionPolicy=Never."
    )


def test_message_has_the_members_that_preemption_could_serve() -> None:
    """Without the pod of lower priority one of two fits."""
    low = pod("x", 3, on="n", priority=1)
    one = world(node("n", 4), low, pod_group(least=2, priority=9), *pair(priority=9))

    assert condition_of_group(one)[3] == (
        f"minCount (2) cannot be satisfied: 0 scheduled, 1 remaining, pod group preemption: {SHORT}"
    )


def test_own_status_update_does_not_requeue_the_gang() -> None:
    """A PodGroup with a changed status only is the same gang."""
    one = world(node("n", 4), pod_group(least=2), *pair(), profile=config())
    before = [one.cluster.get(Pod, name, "default") for name in "ab"]
    stored = one.cluster.get(SchedulingPodGroup, "train", "default")
    manifest = to_manifest(stored)
    manifest["metadata"]["labels"] = {"seen": "yes"}
    one.cluster.overwrite(decode(manifest, SchedulingPodGroup))
    run_until(one, 5)

    assert [one.cluster.get(Pod, name, "default") for name in "ab"] == before


@pytest.mark.parametrize(
    ("mode", "least", "victims"),
    [({"all": {}}, 1, 2), ({"all": {}}, 2, 2), ({"single": {}}, 2, 1), (None, 2, 1)],
)
@EITHER
def test_group_is_a_victim_by_its_disruption_mode(
    profile: KubeSchedulerConfiguration, mode: Any, least: int, victims: int
) -> None:
    """Two members are on two nodes, and a pod needs one of the nodes."""
    spec = {} if mode is None else {"disruptionMode": mode}
    group = pod_group(least=least, priority=1, **spec)
    members = [member(name, cpu=3, on=on, priority=1) for name, on in (("a", "n"), ("b", "m"))]
    nodes = [node("n", 4), node("m", 4)]
    one = world(*nodes, group, *members, pod("high", 3, priority=9), profile=profile)
    run_until(one, 60)

    assert "high" in placed(one)
    assert len({"a", "b"} - placed(one).keys()) == victims
