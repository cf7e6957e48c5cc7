"""Pods of real processes in real cgroups (v1), and an agent that looks after them.

The tree of pods lies below a folder of its own in every hierarchy; a folder of links makes it look
like a whole machine.  The machine that runs tests is busy with other things, so /proc/stat and
/proc/meminfo are made here: they count what our own pods use and nothing else, as on a node that
runs nothing besides.  Everything else is the kernel's.
"""

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace
from tests.nodes import LAYOUT, pod
from tests.nodes import machine as node_machine

from koordinator.api.meta import ObjectMeta
from koordinator.api.node_slo import NodeSlo, NodeSloSpec
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.foundation.clock import SystemClock
from koordinator.host.gpus import NoGpus
from koordinator.host.linux.core_scheduling import LinuxCoreScheduling
from koordinator.host.linux.host import LinuxHost
from koordinator.host.linux.trees import Trees, trees_of
from koordinator.host.port import Roots
from koordinator.koordlet.app import Koordlet, KoordletOptions, Outbox, assemble_agent
from koordinator.koordlet.app.metrics import NodeGauges
from koordinator.koordlet.app.options import gates_of
from koordinator.koordlet.runtime_hooks.runtime_hooks import RuntimeHooks
from koordinator.koordlet.view.pods import PodView, pod_view

CGROUPS = Path("/sys/fs/cgroup")
HIERARCHIES = ("cpu", "cpuacct", "cpuset", "memory")
MIB = 1 << 20
# What a process gets before it is moved would count for the group that it came from.
_WHEN_MOVED = """import time
while not any(":{hierarchy}:/{own}" in line for line in open("/proc/self/cgroup")):
    time.sleep(0.01)
"""
MEMORY_MIB = 1024  # of the machine that we pretend to be
TICKS_PER_S = 100
_SHARES = 8192  # enough to get a core where other work goes on
SPIN = "while True: pass"


def missing() -> str:
    """Return why there can be no real cgroups here; empty if there can."""
    if os.geteuid() != 0:
        return "needs root to make cgroups"
    absent = [name for name in HIERARCHIES if not (CGROUPS / name / "cgroup.procs").exists()]
    return f"needs cgroup v1: no {', '.join(absent)}" if absent else ""


