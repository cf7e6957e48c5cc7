"""Workloads of Kubernetes 1.35: their gangs start completely or not at all."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.scheduler.test_gangs import condition, config, group, placed
from tests.worlds import configuration, embedded, made, node, pod

from koordinator.api.dynamic_resources import (
    TAINT_RULE_KINDS,
    DeviceTaintRule,
    DeviceTaintRuleV1Alpha3,
    DeviceTaintRuleV1Beta2,
)
from koordinator.api.kube_version import V1_35, V1_36, V1_37, KubeVersion
from koordinator.api.kubescheduler import NO_GATES, FeatureGates, KubeSchedulerConfiguration
from koordinator.api.kubescheduler.gates import GANG_SCHEDULING, GENERIC_WORKLOAD
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.api.pod_groups import SCHEDULING_KINDS, PodGroup, SchedulingWorkload
from koordinator.foundation.errors import InputError
from koordinator.scheduler.profile import WATCHED, build_profiles, watched_kinds
from koordinator.scheduler.snapshot import ResourceAxis
from koordinator.simulator import Embedded

ON = FeatureGates.parse(f"{GENERIC_WORKLOAD}=true,{GANG_SCHEDULING}=true", V1_35)
STOCK = configuration()
EITHER = pytest.mark.parametrize(
    "profile", [STOCK, config()], ids=["GangScheduling", "Coscheduling"]
)


def workload(name: str = "w", **least: int) -> KubeObject:
    """Return a Workload with a gang per keyword; 0 means the basic policy."""
    groups: list[dict[str, Any]] = [
        {"name": one, "policy": {"gang": {"minCount": count}} if count else {"basic": {}}}
        for one, count in least.items()
    ]
    spec = {"podGroups": groups}
    where = {"namespace": "default"}
    return made("Workload", name, "scheduling.k8s.io/v1alpha1", metadata=where, spec=spec)


def worker(name: str, of: str = "gang", *, replica: str = "", cpu: int = 1, **more: Any) -> Pod:
    ref = {"name": more.pop("workload", "w"), "podGroup": of}
    if replica:
        ref["podGroupReplicaKey"] = replica
    return pod(name, cpu, workloadRef=ref, **more)


def workers(count: int, of: str = "gang", **more: Any) -> list[Pod]:
    return [worker(f"{of}-{index}", of, **more) for index in range(count)]


def world(
    profile: KubeSchedulerConfiguration, *objects: KubeObject, gates: FeatureGates = ON
) -> Embedded:
    one = embedded(*objects, config=profile, gates=gates)
    one.run_to_fixed_point()
    one.scheduler.validate()
    return one


@EITHER
def test_a_gang_of_a_workload_starts_as_a_whole(profile: KubeSchedulerConfiguration) -> None:
    """Three of three fit: all are bound."""
    one = world(profile, node("n", 3), workload(gang=3), *workers(3))

    assert len(placed(one)) == 3


@EITHER
def test_gang_that_does_not_fit_reserves_nothing(profile: KubeSchedulerConfiguration) -> None:
    """Two of three would fit: none is bound, and a pod without gang uses the capacity."""
    one = world(profile, node("n", 2), workload(gang=3), *workers(3), pod("other", 2))

    assert placed(one) == {"other": "n"}


@EITHER
def test_members_are_gated_until_there_are_enough(
    profile: KubeSchedulerConfiguration,
) -> None:
    """Two of three exist and have the reason; the third starts all."""
    one = world(profile, node("n", 9), workload(gang=3), *workers(2))
    assert placed(one) == {}
    message = "gang default/w/gang needs 3 members; there were 2 when this was written"
    assert ("SchedulingGated", message) in {condition(one, f"gang-{i}") for i in range(2)}

    one.load([worker("third")])
    one.run_to_fixed_point()

    assert len(placed(one)) == 3


@EITHER
@pytest.mark.parametrize("policy", [0, 2])
def test_pods_wait_for_their_workload_whatever_its_policy(
    profile: KubeSchedulerConfiguration, policy: int
) -> None:
    """As in the original, no pod starts without the object, or without its group in it."""
    one = world(profile, node("n", 9), *workers(2))
    assert placed(one) == {}
    assert condition(one, "gang-0")[1] == "Workload default/w does not exist"

    one.load([workload(other=1)])
    one.run_to_fixed_point()
    assert placed(one) == {}
    one.cluster.delete(SchedulingWorkload, "w", "default")
    one.run_to_fixed_point()

    one.load([workload(gang=policy)])
    one.run_to_fixed_point()
    one.scheduler.validate()

    assert len(placed(one)) == 2


@EITHER
def test_pods_of_the_basic_policy_are_scheduled_individually(
    profile: KubeSchedulerConfiguration,
) -> None:
    """One of two pods fits: it is bound without gang annotations."""
    one = world(profile, node("n", 1), workload(gang=0), *workers(2))

    (name,) = placed(one)
    bound = one.cluster.get(Pod, name, "default")
    assert not [key for key in bound.metadata.annotations if "bind-gang" in key]


@EITHER
def test_each_replica_is_a_gang_of_its_own(profile: KubeSchedulerConfiguration) -> None:
    """One of two replicas fits: one starts completely, the other not at all."""
    replicas = [worker(f"{key}{i}", replica=key) for i in range(2) for key in "ab"]
    one = world(profile, node("n", 3), workload(gang=2), *replicas)

    assert len({name[0] for name in placed(one)}) == 1
    assert len(placed(one)) == 2


@EITHER
def test_groups_of_a_workload_do_not_wait_for_each_other(
    profile: KubeSchedulerConfiguration,
) -> None:
    """The driver starts although the workers do not fit."""
    one = world(
        profile, node("n", 2), workload(gang=2, driver=1), *workers(2, cpu=2), *workers(1, "driver")
    )

    assert placed(one) == {"driver-0": "n"}


@EITHER
def test_finished_members_do_not_count(profile: KubeSchedulerConfiguration) -> None:
    """One of two members has succeeded: a new one alone does not suffice, as in the original."""
    one = world(profile, node("n", 9), workload(gang=2), *workers(2))
    one.cluster.patch(Pod, "gang-0", "default", {"status": {"phase": "Succeeded"}}, "status")
    one.cluster.delete(Pod, "gang-1", "default", grace_period_s=0)

    one.load([worker("late")])
    one.run_to_fixed_point()
    assert "late" not in placed(one)

    one.load([worker("later")])
    one.run_to_fixed_point()
    assert {"late", "later"} <= placed(one).keys()


@EITHER
def test_new_member_joins_a_running_gang(profile: KubeSchedulerConfiguration) -> None:
    """The gang has its minimum: one more is placed immediately."""
    one = world(profile, node("n", 9), workload(gang=2), *workers(2))

    one.load([worker("more")])
    one.run_to_fixed_point()

    assert len(placed(one)) == 3


@EITHER
@pytest.mark.parametrize(("cpu", "bound"), [(3, 3), (2, 1)])
def test_partially_bound_gang_is_completed_or_waits(
    profile: KubeSchedulerConfiguration, cpu: int, bound: int
) -> None:
    """A scheduler was killed after the first of three binds: the next one binds both, or none."""
    half = worker("first", on="n")
    one = world(profile, node("n", cpu), workload(gang=3), half, *workers(2))

    assert len(placed(one)) == bound


@EITHER
def test_deleted_workload_leaves_no_state(profile: KubeSchedulerConfiguration) -> None:
    """Pending pods wait with the reason; no state is left after they are deleted."""
    one = world(profile, node("n", 1), workload(gang=2), *workers(2))

    one.cluster.delete(SchedulingWorkload, "w", "default")
    one.run_to_fixed_point()
    assert condition(one, "gang-0")[1] == "Workload default/w does not exist"
    for index in range(2):
        one.cluster.delete(Pod, f"gang-{index}", "default", grace_period_s=0)
    one.run_to_fixed_point()

    one.scheduler.validate()
    for active in one.scheduler.cycles["default-scheduler"].profile.gangs:
        assert not active.plugin.gangs.gangs


def test_workloads_are_ignored_with_the_gates_off() -> None:
    """As in kube-scheduler by default, pods are scheduled individually."""
    one = world(STOCK, node("n", 1), *workers(2), gates=NO_GATES)

    assert len(placed(one)) == 1


def test_workloads_are_not_watched_with_the_gates_off() -> None:
    """A scheduler with the original's permissions cannot list them, and need not."""
    rules = FeatureGates.parse("DRADeviceTaints=true,DRADeviceTaintRules=true", V1_35)
    none = FeatureGates.parse("", V1_35)
    taints, groups = set(TAINT_RULE_KINDS), set(SCHEDULING_KINDS) - {SchedulingWorkload}

    assert set(WATCHED) - set(watched_kinds(none)) == {SchedulingWorkload, *taints, *groups}
    assert set(WATCHED) - set(watched_kinds(ON)) == {*taints, *groups}
    of_1_35 = {SchedulingWorkload, *groups, *taints} - {DeviceTaintRuleV1Alpha3}
    assert set(WATCHED) - set(watched_kinds(rules)) == of_1_35


