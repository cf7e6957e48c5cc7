"""Explanations of pods with their status in the queue, and groups of pods of the same cause."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from koordinator.foundation.clock import to_datetime
from koordinator.scheduler.contract import Action, EventHint, Profile
from koordinator.scheduler.diagnosis import NODE_COUNT
from koordinator.scheduler.queue import QueuedPod, QueueState, SchedulingQueue

_NO_DEVICES = (
    "cpu",
    "memory",
    "ephemeral-storage",
    "pods",
    "hugepages-",
    "kubernetes.io/batch-",
    "kubernetes.io/mid-",
)

NAMED = 5  # pods ahead that are listed

_ACTIVE = (QueueState.ACTIVE,)
_WOKEN = (QueueState.ACTIVE, QueueState.BACKOFF, QueueState.UNSCHEDULABLE)

_WHAT = {
    "AssignedPod": "a pod on a node",
    "Pod": "the pod itself",
    "PersistentVolumeClaim": "a volume claim",
    "PersistentVolume": "a volume",
}
_CHANGES = "changes"
_HAPPENS = {
    Action.ADD: "is added",
    Action.DELETE: "is deleted",
    Action.UPDATE_ALLOCATABLE: "changes its allocatable amounts",
    Action.UPDATE_LABELS: "changes its labels",
    Action.UPDATE_TAINTS: "changes its taints",
    Action.UPDATE_CONDITION: "changes its conditions",
    Action.UPDATE_ANNOTATIONS: "changes its annotations",
    Action.UPDATE_DECLARED_FEATURES: "changes its declared features",
    Action.UPDATE_SCALE_DOWN: "reduces its requests",
    Action.UPDATE_TOLERATIONS: "changes its tolerations",
    Action.UPDATE_GATES_ELIMINATED: "loses its last scheduling gate",
    Action.UPDATE_GENERATED_CLAIMS: "gets its generated resource claims",
}


class CauseReport(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Cause that keeps the pod from running."""

    plugin: str
    reason: str
    nodes: int = 0  # number of affected nodes; 0 for causes independent of nodes
    alone: int = 0  # nodes with this cause only
    decisive: bool = True  # False: affected nodes have another cause that must go first
    sentence: str = ""  # the reason as a plain sentence
    detail: str = ""  # amounts on one of the nodes
    on: tuple[str, ...] = ()  # first affected nodes
    resolvable: bool = False  # fewer pods might help on some of them


