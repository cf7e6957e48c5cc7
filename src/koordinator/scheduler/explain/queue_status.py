"""Where a pod is in the queue, and what will bring it on."""

from koordinator.foundation.clock import to_datetime
from koordinator.scheduler.contract import Action, EventHint, Profile
from koordinator.scheduler.diagnosis import NODE_COUNT
from koordinator.scheduler.explain.explanation import QueueStatus
from koordinator.scheduler.queue import QueuedPod, QueueState, SchedulingQueue

NAMED = 5  # of the pods ahead

_ACTIVE = (QueueState.ACTIVE,)
_WOKEN = (QueueState.ACTIVE, QueueState.BACKOFF, QueueState.UNSCHEDULABLE)

_WHAT = {
    "AssignedPod": "a pod on a node",
    "Pod": "the pod itself",
    "PersistentVolumeClaim": "a volume claim",
    "PersistentVolume": "a volume",
}
_HAPPENS = {
    Action.ADD: "comes",
    Action.DELETE: "goes",
    Action.UPDATE_ALLOCATABLE: "offers other amounts",
    Action.UPDATE_LABELS: "gets other labels",
    Action.UPDATE_TAINTS: "gets other taints",
    Action.UPDATE_CONDITION: "gets other conditions",
    Action.UPDATE_ANNOTATIONS: "gets other annotations",
    Action.UPDATE_DECLARED_FEATURES: "declares other features",
    Action.UPDATE_SCALE_DOWN: "asks for less",
    Action.UPDATE_TOLERATIONS: "gets other tolerations",
    Action.UPDATE_GATES_ELIMINATED: "loses its last gate",
}


def queue_status(queue: SchedulingQueue, queued: QueuedPod, profile: Profile) -> QueueStatus:
    """Return where a pod of the queue is.

    Before one that waits for something are all that would be tried before it if it happened now.
    """
    mine = _rank(queued)
    rivals = queue.pods(*(_ACTIVE if queued.state is QueueState.ACTIVE else _WOKEN))
    before = sorted((o for o in rivals if o is not queued and _rank(o) < mine), key=_rank)
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
    """Return the events that those who rejected the pod wait for, in words."""
    if queued.state not in (QueueState.UNSCHEDULABLE, QueueState.GATED):
        return ()
    said: list[str] = []
    limiting = {a.name for a in profile.pre_filter if "run_limit" in a.has}
    short = {a.name for a in profile.gangs if a.plugin.gangs.shortage(queued.pod)}
    for plugin in sorted(queued.rejectors):
        words = [text for hint in profile.events.get(plugin, ()) for text in _words(hint)]
        if plugin in short:  # and nothing else helps
            words = [
                "a member of its gang comes or loses its gates",
                "its PodGroup or Workload comes or changes",
            ]
        if plugin in limiting:
            words.append("there is room again in what it counts")
        if plugin == NODE_COUNT:
            words.append("a node comes")
        if words:
            said.append(f"{plugin}: {', '.join(dict.fromkeys(words))}")
    return tuple(said)


def _words(hint: EventHint) -> list[str]:
    what = _WHAT.get(hint.resource, f"a {hint.resource}")
    if hint.action & Action.UPDATE == Action.UPDATE:
        happens = [_HAPPENS[a] for a in (Action.ADD, Action.DELETE) if a in hint.action]
        return [f"{what} {text}" for text in (*happens, "changes")]
    words = [f"{what} {text}" for action, text in _HAPPENS.items() if action in hint.action]
    return words if not Action.UPDATE_OTHER & hint.action else [*words, f"{what} changes"]


def _rank(queued: QueuedPod) -> tuple[int, float, int]:
    return -queued.priority, queued.queued_at_s, queued.sequence


def _text(at_s: float) -> str:
    return to_datetime(at_s).isoformat().replace("+00:00", "Z")
