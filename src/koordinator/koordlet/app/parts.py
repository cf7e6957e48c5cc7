"""Parts of the node agent, which ``assembly`` builds and the main loop uses."""

from collections.abc import Sequence

from koordinator.cluster.port import Cluster
from koordinator.foundation.clock import Clock
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.host.gpus import Gpus
from koordinator.host.port import (
    Host,
)
from koordinator.koordlet.app.device_hooks import DeviceHolders
from koordinator.koordlet.app.discovery import (
    CgroupSearch,
)
from koordinator.koordlet.app.evictions import EvictionManager
from koordinator.koordlet.app.hook_reports import HookReports
from koordinator.koordlet.app.metrics import NodeGauges
from koordinator.koordlet.app.network import NetworkQosManager
from koordinator.koordlet.app.node_state import NodeState
from koordinator.koordlet.app.object_intents import Volumes
from koordinator.koordlet.app.options import KoordletOptions
from koordinator.koordlet.app.outbox import Outbox
from koordinator.koordlet.app.reports import (
    Forecasts,
)
from koordinator.koordlet.app.rounds import OnFailure, PodIsolation
from koordinator.koordlet.cgroup_tree import CgroupTree
from koordinator.koordlet.collectors.context import Collector
from koordinator.koordlet.collectors.performance import (
    ColdPageCollector,
    CpiCollector,
    PressureCollector,
)
from koordinator.koordlet.device_claims import GpuClaims
from koordinator.koordlet.executor import Executor
from koordinator.koordlet.metrics import MetricStore
from koordinator.koordlet.pod_resources import PodResourcesAnswers
from koordinator.koordlet.qos.cpu_burst import CpuBurst
from koordinator.koordlet.runtime_hooks.runtime_hooks import RuntimeHooks


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCollectors:
    """Collectors of the agent: the ones run each second, and others with name and interval.

    The named ones are also used by reports and metrics, and may be switched off.
    """

    each_second: Sequence[Collector]
    slower: Sequence[tuple[str, float, Collector]]
    cpi: CpiCollector
    pressure: PressureCollector
    cold_pages: ColdPageCollector


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentParts:
    """Parts of the agent, built by ``assembly``.

    ``cluster`` is watched, from the beginning or, if it is None, from ``Koordlet.connect`` on;
    writes to it go through ``outbox``.  ``wall_clock`` provides the timestamps that other
    components compare with their own clocks; it follows adjustments of the machine's clock.
    ``on_failure`` receives the error of a failed round, so that an error in one strategy does not
    stop the others; without it the error is raised.
    """

    cluster: Cluster | None
    clock: Clock
    wall_clock: Clock
    host: Host
    gpus: Gpus
    outbox: Outbox
    options: KoordletOptions
    gauges: NodeGauges | None
    on_failure: OnFailure | None
    cgroups: CgroupTree
    search: CgroupSearch
    isolation: PodIsolation
    state: NodeState
    store: MetricStore
    executor: Executor
    collectors: AgentCollectors
    burst: CpuBurst
    forecasts: Forecasts
    network: NetworkQosManager
    volumes: Volumes
    cpu_evictions: EvictionManager
    memory_evictions: EvictionManager
    runtime_hooks: RuntimeHooks | None
    hook_reports: HookReports | None
    pod_resources: PodResourcesAnswers | None
    device_holders: DeviceHolders | None
    gpu_claims: GpuClaims | None