class NearNode(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Node that lacks little for the pod."""

    node: str
    reasons: tuple[str, ...]
    lacks: dict[str, str] = {}  # resource -> quantity missing
    hopeless: bool = False  # rejected even when empty
    details: tuple[str, ...] = ()


class Remedy(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Change after which the pod can start.

    ``sufficient``: on a copy of the cluster, the pod can start with this change alone.
    ``tried``: False if it was not tried, e.g. for amounts that a controller computes.
    """

    kind: str
    text: str
    sufficient: bool = True
    tried: bool = True
    nodes: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()


class EmptyCluster(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Result of placing the pod in the cluster without other pods."""

    fits: bool
    node: str = ""  # example of a node
    why: str = ""  # reason if it does not fit


class QueueStatus(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Position of the pod in the queue."""

    state: str  # a QueueState
    position: int  # 1 is next
    ahead: tuple[str, ...] = ()  # first pods ahead
    since: str = ""  # RFC 3339
    attempts: int = 0
    retry_at: str = ""  # RFC 3339: retry without an event
    woken_by: tuple[str, ...] = ()


class Forecast(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Expected start of the pod without further arrivals."""

    at: str = ""  # RFC 3339; empty if unknown
    node: str = ""
    why: str = ""


class Explanation(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Complete explanation of a pending pod."""

    pod: str
    verdict: str  # placed, fits, waits; also ended and lost for objects in manifests
    summary: str
    node: str = ""
    causes: tuple[CauseReport, ...] = ()
    gang: str = ""
    nearest: tuple[NearNode, ...] = ()
    empty_cluster: EmptyCluster | None = None
    remedies: tuple[Remedy, ...] = ()
    queue: QueueStatus | None = None
    last_message: str = ""
    forecast: Forecast | None = None
    victims: tuple[str, ...] = ()  # preempted so that the pod, or its gang, would be placed now


def queue_status(queue: SchedulingQueue, queued: QueuedPod, profile: Profile) -> QueueStatus:
    """Return the position of a queued pod.

    For a pod that waits for an event, all pods count that would be tried before it if the event
    came.
    """
    own_rank = _rank(queued)
    rest = queue.pods(*(_ACTIVE if queued.state is QueueState.ACTIVE else _WOKEN))
    before = sorted((o for o in rest if o is not queued and _rank(o) < own_rank), key=_rank)
    retry_s = queue.due_s(queued)
    return QueueStatus(
        state=str(queued.state),
        position=len(before) + 1,
        ahead=tuple(other.key for other in before[:NAMED]),
        since=_text(queued.first_attempt_s or queued.queued_at_s),
        attempts=queued.attempts,
        retry_at=_text(retry_s) if retry_s else "",
        woken_by=wakers(queued, profile),
    )


def wakers(queued: QueuedPod, profile: Profile) -> tuple[str, ...]:
    """Return descriptions of the events that the rejecting plugins wait for."""
    if queued.state not in (QueueState.UNSCHEDULABLE, QueueState.GATED):
        return ()
    texts: list[str] = []
    limiting = {a.name for a in profile.pre_filter if "run_limit" in a.has}
    short = {a.name for a in profile.gangs if a.plugin.gangs.shortage(queued.pod)}
    for plugin in sorted(queued.rejectors):
        words = [text for hint in profile.events.get(plugin, ()) for text in event_texts(hint)]
        if plugin in short:  # no other event helps
            words = [
                "a member of its gang is added or loses its scheduling gates",
                "its PodGroup or Workload is added or changes",
            ]
        if plugin in limiting:
            words.append("the limit that it checks has room again")
        if plugin == NODE_COUNT:
            words.append("a node is added")
        if words:
            texts.append(f"{plugin}: {', '.join(dict.fromkeys(words))}")
    return tuple(texts)


def changed_object(event: str) -> str:
    """Return the object of an event such as ``a Node changes its labels``; empty for others."""
    for happens in (*_HAPPENS.values(), _CHANGES):
        if event.endswith(f" {happens}"):
            return event.removesuffix(f" {happens}")
    return ""


def event_texts(hint: EventHint) -> list[str]:
    """Return descriptions of the events of a hint."""
    subject = _WHAT.get(hint.resource, f"a {hint.resource}")
    if hint.action & Action.UPDATE == Action.UPDATE:
        happens = [_HAPPENS[a] for a in (Action.ADD, Action.DELETE) if a in hint.action]
        return [f"{subject} {text}" for text in (*happens, _CHANGES)]
    words = [f"{subject} {text}" for action, text in _HAPPENS.items() if action in hint.action]
    return words if not Action.UPDATE_OTHER & hint.action else [*words, f"{subject} {_CHANGES}"]


def _rank(queued: QueuedPod) -> tuple[int, float, int]:
    return -queued.priority, queued.queued_at_s, queued.sequence


def _text(at_s: float) -> str:
    return to_datetime(at_s).isoformat().replace("+00:00", "Z")


def by_cause(
    explained: Sequence[tuple[Explanation, Sequence[str]]],
) -> list[tuple[str, list[tuple[Explanation, Sequence[str]]]]]:
    """Return the causes as text, with the pods of each; most pods first."""
    causes: dict[str, list[tuple[Explanation, Sequence[str]]]] = {}
    for one, pods in explained:
        causes.setdefault(group_text(one), []).append((one, pods))
    return sorted(causes.items(), key=lambda item: -sum(len(pods) for _, pods in item[1]))


def group_text(one: Explanation) -> str:
    """Return the text of the cause by which pods are grouped.

    Pods that lack devices on some node are separate from pods that do not, since other nodes and
    other remedies help them.
    """
    return "; ".join((in_short(one), *_missing_devices(one)))


def in_short(one: Explanation) -> str:
    """Return why a pod waits in one line, without the nodes."""
    everywhere = [sentence_of(cause) for cause in one.causes if not cause.nodes]
    by_nodes: dict[object, list[str]] = {}  # causes on the same nodes apply together
    for cause in one.causes:
        if cause.nodes and cause.decisive:
            by_nodes.setdefault((cause.nodes, cause.on), []).append(sentence_of(cause))
    nodes = [" and ".join(dict.fromkeys(words)) for words in by_nodes.values()]
    parts = [*everywhere, *([" or ".join(dict.fromkeys(nodes))] if nodes else [])]
    return "; ".join(parts) or one.summary


def _missing_devices(one: Explanation) -> Iterator[str]:
    """Return the devices that are missing on nodes which reject the pod for other reasons too."""
    shortages = [
        sentence_of(cause)
        for cause in one.causes
        if cause.nodes and not cause.decisive and _is_device(cause.reason)
    ]
    if shortages:
        yield f"besides, on some nodes {' and '.join(dict.fromkeys(shortages))}"


def _is_device(reason: str) -> bool:
    """Return whether a reason is a shortage of devices, not of CPU, memory and the like."""
    _, short, resource = reason.partition("Insufficient ")
    return bool(short) and not resource.startswith(_NO_DEVICES)


def sentence_of(cause: CauseReport) -> str:
    """Return the sentence of a cause, or its reason without one."""
    return cause.sentence or cause.reason
