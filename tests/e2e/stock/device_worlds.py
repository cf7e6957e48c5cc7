"""Small random worlds of devices, and pods whose claims request them.

They use what is behind gates in Kubernetes 1.35 as well: taints, counters of partitions, capacity
that several claims consume, conditions for binding, nodes by device.  What is drawn depends on
nothing but the seed, and the API server accepts it all.

What the original is known to get wrong (``docs/differences.md``) is left out: All of partitions,
which ends its process, All as a later alternative, partitions that constraints, taints or shares
are against, and distinct attributes of several devices of one request.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Manifest = dict[str, Any]

V1 = "resource.k8s.io/v1"
GPU, NIC, PART = "gpu.example.com", "nic.example.com", "part.example.com"
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
ADMIN = "resource.kubernetes.io/admin-access"  # label of a namespace whose users are admins
NAMESPACE = "main"  # to be made unique
BINDING = "DRADeviceBindingConditions"
GATES = ("DRADeviceTaints", "DRAPartitionableDevices", "DRAConsumableCapacity", BINDING)
READY, BROKEN = "example.com/Ready", "example.com/Broken"
A, C = f'device.attributes["{GPU}"]', f'device.capacity["{GPU}"]'
SELECTORS = (
    f'{A}.model == "a"',
    f'{A}.model != "b"',
    f"{A}.index < 2",
    f"{A}.index % 2 == 0",
    f'{C}.memory.compareTo(quantity("40Gi")) >= 0',
    f"has({A}.ecc) && {A}.ecc",
    f"{A}.?ecc.orValue(false)",
    f'{A}.version.isLessThan(semver("2.0.0"))',
)
SHARED = "device.allowMultipleAllocations"
CLASSES = {"gpu": GPU, "nic": NIC, "part": PART}


@dataclass(slots=True)
class DeviceWorld:
    """Manifests; claims may have a status, as if they had been allocated before."""

    seed: int
    gates: tuple[str, ...]
    nodes: list[Manifest] = field(default_factory=list)
    classes: list[Manifest] = field(default_factory=list)
    slices: list[Manifest] = field(default_factory=list)
    claims: list[Manifest] = field(default_factory=list)
    pods: list[Manifest] = field(default_factory=list)


def make_device_world(seed: int, gates: tuple[str, ...] = GATES) -> DeviceWorld:
    """Return the world of a seed, as it is with these gates on."""
    return _Maker(seed, gates).make()


class _Maker:
    def __init__(self, seed: int, gates: tuple[str, ...]) -> None:
        self._draw = np.random.default_rng(seed)
        self._made = DeviceWorld(seed, gates)
        taints, counters, capacity, binding = (gate in gates for gate in GATES)
        # Seldom everything at once: then little would fit.
        self._taints = taints and self.often(0.5)
        self._counters = counters and self.often(0.5)
        self._capacity = capacity and self.often(0.5)
        self._binding = binding and self.often(0.3)

    def often(self, share: float) -> bool:
        return bool(self._draw.random() < share)

    def pick(self, *choices: Any) -> Any:
        return choices[int(self._draw.integers(len(choices)))]

    def number(self, low: int, high: int) -> int:
        return int(self._draw.integers(low, high + 1))

    def some(self, items: Sequence[Any], count: int) -> list[Any]:
        return [items[int(index)] for index in self._draw.permutation(len(items))[:count]]

    def make(self) -> DeviceWorld:
        made = self._made
        made.nodes = [self.node(f"w{made.seed}-n{i}") for i in range(self.number(1, 3))]
        made.classes = [self.device_class(name, driver) for name, driver in CLASSES.items()]
        for each in made.nodes:
            name = each["metadata"]["name"]
            self.local_gpus(name)
            if self._counters:
                self.partitions(f"{name}-part", nodeName=name)
        if self.often(0.5):
            self.network()
        if self._counters and self.often(0.3):
            self.spread_partitions()
        for index in range(self.number(2, 5)):
            self.pod(f"p{index}")
        return made

    # -- what is offered ---------------------------------------------------------------------

    def node(self, name: str) -> Manifest:
        amounts = {"cpu": "8", "memory": "16Gi", "pods": "110"}
        labels = {HOST: name, ZONE: self.pick("z0", "z1"), "disk": self.pick("ssd", "hdd")}
        ready = {"type": "Ready", "status": "True"}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": {},
            "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]},
        }

    def device_class(self, name: str, driver: str) -> Manifest:
        spec: Manifest = {"selectors": [_cel(f'device.driver == "{driver}"')]}
        if self.often(0.2):
            spec["config"] = [_config(driver, name)]
        return _headed("DeviceClass", name, spec)

    def slice(self, name: str, driver: str, pool: str, **spec: Any) -> None:
        about = {"name": pool, "generation": 1, "resourceSliceCount": 1} | spec.pop("about", {})
        whole = {"driver": driver, "pool": about, **spec}
        self._made.slices.append(
            _headed("ResourceSlice", f"{name}-{driver.partition('.')[0]}", whole)
        )

    def local_gpus(self, node: str) -> None:
        """Offer GPUs of a node, now and then in a pool that is just being changed."""
        devices = [self.gpu(index) for index in range(self.number(1, 5))]
        match self.pick("whole", "whole", "whole", "halves", "old", "lacking", "twice"):
            case "halves":
                two = {"resourceSliceCount": 2}
                self.slice(f"{node}-0", GPU, node, devices=devices[:2], nodeName=node, about=two)
                self.slice(f"{node}-1", GPU, node, devices=devices[2:], nodeName=node, about=two)
            case "old":
                new = {"generation": 2}
                older = [self.gpu(index) for index in range(7, 9)]
                self.slice(f"{node}-0", GPU, node, devices=older, nodeName=node)
                self.slice(f"{node}-1", GPU, node, devices=devices, nodeName=node, about=new)
            case "lacking":
                two = {"resourceSliceCount": 2}
                self.slice(node, GPU, node, devices=devices, nodeName=node, about=two)
            case "twice":
                two = {"resourceSliceCount": 2}
                self.slice(f"{node}-0", GPU, node, devices=devices, nodeName=node, about=two)
                self.slice(f"{node}-1", GPU, node, devices=devices[:1], nodeName=node, about=two)
            case _:
                self.slice(node, GPU, node, devices=devices, nodeName=node)

    def gpu(self, index: int) -> Manifest:
        attributes: Manifest = {
            "model": {"string": self.pick("a", "b", "c")},
            "index": {"int": index},
            "version": {"version": self.pick("1.0.0", "1.5.0", "2.1.0-rc.1")},
        }
        if self.often(0.6):
            attributes["ecc"] = {"bool": self.often(0.5)}
        if self.often(0.8):
            attributes["top.example.com/numa"] = {"int": index // 2}
        memory: Manifest = {"value": self.pick("20Gi", "40Gi", "80Gi")}
        made: Manifest = {
            "name": f"gpu-{index}",
            "attributes": attributes,
            "capacity": {"memory": memory},
        }
        if self._capacity and self.often(0.5):
            made["allowMultipleAllocations"] = True
            self.add_policy(memory)
        self.add_taints(made)
        self.add_binding(made)
        return made

    def add_policy(self, capacity: Manifest) -> None:
        """Say which amounts can be had."""
        match self.pick("none", "default", "values", "range", "steps"):
            case "default":
                capacity["requestPolicy"] = {"default": self.pick("1Gi", "10Gi")}
            case "values":
                values = ["5Gi", "10Gi", "20Gi"]
                capacity["requestPolicy"] = {"default": self.pick(*values), "validValues": values}
            case "range":
                allowed = {"min": "4Gi"} | ({"max": "16Gi"} if self.often(0.5) else {})
                capacity["requestPolicy"] = {"default": "8Gi", "validRange": allowed}
            case "steps":
                allowed = {"min": "2Gi", "step": "3Gi"}
                allowed |= {"max": "14Gi"} if self.often(0.5) else {}
                capacity["requestPolicy"] = {"default": "5Gi", "validRange": allowed}

    def add_taints(self, device: Manifest) -> None:
        if self._taints and self.often(0.4):
            device["taints"] = [
                {
                    "key": key,
                    "value": self.pick("x", "y"),
                    "effect": self.pick("NoSchedule", "NoExecute", "None"),
                }
                for key in self.some(("sick", "old"), self.pick(1, 1, 2))
            ]

    def add_binding(self, device: Manifest) -> None:
        if self._binding and self.often(0.4):
            device["bindingConditions"] = [READY]
            device["bindingFailureConditions"] = [BROKEN]
            if self.often(0.3):
                device["bindsToNode"] = True

    def network(self) -> None:
        """Offer NICs that several nodes reach."""
        devices = [self.nic(index) for index in range(self.number(1, 4))]
        names = [each["metadata"]["name"] for each in self._made.nodes]
        way = self.pick("all", "zone", "devices") if self._counters else self.pick("all", "zone")
        if way == "devices":
            for each in devices:
                where = ({"allNodes": True}, {"nodeName": self.pick(*names)}, _zone())
                each.update(self.pick(*where))
            self.slice("net", NIC, "net", devices=devices, perDeviceNodeSelection=True)
        elif way == "zone":
            self.slice("net", NIC, "net", devices=devices, **_zone())
        else:
            self.slice("net", NIC, "net", devices=devices, allNodes=True)

    def nic(self, index: int) -> Manifest:
        bandwidth: Manifest = {"value": self.pick("10", "40")}
        made: Manifest = {
            "name": f"nic-{index}",
            "attributes": {"top.example.com/numa": {"int": index % 2}},
            "capacity": {"bandwidth": bandwidth},
        }
        if self._capacity and self.often(0.5):
            made["allowMultipleAllocations"] = True
        self.add_taints(made)
        self.add_binding(made)
        return made

    def partitions(self, pool: str, **where: Any) -> None:
        """Offer partitions of a device, the counters in a slice of their own."""
        about = {"resourceSliceCount": 2}
        units = {"memory": {"value": "80Gi"}, "parts": {"value": "7"}}
        counters = [{"name": f"set{i}", "counters": units} for i in range(self.pick(1, 1, 2))]
        devices = [self.partition(index, len(counters)) for index in range(self.pick(3, 4, 5))]
        self.slice(f"{pool}-sets", PART, pool, about=about, sharedCounters=counters, **where)
        self.slice(f"{pool}-devs", PART, pool, about=about, devices=devices, **where)

    def partition(self, index: int, sets: int) -> Manifest:
        size = self.pick(1, 2, 3, 4, 7)
        return {
            "name": f"part-{index}",
            "attributes": {"size": {"int": size}},
            "capacity": {"memory": {"value": f"{size * 10}Gi"}},
            "consumesCounters": [
                {
                    "counterSet": f"set{number}",
                    "counters": {
                        "memory": {"value": f"{size * 10}Gi"},
                        "parts": {"value": str(size)},
                    },
                }
                for number in self.some(range(sets), self.pick(1, sets))
            ],
        }

    def spread_partitions(self) -> None:
        """Offer a pool over several nodes, whose devices share one set of counters."""
        names = [each["metadata"]["name"] for each in self._made.nodes]
        about = {"resourceSliceCount": 1 + len(names)}
        units = {"memory": {"value": "80Gi"}, "parts": {"value": "7"}}
        sets = [{"name": self.pick("set0", "set0", "set0", "other"), "counters": units}]
        self.slice("rack", PART, "rack", about=about, sharedCounters=sets, nodeName=names[0])
        for number, name in enumerate(names):
            devices = [self.partition(number * 10 + index, 1) for index in range(2)]
            own = about | ({"generation": 2} if self.often(0.1) else {})
            self.slice(f"{name}-rack", PART, "rack", about=own, devices=devices, nodeName=name)

    # -- requests ----------------------------------------------------------------------------

    def pod(self, name: str) -> None:
        names: list[str] = []
        for letter in "ab"[: self.pick(1, 1, 2)]:
            known = [each["metadata"]["name"] for each in self._made.claims]
            if known and self.often(0.15):
                claim = self.pick(*known)
            else:
                claim = f"{name.replace('p', 'c')}{letter}"
                made = self.allocated if self.often(0.1) else self.claim
                self._made.claims.append(made(claim))
            if claim not in names:
                names.append(claim)
        claims = [{"name": f"d{index}"} for index in range(len(names))]
        resources = {"requests": {"cpu": "500m"}, "claims": claims}
        spec: Manifest = {
            "containers": [{"name": "main", "image": "none", "resources": resources}],
            "resourceClaims": [
                {"name": f"d{index}", "resourceClaimName": each} for index, each in enumerate(names)
            ],
        }
        if self.often(0.15):
            spec["nodeSelector"] = {"disk": self.pick("ssd", "hdd")}
        meta = {"name": name, "namespace": NAMESPACE}
        self._made.pods.append({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})

    def claim(self, name: str) -> Manifest:
        requests = [self.request(f"r{index}") for index in range(self.pick(1, 1, 1, 2, 2, 3))]
        devices: Manifest = {"requests": requests}
        has_parts = any(each["deviceClassName"] == "part" for each in _parts(requests))
        if not has_parts and self.often(0.35):
            devices["constraints"] = [self.constraint(requests) for _ in range(self.pick(1, 1, 2))]
        if self.often(0.15):
            some = [self.pick(*requests)["name"]] if self.often(0.5) else []
            devices["config"] = [{"requests": some, **_config(GPU, "claim")}]
        made = _headed("ResourceClaim", name, {"devices": devices})
        made["metadata"]["namespace"] = NAMESPACE
        return made

    def allocated(self, name: str) -> Manifest:
        """Return an allocated claim without users; its device may no longer be offered."""
        exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
        requests = [{"name": "r0", "exactly": exactly}]
        made = _headed("ResourceClaim", name, {"devices": {"requests": requests}})
        made["metadata"]["namespace"] = NAMESPACE
        offered = [each["spec"] for each in self._made.slices if each["spec"]["driver"] == GPU]
        spec = self.pick(*offered)
        device = self.pick(*spec["devices"], {"name": "gone"})
        result = {"request": "r0", "driver": GPU, "pool": spec["pool"]["name"]}
        result["device"] = device["name"]
        if device.get("allowMultipleAllocations"):
            result["shareID"] = str(uuid.UUID(int=self.number(1, 1 << 60)))
            result["consumedCapacity"] = {"memory": self.pick("1Gi", "5Gi", "20Gi")}
        only = {"key": "metadata.name", "operator": "In", "values": [spec["nodeName"]]}
        allocation: Manifest = {
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [only]}]},
        }
        if BINDING in self._made.gates:  # else the original can't reserve it
            allocation["allocationTimestamp"] = "2026-01-01T00:00:00Z"
        made["status"] = {"allocation": allocation}
        return made

    def request(self, name: str) -> Manifest:
        if self.often(0.25):
            choices = [
                {"name": f"s{index}", **self.exact_request(may_be_all=not index)}
                for index in range(self.pick(2, 2, 3))
            ]
            return {"name": name, "firstAvailable": choices}
        exactly = self.exact_request()
        if self.often(0.08):
            exactly["adminAccess"] = True
        return {"name": name, "exactly": exactly}

    def exact_request(self, *, may_be_all: bool = True) -> Manifest:
        """Return what an exact request and an alternative have in common."""
        kinds = ["gpu"] * 4 + ["nic"] + ["part"] * 3 * self._counters
        kind = self.pick(*kinds)
        exact_request: Manifest = {"deviceClassName": kind}
        if kind == "gpu" and self.often(0.5):
            exact_request["selectors"] = [_cel(self.pick(*SELECTORS))]
        if self._capacity and kind != "part":
            if self.often(0.2):
                exact_request.setdefault("selectors", []).append(_cel(SHARED))
            if self.often(0.4):
                exact_request["capacity"] = {"requests": self.amounts(kind)}
        if may_be_all and kind != "part" and self.often(0.15):
            exact_request["allocationMode"] = "All"
        else:
            exact_request |= {"allocationMode": "ExactCount", "count": self.pick(1, 1, 1, 2, 2, 3)}
        if self._taints and self.often(0.5):
            exact_request["tolerations"] = [self.toleration() for _ in range(self.pick(1, 1, 2))]
        return exact_request

    def amounts(self, kind: str) -> Manifest:
        if kind == "nic":
            return {"bandwidth": self.pick("1", "5", "15")}
        if self.often(0.1):
            return {"unknown": "1"}
        return {"memory": self.pick("1Gi", "3Gi", "5Gi", "6Gi", "12Gi", "15Gi", "30Gi", "500Mi")}

    def toleration(self) -> Manifest:
        made: Manifest = self.pick(
            {"key": "sick", "operator": "Exists"},
            {"key": "sick", "operator": "Equal", "value": "x"},
            {"key": "old", "operator": "Equal", "value": "y"},
            {"operator": "Exists"},
        )
        effect = self.pick("", "NoSchedule", "NoExecute")
        return made | ({"effect": effect} if effect else {})

    def constraint(self, requests: list[Manifest]) -> Manifest:
        attribute = self.pick(
            "top.example.com/numa", f"{GPU}/model", f"{GPU}/version", f"{GPU}/ecc"
        )
        is_one_each = all(each.get("count") == 1 for each in _parts(requests))
        is_distinct = self._capacity and is_one_each and self.often(0.5)
        made: Manifest = {"distinctAttribute" if is_distinct else "matchAttribute": attribute}
        if self.often(0.5):
            some = self.some(requests, self.number(1, len(requests)))
            made["requests"] = [self.named(each) for each in some]
        return made

    def named(self, request: Manifest) -> str:
        """Return the name of a request, or of one of its alternatives."""
        name: str = request["name"]
        if "firstAvailable" in request and self.often(0.4):
            return f"{name}/{self.pick(*request['firstAvailable'])['name']}"
        return name


def _headed(kind: str, name: str, spec: Manifest) -> Manifest:
    return {"apiVersion": V1, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _parts(requests: list[Manifest]) -> list[Manifest]:
    """Return exact requests and alternatives."""
    return [part for each in requests for part in each.get("firstAvailable", [each.get("exactly")])]


def _cel(expression: str) -> Manifest:
    return {"cel": {"expression": expression}}


def _config(driver: str, source: str) -> Manifest:
    return {"opaque": {"driver": driver, "parameters": {"from": source}}}


def _zone() -> Manifest:
    expression = {"key": ZONE, "operator": "In", "values": ["z0"]}
    return {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
