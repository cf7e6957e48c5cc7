"""Hook service for a runtime proxy: messages of RuntimeHookService, answered by the hooks.

Each response starts as a copy of the request, because the proxy replaces its request by the
response.
Source: koordinator apis/runtime/v1alpha1/api.proto, pkg/koordlet/runtimehooks/proxyserver.
"""

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from types import MappingProxyType
from typing import Annotated, Any, Final

from koordinator.domain.cgroups.files import CFS_PERIOD_US
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.protobuf import FieldNumber
from koordinator.koordlet.adjustments import LinuxResources
from koordinator.koordlet.runtime_hooks.outcomes import StartingContainer, StartingPod
from koordinator.koordlet.runtime_hooks.runtime_hooks import RuntimeHooks

SERVICE: Final = "runtime.v1alpha1.RuntimeHookService"
#: Stages that a proxy is configured to call: those with hooks, and the end of a pod.
STAGES: Final = (
    "PreRunPodSandbox",
    "PostStopPodSandbox",
    "PreCreateContainer",
    "PreUpdateContainerResources",
)
_NO_ID_YET: Final = "not-made-yet"  # the proxy calls before the runtime has assigned an id


@dataclass(frozen=True, slots=True, kw_only=True)
class HookPodMetadata:
    """Identity of the sandbox's pod."""

    name: Annotated[str, FieldNumber(1)] = ""
    uid: Annotated[str, FieldNumber(2)] = ""
    namespace: Annotated[str, FieldNumber(3)] = ""
    attempt: Annotated[int, FieldNumber(4)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HookHugePageLimit:
    """Limit of one huge page size."""

    page_size: Annotated[str, FieldNumber(1)] = ""
    limit: Annotated[int, FieldNumber(2)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HookResources:
    """Limits of a sandbox or container, as in the CRI."""

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
    """Request about a sandbox that starts or has stopped."""

    pod_meta: Annotated[HookPodMetadata | None, FieldNumber(1)] = None
    runtime_handler: Annotated[str, FieldNumber(2)] = ""
    labels: Annotated[Mapping[str, str], FieldNumber(3)] = field(default_factory=dict)
    annotations: Annotated[Mapping[str, str], FieldNumber(4)] = field(default_factory=dict)
    cgroup_parent: Annotated[str, FieldNumber(5)] = ""
    overhead: Annotated[HookResources | None, FieldNumber(6)] = None
    resources: Annotated[HookResources | None, FieldNumber(7)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSandboxHookResponse:
    """Changes to the sandbox."""

    labels: Annotated[Mapping[str, str], FieldNumber(1)] = field(default_factory=dict)
    annotations: Annotated[Mapping[str, str], FieldNumber(2)] = field(default_factory=dict)
    cgroup_parent: Annotated[str, FieldNumber(3)] = ""
    resources: Annotated[HookResources | None, FieldNumber(4)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HookContainerMetadata:
    """Identity of the container within the pod."""

    name: Annotated[str, FieldNumber(1)] = ""
    attempt: Annotated[int, FieldNumber(2)] = 0
    id: Annotated[str, FieldNumber(3)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerResourceHookRequest:
    """Request about a container that starts, is updated, or has stopped."""

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
    """Changes to the container; the protocol has no mounts and devices."""

    container_annotations: Annotated[Mapping[str, str], FieldNumber(1)] = field(
        default_factory=dict
    )
    container_resources: Annotated[HookResources | None, FieldNumber(2)] = None
    pod_cgroup_parent: Annotated[str, FieldNumber(3)] = ""
    container_envs: Annotated[Mapping[str, str], FieldNumber(4)] = field(default_factory=dict)


HookMethods = Mapping[str, tuple[type[object], Callable[[Any], object]]]


class HookService:
    """Implementation of the calls in ``methods``; thread-safe.

    A call raises HookError if the pod or container must not start.
    """

    def __init__(self, hooks: RuntimeHooks) -> None:
        self._hooks = hooks
        self.methods: HookMethods = MappingProxyType(
            {
                "PreRunPodSandboxHook": (PodSandboxHookRequest, self._run_sandbox),
                "PostStopPodSandboxHook": (PodSandboxHookRequest, self._stop_sandbox),
                "PreCreateContainerHook": (ContainerResourceHookRequest, self._create_container),
                "PreStartContainerHook": (ContainerResourceHookRequest, _unchanged),
                "PostStartContainerHook": (ContainerResourceHookRequest, _unchanged),
                "PreUpdateContainerResourcesHook": (
                    ContainerResourceHookRequest,
                    self._update_container,
                ),
                "PostStopContainerHook": (ContainerResourceHookRequest, _unchanged),
            }
        )

    def _run_sandbox(self, request: PodSandboxHookRequest) -> PodSandboxHookResponse:
        limits = self._hooks.run_sandbox(_pod_of_sandbox(request))
        return replace(_unchanged_pod(request), resources=_merged(request.resources, limits))

    def _stop_sandbox(self, request: PodSandboxHookRequest) -> PodSandboxHookResponse:
        self._hooks.remove_sandbox(_pod_of_sandbox(request))
        return _unchanged_pod(request)

    def _create_container(
        self, request: ContainerResourceHookRequest
    ) -> ContainerResourceHookResponse:
        adjustment = self._hooks.create_container(_pod(request), _container(request))
        return replace(
            _unchanged(request),
            container_annotations={**request.container_annotations, **adjustment.annotations},
            container_resources=_merged(request.container_resources, adjustment.resources),
            container_envs={**request.container_envs, **adjustment.env},
        )

    def _update_container(
        self, request: ContainerResourceHookRequest
    ) -> ContainerResourceHookResponse:
        limits = self._hooks.update_container(_pod(request), _container(request))
        resources = _merged(request.container_resources, limits)
        return replace(_unchanged(request), container_resources=resources)


def _unchanged(request: ContainerResourceHookRequest) -> ContainerResourceHookResponse:
    return ContainerResourceHookResponse(
        container_annotations=request.container_annotations,
        container_resources=request.container_resources,
        pod_cgroup_parent=request.pod_cgroup_parent,
        container_envs=request.container_envs,
    )


def _unchanged_pod(request: PodSandboxHookRequest) -> PodSandboxHookResponse:
    return PodSandboxHookResponse(
        labels=request.labels,
        annotations=request.annotations,
        cgroup_parent=request.cgroup_parent,
        resources=request.resources,
    )


def _merged(requested: HookResources | None, limits: LinuxResources) -> HookResources | None:
    """Return the requested limits with ours on top; 0 means no limit in this protocol."""
    if limits == LinuxResources():
        return requested
    merged = requested or HookResources()
    if limits.cpu_shares is not None:
        merged = replace(merged, cpu_shares=limits.cpu_shares)
    if limits.cpu_quota_us is not None:
        merged = replace(merged, cpu_quota=limits.cpu_quota_us, cpu_period=CFS_PERIOD_US)
    if limits.cpuset_cpus is not None:
        merged = replace(merged, cpuset_cpus=limits.cpuset_cpus)
    if limits.memory_limit_bytes is not None and limits.memory_limit_bytes > 0:
        merged = replace(merged, memory_limit_in_bytes=limits.memory_limit_bytes)
    return merged


def _pod_of_sandbox(request: PodSandboxHookRequest) -> StartingPod:
    meta = request.pod_meta or HookPodMetadata()
    return StartingPod(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        labels=request.labels,
        annotations=request.annotations,
        cgroup_parent=request.cgroup_parent,
    )


def _pod(request: ContainerResourceHookRequest) -> StartingPod:
    meta = request.pod_meta or HookPodMetadata()
    return StartingPod(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        labels=request.pod_labels,
        annotations=request.pod_annotations,
        cgroup_parent=request.pod_cgroup_parent,
    )


def _container(request: ContainerResourceHookRequest) -> StartingContainer:
    meta = request.container_meta or HookContainerMetadata()
    requested = request.container_resources or HookResources()
    quota = requested.cpu_quota
    if quota > 0 and requested.cpu_period:
        quota = quota * CFS_PERIOD_US // requested.cpu_period
    return StartingContainer(
        name=meta.name,
        id=meta.id or _NO_ID_YET,
        env=request.container_envs,
        limits=LinuxResources(cpu_quota_us=quota or None, cpu_shares=requested.cpu_shares or None),
    )
