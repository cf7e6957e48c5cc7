"""Requests to the API server, counted under client-go's names.

Source: k8s.io/component-base metrics/prometheus/restclient/metrics.go.
"""

from prometheus_client import CollectorRegistry, Counter, Histogram

_SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)


class RequestMetrics:
    """What happened to requests, by verb, host and answer."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "rest_client_requests",
            "Number of HTTP requests, partitioned by status code, method, and host.",
            ["code", "method", "host"],
            registry=registry,
        )
        self._seconds = Histogram(
            "rest_client_request_duration_seconds",
            "Request latency in seconds. Broken down by verb, and host.",
            ["verb", "host"],
            buckets=_SECONDS,
            registry=registry,
        )

    def observe(self, verb: str, status: str, host: str, seconds: float) -> None:
        """Count one request."""
        self._requests.labels(status, verb, host).inc()
        self._seconds.labels(verb, host).observe(seconds)
