"""Pods and containers that the runtime is about to start, converted to the hooks' input.

The runtime calls within milliseconds of the kubelet's decision, often before the agent's watch has
delivered the pod.  In that case labels, annotations and resources are those that the kubelet passed
to the runtime; the scheduler and the webhooks wrote them before the pod was bound.
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
from koordinator.koordlet.view.pods import ContainerCreation, ContainerView, PodView

_ANY_RUNTIME: Final = "containerd"
_SHARES_OF_A_CPU: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class StartingPod:
    """Pod from the runtime; ``cgroup_parent`` is a path or the name of a slice."""

    namespace: str
    name: str
    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    cgroup_parent: str

    @property
    def kube_qos(self) -> KubeQos:
        """QoS class, derived from the place of the cgroup."""
        if "besteffort" in self.cgroup_parent:
            return KubeQos.BEST_EFFORT
        return KubeQos.BURSTABLE if "burstable" in self.cgroup_parent else KubeQos.GUARANTEED


@dataclass(frozen=True, slots=True, kw_only=True)
class StartingContainer:
    """Container from the runtime; ``limits`` are those that the kubelet requested."""

    name: str
    id: str
    env: Mapping[str, str]
    limits: LinuxResources = field(default_factory=LinuxResources)


def pod_of(starting: StartingPod, known: Mapping[str, PodView], layout: CgroupLayout) -> PodView:
    """Return the pod without containers: from ``known`` if published, otherwise from the runtime.

    ``known`` is by cgroup folder.  Raises InputError for a UID that is no valid folder name.
    """
    folder = layout.pod(starting.kube_qos, path_component(starting.uid, path="uid"))
    published = known.get(folder)
    if published is not None:
        return replace(published, containers=())
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
    """Return a container of the pod as the input of hooks.

    The CPU limit comes from the kubelet's request, which has a resize first.
    Raises InputError for an id that is no valid folder name.
    """
    spec = pod.pod.spec
    stated = [each for each in (*spec.containers, *spec.init_containers)
              if each.name == starting.name]  # fmt: skip
    container = stated[0] if stated else Container(name=starting.name)
    container = replace_struct(container, resources=_resources(container, starting.limits))
    identity = f"{_ANY_RUNTIME}://{starting.id}"
    folder = layout.container(pod.folder, identity)
    view = ContainerView(starting.name, identity, folder, container)
    return ContainerCreation(replace(pod, containers=(view,)), view, starting.env)


def _resources(container: Container, limits: LinuxResources) -> ResourceRequirements:
    stated = container.resources
    requests, upper = dict(stated.requests), dict(stated.limits)
    if limits.cpu_quota_us is not None and limits.cpu_quota_us > 0:
        milli = limits.cpu_quota_us * 1000 // CFS_PERIOD_US
        upper["cpu"] = Quantity.from_milli(milli)
    if limits.cpu_shares is not None and "cpu" not in requests:
        requests["cpu"] = Quantity.from_milli(limits.cpu_shares * 1000 // _SHARES_OF_A_CPU)
    return ResourceRequirements(requests=requests, limits=upper, claims=stated.claims)
