"""PodGroups of scheduling.k8s.io in Kubernetes 1.36 and 1.37."""

from typing import Any

import pytest
from tests.unit.scheduler.test_gangs import condition, config, placed
from tests.unit.scheduler.watches import run_until
from tests.worlds import configuration, embedded, made, node, pod

from koordinator.api.codec import decode, to_manifest
from koordinator.api.kube_version import KubeVersion
from koordinator.api.kubescheduler import FeatureGates, KubeSchedulerConfiguration
from koordinator.api.kubescheduler.gates import GANG_SCHEDULING, GENERIC_WORKLOAD
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.api.pod_groups import (
    SchedulingPodGroup,
    SchedulingPodGroupV1Alpha2,
    SchedulingPodGroupV1Alpha3,
    SchedulingWorkload,
)
from koordinator.domain.gangs import GangDefaults, gang_summaries
from koordinator.scheduler.features.explanations.explainer import explain
from koordinator.scheduler.profile import watched_kinds
from koordinator.simulator import Embedded

VERSIONS = {"1.36": "scheduling.k8s.io/v1alpha2", "1.37": "scheduling.k8s.io/v1beta1"}
STOCK = configuration()
PROFILES = [STOCK, config()]
EITHER = pytest.mark.parametrize("profile", PROFILES, ids=["GangScheduling", "Coscheduling"])
RELEASES = pytest.mark.parametrize("release", VERSIONS)


def gates(release: str) -> FeatureGates:
    names = [GENERIC_WORKLOAD, *([GANG_SCHEDULING] if release < "1.37" else [])]
    text = ",".join(f"{name}=true" for name in names)
    return FeatureGates.parse(text, KubeVersion.parse(release))


def pod_group(
    name: str = "train", least: int = 0, release: str = "1.37", **spec: Any
) -> KubeObject:
    """Return a PodGroup with a gang of ``count``; 0 means the basic policy."""
    policy = {"gang": {"minCount": least}} if least else {"basic": {}}
    return made(
        "PodGroup",
        name,
        VERSIONS.get(release, release),
        metadata={"namespace": "default"},
        spec={"schedulingPolicy": policy, **spec},
    )


def member(name: str, group: str = "train", cpu: int = 1, **more: Any) -> Pod:
    return pod(name, cpu, schedulingGroup={"podGroupName": group}, **more)


def members(count: int, **more: Any) -> list[Pod]:
    return [member(f"m{index}", **more) for index in range(count)]


def world(
    *objects: KubeObject,
    profile: KubeSchedulerConfiguration = STOCK,
    release: str = "1.37",
    **options: Any,
) -> Embedded:
    one = embedded(*objects, config=profile, gates=gates(release), **options)
    one.run_to_fixed_point()
    one.scheduler.validate()
    return one


@EITHER
@RELEASES
def test_a_gang_starts_as_a_whole_or_not_at_all(
    profile: KubeSchedulerConfiguration, release: str
) -> None:
    """Three members need 3 CPUs: on 3 all are bound, on 2 none, and others may use them."""
    group = pod_group(least=3, release=release)
    roomy = world(node("n", 3), group, *members(3), profile=profile, release=release)
    tight = world(
        node("n", 2), group, *members(3), pod("other", 2), profile=profile, release=release
    )

    assert len(placed(roomy)) == 3
    assert placed(tight) == {"other": "n"}


@EITHER
def test_members_wait_for_their_group_and_for_each_other(
    profile: KubeSchedulerConfiguration,
) -> None:
    """The object is created last; the condition has what is missing."""
    one = world(node("n", 3), *members(1), profile=profile)
    assert condition(one, "m0")[1] == ("PodGroup default/train of scheduling.k8s.io does not exist")
    one.load([pod_group(least=2)])
    one.run_to_fixed_point()
    assert condition(one, "m0")[1] == (
        "gang default/podGroup/train needs 2 members; there were 1 when this was written"
    )
    one.load([member("m1")])
    one.run_to_fixed_point()
    assert len(placed(one)) == 2


@EITHER
def test_pods_of_the_basic_policy_are_scheduled_individually(
    profile: KubeSchedulerConfiguration,
) -> None:
    """Two of three fit and are bound."""
    one = world(node("n", 2), pod_group(), *members(3), profile=profile)
    assert len(placed(one)) == 2


