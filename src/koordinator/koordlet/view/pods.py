"""The pods of this node, and where their cgroups are.

Source: koordinator pkg/koordlet/statesinformer/impl/states_pods.go; pkg/koordlet/util/container.go.
"""

from dataclasses import dataclass
from functools import cached_property

from koordinator.api.core import ResourceList
from koordinator.api.pod import Container, Pod
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
from koordinator.domain.pod_requests import pod_requests
from koordinator.foundation.errors import InputError

_ACTIVE_PHASES = ("Pending", "Running")


@dataclass(frozen=True, slots=True)
class ContainerView:
    """A container that has been started, at least once."""

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

    @property
    def uid(self) -> str:
        """What its series are kept under."""
        return self.pod.metadata.uid

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

    @property
    def is_active(self) -> bool:
        """Whether it runs, or may begin to."""
        return self.pod.status.phase in _ACTIVE_PHASES

    @property
    def is_best_effort(self) -> bool:
        """Whether it lives on what others leave: by its label, or by having no requests."""
        return self.labelled_qos is QosClass.BE or self.kube_qos is KubeQos.BEST_EFFORT


def pod_view(pod: Pod, layout: CgroupLayout) -> PodView:
    """Return the pod with its folders; without init containers and those that have none yet."""
    folder = layout.pod(kube_qos_of(pod), _cgroup_uid(pod))
    specs = {container.name: container for container in pod.spec.containers}
    containers = []
    for status in pod.status.container_statuses:
        spec = specs.get(status.name)
        if spec is None or not status.container_id:
            continue
        try:
            place = layout.container(folder, status.container_id)
        except InputError:
            continue  # of a runtime that nobody here knows
        containers.append(ContainerView(status.name, status.container_id, place, spec))
    return PodView(pod, folder, tuple(containers))


def _cgroup_uid(pod: Pod) -> str:
    """Return the UID that the kubelet names the cgroup by: of a static pod that of its file."""
    meta = pod.metadata
    return meta.annotations.get("kubernetes.io/config.hash", meta.uid)
