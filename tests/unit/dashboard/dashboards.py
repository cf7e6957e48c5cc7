"""Helpers that serve a dashboard for a cluster on a free local port."""

import http.client
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from tests.unit.process.clients import Reply, ask
from tests.worlds import START_S, device, embedded, node, pod

from koordinator.api.kubescheduler import KubeSchedulerConfiguration
from koordinator.api.meta import KubeObject
from koordinator.cli.dashboard.command import read_text
from koordinator.dashboard.access import AccessPolicy
from koordinator.dashboard.feed import Feed
from koordinator.dashboard.overview import ClusterOverview, OverviewBuilder
from koordinator.dashboard.server import ComparedRun, dashboard_application
from koordinator.dashboard.sources import ClusterSource, SourcePhase, SourceStatus
from koordinator.dashboard.sources.manifests import ManifestSource
from koordinator.dashboard.whatif import MovePlanner, example_policy
from koordinator.foundation.clock import SystemClock
from koordinator.process.http_server import HttpServer
from koordinator.simulator.embedded import STOCK, Embedded

HOSTILE = "<script>alert(1)</script>"
NOW = SourceStatus(phase=SourcePhase.LIVE, now_s=START_S)


def crowded() -> list[KubeObject]:
    """Return two full nodes and pending pods of two tenants."""
    return [
        node("a", cpu=4, zone="z1"),
        node("b", cpu=4, zone="z2"),
        *(pod(f"runs-{name}", cpu=3, on=name, namespace="blue") for name in "ab"),
        *(pod(f"waits-{number}", cpu=3, namespace="blue") for number in range(3)),
        pod("secret-job", cpu=2, namespace="red"),
    ]


def gpu_node(name: str, gpus: int, unhealthy: Sequence[int] = (), **given: Any) -> list[KubeObject]:
    """Return a node with 64 CPUs and GPUs, and its Device report."""
    amounts: Any = {
        "koordinator.sh/gpu-core": 100 * gpus,
        "koordinator.sh/gpu-memory-ratio": 100 * gpus,
    }
    return [node(name, cpu=64, **amounts, **given), device(name, gpus=gpus, unhealthy=unhealthy)]


def settled(*objects: KubeObject, config: KubeSchedulerConfiguration = STOCK) -> Embedded:
    """Return a world scheduled to a fixed point."""
    world = embedded(*objects, config=config)
    world.run_to_fixed_point()
    return world


def overview(world: Embedded) -> ClusterOverview:
    """Return the overview of a world."""
    return OverviewBuilder(world.scheduler.handle).build(NOW)


def manifests(
    objects: Sequence[KubeObject], config: KubeSchedulerConfiguration = STOCK
) -> ManifestSource:
    """Return a source that never changes."""
    return ManifestSource("test", lambda: objects, lambda: 1, config, lambda: START_S)


@contextmanager
def followed(source: ClusterSource) -> Iterator[Feed]:
    """Follow a source; yield the feed after its first overview."""
    feed = Feed(source, SystemClock())
    feed.start()
    try:
        feed.wait_until_ready()
        yield feed
    finally:
        feed.stop()


@contextmanager
def served(
    source: ClusterSource,
    policy: AccessPolicy | None = None,
    hosts: Sequence[str] = (),
    other: ClusterSource | None = None,
    move_policy: str = example_policy(STOCK),
    *,
    port: int = 0,
) -> Iterator["Browser"]:
    """Serve a source, with an ``other`` run to compare if given; port 0 picks a free port."""
    with ExitStack() as running:
        feed = running.enter_context(followed(source))
        compared = None
        if other is not None:
            compared = ComparedRun("policy.yaml", running.enter_context(followed(other)))
        app = dashboard_application(
            feed,
            read_text,
            SystemClock(),
            policy,
            hosts=hosts,
            other=compared,
            planner=MovePlanner(move_policy, "a test", lambda _: (), lambda _: ()),
        )
        server = HttpServer(app, "127.0.0.1", port)
        server.start()
        try:
            yield Browser(server.port, feed)
        finally:
            server.stop()


class Browser:
    """Client with the requests of the page."""

    def __init__(self, port: int, feed: Feed) -> None:
        self.port, self.feed = port, feed

    def get(self, path: str, token: str = "", **headers: str) -> Reply:
        own = {"authorization": f"Bearer {token}"} if token else {}
        return ask(self.port, path, headers={**own, **headers})

    def post(self, path: str, body: object, token: str = "") -> Reply:
        own = {"authorization": f"Bearer {token}"} if token else {}
        headers = {"content-type": "application/json", **own}
        return ask(self.port, path, method="POST", body=json.dumps(body), headers=headers)

    def frames(self, token: str = "") -> Iterator[Any]:
        """Yield the frames of the event stream."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {"authorization": f"Bearer {token}"} if token else {}
        connection.request("GET", "/api/events", headers=headers)
        response = connection.getresponse()
        try:
            while line := response.readline():
                if line.startswith(b"data: "):
                    yield json.loads(line.removeprefix(b"data: "))
        finally:
            response.close()
            connection.close()
