"""Executor: the only part of the node agent that changes the machine.

``executor`` applies intents in an order that the kernel accepts; ``audit`` records each write and
its reason.
"""

from koordinator.koordlet.executor.audit import AgentAuditTrail, AuditEvent
from koordinator.koordlet.executor.executor import Executor

__all__ = ["AgentAuditTrail", "AuditEvent", "Executor"]
