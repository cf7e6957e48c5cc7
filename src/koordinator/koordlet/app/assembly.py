"""Assembly of the node agent from the ports of its machine and its options.

Source: koordinator cmd/koordlet, pkg/koordlet/koordlet.go.
"""

from typing import TYPE_CHECKING

import numpy as np

from koordinator.cluster.port import Cluster
from koordinator.foundation.clock import Clock
from koordinator.host.gpus import Gpus
from koordinator.host.port import (
    ContainerRuntime,
    Copilot,
    CoreScheduling,
    Host,
    NetworkTools,
    NoCoreScheduling,
    NoPerfEvents,
    PerfEvents,
)
from koordinator.koordlet.app.agent import Koordlet
from koordinator.koordlet.app.device_hooks import DeviceHolders
from koordinator.koordlet.app.discovery import (
    CgroupSearch,
)
from koordinator.koordlet.app.evictions import ContainerStops, EvictionManager
from koordinator.koordlet.app.hook_reports import HookReports, UnpreparedContainers
from koordinator.koordlet.app.metrics import NodeGauges
from koordinator.koordlet.app.network import NetworkQosManager
from koordinator.koordlet.app.node_state import NodeState
from koordinator.koordlet.app.object_intents import Volumes
from koordinator.koordlet.app.options import KoordletOptions
from koordinator.koordlet.app.outbox import Outbox
from koordinator.koordlet.app.parts import AgentCollectors, AgentParts
from koordinator.koordlet.app.reports import Forecasts
from koordinator.koordlet.app.rounds import OnFailure, PodIsolation
from koordinator.koordlet.cgroup_tree import CgroupTree, find_version
from koordinator.koordlet.collectors.accelerators import GpuCollector
from koordinator.koordlet.collectors.context import Collector
from koordinator.koordlet.collectors.node import (
    BestEffortCollector,
    Disks,
    HostApplicationCollector,
    NodeCollector,
    SystemCollector,
)
from koordinator.koordlet.collectors.performance import (
    ColdPageCollector,
    CpiCollector,
    PressureCollector,
    ResctrlCollector,
)
from koordinator.koordlet.collectors.pods import PodCollector
from koordinator.koordlet.executor import AgentAuditTrail, Executor
from koordinator.koordlet.executor.traffic_control import TrafficControl
from koordinator.koordlet.metrics import MetricStore
from koordinator.koordlet.pod_resources import PodResourcesAnswers
from koordinator.koordlet.qos.cpu_burst import CpuBurst
from koordinator.koordlet.report.node_metric import (
    ReportPolicy,
)
from koordinator.koordlet.runtime_hooks.runtime_hooks import RuntimeHooks

if TYPE_CHECKING:
    from koordinator.koordlet.device_claims import GpuClaims


