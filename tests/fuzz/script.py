"""A world as a script: what happens in it, drawn from a seed before anything is decided.

Steps name objects and not positions, so that a script makes sense without some of its steps: what
isn't there (any more) can't be deleted.
"""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.equipped_nodes import machine
from tests.keywords import as_keywords
from tests.reservations import affinity, reservation
from tests.unit.domain.quota.quotas import PREFIX, quota
from tests.worlds import budget, made, metric, node, pod

from koordinator.api.kubescheduler import KubeSchedulerConfiguration, decode_configuration
from koordinator.api.meta import JsonObject, KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.reservation import Reservation

GANG = "gang.scheduling.koordinator.sh/"
CORE, RATIO = "koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio"
RESOURCE_SPEC = "scheduling.koordinator.sh/resource-spec"
NUMA_SPEC = "scheduling.koordinator.sh/numa-topology-spec"
LAYERS = {"BlockLayer": "block", "RackLayer": "rack"}
APPS = ("web", "db", "ml")
FOO = "example.com/foo"


@dataclass(frozen=True)
class Create:
    """Objects come."""

    objects: tuple[KubeObject, ...]


@dataclass(frozen=True)
class Delete:
    """An object is deleted; pods that take their time only begin to end."""

    kind: type[KubeObject]
    name: str
    namespace: str = ""


@dataclass(frozen=True)
class Finish:
    """A running pod succeeds."""

    name: str


@dataclass(frozen=True)
class Reap:
    """Of the pods that are ending, this part has been deleted."""

    part: float


@dataclass(frozen=True)
class Cordon:
    """A node takes no new pods, or takes them again."""

    node: str
    off: bool


@dataclass(frozen=True)
class Wait:
    """Time passes."""

    seconds: float


@dataclass(frozen=True)
class Restart:
    """A new scheduler takes over the cluster."""


Step = Create | Delete | Finish | Reap | Cordon | Wait | Restart


@dataclass
class Script:
    """Steps that a seed generates, and the configuration of their world."""

    seed: int
    configuration: KubeSchedulerConfiguration
    profile: JsonObject  # the configuration as it is written to a file
    steps: list[Step]
    slow_ends: bool  # deleted pods take their time
    lags: bool  # events come late
    checks_parents: bool  # quotas of parents count, too


def script_of(seed: int, length: int = 0) -> Script:
    """Draw a script."""
    return _Writer(seed).write(length)


