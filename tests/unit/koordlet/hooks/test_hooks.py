"""Cgroup settings of pods from decisions of the scheduler and the manager."""

from typing import Any

import pytest
from tests.nodes import LAYOUT, Tree, cpus, machine, pod, slo
from tests.unit.koordlet.intents import values

from koordinator.domain.cgroups.files import CgroupFile, normalized_quota
from koordinator.koordlet.hooks.batch_resources import plan_batch_resources, plan_oom_scores
from koordinator.koordlet.hooks.cpu_qos import plan_group_identity
from koordinator.koordlet.hooks.cpuset import plan_cpusets
from koordinator.koordlet.hooks.pod_hooks import pod_cpu_normalization
from koordinator.koordlet.intents import Intent, SetFile, SetOomScore
from koordinator.koordlet.view.pods import PodView

STATUS = "scheduling.koordinator.sh/resource-status"
ON = {"cpuQOS": {"enable": True}}
ALL_ON = slo(resourceQOSStrategy={"lsrClass": ON, "lsClass": ON, "beClass": ON})


@pytest.mark.parametrize(
    ("qos", "resources", "annotations", "identity"),
    [
        ("LSE", {}, {}, "2"),
        ("LSR", {}, {}, "2"),
        ("LS", {}, {}, "2"),
        ("BE", {}, {}, "-1"),
        ("SYSTEM", {}, {}, "0"),
        ("", {}, {}, "-1"),
        ("", {"requests": {"cpu": 1}}, {}, "2"),
        ("LS", {}, {"koordinator.sh/cpuQOS": '{"enable":true,"groupIdentity":-1}'}, "-1"),
        ("LS", {}, {"koordinator.sh/cpuQOS": '{"groupIdentity":-1}'}, "-1"),
        ("LS", {}, {"koordinator.sh/cpuQOS": '{"groupIdentity": 1}'}, "1"),
        ("LS", {}, {"koordinator.sh/cpuQOS": "{}"}, "2"),
        ("LS", {}, {"koordinator.sh/cpuQOS": '{"enable":false,"groupIdentity":1}'}, "0"),
        ("LS", {}, {"koordinator.sh/cpuQOS": '{"enable":true}'}, "2"),
        ("LS", {}, {"koordinator.sh/cpuQOS": '{"enable":true,"groupIdentity":null}'}, "2"),
        ("LS", {}, {"koordinator.sh/cpuQOS": '{"enable":true,"groupIdentity":0}'}, "0"),
        ("LS", {}, {"koordinator.sh/cpuQOS": '{"enable":false}'}, "0"),
        ("LS", {}, {"koordinator.sh/cpuQOS": '{"enable":true,"groupIdentity":5}'}, "2"),
        ("LSR", {}, {"koordinator.sh/cpuQOS": '{"enable":true,"groupIdentity":-1}'}, "2"),
    ],
)
def test_group_identity_of_pods(
    qos: str, resources: dict[str, Any], annotations: dict[str, str], identity: str
) -> None:
    """By class, else by kube QoS; only LS pods have their own."""
    tree = Tree()
    view = tree.add_pod(pod("a", qos, annotations=annotations, **resources))

    planned = plan_group_identity(tree.view(view, slo=ALL_ON))

    assert values(planned, CgroupFile.BVT_WARP)[view.folder] == identity


def test_group_identity_of_tiers_and_programs() -> None:
    """The root of all pods stays 0; the kernel's switch is turned on first."""
    tree = Tree()
    spec = slo(
        resourceQOSStrategy={"lsClass": ON, "beClass": ON},
        hostApplications=[{"name": "app", "qos": "BE"}],
    )
    planned = plan_group_identity(tree.view(slo=spec))

    assert values(planned, CgroupFile.BVT_WARP) == {
        LAYOUT.kubepods: "0",
        LAYOUT.burstable: "2",
        LAYOUT.besteffort: "-1",
        "host-best-effort/app": "-1",
    }
    assert isinstance(planned[0], SetFile)


