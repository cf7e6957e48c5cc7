"""NRI plugin of the agent: messages of NRI, answered by the hooks.

Source: koordinator pkg/koordlet/runtimehooks/nri/server.go; pkg/koordlet/runtimehooks/protocol.
"""

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import yaml

from koordinator.domain.cgroups.files import CFS_PERIOD_US
from koordinator.host.nri.messages import (
    ConfigureRequest,
    ConfigureResponse,
    CreateContainerRequest,
    CreateContainerResponse,
    NriAdjustment,
    NriAdjustmentLinux,
    NriContainer,
    NriCpu,
    NriDevice,
    NriDeviceRule,
    NriEmpty,
    NriEvent,
    NriMemory,
    NriMount,
    NriPod,
    NriResources,
    NriUpdate,
    NriUpdateLinux,
    NriVariable,
    StateChangeEvent,
    SynchronizeRequest,
    SynchronizeResponse,
    UpdateContainerRequest,
    UpdateContainerResponse,
)
from koordinator.host.nri.session import NriCall, NriRefusalError
from koordinator.koordlet.adjustments import ContainerAdjustment, LinuxResources
from koordinator.koordlet.runtime_hooks.outcomes import StartingContainer, StartingPod
from koordinator.koordlet.runtime_hooks.runtime_hooks import HookError, RuntimeHooks

log = logging.getLogger(__name__)

EVENTS: Final = (
    NriEvent.RUN_POD_SANDBOX,
    NriEvent.REMOVE_POD_SANDBOX,
    NriEvent.CREATE_CONTAINER,
    NriEvent.UPDATE_CONTAINER,
)
#: Spelling of events in the plugin's configuration.
_EVENT_NAMES: Final[Mapping[str, NriEvent]] = MappingProxyType(
    {event.name.replace("_", "").lower(): event for event in NriEvent}
)
_NO_CHANGE: Final[Mapping[str, object]] = MappingProxyType(
    {
        "Configure": ConfigureResponse(events=sum(event.bit for event in EVENTS)),
        "Synchronize": SynchronizeResponse(),
        "CreateContainer": CreateContainerResponse(),
        "UpdateContainer": UpdateContainerResponse(),
        "StateChange": NriEmpty(),
        "Shutdown": NriEmpty(),
    }
)
_UNLIMITED = -1
_RUNNING: Final = 3  # CONTAINER_RUNNING of NRI's ContainerState


class NriHookPlugin:
    """Handler of NRI calls; thread-safe."""

    def __init__(self, hooks: RuntimeHooks) -> None:
        self._hooks = hooks
        self._sandboxes: dict[str, NriPod] = {}  # by id, during a synchronization in parts

    @property
    def is_ready(self) -> bool:
        """Whether the hooks have state to answer from; registering earlier has no use."""
        return self._hooks.is_published

    def answer(self, call: NriCall) -> object:
        """Return the response.  Raises NriRefusalError if the pod or container must not start."""
        try:
            return self._answer(call)
        except HookError as error:
            raise NriRefusalError(str(error)) from error

    def give_up(self, call: NriCall, why: str) -> object:
        """Report a call that can't be answered, and return a response without changes.

        Raises NriRefusalError if the pod or container must not start.
        """
        pod = getattr(call.request, "pod", None)
        container = getattr(call.request, "container", None)
        try:
            self._hooks.fail(
                _pod(pod) if isinstance(pod, NriPod) else None,
                container.name if isinstance(container, NriContainer) else "",
                call.method,
                why,
            )
        except HookError as error:
            raise NriRefusalError(str(error)) from error
        return _no_change(call)

    def _check_running(self, request: SynchronizeRequest) -> None:
        """Report running containers that were created while the hooks were unavailable.

        The reconciler sets their cgroups; their environment and mounts can no longer change.
        """
        self._sandboxes |= {pod.id: pod for pod in request.pods}
        for container in request.containers:
            pod = self._sandboxes.get(container.pod_sandbox_id)
            if pod is not None and container.state == _RUNNING:
                self._hooks.check_running(_pod(pod), _container(container))
        if not request.more:
            self._sandboxes = {}

    def _answer(self, call: NriCall) -> object:
        match call.request:
            case ConfigureRequest() as request:
                return ConfigureResponse(events=_mask(request))
            case SynchronizeRequest() as request:
                self._check_running(request)
                return SynchronizeResponse(more=request.more)
            case CreateContainerRequest(pod=NriPod() as pod, container=NriContainer() as container):
                adjustment = self._hooks.create_container(_pod(pod), _container(container))
                return CreateContainerResponse(adjust=_adjustment(adjustment))
            case (
                UpdateContainerRequest(
                    pod=NriPod() as pod, container=NriContainer() as container
                ) as request
            ):
                limits = self._hooks.update_container(
                    _pod(pod), _container(container, request.linux_resources)
                )
                return _update(container.id, limits)
            case StateChangeEvent(event=event, pod=NriPod() as pod):
                if event == NriEvent.RUN_POD_SANDBOX:
                    self._hooks.run_sandbox(_pod(pod))
                elif event == NriEvent.REMOVE_POD_SANDBOX:
                    self._hooks.remove_sandbox(_pod(pod))
        return _no_change(call)


