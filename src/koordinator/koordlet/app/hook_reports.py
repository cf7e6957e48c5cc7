"""Reports of the runtime hooks' outcomes: audit entries and events of pods."""

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

_QUIET_S: Final = 300.0  # between events of one hook for one pod
_MOST_REPORTED: Final = 4096


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
