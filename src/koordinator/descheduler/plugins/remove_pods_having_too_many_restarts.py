"""RemovePodsHavingTooManyRestarts: evicts pods whose containers restart too often.

Source: kubernetes-sigs/descheduler pkg/framework/plugins/removepodshavingtoomanyrestarts.
"""

from collections.abc import Sequence

from koordinator.api.meta import Int32
from koordinator.api.node import Node
from koordinator.api.pod import ContainerStatus, Pod
from koordinator.descheduler.candidates import (
    CandidateFilter,
    ScopedPluginArgs,
    scoped_candidates,
)
from koordinator.descheduler.configuration import field_error
from koordinator.descheduler.contract import DeschedulerPluginSpec, Handle
from koordinator.foundation.lazy_dataclass import dataclass

_STATES = ("CrashLoopBackOff", "Running")


class RemovePodsHavingTooManyRestartsArgs(ScopedPluginArgs, frozen=True, kw_only=True):
    """Threshold of the restarts of all containers of a pod."""

    pod_restart_threshold: Int32 = 0  # number of restarts from which pods are evicted
    including_init_containers: bool = False
    states: tuple[str, ...] = ()  # phases, or reasons of waiting containers; empty means all

    def validate(self) -> None:
        super().validate()
        if self.pod_restart_threshold < 1:
            message = "invalid PodsHavingTooManyRestarts threshold; must be at least 1"
            raise field_error("podRestartThreshold", self.pod_restart_threshold, message)
        for index, state in enumerate(self.states):
            if state not in _STATES:
                message = f"states must be one of {', '.join(_STATES)}"
                raise field_error(f"states[{index}]", state, message)


@dataclass(frozen=True, slots=True)
class RemovePodsHavingTooManyRestarts:
    """Plugin that evicts the pods of a node with the most restarts first."""

    args: RemovePodsHavingTooManyRestartsArgs
    handle: Handle
    candidates: CandidateFilter

    def deschedule(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            violating = [
                pod
                for pod in self.handle.view.pods_on(node.metadata.name)
                if self._restarts(pod) >= self.args.pod_restart_threshold
                and self._is_in_state(pod)
                and self.candidates.is_candidate(pod)
            ]
            for pod in sorted(violating, key=self._restarts, reverse=True):
                self.handle.evictor.evict(pod)

    def _restarts(self, pod: Pod) -> int:
        return sum(each.restart_count for each in self._statuses(pod))

    def _is_in_state(self, pod: Pod) -> bool:
        states = self.args.states
        if not states or pod.status.phase in states:
            return True
        waiting = (each.state.waiting for each in self._statuses(pod))
        return any(each is not None and each.reason in states for each in waiting)

    def _statuses(self, pod: Pod) -> Sequence[ContainerStatus]:
        status = pod.status
        if not self.args.including_init_containers:
            return status.container_statuses
        return (*status.container_statuses, *status.init_container_statuses)


def build_remove_pods_having_too_many_restarts(
    args: RemovePodsHavingTooManyRestartsArgs, handle: Handle
) -> RemovePodsHavingTooManyRestarts:
    """Build the plugin."""
    return RemovePodsHavingTooManyRestarts(args, handle, scoped_candidates(handle, args))


REMOVE_PODS_HAVING_TOO_MANY_RESTARTS = DeschedulerPluginSpec(
    "RemovePodsHavingTooManyRestarts",
    RemovePodsHavingTooManyRestartsArgs,
    build_remove_pods_having_too_many_restarts,
)
