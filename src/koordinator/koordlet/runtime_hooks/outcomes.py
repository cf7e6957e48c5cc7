"""Containers that are being started, and the outcomes of hooks on them.

The runtime calls within milliseconds of the kubelet's decision, often before the agent's watch has
delivered the pod.  In that case labels, annotations and resources are those that the kubelet passed
to the runtime; the scheduler and the webhooks wrote them before the pod was bound.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Final

from msgspec.structs import replace as replace_struct

from koordinator.api.core import ResourceRequirements
from koordinator.api.meta import ObjectMeta
from koordinator.api.pod import Container, Pod, PodSpec, PodStatus
from koordinator.api.qos import KubeQos
from koordinator.domain.cgroups.files import CFS_PERIOD_US
from koordinator.domain.cgroups.layout import CgroupLayout
from koordinator.foundation.files import path_component
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.quantity import Quantity
from koordinator.koordlet.adjustments import LinuxResources
from koordinator.koordlet.executor.cgroup_writer import CgroupWrite
from koordinator.koordlet.view.pods import ContainerCreation, ContainerView, PodView

MOST_KEPT: Final = 4096  # while the loop is busy

_ANY_RUNTIME: Final = "containerd"
_SHARES_OF_A_CPU: Final = 1024


@dataclass(frozen=True, slots=True)
class HookFailure:
    """Failure of a hook.

    ``container`` is empty for a hook of a pod.  ``is_fatal``: the error was returned to the
    runtime, which therefore started nothing; otherwise the pod or container started without the
    hook's changes.
    """

    hook: str
    stage: str
    namespace: str
    pod: str
    uid: str
    container: str
    error: str
    is_fatal: bool = False

    @property
    def owner(self) -> str:
        """Name of the pod or container in messages."""
        return f"{self.namespace}/{self.pod}" + (f"/{self.container}" if self.container else "")

    @property
    def note(self) -> str:
        """Sentence for an event."""
        subject = "container " + self.container if self.container else "pod"
        how = "was not started" if self.is_fatal else "started without it; it is reconciled later"
        return f"{self.hook} at {self.stage}: {self.error}; the {subject} {how}"


@dataclass(frozen=True, slots=True)
class HookWrites:
    """Writes to cgroups by a thread of the runtime hooks."""

    writes: tuple[CgroupWrite, ...]


@dataclass(frozen=True, slots=True)
class UnpreparedContainer:
    """Running container that was created without a hook's changes.

    ``id`` is the runtime's; ``missing`` are the environment variables that it does not have.
    """

    hook: str
    namespace: str
    pod: str
    uid: str
    container: str
    id: str
    missing: tuple[str, ...]


HookOutcome = HookFailure | HookWrites | UnpreparedContainer


class HookOutcomes:
    """Bounded queue from any thread to the loop; on overflow the oldest outcomes are dropped."""

    def __init__(self) -> None:
        self._waiting: deque[HookOutcome] = deque(maxlen=MOST_KEPT)

    def put(self, outcome: HookOutcome) -> None:
        """Queue an outcome for the loop."""
        self._waiting.append(outcome)

    def take(self) -> list[HookOutcome]:
        """Return the outcomes since the last call."""
        taken = []
        while self._waiting:
            taken.append(self._waiting.popleft())
        return taken


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