def test_disabled_group_identity_is_reset() -> None:
    """Everything goes back to 0."""
    tree = Tree()
    view = tree.add_pod(pod("a", "BE"))

    assert set(values(plan_group_identity(tree.view(view)), CgroupFile.BVT_WARP).values()) == {"0"}


TIERS = {LAYOUT.kubepods: "0", LAYOUT.burstable: "0", LAYOUT.besteffort: "0"}


def idle_without_group_identity(*pods: PodView, tree: Tree, spec: Any = ALL_ON) -> dict[str, str]:
    """Return ``cpu.idle`` that is wanted of pods on a mainline kernel; the tiers are as ever."""
    for folder in TIERS:
        tree.host.vanish(tree.path(CgroupFile.BVT_WARP, folder))
    idle = values(plan_group_identity(tree.view(*pods, slo=spec)), CgroupFile.CPU_IDLE)
    assert {folder: idle.pop(folder) for folder in TIERS} == TIERS
    return idle


def test_a_kernel_without_group_identity_idles_pods_that_others_go_before() -> None:
    """``cpu.idle`` of pods replaces it while a pod in the tier is not idle; otherwise it is 0.

    It is 0 for the tiers: the kernel would reject the shares that the kubelet writes.
    """
    tree = Tree()
    made = {name: tree.add_pod(pod(name, name.upper())) for name in ("be", "ls")}
    plain = tree.add_pod(pod("plain"))
    other = tree.add_pod(pod("burstable", "BE", requests={"cpu": "100m"}))
    both = (*made.values(), plain, other)

    assert idle_without_group_identity(*both, tree=tree) == {
        made["be"].folder: "1",
        made["ls"].folder: "0",
        plain.folder: "1",
    }
    assert idle_without_group_identity(*both, tree=tree, spec=slo()) == {
        made["be"].folder: "0",
        made["ls"].folder: "0",
        plain.folder: "0",
    }


def test_jobs_among_themselves_keep_their_shares() -> None:
    """Idle cgroups have equal weight, so pods are not idle without a reason."""
    tree = Tree()
    jobs = [tree.add_pod(pod(name, "BE")) for name in ("a", "b")]
    ended = tree.add_pod(pod("c", "LS", phase="Succeeded"))

    idle = idle_without_group_identity(*jobs, ended, tree=tree)

    assert idle == {job.folder: "0" for job in jobs}


def test_core_scheduling_takes_group_identities_back() -> None:
    """The kernel can't have both."""
    strategy = {"policies": {"cpuPolicy": "coreSched"}, "beClass": {"cpuQOS": {"enable": True}}}
    planned = plan_group_identity(Tree().view(slo=slo(resourceQOSStrategy=strategy)))

    assert set(values(planned, CgroupFile.BVT_WARP).values()) == {"0"}


def cpuset_of(
    made: Any, others: tuple[Any, ...] = (), policy: str = "none", **annotations: str
) -> str | None:
    """Return the CPUs of the first container of a pod on 2 NUMA nodes of 8 CPUs."""
    tree = Tree("0-15")
    view = tree.add_pod(made)
    views = [tree.add_pod(other) for other in others]
    keys = {key.replace("__", "/").replace("_", "-"): text for key, text in annotations.items()}
    node = {f"node.koordinator.sh/{key}": text for key, text in keys.items()}
    where = machine(
        16, topology=cpus(16, sockets=2, threads=2), annotations=node, kubelet_policy=policy
    )
    planned = plan_cpusets(tree.view(view, *views, machine_=where))
    return values(planned, CgroupFile.CPUSET).get(view.containers[0].folder)


NEEDS: dict[str, Any] = {"requests": {"cpu": 1}}
BOUND = pod("b", "LSR", annotations={STATUS: '{"cpuset":"0,8"}'}, requests={"cpu": 2})


def test_bound_pods_run_on_the_scheduler_s_cpus() -> None:
    """Pods without allocated CPUs do not run there."""
    assert cpuset_of(BOUND) == "0,8"
    assert cpuset_of(pod("a", "LS", **NEEDS), (BOUND,)) == "1-7,9-15"


