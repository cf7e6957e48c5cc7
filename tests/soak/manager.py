"""Churn through the manager and the look-ups of its webhooks, and through the node agent."""

from collections.abc import Iterator
from contextlib import suppress

from prometheus_client import CollectorRegistry
from tests.worlds import START_S, device, made, metric, node, pod

from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.meta import KubeObject
from koordinator.api.node_metric import NodeMetric
from koordinator.api.node_slo import NodeSlo
from koordinator.api.queue_unit import Queue, QueueUnit
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.errors import NotFoundError
from koordinator.manager.app import PROFILE_CONTROLLER, Manager, ManagerOptions
from koordinator.manager.lookups import WatchLookup
from koordinator.manager.metrics import ManagerMetrics
from koordinator.manager.mirror import Controller
from koordinator.manager.queue_units.controller import QueueUnitOptions
from koordinator.manager.queue_units.kinds import BATCH_JOB

SIGS = "scheduling.sigs.k8s.io/v1alpha1"


class ManagerChurn:
    """A manager with all controllers, and what its webhooks look up."""

    name = "manager"

    def __init__(self) -> None:
        self.clock = VirtualClock(START_S)
        self.cluster = MemoryCluster(self.clock)
        config = {"colocation-config": '{"enable": true}'}
        config_map = made(
            "ConfigMap",
            "slo-controller-config",
            metadata={"namespace": "koordinator-system"},
            data=config,
        )
        self.cluster.load([config_map, made("Namespace", "default")])
        options = ManagerOptions(
            gates=frozenset((PROFILE_CONTROLLER,)),
            controllers=frozenset(Controller),
            queue_units=QueueUnitOptions(kinds=(BATCH_JOB,)),
        )
        self.manager = Manager(
            self.cluster, self.clock, options, metrics=ManagerMetrics(CollectorRegistry())
        )
        self.lookup = WatchLookup(self.cluster, lambda: 0, self.clock)
        self.manager.sync()

    @property
    def roots(self) -> tuple[object, ...]:
        """Everything that lives as long as the process."""
        return self.manager, self.lookup

    @property
    def others(self) -> tuple[object, ...]:
        """Containers of the cluster."""
        return self.cluster, self.manager._watch, self.lookup._watch

    def round(self, number: int) -> None:
        """Create one object of each kind, reconcile it, and delete it."""
        objects = list(_objects(f"u{number}"))
        for obj in objects:
            self.cluster.load([obj])
        self._step(30)
        self._step(400)
        for obj in reversed(objects):
            self._lose(type(obj), obj)
        self._step(1)
        for kind in (
            NodeMetric,
            NodeSlo,
            ElasticQuota,
            QueueUnit,
            Queue,
        ):  # what the manager has made for them
            for left in self.cluster.list(kind).items:
                if f"u{number}" in left.metadata.name:
                    self._lose(kind, left)
        self._step(1000)

    def _step(self, seconds: float) -> None:
        self.clock.advance_to(self.clock.now_s() + seconds)
        while self.manager.step():
            pass
        self.lookup.follow()

    def _lose(self, kind: type[KubeObject], obj: KubeObject) -> None:
        with suppress(NotFoundError):
            meta = obj.metadata
            self.cluster.force_delete(self.cluster.get(kind, meta.name, meta.namespace))


def _objects(own: str) -> Iterator[KubeObject]:
    yield made("Namespace", f"ns-{own}", metadata={"labels": {own: own}})
    yield node(
        f"node-{own}",
        8,
        labels={own: own},
        annotations={
            "node.koordinator.sh/colocation-strategy": f'{{"{own}": 1}}',
            "node.koordinator.sh/network-bandwidth": own,
        },
    )
    yield device(f"node-{own}", gpus=1)
    usage = {f"pod-{own}": {"resources": {"cpu": "1"}}}
    yield metric(f"node-{own}", 1, "1Gi", pods=usage)
    bound = {"quota.scheduling.koordinator.sh/namespaces": f'["other-{own}"]'}
    yield made(
        "ElasticQuota",
        f"quota-{own}",
        SIGS,
        metadata={"namespace": f"ns-{own}", "annotations": bound},
        spec={"max": {"cpu": "9"}, "min": {"cpu": "1"}},
    )
    yield made(
        "ElasticQuotaProfile",
        f"profile-{own}",
        "quota.koordinator.sh/v1alpha1",
        metadata={"namespace": f"ns-{own}"},
        spec={
            "quotaName": f"made-{own}",
            "quotaLabels": {own: own},
            "nodeSelector": {"matchLabels": {own: own}},
        },
    )
    yield made(
        "ClusterColocationProfile",
        f"colocation-{own}",
        "config.koordinator.sh/v1alpha1",
        metadata={"labels": {"config.koordinator.sh/reconcile": "true"}},
        spec={"selector": {"matchLabels": {own: own}}, "labels": {"made": own}},
    )
    container = {"name": own, "resources": {"requests": {"cpu": "1"}}}
    for name, quota in (("job", f"quota-{own}"), ("lost-job", own)):  # of no such quota
        yield made(
            "Job",
            f"{name}-{own}",
            "batch/v1",
            metadata={
                "namespace": f"ns-{own}",
                "labels": {"quota.scheduling.koordinator.sh/name": quota},
            },
            spec={
                "suspend": True,
                "parallelism": 1,
                "template": {"spec": {"containers": [container]}},
            },
        )
    yield made(
        "Job",
        f"odd-job-{own}",
        "batch/v1",
        metadata={"namespace": f"ns-{own}"},
        spec={
            "suspend": True,
            "parallelism": 1,
            "template": {
                "spec": {"containers": [{"name": "c", "resources": {"requests": {own: "-1"}}}]}
            },
        },
    )
    yield pod(f"pod-{own}", 1, on=f"node-{own}", labels={own: own})
    yield pod(f"waiting-{own}", 1, labels={own: own})