@EITHER
def test_smaller_minimum_starts_a_waiting_gang(profile: KubeSchedulerConfiguration) -> None:
    """``minCount`` may change from 1.37 on."""
    one = world(node("n", 2), pod_group(least=3), *members(3), profile=profile)
    assert not placed(one)

    one.cluster.overwrite(pod_group(least=2))
    run_until(one)
    assert len(placed(one)) == 2


def test_label_names_another_kind_of_group() -> None:
    """The group of the spec counts, and the pod has a warning."""
    other = made(
        "PodGroup",
        "train",
        "scheduling.sigs.k8s.io/v1alpha1",
        metadata={"namespace": "default"},
        spec={"minMember": 5},
    )
    labels = {"pod-group.scheduling.sigs.k8s.io": "train"}
    both = member("m0", labels=labels)
    one = world(node("n", 9), other, pod_group(least=1), both, profile=config())

    assert placed(one) == {"m0": "n"}


def test_network_topology_and_other_annotations_count() -> None:
    """Two PodGroups that name each other start together."""
    ids = ["default/podGroup/a", "default/podGroup/b"]
    groups = []
    for name in "ab":
        manifest = to_manifest(pod_group(name, 1))
        manifest["metadata"]["annotations"] = {
            "gang.scheduling.koordinator.sh/groups": f'["{ids[0]}", "{ids[1]}"]'
        }
        groups.append(decode(manifest, SchedulingPodGroup))
    one = world(node("n", 9), *groups, member("m0", "a"), profile=config())
    assert not placed(one)

    one.load([member("m1", "b")])
    one.run_to_fixed_point()
    assert len(placed(one)) == 2


@pytest.mark.parametrize(
    ("release", "kinds"),
    [
        ("1.35", {SchedulingWorkload}),
        ("1.36", {SchedulingPodGroupV1Alpha2}),
        ("1.37", {SchedulingPodGroup}),
    ],
)
def test_each_release_has_its_own_kinds(release: str, kinds: set[type[KubeObject]]) -> None:
    """Other kinds are not watched: the API server does not have them."""
    known = {
        SchedulingWorkload,
        SchedulingPodGroup,
        SchedulingPodGroupV1Alpha2,
        SchedulingPodGroupV1Alpha3,
    }
    assert known.intersection(watched_kinds(gates(release))) == kinds


@pytest.mark.parametrize(("field", "release"), [("group", "1.35"), ("workload", "1.37")])
def test_fields_of_other_releases_are_ignored(field: str, release: str) -> None:
    """The API server of that release drops them, so the pod is scheduled individually."""
    ref: Any = {"workloadRef": {"name": "w", "podGroup": "g"}} if field == "workload" else {}
    alone = pod("m0", 1, **ref) if ref else member("m0")
    one = world(node("n", 3), alone, release=release)

    assert placed(one) == {"m0": "n"}


def test_the_summary_shows_the_group() -> None:
    """``koord gang list`` and ``show`` have it."""
    objects = [pod_group(least=2), *members(1)]
    (summary,) = gang_summaries(objects, GangDefaults())

    assert (summary.gang, summary.min_member, summary.present) == (
        "default/podGroup/train",
        2,
        1,
    )


def test_disruption_modes_of_both_releases_are_read() -> None:
    """The mode is a string in v1alpha2, and a union from 1.37 on."""
    decoded = [
        pod_group(release="1.36", disruptionMode="PodGroup"),
        pod_group(release="1.36", disruptionMode="Pod"),
        pod_group(disruptionMode={"all": {}}),
        pod_group(disruptionMode={"single": {}}),
        pod_group(),
    ]
    modes = [
        one.spec.is_disrupted_as_whole for one in decoded if isinstance(one, SchedulingPodGroup)
    ]
    assert modes == [True, False, True, False, False]


@pytest.mark.parametrize(("release", "setting"), [("1.36", "a new PodGroup"), ("1.37", "PodGroup")])
def test_smaller_minimum_is_offered_as_the_api_server_takes_it(release: str, setting: str) -> None:
    """Kubernetes 1.36 refuses to change it."""
    one = world(node("n", 2), pod_group("train", 3, release), *members(3), release=release)

    explanation = explain(one.scheduler.handle, "default/m0")

    smaller = [each.text for each in explanation.remedies if each.kind == "gang"]
    assert smaller == [
        f"set minCount of {setting} default/train to 2: that many members find a place"
    ]
