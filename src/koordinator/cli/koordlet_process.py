"""The node agent as a process: the loop, a thread that reports, and a server.

Source: koordinator cmd/koordlet/main.go, options/options.go.
"""

import gc
import logging
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass

import msgspec
import numpy as np
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector

from koordinator.cli.koordlet_flags import KoordletFlags
from koordinator.cli.page_servers import PageSettings, page_servers
from koordinator.cli.rest_metrics import RequestMetrics
from koordinator.cluster.kubernetes.cluster import KubernetesCluster
from koordinator.cluster.kubernetes.connection import find_connection
from koordinator.cluster.kubernetes.credentials import Credentials
from koordinator.foundation.clock import SystemClock, WallClock
from koordinator.foundation.errors import InputError
from koordinator.foundation.faults import Fault
from koordinator.host.gpus import Gpus, NoGpus
from koordinator.host.linux.core_scheduling import LinuxCoreScheduling
from koordinator.host.linux.host import LinuxHost
from koordinator.host.linux.perf_events import LinuxPerfEvents
from koordinator.host.linux.trees import Trees, trees_of
from koordinator.koordlet.app import Koordlet, Options, Outbox
from koordinator.koordlet.app.metrics import NodeGauges
from koordinator.process.descriptors import allow_all_descriptors
from koordinator.process.endpoints import Answer, Endpoints, application, thread_stacks
from koordinator.process.faults import FaultMetrics
from koordinator.process.health import PING, Check, shutdown_check
from koordinator.process.heartbeat import Heartbeat
from koordinator.process.inquiries import Inquiries
from koordinator.process.logs import set_up_logging, set_verbosity
from koordinator.process.stopping import stop_on_signals

log = logging.getLogger(__name__)

LONGEST_WAIT_S = 0.5  # between two looks at signals and questions
DELIVERY_TIMEOUT_S = 30.0
_EVENTS, _MOST_EVENTS = 256, 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the command line says, and what its texts mean."""

    flags: KoordletFlags
    options: Options
    pages: PageSettings
    liveness_deadline_s: float

    @staticmethod
    def of(flags: KoordletFlags) -> "Settings":
        """Return the settings of flags.  Raises InputError for a text that means nothing."""
        return Settings(
            flags=flags,
            options=flags.options(),
            pages=flags.pages.settings(flags.address()),
            liveness_deadline_s=flags.process.liveness_deadline_s,
        )


def run_agent(settings: Settings) -> None:
    """Work until a signal comes.  Raises InputError for what the user got wrong."""
    set_up_logging(settings.flags.process.logging_format, settings.flags.process.verbosity)
    allow_all_descriptors()
    stopping = stop_on_signals()
    with ExitStack() as cleanup:
        _Process(settings, stopping, cleanup).run()
    log.info("stopped")


class _Process:
    def __init__(self, settings: Settings, stopping: threading.Event, cleanup: ExitStack) -> None:
        self._settings = settings
        self._stopping = stopping
        self._cleanup = cleanup
        self._clock = SystemClock()
        self._heartbeat = Heartbeat(self._clock, settings.liveness_deadline_s)
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        self._requests = RequestMetrics(self._registry)
        connection = settings.flags.connection
        self._credentials = Credentials(
            find_connection(connection.kubeconfig, connection.context), self._clock
        )
        self._faults = FaultMetrics("koordlet", self._registry)
        self._inquiries = Inquiries()
        self._outbox = Outbox()
        self._watched = self._connect()
        options = settings.options
        own = (options.audit_folder, options.checkpoint_folder, options.xpu_folder)
        trees = Trees(trees_of(options.roots, *own))
        host = LinuxHost(trees=trees)
        cleanup.callback(host.close)
        self._agent = Koordlet(
            self._watched,
            self._clock,
            host=host,
            gpus=self._find_gpus(host),
            chance=np.random.default_rng(),
            options=options,
            outbox=self._outbox,
            wall_clock=WallClock(),
            perf_events=LinuxPerfEvents(trees=trees),
            core_scheduling=LinuxCoreScheduling(),
            on_failure=self._tell_failure,
            gauges=NodeGauges(self._registry, options.node_name, self._clock.now_s()),
        )
        cleanup.callback(self._agent.close)

    def run(self) -> None:
        self._serve()
        self._cleanup.callback(self._inquiries.close)
        threading.Thread(target=self._deliver, name="reports", daemon=True).start()
        frozen = False
        while not self._stopping.is_set():
            self._heartbeat.beat()
            self._agent.step()
            self._inquiries.answer()
            if not frozen and self._agent.is_ready:
                gc.freeze()
                frozen = True
            wait_s = min(max(self._agent.next_s() - self._clock.now_s(), 0.0), LONGEST_WAIT_S)
            self._stopping.wait(wait_s)

    def _tell_failure(self, part: str, error: Exception) -> None:
        self._faults(Fault("round", error, part))

    def _deliver(self) -> None:
        """Say what has to be said, however long the server takes to listen."""
        cluster = self._connect()
        while not self._stopping.is_set():
            if self._outbox.wait(LONGEST_WAIT_S):
                self._outbox.deliver(cluster)

    def _connect(self) -> KubernetesCluster:
        flags = self._settings.flags
        cluster = KubernetesCluster(
            self._credentials,
            self._clock,
            qps=flags.kube_api_qps,
            burst=flags.kube_api_burst,
            timeout_s=DELIVERY_TIMEOUT_S,
            observe=self._requests.observe,
            user_agent="koordlet",
        )
        self._cleanup.callback(cluster.close)
        return cluster

    def _find_gpus(self, host: LinuxHost) -> Gpus:
        options = self._settings.options
        if "Accelerators" not in options.gates:
            return NoGpus()
        from koordinator.host.linux.nvml import find_gpus  # noqa: PLC0415 -- loads the driver

        return find_gpus(host, options.roots.sys)

    def _serve(self) -> None:
        settings = self._settings
        pages: dict[str, Answer] = {"/debug/threads": thread_stacks}
        if "AuditEventsHTTPHandler" in settings.options.gates:
            pages["/events"] = self._events
        endpoints = Endpoints(
            health={
                "healthz": [PING, self._heartbeat.check],
                "livez": [PING, self._heartbeat.check],
                "readyz": [Check("measured", self._not_ready), shutdown_check(self._stopping)],
            },
            metrics={"/metrics": self._registry},
            pages=pages,
            flags={"v": set_verbosity},
            on_fault=self._faults,
        )
        app = application(endpoints)
        for server in page_servers(app, settings.pages, self._connect, self._clock, "koordlet"):
            server.start()
            self._cleanup.callback(server.stop)
            log.info("serving", extra={"port": server.port})

    def _events(self, parameters: Mapping[str, str]) -> object:
        """Tell the newest changes of the machine, for /events."""
        text = parameters.get("size", str(_EVENTS))
        if not text.isdigit() or not 0 < int(text) <= _MOST_EVENTS:
            raise InputError(f"found {text!r}; accepted is 1..{_MOST_EVENTS}", path="size")
        events = self._inquiries.ask(lambda: list(self._agent.audit.events))
        newest = events[: -int(text) - 1 : -1]
        return {"Events": [msgspec.to_builtins(event) for event in newest]}

    def _not_ready(self) -> str:
        return "" if self._agent.is_ready else "the node has not been measured yet"
