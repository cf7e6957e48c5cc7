"""Pods of this node with the folders of their cgroups.

Source: koordinator pkg/koordlet/statesinformer/impl/states_pods.go; pkg/koordlet/util/container.go.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

from koordinator.api.annotations.devices import ALLOCATED, DeviceAllocation, DeviceAllocations
from koordinator.api.annotations.numa import RESOURCE_STATUS
from koordinator.api.annotations.pod_qos import (
    BLKIO_QOS,
    EVICTION_POLICY,
    NETWORK_QOS,
    PodNetworkQos,
    ResctrlConfig,
    eviction_priority,
)
from koordinator.api.core import ResourceList
from koordinator.api.labels import (
    COMPONENT,
    CORE_SCHED_GROUP_ID,
    EVICTION_ENABLED,
    HAMI_CORE,
    NODE_MANAGER,
    OPERATING_MODE,
    POD_PRIORITY,
    CoreSchedPolicy,
    OperatingMode,
    core_sched_policy,
    gpu_isolation_provider,
    is_true,
)
from koordinator.api.node_slo import CpuBurstSettings
from koordinator.api.pod import Container, ContainerStatus, Pod, PodSpec, is_terminal
from koordinator.api.qos import (
    KubeQos,
    PriorityBand,
    QosClass,
    band_of,
    kube_qos_of,
    labelled_qos,
    priority_of,
    qos_of,
)
from koordinator.api.resource_qos import BlockDevice, MemorySettings, ResctrlQos
from koordinator.domain.cgroups.layout import CgroupLayout
from koordinator.domain.pod_requests import pod_requests
from koordinator.domain.resized_pods import least_of, with_least_requests
from koordinator.foundation.errors import InputError
from koordinator.foundation.files import PathComponent, path_component
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.koordlet.view import bounded_annotations as bounded

_CONFIG = "kubernetes.io/config"
_STATIC_SOURCES = ("file", "http")  # of the kubelet; all other pods have the source api
_STATIC_UID = re.compile(r"[0-9a-f-]{1,64}")


@dataclass(frozen=True, slots=True)
class ContainerView:
    """Container that was started at least once.

    This includes init containers, such as sidecars, and ephemeral containers, which have no
    resources.
    """

    name: str
    id: str  # runtime://hash
    folder: str
    spec: Container

    @property
    def requests(self) -> ResourceList:
        """Requested resources."""
        return self.spec.resources.requests

    @property
    def limits(self) -> ResourceList:
        """Limits."""
        return self.spec.resources.limits

    @property
    def cpu_limit_milli(self) -> int:
        """CPU limit in milli-CPU; 0 for none."""
        limit = self.limits.get("cpu")
        return limit.milli() if limit is not None else 0


@dataclass(frozen=True)
class PodView:
    """Pod of this node, computed once per version.  ``cached_property`` requires a dict."""

    pod: Pod
    folder: str
    containers: tuple[ContainerView, ...]
    others_cpus: int = 0  # mask of the CPUs that are bound to other pods with precedence

    @cached_property
    def uid(self) -> PathComponent:
        """UID.  Raises InputError for a UID that is no valid folder name."""
        return _own_uid(self.pod)

    @property
    def folders(self) -> tuple[str, ...]:
        """Cgroup folders of the pod and its containers."""
        return (self.folder, *(container.folder for container in self.containers))

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return self.pod.key

    @cached_property
    def labelled_qos(self) -> QosClass:
        """QoS class of the label; NONE without label."""
        return labelled_qos(self.pod.metadata.labels)

    @cached_property
    def qos(self) -> QosClass:
        """QoS class of the label, or derived from the resources."""
        return qos_of(self.pod)

    @cached_property
    def kube_qos(self) -> KubeQos:
        """QoS class of Kubernetes, which determines the place of the cgroup."""
        return kube_qos_of(self.pod)

    @cached_property
    def band(self) -> PriorityBand:
        """Declared priority band, or derived from the QoS class."""
        return band_of(self.pod)

    @cached_property
    def requests(self) -> dict[str, int]:
        """Granted requests: milli-CPU for ``cpu``, whole units otherwise."""
        return pod_requests(self.least_spec)

    @cached_property
    def least_spec(self) -> PodSpec:
        """The spec with granted amounts: a pending resize does not increase them."""
        return with_least_requests(self.pod).spec

    @cached_property
    def stated_cpus(self) -> int:
        """Mask of the CPUs in the pod's annotation, which any client may have written."""
        return bounded.stated_cpus(self.pod.metadata)

    @cached_property
    def bound_cpus(self) -> int:
        """Mask of the CPUs bound to the pod: within its request, and not bound to others."""
        return bounded.granted_cpus(self.pod, self.stated_cpus & ~self.others_cpus)

    @property
    def has_cpu_allocation(self) -> bool:
        """Whether the pod has the scheduler's annotation for CPUs."""
        return RESOURCE_STATUS.is_in(self.pod.metadata.annotations)

    @cached_property
    def numa_nodes(self) -> tuple[int, ...]:
        """NUMA nodes from which the scheduler allocated shared CPUs."""
        return bounded.allocated_numa_nodes(self.pod)

    @cached_property
    def batch_resources(self) -> bounded.BatchResources:
        """Batch resources by container; empty without any."""
        return bounded.batch_resources(self.pod)

    @property
    def devices(self) -> DeviceAllocations:
        """Allocated devices by type.

        Raises InputError for an invalid annotation, or one that exceeds the requests.
        """
        return bounded.allocated_devices(self.pod)

    @property
    def devices_text(self) -> str:
        """Raw annotation of the devices, to detect changes."""
        return self.pod.metadata.annotations.get(ALLOCATED.key, "")

    @property
    def wants_gpu_limits(self) -> bool:
        """Whether HAMi-core limits the pod to its GPU shares."""
        return gpu_isolation_provider(self.pod.metadata.labels) == HAMI_CORE

    @property
    def requests_gpu_share(self) -> bool:
        """Whether the pod requests a part of a GPU."""
        return bounded.requests_gpu_share(self.pod)

    def memory_settings(
        self, of_class: MemorySettings, auto: MemorySettings | None, none: MemorySettings
    ) -> MemorySettings:
        """Return the memory QoS, with the arguments of ``bounded.memory_settings``."""
        return bounded.memory_settings(
            self.pod.metadata, of_class, auto, none, protects=not self.is_best_effort
        )

    def burst_settings(self, of_node: CpuBurstSettings) -> CpuBurstSettings:
        """Return the CPU burst, bounded by the node's settings."""
        return bounded.burst_settings(self.pod.metadata, of_node)

    def group_identity(self, of_class: int) -> int:
        """Return the group identity, bounded by the class's."""
        return bounded.group_identity(self.pod.metadata, of_class)

    def cache_shares(self, of_class: ResctrlQos) -> ResctrlConfig | None:
        """Return the pod's own shares of caches within the class's; None if it has none."""
        return bounded.cache_shares(self.pod.metadata, of_class)

    @property
    def oom_scores(self) -> tuple[Mapping[str, int], int | None]:
        """OOM score adjustments by container, and the default; the hook bounds them by class."""
        return bounded.oom_scores(self.pod.metadata)

    @property
    def block_devices(self) -> tuple[BlockDevice, ...] | None:
        """Limits of block devices, in addition to the tier's; None if the pod has none."""
        try:
            own = BLKIO_QOS.read(self.pod.metadata)
        except InputError:
            return None
        return own.blocks if own is not None else None

    @property
    def network_qos(self) -> PodNetworkQos | None:
        """Bandwidth limits.  Raises InputError for an invalid annotation."""
        return NETWORK_QOS.read(self.pod.metadata)

    @property
    def core_policy(self) -> CoreSchedPolicy:
        """Core scheduling policy."""
        return core_sched_policy(self.pod.metadata.labels)

    @property
    def core_group(self) -> str:
        """Core scheduling group, unique per namespace; empty without a group label."""
        meta = self.pod.metadata
        name = meta.labels.get(CORE_SCHED_GROUP_ID, "")
        return f"{meta.namespace}/{name}" if name else ""

    @property
    def agrees_to_eviction(self) -> bool:
        """Whether the pod's label allows its eviction although it is not best effort."""
        return is_true(self.pod.metadata.labels, EVICTION_ENABLED)

    def may_be_evicted(self, feature: str) -> bool:
        """Return whether a feature may evict the pod: it is in the pod's list, or there is none.

        An invalid list protects the pod.
        """
        meta = self.pod.metadata
        if EVICTION_POLICY.key not in meta.annotations:
            return True
        try:
            return feature in (EVICTION_POLICY.read(meta) or ())
        except InputError:
            return False

    @property
    def eviction_order(self) -> tuple[int, int, int, int]:
        """Sort key by importance, least important first.

        A negative eviction priority of the pod precedes all other pods; a positive one only orders
        pods of equal priority.
        """
        own, priority = eviction_priority(self.pod.metadata), priority_of(self.pod)
        label = self.pod.metadata.labels.get(POD_PRIORITY, "")
        try:
            within = int(label)
        except ValueError:
            within = priority
        return min(own, 0), priority, max(own, 0), within

    @property
    def is_node_manager(self) -> bool:
        """Whether the pod is labelled as a NodeManager of YARN, which runs other containers."""
        return self.pod.metadata.labels.get(COMPONENT) == NODE_MANAGER

    @property
    def offers_resources(self) -> bool:
        """Whether other pods use its resources, as for the pod of a reservation."""
        mode = self.pod.metadata.labels.get(OPERATING_MODE)
        return mode == OperatingMode.RESERVATION

    @property
    def is_active(self) -> bool:
        """Whether the pod runs or may start: its phase is not final."""
        return not is_terminal(self.pod)

    @property
    def is_best_effort(self) -> bool:
        """Whether the pod is best effort by its label or without requests."""
        return self.labelled_qos is QosClass.BE or self.kube_qos is KubeQos.BEST_EFFORT


