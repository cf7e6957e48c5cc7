"""Pods that could end to free capacity: of other workloads, and within disruption budgets."""

from collections.abc import Iterator, Sequence

from koordinator.api.pod import Pod
from koordinator.api.policy import PodDisruptionBudget
from koordinator.domain.reserve_pod import display_name
from koordinator.scheduler.explain.question import Question
from koordinator.scheduler.preemption import covers
from koordinator.scheduler.snapshot import PlacedPod

TEMPLATE_HASH = "pod-template-hash"
NAMED = 3  # pods of a budget

Workload = tuple[str, str, str, str]  # namespace, API group, kind, name


def candidates(question: Question, row: int) -> Iterator[PlacedPod]:
    """Yield the pods on a node that are not of the pod's own workload or gang."""
    own, members = workload_of(question.pod), _members(question)
    for key, placed in question.state.pods.on_row[row].items():
        is_trial = key in question.state.unbound
        is_replica = own is not None and workload_of(placed.pod) == own
        if not (is_trial or is_replica or key in members):
            yield placed


def workload_of(pod: Pod) -> Workload | None:
    """Return the workload of a pod: the Deployment of its ReplicaSet, or its controller."""
    meta = pod.metadata
    owner = next((each for each in meta.owner_references if each.controller), None)
    if owner is None:
        return None
    group, _, _ = owner.api_version.rpartition("/")
    template = meta.labels.get(TEMPLATE_HASH, "")
    if owner.kind == "ReplicaSet" and template and owner.name.endswith(f"-{template}"):
        return meta.namespace, group, "Deployment", owner.name.removesuffix(f"-{template}")
    return meta.namespace, group, owner.kind, owner.name


def budgets_against(question: Question, pods: Sequence[PlacedPod]) -> str:
    """Return the disruption budgets that allow fewer evictions now than these pods."""
    texts = []
    for budget in sorted(question.state.objects.all(PodDisruptionBudget), key=lambda one: one.key):
        covered = [
            placed
            for placed in pods
            if covers(budget, placed.pod)
            and placed.pod.metadata.name not in budget.status.disrupted_pods
        ]
        allowed = max(budget.status.disruptions_allowed, 0)
        if len(covered) > allowed:
            many = f"only {allowed} eviction{'s' * (allowed > 1)}" if allowed else "no eviction"
            names = ", ".join(display_name(placed.pod) for placed in covered[:NAMED])
            more = f" and {len(covered) - NAMED} more" if len(covered) > NAMED else ""
            texts.append(f"PodDisruptionBudget {budget.key} allows {many} of {names}{more} now")
    return " and ".join(texts)


def _members(question: Question) -> frozenset[str]:
    """Return the keys of the members of the pod's gang."""
    gangs = (active.plugin.gangs.gang_of(question.pod) for active in question.profile.gangs)
    return frozenset(key for gang in gangs if gang is not None for key in gang.members)