def test_taint_rules_are_read_in_the_version_of_the_release() -> None:
    """The gate is on by default from 1.37 on."""
    on = "DRADeviceTaints=true,DRADeviceTaintRules=true"
    read = {
        (level, gates): [
            kind
            for kind in watched_kinds(FeatureGates.parse(gates, level))
            if kind in TAINT_RULE_KINDS
        ]
        for level in (V1_35, V1_36, V1_37)
        for gates in ("", on)
    }
    assert [kinds for (_, gates), kinds in read.items() if gates] == [
        [DeviceTaintRuleV1Alpha3],
        [DeviceTaintRuleV1Beta2],
        [DeviceTaintRule],
    ]
    assert [kinds for (_, gates), kinds in read.items() if not gates] == [[], [], [DeviceTaintRule]]


@pytest.mark.parametrize("level", [KubeVersion(33), KubeVersion(34)])
def test_before_1_35_the_gate_of_taints_covers_their_rules(level: KubeVersion) -> None:
    """Kube-scheduler of those releases reads rules with the gate DRADeviceTaints."""
    kinds = {
        gates: [
            kind
            for kind in watched_kinds(FeatureGates.parse(gates, level))
            if kind in TAINT_RULE_KINDS
        ]
        for gates in ("", "DRADeviceTaints=true", "DRADeviceTaintRules=true")
    }
    assert kinds == {
        "": [],
        "DRADeviceTaints=true": [DeviceTaintRuleV1Alpha3],
        "DRADeviceTaintRules=true": [],
    }


