"""The node agent as a process: the loop, a thread that reports, and a server.

Source: koordinator cmd/koordlet/main.go, options/options.go.
"""

import gc
import logging
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from prometheus_client import CollectorRegistry

from koordinator.cli.component.page_settings import PageSettings
from koordinator.cli.component.process import LONGEST_WAIT_S, ComponentProcess, run_component
from koordinator.cli.koordlet.flags import KoordletFlags
from koordinator.foundation.clock import WallClock
from koordinator.foundation.errors import Fault, InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.host.gpus import Gpus, GpusOnDemand, NoGpus
from koordinator.host.linux.core_scheduling import LinuxCoreScheduling
from koordinator.host.linux.hook_server import HookServer
from koordinator.host.linux.host import LinuxHost
from koordinator.host.linux.nri_connection import NriConnection
from koordinator.host.linux.perf_events import LinuxPerfEvents
from koordinator.host.linux.programs import LinuxNetworkTools
from koordinator.host.linux.sockets import (
    CriSocket,
    KubeletPlugin,
    PodResourcesProxy,
    PodResourcesSettings,
    SocketCopilot,
)
from koordinator.host.linux.trees import Tree, Trees, trees_of
from koordinator.host.linux.vgpu_regions import LinuxRegionFolders
from koordinator.koordlet.app import KoordletOptions, Outbox, assemble_agent
from koordinator.koordlet.app.device_hooks import DeviceHolders, device_expectations, device_hooks
from koordinator.koordlet.app.metrics import NodeGauges
from koordinator.koordlet.app.node_state import PREPARED_CLAIMS
from koordinator.koordlet.app.options import MEANINGLESS, parse_gates
from koordinator.koordlet.app.outbox import KUBELET_SILENT, node_event
from koordinator.koordlet.cgroup_tree import CgroupTree, find_pod_uids, find_version
from koordinator.koordlet.hooks.devices import LOCK_FOLDER, HamiCoreSettings
from koordinator.koordlet.pod_resources import COMPLETED, SERVICES, PodResourcesAnswers
from koordinator.koordlet.runtime_hooks.hook_service import SERVICE, HookService
from koordinator.koordlet.runtime_hooks.nri_plugin import NriHookPlugin
from koordinator.koordlet.runtime_hooks.runtime_hooks import RuntimeHooks
from koordinator.process.loop_calls import LoopCalls
from koordinator.process.termination import allow_all_descriptors

if TYPE_CHECKING:
    from koordinator.cluster.kubernetes.cluster import KubernetesCluster
    from koordinator.cluster.kubernetes.kubelet_pods import KubeletSource
    from koordinator.koordlet.device_claims import GpuClaims

log = logging.getLogger(__name__)

DELIVERY_TIMEOUT_S = 30.0
_SWITCH_S = 0.00005
_NAP_S = 0.02  # of a loop that follows pods at once: much comes together
#: Gates with which containers get what other pods had a moment ago.
_FOLLOWING = frozenset({"PodResourcesProxy", "GPUEnvInject", "RDMADeviceInject"})
_PARENT_OF_LOCKS = LOCK_FOLDER.rpartition("/")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class KoordletSettings:
    """Flags of the command line and their parsed values."""

    flags: KoordletFlags
    options: KoordletOptions
    pages: PageSettings
    liveness_deadline_s: float

    @staticmethod
    def of(flags: KoordletFlags) -> "KoordletSettings":
        """Return the settings of flags.  Raises InputError for a text that means nothing."""
        return KoordletSettings(
            flags=flags,
            options=flags.options(),
            pages=flags.pages.settings(flags.address()),
            liveness_deadline_s=flags.process.liveness_deadline_s,
        )


def run_agent(settings: KoordletSettings) -> None:
    """Work until a signal comes.  Raises InputError for invalid arguments."""
    flags = settings.flags
    run_component(
        "koordlet",
        "koordlet",
        flags.process,
        flags.connection,
        lambda parts: _Process(settings, parts),
    )


