"""Reports of the runtime hooks' outcomes: audit entries, events, and containers without hooks."""

import logging
from collections.abc import Callable, Iterable
from typing import Final

from koordinator.foundation.errors import HostError
from koordinator.host.port import ContainerRuntime
from koordinator.koordlet.adjustments import UnpreparedPolicy
from koordinator.koordlet.app.evictions import in_thread
from koordinator.koordlet.app.outbox import Outbox, hook_event, unprepared_event
from koordinator.koordlet.executor import Executor
from koordinator.koordlet.runtime_hooks.outcomes import (
    HookFailure,
    HookOutcomes,
    HookWrites,
    UnpreparedContainer,
)
from koordinator.koordlet.view.pods import PodView

log = logging.getLogger(__name__)

_QUIET_S: Final = 300.0  # between events of one hook for one pod
_MOST_REPORTED: Final = 4096
_MOST: Final = 4096
_DEFAULT_GRACE_S: Final = 30


class UnpreparedContainers:
    """Containers created without the runtime hooks because the agent was not running.

    They are reported; policy Restart also stops them, so that the kubelet recreates them.
    ``start`` runs a function in a new thread.
    """

    def __init__(
        self,
        outbox: Outbox,
        policy: UnpreparedPolicy,
        runtime: ContainerRuntime | None,
        start: Callable[[Callable[[], None]], None] = in_thread,
    ) -> None:
        self._outbox = outbox
        self._policy = policy
        self._runtime = runtime
        self._start = start
        self._missed: dict[str, UnpreparedContainer] = {}  # by runtime id
        self._handled: set[str] = set()

    def add(self, missed: UnpreparedContainer) -> None:
        """Record a container; repeated calls for one id have no effect."""
        if len(self._missed) < _MOST:
            self._missed.setdefault(missed.id, missed)

    def update(self, pods: Iterable[PodView], now_s: float) -> int:
        """Handle the containers of known pods; return the number handled and still present."""
        present = {
            view.id.rpartition("/")[2]: (pod, view.id)
            for pod in (pods if self._missed else ())
            for view in pod.containers
        }
        for id_ in self._missed.keys() & present.keys() - self._handled:
            self._handled.add(id_)
            self._handle(self._missed[id_], *present[id_], now_s)
        ended = self._handled - present.keys()
        self._handled -= ended
        self._missed = {id_: missed for id_, missed in self._missed.items() if id_ not in ended}
        return len(self._handled)

    def _handle(
        self, missed: UnpreparedContainer, pod: PodView, container_id: str, now_s: float
    ) -> None:
        runtime = self._runtime
        cause = "it was created while the node agent was unavailable"
        restarts = pod.pod.spec.restart_policy in {"", "Always"}
        if self._policy is UnpreparedPolicy.RESTART and restarts and runtime is not None:
            cause += "; it is restarted"
            stated = pod.pod.spec.termination_grace_period_seconds
            grace_s = _DEFAULT_GRACE_S if stated is None else stated
            self._start(lambda: _stop(runtime, str(pod.uid), container_id, grace_s))
        log.warning("container not prepared", extra={"pod": pod.key, "container": missed.container})
        event = unprepared_event(missed, cause, now_s)
        self._outbox.put(f"unprepared {missed.id}", lambda cluster: cluster.report([event]))


def _stop(runtime: ContainerRuntime, uid: str, container_id: str, grace_s: int) -> None:
    try:
        runtime.stop(uid, container_id, grace_s)
    except HostError as error:
        log.warning("container not restarted", extra={"container": container_id, "error": error})


class HookReports:
    """Consumer of the outcomes that hook threads produce; used by the loop only."""

    def __init__(
        self,
        outcomes: HookOutcomes,
        executor: Executor,
        outbox: Outbox,
        unprepared: UnpreparedContainers,
    ) -> None:
        self.unprepared = unprepared
        self._outcomes = outcomes
        self._executor = executor
        self._outbox = outbox
        self._reported: dict[tuple[str, str], float] = {}  # last event by pod UID and hook

    def process(self, now_s: float) -> None:
        """Record and report the outcomes since the last call."""
        for outcome in self._outcomes.take():
            match outcome:
                case HookWrites(writes=writes):
                    self._executor.note_writes(writes, now_s)
                case UnpreparedContainer():
                    self.unprepared.add(outcome)
                case HookFailure():
                    self._process_failure(outcome, now_s)

    def _process_failure(self, failure: HookFailure, now_s: float) -> None:
        self._executor.note_hook(failure.owner, failure.hook, failure.stage, failure.error, now_s)
        key = (failure.uid, failure.hook)
        if not failure.uid or now_s - self._reported.get(key, -_QUIET_S) < _QUIET_S:
            return
        if len(self._reported) >= _MOST_REPORTED:
            self._reported = {k: at for k, at in self._reported.items() if now_s - at < _QUIET_S}
            if len(self._reported) >= _MOST_REPORTED:
                return
        self._reported[key] = now_s
        event = hook_event(failure, now_s)
        name = f"hook {failure.hook} of {failure.uid}"
        self._outbox.put(name, lambda cluster: cluster.report([event]))
