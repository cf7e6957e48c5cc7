"""The pods of this node, and where their cgroups are.

Source: koordinator pkg/koordlet/statesinformer/impl/states_pods.go; pkg/koordlet/util/container.go.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from koordinator.api.annotations.devices import ALLOCATED, DeviceAllocations
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
from koordinator.api.pod import Container, ContainerStatus, Pod
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
from koordinator.domain.resized_pods import least_of, least_requests
from koordinator.foundation.errors import InputError
from koordinator.foundation.path_component import PathComponent, path_component
from koordinator.koordlet.view import bounded_annotations as bounded

_ENDED_PHASES = ("Succeeded", "Failed")
_CONFIG = "kubernetes.io/config"
_STATIC_SOURCES = ("file", "http")  # of the kubelet; api is everything else
_STATIC_UID = re.compile(r"[0-9a-f-]{1,64}")


@dataclass(frozen=True, slots=True)
class ContainerView:
    """A container that has been started, at least once.

    Also an init container, such as a sidecar, and an ephemeral one, which has no resources.
    """

    name: str
    id: str  # runtime://hash
    folder: str
    spec: Container

    @property
    def requests(self) -> ResourceList:
        """What it asks for."""
        return self.spec.resources.requests

    @property
    def limits(self) -> ResourceList:
        """What it gets at most."""
        return self.spec.resources.limits

    @property
    def cpu_limit_milli(self) -> int:
        """0 for none."""
        limit = self.limits.get("cpu")
        return limit.milli() if limit is not None else 0


@dataclass(frozen=True)
class PodView:
    """A pod of this node.  Made once per version of the pod; ``cached_property`` needs a dict."""

    pod: Pod
    folder: str
    containers: tuple[ContainerView, ...]
    others_cpus: int = 0  # a mask of those that other pods of the node had before

    @cached_property
    def uid(self) -> PathComponent:
        """What its series are kept under.  Raises InputError for a UID that is no name."""
        return _own_uid(self.pod)

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders of the pod and of its containers."""
        return (self.folder, *(container.folder for container in self.containers))

    @property
    def key(self) -> str:
        """How messages call it."""
        return self.pod.key

    @cached_property
    def labelled_qos(self) -> QosClass:
        """The class that its label names; NONE without label."""
        return labelled_qos(self.pod.metadata.labels)

    @cached_property
    def qos(self) -> QosClass:
        """The class of its label, else the one that follows from its resources."""
        return qos_of(self.pod)

    @cached_property
    def kube_qos(self) -> KubeQos:
        """The class of Kubernetes, which decides where its cgroup is."""
        return kube_qos_of(self.pod)

    @cached_property
    def band(self) -> PriorityBand:
        """The declared priority band, else the one that follows from the QoS class."""
        return band_of(self.pod)

    @cached_property
    def requests(self) -> dict[str, int]:
        """What it requests and was granted: milli-CPU for ``cpu``, whole units for all else."""
        return least_requests(self.pod)

    @cached_property
    def stated_cpus(self) -> int:
        """A mask of the CPUs of its own that its annotation names, whoever wrote that."""
        return bounded.stated_cpus(self.pod.metadata)

    @cached_property
    def bound_cpus(self) -> int:
        """A mask of the CPUs that it has for itself: of its request, and no other pod's."""
        return bounded.granted_cpus(self.pod, self.stated_cpus & ~self.others_cpus)

    @property
    def has_cpu_allocation(self) -> bool:
        """Whether it has an annotation of the scheduler about CPUs, whatever it says."""
        return RESOURCE_STATUS.is_in(self.pod.metadata.annotations)

    @cached_property
    def numa_nodes(self) -> tuple[int, ...]:
        """The NUMA nodes from which the scheduler gave it CPU that it shares."""
        return bounded.allocated_numa_nodes(self.pod)

    @cached_property
    def batch_resources(self) -> bounded.BatchResources:
        """The batch resources of its containers; empty without any."""
        return bounded.batch_resources(self.pod)

    @property
    def devices(self) -> DeviceAllocations:
        """The devices that it was given, by type.

        Raises InputError for an annotation that can't be read, or has more than it requests.
        """
        return bounded.allocated_devices(self.pod)

    @property
    def devices_text(self) -> str:
        """The annotation of its devices as it was written, to see a change."""
        return self.pod.metadata.annotations.get(ALLOCATED.key, "")

    @property
    def wants_gpu_limits(self) -> bool:
        """Whether HAMi-core is to hold it to its shares of GPUs."""
        return gpu_isolation_provider(self.pod.metadata.labels) == HAMI_CORE

    @property
    def requests_gpu_share(self) -> bool:
        """Whether it requests a part of a GPU."""
        return bounded.requests_gpu_share(self.pod)

    def memory_settings(
        self, of_class: MemorySettings, auto: MemorySettings | None, none: MemorySettings
    ) -> MemorySettings:
        """Return its memory QoS where its class has ``of_class``; see there for the others."""
        return bounded.memory_settings(
            self.pod.metadata, of_class, auto, none, protects=not self.is_best_effort
        )

    def burst_settings(self, of_node: CpuBurstSettings) -> CpuBurstSettings:
        """Return its CPU burst, which exceeds the node's in nothing."""
        return bounded.burst_settings(self.pod.metadata, of_node)

    def group_identity(self, of_class: int) -> int:
        """Return its group identity, which is not above that of its class."""
        return bounded.group_identity(self.pod.metadata, of_class)

    def cache_shares(self, of_class: ResctrlQos) -> ResctrlConfig | None:
        """Return its own shares of caches, within those of its class; None if it has none."""
        return bounded.cache_shares(self.pod.metadata, of_class)

    @property
    def oom_scores(self) -> tuple[Mapping[str, int], int | None]:
        """OOM score adjustments by container, and of all others; the hook bounds them by class."""
        return bounded.oom_scores(self.pod.metadata)

    @property
    def block_devices(self) -> tuple[BlockDevice, ...] | None:
        """Its limits of block devices, which come on top of its tier's; None if it has none."""
        try:
            own = BLKIO_QOS.read(self.pod.metadata)
        except InputError:
            return None
        return own.blocks if own is not None else None

    @property
    def network_qos(self) -> PodNetworkQos | None:
        """Its limits of bandwidth.  Raises InputError for an annotation that can't be read."""
        return NETWORK_QOS.read(self.pod.metadata)

    @property
    def core_policy(self) -> CoreSchedPolicy:
        """With which other pods it may share cores."""
        return core_sched_policy(self.pod.metadata.labels)

    @property
    def core_group(self) -> str:
        """Its group of pods that share cores, all of one namespace; empty if it names none."""
        meta = self.pod.metadata
        name = meta.labels.get(CORE_SCHED_GROUP_ID, "")
        return f"{meta.namespace}/{name}" if name else ""

    @property
    def agrees_to_eviction(self) -> bool:
        """Whether it may be evicted for the sake of others though it is not best effort."""
        return is_true(self.pod.metadata.labels, EVICTION_ENABLED)

    def may_be_evicted(self, feature: str) -> bool:
        """Return whether its list of features that may evict it has this one, or there is none.

        A list that can't be read protects the pod.
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
        """What sorts pods by importance, the least one first.

        Its own priority of eviction puts it before any other pod if it is negative, and after those
        of its priority alone if it is positive.
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
        """Whether it says that it runs containers that are no pods: a NodeManager of YARN."""
        return self.pod.metadata.labels.get(COMPONENT) == NODE_MANAGER

    @property
    def offers_resources(self) -> bool:
        """Whether what it has is for other pods as well, as that of a reservation."""
        mode = self.pod.metadata.labels.get(OPERATING_MODE)
        return mode == OperatingMode.RESERVATION

    @property
    def is_active(self) -> bool:
        """Whether it runs or may start: its containers have not all ended for good."""
        return self.pod.status.phase not in _ENDED_PHASES

    @property
    def is_best_effort(self) -> bool:
        """Whether it lives on what others leave: by its label, or by having no requests."""
        return self.labelled_qos is QosClass.BE or self.kube_qos is KubeQos.BEST_EFFORT


def pod_view(pod: Pod, layout: CgroupLayout) -> PodView:
    """Return the pod with its folders and those of its containers that have been started.

    Raises InputError for a UID that can't be the name of a folder.
    """
    own = _own_uid(pod)
    return _view(pod, layout, static_uid(pod) or own)


def pods_of_node(pods: Iterable[PodView], layout: CgroupLayout) -> tuple[PodView, ...]:
    """Return pods by key, each with a cgroup of its own.

    A mirror pod is made by the API server's clients, and so might name the cgroup of another pod:
    then it is not believed.  Of two that name the same one, the older one is.
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
    """Return the UID that the kubelet runs a static pod under, from its mirror pod; else None.

    A mirror pod is owned by its node and says so three times; any other pod that has the
    annotation has it from its author.
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
            continue  # an unknown runtime
        own = least_of(spec, status)
        containers.append(ContainerView(status.name, status.container_id, place, own))
    return PodView(pod, folder, tuple(containers))


def _started(pod: Pod) -> Iterator[tuple[ContainerStatus, Container]]:
    """Yield the containers that have been started: main ones, then init ones that have not ended.

    An init container that has ended is not started again while its pod lives; ephemeral containers
    come last.
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