def _no_change(call: NriCall) -> object:
    """Return a response that changes nothing."""
    return _NO_CHANGE.get(call.method, NriEmpty())


def _mask(request: ConfigureRequest) -> int:
    """Return the subscribed events: from the runtime's plugin configuration, or the default."""
    chosen = set(EVENTS)
    try:
        stated = yaml.safe_load(request.config) if request.config else None
    except yaml.YAMLError as error:
        log.warning("configuration of the plugin ignored", extra={"error": str(error)})
        stated = None
    names = stated.get("events") if isinstance(stated, dict) else None
    if isinstance(names, list):
        named = {_EVENT_NAMES.get(str(name).replace("_", "").lower()) for name in names}
        chosen = {event for event in named if event is not None}
    return sum(event.bit for event in chosen)


def _pod(pod: NriPod) -> StartingPod:
    return StartingPod(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        labels=pod.labels,
        annotations=pod.annotations,
        cgroup_parent=pod.linux.cgroup_parent if pod.linux is not None else "",
    )


def _container(container: NriContainer, update: NriResources | None = None) -> StartingContainer:
    pairs = (text.partition("=") for text in container.env)
    limits = update or (container.linux.resources if container.linux is not None else None)
    return StartingContainer(
        name=container.name,
        id=container.id,
        env={name: value for name, _, value in pairs if value},
        limits=_limits(limits),
    )


def _limits(resources: NriResources | None) -> LinuxResources:
    cpu = resources.cpu if resources is not None else None
    if cpu is None:
        return LinuxResources()
    quota = cpu.quota
    if quota is not None and quota > 0 and cpu.period:
        quota = quota * CFS_PERIOD_US // cpu.period
    return LinuxResources(cpu_shares=cpu.shares, cpu_quota_us=quota)


def _resources(limits: LinuxResources, rules: tuple[NriDeviceRule, ...] = ()) -> NriResources:
    quota = limits.cpu_quota_us
    period = CFS_PERIOD_US if quota is not None and quota != _UNLIMITED else None
    cpu = NriCpu(
        shares=limits.cpu_shares, quota=quota, period=period, cpus=limits.cpuset_cpus or ""
    )
    bytes_ = limits.memory_limit_bytes
    return NriResources(
        cpu=cpu if cpu != NriCpu() else None,
        memory=NriMemory(limit=bytes_) if bytes_ is not None else None,
        rdt_class=limits.rdt_class,
        devices=rules,
    )


def _adjustment(adjustment: ContainerAdjustment) -> NriAdjustment:
    devices = tuple(
        NriDevice(path=it.path, type=it.kind, major=it.major, minor=it.minor, file_mode=it.mode)
        for it in adjustment.devices
    )
    rules = tuple(
        NriDeviceRule(allow=True, type=it.kind, major=it.major, minor=it.minor, access="rwm")
        for it in adjustment.devices
    )
    return NriAdjustment(
        annotations=adjustment.annotations,
        mounts=tuple(
            NriMount(destination=it.destination, type=it.kind, source=it.source, options=it.options)
            for it in adjustment.mounts
        ),
        env=tuple(NriVariable(key=key, value=value) for key, value in adjustment.env.items()),
        linux=NriAdjustmentLinux(
            devices=devices, resources=_resources(adjustment.resources, rules)
        ),
    )


def _update(container: str, limits: LinuxResources) -> UpdateContainerResponse:
    if limits == LinuxResources():
        return UpdateContainerResponse()
    update = NriUpdate(container_id=container, linux=NriUpdateLinux(resources=_resources(limits)))
    return UpdateContainerResponse(update=(update,))