def test_pods_with_numa_nodes_use_the_shared_cpus_of_those() -> None:
    """A NUMA node that gives the pod memory alone has no effect."""
    zone = '{"numaNodeResources":[{"node":1,"resources":{"cpu":"2"}}]}'
    memory = '{"numaNodeResources":[{"node":1,"resources":{"memory":"2"}}]}'

    assert cpuset_of(pod("a", "LS", annotations={STATUS: zone}, **NEEDS)) == "4-7,12-15"
    assert cpuset_of(pod("a", "LS", annotations={STATUS: memory}, **NEEDS)) == "0-15"


def test_cpus_for_the_system_and_reserved_ones_are_not_shared() -> None:
    """Pods of class SYSTEM get theirs."""
    keys: dict[str, Any] = {
        "system_qos_resource": '{"cpuset":"1"}',
        "reservation": '{"reservedCPUs":"0"}',
    }

    assert cpuset_of(pod("a", "SYSTEM", **NEEDS), **keys) == "1"
    assert cpuset_of(pod("a", "LS", **NEEDS), **keys) == "2-15"


def test_best_effort_and_static_kubelets_are_left_alone() -> None:
    """CPU suppress and the kubelet take care of them."""
    assert cpuset_of(pod("a", "BE")) is None
    assert cpuset_of(pod("a", **NEEDS), policy="static") is None
    assert cpuset_of(pod("a", "LS", **NEEDS), policy="static") == "0-15"
    assert cpuset_of(pod("a", **NEEDS)) == "0-15"


def test_bound_pods_have_no_quota() -> None:
    """A setting keeps the quota of bound pods."""
    tree = Tree()
    view = tree.add_pod(BOUND)

    planned = plan_cpusets(tree.view(view))
    assert set(values(planned, CgroupFile.CFS_QUOTA).values()) == {"-1"}
    kept = plan_cpusets(tree.view(view), keep_quota=True)
    assert values(kept, CgroupFile.CFS_QUOTA) == {}


def batch(cpu: int | None, memory: str | None) -> dict[str, Any]:
    """Return resources of a best-effort container."""
    amounts = {"kubernetes.io/batch-cpu": cpu, "kubernetes.io/batch-memory": memory}
    stated = {key: amount for key, amount in amounts.items() if amount is not None}
    return {"requests": stated, "limits": stated}


def planned_batch(made: Any, **view: Any) -> tuple[PodView, list[Intent]]:
    """Return a pod and what its cgroups are to be."""
    tree = Tree()
    added = tree.add_pod(made)
    return added, plan_batch_resources(tree.view(added, **view))


def test_batch_resources_become_shares_quota_and_limit() -> None:
    """750 milli are 768 shares and 75 ms; a pod is the sum of its containers."""
    view, planned = planned_batch(pod("a", "BE", containers=2, **batch(750, "1Gi")))

    container = view.containers[0].folder
    assert values(planned, CgroupFile.CPU_SHARES)[container] == "768"
    assert values(planned, CgroupFile.CFS_QUOTA)[container] == "75000"
    assert values(planned, CgroupFile.MEMORY_LIMIT)[container] == str(1 << 30)
    assert values(planned, CgroupFile.CPU_SHARES)[view.folder] == "1536"
    assert values(planned, CgroupFile.CFS_QUOTA)[view.folder] == "150000"
    assert values(planned, CgroupFile.MEMORY_LIMIT)[view.folder] == str(2 << 30)


def test_one_container_without_limit_frees_its_pod() -> None:
    """The annotation goes before the spec."""
    spec = (
        '{"containers":{"c0":{"limits":{"kubernetes.io/batch-cpu":"500"}},'
        '"c1":{"requests":{"kubernetes.io/batch-cpu":"500"}}}}'
    )
    made = pod(
        "a", "BE", containers=2, annotations={"node.koordinator.sh/extended-resource-spec": spec}
    )
    view, planned = planned_batch(made)

    assert values(planned, CgroupFile.CFS_QUOTA) == {
        view.folder: "-1",
        view.containers[0].folder: "50000",
        view.containers[1].folder: "-1",
    }


