"""Moves that are proven before they are made: what users complain of does not happen."""

import logging
from typing import Any

import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry
from tests.unit.descheduler.migration.world import MigrationWorld, job, replicas
from tests.unit.descheduler.world import DeschedulerWorld, profile_of
from tests.worlds import START_S, configuration, made, metric, near, node, pod, used

from koordinator.api.annotations.scheduling import PROVEN_MOVE
from koordinator.api.event import Event
from koordinator.api.kubescheduler import KubeSchedulerConfiguration
from koordinator.api.meta import JsonObject, KubeObject
from koordinator.api.node import Node
from koordinator.api.node_metric import NodeMetric
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import PodMigrationJob
from koordinator.descheduler.contract import SkippedMove, SkipReason
from koordinator.descheduler.metrics import DeschedulerMetrics
from koordinator.descheduler.proof import MoveMemory
from koordinator.foundation.clock import to_datetime
from koordinator.simulator.policies import default_configuration

AT_ONCE = {"consecutiveAbnormalities": 1, "consecutiveNormalities": 1}
THRESHOLDS = {"lowThresholds": {"cpu": 30}, "highThresholds": {"cpu": 60}}
STOCK = configuration()
OWNER = ("ReplicaSet", "r")
ON_N1_IF_POSSIBLE: JsonObject = {
    "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": 100,
                "preference": {
                    "matchExpressions": [
                        {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}
                    ]
                },
            }
        ]
    }
}


def running(name: str, on: str = "n1", cpu: str = "100m", **more: Any) -> Pod:
    return pod(name, cpu, on=on, owner=more.pop("owner", OWNER), **more)


def load(on: str, **pods: str) -> KubeObject:
    """Return a report of the CPU that pods use."""
    return metric(on, pods={name: used(cpu) for name, cpu in pods.items()})


def world(
    *objects: KubeObject,
    prover: KubeSchedulerConfiguration = STOCK,
    args: JsonObject | None = None,
    **whole: Any,
) -> DeschedulerWorld:
    """Return a world in which LowNodeLoad acts at once, and evicts directly."""
    given = {"anomalyCondition": AT_ONCE, **THRESHOLDS, **(args or {})}
    profile = profile_of("balance", "LowNodeLoad", given)
    return DeschedulerWorld(*objects, profile=profile, prover=prover, **whole)


class ProvingWorld(MigrationWorld):
    """LowNodeLoad, or another plugin, with jobs that reserve first."""

    def jobs(self) -> list[PodMigrationJob]:
        """Run a cycle if one is due; return the jobs that there are."""
        self.descheduler.step()
        return list(self.cluster.list(PodMigrationJob).items)


def migrating(
    *objects: KubeObject,
    plugin: tuple[str, JsonObject] = (
        "LowNodeLoad",
        {"anomalyCondition": AT_ONCE, **THRESHOLDS},
    ),
    controller: JsonObject | None = None,
    **whole: Any,
) -> ProvingWorld:
    """Return a world whose pods are scheduled as the chart has it."""
    name, args = plugin
    one = ProvingWorld.__new__(ProvingWorld)
    profile = {
        "plugins": {"balance": {"enabled": [{"name": name}]}},
        "pluginConfig": [
            {"name": name, "args": args},
            {"name": "MigrationController", "args": controller or {}},
        ],
    }
    DeschedulerWorld.__init__(
        one, *objects, profile=profile, prover=default_configuration(), **whole
    )
    return one


def _only(*pools: str) -> JsonObject:
    expression = {"key": "pool", "operator": "In", "values": list(pools)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"requiredDuringSchedulingIgnoredDuringExecution": terms}


def why(one: DeschedulerWorld) -> dict[str, SkipReason]:
    """Return the pods that stay although a plugin wants them to go."""
    return {
        verdict.pod.metadata.name: verdict.skipped.why
        for verdict in one.verdicts
        if isinstance(verdict.skipped, SkippedMove)
    }


def detail(one: DeschedulerWorld) -> str:
    return " | ".join(str(verdict.skipped) for verdict in one.verdicts if verdict.skipped)


def nodes(*names: str, cpu: int = 10) -> list[KubeObject]:
    return [node(name, cpu) for name in names]


# -- the complaints ------------------------------------------------------------------------------