class PodsMachine:
    """A node of as many CPUs as this machine has, and one gibibyte of memory."""

    def __init__(self, folder: Path) -> None:
        self.cpus = len(os.sched_getaffinity(0))
        self.clock = SystemClock()
        self.cluster = MemoryCluster(self.clock)
        self.outbox = Outbox()
        self.roots = Roots(cgroup=str(folder / "cgroup"), proc=str(folder / "proc"))
        self.host = LinuxHost(trees=Trees(trees_of(self.roots)))
        self._own = f"koordlet-test-{uuid.uuid4().hex[:8]}"
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        (folder / "cgroup").mkdir()
        for name in HIERARCHIES:
            (CGROUPS / name / self._own).mkdir()
            (folder / "cgroup" / name).symlink_to(CGROUPS / name / self._own)
        self._open_cpuset(CGROUPS / "cpuset" / self._own)
        self.write("cpu", "", "cpu.shares", str(_SHARES))
        for tier in (LAYOUT.kubepods, LAYOUT.burstable, LAYOUT.besteffort):
            self._make(tier)
        self.write("cpu", LAYOUT.besteffort, "cpu.shares", "2")  # as the kubelet does
        (folder / "proc").mkdir()
        self.count()
        node = node_machine(self.cpus, MEMORY_MIB * MIB).node
        self.cluster.create(node)
        self.agent = self.start()

    def start(
        self,
        gauges: NodeGauges | None = None,
        runtime_hooks: RuntimeHooks | None = None,
        **gates: bool,
    ) -> Koordlet:
        """Return an agent that has just been started; the gates are added to some of our own."""
        return assemble_agent(
            self.cluster,
            self.clock,
            host=self.host,
            gpus=NoGpus(),
            chance=np.random.default_rng(1),
            options=KoordletOptions(
                node_name="n1",
                roots=self.roots,
                gates=gates_of({"BEMemoryEvict": True, "CPUSetAllocator": False} | gates),
                ticks_per_s=TICKS_PER_S,
            ),
            outbox=self.outbox,
            core_scheduling=LinuxCoreScheduling(),
            gauges=gauges,
            runtime_hooks=runtime_hooks,
        )

    def slo(self, spec: NodeSloSpec) -> None:
        """Give the node its NodeSLO."""
        self.cluster.create(NodeSlo(metadata=ObjectMeta(name="n1"), spec=spec))

    def run(self, name: str, qos: str, code: str = SPIN, **resources: Any) -> PodView:
        """Start a pod with one container that runs some Python."""
        view = self.place(name, qos, 1, **resources)
        limit = view.containers[0].cpu_limit_milli
        for folder in (view.folder, view.containers[0].folder) if limit else ():
            self.write("cpu", folder, "cpu.cfs_quota_us", str(limit * 100))
        self.spawn(view, code)
        return view

    def place(self, name: str, qos: str, containers: int, **resources: Any) -> PodView:
        """Make a pod and its cgroups, with nothing that runs."""
        made = pod(name, qos, containers=containers, **resources)
        stored = self.cluster.create(made)
        live = self.cluster.update_status(replace(stored, status=made.status))
        view = pod_view(live, LAYOUT)
        self.make_cgroups(view)
        return view

    def make_cgroups(self, view: PodView) -> None:
        """Create the cgroups of a pod and its containers, as the kubelet and the runtime do."""
        for folder in (view.folder, *(container.folder for container in view.containers)):
            self._make(folder)

    def spawn(self, view: PodView, code: str) -> subprocess.Popen[bytes]:
        """Start a process in the container of a pod."""
        waiting = _WHEN_MOVED.format(own=self._own, hierarchy=HIERARCHIES[-1])
        command = [sys.executable, "-S", "-c", waiting + code]
        process = subprocess.Popen(command, start_new_session=True)
        self._processes.append(process)
        for name in HIERARCHIES:
            self.write(name, view.containers[0].folder, "cgroup.procs", str(process.pid))
        return process

    def write(self, hierarchy: str, folder: str, file: str, text: str) -> None:
        """Write a file as the kubelet or a runtime would."""
        (CGROUPS / hierarchy / self._own / folder / file).write_text(text)

    def read(self, hierarchy: str, folder: str, file: str) -> str:
        """Return what a file holds."""
        return (CGROUPS / hierarchy / self._own / folder / file).read_text().strip()

    def has(self, hierarchy: str, folder: str, file: str) -> bool:
        """Return whether the kernel has a file."""
        return (CGROUPS / hierarchy / self._own / folder / file).exists()

    def count(self) -> None:
        """Bring /proc/stat and /proc/meminfo up to date with what our pods use."""
        used_ns = int(self.read("cpuacct", LAYOUT.kubepods, "cpuacct.usage"))
        ticks = used_ns * TICKS_PER_S // 10**9
        used_kib = int(self.read("memory", LAYOUT.kubepods, "memory.usage_in_bytes")) // 1024
        total = MEMORY_MIB * 1024
        self._replace("stat", f"cpu  {ticks} 0 0 0 0 0 0\n")
        self._replace(
            "meminfo",
            f"MemTotal: {total} kB\nMemFree: {total - used_kib} kB\n"
            f"MemAvailable: {total - used_kib} kB\nActive(file): 0 kB\n"
            "Inactive(file): 0 kB\nSReclaimable: 0 kB\n",
        )

    def live(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Run the agent until a condition holds; return whether it did in time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.count()
            self.agent.step()
            if until():
                return True
            time.sleep(0.05)
        return False

    def cores(self, view: PodView, seconds: float) -> float:
        """Return how much CPU a pod gets, the agent working meanwhile."""
        start_ns, start_s = self._used_ns(view), time.monotonic()
        self.live(seconds)
        return (self._used_ns(view) - start_ns) / 1e9 / (time.monotonic() - start_s)

    def remove(self) -> None:
        """End everything that was started, and remove the cgroups."""
        self.agent.close()
        self.host.close()
        # Who starves can't even end.
        for file, text in (("cpu.idle", "0"), ("cpu.shares", "1024"), ("cpu.cfs_quota_us", "-1")):
            with suppress(OSError):
                self.write("cpu", LAYOUT.besteffort, file, text)
        for process in self._processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)
        for name in HIERARCHIES:
            root = CGROUPS / name / self._own
            for folder in sorted(root.rglob("*/"), key=lambda path: -len(path.parts)):
                remove_cgroup(folder)
            remove_cgroup(root)

    def _used_ns(self, view: PodView) -> int:
        return int(self.read("cpuacct", view.folder, "cpuacct.usage"))

    def _make(self, folder: str) -> None:
        for name in HIERARCHIES:
            path = CGROUPS / name / self._own / folder
            path.mkdir(parents=True, exist_ok=True)
        path = CGROUPS / "cpuset" / self._own
        for part in Path(folder).parts:
            path /= part
            self._open_cpuset(path)

    @staticmethod
    def _open_cpuset(path: Path) -> None:
        for file in ("cpuset.cpus", "cpuset.mems"):
            (path / file).write_text((path.parent / file).read_text())

    def _replace(self, name: str, text: str) -> None:
        temporary = self._folder / "proc" / f"{name}.tmp"
        temporary.write_text(text)
        temporary.replace(self._folder / "proc" / name)


def remove_cgroup(folder: Path) -> None:
    """Remove a cgroup; a process that has just ended may still count for a moment."""
    for _ in range(100):
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.05)
        else:
            return