class _Process:
    def __init__(self, settings: KoordletSettings, parts: ComponentProcess) -> None:
        allow_all_descriptors()
        self._settings, self._parts, self._clock = settings, parts, parts.clock
        for gate, is_on in parse_gates(settings.flags.feature_gates).items():
            if is_on and gate in MEANINGLESS:
                why = MEANINGLESS[gate]
                log.warning("feature gate without effect", extra={"gate": gate, "why": why})
        self._loop_calls = LoopCalls()
        self._outbox = Outbox()
        options = settings.options
        own = (options.audit_folder, options.checkpoint_folder, options.xpu_folder)
        trees = Trees(trees_of(options.roots, *own, options.roots.terway))
        host = LinuxHost(trees=trees)
        parts.cleanup.callback(host.close)
        now_s = self._clock.now_s()
        self._external = CollectorRegistry()
        gauges = NodeGauges(self._parts.registry, options.node_name, now_s, self._external)
        self._kubelet_problem = ""
        self._gauges = gauges
        self._device_holders = DeviceHolders(self._cgroups_of_threads().exists)
        self._gpu_claims = self._make_gpu_claims()
        hooks = self._make_runtime_hooks(own, gauges)
        self._pod_resources = self._make_pod_resources()
        self._agent = assemble_agent(
            None,
            self._clock,
            host=host,
            gpus=self._find_gpus(host),
            chance=np.random.default_rng(),
            options=options,
            outbox=self._outbox,
            wall_clock=WallClock(),
            perf_events=LinuxPerfEvents(trees=trees),
            core_scheduling=LinuxCoreScheduling(),
            on_failure=self._report_failure,
            copilot=self._find_copilot(),
            gauges=gauges,
            runtime_hooks=hooks,
            pod_resources=self._pod_resources,
            gpu_claims=self._gpu_claims,
            device_holders=self._device_holders,
            container_runtime=self._find_runtime(),
            network_tools=LinuxNetworkTools(),
        )
        parts.cleanup.callback(self._agent.close)
        self._nri = self._make_nri(hooks, gauges)
        self._hook_server = self._make_hook_server(hooks)
        self._proxy = self._make_proxy()
        self._gpu_plugin = self._make_gpu_plugin()

    def run(self) -> None:
        # Containers may be starting: the runtime is served before the libraries for HTTP are
        # loaded, which takes as long as all of the rest.
        self._agent.serve_from_checkpoint()
        if self._nri is not None:
            # A container that starts waits for this process: a thread that computes hands over
            # after a twentieth of a millisecond, not after five: an answer waits for several files.
            sys.setswitchinterval(_SWITCH_S)
            self._nri.start()
            self._parts.cleanup.callback(self._nri.stop)
        self._watched = self._connect(self._find_kubelet())
        self._agent.connect(self._watched)
        self._serve()
        self._parts.cleanup.callback(self._loop_calls.close)
        threading.Thread(target=self._deliver, name="reports", daemon=True).start()
        if self._hook_server is not None:
            self._hook_server.start()
            self._parts.cleanup.callback(self._hook_server.stop)
        if self._proxy is not None:
            self._proxy.start()
            self._parts.cleanup.callback(self._proxy.stop)
        if self._gpu_plugin is not None:
            self._gpu_plugin.start()
            self._parts.cleanup.callback(self._gpu_plugin.stop)
        frozen = False
        while not self._parts.stopping.is_set():
            self._parts.heartbeat.beat()
            self._agent.step()
            self._loop_calls.run_pending()
            if not frozen and self._agent.is_ready:
                gc.freeze()
                frozen = True
            self._wait(self._parts.wait_s(self._agent.next_s()))

    def _wait(self, longest_s: float) -> None:
        """Wait until something is due; for news only if a container may wait for them.

        Which devices are free is news, too.
        """
        if not _FOLLOWING & self._settings.options.gates:
            self._parts.stopping.wait(longest_s)
        elif self._watched.wait(longest_s):
            self._parts.stopping.wait(_NAP_S)

    def _find_copilot(self) -> SocketCopilot | None:
        flags = self._settings.flags
        if not flags.evict_by_copilot_agent:
            return None
        return SocketCopilot(flags.copilot_server_endpoint)

    def _find_runtime(self) -> CriSocket | None:
        flags = self._settings.flags
        try:
            return CriSocket(self._settings.options.roots, flags.containerd_endpoint)
        except InputError as error:
            if flags.containerd_endpoint:
                log.warning("victims end at once", extra={"error": str(error)})
            return None

    def _make_runtime_hooks(self, own: Sequence[str], gauges: NodeGauges) -> RuntimeHooks:
        options, flags = self._settings.options, self._settings.flags.runtime_hooks
        roots = options.roots
        keeps_regions = "HamiCoreVGPUMonitor" in options.gates
        hami_core = HamiCoreSettings(flags.hami_core_library_directory_path, keeps_regions)
        trees = Trees(trees_of(roots, *own, hami_core.folder, _PARENT_OF_LOCKS))
        files = LinuxHost(kept_open=0, trees=trees)
        return RuntimeHooks(
            self._clock,
            files,
            roots,
            CgroupTree(files, roots.cgroup, find_version(files, roots.cgroup)),
            policy=flags.runtime_hooks_plugin_failure_policy,
            creation_hooks=device_hooks(
                options.gates,
                files,
                roots,
                hami_core,
                LinuxRegionFolders(hami_core.regions),
                check_devices=self._device_holders.check,
                claimed_gpus=self._gpu_claims.gpus_of if self._gpu_claims else lambda _: (),
            ),
            expectations=device_expectations(
                options.gates,
                hami_core,
                self._gpu_claims.gpus_of if self._gpu_claims else lambda _: (),
            ),
            observer=gauges,
        )

    def _make_pod_resources(self) -> PodResourcesAnswers | None:
        options = self._settings.options
        if "PodResourcesProxy" not in options.gates:
            return None
        return PodResourcesAnswers(
            self._clock, self._cgroups_of_threads(), check_devices=self._device_holders.check
        )

    def _cgroups_of_threads(self) -> CgroupTree:
        """Return the cgroups as threads may read them beside the loop."""
        roots = self._settings.options.roots
        files = LinuxHost(kept_open=0, trees=Trees(trees_of(roots)))
        return CgroupTree(files, roots.cgroup, find_version(files, roots.cgroup))

    def _make_proxy(self) -> PodResourcesProxy | None:
        """Return the proxy of the kubelet.  Raises InputError without grpcio."""
        if self._pod_resources is None:
            return None
        settings = self._settings
        return PodResourcesProxy(
            self._pod_resources.complete,
            PodResourcesSettings(
                folder=settings.flags.pod_resources_proxy_path,
                kubelet_folder=f"{settings.options.roots.kubelet}/pod-resources",
                services=SERVICES,
                completed=COMPLETED,
            ),
        )

    def _make_gpu_claims(self) -> "GpuClaims | None":
        options = self._settings.options
        if "GPUResourceSlices" not in options.gates:
            return None
        from koordinator.koordlet.device_claims import (  # noqa: PLC0415 -- seldom used
            GpuClaims,
            PreparedClaims,
        )

        folder = options.checkpoint_folder
        prepared = PreparedClaims(
            LinuxHost(kept_open=0, trees=Trees([Tree(folder)] if folder else [])),
            f"{folder}/{PREPARED_CLAIMS}" if folder else "",
        )
        return GpuClaims(self._connect(), options.node_name, self._forget_slices, prepared)

    def _forget_slices(self) -> None:
        self._agent.slices.forget()

    def _make_gpu_plugin(self) -> KubeletPlugin | None:
        """Return who prepares claims of GPUs.  Raises InputError without grpcio."""
        if self._gpu_claims is None:
            return None
        from koordinator.domain.dynamic_resources.node_gpus import DRIVER  # noqa: PLC0415 -- as above

        folder = f"{self._settings.options.roots.kubelet}/plugins_registry"
        return KubeletPlugin(
            self._gpu_claims.methods, f"{folder}/{DRIVER}.sock", "GPUResourceSlices"
        )

    def _make_hook_server(self, hooks: RuntimeHooks) -> HookServer | None:
        settings = self._settings.flags.runtime_hooks.server()
        if settings is None:
            return None
        try:
            return HookServer(SERVICE, HookService(hooks).methods, settings)
        except InputError as error:  # the original's flags go on working where there is no proxy
            log.warning("hooks not served", extra={"error": str(error)})
            return None

    def _make_nri(self, hooks: RuntimeHooks, gauges: NodeGauges) -> NriConnection | None:
        settings = self._settings
        nri = settings.flags.runtime_hooks.nri(settings.options.roots.var_run)
        if nri is None:
            return None
        return NriConnection(NriHookPlugin(hooks), nri, on_state=gauges.set_nri_connected)

    def _report_failure(self, part: str, error: Exception) -> None:
        self._parts.faults(Fault("round", error, part))

    def _deliver(self) -> None:
        """Deliver queued writes to the API server, in a thread of its own."""
        cluster = self._connect()
        while not self._parts.stopping.is_set():
            if self._outbox.wait(LONGEST_WAIT_S):
                self._outbox.deliver(cluster)

    def _connect(self, kubelet: "KubeletSource | None" = None) -> "KubernetesCluster":
        flags = self._settings.flags
        return self._parts.connect(
            qps=flags.kube_api_qps,
            burst=flags.kube_api_burst,
            timeout_s=DELIVERY_TIMEOUT_S,
            kubelet=kubelet,
        )

    def _find_kubelet(self) -> "KubeletSource | None":
        """Return the kubelet to poll for pods; None if they are watched.  Raises InputError."""
        options = self._settings.options
        source = self._settings.flags.kubelet.source(options.node_name, options.roots.kubelet)
        if source is None:
            return None
        cgroups = self._cgroups_of_threads()
        return replace(
            source,
            running=lambda: find_pod_uids(cgroups),
            observe=self._gauges.observe_kubelet_request,
            on_problem=self._on_kubelet_problem,
        )

    def _on_kubelet_problem(self, problem: str) -> None:
        """Report that pods can't be updated; called in the thread of the network."""
        self._kubelet_problem = problem
        if problem:
            node = self._settings.options.node_name
            event = node_event(node, "", KUBELET_SILENT, problem, self._clock.now_s())
            self._outbox.put("kubelet event", lambda cluster: cluster.report([event]))

    def _find_gpus(self, host: LinuxHost) -> Gpus:
        options = self._settings.options
        if "Accelerators" not in options.gates:
            return NoGpus()

        def find() -> Gpus:
            from koordinator.host.linux.nvml import find_gpus  # noqa: PLC0415 -- loads the driver

            return find_gpus(host, options.roots.sys)

        return GpusOnDemand(find)

    def _serve(self) -> None:
        from koordinator.cli.koordlet.pages import AgentPages  # noqa: PLC0415 -- see ``run``

        options = self._settings.options
        shows_events = "AuditEventsHTTPHandler" in options.gates
        pages = AgentPages(
            parts=self._parts,
            settings=self._settings.pages,
            external=self._external,
            loop_calls=self._loop_calls,
            audit=self._agent.audit if shows_events else None,
            not_ready=self._not_ready,
            connect=self._connect,
        )
        self._parts.start(pages.servers())

    def _not_ready(self) -> str:
        # Pods of the local copy count while the API server is away; a kubelet that refuses the
        # agent is a fault of the installation, which a rollout must not pass over.
        agent = self._agent
        if agent.is_ready and (agent.state.is_synced or not self._kubelet_problem):
            return ""
        return self._kubelet_problem or "the node has not been measured yet"
