"""Resizes that a node has not carried out: of the explained pod, and of pods in its way."""

from collections.abc import Iterator
from typing import Final

from koordinator.api.pod import RESIZE_PENDING, Pod
from koordinator.domain.pod_requests import pod_requests
from koordinator.domain.reserve_pod import display_name
from koordinator.domain.resized_pods import granted_requests, least_requests, with_least_requests
from koordinator.scheduler.diagnosis import amount_text
from koordinator.scheduler.explain.explanation import Remedy
from koordinator.scheduler.explain.question import Question
from koordinator.scheduler.snapshot import PlacedPod
from koordinator.scheduler.transaction import Transaction

_IN_PROGRESS: Final = "PodResizeInProgress"
_STATES: Final = {
    "Deferred": "waits for capacity on its node (Deferred)",
    "Infeasible": "cannot be carried out on its node (Infeasible)",
}


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


TRIED: Final = 3  # nearest nodes whose resizes are tried
NAMED: Final = 3  # pods of a node that are listed


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
    for row in question.hopeful_rows(TRIED):
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
            sufficient=not question.found.refusals,
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