class _Writer:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.seed = seed
        self.count = 0
        self.pods: list[str] = []
        self.nodes: list[list[KubeObject]] = []
        self.reservations: list[str] = []
        self.quotas: list[str] = []
        chance = self.chance
        self.has_topology = chance(0.6)
        self.has_quotas = chance(0.6)
        self.has_reservations = chance(0.6)
        self.has_gangs = chance(0.7)
        self.has_parts = chance(0.5)
        self.has_load = chance(0.3)
        self.preempts = chance(0.8)
        self.checks_parents = chance(0.5)

    def chance(self, part: float) -> bool:
        return self.random.random() < part

    def name(self, what: str) -> str:
        self.count += 1
        return f"{what}{self.count}"

    def write(self, length: int) -> Script:
        draw = self.random
        slow, lags = self.chance(0.5), self.chance(0.3)
        start: list[KubeObject] = []
        if self.has_topology:
            start.append(_network())
        for _ in range(draw.randint(1, 6)):
            start += self.new_node()
        if self.has_quotas:
            start += self.new_quotas()
        steps: list[Step] = [Create(tuple(start))]
        for _ in range(length or draw.randint(3, 14)):
            steps += self.next_steps()
        profile = _profile(self)
        return Script(
            self.seed,
            decode_configuration(profile, "fuzz"),
            profile,
            steps,
            slow_ends=slow,
            lags=lags,
            checks_parents=self.checks_parents,
        )

    # -- what happens ------------------------------------------------------------------------

    def next_steps(self) -> list[Step]:
        draw = self.random
        ways: list[tuple[float, Any]] = [
            (6, lambda: [Create(tuple(self.new_pods(draw.randint(1, 6))))]),
            (2, lambda: [Wait(draw.choice((1.0, 5.0, 30.0, 301.0)))]),
            (1, lambda: [Restart()]),
            (1.5, lambda: [Reap(draw.choice((0.3, 0.6, 1.0)))]),
        ]
        if self.has_gangs:
            ways.append((5, lambda: [Create(tuple(self.new_gang()))]))
        if self.has_reservations:
            ways.append((3, lambda: [Create((self.new_reservation(),))]))
        if self.pods:
            ways += [
                (3, lambda: [Delete(Pod, n, "default") for n in self.some(self.pods)]),
                (1, lambda: [Finish(n) for n in self.some(self.pods)]),
            ]
        if self.reservations:
            ways.append((1, lambda: [Delete(Reservation, draw.choice(self.reservations))]))
        names = [made[0].metadata.name for made in self.nodes]
        ways += [
            (1, lambda: [Create(tuple(self.new_node()))]),
            (0.7, lambda: [Cordon(draw.choice(names), draw.random() < 0.5)]),
            (0.4, lambda: [Delete(Node, draw.choice(names))]),
            (0.4, lambda: [Create((draw.choice(self.nodes)[0],))]),  # one that was lost comes back
        ]
        if self.has_load:
            ways.append((1, lambda: [Create((self.new_metric(draw.choice(names)),))]))
        happens = draw.choices([way for _, way in ways], [weight for weight, _ in ways])[0]
        done: list[Step] = happens()
        if self.chance(0.25):  # at once, with nothing decided in between
            done += self.next_steps()
        return done

    def some(self, names: Sequence[str]) -> list[str]:
        return self.random.sample(names, min(len(names), self.random.randint(1, 4)))

    # -- objects -----------------------------------------------------------------------------

    def new_node(self) -> list[KubeObject]:
        draw, name = self.random, self.name("n")
        labels = {"block": f"b{draw.randint(0, 1)}", "rack": f"r{draw.randint(0, 2)}"}
        if self.has_parts and self.chance(0.7):
            if self.chance(0.3):
                policy = draw.choice(("BestEffort", "Restricted", "SingleNUMANode"))
                labels["node.koordinator.sh/numa-topology-policy"] = policy
            gpus = draw.choice((0, 2, 4))
            made_here = machine(
                name,
                zones=draw.choice((1, 2)),
                cores=draw.choice((2, 4)),
                memory=draw.choice((8, 16)),
                gpus=gpus,
                nics=draw.choice((0, gpus // 2)),
                labels=labels,
            )
        else:
            taints = ["dedicated=a:NoSchedule"] if self.chance(0.1) else []
            made_here = [
                node(
                    name,
                    cpu=draw.choice((4, 8, 16)),
                    memory=draw.choice(("8Gi", "32Gi")),
                    pods=draw.choice((110, 110, 4)),
                    labels=labels,
                    taints=taints,
                    **as_keywords({FOO: draw.choice((2, 4))}),
                )
            ]
        self.nodes.append(made_here)
        return [*made_here, *([self.new_metric(name)] if self.has_load else [])]

    def new_metric(self, name: str) -> KubeObject:
        draw = self.random
        return metric(name, draw.choice((0, 1, 6)), draw.choice(("1Gi", "7Gi")))

    def new_quotas(self) -> list[KubeObject]:
        draw = self.random
        made_here: list[KubeObject] = []
        for root in range(draw.randint(1, 2)):
            most = draw.choice((6, 10, 20))
            is_parent = self.chance(0.5)
            top = f"q{root}"
            least = draw.choice((0, 4, 6))
            texts = {f"{PREFIX}queue-policy": draw.choice(("strict", "backfill", "best-effort"))}
            queued = texts if self.chance(0.3) and not is_parent else {}
            made_here.append(
                quota(
                    top,
                    most={"cpu": most, "memory": "64Gi"},
                    least={"cpu": least},
                    is_parent=is_parent,
                    lends=self.chance(0.7),
                    annotations=queued,
                )
            )
            if not is_parent:
                self.quotas.append(top)
                continue
            for child in range(draw.randint(1, 3)):
                name = f"{top}-{child}"
                share = {"cpu": least // 3}
                ceiling = {"cpu": draw.choice((3, 6, most)), "memory": "64Gi"}
                made_here.append(quota(name, top, most=ceiling, least=share))
                self.quotas.append(name)
        return made_here

    def new_pods(self, count: int) -> list[KubeObject]:
        draw = self.random
        made_here: list[KubeObject] = []
        pod_fields = self.pod_fields()
        for _ in range(count):
            name = self.name("p")
            if self.chance(0.5):
                pod_fields = self.pod_fields()
            self.pods.append(name)
            made_here.append(pod(name, **pod_fields))
        if self.chance(0.1):
            made_here.append(budget(self.name("pdb"), draw.choice((0, 1)), app=draw.choice(APPS)))
        return made_here

    def pod_fields(self, priority: int | None = None) -> dict[str, Any]:
        """Return the requests of pods."""
        draw = self.random
        labels: dict[str, str] = {"app": draw.choice(APPS)}
        annotations: dict[str, str] = {}
        requests: dict[str, Any] = {}
        if self.quotas and self.chance(0.7):
            labels[PREFIX + "name"] = draw.choice(self.quotas)
        if self.chance(0.1):
            labels[PREFIX + "preemptible"] = "false"
        if self.has_reservations and self.chance(0.15):
            annotations |= affinity()
        if self.chance(0.2):
            requests[FOO] = draw.choice((1, 2))
        if self.has_parts and self.chance(0.4):
            share = draw.choice((25, 50, 100, 100, 200))
            requests = {CORE: share, RATIO: share}
            if self.chance(0.2):
                requests["koordinator.sh/rdma"] = 100
        self.bind_cpus(labels, annotations)
        band = 9000 if "koordinator.sh/qosClass" in labels else 0
        chosen = draw.choice((0, 10, 100)) if priority is None else priority
        return {
            "cpu": draw.choice((1, 1, 2, 3, 4)),
            "memory": draw.choice(("512Mi", "1Gi", "4Gi")),
            "requests": requests,
            "labels": labels,
            "annotations": annotations,
            "priority": band + chosen,
            **self.wishes_for_nodes(labels["app"]),
        }

    def bind_cpus(self, labels: dict[str, str], annotations: dict[str, str]) -> None:
        """Make some pods request exclusive CPUs."""
        draw = self.random
        if self.has_parts and self.chance(0.3):
            labels["koordinator.sh/qosClass"] = draw.choice(("LSR", "LSE", "LS"))
            policy = draw.choice(("FullPCPUs", "SpreadByPCPUs"))
            annotations[RESOURCE_SPEC] = json.dumps({"preferredCPUBindPolicy": policy})
            if self.chance(0.3):
                wanted = draw.choice(("SingleNUMANode", "Restricted", "BestEffort"))
                annotations[NUMA_SPEC] = json.dumps({"numaTopologyPolicy": wanted})

    def wishes_for_nodes(self, app: str) -> dict[str, Any]:
        """Return where pods want to be, and whom they avoid."""
        draw = self.random
        more: dict[str, Any] = {}
        if self.chance(0.1):
            more["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
        if self.chance(0.1):
            more["nodeSelector"] = {"rack": f"r{draw.randint(0, 2)}"}
        if self.chance(0.1):
            term = {
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchLabels": {"app": app}},
            }
            must = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
            more["affinity"] = {"podAntiAffinity": must}
        if self.chance(0.05):
            more["preemptionPolicy"] = "Never"
        return more

    def new_gang(self) -> list[KubeObject]:
        """Return PodGroups that start together, with their members or all but one."""
        draw = self.random
        names = [self.name("g") for _ in range(draw.choice((1, 1, 1, 2)))]
        priority = draw.choice((0, 10, 100))
        annotations: dict[str, str] = {}
        if len(names) > 1:
            annotations[GANG + "groups"] = json.dumps([f"default/{name}" for name in names])
        if self.has_topology and self.chance(0.6):
            layer, strategy = draw.choice(list(LAYERS)), draw.choice(("MustGather", "PreferGather"))
            rule = {"layer": layer, "strategy": strategy}
            annotations[GANG + "network-topology-spec"] = json.dumps({"gatherStrategy": [rule]})
        made_here: list[KubeObject] = []
        for gang in names:
            least = draw.randint(1, 4)
            made_here.append(
                made(
                    "PodGroup",
                    gang,
                    "scheduling.sigs.k8s.io/v1alpha1",
                    metadata={"namespace": "default", "annotations": annotations},
                    spec={"minMember": least},
                )
            )
            pod_fields = self.pod_fields(priority)
            for index in range(max(1, least + draw.choice((0, 0, 0, 1, 2, -1)))):
                name = f"{gang}-{index}"
                self.pods.append(name)
                if self.chance(0.15):
                    pod_fields = self.pod_fields(priority)
                labels = {**pod_fields["labels"], "pod-group.scheduling.sigs.k8s.io": gang}
                made_here.append(pod(name, **{**pod_fields, "labels": labels}))
        return made_here

    def new_reservation(self) -> KubeObject:
        draw, name = self.random, self.name("r")
        self.reservations.append(name)
        requests: dict[str, Any] = {}
        if self.has_parts and self.chance(0.3):
            requests = {CORE: 100, RATIO: 100}
        more: dict[str, Any] = {}
        if self.chance(0.3):
            more["ttl"] = draw.choice(("20s", "300s"))
        if self.chance(0.15):
            more["preAllocation"] = True
        return reservation(
            name,
            draw.choice((1, 2, 4)),
            draw.choice(("1Gi", "4Gi")),
            for_app=draw.choice(APPS),
            once=self.chance(0.4),
            policy=draw.choice(("Aligned", "Restricted", "")),
            requests=requests,
            template={"priority": draw.choice((0, 10, 100))} if self.chance(0.5) else {},
            **more,
        )


def _network() -> KubeObject:
    layers = [
        {"topologyLayer": "BlockLayer", "labelKey": ["block"]},
        {"topologyLayer": "RackLayer", "parentTopologyLayer": "BlockLayer", "labelKey": ["rack"]},
        {"topologyLayer": "NodeTopologyLayer", "parentTopologyLayer": "RackLayer"},
    ]
    api = "scheduling.koordinator.sh/v1alpha1"
    return made("ClusterNetworkTopology", "default", api, spec={"networkTopologySpec": layers})


def _profile(writer: _Writer) -> JsonObject:
    """Return the configuration that the charts install, with what a world has on top of it."""
    load = ["LoadAwareScheduling"] if writer.has_load else []
    parts = ["NodeNUMAResource", "DeviceShare"]
    post_filter = ["Reservation", "Coscheduling", "ElasticQuota", "DefaultPreemption"]
    points = {
        "preEnqueue": ["Coscheduling"],
        "preFilter": ["SchedulingHint", "Reservation", *parts, "ElasticQuota"],
        "filter": ["Reservation", *load, *parts],
        "score": ["Reservation", *load, *parts],
        "reserve": ["Reservation", *load, *parts, "ElasticQuota", "Coscheduling"],
        "permit": ["Coscheduling"],
        "preBind": ["Reservation", *parts],
        "postBind": ["Coscheduling"],
        "postFilter": post_filter if writer.preempts else ["Reservation"],
    }
    weights = {"Reservation": 5000}
    plugins: JsonObject = {
        point: {"enabled": [{"name": n, "weight": weights.get(n, 1)} for n in names]}
        for point, names in points.items()
    }
    plugins["queueSort"] = {"disabled": [{"name": "*"}], "enabled": [{"name": "Coscheduling"}]}
    plugins["postFilter"]["disabled"] = [{"name": "*"}]
    args = {
        "Coscheduling": {
            "awareNetworkTopology": writer.has_topology,
            "enablePreemption": writer.preempts and writer.chance(0.5),
        },
        "Reservation": {"enablePreemption": writer.chance(0.3)},
        "ElasticQuota": {"enableCheckParentQuota": writer.checks_parents},
    }
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {
                "schedulerName": "default-scheduler",
                "plugins": plugins,
                "pluginConfig": [{"name": n, "args": a} for n, a in args.items()],
            }
        ],
    }
