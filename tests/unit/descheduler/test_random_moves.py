"""Random worlds: what is proven comes true when the scheduler itself does it."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.examples import examples
from tests.unit.descheduler.migration.world import replicas
from tests.unit.descheduler.world import DEFAULT_EVICTOR
from tests.worlds import HOSTNAME, START_S, made, metric, near, node, pod, used

from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.meta import JsonObject, KubeObject
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import PodMigrationJob
from koordinator.api.reservation import Reservation
from koordinator.descheduler.configuration import decode_descheduler_configuration
from koordinator.descheduler.evictor import MoveVerdict
from koordinator.domain.pod_requests import pod_requests
from koordinator.simulator.descheduled import Descheduled
from koordinator.simulator.policies import default_configuration

QUOTA = "quota.scheduling.koordinator.sh/name"
GANG = "pod-group.scheduling.sigs.k8s.io"
MODES = ("at once", "EvictDirectly", "ReservationFirst")
HOT, COOL = 55, 35  # percent
CPU = 10  # of a node


@dataclass
class RandomWorld:
    """Workloads on nodes, one or two with high usage, and a descheduler."""

    rng: np.random.Generator
    mode: str
    verdicts: list[MoveVerdict] = field(default_factory=list)
    usage: dict[str, dict[str, int]] = field(default_factory=dict)  # milli, by node and pod
    gangs: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.nodes = [f"n{i}" for i in range(int(self.rng.integers(3, 7)))]
        self.free = dict.fromkeys(self.nodes, CPU * 1000)
        self.per_node, self.total = int(self.rng.integers(1, 4)), int(self.rng.integers(1, 6))
        objects: list[KubeObject] = [node(name, CPU) for name in self.nodes]
        for index in range(int(self.rng.integers(2, 6))):
            objects += self._workload(f"w{index}")
        objects.append(_quota("team", 6))
        self.pods = {each.metadata.name: each for each in objects if isinstance(each, Pod)}
        self._heat()
        for name in self.nodes:
            pods = {key: used(f"{milli}m") for key, milli in self.usage.get(name, {}).items()}
            objects.append(metric(name, pods=pods))
        self.world = Descheduled(
            decode_descheduler_configuration(self._policy(), "test"),
            now_s=START_S,
            scheduler=default_configuration(),
            prover=default_configuration(),
            on_move=self.verdicts.append,
        )
        if self.rng.random() < 0.4:
            objects.append(_reservation(int(self.rng.integers(1, 4))))
        self.world.load(objects)

    @property
    def moved(self) -> list[MoveVerdict]:
        """The pods that were to go, one per pod."""
        return [each for each in self.verdicts if each.skipped is None]

    def placed(self) -> list[Pod]:
        """Return the pods as they are now."""
        return list(self.world.cluster.list(Pod).items)

    def _workload(self, name: str) -> list[KubeObject]:
        cpu = int(self.rng.choice([1, 1, 2, 3]))
        places = []
        for _ in range(int(self.rng.integers(1, 4))):
            able = [each for each in self.nodes if self.free[each] >= cpu * 1000]
            if able:
                places.append(str(self.rng.choice(able)))
                self.free[places[-1]] -= cpu * 1000
        is_gang = self.rng.random() < 0.2 and len(places) > 1
        kind = str(self.rng.choice(["plain", "plain", "apart", "homesick", "quota"]))
        if kind == "apart":
            places = list(dict.fromkeys(places))
        if is_gang:
            self.gangs.add(name)
        labels = {"app": name} | ({QUOTA: "team"} if kind == "quota" else {})
        if is_gang:
            labels |= {f"{GANG}/name": name, f"{GANG}/min-available": str(len(places))}
        spec: dict[str, Any] = {}
        if kind == "apart":
            spec = {"affinity": {"podAntiAffinity": near(name, key=HOSTNAME)}}
        elif kind == "homesick":
            spec = {"affinity": {"nodeAffinity": _preferring(str(self.rng.choice(self.nodes)))}}
        like = pod("like", str(cpu), **spec)
        scheduler = str(self.rng.choice(["koord-scheduler", "default-scheduler"]))
        return [
            replace(
                each,
                metadata=replace(each.metadata, labels=labels),
                spec=replace(each.spec, affinity=like.spec.affinity),
            )
            if isinstance(each, Pod)
            else each
            for each in replicas(name, on=places, cpu=cpu, scheduler=scheduler)
        ]

    def _heat(self) -> None:
        """Draw the usage of pods: on hot nodes more than they request."""
        hot = set(self.rng.choice(self.nodes, int(self.rng.integers(1, 3)), replace=False).tolist())
        for each in self.pods.values():
            requested_milli = pod_requests(each.spec)["cpu"]
            most = 2.5 if each.spec.node_name in hot else 0.6
            milli = int(requested_milli * float(self.rng.uniform(0.2, most)))
            self.usage.setdefault(each.spec.node_name, {})[each.metadata.name] = milli

    def _policy(self) -> JsonObject:
        load: JsonObject = {
            "anomalyCondition": {"consecutiveAbnormalities": 1, "consecutiveNormalities": 1},
            "lowThresholds": {"cpu": COOL},
            "highThresholds": {"cpu": HOT},
        }
        plugins: JsonObject = {"balance": {"enabled": [{"name": "LowNodeLoad"}]}}
        config: list[JsonObject] = [{"name": "LowNodeLoad", "args": load}]
        if self.mode == "at once":
            plugins |= {"evict": DEFAULT_EVICTOR, "filter": DEFAULT_EVICTOR}
        else:
            controller = {
                "defaultJobMode": self.mode,
                "maxMigratingPerNode": 0,
                "maxMigratingPerWorkload": 3,
                "maxUnavailablePerWorkload": 3,
                "skipCheckExpectedReplicas": True,
                "objectLimiters": {"workload": {"duration": "0s"}},
            }
            config.append({"name": "MigrationController", "args": controller})
        return {
            "apiVersion": "descheduler/v1alpha2",
            "kind": "DeschedulerConfiguration",
            "profiles": [{"plugins": plugins, "pluginConfig": config}],
            "deschedulingInterval": "1h",
            "maxNoOfPodsToEvictPerNode": self.per_node,
            "maxNoOfPodsToEvictTotal": self.total,
        }


def _quota(name: str, cpu: int) -> KubeObject:
    amounts = {"max": {"cpu": str(cpu)}, "min": {"cpu": str(cpu)}}
    return made(
        ElasticQuota.KIND,
        name,
        "scheduling.sigs.k8s.io/v1alpha1",
        metadata={"namespace": "default"},
        spec=amounts,
    )


def _reservation(cpu: int) -> KubeObject:
    requests = {"resources": {"requests": {"cpu": str(cpu)}}}
    return made(
        Reservation.KIND,
        "kept",
        "scheduling.koordinator.sh/v1alpha1",
        spec={
            "owners": [{"labelSelector": {"matchLabels": {"app": "nobody"}}}],
            "ttl": "24h",
            "template": {
                "spec": {
                    "schedulerName": "koord-scheduler",
                    "containers": [{"name": "c", **requests}],
                }
            },
        },
    )


def _preferring(name: str) -> JsonObject:
    wanted = {"key": HOSTNAME, "operator": "In", "values": [name]}
    term = {"weight": 100, "preference": {"matchExpressions": [wanted]}}
    return {"preferredDuringSchedulingIgnoredDuringExecution": [term]}


def _by_place(pods: list[Pod]) -> Counter[tuple[str, str]]:
    return Counter((each.metadata.labels["app"], each.spec.node_name) for each in pods)


@pytest.mark.slow
@settings(max_examples=examples(20), deadline=None)
@given(st.integers(0, 1_000_000), st.sampled_from(MODES))
def test_proven_moves_have_the_predicted_result(seed: int, mode: str) -> None:
    """No pod returns, stays pending or leaves its gang; limits and quotas hold."""
    one = RandomWorld(np.random.default_rng(seed), mode)
    before = one.placed()
    one.world.run_until(START_S + 600)
    if mode != "at once":
        one.world.run_until_jobs_end()
    after = one.placed()
    assert len(after) == len(before)
    assert all(each.spec.node_name for each in after)
    phases = {job.status.phase for job in one.world.cluster.list(PodMigrationJob).items}
    assert phases <= {"Succeeded"}

    was, now = _by_place(before), _by_place(after)
    left = _by_place([verdict.pod for verdict in one.moved])
    for (app, name), count in left.items():
        # Members of a gang that are not wanted elsewhere may start again where they were.
        again = [v for v in one.moved if v.gang and (_app(v), v.target) == (app, name)]
        assert now[app, name] == was[app, name] - count + len(again), f"{app} on {name}"

    assert len(one.moved) <= one.total
    assert all(count <= one.per_node for count in Counter(on(v) for v in one.moved).values())
    for name in {_app(verdict) for verdict in one.moved} & one.gangs:
        members = [each for each in before if each.metadata.labels["app"] == name]
        assert sum(_app(verdict) == name for verdict in one.moved) == len(members)
    of_team = [each for each in after if each.metadata.labels.get(QUOTA) == "team"]
    was_team = [each for each in before if each.metadata.labels.get(QUOTA) == "team"]
    cpu = [sum(pod_requests(e.spec)["cpu"] for e in group) for group in (of_team, was_team)]
    assert cpu[0] <= max(6000, cpu[1])
    for name in one.nodes:
        requested_milli = sum(
            pod_requests(e.spec)["cpu"] for e in after if e.spec.node_name == name
        )
        assert requested_milli <= CPU * 1000


@pytest.mark.slow
@settings(max_examples=examples(25), deadline=None)
@given(st.integers(0, 1_000_000))
@example(204)  # a gang: one member leaves the node to which another goes
@example(79)  # a gang: one member would start again on the node that stays hot
def test_moves_reduce_usage_above_thresholds(seed: int) -> None:
    """No move makes its target hot: as much is used by each pod there as where it was.

    Whatever the order of the moves is: those that leave a node may be the last to be made.
    """
    one = RandomWorld(np.random.default_rng(seed), "ReservationFirst")
    used_by = {name: milli for pods in one.usage.values() for name, milli in pods.items()}
    load = {name: sum(one.usage.get(name, {}).values()) for name in one.nodes}
    most = dict(load)  # before any pod has left
    one.world.run_until(START_S + 600)
    for verdict in one.moved:
        milli = used_by[verdict.pod.metadata.name]
        assert load[on(verdict)] > HOT * CPU * 10 or verdict.gang
        load[on(verdict)] -= milli
        load[verdict.target] += milli
        most[verdict.target] += milli if verdict.target != on(verdict) else 0
        assert most[verdict.target] <= HOT * CPU * 10


def _app(verdict: MoveVerdict) -> str:
    return verdict.pod.metadata.labels["app"]


def on(verdict: MoveVerdict) -> str:
    """Return the node that a pod leaves."""
    return verdict.pod.spec.node_name
