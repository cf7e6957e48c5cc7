"""Plugins that were upstream's: which pods each of them wants to go."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.descheduler.world import DeschedulerWorld, profile_of
from tests.worlds import START_S, near, node, pod, spread, with_status

from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.foundation.clock import to_datetime
from koordinator.foundation.errors import InputError

OWNER = ("ReplicaSet", "r")
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def owned(name: str, on: str, cpu: Any = None, age_s: int = 7200, **more: Any) -> Pod:
    made = pod(name, cpu, on=on, owner=more.pop("owner", OWNER), **more)
    created = to_datetime(START_S - age_s)
    return replace(made, metadata=replace(made.metadata, creation_timestamp=created))


def evicted_by(plugin: str, point: str, args: Any, *objects: KubeObject, **more: Any) -> set[str]:
    evictor = more.pop("evictor", {})
    profile = profile_of(point, plugin, args, **evictor)
    return DeschedulerWorld(*objects, profile=profile, **more).evicted()


def nodes(*names: str, **more: Any) -> list[KubeObject]:
    return [node(name, 10, **more) for name in names]


def restarted(times: int, **state: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "c", "restartCount": times, "state": state}]}


@pytest.mark.parametrize(
    ("args", "evicted"),
    [
        ({"maxPodLifeTimeSeconds": 600}, {"old", "older", "failed", "waiting"}),
        ({"maxPodLifeTimeSeconds": 7200}, {"older"}),
        ({"maxPodLifeTimeSeconds": 600, "states": ["Failed"]}, {"failed"}),
        ({"states": ["CrashLoopBackOff"]}, {"waiting"}),
        ({"exitCodes": [137]}, {"failed"}),
        ({"maxPodLifeTimeSeconds": 600, "ownerKinds": {"exclude": ["ReplicaSet"]}}, {"older"}),
        ({"maxPodLifeTimeSeconds": 600, "ownerKinds": {"include": ["Job"]}}, {"older"}),
        (
            {"conditions": [{"type": "Ready", "minTimeSinceLastTransitionSeconds": 100}]},
            {"old"},
        ),
    ],
)
def test_pod_life_time_evicts_matching_pods(args: Any, evicted: set[str]) -> None:
    """All criteria together decide."""
    since = to_datetime(START_S - 100).isoformat()
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": since}
    ended = restarted(0, terminated={"exitCode": 137})
    pods = [
        with_status(owned("old", "n1"), conditions=[ready]),
        owned("older", "n1", age_s=9000, owner=("Job", "j")),
        owned("young", "n1", age_s=600),
        with_status(owned("failed", "n2"), phase="Failed", **ended),
        with_status(owned("waiting", "n2"), **restarted(0, waiting={"reason": "CrashLoopBackOff"})),
    ]
    assert evicted_by("PodLifeTime", "deschedule", args, *nodes("n1", "n2"), *pods) == evicted


def test_oldest_pods_are_evicted_first() -> None:
    """The limits of the cycle restrict their number."""
    pods = [owned("a", "n1"), owned("b", "n2", age_s=8000), owned("c", "n1", age_s=7500)]
    result = evicted_by(
        "PodLifeTime",
        "deschedule",
        {"maxPodLifeTimeSeconds": 600},
        *nodes("n1", "n2"),
        *pods,
        maxNoOfPodsToEvictTotal=2,
    )
    assert result == {"b", "c"}


@pytest.mark.parametrize(
    ("args", "evicted"),
    [
        ({}, {"evicted", "oom"}),
        ({"minPodLifetimeSeconds": 0}, {"evicted", "oom", "new"}),
        ({"reasons": ["Evicted"]}, {"evicted"}),
        ({"reasons": ["OOMKilled"]}, {"oom"}),
        ({"exitCodes": [1]}, {"oom"}),
        ({"excludeOwnerKinds": ["ReplicaSet"]}, set()),
        ({"namespaces": {"exclude": ["default"]}}, set()),
    ],
)
def test_failed_pods_are_evicted(args: Any, evicted: set[str]) -> None:
    """Running pods stay, and by default pods that failed within the hour."""
    oom = restarted(1, terminated={"reason": "OOMKilled", "exitCode": 1})
    pods = [
        with_status(owned("evicted", "n1"), phase="Failed", reason="Evicted"),
        with_status(owned("oom", "n1"), phase="Failed", **oom),
        with_status(owned("new", "n1", age_s=60), phase="Failed"),
        owned("running", "n1"),
    ]
    assert evicted_by("RemoveFailedPods", "deschedule", args, *nodes("n1", "n2"), *pods) == evicted


@pytest.mark.parametrize(
    ("args", "evicted"),
    [
        ({"podRestartThreshold": 5}, {"five", "looping"}),
        ({"podRestartThreshold": 6}, {"looping"}),
        ({"podRestartThreshold": 6, "includingInitContainers": True}, {"five", "looping"}),
        ({"podRestartThreshold": 5, "states": ["CrashLoopBackOff"]}, {"looping"}),
    ],
)
def test_pods_with_too_many_restarts_are_evicted(args: Any, evicted: set[str]) -> None:
    """Restarts of all containers count together."""
    initial = [{"name": "i", "restartCount": 1}]
    looping = restarted(9, waiting={"reason": "CrashLoopBackOff"})
    pods = [
        with_status(owned("five", "n1"), **restarted(5), initContainerStatuses=initial),
        with_status(owned("looping", "n1"), **looping),
        with_status(owned("calm", "n1"), **restarted(0)),
    ]
    plugin = "RemovePodsHavingTooManyRestarts"
    assert evicted_by(plugin, "deschedule", args, *nodes("n1", "n2"), *pods) == evicted


@pytest.mark.parametrize(
    ("args", "evicted"),
    [
        ({}, {"plain"}),
        ({"includePreferNoSchedule": True}, {"plain", "unsure"}),
        ({"excludedTaints": ["dedicated=x"]}, set()),
        ({"includedTaints": ["other"]}, set()),
        ({"includedTaints": ["dedicated"]}, {"plain"}),
    ],
)
def test_pods_that_do_not_tolerate_taints_are_evicted(args: Any, evicted: set[str]) -> None:
    """NoExecute is not looked at: the cluster evicts for it by itself."""
    tolerating = [{"key": "dedicated", "operator": "Exists"}]
    objects = [
        node("n1", taints=["dedicated=x:NoSchedule"]),
        node("n2", taints=["soft=y:PreferNoSchedule"]),
        node("n3", taints=["hard=z:NoExecute"]),
        owned("plain", "n1"),
        owned("tolerant", "n1", tolerations=tolerating),
        owned("unsure", "n2"),
        owned("doomed", "n3"),
    ]
    assert evicted_by("RemovePodsViolatingNodeTaints", "deschedule", args, *objects) == evicted


def affinity(kind: str, value: str) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": "disk", "operator": "In", "values": [value]}]}
    if kind == REQUIRED:
        return {"nodeAffinity": {kind: {"nodeSelectorTerms": [term]}}}
    return {"nodeAffinity": {kind: [{"weight": 1, "preference": term}]}}


@pytest.mark.parametrize("kind", [REQUIRED, PREFERRED])
def test_pods_with_violated_node_affinity_are_evicted(kind: str) -> None:
    """A pod stays if no node would take it, or suit it better."""
    objects = [
        node("n1", 4, labels={"disk": "hdd"}),
        node("n2", 4, labels={"disk": "ssd"}),
        owned("misplaced", "n1", 1, affinity=affinity(kind, "ssd")),
        owned("right", "n2", 1, affinity=affinity(kind, "ssd")),
        owned("nowhere", "n1", 1, affinity=affinity(kind, "tape")),
        owned("large", "n1", 1, affinity=affinity(kind, "ssd"), requests={"memory": "64Gi"}),
    ]
    args = {"nodeAffinityType": [kind]}
    result = evicted_by("RemovePodsViolatingNodeAffinity", "deschedule", args, *objects)
    # A pod that only prefers may stay on its node, judged by fit.
    assert result == ({"misplaced"} if kind == REQUIRED else {"misplaced", "large"})


def test_pods_with_violated_anti_affinity_are_evicted() -> None:
    """The pod with the lower priority is evicted, which ends the violation."""
    apart = {"podAntiAffinity": near("web")}
    objects = [
        node("n1", zone="a"),
        node("n2", zone="a"),
        node("n3", zone="b"),
        owned("low", "n1", labels={"app": "web"}, affinity=apart, priority=1),
        owned("high", "n2", labels={"app": "web"}, affinity=apart, priority=2),
        owned("far", "n3", labels={"app": "web"}, affinity=apart, priority=0),
        owned("other", "n1", labels={"app": "db"}),
    ]
    assert evicted_by("RemovePodsViolatingInterPodAntiAffinity", "deschedule", {}, *objects) == {
        "low"
    }


@pytest.mark.parametrize(
    ("names", "args", "left"),
    [
        (("n1", "n2"), {}, 2),
        (("n1", "n2", "n3", "n4"), {}, 1),
        (("n1", "n2"), {"excludeOwnerKinds": ["ReplicaSet"]}, 4),
    ],
)
def test_duplicates_on_a_node_are_evicted(names: tuple[str, ...], args: Any, left: int) -> None:
    """A node keeps the mean over the nodes that could run such a pod, rounded up."""
    pods = [owned(f"p{i}", "n1", images=("i",)) for i in range(4)]
    result = evicted_by("RemoveDuplicates", "balance", args, *nodes(*names), *pods)
    assert len(result) == 4 - left


def test_pods_with_a_single_feasible_node_are_no_duplicates() -> None:
    """The pods have no other feasible node, so an eviction would not help."""
    pods = [owned(f"p{i}", "n1", nodeSelector={"disk": "ssd"}) for i in range(4)]
    objects = [node("n1", labels={"disk": "ssd"}), node("n2"), *pods]
    assert evicted_by("RemoveDuplicates", "balance", {}, *objects) == set()


@pytest.mark.parametrize(
    ("args", "count"),
    [
        ({}, 2),
        ({"constraints": ["ScheduleAnyway"]}, 0),
        ({"constraints": ["ScheduleAnyway", "DoNotSchedule"]}, 2),
        ({"labelSelector": {"matchLabels": {"app": "db"}}}, 0),
    ],
)
def test_pods_exceeding_the_skew_are_evicted(args: Any, count: int) -> None:
    """As many go as the small domains lack."""
    objects = [
        node("n1", zone="a"),
        node("n2", zone="b"),
        *(
            owned(f"p{i}", "n1", labels={"app": "web"}, topologySpreadConstraints=[spread()])
            for i in range(4)
        ),
    ]
    plugin = "RemovePodsViolatingTopologySpreadConstraint"
    assert len(evicted_by(plugin, "balance", args, *objects)) == count


def test_pods_are_kept_if_the_small_domain_has_no_room() -> None:
    """With topologyBalanceNodeFit false they are evicted."""
    objects = [
        node("n1", zone="a"),
        node("n2", zone="b", unschedulable=True),
        *(
            owned(f"p{i}", "n1", labels={"app": "web"}, topologySpreadConstraints=[spread()])
            for i in range(4)
        ),
    ]
    plugin = "RemovePodsViolatingTopologySpreadConstraint"
    assert evicted_by(plugin, "balance", {}, *objects) == set()
    assert len(evicted_by(plugin, "balance", {"topologyBalanceNodeFit": False}, *objects)) == 2


LOW = {"thresholds": {"cpu": 30}, "targetThresholds": {"cpu": 60}}


@pytest.mark.parametrize(
    ("args", "count"),
    [
        (LOW, 2),
        ({**LOW, "numberOfNodes": 1}, 0),
        ({**LOW, "evictionLimits": {"node": 1}}, 1),
        ({**LOW, "evictableNamespaces": {"exclude": ["default"]}}, 0),
        ({"thresholds": {"cpu": 50}, "targetThresholds": {"cpu": 80}}, 0),
        (
            {
                "useDeviationThresholds": True,
                "thresholds": {"cpu": 20},
                "targetThresholds": {"cpu": 20},
            },
            2,
        ),
    ],
)
def test_nodes_with_requests_above_the_target_lose_pods(args: Any, count: int) -> None:
    """Pods go until the node is below its target."""
    pods = [owned(f"p{i}", "n1", 1) for i in range(8)]
    result = evicted_by("LowNodeUtilization", "balance", args, *nodes("n1", "n2"), *pods)
    assert len(result) == count


@pytest.mark.parametrize(
    ("args", "evicted"),
    [
        ({"thresholds": {"cpu": 20}}, {"lonely"}),
        ({"thresholds": {"cpu": 20}, "numberOfNodes": 1}, set()),
        ({"thresholds": {"cpu": 90}}, set()),
        (
            {"thresholds": {"memory": 20}, "evictionModes": ["OnlyThresholdingResources"]},
            set(),
        ),
    ],
)
def test_nodes_with_low_requests_are_emptied(args: Any, evicted: set[str]) -> None:
    """As long as the others have room."""
    pods = [owned("lonely", "n1", 1), *(owned(f"p{i}", "n2", 1) for i in range(5))]
    assert evicted_by("HighNodeUtilization", "balance", args, *nodes("n1", "n2"), *pods) == evicted


@pytest.mark.parametrize(
    ("protections", "kept"),
    [
        ({}, {"bare", "local", "daemon", "critical", "mirror"}),
        ({"evictLocalStoragePods": True}, {"bare", "daemon", "critical", "mirror"}),
        ({"evictDaemonSetPods": True}, {"bare", "local", "critical", "mirror"}),
        ({"evictSystemCriticalPods": True}, {"bare", "local", "daemon", "mirror"}),
        ({"ignorePvcPods": True}, {"bare", "local", "daemon", "critical", "mirror", "claim"}),
        (
            {"podProtections": {"defaultDisabled": ["PodsWithLocalStorage"]}},
            {"bare", "daemon", "critical", "mirror"},
        ),
        (
            {"labelSelector": {"matchLabels": {"app": "web"}}},
            {"bare", "local", "daemon", "critical", "mirror", "claim", "plain"},
        ),
        (
            {"priorityThreshold": {"value": 100}},
            {"bare", "local", "daemon", "critical", "mirror", "claim"},
        ),
        (
            {"priorityThreshold": {"name": "missing"}},
            {"bare", "local", "daemon", "critical", "mirror", "claim", "plain"},
        ),
        (
            {"minReplicas": 9},
            {"bare", "local", "daemon", "critical", "mirror", "claim", "plain"},
        ),
        (
            {"minPodAge": "3h"},
            {"bare", "local", "daemon", "critical", "mirror", "claim", "plain"},
        ),
    ],
)
def test_default_evictor_protects_pods(protections: Any, kept: set[str]) -> None:
    """An annotation overrules every protection."""
    claimed = {"name": "v", "persistentVolumeClaim": {"claimName": "x"}}
    asks = {"descheduler.alpha.kubernetes.io/evict": "true"}
    shown = {"kubernetes.io/config.mirror": "x"}
    pods = [
        pod("bare", on="n1"),
        owned("local", "n1", volumes=[{"name": "v", "emptyDir": {}}]),
        owned("daemon", "n1", owner=("DaemonSet", "d")),
        owned("critical", "n1", priority=2_000_000_000),
        owned("mirror", "n1", annotations=shown),
        owned("claim", "n1", volumes=[claimed], priority=100),
        owned("plain", "n1"),
        pod("asks", on="n1", annotations=asks),
    ]
    names = {one.metadata.name for one in pods}
    args = {"maxPodLifeTimeSeconds": 0, "states": ["Running"]}
    aged = [
        replace(p, metadata=replace(p.metadata, creation_timestamp=to_datetime(START_S - 60)))
        for p in pods
    ]
    result = evicted_by(
        "PodLifeTime", "deschedule", args, *nodes("n1", "n2"), *aged, evictor=protections
    )
    assert names - result == kept


@pytest.mark.parametrize(
    ("plugin", "point", "args", "path"),
    [
        ("PodLifeTime", "deschedule", {}, "maxPodLifeTimeSeconds"),
        ("PodLifeTime", "deschedule", {"states": ["Runing"]}, "states[0]"),
        ("RemovePodsHavingTooManyRestarts", "deschedule", {}, "podRestartThreshold"),
        ("RemovePodsViolatingNodeAffinity", "deschedule", {}, "nodeAffinityType"),
        (
            "RemovePodsViolatingNodeTaints",
            "deschedule",
            {"includedTaints": ["a"], "excludedTaints": ["b"]},
            "includedTaints",
        ),
        ("LowNodeUtilization", "balance", {"thresholds": {"cpu": 1}}, "targetThresholds"),
        ("HighNodeUtilization", "balance", {"thresholds": {"cpu": 101}}, "thresholds[cpu]"),
        (
            "RemovePodsViolatingTopologySpreadConstraint",
            "balance",
            {"constraints": ["Always"]},
            "constraints[0]",
        ),
        ("RemoveDuplicates", "balance", {"labelSelector": {}}, "labelSelector"),
    ],
)
def test_invalid_arguments_are_rejected(plugin: str, point: str, args: Any, path: str) -> None:
    """With the path in the file."""
    with pytest.raises(InputError) as refused:
        evicted_by(plugin, point, args)
    assert refused.value.path == f"profiles[0].pluginConfig[0].args.{path}"


def test_node_fit_protects_a_pod_that_fits_on_no_other_node() -> None:
    """The DefaultEvictor asks right before the eviction; only our own plugins ask it then."""
    args = {"imbalanceThreshold": 0.01, "minImprovementThreshold": 0.001, "nodeFit": False}
    objects = [node("n1", 10), node("n2", 1), owned("large", "n1", 5)]
    result = [
        evicted_by("FragmentationAware", "balance", args, *objects, evictor={"nodeFit": each})
        for each in (False, True)
    ]
    assert result == [{"large"}, set()]
