"""A machine with cgroups of pods, for the tests of the node agent.

The tree is a dictionary (``MemoryHost``); pods are objects as the API server has them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.memory_host import MemoryHost

from koordinator.api.annotations.numa import CpuInfo
from koordinator.api.codec import decode
from koordinator.api.node import Node
from koordinator.api.node_slo import NodeSloSpec
from koordinator.api.pod import Pod
from koordinator.domain.cgroups.files import CgroupFile, CgroupVersion, cgroup_path
from koordinator.domain.cgroups.layout import CgroupDriver, CgroupLayout
from koordinator.host.port import Roots
from koordinator.koordlet.cgroup_tree import CgroupTree
from koordinator.koordlet.view.machine import Machine
from koordinator.koordlet.view.node_view import NodeView
from koordinator.koordlet.view.pods import PodView, pod_view
from koordinator.koordlet.view.slo import effective_slo

GIB = 1 << 30
START_S = 1_700_000_000.0
LAYOUT = CgroupLayout(CgroupDriver.CGROUPFS)
V1, V2 = CgroupVersion.V1, CgroupVersion.V2
NO_LIMIT = "9223372036854771712"
#: What a new cgroup has.
FRESH: Mapping[CgroupFile, str] = {
    CgroupFile.CPU_SHARES: "1024",
    CgroupFile.CFS_QUOTA: "-1",
    CgroupFile.CFS_PERIOD: "100000",
    CgroupFile.CFS_BURST: "0",
    CgroupFile.BVT_WARP: "0",
    CgroupFile.CPU_IDLE: "0",
    CgroupFile.CPU_USAGE: "0",
    CgroupFile.CPU_STAT: "nr_periods 0\nnr_throttled 0\nthrottled_time 0",
    CgroupFile.PROCS: "",
    CgroupFile.TASKS: "",
    CgroupFile.MEMORY_LIMIT: NO_LIMIT,
    CgroupFile.MEMORY_USAGE: "0",
    CgroupFile.MEMORY_STAT: (
        "total_inactive_anon 0\ntotal_active_anon 0\ntotal_inactive_file 0\n"
        "total_active_file 0\ntotal_unevictable 0"
    ),
    CgroupFile.MEMORY_MIN: "0",
    CgroupFile.MEMORY_LOW: "0",
    CgroupFile.MEMORY_HIGH: str(2**63 - 1),
    CgroupFile.WMARK_RATIO: "0",
    CgroupFile.WMARK_SCALE: "50",
    CgroupFile.WMARK_MIN_ADJ: "0",
    CgroupFile.MEMORY_PRIORITY: "0",
    CgroupFile.USE_PRIORITY_OOM: "0",
    CgroupFile.OOM_GROUP: "0",
}


def cpus(count: int, *, sockets: int = 1, threads: int = 1) -> tuple[CpuInfo, ...]:
    """Return CPUs numbered as Linux does: first one thread of every core, then the others."""
    cores = count // threads
    per_socket = cores // sockets
    return tuple(
        CpuInfo(
            id=cpu,
            core=cpu % cores,
            socket=cpu % cores // per_socket,
            node=cpu % cores // per_socket,
        )
        for cpu in range(count)
    )


def machine(
    cpu: int = 8,
    memory: int = 32 * GIB,
    *,
    allocatable: Mapping[str, str | int] | None = None,
    annotations: Mapping[str, str] | None = None,
    topology: Sequence[CpuInfo] | None = None,
    kubelet_policy: str = "none",
) -> Machine:
    """Return a node ``n1`` and its CPUs."""
    capacity = {"cpu": str(cpu), "memory": str(memory)}
    stated = {**capacity, **{key: str(value) for key, value in (allocatable or {}).items()}}
    node = decode(
        {
            "metadata": {"name": "n1", "annotations": dict(annotations or {})},
            "status": {"capacity": capacity, "allocatable": stated},
        },
        Node,
    )
    return Machine(node, topology or cpus(cpu), kubelet_policy)


def pod(
    name: str,
    qos: str = "",
    *,
    requests: Mapping[str, str | int] | None = None,
    limits: Mapping[str, str | int] | None = None,
    containers: int = 1,
    priority: int | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    phase: str = "Running",
    created: str = "2023-11-01T00:00:00Z",
    **status: Any,
) -> Pod:
    """Return a pod with containers ``c0``, ``c1``, … that are all alike and have started."""
    resources = {
        "requests": {key: str(value) for key, value in (requests or {}).items()},
        "limits": {key: str(value) for key, value in (limits or {}).items()},
    }
    spec: dict[str, Any] = {
        "nodeName": "n1",
        "containers": [{"name": f"c{n}", "resources": resources} for n in range(containers)],
    }
    if priority is not None:
        spec["priority"] = priority
    own = {"koordinator.sh/qosClass": qos} if qos else {}
    return decode(
        {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": f"uid-{name}",
                "labels": own | dict(labels or {}),
                "annotations": dict(annotations or {}),
                "creationTimestamp": created,
            },
            "spec": spec,
            "status": {
                "phase": phase,
                "containerStatuses": [
                    {"name": f"c{n}", "containerID": f"containerd://{name}-c{n}"}
                    for n in range(containers)
                ],
                **status,
            },
        },
        Pod,
    )


#: The same of version 2, where it differs.
FRESH_V2: Mapping[str, str] = {
    "cpu.weight": "39",
    "cpu.max": "max 100000",
    "cpu.max.burst": "0",
    "cpu.stat": "usage_usec 0\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0",
    "memory.max": "max",
    "memory.high": "max",
    "memory.stat": (
        "inactive_anon 0\nactive_anon 0\ninactive_file 0\nactive_file 0\nunevictable 0"
    ),
}


class Tree:
    """Cgroups of a node in memory.  Everything is found at the roots of a host process."""

    def __init__(
        self,
        all_cpus: str = "0-7",
        version: CgroupVersion = V1,
        host: MemoryHost | None = None,
    ) -> None:
        self.host = host or MemoryHost()
        self.roots = Roots()
        self.cgroups = CgroupTree(self.host, self.roots.cgroup, version)
        self._all_cpus = all_cpus
        for folder in ("", LAYOUT.kubepods, LAYOUT.burstable, LAYOUT.besteffort):
            self.add(folder)

    def add(self, folder: str, **values: str | int) -> None:
        """Make a cgroup; values are by the names of ``CgroupFile`` in lower case."""
        for file, text in {**FRESH, CgroupFile.CPUSET: self._all_cpus}.items():
            self.set(file, folder, values.pop(file.name.lower(), text))
        for name, value in values.items():
            self.set(CgroupFile[name.upper()], folder, value)
        if self.cgroups.version is V2:
            self._add_v2(folder)

    def _add_v2(self, folder: str) -> None:
        path = "/".join(filter(None, (self.roots.cgroup, folder)))
        for file, text in {**FRESH_V2, "cpuset.cpus.effective": self._all_cpus}.items():
            self.host.put(f"{path}/{file}", f"{text}\n")
        self.host.put(f"{self.roots.cgroup}/cgroup.controllers", "cpu cpuset memory\n")

    def add_pod(self, pod_: Pod, **values: str | int) -> PodView:
        """Make the cgroups of a pod and its containers; the values are of the containers."""
        view = pod_view(pod_, LAYOUT)
        self.add(view.folder)
        for container in view.containers:
            self.add(container.folder, **values)
        return view

    def set(self, file: CgroupFile, folder: str, value: str | int) -> None:
        """Give a file a content as the kernel would."""
        path = self.cgroups.path(file, folder)
        if path is not None:
            self.host.put(path, f"{value}\n")

    def get(self, file: CgroupFile, folder: str) -> str:
        """Return what a file holds."""
        return self.cgroups.read(file, folder).strip()

    def path(self, file: CgroupFile, folder: str) -> str:
        """Return where a file is; it must exist in this version."""
        below = cgroup_path(file, folder, self.cgroups.version)
        assert below is not None
        return f"{self.roots.cgroup}/{below}"

    def view(
        self,
        *pods: PodView,
        machine_: Machine | None = None,
        slo: NodeSloSpec | None = None,
        now_s: float = START_S,
    ) -> NodeView:
        """Return what strategies see."""
        spec = effective_slo(slo or NodeSloSpec(), LAYOUT)
        return NodeView(now_s, machine_ or machine(), spec, pods, LAYOUT, self.cgroups)


def slo(**sections: Any) -> NodeSloSpec:
    """Return a NodeSLO spec, its fields in the spelling of Kubernetes."""
    return decode(sections, NodeSloSpec)
