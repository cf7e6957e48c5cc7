"""Machines with NUMA nodes, CPUs, GPUs and NICs, and pods that want something of them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st
from tests.worlds import Amount, configuration, made, node, pod

from koordinator.api.meta import JsonObject, KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod

SPEC = "scheduling.koordinator.sh/resource-spec"
STATUS = "scheduling.koordinator.sh/resource-status"
NUMA_SPEC = "scheduling.koordinator.sh/numa-topology-spec"
HINT = "scheduling.koordinator.sh/device-allocate-hint"
JOINT = "scheduling.koordinator.sh/device-joint-allocate"
ALLOCATED = "scheduling.koordinator.sh/device-allocated"
PARTITIONS = "scheduling.koordinator.sh/gpu-partitions"
POLICY = "node.koordinator.sh/numa-topology-policy"
BIND = "node.koordinator.sh/cpu-bind-policy"
AMPLIFICATION = "node.koordinator.sh/resource-amplification-ratio"
CORE, MEMORY, RATIO = (f"koordinator.sh/gpu-{what}" for what in ("core", "memory", "memory-ratio"))

_POINTS = ("preFilter", "filter", "score", "reserve", "preBind")
_BOTH = {"enabled": [{"name": "NodeNUMAResource"}, {"name": "DeviceShare"}]}

#: A profile with both plugins at all of their points.
PLACES = configuration(plugins=dict.fromkeys(_POINTS, _BOTH))


def machine(
    name: str,
    *,
    zones: int = 2,
    cores: int = 4,
    memory: int = 16,
    gpus: int = 0,
    nics: int = 0,
    functions: int = 2,
    unhealthy: Sequence[int] = (),
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    device: JsonObject | None = None,
    topology: Mapping[str, str] | None = None,
) -> list[KubeObject]:
    """Return a node, its topology and the report of its devices.

    ``cores`` (of two threads) and ``memory`` (GiB) are of each of the ``zones``.  Two GPUs, and a
    NIC with ``functions`` virtual functions, share a PCIe root; GPUs have 40 GiB.  ``device`` is
    the metadata of the report, ``topology`` the further annotations of the topology.
    """
    extended: dict[str, Any] = {}
    if gpus:
        extended |= {"nvidia.com/gpu": gpus, "koordinator.sh/gpu": 100 * gpus}
        extended |= {CORE: 100 * gpus, RATIO: 100 * gpus, MEMORY: f"{40 * gpus}Gi"}
        extended |= {"koordinator.sh/gpu.shared": 100 * gpus}
    if nics:
        extended["koordinator.sh/rdma"] = 100 * nics
    whole = node(
        name, cpu=zones * cores * 2, memory=f"{zones * memory}Gi", labels=labels, **extended
    )
    whole.metadata.annotations.update(annotations or {})
    objects: list[KubeObject] = [whole, _topology(name, zones, cores, memory, topology or {})]
    if gpus or nics:
        devices = [_gpu(name, minor, gpus, zones, minor not in unhealthy) for minor in range(gpus)]
        devices += [_nic(minor, nics, zones, functions) for minor in range(nics)]
        objects.append(
            made(
                "Device",
                name,
                "scheduling.koordinator.sh/v1alpha1",
                metadata=device or {},
                spec={"devices": devices},
            )
        )
    return objects


def _topology(
    name: str, zones: int, cores: int, memory: int, annotations: Mapping[str, str]
) -> KubeObject:
    threads = zones * cores
    detail = [
        {"id": core + thread * threads, "core": core, "socket": zone, "node": zone}
        for zone in range(zones)
        for core in range(zone * cores, (zone + 1) * cores)
        for thread in range(2)
    ]
    amounts = {"cpu": str(cores * 2), "memory": f"{memory}Gi"}
    return made(
        "NodeResourceTopology",
        name,
        "topology.node.k8s.io/v1alpha1",
        metadata={
            "annotations": {
                "node.koordinator.sh/cpu-topology": json.dumps({"detail": detail}),
                **annotations,
            }
        },
        topologyPolicies=["None"],
        zones=[
            {
                "name": f"node-{zone}",
                "type": "Node",
                "resources": [
                    {"name": key, "capacity": much, "allocatable": much, "available": much}
                    for key, much in amounts.items()
                ],
            }
            for zone in range(zones)
        ],
    )


def _gpu(name: str, minor: int, count: int, zones: int, healthy: bool) -> JsonObject:
    zone = minor * zones // count
    return {
        "type": "gpu",
        "minor": minor,
        "health": healthy,
        "id": f"GPU-{name}-{minor}",
        "resources": {CORE: "100", RATIO: "100", MEMORY: "40Gi"},
        "topology": {"socketID": zone, "nodeID": zone, "pcieID": f"pci{minor // 2}"},
    }


def _nic(minor: int, count: int, zones: int, functions: int) -> JsonObject:
    zone = minor * zones // count
    buses = [f"0000:{minor + 48:02x}:01.{number}" for number in range(functions)]
    return {
        "type": "rdma",
        "minor": minor,
        "health": True,
        "id": f"0000:{minor + 48:02x}:00.0",
        "resources": {"koordinator.sh/rdma": "100"},
        "topology": {"socketID": zone, "nodeID": zone, "pcieID": f"pci{minor}"},
        "vfGroups": [{"vfs": [{"minor": -1, "busID": bus} for bus in buses]}],
    }


def bound_pod(name: str, cpu: int, qos: str = "LSR", **more: Any) -> Pod:
    """Return a pod that gets CPUs of its own; annotations are given as values."""
    annotations = {key: json.dumps(value) for key, value in more.pop("annotations", {}).items()}
    labels = {"koordinator.sh/qosClass": qos, **more.pop("labels", {})}
    return pod(
        name,
        cpu=cpu,
        memory=more.pop("memory", "1Gi"),
        labels=labels,
        annotations=annotations,
        priority=more.pop("priority", 9500),
        **more,
    )


# -- strategies ------------------------------------------------------------------------------

_policies = st.sampled_from(({}, {}, *({POLICY: p} for p in ("BestEffort", "Restricted"))))
_settings = st.sampled_from(({}, {}, {}, {BIND: "FullPCPUsOnly"}, {BIND: "SpreadByPCPUs"}))
_single = st.sampled_from(({}, {POLICY: "SingleNUMANode"}))
_partitions = {
    "annotations": {
        PARTITIONS: json.dumps(
            {
                "1": [{"minors": [m], "allocationScore": 1} for m in range(4)],
                "2": [{"minors": [m, m + 1], "allocationScore": 1} for m in (0, 2)],
                "4": [{"minors": [0, 1, 2, 3], "allocationScore": 1}],
            }
        )
    },
    "labels": {"node.koordinator.sh/gpu-partition-policy": "Honor"},
}


@st.composite
def machines(draw: st.DrawFn, name: str) -> list[KubeObject]:
    """Return a machine with any policy, with or without devices."""
    gpus = draw(st.sampled_from((0, 2, 4)))
    honors = gpus == 4 and draw(st.booleans())
    zones = draw(st.sampled_from((1, 2, 2)))
    return machine(
        name,
        zones=zones,
        cores=draw(st.sampled_from((2, 4))),
        memory=draw(st.sampled_from((4, 16))),
        gpus=gpus,
        nics=draw(st.sampled_from((0, gpus // 2))),
        unhealthy=draw(st.sampled_from(((), (), (0,)))) if gpus else (),
        labels={**draw(_policies), **draw(_single), **draw(_settings)},
        annotations=draw(st.sampled_from(({}, {}, {AMPLIFICATION: '{"cpu":1.5}'}))),
        device=_partitions if honors else None,
        topology=draw(
            st.sampled_from(
                ({}, {}, {"node.koordinator.sh/reservation": json.dumps({"reservedCPUs": "0,1"})})
            )
        ),
    )


@st.composite
def machine_pods(draw: st.DrawFn, name: str = "p") -> Pod:
    """Return a pending pod of one of many kinds."""
    requests: dict[str, Amount] = draw(
        st.sampled_from(
            (
                {},
                {},
                {"koordinator.sh/gpu": 50},
                {CORE: 30, RATIO: 30},
                {"nvidia.com/gpu": 1},
                {"nvidia.com/gpu": 2},
                {"koordinator.sh/gpu": 100, "koordinator.sh/rdma": 1},
                {"koordinator.sh/gpu": 200, "koordinator.sh/rdma": 100},
                {"koordinator.sh/gpu.shared": 2, RATIO: 100},
                {"koordinator.sh/rdma": 10},
                {CORE: 10, MEMORY: "10Gi"},
            )
        )
    )
    annotations: JsonObject = {}
    if "koordinator.sh/rdma" in requests:
        annotations[HINT] = draw(st.sampled_from(({}, {"rdma": {"vfSelector": {}}})))
        if "koordinator.sh/gpu" in requests:
            scope = draw(st.sampled_from(({}, {"requiredScope": "SamePCIe"})))
            annotations[JOINT] = {"deviceTypes": ["gpu", "rdma"], **scope}
    elif requests:
        scope_hint = {"gpu": {"requiredTopologyScope": "PCIe"}}
        annotations[HINT] = draw(st.sampled_from(({}, {}, scope_hint)))
    policy = draw(st.sampled_from(("", "", "", "BestEffort", "Restricted", "SingleNUMANode")))
    if policy:
        exclusive = draw(st.sampled_from(("", "Preferred", "Required")))
        annotations[NUMA_SPEC] = {
            "numaTopologyPolicy": policy,
            **({"singleNUMANodeExclusive": exclusive} if exclusive else {}),
        }
    qos = draw(st.sampled_from(("", "LS", "LSR", "LSE")))
    if qos in {"LSR", "LSE"}:
        how = draw(st.sampled_from(("preferredCPUBindPolicy", "requiredCPUBindPolicy")))
        annotations[SPEC] = {
            how: draw(st.sampled_from(("FullPCPUs", "SpreadByPCPUs"))),
            **draw(st.sampled_from(({}, {"preferredCPUExclusivePolicy": "PCPULevel"}))),
        }
    amounts: tuple[Amount, ...] = (1, 2, 3, 4, "500m")
    cpu = draw(st.sampled_from(amounts))
    return pod(
        name,
        cpu=cpu,
        memory=draw(st.sampled_from(("1Gi", "3Gi", "6Gi"))),
        requests=requests,
        labels={"koordinator.sh/qosClass": qos} if qos else {},
        annotations={key: json.dumps(value) for key, value in annotations.items()},
        priority=draw(st.sampled_from((0, 9500))),
    )


@st.composite
def machine_rooms(draw: st.DrawFn) -> list[KubeObject]:
    """Return up to three machines, with pods that hold some of them as their annotations say."""
    names = [f"m{index}" for index in range(draw(st.integers(1, 3)))]
    objects = [obj for name in names for obj in draw(machines(name))]
    unseen = draw(st.sampled_from((*names, "", "", "")))  # its agent reports nothing of it
    objects = [o for o in objects if isinstance(o, Node) or o.metadata.name != unseen]
    for index in range(draw(st.integers(0, 4))):
        entries = {
            STATUS: draw(
                st.sampled_from(
                    (
                        {"cpuset": f"{index}"},
                        {"numaNodeResources": [{"node": 0, "resources": {"cpu": "1"}}]},
                        {},
                    )
                )
            ),
            ALLOCATED: draw(
                st.sampled_from(
                    ({}, {"gpu": [{"minor": 0, "resources": {CORE: "20", RATIO: "20"}}]})
                )
            ),
        }
        annotations = {key: json.dumps(value) for key, value in entries.items()}
        on = draw(st.sampled_from(names))
        objects.append(pod(f"b{index}", cpu=1, on=on, annotations=annotations))
    return objects
