"""Traces of pods, read from the in-memory exporter of OpenTelemetry."""

import http.server
import threading
from contextlib import ExitStack
from typing import Any

import pytest
from msgspec.structs import replace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry
from tests.worlds import START_S, node, pod

from koordinator.api.pod import Pod
from koordinator.cli.scheduler.process import build_pod_traces
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.cluster.port import Binding
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.errors import InputError
from koordinator.scheduler.assembly import build_scheduler
from koordinator.scheduler.features.metrics import SchedulerMetrics
from koordinator.scheduler.features.traces import PodTraces
from koordinator.scheduler.loop import Scheduler
from koordinator.scheduler.loop.outcomes import PodFailed
from koordinator.scheduler.profile import WATCHED, build_profiles
from koordinator.scheduler.snapshot import ClusterState
from koordinator.simulator.embedded import STOCK


class TracedWorld:
    """Small cluster with a traced scheduler."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.clock = VirtualClock(START_S)
        self.cluster = MemoryCluster(self.clock)
        self.traces = PodTraces(provider.get_tracer("test"), self.clock)
        self.scheduler = self._build()

    def _build(self) -> Scheduler:
        state = ClusterState()
        return build_scheduler(
            self.cluster,
            self.clock,
            build_profiles(STOCK, state.axis).profiles,
            state,
            WATCHED,
            metrics=SchedulerMetrics(CollectorRegistry()),
            observers=[self.traces],
        )

    def step(self, after_s: float = 0.0) -> None:
        self.clock.advance_to(self.clock.now_s() + after_s)
        self.scheduler.step()

    def spans(self) -> list[ReadableSpan]:
        """Return the finished spans in the order of their start."""
        return sorted(self.exporter.get_finished_spans(), key=lambda it: it.start_time or 0)


def times(span: ReadableSpan) -> tuple[int, int]:
    assert span.start_time is not None
    assert span.end_time is not None
    return span.start_time, span.end_time


def named(spans: list[ReadableSpan]) -> dict[str, ReadableSpan]:
    return {span.name: span for span in spans}


def test_bound_pod_has_a_trace_from_its_watch_event_to_its_bind() -> None:
    """The parts follow each other without a gap, and the whole has the node."""
    world = TracedWorld()
    world.cluster.load([node("a", cpu=4), pod("p", cpu=1)])
    world.step()

    spans = named(world.spans())
    assert spans.keys() == {"schedule pod", "queue", "decision", "assume", "bind"}
    root = spans["schedule pod"]
    assert root.attributes is not None
    assert root.attributes["k8s.pod.name"] == "p"
    assert root.attributes["k8s.node.name"] == "a"
    assert root.attributes["attempts"] == 1
    parts = [times(spans[name]) for name in ("queue", "decision", "assume", "bind")]
    assert [begin for begin, _ in parts[1:]] == [end for _, end in parts[:-1]]
    assert times(root) == (parts[0][0], parts[-1][1])
    assert root.context is not None
    for name in ("queue", "decision", "assume", "bind"):
        parent = spans[name].parent
        assert parent is not None
        assert parent.span_id == root.context.span_id
    decision = spans["decision"].attributes
    assert decision is not None
    assert decision["pods"] == 1
    assert "Filter_us" in decision


def test_pods_deleted_between_terms_of_leadership_are_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The number of traced pods is bounded, and pods of the next term need it."""
    monkeypatch.setattr("koordinator.scheduler.features.traces.MAX_PODS", 1)
    world = TracedWorld()
    world.cluster.load([node("a", cpu=4), pod("large", cpu=9)])
    world.step()

    world.traces.unwatch()
    world.cluster.delete(Pod, "large", "default", grace_period_s=0)
    world.scheduler = world._build()
    world.cluster.load([pod("p", cpu=1)])
    world.step()

    assert "schedule pod" in named(world.spans())


def test_attempts_without_a_node_are_in_the_trace() -> None:
    """Each attempt has plugin and reason; the queue begins after the last of them."""
    world = TracedWorld()
    world.cluster.load([node("a", cpu=1), pod("p", cpu=2)])
    world.step()
    assert world.spans() == []
    world.cluster.load([node("b", cpu=4)])
    world.step(after_s=60.0)
    world.step(after_s=60.0)

    spans = named(world.spans())
    attempt = spans["attempt"].attributes
    assert attempt is not None
    assert attempt["plugin"] == "NodeResourcesFit"
    assert str(attempt["reason"]).startswith("Insufficient cpu")
    began, ended = times(spans["queue"])
    assert began == times(spans["attempt"])[1]
    assert ended - began >= 60_000_000_000


def test_deleted_pod_leaves_nothing() -> None:
    """No span and no record of the pending pod remain."""
    world = TracedWorld()
    world.cluster.load([node("a", cpu=1), pod("p", cpu=2)])
    world.step()
    world.cluster.delete(type(pod("p")), "p", "default")
    world.step()

    assert world.spans() == []
    assert not world.traces._pending


def test_bound_pods_leave_no_record() -> None:
    """Memory does not grow with the pods that have been deleted."""
    world = TracedWorld()
    world.cluster.load([node("a", cpu=8), *(pod(f"p{i}", cpu=1) for i in range(5))])
    world.step()

    assert len([it for it in world.spans() if it.name == "schedule pod"]) == 5
    assert not world.traces._pending


def test_pods_that_others_bind_leave_no_record() -> None:
    """The pods are another scheduler's, or bound by a user while they wait."""
    world = TracedWorld()
    foreign = pod("foreign", cpu=1)
    foreign = replace(foreign, spec=replace(foreign.spec, scheduler_name="other"))
    world.cluster.load([node("a", cpu=1), foreign, pod("waits", cpu=2)])
    world.step()
    world.cluster.bind([Binding("default", name, "a") for name in ("foreign", "waits")]).results()
    world.step()

    assert not world.traces._pending


def test_failed_bind_of_a_deleted_pod_leaves_no_record() -> None:
    """The answer to the request comes after the watch event."""
    world = TracedWorld()
    world.cluster.load([node("a", cpu=1), pod("p", cpu=2)])
    world.step()
    queued = world.scheduler.handle.queue.get("default/p")
    assert queued is not None
    world.cluster.delete(Pod, "p", "default")
    world.step()
    world.traces.observe(PodFailed(world.clock.now_s(), queued, 'pods "p" not found'))

    assert not world.traces._pending


def test_tracing_is_off_without_an_endpoint() -> None:
    """A wrong one is an error of the input."""
    with ExitStack() as cleanup:
        assert build_pod_traces("", 1.0, "s", VirtualClock(0), cleanup) is None
        with pytest.raises(InputError, match="must be an http or https URL"):
            build_pod_traces("collector:4318", 1.0, "s", VirtualClock(0), cleanup)


class Collector(http.server.BaseHTTPRequestHandler):
    """Receiver of OTLP over HTTP that keeps the bodies."""

    received: list[tuple[str, bytes]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.received.append((self.path, body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


def test_spans_are_exported_at_the_end_of_the_process() -> None:
    """The endpoint of the flag receives them, with the name of the service."""
    received: list[tuple[str, bytes]] = []
    handler = type("Receiver", (Collector,), {"received": received})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with ExitStack() as cleanup:
            url = f"http://127.0.0.1:{server.server_port}/v1/traces"
            tracing = build_pod_traces(url, 1.0, "koord-scheduler", VirtualClock(0), cleanup)
            assert tracing is not None
            tracing._tracer.start_span("schedule pod").end()
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

    ((path, body),) = received
    assert path == "/v1/traces"
    assert b"koord-scheduler" in body
    assert b"schedule pod" in body
