"""Kernel settings for the pods of a QoS class: CPU, memory, disks, caches and network.

Everything is optional: koordlet fills in what is left out, and undoes what is not enabled.
Source: koordinator apis/slo/v1alpha1/nodeslo_types.go.
"""

from typing import Annotated

from msgspec import Meta, field

from koordinator.api.bounds import ANY, FLAG, NOT_NEGATIVE, PERCENT, Bounds, bounded, one_of
from koordinator.api.crd import NotNegative, Percent, Positive
from koordinator.api.meta import ApiStruct

#: The agent writes these into files of the kernel and validates them itself.
KernelFlag = Annotated[int, bounded(FLAG, decoded=ANY, node=FLAG)]
PercentOfRequest = Annotated[int, bounded(PERCENT, decoded=NOT_NEGATIVE)]
IoWeight = Annotated[int, bounded(Bounds(1, 100))]
LeastBandwidth = Annotated[int | str | None, Meta(extra_json_schema={"default": 0})]
MostBandwidth = Annotated[int | str | None, Meta(extra_json_schema={"default": 100})]


class CpuQos(ApiStruct, frozen=True, kw_only=True):
    """``group_identity`` is -1..2; ``sched_idle`` 1 uses SCHED_IDLE (with core scheduling)."""

    enable: bool | None = None  # whether the settings apply
    #: scheduling priority of the cgroup in the kernel (bvt)
    group_identity: (
        Annotated[int, bounded(Bounds(-1, 2), decoded=ANY, node=Bounds(-1, 2))] | None
    ) = None
    sched_idle: KernelFlag | None = None  # whether the cgroup gets the scheduling policy SCHED_IDLE
    #: whether pods of other groups are kept off the cores of these pods
    core_expeller: bool | None = None


class MemorySettings(ApiStruct, frozen=True, kw_only=True):
    """Files of the memory cgroup; percentages of the request, for caches of the limit."""

    min_limit_percent: PercentOfRequest | None = None  # memory.min
    low_limit_percent: PercentOfRequest | None = None  # memory.low
    throttling_percent: PercentOfRequest | None = None  # memory.high: from request to limit
    #: memory.wmark_ratio: usage, in percent of the limit, from which the kernel reclaims in the
    #: background
    wmark_ratio: Percent | None = None
    #: memory.wmark_scale_factor: distance of the lower watermark, in permille of the limit
    wmark_scale_permill: Annotated[int, bounded(Bounds(1, 1000))] | None = None
    #: memory.wmark_min_adj: shift of the global minimum watermark for the cgroup, in percent
    wmark_min_adj: Annotated[int, bounded(Bounds(-25, 50))] | None = None
    #: memory.use_priority_oom: whether the OOM killer considers the priority
    priority_enable: KernelFlag | None = None
    #: memory.priority; the OOM killer ends lower ones first
    priority: Annotated[int, bounded(Bounds(0, 12), decoded=ANY, node=Bounds(0, 12))] | None = None
    #: memory.oom.group: whether the OOM killer ends all processes of the cgroup
    oom_kill_group: KernelFlag | None = None
    page_cache_enable: bool | None = None  # whether the page cache is limited
    page_cache_limit_percent: Percent | None = None  # largest page cache, in percent of the limit
    page_cache_limit_size: int | None = None  # bytes; goes before the percentage
    #: whether the process that exceeds the page-cache limit reclaims
    page_cache_reclaim_sync: bool | None = None


class MemoryQos(MemorySettings, frozen=True, kw_only=True):
    """The settings of a class on a node."""

    enable: bool | None = None  # whether the settings apply


