"""PodLifeTime: evicts pods by age, state, condition or exit code, the oldest first.

Source: kubernetes-sigs/descheduler pkg/framework/plugins/podlifetime.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from koordinator.api.kubescheduler.structs import ConfigStruct, Seconds
from koordinator.api.meta import Condition, Int32
from koordinator.api.node import Node
from koordinator.api.pod import ContainerStatus, Pod
from koordinator.descheduler.candidates import (
    CandidateFilter,
    ScopedPluginArgs,
    scoped_candidates,
)
from koordinator.descheduler.configuration import field_error
from koordinator.descheduler.contract import DeschedulerPluginSpec, Handle
from koordinator.foundation.clock import to_epoch_s
from koordinator.foundation.lazy_dataclass import dataclass

_STATES: Final = (
    "Completed",
    "ContainerCannotRun",
    "ContainerCreating",
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "CreateContainerError",
    "DeadlineExceeded",
    "ErrImagePull",
    "Error",
    "Evicted",
    "Failed",
    "ImagePullBackOff",
    "InvalidImageName",
    "NodeAffinity",
    "NodeLost",
    "OOMKilled",
    "Pending",
    "PodInitializing",
    "Running",
    "Shutdown",
    "StartError",
    "Succeeded",
    "UnexpectedAdmissionError",
    "Unknown",
)


class OwnerKinds(ConfigStruct, frozen=True, kw_only=True):
    """Included or excluded kinds of owners."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


class PodConditionFilter(ConfigStruct, frozen=True, kw_only=True):
    """Filter of pod conditions; empty fields match everything."""

    type: str = ""  # type of the condition
    status: str = ""  # status of the condition
    reason: str = ""  # reason of the condition
    min_time_since_last_transition_seconds: Seconds | None = None  # least age of the condition

    def matches(self, condition: Condition, now_s: float) -> bool:
        """Return whether the filter matches a condition."""
        fields = (
            (self.type, condition.type),
            (self.status, condition.status),
            (self.reason, condition.reason),
        )
        if any(text and text != other for text, other in fields):
            return False
        if self.min_time_since_last_transition_seconds is None:
            return True
        if condition.last_transition_time is None:
            return False
        idle_s = now_s - to_epoch_s(condition.last_transition_time)
        return idle_s >= 0 and int(idle_s) >= self.min_time_since_last_transition_seconds


class PodLifeTimeArgs(ScopedPluginArgs, frozen=True, kw_only=True):
    """Criteria of pods to evict; all criteria that are set must match."""

    owner_kinds: OwnerKinds | None = None  # kinds of owner of the pods
    max_pod_life_time_seconds: Seconds | None = None  # age from which pods are evicted
    states: tuple[str, ...] = ()  # phases, or reasons of the pod or its containers; empty means all
    conditions: tuple[PodConditionFilter, ...] = ()  # conditions; a pod must have one
    exit_codes: tuple[Int32, ...] = ()  # exit codes; a container must have one
    including_init_containers: bool = False
    including_ephemeral_containers: bool = False

    def validate(self) -> None:
        super().validate()
        kinds = self.owner_kinds
        if kinds is not None and kinds.include and kinds.exclude:
            value = {"include": list(kinds.include), "exclude": list(kinds.exclude)}
            message = "only one of Include/Exclude ownerKinds can be set"
            raise field_error("ownerKinds", value, message)
        for index, state in enumerate(self.states):
            if state not in _STATES:
                message = f"states must be one of {', '.join(_STATES)}"
                raise field_error(f"states[{index}]", state, message)
        for index, condition in enumerate(self.conditions):
            if condition == PodConditionFilter():
                message = (
                    "at least one of type, status, reason, or "
                    "minTimeSinceLastTransitionSeconds must be set"
                )
                raise field_error(f"conditions[{index}]", {}, message)
        has_lifetime = self.max_pod_life_time_seconds is not None
        if not (has_lifetime or self.states or self.conditions or self.exit_codes):
            message = (
                "at least one filtering criterion must be specified "
                "(maxPodLifeTimeSeconds, states, conditions, or exitCodes)"
            )
            raise field_error("maxPodLifeTimeSeconds", None, message)


@dataclass(frozen=True, slots=True)
class PodLifeTime:
    """Plugin that evicts matching pods in all phases."""

    args: PodLifeTimeArgs
    handle: Handle
    candidates: CandidateFilter

    def deschedule(self, nodes: Sequence[Node]) -> None:
        expired = [
            pod
            for node in nodes
            for pod in self.handle.view.pods_on(node.metadata.name)
            if self._matches(pod) and self.candidates.is_candidate(pod)
        ]
        expired.sort(key=lambda pod: to_epoch_s(pod.metadata.creation_timestamp))
        for pod in expired:
            self.handle.evictor.evict(pod)

    def _matches(self, pod: Pod) -> bool:
        args, now_s = self.args, self.handle.date_s()
        if args.max_pod_life_time_seconds is not None:
            age_s = now_s - to_epoch_s(pod.metadata.creation_timestamp, now_s)
            if age_s < 0 or int(age_s) <= args.max_pod_life_time_seconds:
                return False
        if args.states and not self._is_in_state(pod):
            return False
        if args.owner_kinds is not None and not _is_owned(pod, args.owner_kinds):
            return False
        if args.conditions and not any(
            each.matches(condition, now_s)
            for each in args.conditions
            for condition in pod.status.conditions
        ):
            return False
        return not args.exit_codes or self._has_exit_code(pod)

    def _is_in_state(self, pod: Pod) -> bool:
        status, states = pod.status, self.args.states
        if status.phase in states or status.reason in states:
            return True
        return any(
            reason in states
            for each in self._statuses(pod, ephemeral=self.args.including_ephemeral_containers)
            for reason in each.state.reasons
        )

    def _has_exit_code(self, pod: Pod) -> bool:
        return any(
            each.state.terminated is not None
            and each.state.terminated.exit_code in self.args.exit_codes
            for each in self._statuses(pod, ephemeral=False)
        )

    def _statuses(self, pod: Pod, *, ephemeral: bool) -> Iterable[ContainerStatus]:
        yield from pod.status.container_statuses
        if self.args.including_init_containers:
            yield from pod.status.init_container_statuses
        if ephemeral:
            yield from pod.status.ephemeral_container_statuses


def build_pod_life_time(args: PodLifeTimeArgs, handle: Handle) -> PodLifeTime:
    """Build the plugin."""
    return PodLifeTime(args, handle, scoped_candidates(handle, args))


def _is_owned(pod: Pod, kinds: OwnerKinds) -> bool:
    owners = {owner.kind for owner in pod.metadata.owner_references}
    if kinds.include:
        return not owners.isdisjoint(kinds.include)
    return owners.isdisjoint(kinds.exclude)


POD_LIFE_TIME = DeschedulerPluginSpec("PodLifeTime", PodLifeTimeArgs, build_pod_life_time)
