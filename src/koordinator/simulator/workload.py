"""The types of a workload's YAML file: pools of nodes, streams of pods, failures.

``workload_file.py`` reads and checks it, ``generation.py`` makes nodes and pods of it;
``docs/how-to/describe-a-workload.md`` explains every field.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from koordinator.api.kubescheduler import ConfigStruct
from koordinator.api.kubescheduler.structs import Count, Percent, PositiveCount, PositivePercent
from koordinator.foundation.duration import Duration
from koordinator.foundation.quantity import Quantity
from koordinator.simulator.stages import (
    FOR_EVER,
    Constant,
    Distribution,
    Exponential,
    LogNormal,
    Uniform,
)
from koordinator.yarn.account import YarnPolicy

_MOST_GPUS = 64
_HIGHEST_PRIORITY = 1_000_000_000  # higher ones are reserved for the system's classes

GpuCount = Annotated[int, Meta(ge=0, le=_MOST_GPUS)]
Priority = Annotated[int, Meta(ge=-_HIGHEST_PRIORITY, le=_HIGHEST_PRIORITY)]
HOUR = Duration(hours=1)
GIBIBYTE = Quantity.from_int(1 << 30, binary=True)


class ExponentialConfig(ConfigStruct, frozen=True, kw_only=True):
    """See ``stages.Exponential``."""

    mean: Duration


class LogNormalConfig(ConfigStruct, frozen=True, kw_only=True):
    """See ``stages.LogNormal``."""

    median: Duration
    sigma: float = 1.0
    most: Duration | None = None  # longer draws are cut to this


class UniformConfig(ConfigStruct, frozen=True, kw_only=True):
    """See ``stages.Uniform``."""

    low: Duration
    high: Duration


class DistributionConfig(ConfigStruct, frozen=True, kw_only=True):
    """Exactly one of them."""

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
    """The GPUs of each node of a pool."""

    count: Annotated[int, Meta(ge=1, le=_MOST_GPUS)]
    memory: Quantity  # of one GPU
    model: str = ""


class TaintConfig(ConfigStruct, frozen=True, kw_only=True):
    """Keeps pods without the toleration away."""

    key: str
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
    value: str = ""


class NodePool(ConfigStruct, frozen=True, kw_only=True):
    """Nodes that are alike; they are called ``<name>-<number>``."""

    name: str
    count: PositiveCount
    cpu: Quantity
    memory: Quantity
    max_pods: PositiveCount = 110
    gpus: GpusConfig | None = None
    labels: dict[str, str] = field(default_factory=dict)
    taints: tuple[TaintConfig, ...] = ()
    zones: tuple[str, ...] = ()  # dealt out in turn


class PoissonConfig(ConfigStruct, frozen=True, kw_only=True):
    """Pods come at random, always at the same rate."""

    per_hour: float


class DiurnalConfig(ConfigStruct, frozen=True, kw_only=True):
    """Pods come at random; the rate swings between two values in 24 hours."""

    low_per_hour: float
    high_per_hour: float
    peak_at: Duration = Duration(hours=14)  # after midnight, which is when the run begins


class BurstConfig(ConfigStruct, frozen=True, kw_only=True):
    """Some pods at one moment, or spread evenly over some time."""

    count: PositiveCount
    at: Duration = Duration(0)
    over: Duration = Duration(0)


class ArrivalConfig(ConfigStruct, frozen=True, kw_only=True):
    """At least one of them; several add up."""

    poisson: PoissonConfig | None = None
    diurnal: DiurnalConfig | None = None
    bursts: tuple[BurstConfig, ...] = ()


class TolerationConfig(ConfigStruct, frozen=True, kw_only=True):
    """Lets the pod onto tainted nodes; no key tolerates every taint."""

    key: str = ""
    operator: Literal["Exists", "Equal"] = "Exists"
    value: str = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""


class SpreadConfig(ConfigStruct, frozen=True, kw_only=True):
    """Spreads the pods of the stream over zones, nodes, …."""

    topology_key: str
    max_skew: PositiveCount = 1
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] = "ScheduleAnyway"


class GatherConfig(ConfigStruct, frozen=True, kw_only=True):
    """Keeps the members of a job together in one domain of a layer of the network."""

    layer: str
    strategy: Literal["MustGather", "PreferGather"] = "MustGather"


class UsageConfig(ConfigStruct, frozen=True, kw_only=True):
    """What a pod uses of what it asks for, in percent; CPU swings between two values in 24 hours.

    ``cpu`` is a value that doesn't swing.
    """

    cpu: PositivePercent | None = None
    low: Percent | None = None
    high: Percent | None = None
    peak_at: Duration = Duration(hours=14)  # after midnight, which is when the run begins
    memory: Percent = 100


class TemplateConfig(ConfigStruct, frozen=True, kw_only=True):
    """What a pod is.  GPUs: so many whole ones, or so many percent of one."""

    cpu: Quantity | None = None
    memory: Quantity | None = None
    gpus: GpuCount | None = None
    gpu_percent: PositivePercent | None = None
    priority: Priority | None = None
    preempts: bool | None = None  # whether others may have to go for it; yes if left out
    qos: Literal["LSE", "LSR", "LS", "BE", "SYSTEM"] | None = None
    tolerations: tuple[TolerationConfig, ...] | None = None
    node_selector: dict[str, str] | None = None
    spread: tuple[SpreadConfig, ...] | None = None
    labels: dict[str, str] | None = None
    members: PositiveCount | None = None  # pods that start together or not at all; 1 if left out
    gather: tuple[GatherConfig, ...] | None = None
    quota: str | None = None  # the ElasticQuota of the pod
    usage: UsageConfig | None = None  # all that it asks for if left out


class VariantConfig(TemplateConfig, frozen=True, kw_only=True):
    """Fields given here replace those of the stream; a pod is of one variant, drawn by weight."""

    weight: PositiveCount = 1
    duration: DistributionConfig | None = None


class ResubmitConfig(ConfigStruct, frozen=True, kw_only=True):
    """What the owner does when a pod is lost."""

    limit: Count = 3
    after: Duration = Duration(seconds=10)


class PodStream(ConfigStruct, frozen=True, kw_only=True):
    """Pods that are alike; they are called ``<name>-<number>``."""

    name: str
    arrival: ArrivalConfig
    template: TemplateConfig
    kind: str = ""  # what reports sum up; the name if empty
    namespace: str = "default"
    duration: DistributionConfig | None = None  # for ever if left out
    variants: tuple[VariantConfig, ...] = ()
    resubmit: ResubmitConfig = ResubmitConfig()


class FailureConfig(ConfigStruct, frozen=True, kw_only=True):
    """Each node of the pool fails by itself."""

    pool: str
    mtbf: Duration  # mean time between failures of one node
    repair: DistributionConfig = DistributionConfig(constant=HOUR)


class OutageConfig(ConfigStruct, frozen=True, kw_only=True):
    """Some nodes of a pool fail together: a rack, a power line."""

    pool: str
    at: Duration
    nodes: PositiveCount = 1
    first: Count = 0  # number of the first of them
    repair: DistributionConfig = DistributionConfig(constant=HOUR)


class SpikeConfig(ConfigStruct, frozen=True, kw_only=True):
    """For some time the pods of a stream use more CPU, ``factor`` times what they would."""

    stream: str
    at: Duration
    lasts: Duration
    factor: float


class ColocationSettings(ConfigStruct, frozen=True, kw_only=True):
    """Usage is measured, and batch pods live on what services leave unused.

    How much is given away and when is held back say slo-controller-config and the colocation
    profiles among ``objects``.
    """

    step: Duration = Duration(minutes=1)  # between two looks at the nodes
    safe_percent: PositivePercent = 75  # of a node's CPUs; above, its services answer late
    noise_percent: Percent = 5  # by which the use of each node deviates, of itself
    spikes: tuple[SpikeConfig, ...] = ()


class ContainerConfig(ConfigStruct, frozen=True, kw_only=True):
    """What a container of YARN asks for, and what it uses of that."""

    vcores: PositiveCount = 1
    memory: Quantity = GIBIBYTE  # whole MiB; a part of one counts as one
    usage: UsageConfig = UsageConfig()


class YarnQueueConfig(ConfigStruct, frozen=True, kw_only=True):
    """Applications of YARN that are alike: each asks for some containers at once."""

    name: str
    arrival: ArrivalConfig  # of applications
    duration: DistributionConfig  # how long a container works, at full speed
    containers: PositiveCount = 1  # of an application
    container: ContainerConfig = ContainerConfig()
    capacity: PositivePercent | None = None  # the same for all if left out


class YarnSettings(ConfigStruct, frozen=True, kw_only=True):
    """Hadoop YARN on the batch resources that pods leave; the operator shares them out."""

    queues: tuple[YarnQueueConfig, ...]
    pools: tuple[str, ...] = ()  # whose nodes run a NodeManager; all if left out
    headroom_percent: Percent = YarnPolicy().headroom_percent
    shrink_grace_period: str = "30s"  # or never: containers end by themselves


class Workload(ConfigStruct, frozen=True, kw_only=True):
    """The whole file.

    ``grace_period`` passes until the control plane notices a failed node; pods without a toleration
    of their own then stay there for ``toleration`` before they are given up.
    """

    node_pools: tuple[NodePool, ...]
    pod_streams: tuple[PodStream, ...]
    title: str = "Simulation"
    horizon: Duration = Duration(hours=24)
    sample_every: Duration = Duration(minutes=5)
    seed: Count = 0
    failures: tuple[FailureConfig, ...] = ()
    outages: tuple[OutageConfig, ...] = ()
    objects: tuple[dict[str, Any], ...] = ()  # manifests of whatever else there is: quotas, …
    colocation: ColocationSettings | None = None  # nothing is measured if left out
    yarn: YarnSettings | None = None  # lives on what ``colocation`` gives away
    grace_period: Duration = Duration(seconds=50)
    toleration: Duration = Duration(minutes=5)