def assemble_agent(
    cluster: Cluster | None,
    clock: Clock,
    *,
    host: Host,
    gpus: Gpus,
    chance: np.random.Generator,
    options: KoordletOptions,
    outbox: Outbox,
    wall_clock: Clock | None = None,
    perf_events: PerfEvents | None = None,
    core_scheduling: CoreScheduling | None = None,
    gauges: NodeGauges | None = None,
    on_failure: OnFailure | None = None,
    copilot: Copilot | None = None,
    runtime_hooks: RuntimeHooks | None = None,
    pod_resources: PodResourcesAnswers | None = None,
    device_holders: DeviceHolders | None = None,
    gpu_claims: "GpuClaims | None" = None,
    container_runtime: ContainerRuntime | None = None,
    network_tools: NetworkTools | None = None,
) -> Koordlet:
    """Return an agent; see ``AgentParts`` for the arguments.  Optional parts are left out."""
    roots, gates = options.roots, options.gates
    cgroups = CgroupTree(host, roots.cgroup, find_version(host, roots.cgroup))
    search = CgroupSearch(host, roots, cgroups, options.kubelet_cgroup_root)
    isolation = PodIsolation(on_failure)
    audit_folder = options.audit_folder if "AuditEvents" in gates else ""
    executor = Executor(
        host,
        roots,
        cgroups,
        AgentAuditTrail(host, audit_folder, options.audit_bytes),
        core_scheduling=core_scheduling or NoCoreScheduling(),
        forced_after_s=options.forced_update_s,
        clock=clock,
        on_write=None if gauges is None else gauges.observe_write,
        on_fault=lambda fault: isolation.report(
            f"{fault.stage} {fault.source}", fault.error, fault.about
        ),
    )

    def evictions(cool_s: float) -> EvictionManager:
        runtime, longest_s = container_runtime, options.longest_grace_s
        return EvictionManager(
            executor,
            outbox,
            cool_s=cool_s,
            only_by_api=options.evicts_only_by_api,
            copilot=copilot,
            stops=None if runtime is None else ContainerStops(runtime, longest_s),
        )

    hook_reports = None
    if runtime_hooks is not None:
        unprepared = UnpreparedContainers(outbox, options.unprepared_containers, container_runtime)
        hook_reports = HookReports(runtime_hooks.outcomes, executor, outbox, unprepared)
    return Koordlet(
        AgentParts(
            cluster=cluster,
            clock=clock,
            wall_clock=wall_clock or clock,
            host=host,
            gpus=gpus,
            outbox=outbox,
            options=options,
            gauges=gauges,
            on_failure=on_failure,
            cgroups=cgroups,
            search=search,
            isolation=isolation,
            state=NodeState(search.layout, isolation),
            store=MetricStore(
                ReportPolicy().longest_s, options.collect_interval_s, options.pod_retention_s
            ),
            executor=executor,
            collectors=_collectors(options, gpus, perf_events or NoPerfEvents()),
            burst=CpuBurst(
                chance,
                bursts="CPUBurst" in gates,
                normalizes="CPUNormalization" in gates,
                frees_bound="CPUSetAllocator" in gates and not options.keeps_quota_of_bound_pods,
            ),
            forecasts=Forecasts(host, options.checkpoint_folder, options.prediction),
            network=NetworkQosManager(
                executor,
                outbox,
                host,
                gates,
                traffic=None if network_tools is None else TrafficControl(network_tools),
                terway_folder=roots.terway,
            ),
            volumes=Volumes(Disks(host, roots.sys, roots.proc), outbox, roots.kubelet),
            cpu_evictions=evictions(options.cpu_evict_cool_s),
            memory_evictions=evictions(options.memory_evict_cool_s),
            runtime_hooks=runtime_hooks,
            hook_reports=hook_reports,
            pod_resources=pod_resources,
            device_holders=device_holders,
            gpu_claims=gpu_claims,
        )
    )


def _collectors(options: KoordletOptions, gpus: Gpus, perf_events: PerfEvents) -> AgentCollectors:
    second, gates = options.collect_interval_s, options.gates
    cpi = CpiCollector(
        perf_events,
        interval_s=options.cpi_interval_s,
        window_s=options.cpi_window_s,
        step_s=second,
    )
    pressure, cold_pages = PressureCollector(), ColdPageCollector()
    # In this order: the usage of the system is derived from samples of the others.
    each_second: list[Collector] = [
        NodeCollector(second, options.ticks_per_s),
        PodCollector(second),
        BestEffortCollector(second),
        HostApplicationCollector(second),
        SystemCollector(options.system_outdated_s),
    ]
    if "Accelerators" in gates:
        each_second.append(GpuCollector(gpus))
    if "CPICollector" in gates:
        each_second.append(cpi)
    slower: list[tuple[str, float, Collector]] = []
    if "PSICollector" in gates:
        slower.append(("pressure", options.pressure_interval_s, pressure))
    if "ColdPageCollector" in gates:
        slower.append(("cold pages", options.cold_page_interval_s, cold_pages))
    if options.monitors_resctrl and "ResctrlCollector" in gates:
        slower.append(("resctrl", options.resctrl_interval_s, ResctrlCollector()))
    return AgentCollectors(
        each_second=each_second, slower=slower, cpi=cpi, pressure=pressure, cold_pages=cold_pages
    )
