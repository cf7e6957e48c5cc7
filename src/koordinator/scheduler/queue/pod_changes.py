"""The meaning of an update for a pod that has no node yet.

Source: kubernetes pkg/scheduler/framework/events.go ``PodSchedulingPropertiesChange``.
"""

import msgspec

from koordinator.api.pod import Pod, PodSpec
from koordinator.domain.pod_requests import pod_requests
from koordinator.scheduler.contract import Action


def pod_changes(old: Pod, new: Pod) -> Action:
    """Return all that changed; nothing when only bookkeeping did."""
    changes = Action(0)
    if old.metadata.labels != new.metadata.labels:
        changes |= Action.UPDATE_LABELS
    if old.metadata.annotations != new.metadata.annotations:
        changes |= Action.UPDATE_ANNOTATIONS
    if old.status.resource_claim_statuses != new.status.resource_claim_statuses:
        changes |= Action.UPDATE_GENERATED_CLAIMS
    return changes if old.spec == new.spec else changes | _spec_changes(old.spec, new.spec)


def _spec_changes(old: PodSpec, new: PodSpec) -> Action:
    changes = Action(0)
    if old.tolerations != new.tolerations:
        changes |= Action.UPDATE_TOLERATIONS
    if old.scheduling_gates and not new.scheduling_gates:
        changes |= Action.UPDATE_GATES_ELIMINATED
    after = pod_requests(new)
    if any(amount > after.get(name, 0) for name, amount in pod_requests(old).items()):
        changes |= Action.UPDATE_SCALE_DOWN
    rest = msgspec.structs.replace(
        old, tolerations=new.tolerations, scheduling_gates=new.scheduling_gates
    )
    return changes if rest == new else changes | Action.UPDATE_OTHER
