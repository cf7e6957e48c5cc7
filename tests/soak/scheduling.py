"""Churn through the scheduler: whatever a tenant or an operator may create, each time by new names.

Nothing of a round is left at its end, so nothing of it may be kept, but for what has a bound.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from prometheus_client import CollectorRegistry
from tests.keywords import as_keywords
from tests.worlds import HOSTNAME, START_S, ZONE, device, made, metric, near, node, pod

from koordinator.api.core import Namespace
from koordinator.api.kubescheduler import FeatureGates, decode_configuration
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.foundation.errors import NotFoundError
from koordinator.scheduler.features.audit import Audit
from koordinator.scheduler.features.auditor import AuditorMetrics, WorkloadAuditor
from koordinator.scheduler.features.auditor.workload_life import AlertLimits
from koordinator.scheduler.features.metrics import SchedulerMetrics
from koordinator.scheduler.loop import SchedulerOptions
from koordinator.scheduler.snapshot import ClusterState
from koordinator.scheduler.snapshot.classes import NEW_CLASSES
from koordinator.simulator import Embedded
from koordinator.simulator.embedded import STOCK

SIGS = "scheduling.sigs.k8s.io/v1alpha1"
KOORDINATOR = "scheduling.koordinator.sh/v1alpha1"
OWNER = "batch.kubernetes.io/controller-uid"
PODS = 500  # at a time
_NEAR = ("SchedulingHint", "Reservation", "NodeNUMAResource", "DeviceShare", "ElasticQuota")
_PLUGINS: dict[str, Any] = {
    "preEnqueue": ["Coscheduling"],
    "preFilter": _NEAR,
    "filter": ["Reservation", "LoadAwareScheduling", "NodeNUMAResource", "DeviceShare"],
    "score": ["Reservation", "LoadAwareScheduling", "NodeNUMAResource", "DeviceShare"],
    "reserve": [
        "Reservation",
        "LoadAwareScheduling",
        "NodeNUMAResource",
        "DeviceShare",
        "Coscheduling",
        "ElasticQuota",
    ],
    "permit": ["Coscheduling"],
    "preBind": ["Reservation", "NodeNUMAResource", "DeviceShare"],
    "postFilter": ["Reservation", "ElasticQuota"],
}
CONFIGURATION = decode_configuration(
    {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {
                "schedulerName": "default-scheduler",
                "plugins": {
                    point: {"enabled": [{"name": name} for name in names]}
                    for point, names in _PLUGINS.items()
                },
            }
        ],
    },
    "soak",
)


class SchedulerChurn:
    """A scheduler with every table in use, through which objects pass."""

    name = "scheduler"

    def __init__(
        self, *, audited: int = 1000, new_classes: int = NEW_CLASSES, decides: bool = True
    ) -> None:
        """Set how many pods the audit remembers, and how many new classes lead to a sweep.

        Without ``decides`` it is a replica that only follows the leader.
        """
        self._limit = None if decides else 0
        self._audit = Audit(capacity=audited)
        metrics = SchedulerMetrics(CollectorRegistry())
        series = AuditorMetrics(CollectorRegistry(), ("priority",))
        self.world = Embedded(
            CONFIGURATION,
            now_s=START_S,
            options=SchedulerOptions(),
            metrics=metrics,
            audit=self._audit,
            auditor=WorkloadAuditor(series, AlertLimits(), {}),
            state=ClusterState(new_classes=new_classes),
            gates=FeatureGates.parse("GenericWorkload=true,GangScheduling=true"),
        )
        self.world.load([node(f"n{i}", 64, "256Gi", zone=f"z{i % 2}") for i in range(4)])
        self.world.load([device(f"n{i}") for i in range(2)])

    @property
    def roots(self) -> tuple[object, ...]:
        """Everything that lives as long as the process."""
        return self.world.scheduler, self.world.state

    @property
    def others(self) -> tuple[object, ...]:
        """Containers of the cluster, and rings: the audit, and the logs of changed rows."""
        state = self.world.state
        logs = state.usage_log, state.node_log, state.holds.log
        return self.world.cluster, self.world.scheduler.handle.watch, self._audit, *logs

    def round(self, number: int) -> None:
        """Create one object of each kind, schedule it, and delete it."""
        objects = list(_objects(f"u{number}"))
        cluster, scheduler, clock = self.world.cluster, self.world.scheduler, self.world.clock
        for obj in objects:
            cluster.load([obj], admit=True)
        scheduler.step(self._limit)
        clock.advance_to(clock.now_s() + 30)
        scheduler.step(self._limit)
        for obj in reversed(objects):
            meta = obj.metadata
            with suppress(NotFoundError):
                cluster.force_delete(cluster.get(type(obj), meta.name, meta.namespace))
        clock.advance_to(clock.now_s() + 400)
        scheduler.step(self._limit)
        self.world.step_controllers()  # reads its events, which the log keeps until then
        with suppress(NotFoundError):  # an event about a deleted pod has implied it again
            cluster.force_delete(cluster.get(Namespace, f"ns-u{number}"))


def _tolerations(own: str, count: int) -> list[dict[str, str]]:
    return [{"key": f"{own}-{index}", "operator": "Exists"} for index in range(count)]


def _objects(own: str) -> Iterator[KubeObject]:
    """Yield objects that share no name, label, resource, image, port … with other rounds."""
    ns = f"ns-{own}"
    yield made("Namespace", ns, metadata={"labels": {own: own}})
    yield node(
        f"node-{own}",
        8,
        "32Gi",
        zone=f"zone-{own}",
        labels={f"example.com/{own}": own, "pool": own},
        taints=[f"{own}={own}:PreferNoSchedule"],
        images={f"image-{own}": 100},
        annotations={"node.koordinator.sh/load": own},
        **as_keywords({f"example.com/{own}": 1}),
    )
    yield device(f"node-{own}", gpus=1, memory=f"{1000 + int(own[1:])}Mi")
    yield metric(f"node-{own}", 1, "1Gi", pods={f"pod-{own}": {}})
    yield made(
        "ElasticQuota",
        f"quota-{own}",
        SIGS,
        metadata={
            "namespace": ns,
            "annotations": {"quota.scheduling.koordinator.sh/namespaces": f'["other-{own}"]'},
        },
        spec={"max": {"cpu": "9", f"example.com/{own}": "1"}, "min": {"cpu": "1"}},
    )
    yield made("PodGroup", f"gang-{own}", SIGS, metadata={"namespace": ns}, spec={"minMember": 2})
    groups_of = [{"name": own, "policy": {"gang": {"minCount": 2}}}]
    yield made(
        "Workload",
        f"workload-{own}",
        "scheduling.k8s.io/v1alpha1",
        metadata={"namespace": ns},
        spec={"podGroups": groups_of},
    )
    ref = {"name": f"workload-{own}", "podGroup": own, "podGroupReplicaKey": own}
    yield pod(f"worker-{own}", 1, namespace=ns, workloadRef=ref)
    groups = f'["{ns}/vain-{own}", "{ns}/missing-{own}"]'
    yield made(
        "PodGroup",
        f"vain-{own}",
        SIGS,
        metadata={
            "namespace": ns,
            "annotations": {"gang.scheduling.koordinator.sh/groups": groups},
        },
        spec={"minMember": 1},
    )
    yield pod(
        f"vain-{own}",
        1,
        namespace=ns,
        labels={"pod-group.scheduling.sigs.k8s.io": f"vain-{own}"},
        annotations={"gang.scheduling.koordinator.sh/min-available": own},
    )
    yield node(f"closed-{own}", 1, unschedulable=True)
    yield made("Service", own, metadata={"namespace": ns}, spec={"selector": {own: own}})
    owners = [{"labelSelector": {"matchLabels": {own: own}}}]
    template = {"spec": {"containers": [_container(own, cpu="1")]}}
    yield made(
        "Reservation",
        f"reservation-{own}",
        KOORDINATOR,
        spec={"template": template, "owners": owners, "ttl": "1h"},
    )
    if int(own[1:]) % 16 == 0:
        yield pod(f"megabyte-{own}", 90, namespace=ns, tolerations=_tolerations(own, 5000))
    labels = {own: own, "quota.scheduling.koordinator.sh/name": f"quota-{own}"}
    yield pod(f"pod-{own}", 1, namespace=ns, labels={**labels, "app": own})
    gang = {"pod-group.scheduling.sigs.k8s.io": f"gang-{own}"}
    for member in range(2):
        yield pod(f"member-{own}-{member}", 1, namespace=ns, labels={**gang, "job": own})
    yield pod(f"alone-{own}", 1, namespace=ns, labels={"pod-group.scheduling.sigs.k8s.io": own})
    apart = near(own, HOSTNAME)
    soon = near(own, f"example.com/{own}", weight=5)
    affinity = {"podAntiAffinity": apart | soon, "podAffinity": near(own, ZONE, weight=3)}
    yield pod(f"apart-{own}", 1, namespace=ns, labels={"app": own}, affinity=affinity)
    constraint = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"spread": own}},
    }
    yield pod(
        f"spread-{own}",
        1,
        namespace=ns,
        labels={"spread": own},
        images=[f"image-{own}"],
        ports=[f"10.0.0.1:{1000 + int(own[1:]) % 60000}/TCP"],
        topologySpreadConstraints=[constraint],
    )
    yield pod(
        f"lost-{own}",
        1,
        namespace=ns,
        nodeSelector={f"example.com/{own}": "nowhere"},
        requests={f"example.com/none-{own}": 1},
    )
    yield pod(f"large-{own}", 1000 + int(own[1:]), namespace=ns, priority=1000)
    yield pod(f"placed-{own}", 1, namespace=ns, on=f"node-{own}", labels={own: own})
    yield pod(f"orphan-{own}", 1, namespace=ns, on=f"nowhere-{own}", labels={own: own})
    yield made(
        "PersistentVolumeClaim",
        f"claim-{own}",
        metadata={"namespace": ns},
        spec={"storageClassName": own, "accessModes": ["ReadWriteOnce"]},
    )
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": f"claim-{own}"}}
    yield pod(f"volume-{own}", 1, namespace=ns, volumes=[volume])
    yield pod(
        f"gpu-{own}",
        1,
        namespace=ns,
        requests={"koordinator.sh/gpu-core": 50, "koordinator.sh/gpu-memory-ratio": 50},
    )
    yield from _claimed(own, ns)
    bound = {"scheduling.koordinator.sh/resource-spec": f'{{"{own}": 1}}'}
    yield pod(f"odd-{own}", 1, namespace=ns, annotations=bound, schedulerName=own)
    yield pod(f"bad-{own}", 1, namespace=ns, annotations=bound)


def _claimed(own: str, ns: str) -> Iterator[KubeObject]:
    """Yield a device of a node, a claim of it, and a pod that uses it."""
    version, driver = "resource.k8s.io/v1", f"{own}.example.com"
    selectors = [{"cel": {"expression": f"device.driver == '{driver}'"}}]
    yield made("DeviceClass", f"class-{own}", version, spec={"selectors": selectors})
    yield made(
        "ResourceSlice",
        f"slice-{own}",
        version,
        spec={
            "driver": driver,
            "nodeName": f"node-{own}",
            "pool": {"name": own, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "d", "attributes": {own: {"string": own}}}],
        },
    )
    exactly = {"deviceClassName": f"class-{own}", "selectors": selectors}
    yield made(
        "ResourceClaim",
        f"devices-{own}",
        version,
        metadata={"namespace": ns},
        spec={"devices": {"requests": [{"name": own, "exactly": exactly}]}},
    )
    entries = [{"name": "d", "resourceClaimName": f"devices-{own}"}]
    yield pod(f"claims-{own}", 1, namespace=ns, resourceClaims=entries)


def _container(own: str, **requests: str) -> dict[str, Any]:
    return {"name": "c", "image": f"image-{own}", "resources": {"requests": requests}}


class PodChurn:
    """Stock scheduler with five hundred pods at a time, each with unique labels."""

    def __init__(self, mode: str) -> None:
        """``mode`` is ``labels``, or ``anti`` for pods that keep apart from their like, too."""
        self._mode = mode
        self.world = Embedded(STOCK, now_s=START_S, options=SchedulerOptions(report=False))
        self.world.load([node(f"n{i}", 64, "256Gi", 500) for i in range(60)])

    def round(self, number: int) -> None:
        """Create pods, bind them, and delete them."""
        world = self.world
        names = [f"p{number * PODS + i}" for i in range(PODS)]
        world.cluster.load([self._pod(name) for name in names], admit=True)
        world.run_to_fixed_point()
        for name in names:
            world.cluster.delete(Pod, name, "default", grace_period_s=0)
        world.clock.advance_to(world.clock.now_s() + 1)
        world.scheduler.step()

    def _pod(self, name: str) -> Pod:
        labels = {"app": "x", OWNER: f"{name:>032}"}
        if self._mode == "labels":
            return pod(name, "100m", "64Mi", labels=labels)
        apart = near("", HOSTNAME, labelSelector={"matchLabels": {OWNER: labels[OWNER]}})
        return pod(name, "100m", "64Mi", labels=labels, affinity={"podAntiAffinity": apart})
