"""RemoveFailedPods: evicts failed pods, optionally only with certain reasons or exit codes.

Source: kubernetes-sigs/descheduler pkg/framework/plugins/removefailedpods.
"""

from collections.abc import Sequence

from koordinator.api.kubescheduler.structs import Seconds
from koordinator.api.meta import Int32
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.descheduler.candidates import (
    CandidateFilter,
    ScopedPluginArgs,
    scoped_candidates,
)
from koordinator.descheduler.contract import DeschedulerPluginSpec, Handle
from koordinator.foundation.clock import to_epoch_s
from koordinator.foundation.lazy_dataclass import dataclass


class RemoveFailedPodsArgs(ScopedPluginArgs, frozen=True, kw_only=True):
    """Criteria of failed pods: age, reasons, exit codes and owners."""

    exclude_owner_kinds: tuple[str, ...] = ()
    min_pod_lifetime_seconds: Seconds = 3600  # least age of the pods
    reasons: tuple[str, ...] = ()  # reasons of the failure; empty means all
    exit_codes: tuple[Int32, ...] = ()  # exit codes of the containers; empty means all
    including_init_containers: bool = False


@dataclass(frozen=True, slots=True)
class RemoveFailedPods:
    """Plugin that evicts failed pods."""

    args: RemoveFailedPodsArgs
    handle: Handle
    candidates: CandidateFilter

    def deschedule(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            failed = [
                pod
                for pod in self.handle.view.pods_on(node.metadata.name)
                if pod.status.phase == "Failed"
                and self._matches(pod)
                and self.candidates.is_candidate(pod)
            ]
            for pod in failed:
                self.handle.evictor.evict(pod)

    def _matches(self, pod: Pod) -> bool:
        args, now_s = self.args, self.handle.date_s()
        age_s = now_s - to_epoch_s(pod.metadata.creation_timestamp, now_s)
        if int(age_s) < args.min_pod_lifetime_seconds:
            return False
        if any(owner.kind in args.exclude_owner_kinds for owner in pod.metadata.owner_references):
            return False
        statuses = list(pod.status.container_statuses)
        if args.including_init_containers:
            statuses += pod.status.init_container_statuses
        if args.reasons:
            reasons = {reason for each in statuses for reason in each.state.reasons}
            reasons.update(filter(None, (pod.status.reason,)))
            if reasons.isdisjoint(args.reasons):
                return False
        ended = [each.state.terminated for each in statuses if each.state.terminated is not None]
        return not args.exit_codes or any(each.exit_code in args.exit_codes for each in ended)


def build_remove_failed_pods(args: RemoveFailedPodsArgs, handle: Handle) -> RemoveFailedPods:
    """Build the plugin."""
    return RemoveFailedPods(args, handle, scoped_candidates(handle, args))


REMOVE_FAILED_PODS = DeschedulerPluginSpec(
    "RemoveFailedPods", RemoveFailedPodsArgs, build_remove_failed_pods
)
