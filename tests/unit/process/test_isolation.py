"""A page or a collector that breaks answers for itself only."""

from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import GaugeMetricFamily
from starlette.applications import Starlette
from tests.unit.process.clients import Reply, ask

from koordinator.foundation.errors import Fault
from koordinator.process.endpoints import Endpoints, RequestParameters, application
from koordinator.process.http_server import HttpServer
from koordinator.process.termination import FaultMetrics


class Boom(Exception):  # noqa: N818 -- an unforeseen exception
    """Raised by a broken part."""


def broken(*_: object) -> float:
    raise Boom


class HalfWay:
    """A collector that breaks after its first family."""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        yield GaugeMetricFamily("half_first", "First.", value=1)
        raise Boom


class NoNumber:
    """A collector one of whose families can't be written down."""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        yield GaugeMetricFamily("odd_first", "First.", value=1)
        yield GaugeMetricFamily("odd_second", "Second.", value=Boom)  # type: ignore[arg-type]
        yield GaugeMetricFamily("odd_third", "Third.", value=3)


def registry(*, breaks: bool = True) -> CollectorRegistry:
    """Return one with families before and after those that break."""
    collector_registry = CollectorRegistry()
    Counter("first", "First.", registry=collector_registry).inc(2)
    if breaks:
        Gauge("evil", "Evil.", registry=collector_registry).set_function(broken)
        collector_registry.register(HalfWay())
        collector_registry.register(NoNumber())
    Gauge("last", "Last.", registry=collector_registry).set(5)
    return collector_registry


def served(app: Starlette, *paths: str, accept: str = "") -> list[Reply]:
    """Return what a server answers to each path."""
    server = HttpServer(app, "localhost", 0)
    server.start()
    try:
        return [ask(server.port, path, headers={"accept": accept}) for path in paths]
    finally:
        server.stop()


def page(_: RequestParameters) -> object:
    return "fine"


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text;version=1.0.0"])
def test_a_family_that_breaks_takes_no_other_with_it(accept: str) -> None:
    """In both formats each broken family is reported by name."""
    faults: list[Fault] = []
    endpoints = Endpoints(metrics={"/metrics": registry()}, on_fault=faults.append)
    (reply,) = served(application(endpoints), "/metrics", accept=accept)

    assert reply.status == 200
    lines = [line for line in reply.text.splitlines() if not line.startswith("#")]
    values = ("first_total 2.0", "half_first 1.0", "odd_first 1.0", "odd_third 3.0", "last 5.0")
    assert lines == list(values)
    assert reply.text.endswith("# EOF\n") is bool(accept)
    assert [(fault.stage, fault.source) for fault in faults] == [
        ("metrics", "evil"),
        ("metrics", "HalfWay"),
        ("metrics", "odd_second"),
    ]


def test_nothing_else_changes_where_nothing_breaks() -> None:
    """The whole registry gives the same text."""
    (reply,) = served(
        application(Endpoints(metrics={"/metrics": registry(breaks=False)})), "/metrics"
    )

    assert "first_total 2.0" in reply.text
    assert "last 5.0" in reply.text


def test_a_page_that_breaks_answers_for_itself_only() -> None:
    """The fault is reported and counted by path; the next request is answered."""
    counted = CollectorRegistry()
    endpoints = Endpoints(
        pages={"/good": page, "/evil": broken},
        services={"/good": page, "/evil/{name}": broken},
        metrics={"/metrics": counted},
        on_fault=FaultMetrics("koordlet", counted),
    )
    paths = ("/evil", "/good", "/apis/v1/evil/a", "/apis/v1/evil/b", "/apis/v1/good", "/metrics")
    replies = served(application(endpoints), *paths)

    assert [reply.status for reply in replies] == [500, 200, 500, 500, 200, 200]
    assert replies[0].text == "internal error, see the log\n"
    name = "koordlet_internal_errors_total"
    assert f'{name}{{source="/evil",stage="page"}} 1.0' in replies[-1].text
    assert f'{name}{{source="/apis/v1/evil/{{name}}",stage="page"}} 2.0' in replies[-1].text
