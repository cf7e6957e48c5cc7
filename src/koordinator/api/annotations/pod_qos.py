"""Annotations of pods that change how their node treats them.

Source: koordinator apis/slo/v1alpha1/pod.go, nodeslo_types.go; apis/extension/resource.go,
resctrl.go, evict.go, constants.go, load_aware.go, cluster_colocation_profile.go.
"""

from typing import Final

from msgspec import field

from koordinator.api.annotations.codec import AnnotationCodec, read_int32
from koordinator.api.bounds import accepted_by
from koordinator.api.core import ResourceList
from koordinator.api.meta import ApiStruct, ObjectMeta
from koordinator.api.node_slo import CpuBurstSettings
from koordinator.api.resource_qos import BlockIoQos, CpuQos, MemorySettings
from koordinator.foundation.errors import InputError

#: of a ClusterColocationProfile, with any value: CPU and memory of its pods are not translated into
#: batch or mid resources
SKIP_UPDATE_RESOURCES: Final = "config.koordinator.sh/skip-update-resources"
EVICTION_PRIORITY: Final = "koordinator.sh/eviction-priority"  # order of eviction; a number
OOM_SCORE_ADJ: Final = "koordinator.sh/oom-score-adj"  # oom_score_adj of all containers
#: requests and limits to use in place of the spec
REPLACE_RESOURCES: Final = "pod.koordinator.sh/replace-resources"
#: replaces the argument estimatedSecondsAfterPodScheduled of LoadAwareScheduling
ESTIMATED_SECONDS_AFTER_SCHEDULED: Final = (
    "scheduling.koordinator.sh/load-estimated-seconds-after-pod-scheduled"
)
#: replaces the argument estimatedSecondsAfterInitialized of LoadAwareScheduling
ESTIMATED_SECONDS_AFTER_INITIALIZED: Final = (
    "scheduling.koordinator.sh/load-estimated-seconds-after-initialized"
)

CPU_BURST = AnnotationCodec("koordinator.sh/cpuBurst", CpuBurstSettings)  # CPU burst of the pod
CPU_QOS = AnnotationCodec("koordinator.sh/cpuQOS", CpuQos)  # scheduling of the pod's CPUs

BLKIO_QOS = AnnotationCodec("koordinator.sh/blkioQOS", BlockIoQos)  # limits of disks of the pod

#: oom_score_adj by container
OOM_SCORE_ADJ_SPEC = AnnotationCodec("koordinator.sh/oom-score-adj-spec", dict[str, int])
#: koordlet's evictions that may hit the pod
EVICTION_POLICY = AnnotationCodec("koordinator.sh/eviction-policy", tuple[str, ...])
ESTIMATED_SCALING_FACTORS = AnnotationCodec(
    "scheduling.koordinator.sh/load-estimated-scaling-factors", dict[str, int]
)  # factors of the estimated usage by resource


class ExtendedContainerResources(ApiStruct, frozen=True, kw_only=True):
    """Batch resources of a container."""

    limits: ResourceList = {}  # limits of batch resources
    requests: ResourceList = {}  # requests of batch resources


class ExtendedResourceSpec(ApiStruct, frozen=True, kw_only=True):
    """Batch resources by name of the container."""

    containers: dict[str, ExtendedContainerResources] = {}  # batch resources by container


class PodMemoryQos(MemorySettings, frozen=True, kw_only=True):
    """``policy`` is default (as the node; also if empty), none or auto."""

    policy: str = ""  # default (settings of the node), none, or auto


class PodNetworkQos(ApiStruct, frozen=True, kw_only=True):
    """Limits in bits per second, such as 40M."""

    ingress_limit: str = ""  # largest bandwidth into the pod, in bits per second
    egress_limit: str = ""  # largest bandwidth out of the pod, in bits per second


class Schemata(ApiStruct, frozen=True, kw_only=True):
    """A share of a cache as a range of percentages, of bandwidth as a percentage."""

    percent: int = 0  # percentage of the memory bandwidth
    range: tuple[int, ...] = ()  # start and end of the part of the cache, in percent


class CacheSchemata(Schemata, frozen=True, kw_only=True):
    """A share of the cache with this id, as ``Schemata`` has it of all caches."""

    cache_id: int = field(name="cacheID", default=0)  # id of the cache


class ResctrlResource(ApiStruct, frozen=True, kw_only=True):
    """The share of all caches, and of some of them."""

    schemata: Schemata = Schemata()  # share of every cache
    schemata_per_cache: tuple[CacheSchemata, ...] = ()  # share of single caches


class ResctrlConfig(ApiStruct, frozen=True, kw_only=True):
    """Last-level cache and memory bandwidth of a pod."""

    llc: ResctrlResource = ResctrlResource()  # share of the last-level cache
    mb: ResctrlResource = ResctrlResource()  # share of the memory bandwidth


EXTENDED_RESOURCE_SPEC = AnnotationCodec(
    "node.koordinator.sh/extended-resource-spec", ExtendedResourceSpec
)  # batch resources by container
#: protection and reclaim of the pod's memory
MEMORY_QOS = AnnotationCodec("koordinator.sh/memoryQOS", PodMemoryQos)
NETWORK_QOS = AnnotationCodec("koordinator.sh/networkQOS", PodNetworkQos)  # bandwidth of the pod
#: shares of cache and memory bandwidth of the pod
RESCTRL = AnnotationCodec("node.koordinator.sh/resctrl", ResctrlConfig)


def read_cpu_qos(meta: ObjectMeta) -> CpuQos | None:
    """Return the CPU settings of a pod.

    Raises InputError if they can't be read or the group identity is outside of -1..2.
    """
    settings = CPU_QOS.read(meta)
    identity = settings.group_identity if settings is not None else None
    bounds = accepted_by(CpuQos)["group_identity"].configured
    if identity is not None and identity not in bounds:
        raise InputError(f"must be {bounds}, got {identity}", path=f"{CPU_QOS.path}.groupIdentity")
    return settings


def eviction_priority(meta: ObjectMeta) -> int:
    """Return the order in which koordlet evicts, smaller first; 0 if there is none or a bad one."""
    try:
        return read_int32(meta, EVICTION_PRIORITY) or 0
    except InputError:
        return 0
