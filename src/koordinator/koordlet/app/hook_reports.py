"""Takes in what the threads of the runtime hooks did: into the audit, and as events of pods."""

import logging
from typing import Final

from koordinator.koordlet.app.events import hook_event
from koordinator.koordlet.app.outbox import Outbox
from koordinator.koordlet.app.unprepared_containers import UnpreparedContainers
from koordinator.koordlet.executor import Executor
from koordinator.koordlet.runtime_hooks.outcomes import (
    HookFailure,
    HookOutcomes,
    HookWrites,
    UnpreparedContainer,
)

log = logging.getLogger(__name__)

_QUIET_S: Final = 300.0  # one event of a hook and a pod, however often its containers start
_MOST_TOLD: Final = 4096


class HookReports:
    """Used by the loop alone."""

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
        self._told: dict[tuple[str, str], float] = {}  # by pod's UID and hook: when

    def take_in(self, now_s: float) -> None:
        """Keep and tell what came since the last time."""
        for outcome in self._outcomes.take():
            match outcome:
                case HookWrites(writes=writes):
                    self._executor.note_writes(writes, now_s)
                case UnpreparedContainer():
                    self.unprepared.add(outcome)
                case HookFailure():
                    self._take_in_failure(outcome, now_s)

    def _take_in_failure(self, failure: HookFailure, now_s: float) -> None:
        self._executor.note_hook(failure.owner, failure.hook, failure.stage, failure.error, now_s)
        key = (failure.uid, failure.hook)
        if not failure.uid or now_s - self._told.get(key, -_QUIET_S) < _QUIET_S:
            return
        if len(self._told) >= _MOST_TOLD:
            self._told = {k: at for k, at in self._told.items() if now_s - at < _QUIET_S}
            if len(self._told) >= _MOST_TOLD:
                return
        self._told[key] = now_s
        event = hook_event(failure, now_s)
        name = f"hook {failure.hook} of {failure.uid}"
        self._outbox.put(name, lambda cluster: cluster.report([event]))
