"""Export of traces by OTLP over HTTP; it requires ``koordinator[tracing]``."""

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from koordinator.foundation.clock import Clock
from koordinator.foundation.errors import InputError, not_installed

if TYPE_CHECKING:
    from koordinator.scheduler.features.traces import PodTraces

ENDPOINT_FLAG: Final = "--tracing-endpoint"
_EXAMPLE: Final = "http://collector:4318/v1/traces"


def build_pod_traces(
    endpoint: str, sampling_ratio: float, service: str, clock: Clock, cleanup: ExitStack
) -> "PodTraces | None":
    """Return the tracing of pods; None without an endpoint.

    Spans are exported in a thread, and the last ones at the end.  Raises InputError for a wrong
    endpoint, and without the libraries.
    """
    if not endpoint:
        return None
    if urlsplit(endpoint).scheme not in ("http", "https"):
        raise InputError(
            f"must be an http or https URL such as {_EXAMPLE}, got {endpoint!r}",
            source=ENDPOINT_FLAG,
        )
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415 -- an extra
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 -- as above
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 -- as above
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 -- as above
        from opentelemetry.sdk.trace.sampling import TraceIdRatioBased  # noqa: PLC0415 -- as above

        from koordinator.scheduler.features.traces import PodTraces  # noqa: PLC0415 -- as above
    except ModuleNotFoundError as error:
        text = f"{error.name} {not_installed('tracing')}"
        raise InputError(text, source=ENDPOINT_FLAG) from None

    provider = TracerProvider(
        sampler=TraceIdRatioBased(sampling_ratio),
        resource=Resource.create({"service.name": service}),
        shutdown_on_exit=False,
    )
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint)))
    cleanup.callback(provider.shutdown)
    return PodTraces(provider.get_tracer("koordinator.scheduler"), clock)
