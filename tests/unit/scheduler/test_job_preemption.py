"""Preemption for whole jobs in the whole scheduler: nodes for all members, or no evictions."""

from typing import Any

import numpy as np
import pytest
from tests.keywords import as_keywords
from tests.unit.domain.quota.quotas import PREFIX
from tests.unit.scheduler.plugins.test_elastic_quota import team
from tests.unit.scheduler.test_gangs import condition, group, member, members, placed
from tests.worlds import budget, configuration, device, embedded, gpu_pod, made, node, pod

from koordinator.api.event import Event
from koordinator.api.kubescheduler import FeatureGates
from koordinator.api.pod import Pod
from koordinator.scheduler.cycle.job_headroom import free_headroom
from koordinator.scheduler.loop import Evicted
from koordinator.simulator import Embedded


def config_of(*more: str, jobs: bool) -> Any:
    """Return kube-scheduler's profile with Coscheduling, with or without job preemption."""
    only = {"disabled": [{"name": "*"}], "enabled": [{"name": "Coscheduling"}]}
    return configuration(
        plugins={
            "multiPoint": {"enabled": [{"name": name} for name in (*more, "Coscheduling")]},
            "queueSort": only,
            **({"postFilter": only} if jobs else {}),
        },
        pluginConfig=[{"name": "Coscheduling", "args": {"enablePreemption": jobs}}],
    )


STOCK, JOBS = config_of(jobs=False), config_of(jobs=True)
QUOTAS = config_of("ElasticQuota", jobs=False)
BOTH = pytest.mark.parametrize("config", [STOCK, JOBS], ids=["off", "on"])
HIGH = 1000


def world(*objects: Any, config: Any = JOBS) -> Embedded:
    return embedded(*objects, config=config)


def settled(one: Embedded) -> list[str]:
    """Run until nothing changes; return the victims."""
    outcomes = one.run_to_fixed_point()
    one.scheduler.validate()
    return sorted(o.pod.partition("/")[2] for o in outcomes if isinstance(o, Evicted))


def full(count: int, cpu: int = 4, **more: Any) -> list[Any]:
    """Return nodes that are each full with one pod."""
    return [
        one
        for index in range(count)
        for one in (node(f"n{index}", cpu=cpu), pod(f"low-{index}", cpu, on=f"n{index}", **more))
    ]


@BOTH
def test_preemption_serves_a_whole_gang(config: Any) -> None:
    """Exactly the blocking pods are evicted, on several nodes, and all members start."""
    one = world(*full(4), group("g", 3), *members("g", 3, 4, priority=HIGH), config=config)

    assert len(settled(one)) == 3
    assert {name for name in placed(one) if name.startswith("g-")} == {"g-0", "g-1", "g-2"}


@BOTH
def test_no_eviction_if_the_gang_would_not_fit(config: Any) -> None:
    """Two of three members could be served: no pod is evicted for that."""
    one = world(*full(2), group("g", 3), *members("g", 3, 4, priority=HIGH), config=config)

    assert settled(one) == []
    assert set(placed(one)) == {"low-0", "low-1"}
    message = condition(one, "g-0")[1]
    assert "3 members do not fit even without all pods of lower priority" in message


