"""Small random clusters, and pods that exercise the rules of kube-scheduler in them.

Amounts differ from node to node and start times from pod to pod, so that seldom two nodes are
equally good; what is drawn depends on nothing but the seed.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

Manifest = dict[str, Any]

HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
SCENARIO = "test/scenario"  # label of all nodes
ZONES = ("z0", "z1", "z2")
APPS = ("app0", "app1", "app2")
POLITE = "polite"  # the priority class of pods that never preempt
PRIORITIES = {"negligible": -10, "medium": 100, "high": 1000, POLITE: 500}
LOCAL, IMMEDIATE, CSI = "local", "immediate", "csi"  # storage classes
DRIVER = "csi.example.com"
NAMESPACES = ("main", "other")  # to be made unique; the second has the label team=other
PENDING = 8


@dataclass(slots=True)
class Scenario:
    """Manifests; pods and claims have their namespaces from ``NAMESPACES``."""

    seed: int
    nodes: list[Manifest] = field(default_factory=list)
    csi_nodes: list[Manifest] = field(default_factory=list)
    services: list[Manifest] = field(default_factory=list)
    budgets: list[Manifest] = field(default_factory=list)  # with their status
    volumes: list[Manifest] = field(default_factory=list)
    claims: list[Manifest] = field(default_factory=list)  # bound where they name a volume
    bound: list[Manifest] = field(default_factory=list)
    pending: list[Manifest] = field(default_factory=list)


def make_scenario(seed: int) -> Scenario:
    """Return the scenario of a seed."""
    return _Maker(seed).make()


class _Maker:
    def __init__(self, seed: int) -> None:
        self._chance = np.random.default_rng(seed)
        self._made = Scenario(seed)
        self._is_crowded = self.often(0.5)  # then priorities and preemption matter

    def often(self, share: float) -> bool:
        return bool(self._chance.random() < share)

    def pick(self, *choices: Any) -> Any:
        return choices[int(self._chance.integers(len(choices)))]

    def number(self, low: int, high: int) -> int:
        return int(self._chance.integers(low, high + 1))

    def make(self) -> Scenario:
        made = self._made
        made.nodes = [self.node(f"s{made.seed}-n{i}") for i in range(self.number(3, 8))]
        made.csi_nodes = [self.csi_node(it["metadata"]["name"]) for it in made.nodes]
        made.services = [self.service(app) for app in APPS if self.often(0.4)]
        self.storage()
        count = self.number(10, 18) if self._is_crowded else self.number(0, 12)
        for index in range(count):
            made.bound.append(self.bound_pod(f"b{index}", index))
        made.budgets = [self.budget(app) for app in APPS if self.often(0.3)]
        made.pending = [self.pending_pod(f"p{index}") for index in range(PENDING)]
        return made

    # -- nodes -------------------------------------------------------------------------------

    def node(self, name: str) -> Manifest:
        labels = {HOST: name, SCENARIO: str(self._made.seed), "disk": self.pick("ssd", "hdd")}
        if self.often(0.85):
            labels[ZONE] = self.pick(*ZONES)
        if self.often(0.5):
            labels["generation"] = str(self.number(1, 6))
        cpu = self.number(1500, 4000) if self._is_crowded else self.number(2000, 16000)
        headroom = {
            "cpu": f"{cpu}m",
            "memory": f"{self.number(4000, 32000)}Mi",
            "ephemeral-storage": f"{self.number(20, 100)}Gi",
            "pods": str(self.pick(4, 20, 110)),
        }
        if self.often(0.3):
            headroom["example.com/device"] = str(self.number(1, 3))
        taints = []
        if self.often(0.2):
            value = self.pick("a", "b")
            taints.append({"key": "dedicated", "value": value, "effect": "NoSchedule"})
        if self.often(0.2):
            taints.append({"key": "spot", "value": "true", "effect": "PreferNoSchedule"})
        if self.often(0.05):
            taints.append({"key": "broken", "effect": "NoExecute"})
        images = [
            {"names": [f"registry.example/{image}:v1"], "sizeBytes": size << 20}
            for image, size in (("web", 300), ("ml", 4000))
            if self.often(0.4)
        ]
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": {"taints": taints, "unschedulable": self.often(0.06)},
            "status": {"capacity": headroom, "allocatable": headroom, "images": images},
        }

    def csi_node(self, name: str) -> Manifest:
        driver = {"name": DRIVER, "nodeID": name, "allocatable": {"count": self.number(1, 2)}}
        return {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSINode",
            "metadata": {"name": name},
            "spec": {"drivers": [driver]},
        }

    def a_node(self) -> str:
        name: str = self.pick(*self._made.nodes)["metadata"]["name"]
        return name

    # -- objects that pods meet --------------------------------------------------------------

    def service(self, app: str) -> Manifest:
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": app, "namespace": NAMESPACES[0]},
            "spec": {"selector": {"app": app}, "ports": [{"port": 80}]},
        }

    def budget(self, app: str) -> Manifest:
        return {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": app, "namespace": NAMESPACES[0]},
            "spec": {"selector": {"matchLabels": {"app": app}}, "minAvailable": 1},
            "status": {"disruptionsAllowed": self.number(0, 2)},
        }

    def storage(self) -> None:
        """Make claims: bound to a zone, a node or a driver; unbound; and of one pod at a time."""
        self.bound_claim("zonal", IMMEDIATE, zone=self.pick(*ZONES))
        self.bound_claim("on-node", LOCAL, node=self.a_node())
        for index in range(3):
            self.bound_claim(f"csi-{index}", CSI)
        self.bound_claim("exclusive", IMMEDIATE, mode="ReadWriteOncePod")
        for name, storage_class in (("waiting", LOCAL), ("unbound", IMMEDIATE)):
            self._made.claims.append(self.claim(name, storage_class))

    def claim(self, name: str, storage_class: str, mode: str = "ReadWriteOnce") -> Manifest:
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": NAMESPACES[0]},
            "spec": {
                "accessModes": [mode],
                "resources": {"requests": {"storage": "1Gi"}},
                "storageClassName": storage_class,
            },
        }

    def bound_claim(
        self,
        name: str,
        storage_class: str,
        *,
        zone: str = "",
        node: str = "",
        mode: str = "ReadWriteOnce",
    ) -> None:
        claim = self.claim(name, storage_class, mode)
        volume = f"s{self._made.seed}-{name}"
        claim["spec"]["volumeName"] = volume
        claim["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
        self._made.claims.append(claim)
        source: Manifest = {"hostPath": {"path": "/data"}}
        if storage_class == CSI:
            source = {"csi": {"driver": DRIVER, "volumeHandle": volume}}
        spec: Manifest = {
            "capacity": {"storage": "1Gi"},
            "accessModes": [mode],
            "storageClassName": storage_class,
            **source,
        }
        if node:
            expression = {"key": HOST, "operator": "In", "values": [node]}
            terms = [{"matchExpressions": [expression]}]
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
        self._made.volumes.append(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": volume, "labels": {ZONE: zone} if zone else {}},
                "spec": spec,
            }
        )

    # -- pods --------------------------------------------------------------------------------

    def bound_pod(self, name: str, index: int) -> Manifest:
        pod = self.pod(name)
        pod["spec"]["nodeName"] = self.a_node()
        pod["status"] = {"phase": "Running", "startTime": f"2026-01-01T{index:02}:00:00Z"}
        if self.often(0.15):
            pod["spec"]["affinity"] = {"podAntiAffinity": self.pod_affinity()}
        if self.often(0.15):
            self.add_port(pod)
        if index < 2:
            self.add_claim(pod, self.pick("exclusive", "csi-0", "csi-1"))
        return pod

    def pending_pod(self, name: str) -> Manifest:
        pod = self.pod(name)
        self.add_wishes(pod)
        self.add_needs(pod)
        return pod

    def add_wishes(self, pod: Manifest) -> None:
        """Add where the pod wants to be."""
        spec = pod["spec"]
        affinity: Manifest = {}
        if self.often(0.25):
            affinity["nodeAffinity"] = self.node_affinity()
        for kind in ("podAffinity", "podAntiAffinity"):
            if self.often(0.25):
                affinity[kind] = self.pod_affinity()
        if affinity:
            spec["affinity"] = affinity
        if self.often(0.3):
            keys = self.pick((ZONE,), (HOST,), (ZONE, HOST))
            spec["topologySpreadConstraints"] = [self.spread(pod, key) for key in keys]
        if self.often(0.3):
            spec["tolerations"] = [self.toleration()]
        if self.often(0.1):
            spec["nodeSelector"] = {"disk": self.pick("ssd", "hdd")}

    def add_needs(self, pod: Manifest) -> None:
        """Add what the pod needs besides CPU and memory."""
        spec = pod["spec"]
        if self.often(0.15):
            self.add_port(pod)
        if self.often(0.1):
            one = {"example.com/device": "1"}
            resources = spec["containers"][0]["resources"]
            resources["limits"] = one
            resources["requests"] |= one
        if self.often(0.25):
            names = ("zonal", "on-node", "csi-2", "exclusive", "waiting", "unbound", "missing")
            self.add_claim(pod, self.pick(*names))
        if self.often(0.1):
            init = {"name": "init", "image": "init", "resources": {"requests": self.amounts()}}
            spec["initContainers"] = [
                init | ({"restartPolicy": "Always"} if self.often(0.5) else {})
            ]
        if self.often(0.1):
            spec["runtimeClassName"] = "heavy"

    def pod(self, name: str) -> Manifest:
        """Return a pod with requests that belongs to an app."""
        spec: Manifest = {
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": f"c{index}",
                    "image": f"registry.example/{self.pick('web', 'ml', 'other')}:v1",
                    "resources": {"requests": self.amounts()},
                }
                for index in range(self.pick(1, 1, 2))
            ],
        }
        if self.often(0.6 if self._is_crowded else 0.2):
            spec["priorityClassName"] = self.pick(*PRIORITIES)
        namespace = NAMESPACES[self.often(0.15)]
        labels = {"app": self.pick(*APPS), "version": self.pick("v1", "v2")}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "labels": labels},
            "spec": spec,
        }

    def amounts(self) -> Manifest:
        amounts: Manifest = {}
        if self.often(0.9):
            amounts["cpu"] = f"{self.pick(50, 130, 270, 490, 770, 1100)}m"
        if self.often(0.8):
            amounts["memory"] = f"{self.pick(70, 190, 510, 1100, 2900)}Mi"
        return amounts

    def add_port(self, pod: Manifest) -> None:
        port = {"containerPort": 80, "hostPort": self.pick(8080, 9090)}
        if self.often(0.3):
            port["hostIP"] = "127.0.0.1"
        pod["spec"]["containers"][0]["ports"] = [port]

    def add_claim(self, pod: Manifest, name: str) -> None:
        pod["metadata"]["namespace"] = NAMESPACES[0]
        source = {"persistentVolumeClaim": {"claimName": name}}
        pod["spec"]["volumes"] = [{"name": "data", **source}]

    def toleration(self) -> Manifest:
        toleration: Manifest = self.pick(
            {"key": "dedicated", "operator": "Exists"},
            {"key": "dedicated", "operator": "Equal", "value": "a", "effect": "NoSchedule"},
            {"key": "spot", "operator": "Exists"},
            {"operator": "Exists"},
        )
        return toleration

    # -- affinity ----------------------------------------------------------------------------

    def node_affinity(self) -> Manifest:
        affinity: Manifest = {}
        if self.often(0.6):
            terms = [self.node_term() for _ in range(self.pick(1, 2))]
            required = {"nodeSelectorTerms": terms}
            affinity["requiredDuringSchedulingIgnoredDuringExecution"] = required
        if self.often(0.7):
            affinity["preferredDuringSchedulingIgnoredDuringExecution"] = [
                {"weight": self.number(1, 100), "preference": self.node_term()}
                for _ in range(self.pick(1, 2))
            ]
        return affinity

    def node_term(self) -> Manifest:
        if self.often(0.1):
            field_ = {"key": "metadata.name", "operator": "In", "values": [self.a_node()]}
            return {"matchFields": [field_]}
        expression: Manifest = self.pick(
            {"key": "disk", "operator": "In", "values": ["ssd"]},
            {"key": "generation", "operator": self.pick("Gt", "Lt"), "values": ["3"]},
            {"key": ZONE, "operator": self.pick("In", "NotIn"), "values": [self.pick(*ZONES)]},
            {"key": ZONE, "operator": self.pick("Exists", "DoesNotExist")},
        )
        return {"matchExpressions": [expression]}

    def pod_affinity(self) -> Manifest:
        term: Manifest = {
            "labelSelector": {"matchLabels": {"app": self.pick(*APPS)}},
            "topologyKey": self.pick(ZONE, HOST),
        }
        if self.often(0.2):
            term["namespaceSelector"] = self.pick({}, {"matchLabels": {"team": "other"}})
        if self.often(0.1):
            term["matchLabelKeys"] = ["version"]
        if self.often(0.6):
            return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        weighted = {"weight": self.number(1, 100), "podAffinityTerm": term}
        return {"preferredDuringSchedulingIgnoredDuringExecution": [weighted]}

    def spread(self, pod: Manifest, key: str) -> Manifest:
        constraint: Manifest = {
            "maxSkew": self.pick(1, 2),
            "topologyKey": key,
            "whenUnsatisfiable": self.pick("DoNotSchedule", "ScheduleAnyway"),
            "labelSelector": {"matchLabels": {"app": pod["metadata"]["labels"]["app"]}},
        }
        if constraint["whenUnsatisfiable"] == "DoNotSchedule" and self.often(0.3):
            constraint["minDomains"] = self.pick(2, 4)
        if self.often(0.3):
            constraint["nodeTaintsPolicy"] = "Honor"
        if self.often(0.2):
            constraint["nodeAffinityPolicy"] = "Ignore"
        if self.often(0.2):
            constraint["matchLabelKeys"] = ["version"]
        return constraint