def test_no_quotas_below_a_tier_that_is_suppressed_by_quota() -> None:
    """Two limits would multiply."""
    spec = slo(resourceUsedThresholdWithBE={"enable": True, "cpuSuppressPolicy": "cfsQuota"})
    _, planned = planned_batch(pod("a", "BE", **batch(750, None)), slo=spec)

    assert set(values(planned, CgroupFile.CFS_QUOTA).values()) == {"-1"}


def test_pods_without_batch_resources_are_ignored() -> None:
    """Pods of other classes are ignored, too."""
    assert planned_batch(pod("a", "BE"))[1] == []
    assert planned_batch(pod("a", "LS", **batch(750, None)))[1] == []


def test_quota_is_divided_by_the_normalization_ratio() -> None:
    """250000 on CPUs worth 1.35 are 185186, rounded up; a ratio of 1 restores.

    A container is made with its normalized quota, whether CPU burst is on or not.
    """
    assert normalized_quota(250_000, 1.35) == 185_186
    assert normalized_quota(250_000, 1.0) == normalized_quota(250_000, None) == 250_000
    assert normalized_quota(-1, 1.35) == -1
    tree = Tree()
    view = tree.add_pod(pod("a", "LS", limits={"cpu": "2500m"}))
    where = machine(annotations={"node.koordinator.sh/cpu-normalization-ratio": "1.35"})

    for policy in ("none", "auto"):
        seen = tree.view(view, machine_=where, slo=slo(cpuBurstStrategy={"policy": policy}))
        result = values(pod_cpu_normalization(seen, view), CgroupFile.CFS_QUOTA)
        assert result == {view.containers[0].folder: "185186"}
    assert list(pod_cpu_normalization(tree.view(view), view)) == []


@pytest.mark.parametrize(
    ("annotations", "scores"),
    [
        ({"oom-score-adj": "300", "oom-score-adj-spec": '{"c1":-500}'}, {"c0": 300, "c1": -500}),
        ({"oom-score-adj": "1001"}, {}),
        ({"oom-score-adj": "x", "oom-score-adj-spec": '{"c0":7}'}, {"c0": 7}),
        ({"oom-score-adj-spec": "{"}, {}),
        ({}, {}),
    ],
)
def test_oom_score_is_that_of_the_container_or_the_pod(
    annotations: dict[str, str], scores: dict[str, int]
) -> None:
    """By container, then by pod; a bad one is left out, not clamped."""
    tree = Tree()
    keys = {f"koordinator.sh/{key}": text for key, text in annotations.items()}
    # Guaranteed: anything the kubelet would give is allowed
    amounts: dict[str, str | int] = {"cpu": 1, "memory": "1Gi"}
    view = tree.add_pod(pod("a", containers=2, annotations=keys, requests=amounts, limits=amounts))

    result = plan_oom_scores(tree.view(view))

    assert {
        i.owner.rpartition("/")[2]: i.value for i in result if isinstance(i, SetOomScore)
    } == scores


@pytest.mark.parametrize(
    ("resources", "priority", "least"),
    [
        ({}, None, 3),
        ({"requests": {"cpu": 1}}, None, 3),
        ({"requests": {"cpu": 1, "memory": 1}, "limits": {"cpu": 1, "memory": 1}}, None, -997),
        ({}, 2_000_000_000, -997),
        ({}, 1_999_999_999, 3),
    ],
)
def test_no_pod_spares_itself_more_than_its_class(
    resources: dict[str, Any], priority: int | None, least: int
) -> None:
    """With -1000 the kernel would kill every other process first: authors may not request it."""
    tree = Tree()
    for value, is_followed in ((least, True), (least - 1, False), (-1000, False), (1000, True)):
        own = {"koordinator.sh/oom-score-adj": str(value)}
        made = pod(f"a{value}", annotations=own, priority=priority, **resources)
        result = plan_oom_scores(tree.view(tree.add_pod(made)))
        assert bool(result) is is_followed, value
