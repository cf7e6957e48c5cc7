"""Connections of a process to the extenders of its scheduler's configuration."""

import logging
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from prometheus_client import CollectorRegistry, Counter

from koordinator.api.kubescheduler import Extender
from koordinator.cli.output import warn
from koordinator.foundation.errors import ExtenderError, SilentExtenderError
from koordinator.process.extender_transport import HttpExtenderTransport, unverified
from koordinator.scheduler.extenders import Connect, ExtenderTransport

log = logging.getLogger(__name__)

_SUCCESS: Final = "success"


class ExtenderRequests:
    """Counts questions to extenders by how they ended."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self._requests = Counter(
            "koord_scheduler_extender_requests",
            "Questions to scheduler extenders, by extender, verb and result.",
            ["extender", "verb", "result"],
            registry=registry,
        )
        self._ignored = Counter(
            "koord_scheduler_extender_failures_ignored",
            "Failures of extenders that no pod had to wait for.",
            ["extender"],
            registry=registry,
        )

    def count(self, extender: str, verb: str, result: str) -> None:
        self._requests.labels(extender, verb, result).inc()

    def ignored(self, extender: str, problem: str) -> None:
        """Count and log the failure of an ignorable extender."""
        self._ignored.labels(extender).inc()
        log.warning("extender ignored", extra={"extender": extender, "error": problem})


class _CountedTransport:
    def __init__(self, name: str, transport: ExtenderTransport, requests: ExtenderRequests) -> None:
        self._name, self._transport, self._requests = name, transport, requests

    def post(self, verb: str, body: bytes) -> bytes:
        result = _SUCCESS
        try:
            return self._transport.post(verb, body)
        except SilentExtenderError:
            result = "silent"
            raise
        except ExtenderError:
            result = "refused"
            raise
        finally:
            self._requests.count(self._name, verb, result)


def extender_connector(
    cleanup: ExitStack,
    requests: ExtenderRequests | None = None,
    on_answer: Callable[[], None] = lambda: None,
) -> Connect:
    """Return a connector to extenders; ``cleanup`` closes the connections.

    ``on_answer`` is called after every response of an extender.
    """

    def connect(config: Extender) -> ExtenderTransport:
        transport = HttpExtenderTransport(config, on_answer)
        cleanup.callback(transport.close)
        if config.url_prefix.startswith("https:") and unverified(config):
            warn(f"extender {config.url_prefix}: its certificate is not verified, for want of a CA")
        if requests is None:
            return transport
        return _CountedTransport(config.url_prefix, transport, requests)

    return connect
