"""The monitor of GPU slices as a process: the loop, and a server.

Source: HAMi cmd/vGPUmonitor/main.go.
"""

from functools import partial

from koordinator.cli.component.page_servers import process_servers
from koordinator.cli.component.page_settings import PageSettings
from koordinator.cli.component.process import ComponentProcess, run_component
from koordinator.cli.vgpu_monitor.flags import VgpuMonitorFlags
from koordinator.cluster.kubernetes.cluster import KubernetesCluster
from koordinator.foundation.clock import WallClock
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.host.gpus import GpusOnDemand
from koordinator.host.linux.host import LinuxHost
from koordinator.host.linux.nvml import find_gpus
from koordinator.host.linux.vgpu_regions import LinuxRegionFolders
from koordinator.host.port import HOST
from koordinator.process.health import PING, Check
from koordinator.vgpu_monitor.metrics import VgpuCollector
from koordinator.vgpu_monitor.monitor import VgpuMonitor

_QPS, _BURST = 5.0, 10


def run_vgpu_monitor(flags: VgpuMonitorFlags) -> None:
    """Work until a signal comes.  Raises InputError for invalid arguments."""
    settings = _Settings(
        node_name=flags.node,
        folder=f"{flags.hook_path.rstrip('/')}/containers",
        pages=flags.pages.settings(flags.address),
        retention_s=flags.retention_s,
        with_old_names=flags.with_old_names,
    )
    run_component(
        "vgpu-monitor",
        "koord_vgpu_monitor",
        flags.process,
        flags.connection,
        lambda parts: _Process(settings, parts),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    node_name: str
    folder: str
    pages: PageSettings
    retention_s: float
    with_old_names: bool


class _Process:
    def __init__(self, settings: _Settings, parts: ComponentProcess) -> None:
        self._parts, self._pages = parts, settings.pages
        host = LinuxHost()
        parts.cleanup.callback(host.close)
        gpus = GpusOnDemand(partial(find_gpus, host, HOST.sys))
        self._monitor = VgpuMonitor(
            self._connect(),
            parts.clock,
            regions=LinuxRegionFolders(settings.folder),
            gpus=gpus,
            node_name=settings.node_name,
            wall_clock=WallClock(),
            retention_s=settings.retention_s,
        )
        parts.cleanup.callback(self._monitor.close)
        parts.registry.register(
            VgpuCollector(
                settings.node_name,
                lambda: self._monitor.snapshot,
                gpus,
                WallClock(),
                with_old_names=settings.with_old_names,
            )
        )

    def run(self) -> None:
        self._serve()
        while not self._parts.stopping.is_set():
            self._parts.heartbeat.beat()
            self._monitor.step()
            self._parts.stopping.wait(self._parts.wait_s(self._monitor.next_s()))

    def _connect(self) -> KubernetesCluster:
        return self._parts.connect(qps=_QPS, burst=_BURST)

    def _serve(self) -> None:
        parts = self._parts
        servers = process_servers(
            parts,
            self._pages,
            self._connect,
            "vgpu-monitor",
            alive=[PING, parts.heartbeat.check],
            ready=[Check("pods", self._not_ready)],
        )
        parts.start(servers)

    def _not_ready(self) -> str:
        return "" if self._monitor.is_ready else "the pods of the node are not known yet"
