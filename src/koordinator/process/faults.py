"""Fault handler of a process: log and count a fault, and continue."""

import logging

from prometheus_client import CollectorRegistry, Counter

from koordinator.foundation.faults import Fault

log = logging.getLogger(__name__)


class FaultMetrics:
    """The handler of a component: the counter ``<component>_internal_errors_total``, and the log.

    Labels are of closed sets: stages and sources are in the code, an object is not among them.
    """

    def __init__(self, component: str, registry: CollectorRegistry) -> None:
        self._counter = Counter(
            f"{component}_internal_errors",
            "Unexpected exceptions, by operation and source.",
            ("stage", "source"),
            registry=registry,
        )
        self._log = FirstOfKind()

    def __call__(self, fault: Fault) -> None:
        self._counter.labels(fault.stage, fault.source).inc()
        self._log(fault)


class FirstOfKind:
    """Logs the first fault of a kind with its traceback, later ones at debug level.

    A hostile object can bring about one at every step.
    """

    def __init__(self) -> None:
        self._known: set[tuple[str, str, type[Exception]]] = set()

    def __call__(self, fault: Fault) -> None:
        kind = (fault.stage, fault.source, type(fault.error))
        is_new = kind not in self._known
        self._known.add(kind)
        extra = {"stage": fault.stage, "source": fault.source, "object": fault.about,
                 "error": fault.problem}  # fmt: skip
        trace = fault.error if is_new else None
        log.log(
            logging.ERROR if is_new else logging.DEBUG,
            "internal error",
            extra=extra,
            exc_info=trace,
        )
