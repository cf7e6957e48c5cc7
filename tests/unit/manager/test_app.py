"""The manager on an in-memory cluster: what it does as things happen, and when nothing does."""

import json
from typing import Any

import pytest
from tests.unit.manager.configuration.test_checks import config
from tests.unit.manager.node_resources.nodes import NOW, amounts, metric, node, pod

from koordinator.api.codec import to_manifest
from koordinator.api.core import ConfigMap
from koordinator.api.elastic_quota import (
    ElasticQuota,
    ElasticQuotaProfile,
    ElasticQuotaProfileSpec,
)
from koordinator.api.event import Event
from koordinator.api.labels import QUOTA_PROFILE
from koordinator.api.meta import JsonObject, KubeObject, LabelSelector, ObjectMeta
from koordinator.api.node import Node, NodeResourceTopology, Zone, ZoneResource
from koordinator.api.node_metric import NodeMetric
from koordinator.api.node_slo import NodeSlo
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.errors import ClusterError, NotFoundError
from koordinator.foundation.quantity import Quantity
from koordinator.manager.app import Manager, ManagerOptions
from koordinator.manager.controllers import RESYNC_S
from koordinator.manager.mirror import Controller

BATCH = "kubernetes.io/batch-cpu"
ON = {"enable": True}


class Unreliable(MemoryCluster):
    """Fails the next writes of a kind, as an API server does that is overloaded."""

    failing: int = 0
    refused: type[KubeObject] | None = None

    def patch(self, *args: Any, **more: Any) -> Any:
        if self.refused is not None and args[0] is self.refused:
            raise ClusterError("forbidden")
        if self.failing:
            self.failing -= 1
            raise ClusterError("too busy")
        return super().patch(*args, **more)


class World:
    """A cluster, time and a manager."""

    def __init__(self, **options: Any) -> None:
        self.clock = VirtualClock(NOW.timestamp())
        self.cluster = Unreliable(self.clock)
        self.manager = Manager(self.cluster, self.clock, ManagerOptions(**options))

    def add(self, *objects: KubeObject) -> None:
        self.cluster.load(objects)

    def run(self) -> int:
        """Work until nothing is due; return how many objects were looked at."""
        done = 0
        while step := self.manager.step():
            done += step
        return done

    def configure(self, **sections: Any) -> None:
        new = config(**sections)
        try:
            self.cluster.update(new)
        except NotFoundError:
            self.cluster.create(new)

    def report(self, report: NodeMetric) -> None:
        status: JsonObject = to_manifest(report)["status"]
        self.cluster.patch(NodeMetric, report.metadata.name, "", {"status": status}, "status")

    def batch(self, name: str = "n") -> str | None:
        result = self.cluster.get(Node, name).status.allocatable.get(BATCH)
        return None if result is None else str(result)


def test_node_gets_its_objects_and_publishes_its_resources() -> None:
    """From its appearance to the first report, and away with it."""
    world = World()
    world.configure(colocation=ON, resource_threshold={"clusterStrategy": {"enable": True}})
    world.add(node(amounts(10, "10G")))
    world.run()

    spec = world.cluster.get(NodeMetric, "n").spec.metric_collect_policy
    assert spec is not None
    assert spec.report_interval_seconds == 60
    threshold = world.cluster.get(NodeSlo, "n").spec.resource_used_threshold_with_be
    assert threshold is not None
    assert threshold.enable
    assert world.batch() is None

    world.report(metric(used=amounts(1, 0), system=amounts(1, 0)))
    world.run()
    assert world.batch() == "5k"

    world.cluster.delete(Node, "n")
    world.run()
    assert not world.cluster.list(NodeMetric).items
    assert not world.cluster.list(NodeSlo).items


def test_deleted_and_changed_objects_are_restored() -> None:
    """Level-based: it doesn't matter what happened."""
    world = World()
    world.add(node(amounts(10, "10G")))
    world.run()

    world.cluster.delete(NodeSlo, "n")
    world.cluster.patch(
        NodeMetric, "n", "", {"spec": {"metricCollectPolicy": {"reportIntervalSeconds": 1}}}
    )
    world.run()

    assert world.cluster.get(NodeSlo, "n")
    policy = world.cluster.get(NodeMetric, "n").spec.metric_collect_policy
    assert policy is not None
    assert policy.report_interval_seconds == 60


