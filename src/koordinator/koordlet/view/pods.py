"""The pods of this node, and where their cgroups are.

Source: koordinator pkg/koordlet/statesinformer/impl/states_pods.go; pkg/koordlet/util/container.go.
"""

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from koordinator.api.annotations.numa import RESOURCE_STATUS, CpuAllocation
from koordinator.api.core import ResourceList
from koordinator.api.pod import Container, ContainerStatus, Pod
from koordinator.api.qos import (
    KubeQos,
    PriorityBand,
    QosClass,
    band_of,
    kube_qos_of,
    labelled_qos,
    qos_of,
)
from koordinator.domain.cgroups.layout import CgroupLayout
from koordinator.domain.cpus.cpu_list import parse_cpu_list
from koordinator.domain.pod_requests import pod_requests
from koordinator.foundation.errors import InputError
from koordinator.foundation.path_component import PathComponent, path_component

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

    @cached_property
    def uid(self) -> PathComponent:
        """What its series are kept under.  Raises InputError for a UID that is no name."""
        return _own_uid(self.pod)

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
        """What it asks for: milli-CPU for ``cpu``, whole units for all else."""
        return pod_requests(self.pod.spec)

    @cached_property
    def cpu_allocation(self) -> CpuAllocation | None:
        """What the scheduler gave it of CPUs; None if nothing, or nothing that can be read."""
        try:
            return RESOURCE_STATUS.read(self.pod.metadata)
        except InputError:
            return None

    @cached_property
    def bound_cpus(self) -> int:
        """A mask of the CPUs that it has for itself."""
        allocation = self.cpu_allocation
        try:
            return parse_cpu_list(allocation.cpuset) if allocation is not None else 0
        except InputError:
            return 0

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
        containers.append(ContainerView(status.name, status.container_id, place, spec))
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