class BlockIoLimits(ApiStruct, frozen=True, kw_only=True):
    """A limit of 0 is none; latencies are in microseconds; the model is that of blk-iocost."""

    #: largest number of reads per second
    read_iops: NotNegative | None = field(name="readIOPS", default=None)
    #: largest number of writes per second
    write_iops: NotNegative | None = field(name="writeIOPS", default=None)
    read_bps: NotNegative | None = field(name="readBPS", default=None)  # most bytes read per second
    #: most bytes written per second
    write_bps: NotNegative | None = field(name="writeBPS", default=None)
    io_weight_percent: IoWeight | None = None  # weight among the cgroups of the disk
    read_latency: int | None = None  # target of read latency in microseconds
    write_latency: int | None = None  # target of write latency in microseconds
    read_latency_percent: Percent | None = None  # percentile of the read target
    write_latency_percent: Percent | None = None  # percentile of the write target
    enable_user_model: bool | None = None  # whether the cost model of the next fields is used
    #: largest read throughput of the disk in bytes per second
    model_read_bps: Positive | None = field(name="modelReadBPS", default=None)
    #: largest write throughput of the disk in bytes per second
    model_write_bps: Positive | None = field(name="modelWriteBPS", default=None)
    #: largest number of sequential reads per second
    model_read_seq_iops: Positive | None = field(name="modelReadSeqIOPS", default=None)
    #: largest number of sequential writes per second
    model_write_seq_iops: Positive | None = field(name="modelWriteSeqIOPS", default=None)
    #: largest number of random reads per second
    model_read_rand_iops: Positive | None = field(name="modelReadRandIOPS", default=None)
    #: largest number of random writes per second
    model_write_rand_iops: Positive | None = field(name="modelWriteRandIOPS", default=None)


class BlockDevice(ApiStruct, frozen=True, kw_only=True):
    """``type`` is device, volumegroup or podvolume."""

    name: str = ""  # name of the device, volume group or pod volume
    type: str = ""  # device, volumegroup or podvolume
    io_cfg: BlockIoLimits = BlockIoLimits()  # limits of the disk


class BlockIoQos(ApiStruct, frozen=True, kw_only=True):
    """Limits per block device."""

    enable: bool | None = None  # whether the limits apply
    blocks: tuple[BlockDevice, ...] = ()  # limits by disk


class ResctrlQos(ApiStruct, frozen=True, kw_only=True):
    """Part of the last-level cache, and share of the memory bandwidth."""

    enable: bool | None = None  # whether the settings apply
    cat_range_start_percent: Percent | None = None  # where the part of the L3 cache starts
    #: where the part of the L3 cache ends
    cat_range_end_percent: (
        Annotated[int, bounded(PERCENT, node=PERCENT, exceeds="catRangeStartPercent")] | None
    ) = None
    #: share of the memory bandwidth
    mba_percent: Annotated[int, bounded(PERCENT, node=Bounds(1, 100))] | None = None


class NetworkQos(ApiStruct, frozen=True, kw_only=True):
    """A number is a percentage of the node's bandwidth, a text an amount such as 50M."""

    enable: bool | None = None  # whether the settings apply
    ingress_request: LeastBandwidth = None  # guaranteed bandwidth into the node
    ingress_limit: MostBandwidth = None  # largest bandwidth into the node
    egress_request: LeastBandwidth = None  # guaranteed bandwidth out of the node
    egress_limit: MostBandwidth = None  # largest bandwidth out of the node


class ResourceQos(ApiStruct, frozen=True, kw_only=True):
    """All that a QoS class gets."""

    cpu_qos: CpuQos | None = field(name="cpuQOS", default=None)  # scheduling of CPUs
    #: protection and reclaim of memory
    memory_qos: MemoryQos | None = field(name="memoryQOS", default=None)
    blkio_qos: BlockIoQos | None = field(name="blkioQOS", default=None)  # limits of disks
    #: shares of the last-level cache and of the memory bandwidth
    resctrl_qos: ResctrlQos | None = field(name="resctrlQOS", default=None)
    #: bandwidth of the network
    network_qos: NetworkQos | None = field(name="networkQOS", default=None)


class ResourceQosPolicies(ApiStruct, frozen=True, kw_only=True):
    """``cpu_policy`` is groupIdentity or coreSched, ``net_qos_policy`` tc or terway-qos."""

    #: kernel mechanism for the CPU settings
    cpu_policy: Annotated[str, one_of("groupIdentity", "coreSched")] | None = None
    #: mechanism for the network: tc or terway-qos
    net_qos_policy: str | None = field(name="netQOSPolicy", default=None)


class ResourceQosStrategy(ApiStruct, frozen=True, kw_only=True):
    """Settings of each QoS class."""

    policies: ResourceQosPolicies | None = None  # mechanisms that apply the settings
    lsr_class: ResourceQos | None = None  # settings of pods of class LSR and LSE
    ls_class: ResourceQos | None = None  # settings of pods of class LS
    be_class: ResourceQos | None = None  # settings of pods of class BE
    system_class: ResourceQos | None = None  # settings of pods of class SYSTEM
    cgroup_root: ResourceQos | None = None  # settings of the root cgroup
