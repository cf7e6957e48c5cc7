"""HTTP servers of the node agent: health, metrics, and the newest changes of the machine.

The process loads this module after it serves the container runtime, which does not wait for it.
"""

from collections.abc import Callable, Mapping

import msgspec
from prometheus_client import CollectorRegistry

from koordinator.cli.component.page_servers import process_servers
from koordinator.cli.component.page_settings import PageSettings
from koordinator.cli.component.process import ComponentProcess
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.koordlet.executor.audit import AgentAuditTrail
from koordinator.process.authorization import ReviewClient
from koordinator.process.endpoints import joined
from koordinator.process.health import PING, Check
from koordinator.process.http_server import HttpServer
from koordinator.process.loop_calls import LoopCalls

_EVENTS, _MOST_EVENTS = 256, 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPages:
    """Inputs of the pages; ``audit`` is None if its changes are not shown.

    ``not_ready`` returns why the agent is not ready, empty if it is.
    """

    parts: ComponentProcess
    settings: PageSettings
    external: CollectorRegistry
    loop_calls: LoopCalls
    audit: AgentAuditTrail | None
    not_ready: Callable[[], str]
    connect: Callable[[], ReviewClient]

    def servers(self) -> list[HttpServer]:
        """Return the servers, not started yet.  Raises InputError as ``page_servers``."""
        parts, pages = self.parts, {}
        if self.audit is not None:
            pages["/events"] = self.events
        return process_servers(
            parts,
            self.settings,
            self.connect,
            "koordlet",
            alive=[PING, parts.heartbeat.check],
            ready=[Check("measured", self.not_ready)],
            metrics={
                "/metrics": joined(parts.registry, self.external),
                "/internal-metrics": parts.registry,
                "/external-metrics": self.external,
            },
            pages=pages,
        )

    def events(self, parameters: Mapping[str, str]) -> object:
        """Return the newest changes of the machine, for /events.  Raises InputError."""
        text = parameters.get("size", str(_EVENTS))
        is_number = text.isascii() and text.isdigit() and len(text) <= len(str(_MOST_EVENTS))
        if not is_number or not 0 < int(text) <= _MOST_EVENTS:
            raise InputError(f"must be 1..{_MOST_EVENTS}, got {text!r}", path="size")
        audit = self.audit
        events = self.loop_calls.call(lambda: [] if audit is None else list(audit.events))
        newest = events[: -int(text) - 1 : -1]
        return {"Events": [msgspec.to_builtins(event) for event in newest]}