@BOTH
@pytest.mark.parametrize(("devices", "victims"), [(3, []), (4, ["low-0"])])
def test_no_eviction_if_devices_serve_only_some_claims(
    config: Any, devices: int, victims: list[str]
) -> None:
    """The claims of all members count: two of 2 devices each on a node with 3 or 4 of them."""
    kind = "resource.k8s.io/v1"
    offered = made(
        "ResourceSlice",
        "n0",
        kind,
        spec={
            "driver": "gpu.example.com",
            "nodeName": "n0",
            "pool": {"name": "n0", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"d{index}"} for index in range(devices)],
        },
    )
    exactly = {"deviceClassName": "gpu", "count": 2}
    claims = [
        made(
            "ResourceClaim",
            f"c-{index}",
            kind,
            metadata={"namespace": "default"},
            spec={"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
        )
        for index in range(2)
    ]
    gang = [
        member(f"g-{index}", "g", 2, priority=HIGH, resourceClaims=[used])
        for index in range(2)
        for used in [{"name": "d", "resourceClaimName": f"c-{index}"}]
    ]
    classes = made("DeviceClass", "gpu", kind, spec={})
    one = world(*full(1), offered, classes, *claims, group("g", 2), *gang, config=config)

    assert settled(one) == victims


@BOTH
def test_pods_of_equal_priority_are_no_victims(config: Any) -> None:
    """Victims are less important than every member."""
    one = world(
        *full(2, priority=5),
        group("g", 2),
        member("g-0", "g", 4, priority=HIGH),
        member("g-1", "g", 4, priority=5),
        config=config,
    )

    assert settled(one) == []


@BOTH
def test_gang_with_a_never_preempting_member_evicts_no_pods(config: Any) -> None:
    """``preemptionPolicy.

    Never`` of one member applies to the job, and all members have the reason.
    """
    one = world(
        *full(2),
        group("g", 2),
        member("g-0", "g", 4, priority=HIGH),
        member("g-1", "g", 4, priority=HIGH, preemptionPolicy="Never"),
        config=config,
    )

    assert settled(one) == []
    for name in ("g-0", "g-1"):
        assert "not eligible due to preemptionPolicy=Never." in condition(one, name)[1]


@pytest.mark.parametrize(
    "label",
    [
        {"scheduling.koordinator.sh/disable-preemptible": "true"},
        {"quota.scheduling.koordinator.sh/preemptible": "false"},
    ],
    ids=["never", "needs its minimum"],
)
def test_protected_pods_are_no_victims(label: dict[str, str]) -> None:
    """A label protects a pod, whatever its priority."""
    one = world(
        *full(2),
        node("n2", cpu=4),
        pod("kept", 4, on="n2", labels=label),
        group("g", 3),
        *members("g", 3, 4, priority=HIGH),
    )

    assert settled(one) == []


def test_gang_is_evicted_as_a_whole() -> None:
    """Evicting one worker costs the job, so no member is left running."""
    one = world(
        node("a", cpu=4),
        node("b", cpu=4),
        group("old", 2),
        member("old-0", "old", 4, on="a"),
        member("old-1", "old", 4, on="b"),
        pod("important", 4, priority=HIGH),
    )

    assert settled(one) == ["old-0", "old-1"]
    assert "important" in placed(one)


def test_gang_costs_more_than_single_pods() -> None:
    """Three pods are evicted instead of one member of a gang of four."""
    one = world(
        node("a", cpu=3),
        *(pod(f"single-{i}", 1, on="a") for i in range(3)),
        *(node(f"n{i}", cpu=3) for i in range(4)),
        group("old", 4),
        *(member(f"old-{i}", "old", 3, on=f"n{i}") for i in range(4)),
        pod("important", 3, priority=HIGH),
    )

    assert settled(one) == ["single-0", "single-1", "single-2"]


def test_surplus_members_are_evicted_alone() -> None:
    """A gang with more members than it needs loses only those, and keeps running."""
    one = world(
        *(node(f"n{i}", cpu=4) for i in range(4)),
        group("old", 2),
        *(member(f"old-{i}", "old", 4, on=f"n{i}") for i in range(4)),
        group("g", 2),
        *members("g", 2, 4, priority=HIGH),
    )

    assert len(settled(one)) == 2
    assert len([name for name in placed(one) if name.startswith("old")]) == 2


def test_surplus_is_not_used_twice() -> None:
    """One of three members may be evicted alone; two pods together evict the whole gang."""
    nodes = [node(f"n{i}", cpu=4) for i in range(3)]
    gang = [group("low", 2), *(member(f"low-{i}", "low", 4, on=f"n{i}") for i in range(3))]
    one = world(*nodes, *gang)
    one.load(pod(f"high-{i}", 4, priority=HIGH) for i in range(2))

    assert settled(one) == ["low-0", "low-1", "low-2"]


def test_protected_gang_loses_only_its_surplus() -> None:
    """One member is too important, so the job is not broken."""
    one = world(
        *(node(f"n{i}", cpu=4) for i in range(3)),
        group("old", 2),
        *(member(f"old-{i}", "old", 4, on=f"n{i}") for i in range(2)),
        member("old-2", "old", 4, on="n2", priority=HIGH),
        group("g", 2),
        *members("g", 2, 4, priority=HIGH),
    )

    assert settled(one) == []


def test_budgets_are_respected_where_possible() -> None:
    """The more expensive but uncovered pod is evicted; without another way, the covered one."""
    nodes = [
        node("a", cpu=4),
        pod("kept", 4, on="a", labels={"app": "kept"}),
        node("b", cpu=4),
        pod("dear", 4, on="b", priority=500),
    ]
    one = world(*nodes, budget("keep", 0, app="kept"), *gang("g", 1))
    assert settled(one) == ["dear"]

    two = world(*nodes, budget("keep", 0, app="kept"), *gang("g", 2))
    assert settled(two) == ["dear", "kept"]


def gang(name: str, size: int, cpu: int = 4, priority: int = HIGH) -> list[Any]:
    return [group(name, size), *members(name, size, cpu, priority=priority)]


def test_members_of_several_shapes_share_nodes() -> None:
    """The amounts of one member count for the next."""
    one = world(
        *full(2, cpu=10),
        group("g", 4),
        member("g-0", "g", 6, priority=HIGH),
        member("g-1", "g", 6, priority=HIGH),
        member("g-2", "g", 4, priority=HIGH),
        member("g-3", "g", 4, priority=HIGH),
    )

    assert settled(one) == ["low-0", "low-1"]
    assert sum(name.startswith("g-") for name in placed(one)) == 4


def test_free_capacity_is_used_first() -> None:
    """Only the shortfall is taken from others."""
    one = world(*full(3), node("free", cpu=8), *gang("g", 3))

    assert len(settled(one)) == 1
    assert sorted(placed(one)[f"g-{i}"] for i in range(3)).count("free") == 2


def test_elastic_gang_gets_at_least_its_minimum() -> None:
    """All five never fit; the required two do."""
    one = world(*full(2), group("g", 2), *members("g", 5, 4, priority=HIGH))

    assert settled(one) == ["low-0", "low-1"]
    assert sum(name.startswith("g-") for name in placed(one)) == 2


def test_victims_and_members_are_notified() -> None:
    """Victims have the reason and the job; members have the victims and their nominated nodes."""
    one = world(*full(2), *gang("g", 2))
    one.scheduler.step()

    events = {
        e.regarding.name: e.note for e in one.cluster.list(Event).items if e.reason == "Preempted"
    }
    assert set(events) == {"low-0", "low-1"}
    assert all(note.endswith("for gang group default/g") for note in events.values())
    text = "preemption: default/low-0, default/low-1 evicted for 2 members of the gang"
    for name in ("g-0", "g-1"):
        assert text in condition(one, name)[1]
        node_name = one.cluster.get(Pod, name, "default").status.nominated_node_name
        assert f"it is nominated to node {node_name}" in condition(one, name)[1]


def test_specific_gpus_are_freed() -> None:
    """By amounts the cheaper pod would suffice, but only one of them blocks."""
    one = world(
        node(
            "n",
            cpu=64,
            **as_keywords({"koordinator.sh/gpu-core": 200, "koordinator.sh/gpu-memory-ratio": 200}),
        ),
        device("n", gpus=2),
        gpu_pod("half", on="n", minors=[0], gpu_core=50, gpu_memory_ratio=50),
        *(
            gpu_pod(f"part-{i}", on="n", minors=[1], gpu_core=50, gpu_memory_ratio=50)
            for i in range(2)
        ),
        config=config_of("DeviceShare", jobs=True),
    )
    requests = {"koordinator.sh/gpu-core": 100, "koordinator.sh/gpu-memory-ratio": 100}
    one.load([group("g", 1), member("g-0", "g", 1, priority=HIGH, requests=requests)])

    assert settled(one) == ["half"]


def test_gang_with_a_full_quota_evicts_from_its_own_quota() -> None:
    """Others would free a node, but not the quota; one of the quota frees both."""
    label = {PREFIX + "name": "team"}
    one = world(
        team("team", most=4),
        node("a", cpu=4),
        pod("other", 4, on="a"),
        node("b", cpu=4),
        pod("mine-0", 2, on="b", labels=label, priority=1),
        pod("mine-1", 2, on="b", labels=label, priority=1),
        group("g", 2),
        *members("g", 2, 2, priority=HIGH, labels=label),
        config=QUOTAS,
    )

    assert settled(one) == ["mine-0", "mine-1"]
    assert {placed(one)[f"g-{i}"] for i in range(2)} == {"b"}


@pytest.mark.parametrize(("gates", "victims"), [("", 3), ("ElasticQuotaIgnorePodOverhead=true", 1)])
def test_gang_evicts_pods_that_count_in_its_quota(gates: str, victims: int) -> None:
    """Members request 1 CPU each and have an overhead of 1 CPU; 1 of 4 CPUs is free."""
    label = {PREFIX + "name": "a"}
    low = [pod(f"low-{index}", 1, on="n", labels=label) for index in range(3)]
    gang = members("g", 2, labels=label, priority=HIGH, overhead={"cpu": "1"})
    there = [node("n", cpu=20), team("a", most=4), *low, group("g", 2), *gang]
    one = embedded(*there, config=QUOTAS, gates=FeatureGates.parse(gates))

    assert len(settled(one)) == victims
    assert {"g-0", "g-1"} <= placed(one).keys()


def test_gang_over_its_quota_evicts_no_pod_of_another() -> None:
    """No less important pod is in the gang's quota, so no pod is evicted."""
    label = {PREFIX + "name": "team"}
    one = world(
        team("team", most=3),
        *full(2),
        group("g", 2),
        *members("g", 2, 2, priority=HIGH, labels=label),
        config=QUOTAS,
    )

    assert settled(one) == []


def test_members_with_anti_affinity_get_separate_nodes() -> None:
    """Anti-affinity inside the gang counts across nodes."""
    apart = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchLabels": {"app": "g"}},
                }
            ]
        }
    }
    one = world(
        *full(3, cpu=8),
        group("g", 3),
        *members("g", 3, 2, priority=HIGH, labels={"app": "g"}, affinity=apart),
    )

    assert len(settled(one)) == 3
    assert len({placed(one)[f"g-{i}"] for i in range(3)}) == 3


