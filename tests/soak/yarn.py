"""Churn through the YARN operator: nodes, NodeManagers and pods that come, fail and go."""

from contextlib import suppress

from prometheus_client import CollectorRegistry
from tests.yarn_clusters import (
    START_S,
    PlayedNodeManager,
    PlayedYarn,
    batch_pod,
    kube_node,
    node_manager_pod,
)

from koordinator.api.meta import KubeObject
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.errors import NotFoundError
from koordinator.hadoop.configuration import DEFAULT_CLUSTER
from koordinator.yarn.app import YarnMetrics, YarnOperator
from koordinator.yarn.follower import YarnFollower

ORIGIN = "node.koordinator.sh/originExtendedAllocatable"


class YarnChurn:
    """An operator and what follows its YARN cluster."""

    name = "yarn-operator"

    def __init__(self) -> None:
        self.clock = VirtualClock(START_S)
        self.cluster = MemoryCluster(self.clock)
        self.yarn = PlayedYarn()
        self.follower = YarnFollower(DEFAULT_CLUSTER, lambda: self.yarn, self.clock)
        self.operator = YarnOperator(
            self.cluster,
            self.clock,
            {DEFAULT_CLUSTER: self.follower},
            metrics=YarnMetrics(CollectorRegistry()),
        )
        self.operator.sync()

    @property
    def roots(self) -> tuple[object, ...]:
        """Everything that lives as long as the process."""
        return self.operator, self.follower

    @property
    def others(self) -> tuple[object, ...]:
        """Containers of the clusters."""
        return self.cluster, self.operator._watch, self.yarn

    def round(self, number: int) -> None:
        """Serve, refuse and fail NodeManagers with new names, and remove them."""
        own, yarn = f"u{number}", self.yarn
        names = [f"n-{own}", f"lost-{own}", f"lying-{own}", f"unclear-{own}"]
        origin = '{"resources":{"kubernetes.io/batch-cpu":"8k","kubernetes.io/batch-memory":"8Gi"}}'
        yarn.managers |= {f"{name}:8041": PlayedNodeManager() for name in names}
        nodes = [kube_node(name, annotations={ORIGIN: origin, own: own}) for name in names]
        pods = [
            *(node_manager_pod(name, f"{name}:8041", f"nm-{name}") for name in names[:-1]),
            node_manager_pod(names[-1], f"nonsense-{own}", f"nm-{names[-1]}"),
            batch_pod(f"etl-{own}", 1000, 1 << 30, names[0]),
            batch_pod(f"waits-{own}", 1000, 1 << 30, ""),
        ]
        self.cluster.load([*nodes, *pods])
        self._step(2)
        yarn.loses_answers = True
        self._step(2)
        yarn.loses_answers, yarn.lies = False, True
        self._step(8)
        yarn.lies = False
        self._step(4)
        for name in names:
            del yarn.managers[f"{name}:8041"]
        for obj in (*pods, *nodes):
            self._lose(obj)
        self._step(60)

    def _step(self, seconds: int) -> None:
        for _ in range(min(seconds, 10)):
            self.clock.advance_to(self.clock.now_s() + max(seconds / 10, 1.0))
            self.follower.round()
            while self.operator.step():
                pass

    def _lose(self, obj: KubeObject) -> None:
        with suppress(NotFoundError):
            meta = obj.metadata
            self.cluster.force_delete(self.cluster.get(type(obj), meta.name, meta.namespace))
