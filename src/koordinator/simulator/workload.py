"""Types of the workload file: node pools, pod streams, failures.

``workload_file.py`` reads and validates it; ``generation.py`` draws nodes and pods from it;
``docs/how-to/describe-a-workload.md`` documents every field.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from koordinator.api.kubescheduler import ConfigStruct
from koordinator.api.kubescheduler.structs import (
    ConfigPercent,
    Count,
    PositiveCount,
    PositivePercent,
)
from koordinator.foundation.clock import Duration
from koordinator.foundation.quantity import Quantity
from koordinator.simulator.stages import (
    FOR_EVER,
    Constant,
    Distribution,
    Exponential,
    LogNormal,
    Uniform,
)

_MOST_GPUS = 64
_HIGHEST_PRIORITY = 1_000_000_000  # higher ones are reserved for the system's classes

GpuCount = Annotated[int, Meta(ge=0, le=_MOST_GPUS)]
Priority = Annotated[int, Meta(ge=-_HIGHEST_PRIORITY, le=_HIGHEST_PRIORITY)]
Watts = Annotated[float, Meta(ge=0, le=1e6)]
Price = Annotated[float, Meta(ge=0, le=1e9)]
HOUR = Duration(hours=1)
GIBIBYTE = Quantity.from_int(1 << 30, binary=True)


class ExponentialConfig(ConfigStruct, frozen=True, kw_only=True):
    """See ``stages.Exponential``."""

    mean: Duration


class LogNormalConfig(ConfigStruct, frozen=True, kw_only=True):
    """See ``stages.LogNormal``."""

    median: Duration
    sigma: float = 1.0
    most: Duration | None = None  # upper bound of draws


class UniformConfig(ConfigStruct, frozen=True, kw_only=True):
    """See ``stages.Uniform``."""

    low: Duration
    high: Duration


class DistributionConfig(ConfigStruct, frozen=True, kw_only=True):
    """Distribution of a duration; exactly one field is set."""

    constant: Duration | None = None
    exponential: ExponentialConfig | None = None
    lognormal: LogNormalConfig | None = None
    uniform: UniformConfig | None = None

    def build(self) -> Distribution:
        if self.exponential is not None:
            return Exponential(self.exponential.mean.total_seconds())
        if self.lognormal is not None:
            median_s = self.lognormal.median.total_seconds()
            if self.lognormal.most is None:
                return LogNormal(median_s, self.lognormal.sigma)
            return LogNormal(median_s, self.lognormal.sigma, self.lognormal.most.total_seconds())
        if self.uniform is not None:
            return Uniform(self.uniform.low.total_seconds(), self.uniform.high.total_seconds())
        return FOR_EVER if self.constant is None else Constant(self.constant.total_seconds())


class GpusConfig(ConfigStruct, frozen=True, kw_only=True):
    """GPUs of each node of a pool."""

    count: Annotated[int, Meta(ge=1, le=_MOST_GPUS)]
    memory: Quantity  # of one GPU
    model: str = ""


class PowerConfig(ConfigStruct, frozen=True, kw_only=True):
    """Power of each node of a pool, in watts: when idle, and more at full use."""

    idle_watts: Watts = 0.0
    cpu_watts: Watts = 0.0  # more with all CPUs allocated
    gpu_watts: Watts = 0.0  # more per allocated GPU


class TaintConfig(ConfigStruct, frozen=True, kw_only=True):
    """Taint of the nodes of a pool."""

    key: str
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
    value: str = ""


class NodePool(ConfigStruct, frozen=True, kw_only=True):
    """Equal nodes named ``<name>-<number>``."""

    name: str
    count: PositiveCount
    cpu: Quantity
    memory: Quantity
    max_pods: PositiveCount = 110
    gpus: GpusConfig | None = None
    power: PowerConfig | None = None  # default: energy is not computed
    hourly_price: Price = 0.0  # of a node
    labels: dict[str, str] = field(default_factory=dict)
    taints: tuple[TaintConfig, ...] = ()
    zones: tuple[str, ...] = ()  # assigned round-robin


class PoissonConfig(ConfigStruct, frozen=True, kw_only=True):
    """Random arrivals at a constant rate."""

    per_hour: float


class DiurnalConfig(ConfigStruct, frozen=True, kw_only=True):
    """Random arrivals at a rate that varies between two values in 24 hours."""

    low_per_hour: float
    high_per_hour: float
    peak_at: Duration = Duration(hours=14)  # after midnight, the start of the run


class BurstConfig(ConfigStruct, frozen=True, kw_only=True):
    """Arrivals at one time, or spread evenly over a period."""

    count: PositiveCount
    at: Duration = Duration(0)
    over: Duration = Duration(0)


class ArrivalConfig(ConfigStruct, frozen=True, kw_only=True):
    """Arrival process; at least one field is set, and several add up."""

    poisson: PoissonConfig | None = None
    diurnal: DiurnalConfig | None = None
    bursts: tuple[BurstConfig, ...] = ()


class TolerationConfig(ConfigStruct, frozen=True, kw_only=True):
    """Toleration of the pods; an empty key tolerates every taint."""

    key: str = ""
    operator: Literal["Exists", "Equal"] = "Exists"
    value: str = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""


class SpreadConfig(ConfigStruct, frozen=True, kw_only=True):
    """Topology spread constraint for the pods of the stream."""

    topology_key: str
    max_skew: PositiveCount = 1
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] = "ScheduleAnyway"


class GatherConfig(ConfigStruct, frozen=True, kw_only=True):
    """Placement of a job's members in one domain of a network layer."""

    layer: str
    strategy: Literal["MustGather", "PreferGather"] = "MustGather"