def test_change_requeues_only_the_objects_that_it_concerns() -> None:
    """A report requeues its node; writes of the manager requeue nothing.

    Changes of these fields by other clients requeue the node.
    """
    world = World()
    world.configure(colocation=ON)
    world.add(node(amounts(10, "10G"), annotations={"a": "b"}))
    world.run()
    world.report(metric(used=amounts(1, 0), system=amounts(1, 0)))
    assert world.run() == 1
    assert world.batch() == "5k"

    world.cluster.patch(Node, "n", "", {"status": {"allocatable": {BATCH: "9k"}}}, "status")
    assert world.run() == 1
    assert world.batch() == "5k"
    world.cluster.patch(Node, "n", "", {"metadata": {"labels": {"pool": "a"}}})
    assert world.run() == 3  # with what is measured and protected there


def test_a_report_that_stays_away_ends_the_promise() -> None:
    """At its age limit, although nothing happens then."""
    world = World()
    world.configure(colocation=ON)
    world.add(node(amounts(10, "10G")))
    world.run()
    world.report(metric(used=amounts(0, 0)))
    world.run()
    assert world.batch() == "6k"

    wakeup_s = world.manager.next_wakeup_s()
    assert wakeup_s == pytest.approx(NOW.timestamp() + 900, abs=0.01)
    world.clock.advance_to(wakeup_s or 0.0)
    world.run()

    assert world.batch() is None


def test_a_clock_that_was_fast_is_followed_when_it_is_corrected() -> None:
    """Reports that looked old yield resources again; deadlines use the monotonic clock."""
    world = World()
    wall = FastClock(world.clock)
    world.manager = Manager(world.cluster, world.clock, wall_clock=wall)
    world.configure(colocation=ON)
    world.add(node(amounts(10, "10G")))
    world.run()
    world.report(metric(used=amounts(0, 0)))
    world.run()
    assert world.batch() is None

    wall.fast_s = 0.0
    world.report(metric(used=amounts(0, 1)))
    world.run()
    assert world.batch() == "6k"
    assert world.manager.next_wakeup_s() == pytest.approx(NOW.timestamp() + 900, abs=0.01)


class FastClock:
    """Ahead of another clock, by 20 minutes at first."""

    def __init__(self, right: VirtualClock) -> None:
        self._right = right
        self.fast_s = 1200.0

    def now_s(self) -> float:
        return self._right.now_s() + self.fast_s


def test_a_change_of_the_configuration_reaches_every_node() -> None:
    """Removing the configuration reaches every node as well."""
    world = World()
    for name in ("a", "b"):
        world.add(node(amounts(10, "10G"), name=name))
    world.run()
    for name in ("a", "b"):
        world.report(metric(used=amounts(0, 0), name=name))
    world.run()
    assert [world.batch(name) for name in "ab"] == [None, None]

    world.configure(colocation=ON | {"cpuReclaimThresholdPercent": 50})
    world.run()
    assert [world.batch(name) for name in "ab"] == ["5k", "5k"]

    world.configure(colocation={"enable": False})
    world.run()
    assert [world.batch(name) for name in "ab"] == [None, None]


def test_invalid_configuration_is_reported_and_ignored() -> None:
    """The last valid one counts; a Warning stands beside the ConfigMap."""
    world = World()
    world.configure(resource_threshold={"clusterStrategy": {"cpuSuppressThresholdPercent": 50}})
    world.add(node(amounts(10, "10G")))
    world.run()
    world.configure(resource_threshold={"clusterStrategy": {"cpuSuppressThresholdPercent": 150}})
    world.run()

    threshold = world.cluster.get(NodeSlo, "n").spec.resource_used_threshold_with_be
    assert threshold is not None
    assert threshold.cpu_suppress_threshold_percent == 50
    (event,) = world.cluster.list(Event).items
    assert (event.type, event.reason) == ("Warning", "SLOCfgUnmarshalFailed")
    assert "CPUSuppressThresholdPercent must be 100 or less" in event.note
    assert event.regarding.name == "slo-controller-config"


def test_profiles_of_one_quota_do_not_overwrite_each_other() -> None:
    """One profile maintains the quota; the other has an event until the first is deleted."""
    world = World()
    for name in ("a", "b"):
        spec = ElasticQuotaProfileSpec(quota_name="root", node_selector=LabelSelector())
        meta = ObjectMeta(name=f"profile-{name}", namespace="q")
        world.add(ElasticQuotaProfile(metadata=meta, spec=spec))
    owners = set()
    for _ in range(5):
        world.run()
        world.clock.advance_to(world.clock.now_s() + RESYNC_S)
        (quota,) = world.cluster.list(ElasticQuota).items
        owners.add(quota.metadata.labels[QUOTA_PROFILE])
    (event,) = world.cluster.list(Event).items

    assert owners == {"profile-a"}
    assert (event.reason, event.regarding.name) == ("InvalidQuotaProfile", "profile-b")
    assert event.note == (
        "ElasticQuotaProfile q/profile-b: spec.quotaName: must be unique in its namespace, got "
        "'root' as in ElasticQuotaProfile q/profile-a"
    )
    world.cluster.delete(ElasticQuotaProfile, "profile-a", "q")
    world.run()
    assert world.cluster.get(ElasticQuota, "root", "q").metadata.labels[QUOTA_PROFILE] == (
        "profile-b"
    )


