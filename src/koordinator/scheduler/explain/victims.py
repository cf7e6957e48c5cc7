"""Pods that could end to make room: not those of the same workload, and not beyond budgets."""

from collections.abc import Iterator, Sequence

from koordinator.api.pod import Pod
from koordinator.api.policy import PodDisruptionBudget
from koordinator.domain.reserve_pod import spoken_name
from koordinator.scheduler.explain.question import Question
from koordinator.scheduler.preemption import covers
from koordinator.scheduler.snapshot import PlacedPod

TEMPLATE_HASH = "pod-template-hash"
NAMED = 3  # pods of a budget

Workload = tuple[str, str, str, str]  # namespace, API group, kind, name


def candidates(asked: Question, row: int) -> Iterator[PlacedPod]:
    """Yield the pods on a node whose end would not set the pod's own workload or gang back."""
    own, members = workload_of(asked.pod), _members(asked)
    for key, placed in asked.state.pods.on_row[row].items():
        is_in_thought_only = key in asked.state.unbound
        is_replica = own is not None and workload_of(placed.pod) == own
        if not (is_in_thought_only or is_replica or key in members):
            yield placed


def workload_of(pod: Pod) -> Workload | None:
    """Return what a pod is a replica of; the Deployment where its ReplicaSet is of one."""
    meta = pod.metadata
    owner = next((each for each in meta.owner_references if each.controller), None)
    if owner is None:
        return None
    group, _, _ = owner.api_version.rpartition("/")
    template = meta.labels.get(TEMPLATE_HASH, "")
    if owner.kind == "ReplicaSet" and template and owner.name.endswith(f"-{template}"):
        return meta.namespace, group, "Deployment", owner.name.removesuffix(f"-{template}")
    return meta.namespace, group, owner.kind, owner.name


def budgets_against(asked: Question, pods: Sequence[PlacedPod]) -> str:
    """Return which disruption budgets allow fewer evictions now than these pods are."""
    said = []
    for budget in sorted(asked.state.objects.all(PodDisruptionBudget), key=lambda one: one.key):
        held = [
            placed
            for placed in pods
            if covers(budget, placed.pod)
            and placed.pod.metadata.name not in budget.status.disrupted_pods
        ]
        allowed = max(budget.status.disruptions_allowed, 0)
        if len(held) > allowed:
            many = f"only {allowed} eviction{'s' * (allowed > 1)}" if allowed else "no eviction"
            names = ", ".join(spoken_name(placed.pod) for placed in held[:NAMED])
            more = f" and {len(held) - NAMED} more" if len(held) > NAMED else ""
            said.append(f"PodDisruptionBudget {budget.key} allows {many} of {names}{more} now")
    return " and ".join(said)


def _members(asked: Question) -> frozenset[str]:
    """Return the keys of the members of the pod's gang."""
    gangs = (active.plugin.gangs.gang_of(asked.pod) for active in asked.profile.gangs)
    return frozenset(key for gang in gangs if gang is not None for key in gang.members)
