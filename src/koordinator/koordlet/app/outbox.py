"""Queue of writes to the API server, and the events that it delivers.

The loop must not wait for a server: during an outage, pods must still be kept within their limits.
The loop queues writes, and another thread (or the caller in tests and simulations) delivers them.
A newer write replaces an older one of the same name.

Source: koordinator pkg/koordlet/qosmanager/plugins/util/evictor.go, helpers/const.go (reasons).
"""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable

from koordinator.api.core import ObjectReference
from koordinator.api.event import Event, new_event
from koordinator.cluster.port import Cluster
from koordinator.foundation.clock import Clock
from koordinator.foundation.errors import ClusterError
from koordinator.koordlet.intents import EvictPod
from koordinator.koordlet.runtime_hooks.outcomes import HookFailure, UnpreparedContainer

log = logging.getLogger(__name__)

QueuedWrite = Callable[[Cluster], None]

EVICTED = "evictPodSuccess"  # Pod: the agent has evicted it; the note has the strategy
NOT_EVICTED = "evictPodFail"  # Pod: it should be evicted, and the eviction failed
BAD_SLO = "NodeSLONotFollowed"  # Node: its NodeSLO is invalid; the last valid one stays in force
KUBELET_MEMORY_QOS = "KubeletMemoryQoS"  # Node: kubelet and koordlet write the same memory files
POLICY_RAISED = "NodeMetricPolicyRaised"  # Node: an interval or window was raised to its minimum
CGROUPS_MISSING = "PodCgroupsNotFound"  # Node: pods are neither measured nor enforced
CPUS_UNREADABLE = "CPUsNotReadable"  # Node: CPUs, or those that the kubelet has allocated
KUBELET_SILENT = "KubeletNotAsked"  # Node: the kubelet does not answer, so pods are not updated
HOOK_FAILED = "RuntimeHookFailed"  # Pod: a hook failed; the failure policy decides on the start
UNPREPARED = "StartedWithoutRuntimeHook"  # Pod: a container started while hooks were unavailable

_COMPONENT = "koordlet"
_LONGEST_NAME = 230


class Outbox:
    """Queued writes by name, the oldest first."""

    def __init__(self) -> None:
        self._writes: OrderedDict[str, QueuedWrite] = OrderedDict()
        self._lock = threading.Lock()
        self._wakeup = threading.Event()

    def put(self, name: str, write: QueuedWrite) -> None:
        """Queue a write; it replaces a queued write of the same name."""
        with self._lock:
            self._writes[name] = write
        self._wakeup.set()

    def deliver(self, cluster: Cluster) -> int:
        """Run the queued writes; return the number of failures.

        A failed write is logged and dropped; the next round of the loop queues its content again.
        """
        failed = 0
        while True:
            with self._lock:
                if not self._writes:
                    self._wakeup.clear()
                    return failed
                name, write = self._writes.popitem(last=False)
            try:
                write(cluster)
            except ClusterError as error:
                failed += 1
                log.warning("report not delivered", extra={"what": name, "error": str(error)})

    def wait(self, timeout_s: float) -> bool:
        """Wait until a write is queued, at most ``timeout_s``; return whether one is."""
        return self._wakeup.wait(timeout_s)


def pod_event(victim: EvictPod, reason: str, note: str, now_s: float) -> Event:
    """Return a warning about a pod that was evicted, or whose eviction failed."""
    regarding = ObjectReference(
        api_version="v1",
        kind="Pod",
        namespace=victim.namespace,
        name=victim.name,
        uid=victim.uid,
    )
    return _event(regarding, reason, note, now_s, action="Evict")


def hook_event(failure: HookFailure, now_s: float) -> Event:
    """Return a warning about a pod that a hook failed for."""
    regarding = ObjectReference(
        api_version="v1",
        kind="Pod",
        namespace=failure.namespace,
        name=failure.pod,
        uid=failure.uid,
    )
    return _event(regarding, HOOK_FAILED, failure.note, now_s, action="Start")


def unprepared_event(missed: UnpreparedContainer, cause: str, now_s: float) -> Event:
    """Return a warning about a container created while the hooks were unavailable."""
    regarding = ObjectReference(
        api_version="v1", kind="Pod", namespace=missed.namespace, name=missed.pod, uid=missed.uid
    )
    note = f"container {missed.container} runs without {', '.join(missed.missing)}: {cause}"
    return _event(regarding, UNPREPARED, note, now_s, action="Start")


def node_event(name: str, uid: str, reason: str, note: str, now_s: float) -> Event:
    """Return a warning about the node."""
    regarding = ObjectReference(api_version="v1", kind="Node", name=name, uid=uid)
    return _event(regarding, reason, note, now_s, action="Configure")


def _event(
    regarding: ObjectReference, reason: str, note: str, now_s: float, *, action: str
) -> Event:
    return new_event(
        regarding,
        name=f"{regarding.name[:_LONGEST_NAME]}.{int(now_s * 1e6):x}",
        reason=reason,
        action=action,
        note=note,
        component=_COMPONENT,
        now_s=now_s,
    )


class NodeWarnings:
    """Warnings by reason, each reported when its problem changes.  ``uid`` is the node's."""

    def __init__(self, outbox: Outbox, node_name: str, clock: Clock) -> None:
        self.uid = ""
        self._outbox = outbox
        self._node_name = node_name
        self._clock = clock
        self._reported: dict[str, str] = {}

    def update(self, reason: str, problem: str) -> None:
        """Report a problem unless it equals the last one of this reason; empty clears it."""
        if problem and problem != self._reported.get(reason):
            self.report(reason, problem)
        self._reported[reason] = problem

    def report(self, reason: str, problem: str) -> None:
        """Report a problem even if it was reported before."""
        log.warning("node problem", extra={"reason": reason, "problem": problem})
        event = node_event(self._node_name, self.uid, reason, problem, self._clock.now_s())
        self._outbox.put(f"event {reason}", lambda cluster: cluster.report([event]))
