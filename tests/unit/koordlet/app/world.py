"""A node that an agent looks after: its machine and its cluster in memory."""

from typing import Any

import numpy as np
from msgspec.structs import replace
from tests.memory_host import MemoryHost
from tests.nodes import GIB, LAYOUT, START_S, Tree, cpus, machine, pod

from koordinator.api.meta import ObjectMeta
from koordinator.api.node_slo import NodeSlo, NodeSloSpec, ResourceThresholdStrategy
from koordinator.api.pod import Pod
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.domain.cgroups.files import CgroupFile, CgroupVersion
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.cpu_list import parse_cpu_list
from koordinator.foundation.errors import ClusterError
from koordinator.host.gpus import NoGpus
from koordinator.koordlet.app import Koordlet, KoordletOptions, Outbox, assemble_agent
from koordinator.koordlet.app.options import gates_of
from koordinator.koordlet.view.pods import PodView

ALL = gates_of({"BEMemoryEvict": True, "BECPUEvict": True, "CgroupReconcile": True})


class World:
    """A node, of eight CPUs unless stated, that lives through seconds."""

    def __init__(
        self,
        host: MemoryHost | None = None,
        version: CgroupVersion = CgroupVersion.V1,
        cpu: int = 8,
        **options: object,
    ) -> None:
        self.tree = Tree(f"0-{cpu - 1}", version, host)
        self.clock = VirtualClock(START_S)
        self.cluster = MemoryCluster(self.clock)
        self.outbox = Outbox()
        self.cluster.create(machine(cpu).node)
        self.busy_ticks = 0.0
        self.used_s: dict[str, float] = {}
        self.options = KoordletOptions(node_name="n1", **{"gates": ALL} | options)  # type: ignore[arg-type]
        host = self.tree.host
        host.put("/sys/devices/system/cpu/online", f"0-{cpu - 1}\n")
        for info in cpus(cpu):
            folder = f"/sys/devices/system/cpu/cpu{info.id}"
            host.put(f"{folder}/topology/core_id", f"{info.core}\n")
        self.memory(8)
        self.load({})
        self.agent = self.start()

    def start(self, cluster: Any = None, *, is_connected: bool = True, **parts: Any) -> Koordlet:
        """Start an agent, as after a crash; ``cluster`` replaces the one of the node.

        Unless it ``is_connected``, it has none until ``Koordlet.connect``.
        """
        return assemble_agent(
            (cluster or self.cluster) if is_connected else None,
            self.clock,
            host=self.tree.host,
            chance=np.random.default_rng(1),
            options=self.options,
            outbox=self.outbox,
            **{"gpus": NoGpus()} | parts,
        )

    def add(self, made: Pod) -> PodView:
        """Have a pod run on the node."""
        status = made.status
        stored = self.cluster.create(made)
        live = self.cluster.update_status(replace(stored, status=status))
        return self.tree.add_pod(live)

    def slo(self, **threshold: object) -> None:
        """Give the node a NodeSLO."""
        strategy = ResourceThresholdStrategy(enable=True, **threshold)  # type: ignore[arg-type]
        node_slo = NodeSlo(
            metadata=ObjectMeta(name="n1"),
            spec=NodeSloSpec(resource_used_threshold_with_be=strategy),
        )
        try:
            self.cluster.create(node_slo)
        except ClusterError:
            self.cluster.update(node_slo)

    def memory(self, used_gib: float) -> None:
        """Set the used memory of the node, which has 32 GiB."""
        total, free = 32 * GIB // 1024, int((32 - used_gib) * GIB) // 1024
        self.tree.host.put(
            "/proc/meminfo",
            f"MemTotal: {total} kB\nMemFree: {free} kB\nMemAvailable: {free} kB\n"
            "Active(file): 0 kB\nInactive(file): 0 kB\nSReclaimable: 0 kB\n",
        )

    def load(self, cores: dict[str, float], system: float = 0.3) -> None:
        """Advance the counters by a second in which the folders use so many cores."""
        self.busy_ticks += 100 * (sum(cores.values()) + system)
        self.tree.host.put("/proc/stat", f"cpu  {int(self.busy_ticks)} 0 0 0 0 0 0\n")
        for folder, used in cores.items():
            self.used_s[folder] = self.used_s.get(folder, 0.0) + used
            self.count(folder, int(self.used_s[folder] * 1e9))

    def count(self, folder: str, used_ns: int) -> None:
        """Set the CPU time that a cgroup has used."""
        if self.tree.cgroups.version is CgroupVersion.V1:
            self.tree.set(CgroupFile.CPU_USAGE, folder, used_ns)
            return
        periods = "nr_periods 0\nnr_throttled 0\nthrottled_usec 0"
        text = f"usage_usec {used_ns // 1000}\n{periods}"
        self.tree.set(CgroupFile.CPU_STAT, folder, text)

    def seconds(self, count: int, cores: dict[str, float] | None = None) -> None:
        """Advance the clock second by second, and run the agent."""
        for _ in range(count):
            self.load(cores or {})
            self.clock.advance_to(self.clock.now_s() + 1)
            self.agent.step()

    def be_cpus(self) -> int:
        """Return how many CPUs best effort has."""
        return parse_cpu_list(self.tree.get(CgroupFile.CPUSET, LAYOUT.besteffort)).bit_count()


def ls_and_be(world: World) -> tuple[PodView, PodView]:
    """Add an online service and a batch job."""
    return world.add(pod("ls", "LS", requests={"cpu": 1})), world.add(pod("be", "BE"))