def test_pod_that_would_return_to_its_node_is_skipped() -> None:
    """The scheduler prefers n1 for it, however hot that is."""
    objects = [
        *nodes("n1", "n2"),
        running("homesick", affinity=ON_N1_IF_POSSIBLE),
        load("n1", homesick="8"),
        load("n2"),
    ]
    assert world(*objects, proveMoves=False, args={"nodeFit": False}).evicted() == {"homesick"}
    one = world(*objects, args={"nodeFit": False})
    assert one.evicted() == set()
    assert why(one) == {"homesick": SkipReason.COMES_BACK}
    assert "n1" in detail(one)


def test_pod_that_overloads_every_node_is_skipped() -> None:
    """Wherever it goes it is too hot: it would be evicted there in five minutes."""
    objects = [
        *nodes("n1", "n2"),
        running("large"),
        running("small", cpu="4"),
        load("n1", large="7", small="0"),
        load("n2"),
    ]
    args = {"nodeFit": False}
    assert world(*objects, proveMoves=False, args=args).evicted() == {"large"}
    one = world(*objects, args=args)
    assert one.evicted() == set()
    assert why(one)["large"] is SkipReason.NO_GAIN
    assert "n2 would be overutilized instead: cpu usage(70.00%)>threshold(60.00%)" in detail(one)


def test_pod_that_fits_on_no_other_node_is_skipped() -> None:
    """Replicas on both nodes keep away from each other, which the fit check can't see.

    A job would be made, its reservation would wait until it is given up, again and again.
    """
    apart = {"podAntiAffinity": near("web", key="kubernetes.io/hostname")}
    web = [
        replace(each, metadata=replace(each.metadata, labels={"app": "web"}),
                spec=replace(each.spec, affinity=pod("x", affinity=apart).spec.affinity))
        if isinstance(each, Pod) else each
        for each in replicas("web", on=["n1", "n2"])
    ]  # fmt: skip
    objects = [*nodes("n1", "n2"), *web, load("n1", **{"web-0": "4", "x": "3"}), load("n2")]
    assert len(migrating(*objects, proveMoves=False).jobs()) == 1
    one = migrating(*objects)
    assert one.jobs() == []
    assert why(one) == {"web-0": SkipReason.NO_PLACE}
    assert "0/2 nodes are available" in detail(one)
    assert "anti-affinity" in detail(one)