class UsageConfig(ConfigStruct, frozen=True, kw_only=True):
    """Usage in percent of the request; CPU varies between ``low`` and ``high`` in 24 hours.

    ``cpu`` is a constant CPU usage.
    """

    cpu: PositivePercent | None = None
    low: ConfigPercent | None = None
    high: ConfigPercent | None = None
    peak_at: Duration = Duration(hours=14)  # after midnight, the start of the run
    memory: ConfigPercent = 100


class TemplateConfig(ConfigStruct, frozen=True, kw_only=True):
    """Pod template.  GPUs are a number of whole GPUs, or a percentage of one."""

    cpu: Quantity | None = None
    memory: Quantity | None = None
    gpus: GpuCount | None = None
    gpu_percent: PositivePercent | None = None
    priority: Priority | None = None
    preempts: bool | None = None  # whether the pod may preempt others; default true
    qos: Literal["LSE", "LSR", "LS", "BE", "SYSTEM"] | None = None
    tolerations: tuple[TolerationConfig, ...] | None = None
    node_selector: dict[str, str] | None = None
    spread: tuple[SpreadConfig, ...] | None = None
    labels: dict[str, str] | None = None
    members: PositiveCount | None = None  # gang size; default 1
    gather: tuple[GatherConfig, ...] | None = None
    quota: str | None = None  # ElasticQuota of the pod
    usage: UsageConfig | None = None  # default: the whole request


class VariantConfig(TemplateConfig, frozen=True, kw_only=True):
    """Variant of a stream's pods, drawn by weight; its fields override the template's."""

    weight: PositiveCount = 1
    duration: DistributionConfig | None = None


class ResubmitConfig(ConfigStruct, frozen=True, kw_only=True):
    """Resubmission of lost pods by their owner."""

    limit: Count = 3
    after: Duration = Duration(seconds=10)


class PodStream(ConfigStruct, frozen=True, kw_only=True):
    """Stream of pods named ``<name>-<number>``."""

    name: str
    arrival: ArrivalConfig
    template: TemplateConfig
    kind: str = ""  # key for sums in reports; default: the name
    namespace: str = "default"
    duration: DistributionConfig | None = None  # default: no end
    variants: tuple[VariantConfig, ...] = ()
    resubmit: ResubmitConfig = ResubmitConfig()


class FailureConfig(ConfigStruct, frozen=True, kw_only=True):
    """Independent failures of the nodes of a pool."""

    pool: str
    mtbf: Duration  # mean time between failures of one node
    repair: DistributionConfig = DistributionConfig(constant=HOUR)


class OutageConfig(ConfigStruct, frozen=True, kw_only=True):
    """Simultaneous failure of several nodes of a pool, such as a rack."""

    pool: str
    at: Duration
    nodes: PositiveCount = 1
    first: Count = 0  # number of the first node
    repair: DistributionConfig = DistributionConfig(constant=HOUR)


class SpikeConfig(ConfigStruct, frozen=True, kw_only=True):
    """Temporary increase of the CPU usage of a stream's pods by ``factor``."""

    stream: str
    at: Duration
    lasts: Duration
    factor: float


class ColocationSettings(ConfigStruct, frozen=True, kw_only=True):
    """Measured usage, with batch pods on the unused resources of services.

    The slo-controller-config and the colocation profiles in ``objects`` determine the published
    amounts and the suppression.
    """

    step: Duration = Duration(minutes=1)  # interval of the node agents
    safe_percent: PositivePercent = 75  # of a node's CPUs; above it, services are at risk
    noise_percent: ConfigPercent = 5  # random deviation of each node's usage, relative to it
    spikes: tuple[SpikeConfig, ...] = ()


class ContainerConfig(ConfigStruct, frozen=True, kw_only=True):
    """Request and usage of a YARN container."""

    vcores: PositiveCount = 1
    memory: Quantity = GIBIBYTE  # rounded up to MiB
    usage: UsageConfig = UsageConfig()


class YarnQueueConfig(ConfigStruct, frozen=True, kw_only=True):
    """Queue of YARN applications; each requests all its containers at its start."""

    name: str
    arrival: ArrivalConfig  # of applications
    duration: DistributionConfig  # of a container at full speed
    containers: PositiveCount = 1  # of an application
    container: ContainerConfig = ContainerConfig()
    capacity: PositivePercent | None = None  # default: equal for all queues


class YarnSettings(ConfigStruct, frozen=True, kw_only=True):
    """Hadoop YARN on the batch resources that pods leave, assigned by the operator."""

    queues: tuple[YarnQueueConfig, ...]
    pools: tuple[str, ...] = ()  # pools with NodeManagers; default: all
    headroom_percent: ConfigPercent = 10  # the default of ``yarn.account.YarnPolicy``
    shrink_grace_period: str = "30s"  # or "never": containers are not killed


class Workload(ConfigStruct, frozen=True, kw_only=True):
    """Content of a workload file.

    The control plane notices a failed node after ``grace_period``; pods without a toleration of
    their own are evicted from it after ``toleration``.
    """

    node_pools: tuple[NodePool, ...]
    pod_streams: tuple[PodStream, ...]
    title: str = "Simulation"
    horizon: Duration = Duration(hours=24)
    sample_every: Duration = Duration(minutes=5)
    seed: Count = 0
    failures: tuple[FailureConfig, ...] = ()
    outages: tuple[OutageConfig, ...] = ()
    objects: tuple[dict[str, Any], ...] = ()  # manifests of other objects, such as quotas
    colocation: ColocationSettings | None = None  # default: no usage is measured
    yarn: YarnSettings | None = None  # requires ``colocation``
    grace_period: Duration = Duration(seconds=50)
    toleration: Duration = Duration(minutes=5)
