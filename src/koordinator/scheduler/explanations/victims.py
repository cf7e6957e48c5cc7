"""Pods in the way of another pod: victims, users of reservations, pinned and resized pods."""

from collections.abc import Iterator, Sequence
from typing import Final

from koordinator.api.annotations.scheduling import SCHEDULING_HINT
from koordinator.api.core import NodeSelector
from koordinator.api.dynamic_resources import ResourceClaim
from koordinator.api.labels import HOSTNAME
from koordinator.api.pod import RESIZE_PENDING, Pod
from koordinator.api.policy import PodDisruptionBudget
from koordinator.api.reservation import Reservation, ReservationOwner
from koordinator.api.volume import PersistentVolume, PersistentVolumeClaim, StorageClass
from koordinator.domain.dynamic_resources.allocation import claim_names
from koordinator.domain.pod_requests import pod_requests
from koordinator.domain.reserve_pod import display_name, is_reserve_pod, reservation_name
from koordinator.domain.resized_pods import granted_requests, least_requests, with_least_requests
from koordinator.foundation.text import listed
from koordinator.scheduler.diagnosis import amount_text
from koordinator.scheduler.explanations.explanation import Remedy
from koordinator.scheduler.explanations.question import Question
from koordinator.scheduler.preemption.single_node import covers
from koordinator.scheduler.rules.volumes import NO_PROVISIONER, named_claims, storage_class_name
from koordinator.scheduler.snapshot import PlacedPod, PodClass
from koordinator.scheduler.snapshot.objects import ObjectTable
from koordinator.scheduler.transaction import Transaction

TEMPLATE_HASH = "pod-template-hash"
NAMED = 3  # pods listed of a budget or a node

WorkloadKey = tuple[str, str, str, str]  # namespace, API group, kind, name

_IN_PROGRESS: Final = "PodResizeInProgress"
_STATES: Final = {
    "Deferred": "waits for capacity on its node (Deferred)",
    "Infeasible": "cannot be carried out on its node (Infeasible)",
}

NAMED_RESERVATIONS = 2  # reservations listed per node

TRIED: Final = 3  # nearest nodes whose resizes are tried


def candidates(question: Question, row: int) -> Iterator[PlacedPod]:
    """Yield the pods on a node that are not of the pod's own workload or gang."""
    own, members = workload_of(question.pod), _members(question)
    for key, placed in question.state.pods.on_row[row].items():
        is_trial = key in question.state.unbound
        is_replica = own is not None and workload_of(placed.pod) == own
        if not (is_trial or is_replica or key in members):
            yield placed


def workload_of(pod: Pod) -> WorkloadKey | None:
    """Return the workload of a pod: the Deployment of its ReplicaSet, or its controller."""
    meta = pod.metadata
    owner = meta.controller
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
            names = listed([display_name(placed.pod) for placed in covered], NAMED)
            texts.append(f"PodDisruptionBudget {budget.key} allows {many} of {names} now")
    return " and ".join(texts)


def _members(question: Question) -> frozenset[str]:
    """Return the keys of the members of the pod's gang."""
    gangs = (active.plugin.gangs.gang_of(question.pod) for active in question.profile.gangs)
    return frozenset(key for gang in gangs if gang is not None for key in gang.members)


