"""A YARN cluster that is played, and a Kubernetes cluster with a manager and an operator beside it.

``PlayedYarn`` behaves as a ResourceManager of Hadoop 3.3.6 was seen to (tests/e2e/yarn asks a real
one): it grants containers up to a limit, forgets limits of NodeManagers that register again, ends
the newest containers beyond a limit, and may lose answers.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.unit.manager.configuration.test_checks import config
from tests.unit.manager.node_resources.nodes import amounts, metric

from koordinator.api.annotations.node import ORIGIN_EXTENDED_ALLOCATABLE
from koordinator.api.codec import decode, to_manifest
from koordinator.api.event import Event
from koordinator.api.meta import JsonObject
from koordinator.api.node import Node
from koordinator.api.node_metric import NodeMetric
from koordinator.api.pod import Pod
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.domain.pod_requests import pod_requests
from koordinator.foundation.clock import VirtualClock, to_datetime
from koordinator.hadoop.amounts import (
    NOTHING,
    BatchAmounts,
    YarnResource,
    batch_amounts,
)
from koordinator.hadoop.configuration import DEFAULT_CLUSTER
from koordinator.hadoop.port import UnknownYarnNodeError, YarnError, YarnLimit, YarnNode
from koordinator.manager.app import Manager, ManagerOptions
from koordinator.yarn.app import YarnOperator, YarnOptions
from koordinator.yarn.follower import YarnFollower

BATCH_CPU, BATCH_MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"
NODE_ID = "n1.example:8041"
REGISTERED = YarnResource(1, 1024)
START_S = 1_800_000_000.0


@dataclass
class PlayedNodeManager:
    """A NodeManager; ``is_up`` once it has registered."""

    limit: YarnResource = REGISTERED
    containers: list[YarnResource] = field(default_factory=list)
    is_up: bool = True

    @property
    def used(self) -> YarnResource:
        return YarnResource(
            sum(each.vcores for each in self.containers),
            sum(each.memory_mb for each in self.containers),
        )

    def start(self, container: YarnResource) -> bool:
        """Start a container if there is room for it; return whether there was."""
        used = self.used
        after = YarnResource(used.vcores + container.vcores, used.memory_mb + container.memory_mb)
        if not self.is_up or not self.limit.covers(after):
            return False
        self.containers.append(container)
        return True

    def preempt(self) -> None:
        """End the newest containers beyond the limit, as when a grace period is over."""
        while self.containers and not self.limit.covers(self.used):
            self.containers.pop()


class PlayedYarn:
    """``hadoop.port.ResourceManager`` in memory."""

    def __init__(self, *node_ids: str) -> None:
        self.managers = {node_id: PlayedNodeManager() for node_id in node_ids or (NODE_ID,)}
        self.requests: list[YarnLimit] = []
        self.is_reachable = True
        self.loses_answers = False
        self.lies = False  # answers that it has done what it has not
        self.applies_late = False
        self.refuses = ""
        self.late: list[YarnLimit] = []

    @property
    def only(self) -> PlayedNodeManager:
        """The NodeManager where there is one."""
        (manager,) = self.managers.values()
        return manager

    def nodes(self) -> list[YarnNode]:
        self._check()
        return [self._node(each) for each, it in self.managers.items() if it.is_up]

    def node(self, node_id: str) -> YarnNode | None:
        self._check()
        return self._node(node_id)

    def set_limit(self, limit: YarnLimit) -> None:
        self._check()
        self.requests.append(limit)
        manager = self.managers.get(limit.node_id)
        if manager is None or not manager.is_up:
            raise UnknownYarnNodeError(f"{limit.node_id}: unknown")
        if self.lies:
            return
        if self.applies_late:
            self.late.append(limit)
            raise YarnError("timed out")
        manager.limit = limit.resource
        if self.loses_answers:
            raise YarnError("connection reset")

    def catch_up(self) -> None:
        """Apply requests whose answers were not waited for."""
        for limit in self.late:
            self.managers[limit.node_id].limit = limit.resource
        self.late.clear()

    def signal_container(self, container_id: str) -> None:
        raise NotImplementedError(container_id)

    def is_active(self) -> bool:
        return True

    def close(self) -> None:
        pass

    def _check(self) -> None:
        if not self.is_reachable:
            raise YarnError("connection refused")

    def _node(self, node_id: str) -> YarnNode:
        manager = self.managers.get(node_id)
        if manager is None or not manager.is_up:
            raise UnknownYarnNodeError(f"{node_id}: unknown")
        return YarnNode(node_id, "RUNNING", manager.limit, manager.used, len(manager.containers))


def kube_node(name: str = "n1", cpus: int = 10, memory: str = "16Gi", **meta: Any) -> Node:
    """Return a node that gives all it has, once its use is reported."""
    headroom = {"cpu": cpus, "memory": memory}
    status = {"capacity": headroom, "allocatable": headroom}
    return decode({"metadata": {"name": name, **meta}, "status": status}, Node)


def node_manager_pod(
    node: str = "n1", node_id: str = NODE_ID, name: str = "nm", **annotations: str
) -> Pod:
    """Return the pod of a NodeManager; without ``node_id`` it has no such annotation."""
    noted = {"yarn.hadoop.apache.org/node-id": node_id} if node_id else {}
    meta = {
        "name": name,
        "namespace": "hadoop-yarn",
        "labels": {"app.kubernetes.io/component": "node-manager"},
        "annotations": {**noted, **annotations},
    }
    spec = {"nodeName": node, "containers": [{"name": "nm"}]}
    return decode({"metadata": meta, "spec": spec, "status": {"phase": "Running"}}, Pod)


def batch_pod(name: str, cpu_milli: int, memory_bytes: int, node: str = "n1") -> Pod:
    """Return a pod that requests batch resources; without ``node`` it found no room."""
    requests = {BATCH_CPU: str(cpu_milli), BATCH_MEMORY: str(memory_bytes)}
    status: JsonObject = {"phase": "Running" if node else "Pending"}
    if not node:
        status["conditions"] = [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        ]
    spec = {
        "nodeName": node,
        "containers": [{"name": "c", "resources": {"requests": requests, "limits": requests}}],
    }
    meta = {"name": name, "namespace": "default"}
    return decode({"metadata": meta, "spec": spec, "status": status}, Pod)


class YarnWorld:
    """A cluster in memory, its manager, a YARN cluster, and the operator between them."""

    def __init__(
        self,
        yarn: PlayedYarn | None = None,
        options: YarnOptions | None = None,
        nodes: Iterable[Node] = (),
        **colocation: Any,
    ) -> None:
        self.clock = VirtualClock(START_S)
        self.cluster = MemoryCluster(self.clock)
        self.yarn = yarn or PlayedYarn()
        self.options = options or YarnOptions()
        settings = {
            "enable": True,
            "cpuReclaimThresholdPercent": 100,
            "memoryReclaimThresholdPercent": 100,
            **colocation,
        }
        self.cluster.create(config(colocation=settings))
        self.cluster.load(list(nodes) or [kube_node()])
        self.restart_manager()
        self.restart_operator()

    def restart_manager(self) -> None:
        self.manager = Manager(self.cluster, self.clock, ManagerOptions())

    def restart_operator(self) -> None:
        """Restart with nothing in memory, as after kill -9."""
        self.followers = {
            DEFAULT_CLUSTER: YarnFollower(DEFAULT_CLUSTER, lambda: self.yarn, self.clock)
        }
        self.operator = YarnOperator(self.cluster, self.clock, self.followers, self.options)

    def run(self, seconds: float = 5.0) -> None:
        """Run all components for so long."""
        until_s = self.clock.now_s() + seconds
        while self.clock.now_s() < until_s:
            self.step()
            self.clock.advance_to(self.clock.now_s() + 0.5)

    def step(self) -> None:
        """Run all components until they are idle, without time passing."""
        busy = True
        while busy:
            busy = bool(self.manager.step())
            for follower in self.followers.values():
                follower.round()
            busy |= bool(self.operator.step())

    def uses(self, cpus: float, memory_gib: float, node: str = "n1") -> None:
        """Report what the system of a node uses."""
        used = amounts(f"{int(cpus * 1000)}m", int(memory_gib * (1 << 30)))
        report = metric(used=used, system=used, when=to_datetime(self.clock.now_s()), name=node)
        status = to_manifest(report)["status"]
        self.manager.step()  # it makes the object
        self.cluster.patch(NodeMetric, node, "", {"status": status}, "status")

    # -- what is to be seen ------------------------------------------------------------------

    def node(self, name: str = "n1") -> Node:
        return self.cluster.get(Node, name)

    def origin(self, name: str = "n1") -> BatchAmounts:
        """Return what the manager calculated."""
        node = self.node(name)
        noted = ORIGIN_EXTENDED_ALLOCATABLE.read(node.metadata)
        return batch_amounts(noted.resources if noted is not None else node.status.allocatable)

    def shown(self, name: str = "n1") -> BatchAmounts:
        """Return what pods are scheduled by."""
        return batch_amounts(self.node(name).status.allocatable)

    def requested(self, name: str = "n1") -> BatchAmounts:
        """Return the requests of pods on a node."""
        total = NOTHING
        for pod in self.cluster.list(Pod, field_selector=f"spec.nodeName={name}").items:
            requests = pod_requests(pod.spec)
            total = total.plus(
                BatchAmounts(requests.get(BATCH_CPU, 0), requests.get(BATCH_MEMORY, 0))
            )
        return total

    def limit(self, node_id: str = NODE_ID) -> YarnResource:
        """Return what YARN may hand out."""
        return self.yarn.managers[node_id].limit

    def warnings(self) -> Sequence[tuple[str, str]]:
        """Return reason and note of the events about nodes."""
        return [(each.reason, each.note) for each in self.cluster.list(Event).items]
