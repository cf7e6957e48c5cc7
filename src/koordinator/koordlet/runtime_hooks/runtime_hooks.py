"""Hooks of the container runtime, answered from the state that the loop published last.

Source: koordinator pkg/koordlet/runtimehooks/hooks/hooks.go (stages, policies), protocol/.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from enum import StrEnum
from typing import Final, Protocol, TypeVar

from koordinator.api.qos import QosClass
from koordinator.foundation.clock import Clock
from koordinator.foundation.cpu_list import parse_cpu_list
from koordinator.foundation.errors import HostError, InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.host.port import Files, Roots
from koordinator.koordlet.adjustments import (
    ContainerAdjustment,
    FailurePolicy,
    LinuxResources,
    join_adjustments,
)
from koordinator.koordlet.cgroup_tree import CgroupTree
from koordinator.koordlet.executor.cgroup_writer import CgroupWriter, ResctrlWriter
from koordinator.koordlet.hooks.pod_hooks import CreationHook, PodHooks, limits_of
from koordinator.koordlet.intents import Intent, SetCgroup, SetResctrl
from koordinator.koordlet.qos.resctrl import (
    POD_GROUP_PREFIX,
    ResctrlFacts,
    plan_pod_resctrl,
    pod_group,
)
from koordinator.koordlet.runtime_hooks.outcomes import (
    HookFailure,
    HookOutcomes,
    HookWrites,
    StartingContainer,
    StartingPod,
    UnpreparedContainer,
    creation_of,
    pod_of,
)
from koordinator.koordlet.view.pods import ContainerCreation, PodView

ResultT = TypeVar("ResultT")

RESCTRL: Final = "Resctrl"
CPUSET: Final = "CPUSetAllocator"
_REMEMBERED_S: Final = 300.0  # longest time until the watch delivers a starting pod
_MOST_REMEMBERED: Final = 1024


class HookStage(StrEnum):
    """Stage at which the runtime calls."""

    PRE_RUN_POD_SANDBOX = "PreRunPodSandbox"
    PRE_CREATE_CONTAINER = "PreCreateContainer"
    PRE_UPDATE_CONTAINER = "PreUpdateContainerResources"
    PRE_REMOVE_POD_SANDBOX = "PreRemoveRunPodSandbox"


class HookError(HostError):
    """Failure of a hook under policy Fail: the pod or container must not start."""


class HookObserver(Protocol):
    """Observer of hook durations.

    Rule R8: ``app``, which implements it, is above the hooks.
    """

    def observe_hook(self, hook: str, stage: str, status: str, seconds: float) -> None: ...


@dataclass(frozen=True, slots=True)
class PublishedHooks:
    """Immutable state of the node for the threads.

    ``caches`` is None without resctrl; ``shares_classes`` is whether QoS classes have resctrl
    groups.
    """

    hooks: PodHooks
    caches: ResctrlFacts | None = None
    shares_classes: bool = False


@dataclass(slots=True)
class _Starting:
    """Starting pods that are not published yet, by folder: their CPUs are allocated."""

    pods: dict[str, tuple[PodView, float]] = field(default_factory=dict)


class RuntimeHooks:
    """Thread-safe hooks; before the first ``publish`` they change nothing.

    ``files`` must not be shared with the loop, because its open files belong to one thread.
    ``creation_hooks`` are called, by name, when a container is created.  ``expectations`` return
    the same adjustments for a running container, without side effects.
    """

    def __init__(
        self,
        clock: Clock,
        files: Files,
        roots: Roots,
        cgroups: CgroupTree,
        *,
        policy: FailurePolicy = FailurePolicy.IGNORE,
        creation_hooks: Mapping[str, CreationHook] | None = None,
        expectations: Mapping[str, CreationHook] | None = None,
        observer: HookObserver | None = None,
    ) -> None:
        self.outcomes = HookOutcomes()
        self._clock = clock
        self._cgroups = cgroups
        self._resctrl = ResctrlWriter(files, cgroups, roots.resctrl)
        self._policy = policy
        self._creation_hooks = creation_hooks or {}
        self._expectations = expectations or {}
        self._observer = observer
        self._published: PublishedHooks | None = None
        self._lock = threading.Lock()
        self._starting = _Starting()

    @property
    def is_published(self) -> bool:
        """Whether ``publish`` was called."""
        return self._published is not None

    def publish(self, published: PublishedHooks) -> None:
        """Replace the state from which the hooks answer."""
        known, now_s = published.hooks.pods, self._clock.now_s()
        self._published = published
        if not self._starting.pods:
            return
        with self._lock:
            self._starting.pods = {
                folder: entry
                for folder, entry in self._starting.pods.items()
                if folder not in known and now_s - entry[1] < _REMEMBERED_S
            }

    # -- stages ------------------------------------------------------------------------------

    def run_sandbox(self, starting: StartingPod) -> LinuxResources:
        """Write the settings of a pod's own cgroup, and return them.  Raises HookError."""
        stage = HookStage.PRE_RUN_POD_SANDBOX
        published = self._published
        pod = self._pod_view(published, starting, stage)
        if published is None or pod is None:
            return LinuxResources()
        self._remember(published, pod)
        intents = self._plan(published, pod, stage)
        own = [each for each in intents if isinstance(each, SetCgroup)
               and each.folder == pod.folder]  # fmt: skip
        self._write(own)
        self._attempt(
            RESCTRL, stage, pod, "", lambda: self._make_group(published, pod), default=None
        )
        return limits_of(own, pod.folder)

    def create_container(
        self, starting: StartingPod, container: StartingContainer
    ) -> ContainerAdjustment:
        """Return the changes to a new container.  Raises HookError."""
        stage = HookStage.PRE_CREATE_CONTAINER
        published = self._published
        creation = self._creation(published, starting, container, stage)
        if published is None or creation is None:
            return ContainerAdjustment()
        limits = self._limits(published, creation, stage)
        parts = [ContainerAdjustment(resources=limits)]
        for name, hook in self._creation_hooks.items():
            parts.append(
                self._attempt(
                    name,
                    stage,
                    creation.pod,
                    container.name,
                    lambda hook=hook: hook(creation),  # type: ignore[misc]
                    default=ContainerAdjustment(),
                )
            )
        return self._attempt(
            "all hooks",
            stage,
            creation.pod,
            container.name,
            lambda: join_adjustments(parts),
            default=parts[0],
        )

    def update_container(
        self, starting: StartingPod, container: StartingContainer
    ) -> LinuxResources:
        """Return the limits that stay in force when the kubelet updates a container.

        Raises HookError.
        """
        stage = HookStage.PRE_UPDATE_CONTAINER
        published = self._published
        creation = self._creation(published, starting, container, stage)
        if published is None or creation is None:
            return LinuxResources()
        return replace(self._limits(published, creation, stage), rdt_class=None)

    def check_running(self, starting: StartingPod, container: StartingContainer) -> None:
        """Report a running container that does not have the variables of a hook."""
        published = self._published
        if published is None or not self._expectations:
            return
        try:
            pod = pod_of(starting, published.hooks.pods, published.hooks.view.layout)
            plain = replace(container, env={})
            creation = creation_of(pod, plain, published.hooks.view.layout)
        except InputError:
            return
        for title, hook in self._expectations.items():
            try:
                wanted = hook(creation).env
            except (HostError, InputError):
                continue  # the hook would have failed at the creation as well
            env = container.env
            missing = [name for name, value in wanted.items() if not _has(env, name, value)]
            if missing:
                names = (starting.namespace, starting.name, starting.uid, container.name)
                self.outcomes.put(
                    UnpreparedContainer(title, *names, container.id, tuple(sorted(missing)))
                )

    def remove_sandbox(self, starting: StartingPod) -> None:
        """Forget a pod, and remove its resctrl group."""
        stage = HookStage.PRE_REMOVE_POD_SANDBOX
        published = self._published
        pod = self._pod_view(published, starting, stage)
        if published is None or pod is None:
            return
        with self._lock:
            self._starting.pods.pop(pod.folder, None)
        caches = published.caches
        group = f"{POD_GROUP_PREFIX}{pod.uid}"
        if RESCTRL in published.hooks.gates and caches is not None and group in caches.groups:
            self._resctrl.remove(group)

    def fail(self, starting: StartingPod | None, container: str, stage: str, error: str) -> None:
        """Report a call without a timely response.  Raises HookError."""
        self._report("all hooks", stage, starting, container, error)

    # -- helpers -----------------------------------------------------------------------------

    def _pod_view(
        self, published: PublishedHooks | None, starting: StartingPod, stage: HookStage
    ) -> PodView | None:
        if published is None:
            return None
        try:
            hooks = published.hooks
            pod = pod_of(starting, hooks.pods, hooks.view.layout)
        except InputError as error:
            self._report("all hooks", stage, starting, "", str(error))
            return None
        # An unpublished pod only claims its CPUs: CPUs of published pods are excluded.
        return pod if pod.folder in hooks.pods else replace(pod, others_cpus=hooks.bound_cpus)

    def _creation(
        self,
        published: PublishedHooks | None,
        starting: StartingPod,
        container: StartingContainer,
        stage: HookStage,
    ) -> ContainerCreation | None:
        pod = self._pod_view(published, starting, stage)
        if published is None or pod is None:
            return None
        try:
            return creation_of(pod, container, published.hooks.view.layout)
        except InputError as error:
            self._report("all hooks", stage, starting, container.name, str(error))
            return None

    def _plan(
        self, published: PublishedHooks, pod: PodView, stage: HookStage, container: str = ""
    ) -> list[Intent]:
        """Return the intents of the hooks; a failing hook contributes none."""
        intents: list[Intent] = []
        for name, hook in published.hooks.hooks(self._taken_cpus(pod)):
            planned: Iterable[Intent] = self._attempt(
                name,
                stage,
                pod,
                container,
                lambda hook=hook: list(hook(pod)),  # type: ignore[misc]
                default=(),
            )
            intents += planned
        return intents

    def _limits(
        self, published: PublishedHooks, creation: ContainerCreation, stage: HookStage
    ) -> LinuxResources:
        pod, container = creation.pod, creation.container
        intents = self._plan(published, pod, stage, container.name)
        limits = limits_of(intents, container.folder)
        if limits.cpuset_cpus is not None:
            cpus = limits.cpuset_cpus
            checked = self._attempt(
                CPUSET,
                stage,
                pod,
                container.name,
                lambda: self._allowed_cpus(published, pod, cpus),
                default=None,
            )
            limits = replace(limits, cpuset_cpus=checked)
        group = self._attempt(
            RESCTRL, stage, pod, container.name, lambda: self._group(published, pod), default=None
        )
        return limits if group is None else replace(limits, rdt_class=group)

    def _allowed_cpus(self, published: PublishedHooks, pod: PodView, cpus: str) -> str:
        """Return ``cpus``; raises InputError for a set that the kernel would reject."""
        requested = parse_cpu_list(cpus)
        existing = published.hooks.view.machine.all_cpus
        of_pod = self._cgroups.cpus(pod.folder)
        allowed = existing if of_pod is None else existing & of_pod
        if not requested or requested & ~allowed:
            raise InputError(f"CPUs {cpus} are not a subset of the machine's and the pod's CPUs")
        return cpus

    def _taken_cpus(self, pod: PodView) -> int:
        if not self._starting.pods:
            return 0
        with self._lock:
            others = [each for each, _ in self._starting.pods.values() if each.uid != pod.uid]
        mask = 0
        for other in others:
            mask |= other.bound_cpus
        return mask

    def _remember(self, published: PublishedHooks, pod: PodView) -> None:
        if pod.folder in published.hooks.pods or not pod.bound_cpus:
            return
        with self._lock:
            if len(self._starting.pods) < _MOST_REMEMBERED:
                self._starting.pods[pod.folder] = (pod, self._clock.now_s())

    def _write(self, intents: list[SetCgroup]) -> None:
        if intents:
            writes = CgroupWriter(self._cgroups).apply(intents, self._clock.now_s())
            if writes:
                self.outcomes.put(HookWrites(tuple(writes)))

    def _make_group(self, published: PublishedHooks, pod: PodView) -> None:
        caches = published.caches
        if RESCTRL not in published.hooks.gates or caches is None:
            return
        only_pod = replace(published.hooks.view, pods=(pod,), cgroups=self._cgroups)
        for intent in plan_pod_resctrl(only_pod, caches):
            if isinstance(intent, SetResctrl):
                for path, _, _, error in self._resctrl.apply(intent):
                    if error:
                        raise HostError(f"{path}: {error}")

    def _group(self, published: PublishedHooks, pod: PodView) -> str | None:
        """Return the existing resctrl group that the container starts in; None for the root."""
        if published.caches is None:
            return None
        own = pod_group(published.hooks.view, pod)
        if own is not None:
            return own if RESCTRL in published.hooks.gates and self._resctrl.has(own) else None
        qos = QosClass.LSR if pod.qos is QosClass.LSE else pod.qos
        return qos if published.shares_classes and self._resctrl.has(qos) else None

    def _attempt(
        self,
        hook: str,
        stage: HookStage,
        pod: PodView,
        container: str,
        work: Callable[[], ResultT],
        *,
        default: ResultT,
    ) -> ResultT:
        """Return the result of ``work``, or report its failure, which policy Fail raises."""
        began_s = self._clock.now_s()
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 -- reported
            self._observe(hook, stage, "failed", began_s)
            meta = pod.pod.metadata
            text = str(error) or type(error).__name__
            self._record(
                HookFailure(hook, stage, meta.namespace, meta.name, meta.uid, container, text)
            )
            return default
        self._observe(hook, stage, "success", began_s)
        return result

    def _report(
        self, hook: str, stage: str, starting: StartingPod | None, container: str, error: str
    ) -> None:
        if starting is None:
            names = ("", "", "")
        else:
            names = (starting.namespace, starting.name, starting.uid)
        self._record(HookFailure(hook, stage, *names, container, error))

    def _record(self, failure: HookFailure) -> None:
        is_fatal = self._policy is FailurePolicy.FAIL
        self.outcomes.put(replace(failure, is_fatal=is_fatal))
        if is_fatal:
            raise HookError(f"{failure.hook} at {failure.stage}: {failure.error}")

    def _observe(self, hook: str, stage: HookStage, status: str, began_s: float) -> None:
        if self._observer is not None:
            self._observer.observe_hook(hook, stage, status, self._clock.now_s() - began_s)


def _has(env: Mapping[str, str], name: str, value: str) -> bool:
    """Return whether a variable has a value, or contains it as in LD_PRELOAD."""
    return value == env.get(name) or value in env.get(name, "").split(":")
