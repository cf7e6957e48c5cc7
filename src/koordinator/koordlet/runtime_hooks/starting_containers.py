"""Pods and containers as the runtime tells of them, made into what hooks look at.

The runtime asks within milliseconds of the kubelet's decision, often before the agent's watch has
the pod.  Then labels, annotations and amounts are those that the kubelet gave to the runtime, which
the scheduler and the webhooks wrote before the pod was bound.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from msgspec.structs import replace as replace_struct

from koordinator.api.core import ResourceRequirements
from koordinator.api.meta import ObjectMeta
from koordinator.api.pod import Container, Pod, PodSpec, PodStatus
from koordinator.api.qos import KubeQos
from koordinator.domain.cgroups.files import CFS_PERIOD_US
from koordinator.domain.cgroups.layout import CgroupLayout
from koordinator.foundation.path_component import path_component
from koordinator.foundation.quantity import Quantity
from koordinator.koordlet.adjustments import LinuxResources
from koordinator.koordlet.view.container_creation import ContainerCreation
from koordinator.koordlet.view.pods import ContainerView, PodView

_ANY_RUNTIME: Final = "containerd"
_SHARES_OF_A_CPU: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class StartingPod:
    """A pod as the runtime knows it; ``cgroup_parent`` is a path or the name of a slice."""

    namespace: str
    name: str
    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    cgroup_parent: str

    @property
    def kube_qos(self) -> KubeQos:
        """The class by the place of its cgroup."""
        if "besteffort" in self.cgroup_parent:
            return KubeQos.BEST_EFFORT
        return KubeQos.BURSTABLE if "burstable" in self.cgroup_parent else KubeQos.GUARANTEED


@dataclass(frozen=True, slots=True, kw_only=True)
class StartingContainer:
    """A container as the runtime knows it; ``limits`` are those that the kubelet asks for."""

    name: str
    id: str
    env: Mapping[str, str]
    limits: LinuxResources = field(default_factory=LinuxResources)


def pod_of(starting: StartingPod, known: Mapping[str, PodView], layout: CgroupLayout) -> PodView:
    """Return the pod as the API server told of it, else as the runtime does; no containers yet.

    ``known`` are pods by folder.  Raises InputError for a UID that can't be the name of a folder.
    """
    folder = layout.pod(starting.kube_qos, path_component(starting.uid, path="uid"))
    found = known.get(folder)
    if found is not None:
        return replace(found, containers=())
    pod = Pod(
        metadata=ObjectMeta(
            namespace=starting.namespace,
            name=starting.name,
            uid=starting.uid,
            labels=dict(starting.labels),
            annotations=dict(starting.annotations),
        ),
        spec=PodSpec(containers=()),
        status=PodStatus(phase="Pending", qos_class=starting.kube_qos.value),
    )
    return PodView(pod, folder, ())


def creation_of(
    pod: PodView, starting: StartingContainer, layout: CgroupLayout
) -> ContainerCreation:
    """Return a container of the pod as hooks look at it.

    A CPU limit is that of the kubelet's request, which knows of a resize first.
    Raises InputError for an id that can't be the name of a folder.
    """
    spec = pod.pod.spec
    stated = [each for each in (*spec.containers, *spec.init_containers)
              if each.name == starting.name]  # fmt: skip
    container = stated[0] if stated else Container(name=starting.name)
    container = replace_struct(container, resources=_resources(container, starting.limits))
    identity = f"{_ANY_RUNTIME}://{starting.id}"
    place = layout.container(pod.folder, identity)
    view = ContainerView(starting.name, identity, place, container)
    return ContainerCreation(replace(pod, containers=(view,)), view, starting.env)


def _resources(container: Container, limits: LinuxResources) -> ResourceRequirements:
    stated = container.resources
    requests, most = dict(stated.requests), dict(stated.limits)
    if limits.cpu_quota_us is not None and limits.cpu_quota_us > 0:
        most["cpu"] = _milli(limits.cpu_quota_us * 1000 // CFS_PERIOD_US)
    if limits.cpu_shares is not None and "cpu" not in requests:
        requests["cpu"] = _milli(limits.cpu_shares * 1000 // _SHARES_OF_A_CPU)
    return ResourceRequirements(requests=requests, limits=most, claims=stated.claims)


def _milli(amount: int) -> Quantity:
    return Quantity.from_milli(amount)