def test_other_config_maps_mean_nothing() -> None:
    """The configuration is the ConfigMap of one namespace and name."""
    world = World(config_name="mine")
    world.add(node(amounts(10, "10G")))
    world.configure(colocation=ON)
    world.run()
    world.report(metric(used=amounts(0, 0)))
    world.run()

    assert world.batch() is None
    assert world.cluster.get(ConfigMap, "slo-controller-config", "koordinator-system")


def test_pods_on_the_node_count() -> None:
    """As they are when something else is the reason to look."""
    world = World()
    world.configure(colocation=ON | {"cpuReclaimThresholdPercent": 100})
    world.add(node(amounts(10, "10G")), pod("new", amounts(4, "1G")))
    world.run()
    world.report(metric(used=amounts(0, 0)))
    world.run()
    assert world.batch() == "6k"

    world.cluster.delete(type(pod("x")), "new", "default")
    world.report(metric(used=amounts(1, 0)))
    world.run()
    assert world.batch() == "10k"


def test_irrelevant_changes_requeue_nothing() -> None:
    """A heartbeat of the kubelet and the event of an own write requeue no object."""
    world = World()
    world.configure(colocation=ON)
    world.add(node(amounts(10, "10G")))
    world.run()

    beat = {"conditions": [{"type": "Ready", "status": "True"}]}
    world.cluster.patch(Node, "n", "", {"status": beat}, "status")

    assert world.run() == 0


def test_a_write_that_fails_is_tried_again_later() -> None:
    """Twice as late each time."""
    world = World()
    world.configure(colocation=ON)
    world.add(node(amounts(10, "10G")))
    world.run()
    world.report(metric(used=amounts(0, 0)))
    world.cluster.failing = 2
    world.run()
    assert world.batch() is None

    for delay_s in (0.005, 0.010):
        wakeup_s = world.manager.next_wakeup_s() or 0.0
        assert wakeup_s == pytest.approx(world.clock.now_s() + delay_s)
        world.clock.advance_to(wakeup_s)
        world.run()

    assert world.batch() == "6k"


def test_refused_topology_does_not_keep_back_the_resources_of_a_node() -> None:
    """A missing permission, or a CRD of another version, concerns one of both objects only."""
    world = World()
    world.configure(colocation=ON)
    ten = Quantity.from_int(10)
    cpu = ZoneResource(name="cpu", capacity=ten, allocatable=ten, available=ten)
    zone = Zone(name="node-0", type="Node", resources=(cpu,))
    topology = NodeResourceTopology(
        metadata=ObjectMeta(name="n"), topology_policies=("None",), zones=(zone,)
    )
    world.add(node(amounts(10, "10G")), topology)
    world.run()
    world.cluster.refused = NodeResourceTopology
    world.report(metric(used=amounts(1, 0), system=amounts(1, 0)))
    world.run()
    assert world.batch() == "5k"
    assert len(world.cluster.get(NodeResourceTopology, "n").zones[0].resources) == 1

    world.cluster.refused = None
    world.clock.advance_to(world.clock.now_s() + 60)
    world.run()
    assert len(world.cluster.get(NodeResourceTopology, "n").zones[0].resources) > 1


def test_only_the_controllers_that_are_on_work() -> None:
    """By the flag --controllers."""
    world = World(controllers=frozenset({Controller.NODE_SLO}))
    world.add(node(amounts(10, "10G")))
    world.run()

    assert world.cluster.list(NodeSlo).items
    assert not world.cluster.list(NodeMetric).items


def test_amplification_follows_its_inputs() -> None:
    """One round after the normalization, without anything else happening."""
    world = World()
    world.configure(
        colocation=ON,
        resource_amplification={"enable": True, "resourceAmplificationRatio": {"memory": 1.2}},
    )
    world.add(
        node(
            amounts(10, "10G"),
            annotations={"node.koordinator.sh/cpu-normalization-ratio": "1.20"},
            labels={"node.koordinator.sh/cpu-normalization-enabled": "true"},
        )
    )
    world.run()

    annotation = "node.koordinator.sh/resource-amplification-ratio"
    result = world.cluster.get(Node, "n").metadata.annotations[annotation]
    assert json.loads(result) == {"cpu": 1.2, "memory": 1.2}
