"""Notices about input that no profile uses, such as quotas and gangs, and about missing objects."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from koordinator.api.annotations.gang import gang_name
from koordinator.api.annotations.reservation import AFFINITY
from koordinator.api.cluster_network_topology import ClusterNetworkTopology
from koordinator.api.device import Device
from koordinator.api.elastic_quota import DEFAULT_QUOTA, ROOT_QUOTA, SYSTEM_QUOTA, ElasticQuota
from koordinator.api.kube_version import V1_37, KubeVersion
from koordinator.api.kubescheduler import NO_GATES, FeatureGates, KubeSchedulerConfiguration
from koordinator.api.kubescheduler.gates import (
    COMPOSITE_POD_GROUPS,
    GANG_SCHEDULING,
    GENERIC_WORKLOAD,
)
from koordinator.api.labels import QUOTA_NAME
from koordinator.api.meta import KubeObject
from koordinator.api.node import NodeResourceTopology
from koordinator.api.node_metric import NodeMetric
from koordinator.api.pod import Pod, is_terminal
from koordinator.api.pod_groups import (
    CompositePodGroup,
    PodGroup,
    SchedulingPodGroup,
    SchedulingWorkload,
)
from koordinator.api.reservation import Reservation
from koordinator.api.resource_names import (
    CURRENT_DEVICE_NAMES,
    FPGA,
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    RDMA,
)
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.text import pluralized_names
from koordinator.scheduler.contract import PluginSpec
from koordinator.scheduler.profile import plugin_names

SHOWN = 3  # names in a sentence


@dataclass(frozen=True, slots=True)
class _Feature:
    plugin: str
    kinds: tuple[type[KubeObject], ...]
    called: str  # name of the requested feature
    applies_to: Callable[[Pod], bool]
    remedy: str = "--config koordinator has it"


_SHARES = {GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, RDMA, FPGA, *CURRENT_DEVICE_NAMES}


def _requests_shares(pod: Pod) -> bool:
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    return any(not _SHARES.isdisjoint(one.resources.requests) for one in containers)


_FEATURES = (
    _Feature(
        GANG_SCHEDULING,
        (SchedulingWorkload,),
        "the gang of a Workload",
        lambda pod: pod.spec.workload_ref is not None,
        "--feature-gates {gates} switches it on",
    ),
    _Feature(
        GANG_SCHEDULING,
        (SchedulingPodGroup,),
        "the gang of a PodGroup of scheduling.k8s.io",
        lambda pod: pod.spec.scheduling_group is not None,
        "--feature-gates {gates} switches it on",
    ),
    _Feature(
        COMPOSITE_POD_GROUPS,
        (CompositePodGroup,),
        "",
        lambda _: False,
        "--feature-gates GenericWorkload=true,TopologyAwareWorkloadScheduling=true,"
        f"{COMPOSITE_POD_GROUPS}=true switches it on",
    ),
    _Feature(
        "ElasticQuota", (ElasticQuota,), "a quota", lambda pod: QUOTA_NAME in pod.metadata.labels
    ),
    _Feature(
        "Coscheduling",
        (PodGroup, ClusterNetworkTopology),
        "a gang",
        lambda pod: bool(gang_name(pod.metadata)),
    ),
    _Feature(
        "Reservation",
        (Reservation,),
        "a reservation",
        lambda pod: AFFINITY.key in pod.metadata.annotations,
    ),
    _Feature("LoadAwareScheduling", (NodeMetric,), "", lambda _: False),
    _Feature("NodeNUMAResource", (NodeResourceTopology,), "", lambda _: False),
    _Feature("DeviceShare", (Device,), "shares of devices", _requests_shares),
)


def unused_objects(
    objects: Iterable[KubeObject],
    configuration: KubeSchedulerConfiguration,
    *,
    out_of_tree: Sequence[PluginSpec[Any]] = (),
    source: str = "",
    gates: FeatureGates = NO_GATES,
) -> list[str]:
    """Return a sentence for what no plugin reads that a pending pod among ``objects`` goes through.

    Raises InputError for plugins that can't run as configured.
    """
    plugins = plugin_names(configuration, out_of_tree=out_of_tree, source=source, gates=gates)
    given = list(objects)
    pending = [
        obj
        for obj in given
        if isinstance(obj, Pod)
        and not obj.spec.node_name
        and not is_terminal(obj)
        and obj.spec.scheduler_name in plugins
    ]
    notices: list[str] = []
    for feature in _FEATURES:
        capable = [name for name, has in plugins.items() if feature.plugin in has]
        used = {pod.spec.scheduler_name for pod in pending}
        if feature.plugin == GANG_SCHEDULING:
            capable = [*plugins] if GANG_SCHEDULING in gates else []
        if feature.plugin == COMPOSITE_POD_GROUPS:
            capable = [*plugins] if COMPOSITE_POD_GROUPS in gates else []
        remedy = feature.remedy.format(gates=_switched_on(gates.level))
        hint = f"spec.schedulerName {capable[0]} has it" if capable else remedy
        notices += _of_pods(feature, pending, capable, hint)
        if feature.plugin == "ElasticQuota":
            notices += _of_missing_quotas(given, pending, capable)
        if pending and not used.intersection(capable):
            notices += _of_objects(feature, given, hint)
    return notices


def _switched_on(level: KubeVersion) -> str:
    """Return the feature gates of groups of scheduling.k8s.io, switched on."""
    names = (GENERIC_WORKLOAD,) if level >= V1_37 else (GENERIC_WORKLOAD, GANG_SCHEDULING)
    return ",".join(f"{name}=true" for name in names)


def _of_pods(
    feature: _Feature, pending: Iterable[Pod], capable: Sequence[str], hint: str
) -> Iterator[str]:
    by_profile: dict[str, list[str]] = {}
    for pod in pending:
        if pod.spec.scheduler_name not in capable and feature.applies_to(pod):
            by_profile.setdefault(pod.spec.scheduler_name, []).append(pod.key)
    for profile, keys in by_profile.items():
        yield (
            f"{pluralized_names(keys, 'pod', SHOWN)} {'asks' if len(keys) == 1 else 'ask'} "
            f"for {feature.called}, which has no effect: profile {profile} has no plugin "
            f"{feature.plugin}; {hint}"
        )


def _of_missing_quotas(
    given: Iterable[KubeObject], pending: Iterable[Pod], capable: Sequence[str]
) -> Iterator[str]:
    known = {obj.metadata.name for obj in given if isinstance(obj, ElasticQuota)}
    known |= {DEFAULT_QUOTA, SYSTEM_QUOTA, ROOT_QUOTA}
    missing: dict[str, list[str]] = {}
    for pod in pending:
        name = pod.metadata.labels.get(QUOTA_NAME, "")
        if name and name not in known and pod.spec.scheduler_name in capable:
            missing.setdefault(name, []).append(pod.key)
    for name, keys in missing.items():
        yield (
            f"there is no ElasticQuota {name!r}, which {pluralized_names(keys, 'pod', SHOWN)} "
            f"{'names' if len(keys) == 1 else 'name'}: counted for {DEFAULT_QUOTA}"
        )


def _of_objects(feature: _Feature, given: Iterable[KubeObject], hint: str) -> Iterator[str]:
    for kind in feature.kinds:
        keys = [obj.key for obj in given if isinstance(obj, kind)]
        if keys:
            yield (
                f"{pluralized_names(keys, kind.KIND, SHOWN)} without effect on pending pods: "
                f"none is of a profile with the plugin {feature.plugin}; {hint}"
            )
