"""The hooks as a runtime proxy asks for them: messages of RuntimeHookService here, hooks behind.

Every answer begins as a copy of the request, since a proxy replaces what it sent by what it gets.
Source: koordinator apis/runtime/v1alpha1/api.proto, pkg/koordlet/runtimehooks/proxyserver.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Annotated, Any, Final

from koordinator.domain.cgroups.files import CFS_PERIOD_US
from koordinator.foundation.protobuf import FieldNumber
from koordinator.koordlet.adjustments import LinuxResources
from koordinator.koordlet.runtime_hooks.runtime_hooks import RuntimeHooks
from koordinator.koordlet.runtime_hooks.starting_containers import StartingContainer, StartingPod

SERVICE: Final = "runtime.v1alpha1.RuntimeHookService"
#: What a proxy is told to ask about: the stages that have hooks, and the end of a pod.
STAGES: Final = (
    "PreRunPodSandbox",
    "PostStopPodSandbox",
    "PreCreateContainer",
    "PreUpdateContainerResources",
)
_NOT_MADE: Final = "not-made-yet"  # the proxy asks before the runtime has named the container


@dataclass(frozen=True, slots=True, kw_only=True)
class HookPodMetadata:
    """Whose sandbox it is."""

    name: Annotated[str, FieldNumber(1)] = ""
    uid: Annotated[str, FieldNumber(2)] = ""
    namespace: Annotated[str, FieldNumber(3)] = ""
    attempt: Annotated[int, FieldNumber(4)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HookHugePageLimit:
    """A limit of one size of pages."""

    page_size: Annotated[str, FieldNumber(1)] = ""
    limit: Annotated[int, FieldNumber(2)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HookResources:
    """Limits, as the CRI has them."""

    cpu_period: Annotated[int, FieldNumber(1)] = 0
    cpu_quota: Annotated[int, FieldNumber(2)] = 0
    cpu_shares: Annotated[int, FieldNumber(3)] = 0
    memory_limit_in_bytes: Annotated[int, FieldNumber(4)] = 0
    oom_score_adj: Annotated[int, FieldNumber(5)] = 0
    cpuset_cpus: Annotated[str, FieldNumber(6)] = ""
    cpuset_mems: Annotated[str, FieldNumber(7)] = ""
    hugepage_limits: Annotated[tuple[HookHugePageLimit, ...], FieldNumber(8)] = ()
    unified: Annotated[Mapping[str, str], FieldNumber(9)] = field(default_factory=dict)
    memory_swap_limit_in_bytes: Annotated[int, FieldNumber(10)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSandboxHookRequest:
    """A sandbox that starts, or has stopped."""

    pod_meta: Annotated[HookPodMetadata | None, FieldNumber(1)] = None
    runtime_handler: Annotated[str, FieldNumber(2)] = ""
    labels: Annotated[Mapping[str, str], FieldNumber(3)] = field(default_factory=dict)
    annotations: Annotated[Mapping[str, str], FieldNumber(4)] = field(default_factory=dict)
    cgroup_parent: Annotated[str, FieldNumber(5)] = ""
    overhead: Annotated[HookResources | None, FieldNumber(6)] = None
    resources: Annotated[HookResources | None, FieldNumber(7)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSandboxHookResponse:
    """What the sandbox gets."""

    labels: Annotated[Mapping[str, str], FieldNumber(1)] = field(default_factory=dict)
    annotations: Annotated[Mapping[str, str], FieldNumber(2)] = field(default_factory=dict)
    cgroup_parent: Annotated[str, FieldNumber(3)] = ""
    resources: Annotated[HookResources | None, FieldNumber(4)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HookContainerMetadata:
    """Which container of the pod."""

    name: Annotated[str, FieldNumber(1)] = ""
    attempt: Annotated[int, FieldNumber(2)] = 0
    id: Annotated[str, FieldNumber(3)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerResourceHookRequest:
    """A container that starts, is changed, or has stopped."""

    pod_meta: Annotated[HookPodMetadata | None, FieldNumber(1)] = None
    container_meta: Annotated[HookContainerMetadata | None, FieldNumber(2)] = None
    container_annotations: Annotated[Mapping[str, str], FieldNumber(3)] = field(
        default_factory=dict
    )
    container_resources: Annotated[HookResources | None, FieldNumber(4)] = None
    pod_resources: Annotated[HookResources | None, FieldNumber(5)] = None
    pod_annotations: Annotated[Mapping[str, str], FieldNumber(6)] = field(default_factory=dict)
    pod_labels: Annotated[Mapping[str, str], FieldNumber(7)] = field(default_factory=dict)
    pod_cgroup_parent: Annotated[str, FieldNumber(8)] = ""
    container_envs: Annotated[Mapping[str, str], FieldNumber(9)] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerResourceHookResponse:
    """What the container gets; mounts and devices have no place here."""

    container_annotations: Annotated[Mapping[str, str], FieldNumber(1)] = field(
        default_factory=dict
    )
    container_resources: Annotated[HookResources | None, FieldNumber(2)] = None
    pod_cgroup_parent: Annotated[str, FieldNumber(3)] = ""
    container_envs: Annotated[Mapping[str, str], FieldNumber(4)] = field(default_factory=dict)


HookMethods = Mapping[str, tuple[type[object], Callable[[Any], object]]]


class HookService:
    """Answers each call of ``methods``; safe to ask from any thread.

    An answer raises HookError where nothing may start.
    """

    def __init__(self, hooks: RuntimeHooks) -> None:
        self._hooks = hooks
        self.methods: HookMethods = MappingProxyType(
            {
                "PreRunPodSandboxHook": (PodSandboxHookRequest, self._run_sandbox),
                "PostStopPodSandboxHook": (PodSandboxHookRequest, self._stop_sandbox),
                "PreCreateContainerHook": (ContainerResourceHookRequest, self._create_container),
                "PreStartContainerHook": (ContainerResourceHookRequest, _as_asked),
                "PostStartContainerHook": (ContainerResourceHookRequest, _as_asked),
                "PreUpdateContainerResourcesHook": (
                    ContainerResourceHookRequest,
                    self._update_container,
                ),
                "PostStopContainerHook": (ContainerResourceHookRequest, _as_asked),
            }
        )

    def _run_sandbox(self, asked: PodSandboxHookRequest) -> PodSandboxHookResponse:
        limits = self._hooks.run_sandbox(_pod_of_sandbox(asked))
        return replace(_as_asked_of_pod(asked), resources=_merged(asked.resources, limits))

    def _stop_sandbox(self, asked: PodSandboxHookRequest) -> PodSandboxHookResponse:
        self._hooks.remove_sandbox(_pod_of_sandbox(asked))
        return _as_asked_of_pod(asked)

    def _create_container(
        self, asked: ContainerResourceHookRequest
    ) -> ContainerResourceHookResponse:
        found = self._hooks.create_container(_pod(asked), _container(asked))
        return replace(
            _as_asked(asked),
            container_annotations={**asked.container_annotations, **found.annotations},
            container_resources=_merged(asked.container_resources, found.resources),
            container_envs={**asked.container_envs, **found.env},
        )

    def _update_container(
        self, asked: ContainerResourceHookRequest
    ) -> ContainerResourceHookResponse:
        limits = self._hooks.update_container(_pod(asked), _container(asked))
        resources = _merged(asked.container_resources, limits)
        return replace(_as_asked(asked), container_resources=resources)


def _as_asked(asked: ContainerResourceHookRequest) -> ContainerResourceHookResponse:
    return ContainerResourceHookResponse(
        container_annotations=asked.container_annotations,
        container_resources=asked.container_resources,
        pod_cgroup_parent=asked.pod_cgroup_parent,
        container_envs=asked.container_envs,
    )


def _as_asked_of_pod(asked: PodSandboxHookRequest) -> PodSandboxHookResponse:
    return PodSandboxHookResponse(
        labels=asked.labels,
        annotations=asked.annotations,
        cgroup_parent=asked.cgroup_parent,
        resources=asked.resources,
    )


def _merged(asked: HookResources | None, limits: LinuxResources) -> HookResources | None:
    """Return the limits that were asked for, with ours; 0 stands for none in this protocol."""
    if limits == LinuxResources():
        return asked
    found = asked or HookResources()
    if limits.cpu_shares is not None:
        found = replace(found, cpu_shares=limits.cpu_shares)
    if limits.cpu_quota_us is not None:
        found = replace(found, cpu_quota=limits.cpu_quota_us, cpu_period=CFS_PERIOD_US)
    if limits.cpuset_cpus is not None:
        found = replace(found, cpuset_cpus=limits.cpuset_cpus)
    if limits.memory_limit_bytes is not None and limits.memory_limit_bytes > 0:
        found = replace(found, memory_limit_in_bytes=limits.memory_limit_bytes)
    return found


def _pod_of_sandbox(asked: PodSandboxHookRequest) -> StartingPod:
    meta = asked.pod_meta or HookPodMetadata()
    return StartingPod(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        labels=asked.labels,
        annotations=asked.annotations,
        cgroup_parent=asked.cgroup_parent,
    )


def _pod(asked: ContainerResourceHookRequest) -> StartingPod:
    meta = asked.pod_meta or HookPodMetadata()
    return StartingPod(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        labels=asked.pod_labels,
        annotations=asked.pod_annotations,
        cgroup_parent=asked.pod_cgroup_parent,
    )


def _container(asked: ContainerResourceHookRequest) -> StartingContainer:
    meta = asked.container_meta or HookContainerMetadata()
    found = asked.container_resources or HookResources()
    quota = found.cpu_quota
    if quota > 0 and found.cpu_period:
        quota = quota * CFS_PERIOD_US // found.cpu_period
    return StartingContainer(
        name=meta.name,
        id=meta.id or _NOT_MADE,
        env=asked.container_envs,
        limits=LinuxResources(cpu_quota_us=quota or None, cpu_shares=found.cpu_shares or None),
    )
