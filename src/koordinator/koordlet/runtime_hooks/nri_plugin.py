"""What the agent says as a plugin of the runtime: NRI's messages here, hooks behind.

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
from koordinator.koordlet.runtime_hooks.runtime_hooks import HookError, RuntimeHooks
from koordinator.koordlet.runtime_hooks.starting_containers import StartingContainer, StartingPod

log = logging.getLogger(__name__)

EVENTS: Final = (
    NriEvent.RUN_POD_SANDBOX,
    NriEvent.REMOVE_POD_SANDBOX,
    NriEvent.CREATE_CONTAINER,
    NriEvent.UPDATE_CONTAINER,
)
#: As ``events`` of the plugin's configuration may name them.
_EVENT_NAMES: Final[Mapping[str, NriEvent]] = MappingProxyType(
    {event.name.replace("_", "").lower(): event for event in NriEvent}
)
_EMPTY_ANSWERS: Final[Mapping[str, object]] = MappingProxyType(
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
    """Answers calls; asked by one thread at a time, or by several."""

    def __init__(self, hooks: RuntimeHooks) -> None:
        self._hooks = hooks
        self._sandboxes: dict[str, NriPod] = {}  # until all of a synchronization have come

    @property
    def is_ready(self) -> bool:
        """Whether there is anything to answer from: only then is it worth registering."""
        return self._hooks.is_published

    def answer(self, call: NriCall) -> object:
        """Return the answer to a call.  Raises NriRefusalError where nothing may start."""
        try:
            return self._answer(call)
        except HookError as error:
            raise NriRefusalError(str(error)) from error

    def give_up(self, call: NriCall, why: str) -> object:
        """Tell that a call can't be answered, and return an answer that changes nothing.

        Raises NriRefusalError where nothing may start.
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
        return _nothing(call)

    def _look_at_running(self, request: SynchronizeRequest) -> None:
        """Find running containers that were created while no hook could be asked.

        Their cgroups are the reconciler's; environment and mounts can't be changed any more.
        """
        self._sandboxes |= {pod.id: pod for pod in request.pods}
        for made in request.containers:
            pod = self._sandboxes.get(made.pod_sandbox_id)
            if pod is not None and made.state == _RUNNING:
                self._hooks.look_at_running(_pod(pod), _container(made))
        if not request.more:
            self._sandboxes = {}

    def _answer(self, call: NriCall) -> object:
        match call.request:
            case ConfigureRequest() as request:
                return ConfigureResponse(events=_mask(request))
            case SynchronizeRequest() as request:
                self._look_at_running(request)
                return SynchronizeResponse(more=request.more)
            case CreateContainerRequest(pod=NriPod() as pod, container=NriContainer() as made):
                adjustment = self._hooks.create_container(_pod(pod), _container(made))
                return CreateContainerResponse(adjust=_adjustment(adjustment))
            case UpdateContainerRequest(pod=NriPod() as pod, container=NriContainer() as made) as r:
                limits = self._hooks.update_container(
                    _pod(pod), _container(made, r.linux_resources)
                )
                return _update(made.id, limits)
            case StateChangeEvent(event=event, pod=NriPod() as pod):
                if event == NriEvent.RUN_POD_SANDBOX:
                    self._hooks.run_sandbox(_pod(pod))
                elif event == NriEvent.REMOVE_POD_SANDBOX:
                    self._hooks.remove_sandbox(_pod(pod))
        return _nothing(call)


def _nothing(call: NriCall) -> object:
    """Return an answer that changes nothing."""
    return _EMPTY_ANSWERS.get(call.method, NriEmpty())


def _mask(request: ConfigureRequest) -> int:
    """Return the events to be told of: those of the runtime's configuration of us, else ours."""
    chosen = set(EVENTS)
    try:
        stated = yaml.safe_load(request.config) if request.config else None
    except yaml.YAMLError as error:
        log.warning("configuration of the plugin not read", extra={"error": str(error)})
        stated = None
    names = stated.get("events") if isinstance(stated, dict) else None
    if isinstance(names, list):
        found = {_EVENT_NAMES.get(str(name).replace("_", "").lower()) for name in names}
        chosen = {event for event in found if event is not None}
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


def _container(made: NriContainer, asked: NriResources | None = None) -> StartingContainer:
    pairs = (text.partition("=") for text in made.env)
    limits = asked or (made.linux.resources if made.linux is not None else None)
    return StartingContainer(
        name=made.name,
        id=made.id,
        env={name: value for name, _, value in pairs if value},
        limits=_limits(limits),
    )


def _limits(found: NriResources | None) -> LinuxResources:
    cpu = found.cpu if found is not None else None
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


def _adjustment(found: ContainerAdjustment) -> NriAdjustment:
    devices = tuple(
        NriDevice(path=it.path, type=it.kind, major=it.major, minor=it.minor, file_mode=it.mode)
        for it in found.devices
    )
    rules = tuple(
        NriDeviceRule(allow=True, type=it.kind, major=it.major, minor=it.minor, access="rwm")
        for it in found.devices
    )
    return NriAdjustment(
        annotations=found.annotations,
        mounts=tuple(
            NriMount(destination=it.destination, type=it.kind, source=it.source, options=it.options)
            for it in found.mounts
        ),
        env=tuple(NriVariable(key=key, value=value) for key, value in found.env.items()),
        linux=NriAdjustmentLinux(devices=devices, resources=_resources(found.resources, rules)),
    )


def _update(container: str, limits: LinuxResources) -> UpdateContainerResponse:
    if limits == LinuxResources():
        return UpdateContainerResponse()
    update = NriUpdate(container_id=container, linux=NriUpdateLinux(resources=_resources(limits)))
    return UpdateContainerResponse(update=(update,))