def test_nonstrict_gang_preempts_for_its_missing_members() -> None:
    """Placed members wait, and capacity is freed for the others."""
    one = world(
        *full(2),
        node("free", cpu=4),
        group("g", 3, mode="NonStrict"),
        *members("g", 3, 4, priority=HIGH),
    )

    assert settled(one) == ["low-0", "low-1"]
    assert sum(name.startswith("g-") for name in placed(one)) == 3


def test_preemption_can_be_restricted_to_some_nodes() -> None:
    """In a rack, for example, all members fit, or no pod is evicted."""
    one = world(*full(4))
    cycle, state = one.scheduler.cycles["default-scheduler"], one.state
    one.scheduler.step()
    job = [(p, state.classes.of(p)) for p in members("g", 2, 4, priority=HIGH)]

    headroom = free_headroom(cycle.profile, state, {}, job, rows=np.array([1, 3]))
    assert set(headroom.places.values()) == {"n1", "n3"}
    assert sorted(victim.key for victim in headroom.victims) == ["default/low-1", "default/low-3"]
    assert not free_headroom(cycle.profile, state, {}, job, rows=np.array([2])).places


def test_message_counts_nodes_without_victims() -> None:
    """The message has the original's text, followed by the project's own count."""
    one = embedded(
        node("a", cpu=2),
        node("b", cpu=2),
        pod("low", 1, on="b"),
        pod("equal", 1, on="a", priority=HIGH),
        group("g", 2),
        *members("g", 2, 2, priority=HIGH),
        config=JOBS,
    )
    settled(one)

    messages = [condition(one, f"g-{n}")[1] for n in (0, 1)]
    assert any(
        "preemption: 0/2 nodes are available: 1 Insufficient cpu, 1 no potential victims." in text
        for text in messages
    )
    assert any("2 members do not fit" in text for text in messages)