def pod_view(pod: Pod, layout: CgroupLayout) -> PodView:
    """Return the pod with its cgroup folder and its started containers.

    Raises InputError for a UID that is no valid folder name.
    """
    own = _own_uid(pod)
    return _view(pod, layout, static_uid(pod) or own)


def pods_of_node(pods: Iterable[PodView], layout: CgroupLayout) -> tuple[PodView, ...]:
    """Return pods by key, each with a cgroup of its own.

    Clients of the API server create mirror pods, and could name the cgroup of another pod; such an
    annotation is ignored.  Of two mirror pods that name the same cgroup, the older one owns it.
    """
    by_key = {view.key: view for view in sorted(pods, key=lambda view: view.key)}
    mirrors = [(view, uid) for view in by_key.values() if (uid := static_uid(view.pod))]
    taken = {view.uid for view in by_key.values()} if mirrors else set()
    for view, uid in sorted(mirrors, key=lambda mirror: _age(mirror[0])):
        if uid in taken:
            by_key[view.key] = _view(view.pod, layout, view.uid)
        taken.add(uid)
    return tuple(by_key.values())


def static_uid(pod: Pod) -> PathComponent | None:
    """Return the UID of a static pod in the kubelet, from its mirror pod; None for other pods.

    A mirror pod is owned by its node and has three matching annotations; on any other pod the
    annotation was written by the pod's author.
    Source: kubernetes pkg/kubelet/config/common.go ``applyDefaults``, pkg/kubelet/pod/
    mirror_client.go ``CreateMirrorPod``.
    """
    meta = pod.metadata
    stated = meta.annotations.get(f"{_CONFIG}.hash", "")
    is_mirror = (
        stated == meta.annotations.get(f"{_CONFIG}.mirror")
        and meta.annotations.get(f"{_CONFIG}.source") in _STATIC_SOURCES
        and any(
            owner.controller and owner.kind == "Node" and owner.name == pod.spec.node_name
            for owner in meta.owner_references
        )
    )
    if not is_mirror or not _STATIC_UID.fullmatch(stated):
        return None
    return path_component(stated, path=f"metadata.annotations[{_CONFIG}.hash]")