class ReservedRoom:
    """Reservations on the nodes of a question that its pod may not use."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._state = question.state
        self._unusable = question.unusable_holds()

    def is_decisive(self, index: int, resource: str) -> bool:
        """Return whether a node would have enough of a resource without those reservations."""
        missing = self._question.shortfall_of(index).get(resource, 0)
        return 0 < missing <= sum(amount for _, amount in self._kept(index, resource))

    def text(self, index: int, resource: str) -> str:
        """Return the reservations of a resource on a node with owners; empty without any."""
        parts = [
            f"{amount_text(resource, amount)} of {resource} kept by reservation {name}"
            + (self._why_not(name) or self._owners(name))
            for name, amount in self._kept(index, resource)
        ]
        more = (
            f" and {len(parts) - NAMED_RESERVATIONS} more reservations"
            if len(parts) > NAMED_RESERVATIONS
            else ""
        )
        return ", ".join(parts[:NAMED_RESERVATIONS]) + more

    def is_own_unusable(self, index: int, resource: str) -> bool:
        """Return whether the pod owns a reservation of the resource there that it may not use."""
        return any(name in self._unusable for name, _ in self._kept(index, resource))

    def _why_not(self, name: str) -> str:
        """Return why the pod may not use a reservation that it owns; empty for others."""
        why = self._unusable.get(name, "")
        return f", which the pod owns and may not use: {why}" if why else ""

    def _kept(self, index: int, resource: str) -> Iterator[tuple[str, int]]:
        row = int(self._question.obstacles.rows[index])
        own, names = self._question.reserved(row), self._state.axis.names
        for key, placed in sorted(self._state.pods.on_row[row].items()):
            if key in own or not is_reserve_pod(placed.pod.metadata):
                continue
            for column, amount in placed.pod_class.demand:
                if names[column] == resource:
                    yield reservation_name(placed.pod.metadata), amount

    def _owners(self, name: str) -> str:
        reservation = self._state.objects.get(Reservation, name)
        owners = reservation.spec.owners if reservation is not None else ()
        texts = filter(None, map(_owner_text, owners[:NAMED_RESERVATIONS]))
        listed = " or ".join(texts)
        return f" for {listed}" if listed else ""


def _owner_text(owner: ReservationOwner) -> str:
    """Return an owner of a reservation as text: labels, a name, a controller."""
    selector, pod, controller = owner.label_selector, owner.object, owner.controller
    parts = []
    if selector is not None:
        parts += [f"{key}={value}" for key, value in sorted(selector.match_labels.items())]
    if pod is not None and pod.name:
        parts.append(f"pod {pod.namespace}/{pod.name}" if pod.namespace else f"pod {pod.name}")
    if controller is not None and controller.name:
        parts.append(f"pods of {controller.kind or 'controller'} {controller.name}")
    return ", ".join(parts)


def is_pinned(pod: PodClass, objects: ObjectTable) -> bool:
    """Return whether the pod names its nodes, or its volumes or allocated claims do."""
    return (
        HOSTNAME in pod.spec.node_selector
        or _names_nodes(pod.spec.required_node_affinity)
        or SCHEDULING_HINT.is_in(pod.annotations)
        or any(_volume_names_nodes(objects, claim) for claim in _claims(pod, objects))
        or any(map(_is_allocated_on_nodes, _device_claims(pod, objects)))
    )


def _names_nodes(selector: NodeSelector | None) -> bool:
    """Return whether every term selects nodes by name."""
    terms = selector.node_selector_terms if selector is not None else ()
    return bool(terms) and all(
        term.match_fields or any(one.key == HOSTNAME for one in term.match_expressions)
        for term in terms
    )


def _claims(pod: PodClass, objects: ObjectTable) -> Iterator[PersistentVolumeClaim]:
    for name in named_claims(pod.spec.volumes):
        claim = objects.get(PersistentVolumeClaim, f"{pod.namespace}/{name}")
        if claim is not None:
            yield claim


def _device_claims(pod: PodClass, objects: ObjectTable) -> Iterator[ResourceClaim]:
    for _, name in claim_names(pod.spec.resource_claims, pod.claims_made):
        claim = objects.get(ResourceClaim, f"{pod.namespace}/{name}") if name else None
        if claim is not None:
            yield claim


def _is_allocated_on_nodes(claim: ResourceClaim) -> bool:
    """Return whether the claim has devices that only named nodes reach."""
    allocation = claim.status.allocation
    return allocation is not None and _names_nodes(allocation.node_selector)


def _volume_names_nodes(objects: ObjectTable, claim: PersistentVolumeClaim) -> bool:
    volume = objects.get(PersistentVolume, claim.spec.volume_name)
    if volume is not None:
        affinity = volume.spec.node_affinity
        return _names_nodes(affinity.required if affinity is not None else None)
    storage_class = objects.get(StorageClass, storage_class_name(claim))
    return storage_class is not None and storage_class.provisioner == NO_PROVISIONER


def pending_resize(pod: Pod) -> str:
    """Return which resize of a pod is not complete, and why; empty if there is none.

    Amounts of the whole pod are named where the node has granted other amounts than requested.
    """
    conditions = {condition.type: condition for condition in pod.status.conditions}
    pending, started = conditions.get(RESIZE_PENDING), conditions.get(_IN_PROGRESS)
    changes = _changes(pod)
    message = ""
    if pending is not None:
        state, message = _STATES.get(pending.reason, "is pending"), pending.message
    elif started is not None:
        state, message = "is in progress", started.message
    elif changes:
        state = "has not been granted by its node yet"
    else:
        return ""
    text = f"its resize{f' ({changes})' if changes else ''} {state}"
    return f"{text}: {message}" if message else text


def _changes(pod: Pod) -> str:
    requested, granted = pod_requests(pod.spec), granted_requests(pod)
    return ", ".join(
        f"{name} from {amount_text(name, granted.get(name, 0))} to {amount_text(name, amount)}"
        for name, amount in requested.items()
        if amount != granted.get(name, 0)
    )


def pending_resizes(question: Question, row: int, resource: str) -> str:
    """Return which pods on a node hold more of a resource because of their resizes."""
    holding = [
        (placed, amount)
        for placed in question.state.pods.on_row[row].values()
        if (amount := _excess(question, placed).get(resource))
    ]
    named = (_describe(placed, resource, amount) for placed, amount in holding[:NAMED])
    return ", ".join(named) + _more(len(holding))


def _more(count: int) -> str:
    """Return the end of a list that names the first of that many pods."""
    return f" and {count - NAMED} more" if count > NAMED else ""


def _excess(question: Question, placed: PlacedPod) -> dict[str, int]:
    """Return the amounts that a pod would not hold without its resize, by resource."""
    if not placed.pod.status.container_statuses and not placed.pod.status.allocated_resources:
        return {}
    names, least = question.state.axis.names, least_requests(placed.pod)
    charged = {names[column]: amount for column, amount in placed.pod_class.demand}
    if all(charged.get(name, 0) <= amount for name, amount in least.items()):
        return {}
    ended = question.state.classes.of(with_least_requests(placed.pod))  # with amounts of claims
    least = {names[column]: amount for column, amount in ended.demand}
    return {n: charged[n] for n, amount in least.items() if charged.get(n, 0) > amount}


def _describe(placed: PlacedPod, resource: str, amount: int) -> str:
    name, wanted = display_name(placed.pod), pod_requests(placed.pod.spec).get(resource, 0)
    if amount > wanted:
        until = f"until its resize to {amount_text(resource, wanted)} is carried out"
        return f"{name} holds {amount_text(resource, amount)} of {resource} {until}"
    granted = granted_requests(placed.pod).get(resource, 0)
    return (
        f"{amount_text(resource, amount)} of {resource} count for {name}, whose resize from "
        f"{amount_text(resource, granted)} is not carried out yet"
    )


def ended_resizes(question: Question) -> Iterator[Remedy]:
    """Yield a node that takes the pod once resizes are carried out or taken back."""
    for row in question.resolvable_rows(TRIED):
        resized = [p for p in question.state.pods.on_row[row].values() if _excess(question, p)]
        if not resized:
            continue
        with Transaction(question.state) as transaction:
            for placed in resized:
                pod = with_least_requests(placed.pod)
                transaction.displace(placed)
                transaction.place(
                    placed.key, pod, question.state.classes.of(pod), row, placed.pod_allocation
                )
            if not question.takes_without(row, ()):
                continue
        steps = " and ".join(map(_step, resized[:NAMED])) + _more(len(resized))
        node = question.state.nodes.names[row]
        yield Remedy(
            kind="wait",
            text=f"{node} takes it when {steps}",
            sufficient=not question.obstacles.refusals,
            nodes=(node,),
            pods=tuple(display_name(placed.pod) for placed in resized),
        )
        return


def _step(placed: PlacedPod) -> str:
    granted, wanted = granted_requests(placed.pod), pod_requests(placed.pod.spec)
    grows = any(amount > granted.get(name, 0) for name, amount in wanted.items())
    done = "taken back" if grows else "carried out"
    changes = _changes(placed.pod)
    return f"the resize of {display_name(placed.pod)}{f' ({changes})' if changes else ''} is {done}"