def test_logged_evictions_are_made_and_skipped_moves_are_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Skipped moves are counted and reported once, and not logged as evicted."""
    apart = {"podAntiAffinity": near("web", key="kubernetes.io/hostname")}
    objects = [
        *nodes("n1", "n2"),
        running("goes", cpu="1"),
        running("stays", labels={"app": "web"}, affinity=ON_N1_IF_POSSIBLE),
        running("heavy", cpu="4"),
        running("other", "n2", labels={"app": "web"}, affinity=apart),
        load("n1", goes="1", stays="1", heavy="7"),
        load("n2"),
    ]
    registry = CollectorRegistry()
    one = world(*objects, metrics=DeschedulerMetrics(registry))
    with caplog.at_level(logging.INFO):
        evicted = one.evicted()
        one.descheduler.request_cycle()
        one.descheduler.step()
    logged = {(r.message, r.__dict__.get("pod")) for r in caplog.records if "pod" in r.__dict__}
    assert {name for what, name in logged if what == "pod evicted"} == {
        f"default/{n}" for n in evicted
    }
    stays = [verdict for verdict in one.verdicts if isinstance(verdict.skipped, SkippedMove)]
    assert stays
    events = [event for event in one.cluster.list(Event).items if event.reason == "NotMoved"]
    assert {event.regarding.name for event in events if event.regarding} == {
        verdict.pod.metadata.name for verdict in stays
    }
    for verdict in stays:
        labels = {
            "result": str(verdict.skipped.why) if isinstance(verdict.skipped, SkippedMove) else "",
            "strategy": "LowNodeLoad",
            "namespace": "default",
            "node": "n1",
        }
        assert registry.get_sample_value("descheduler_pods_evicted_total", labels)


# -- what is proven ------------------------------------------------------------------------------


def test_job_of_a_proven_move_has_its_proof() -> None:
    """The reservation would land on n2, the pod leaves n1, its replacement uses it."""
    objects = [*nodes("n1", "n2"), *replicas("web", on=["n1", "n1"]),
               load("n1", **{"web-0": "4", "web-1": "3"}), load("n2")]  # fmt: skip
    one = migrating(*objects)
    (job,) = one.jobs()
    proven = PROVEN_MOVE.read(job.metadata)
    assert proven is not None
    assert (proven.source, proven.target, proven.lineage) == ("n1", "n2", "ReplicaSet-web")
    assert proven.gain == "n1: 10.00 percentage points closer to its threshold"
    (verdict,) = one.verdicts
    assert (verdict.target, verdict.skipped) == ("n2", None)


def test_workload_does_not_return_to_a_node_within_the_move_memory() -> None:
    """From n1 to n2; when n2 is hot and n1 cool, it stays, until half an hour has passed."""
    objects = [*nodes("n1", "n2"), *replicas("web", on=["n1", "n1"], cpu=1)]
    one = migrating(*objects, load("n1", **{"web-0": "4", "web-1": "3"}), load("n2"))
    (job,) = one.jobs()
    name = job.spec.pod_ref.name
    moved = one.cluster.get(Pod, name, "default")
    one.cluster.delete(PodMigrationJob, job.metadata.name)
    one.cluster.delete(Pod, name, "default", grace_period_s=0)
    one.cluster.load([replace(moved, spec=replace(moved.spec, node_name="n2"))])

    def again() -> list[PodMigrationJob]:
        for report in (load("n1"), load("n2", **{name: "4", "x": "3"})):
            assert isinstance(report, NodeMetric)
            at = to_datetime(one.clock.now_s())
            one.cluster.overwrite(replace(report, status=replace(report.status, update_time=at)))
        one.verdicts.clear()
        one.descheduler.request_cycle()
        return one.jobs()

    assert again() == []
    assert why(one) == {name: SkipReason.CIRCLE}
    assert "its workload left n1 0 s ago" in detail(one)
    one.clock.advance_to(one.clock.now_s() + 31 * 60)
    assert len(again()) == 1


def test_move_memory_is_restored_from_jobs() -> None:
    objects = [*nodes("n1", "n2"), *replicas("web", on=["n1", "n1"])]
    one = migrating(*objects, load("n1", **{"web-0": "4", "web-1": "3"}), load("n2"))
    (job,) = one.jobs()
    memory = MoveMemory(1800.0)
    memory.observe(job)
    assert memory.left_ago_s("ReplicaSet-web", "n1", one.clock.now_s() + 60) is not None
    assert memory.left_ago_s("ReplicaSet-web", "n2", one.clock.now_s() + 60) is None


def test_pods_of_unknown_schedulers_are_skipped() -> None:
    objects = [*nodes("n1", "n2"), running("x", schedulerName="volcano"), load("n1", x="7"),
               load("n2")]  # fmt: skip
    one = world(*objects, args={"nodeFit": False})
    assert one.evicted() == set()
    assert why(one) == {"x": SkipReason.FOREIGN}
    assert "'volcano' is not one of default-scheduler" in detail(one)


def test_move_rejected_by_a_quota_is_skipped() -> None:
    """The replacement may use what the pod gives back, and no more than its quota has."""
    quota = made(
        "ElasticQuota",
        "team",
        "scheduling.sigs.k8s.io/v1alpha1",
        metadata={"namespace": "default"},
        spec={"max": {"cpu": "2"}, "min": {"cpu": "2"}},
    )
    label = {"quota.scheduling.koordinator.sh/name": "team"}
    pods = [
        replace(each, metadata=replace(each.metadata, labels=label))
        if isinstance(each, Pod)
        else each
        for each in replicas("web", on=["n1", "n1"], cpu=1)
    ]
    objects = [*nodes("n1", "n2"), quota, *pods,
               load("n1", **{"web-0": "4", "web-1": "3"}), load("n2")]  # fmt: skip
    one = migrating(*objects)
    one.jobs()
    assert set(why(one).values()) <= {SkipReason.NO_PLACE}
    if one.verdicts[0].skipped:  # the reservation counts beside the pod while both are there
        assert "quota" in detail(one).lower()


def test_moves_of_upstream_plugins_are_proven_only_if_configured() -> None:
    """By default they do as they always did."""
    objects = [*nodes("n1", "n2"), running("old", affinity=ON_N1_IF_POSSIBLE, started="08:30")]
    profile = profile_of("deschedule", "PodLifeTime", {"maxPodLifeTimeSeconds": 1})
    for configured, evicted in ((None, {"old"}), (True, set()), (False, {"old"})):
        more: dict[str, Any] = {} if configured is None else {"proveMoves": configured}
        one = DeschedulerWorld(*objects, profile=profile, prover=STOCK, **more)
        one.clock.advance_to(one.clock.now_s() + 60)
        assert one.evicted() == evicted


def test_profile_overrides_prove_moves() -> None:
    objects = [*nodes("n1", "n2"), running("homesick", affinity=ON_N1_IF_POSSIBLE),
               load("n1", homesick="8"), load("n2")]  # fmt: skip
    given = {"anomalyCondition": AT_ONCE, **THRESHOLDS, "nodeFit": False}
    profile = {**profile_of("balance", "LowNodeLoad", given), "proveMoves": False}
    one = DeschedulerWorld(*objects, profile=profile, prover=STOCK, proveMoves=True)
    assert one.evicted() == {"homesick"}


def test_proofs_include_earlier_moves_of_the_cycle() -> None:
    """Two pods of three cores leave a hot node; each of the cool ones has room for one of them."""
    objects = [
        *nodes("n1", "n2", "n3", cpu=10),
        *[running(f"p{i}", cpu="2") for i in range(4)],
        load("n1", p0="2500m", p1="2500m", p2="2500m", p3="2500m"),
        load("n2", x="2500m"),
        load("n3", x="2500m"),
    ]
    one = world(*objects, args={"highThresholds": {"cpu": 50}})
    assert len(one.evicted()) == 2
    assert sorted(v.target for v in one.verdicts if v.skipped is None) == ["n2", "n3"]


def test_pending_move_counts_on_its_target() -> None:
    """The job awaits arbitration; n2 has room for either pod, and would be hot with both."""
    pods = replicas("web", on=["n1", "n1", "n1"], cpu=1)
    heat = {"web-0": "3", "web-1": "3", "web-2": "3"}
    limits = {
        "maxMigratingPerWorkload": 3,
        "maxUnavailablePerWorkload": 3,
        "skipCheckExpectedReplicas": True,
        "arbitrationArgs": {"interval": "10m"},
    }
    objects = [*nodes("n1", "n2"), *pods, load("n1", **heat), load("n2", x="2")]
    one = migrating(*objects, controller=limits, maxNoOfPodsToEvictTotal=1)
    one.descheduler.run_cycle()
    (first,) = one.cluster.list(PodMigrationJob).items
    one.verdicts.clear()
    one.descheduler.step(leads=False)
    one.descheduler.run_cycle()

    assert list(one.cluster.list(PodMigrationJob).items) == [first]
    assert set(why(one).values()) == {SkipReason.NO_GAIN}
    assert "n2 would be overutilized instead: cpu usage(80.00%)>threshold(60.00%)" in detail(one)


@pytest.mark.parametrize("leaves_by", ["job", "paused job", "deletion"])
def test_pod_that_leaves_no_longer_counts_on_its_node(leaves_by: str) -> None:
    """The report still has it, but no other pod has to go for it; a paused job moves nothing."""
    pods = replicas("web", on=["n1", "n1", "n1"], cpu=1)
    here = load("n1", **{"web-0": "4", "web-1": "4", "web-2": "100m"})
    limits = {
        "maxMigratingPerWorkload": 3,
        "skipEvictionGates": ["MaxUnavailablePerWorkload"],
        "skipCheckExpectedReplicas": True,
        "arbitrationArgs": {"interval": "10m"},
    }
    if leaves_by == "deletion":
        ends = replace(pods[2].metadata, deletion_timestamp=to_datetime(START_S))
        pods[2] = replace(pods[2], metadata=ends)
    one = migrating(
        *nodes("n1", "n2", "n3"), *pods, here, load("n2"), load("n3"), controller=limits
    )
    if leaves_by != "deletion":
        one.cluster.create(job("move", "web-0", paused=leaves_by == "paused job"))
    one.descheduler.step(leads=False)

    one.descheduler.run_cycle()

    moved = {each.spec.pod_ref.name for each in one.cluster.list(PodMigrationJob).items}
    assert ("web-1" in moved) is (leaves_by == "paused job")


@pytest.mark.parametrize("is_measured", [False, True])
def test_pod_newer_than_the_report_counts_with_its_requests(
    is_measured: bool,
) -> None:
    """Requests count until the pod has been measured."""
    came = running("new", "n2", "4")
    at = to_datetime(START_S)
    came = replace(came, metadata=replace(came.metadata, creation_timestamp=at))
    there = load("n2", x="1", **({"new": "1"} if is_measured else {}))
    here = [running("p"), running("filler", cpu="6"), load("n1", p="3", x="4")]
    one = world(*nodes("n1", "n2"), *here, there, came, args={"nodeFit": False})

    assert one.evicted() == ({"p"} if is_measured else set())
    assert is_measured or why(one)["p"] is SkipReason.NO_GAIN


def test_node_is_drained_only_if_all_its_pods_fit() -> None:
    """The last pod keeps the first ones where they are: half a node is nothing."""
    objects = [
        node("old", 4, labels={"pool": "old"}),
        node("new", 4, labels={"pool": "new"}),
        running("a", "old", "1"),
        running("b", "old", "1", affinity={"nodeAffinity": _only("old")}),
    ]
    levels = [
        {"name": name, "nodeSelector": {"matchLabels": {"pool": name}}} for name in ("old", "new")
    ]
    for mode, evicted in (("BestEffort", {"a"}), ("DrainNode", set())):
        args = {"evictionOrder": levels, "mode": mode, "nodeFit": False, "autoCordon": True}
        profile = profile_of("balance", "CustomPriority", args)
        one = DeschedulerWorld(*objects, profile=profile, prover=STOCK)
        assert one.evicted() == evicted, mode
        assert not one.cluster.get(Node, "old").spec.unschedulable


def test_drained_node_is_cordoned_in_the_dry_run() -> None:
    """The scheduler would otherwise put its pods back on the node with the most room."""
    objects = [
        node("old", 40, labels={"pool": "old"}),
        node("new", 4, labels={"pool": "new"}),
        running("a", "old", "1"),
    ]
    levels = [
        {"name": name, "nodeSelector": {"matchLabels": {"pool": name}}} for name in ("old", "new")
    ]
    for cordons, evicted in ((False, set()), (True, {"a"})):
        args = {"evictionOrder": levels, "mode": "DrainNode", "autoCordon": cordons}
        profile = profile_of("balance", "CustomPriority", args)
        one = DeschedulerWorld(*objects, profile=profile, prover=STOCK)
        assert one.evicted() == evicted
        assert one.cluster.get(Node, "old").spec.unschedulable is cordons


@pytest.mark.parametrize("mode", ["BestEffort", "DrainNode"])
@pytest.mark.parametrize("is_proven", [True, False])
def test_finished_pods_do_not_keep_a_node_from_being_emptied(mode: str, is_proven: bool) -> None:
    """Finished pods are not evicted, and a node with finished pods alone is not drained."""
    drains = mode == "DrainNode"
    ended = [running(f"ended{i}", "old", "30", phase="Succeeded") for i in range(6)]
    objects = [
        node("old", 40, labels={"pool": "old"}, unschedulable=not drains),
        node("empty", 1, labels={"pool": "old"}),
        node("new", 4, labels={"pool": "new"}),
        *ended,
        running("last", "empty", "1", phase="Failed"),
        running("z", "old", "1"),
    ]
    levels = [
        {"name": name, "nodeSelector": {"matchLabels": {"pool": name}}} for name in ("old", "new")
    ]
    args = {"evictionOrder": levels, "mode": mode, "autoCordon": drains}
    profile = profile_of("balance", "CustomPriority", args)
    one = DeschedulerWorld(*objects, profile=profile, prover=STOCK if is_proven else None)
    assert one.evicted() == {"z"}
    assert one.cluster.get(Node, "old").spec.unschedulable
    assert not one.cluster.get(Node, "empty").spec.unschedulable


GANG = {
    "pod-group.scheduling.sigs.k8s.io/name": "train",
    "pod-group.scheduling.sigs.k8s.io/min-available": "2",
}


def gang(*on: str, cpu: int = 1) -> list[KubeObject]:
    return [
        replace(each, metadata=replace(each.metadata, labels=GANG))
        if isinstance(each, Pod)
        else each
        for each in replicas("train", on=on, cpu=cpu)
    ]


def gang_on_a_hot_node() -> list[KubeObject]:
    """Return a gang with a member on n1, which is hot, and one on n2."""
    return [
        *nodes("n1", "n2", "n3"),
        *gang("n1", "n2"),
        running("filler", cpu="6"),
        load("n1", **{"train-0": "3", "x": "4"}),
        load("n2", **{"train-1": "1"}),
        load("n3"),
    ]


def test_gang_moves_as_a_whole() -> None:
    """One member is on a hot node: jobs for both, directly, and both begin at once."""
    args = {"maxMigratingPerWorkload": 2, "maxUnavailablePerWorkload": 2,
            "skipCheckExpectedReplicas": True}  # fmt: skip
    objects = gang_on_a_hot_node()
    one = migrating(*objects, controller=args)
    jobs = one.jobs()
    assert {job.spec.pod_ref.name for job in jobs} == {"train-0", "train-1"}
    assert {job.spec.mode for job in jobs} == {"EvictDirectly"}
    proven = [PROVEN_MOVE.read(job.metadata) for job in jobs]
    assert {each.gang_size for each in proven if each} == {2}
    one.advance(2)
    assert one.passed() == {job.metadata.name for job in jobs}


def test_gang_is_skipped_if_limits_protect_a_member() -> None:
    """Limits allow one eviction at a time, so none is made."""
    args = {"maxMigratingPerWorkload": 1, "maxUnavailablePerWorkload": 2,
            "skipCheckExpectedReplicas": True}  # fmt: skip
    objects = gang_on_a_hot_node()
    one = migrating(*objects, controller=args)
    assert one.jobs() == []
    assert one.pods() == {"filler", "train-0", "train-1"}


def test_gang_without_room_for_all_members_is_skipped() -> None:
    args = {"maxMigratingPerWorkload": 2, "maxUnavailablePerWorkload": 2,
            "skipCheckExpectedReplicas": True}  # fmt: skip
    objects = [
        node("n1", 10, unschedulable=True),
        node("n2", 2),
        *gang("n1", "n2", cpu=2),
        load("n1", **{"train-0": "3", "x": "4"}),
        load("n2"),
    ]
    given = {"anomalyCondition": AT_ONCE, **THRESHOLDS, "nodeFit": False}
    one = migrating(*objects, plugin=("LowNodeLoad", given), controller=args)
    assert one.jobs() == []
    assert why(one)["train-0"] is SkipReason.NO_PLACE


MOVES_ALL = {"maxMigratingPerWorkload": 2, "maxUnavailablePerWorkload": 2,
             "skipCheckExpectedReplicas": True}  # fmt: skip


def chain() -> tuple[list[KubeObject], tuple[str, JsonObject]]:
    """Return full nodes: the gold pod fits on silver only when the silver one is on bronze."""
    levels = ("gold", "silver", "bronze")
    selects = {"gold": ("gold", "silver"), "silver": ("silver", "bronze")}
    objects: list[KubeObject] = [node(name, 2, labels={"pool": name}) for name in levels]
    for name, pools in selects.items():
        affinity = pod("x", affinity={"nodeAffinity": _only(*pools)}).spec.affinity
        objects += [
            replace(each, spec=replace(each.spec, affinity=affinity))
            if isinstance(each, Pod)
            else each
            for each in replicas(f"{name}-app", on=[name], cpu=2)
        ]
    order = [{"name": each, "nodeSelector": {"matchLabels": {"pool": each}}} for each in levels]
    return objects, ("CustomPriority", {"evictionOrder": order, "nodeFit": False})


def test_move_into_freed_room_waits_for_the_other_job() -> None:
    """The second job begins when the first one has ended."""
    objects, plugin = chain()
    one = migrating(*objects, plugin=plugin, controller=MOVES_ALL)
    jobs = {job.spec.pod_ref.name: job for job in one.jobs()}
    assert {v.pod.metadata.name: (v.target, v.after) for v in one.verdicts} == {
        "silver-app-0": ("bronze", ()),
        "gold-app-0": ("silver", ("default/silver-app-0",)),
    }
    first, then = jobs["silver-app-0"].metadata.name, jobs["gold-app-0"].metadata.name
    one.advance(2)
    assert one.passed() == {first}
    one.cluster.delete(PodMigrationJob, first)
    one.advance(2)
    assert one.passed() == {then}


def test_direct_eviction_skips_moves_into_freed_room() -> None:
    """The next cycle finds the room."""
    objects, (name, args) = chain()
    bare = [replace(each, spec=replace(each.spec, scheduler_name="default-scheduler"))
            if isinstance(each, Pod) else each for each in objects]  # fmt: skip
    one = DeschedulerWorld(*bare, profile=profile_of("balance", name, args), prover=STOCK)
    assert one.evicted() == {"silver-app-0"}
    assert set(why(one)) == {"gold-app-0"}


def test_moves_do_not_depend_on_the_order_of_objects() -> None:
    objects = [
        *nodes("n1", "n2", "n3", "n4"),
        *replicas("web", on=["n1"] * 4),
        *replicas("db", on=["n2"] * 3),
        load("n1", **{f"web-{i}": "2" for i in range(4)}),
        load("n2", **{f"db-{i}": "2500m" for i in range(3)}),
        load("n3"),
        load("n4"),
    ]
    args = {"maxMigratingPerNode": 10, "maxMigratingPerWorkload": 10,
            "maxUnavailablePerWorkload": 10, "skipCheckExpectedReplicas": True}  # fmt: skip

    def moves(given: list[KubeObject]) -> list[tuple[str, str, str]]:
        one = migrating(*given, controller=args)
        one.jobs()
        return [(v.pod.key, v.target, str(v.skipped)) for v in one.verdicts]

    first = moves(objects)
    assert any(target for _, target, _ in first)
    assert moves(objects[::-1]) == first
    assert moves(objects) == first


# -- several at a time, and one after the other ---------------------------------------------------


def test_simultaneous_evictions_are_proven_together() -> None:
    """Each pod alone would move; without both, n1 would be the emptiest and get one back."""
    objects = [
        *nodes("n1", "n2", "n3"),
        running("a", cpu="3"),
        running("b", cpu="3"),
        running("x", "n2", "2"),
        running("y", "n3", "2"),
        load("n1", a="2", b="2", other="5"),
        load("n2", x="1"),
        load("n3", y="1"),
    ]
    one = world(*objects)
    evicted = one.evicted()
    assert len(evicted) == 1
    (stays,) = {"a", "b"} - evicted
    assert why(one)[stays] is SkipReason.COMES_BACK
    assert f"with this move, default/{next(iter(evicted))} would return to n1" in detail(one)


@pytest.mark.parametrize("mode", ["EvictDirectly", "ReservationFirst"])
def test_room_of_a_pending_move_is_not_used_twice(mode: str) -> None:
    """n2 takes one of the two; its job waits for arbitration while the next cycle runs."""
    objects = [
        *nodes("n1", "n2"),
        *replicas("web", on=["n1", "n1"], cpu=1),
        *replicas("big", on=["n1", "n1"], cpu=4),
        running("filler", "n2", "4"),
        load("n1", **{"big-0": "4", "big-1": "4"}),
        load("n2", filler="1"),
    ]
    limits = {"maxMigratingPerWorkload": 2, "maxUnavailablePerWorkload": 2,
              "skipCheckExpectedReplicas": True, "defaultJobMode": mode,
              "arbitrationArgs": {"interval": "10m"}}  # fmt: skip
    one = migrating(*objects, controller=limits, maxNoOfPodsToEvictTotal=1)
    one.descheduler.run_cycle()
    (first,) = one.cluster.list(PodMigrationJob).items
    assert first.spec.pod_ref.name in {"big-0", "big-1"}
    one.verdicts.clear()
    one.descheduler.step(leads=False)
    one.descheduler.run_cycle()
    jobs = {job.spec.pod_ref.name for job in one.cluster.list(PodMigrationJob).items}
    assert len(jobs & {"big-0", "big-1"}) == 1
    other = ({"big-0", "big-1"} - jobs).pop()
    assert why(one)[other] in {SkipReason.NO_PLACE, SkipReason.COMES_BACK}


def test_skipped_gang_leaves_the_fork_unchanged() -> None:
    """Two members on hot nodes request the whole gang twice; one may be moved: another one is."""
    objects = [
        *nodes("n1", "n2", "n3"),
        *gang("n1", "n2"),
        *replicas("web", on=["n1"], cpu=1),
        load("n1", **{"train-0": "4", "web-0": "1", "x": "4"}),
        load("n2", **{"train-1": "4", "x": "4"}),
        load("n3"),
    ]
    args = {"maxMigratingPerWorkload": 2, "maxUnavailablePerWorkload": 2,
            "skipCheckExpectedReplicas": True}  # fmt: skip
    one = migrating(*objects, controller=args, maxNoOfPodsToEvictTotal=1)
    assert {job.spec.pod_ref.name for job in one.jobs()} == {"web-0"}