def test_gate_without_its_dependency_is_refused() -> None:
    """Every component of Kubernetes refuses to start then."""
    with pytest.raises(
        InputError, match=r"depends on features that are disabled: \[GenericWorkload\]"
    ):
        FeatureGates.parse("GangScheduling=true", V1_35)


def test_profile_that_enables_the_plugin_needs_the_gate() -> None:
    """Disabling the plugin is accepted without it."""
    named = configuration(plugins={"permit": {"enabled": [{"name": "GangScheduling"}]}})
    without = configuration(plugins={"multiPoint": {"disabled": [{"name": "GangScheduling"}]}})

    with pytest.raises(InputError, match="disabled by its feature gate"):
        build_profiles(named, ResourceAxis())
    for gates in (ON, NO_GATES):
        (profile,) = build_profiles(without, ResourceAxis(), gates=gates).profiles
        assert not profile.gangs


def test_workload_precedes_gang_labels() -> None:
    """With Coscheduling on the Workload's gang counts, and the pod has a warning."""
    both = [worker(f"p{i}", labels={"pod-group.scheduling.sigs.k8s.io": "other"}) for i in range(2)]
    one = world(config(), node("n", 9), workload(gang=2), group("other", 5), *both)

    assert len(placed(one)) == 2
    assert one.cluster.get(PodGroup, "other", "default").status.scheduled == 0


