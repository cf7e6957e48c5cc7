"""Warnings about the node: one event and one log line per new problem."""

import logging

from koordinator.foundation.clock import Clock
from koordinator.koordlet.app.events import node_event
from koordinator.koordlet.app.outbox import Outbox

log = logging.getLogger(__name__)


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
        log.warning("problem of the node", extra={"reason": reason, "problem": problem})
        event = node_event(self._node_name, self.uid, reason, problem, self._clock.now_s())
        self._outbox.put(f"event {reason}", lambda cluster: cluster.report([event]))