def _view(pod: Pod, layout: CgroupLayout, uid: PathComponent) -> PodView:
    folder = layout.pod(kube_qos_of(pod), uid)
    containers = []
    for status, spec in _started(pod):
        try:
            place = layout.container(folder, status.container_id)
        except InputError:
            continue  # unknown runtime
        granted = least_of(spec, status)
        containers.append(ContainerView(status.name, status.container_id, place, granted))
    return PodView(pod, folder, tuple(containers))


def _started(pod: Pod) -> Iterator[tuple[ContainerStatus, Container]]:
    """Yield the started containers: main, then init ones that have not ended, then ephemeral ones.

    An init container that has ended does not start again.
    """
    status = pod.status
    specs = {each.name: each for each in pod.spec.containers}
    for each in status.container_statuses:
        if each.container_id and each.name in specs:
            yield each, specs[each.name]
    specs = {each.name: each for each in pod.spec.init_containers}
    for each in status.init_container_statuses:
        if each.container_id and each.name in specs and each.state.terminated is None:
            yield each, specs[each.name]
    for each in status.ephemeral_container_statuses:
        if each.container_id and each.state.terminated is None:
            yield each, Container(name=each.name)


def _own_uid(pod: Pod) -> PathComponent:
    return path_component(pod.metadata.uid, path="metadata.uid")


def _age(view: PodView) -> tuple[float, str]:
    created = view.pod.metadata.creation_timestamp
    return (created.timestamp() if created is not None else math.inf, view.key)


@dataclass(frozen=True, slots=True)
class ContainerCreation:
    """State before the container exists: its pod, its spec and its environment.

    If the watch has not delivered the pod yet, ``pod`` has no other container, and its labels,
    annotations and resources are those that the kubelet passed to the runtime.  ``claimed_gpus``
    are the GPUs of its resource claims, smallest share first.
    """

    pod: PodView
    container: ContainerView
    env: Mapping[str, str]
    claimed_gpus: tuple[DeviceAllocation, ...] = ()

    @property
    def owner(self) -> str:
        """Name of the container in messages."""
        return f"{self.pod.key}/{self.container.name}"