def test_labels_make_no_gang_without_coscheduling() -> None:
    """GangScheduling alone reads Workloads only, as in the original."""
    alone = pod("p", 1, labels={"pod-group.scheduling.sigs.k8s.io": "other"})
    one = world(STOCK, node("n", 9), group("other", 5), alone)

    assert placed(one) == {"p": "n"}


def test_gang_name_with_a_slash_is_no_workload_gang() -> None:
    """A gang may have any name; it is a different gang."""
    annotations = {
        "gang.scheduling.koordinator.sh/name": "w/gang",
        "gang.scheduling.koordinator.sh/min-available": "1",
    }
    one = world(
        config(),
        node("n", 9),
        pod("stranger", 1, annotations=annotations),
        workload(gang=2),
        *workers(1),
    )

    assert placed(one) == {"stranger": "n"}


events = st.lists(
    st.one_of(
        st.tuples(st.just("pod"), st.sampled_from("ab"), st.sampled_from(["", "x"])),
        st.tuples(st.just("workload"), st.integers(0, 3), st.integers(1, 3)),
        st.tuples(st.just("no workload"), st.just(0), st.just(0)),
        st.tuples(st.just("node"), st.integers(1, 4), st.just(0)),
        st.tuples(st.just("delete"), st.integers(0, 30), st.just(0)),
        st.tuples(st.just("end"), st.integers(0, 30), st.just(0)),
    ),
    max_size=25,
)


@EITHER
@settings(max_examples=examples(25), deadline=None)
@given(events=events)
def test_a_gang_that_starts_has_its_least_number(
    profile: KubeSchedulerConfiguration, events: Sequence[tuple[str, Any, Any]]
) -> None:
    """Under churn, pods become bound only together with enough members of their gang.

    Without a Workload none is bound.
    """
    one = embedded(node("n", 2), config=profile, gates=ON)
    least: dict[str, int] = {}
    for number, event in enumerate(events):
        before = set(placed(one))
        _happen(one, number, least, event)
        one.scheduler.step()
        one.scheduler.validate()
        gangs: dict[tuple[str, str], set[str]] = defaultdict(set)
        for stored in one.cluster.list(Pod).items:
            ref = stored.spec.workload_ref
            if ref and stored.spec.node_name and stored.status.phase != "Succeeded":
                gangs[ref.pod_group, ref.pod_group_replica_key].add(stored.metadata.name)
        for (of, _), names in gangs.items():
            if names - before:
                assert of in least
                assert len(names) >= least[of]


def _happen(one: Embedded, number: int, least: dict[str, int], event: tuple[str, Any, Any]) -> None:
    pods = one.cluster.list(Pod).items
    match event:
        case "pod", of, replica:
            one.load([worker(f"p{number}", of, replica=replica)])
        case "workload", first, second if not one.cluster.list(SchedulingWorkload).items:
            least.update(a=first, b=second)
            one.load([workload(a=first, b=second)])
        case "no workload", _, _ if one.cluster.list(SchedulingWorkload).items:
            least.clear()
            one.cluster.delete(SchedulingWorkload, "w", "default")
        case "node", cpu, _:
            one.load([node(f"n{number}", cpu)])
        case "delete", index, _ if pods:
            one.cluster.delete(
                Pod, pods[index % len(pods)].metadata.name, "default", grace_period_s=0
            )
        case "end", index, _ if pods and pods[index % len(pods)].spec.node_name:
            name = pods[index % len(pods)].metadata.name
            one.cluster.patch(Pod, name, "default", {"status": {"phase": "Succeeded"}}, "status")
