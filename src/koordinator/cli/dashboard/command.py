"""``koord dashboard``: one page that shows a cluster live, and what decides in it."""

import io
import os
import sys
import threading
import webbrowser
from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from koordinator.api.meta import KubeObject
from koordinator.api.policy import PriorityClass
from koordinator.api.slo_config import CONFIG_NAMESPACE
from koordinator.cli.component.dataclass_flags import with_flags
from koordinator.cli.dashboard.flags import DashboardFlags, FileArchive, ServerArchive
from koordinator.cli.descheduler.flags import read_descheduler_configuration
from koordinator.cli.descheduler.plugins import descheduler_plugins_for
from koordinator.cli.input.configuration import extender_connector, plugins_for, read_configuration
from koordinator.cli.input.live import gates_of_component, level_now
from koordinator.cli.output import console, warn
from koordinator.cli.recording import recorded_configuration
from koordinator.cluster.port import Cluster
from koordinator.dashboard.access import AccessPolicy, ReviewedAccess
from koordinator.dashboard.decisions import DecisionArchive
from koordinator.dashboard.feed import Feed
from koordinator.dashboard.overview import ComponentHealth
from koordinator.dashboard.server import ComparedRun, dashboard_application
from koordinator.dashboard.sources import ClusterSource
from koordinator.dashboard.sources.cluster import LiveClusterSource
from koordinator.dashboard.sources.manifests import ManifestSource
from koordinator.dashboard.sources.recording import RecordingSource
from koordinator.dashboard.sources.simulation import SimulationSource
from koordinator.dashboard.whatif import ClusterReader, MovePlanner, example_policy
from koordinator.foundation.clock import Clock, SystemClock
from koordinator.foundation.errors import ClusterError, InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.process.certificates import context_of_files, self_signed_context
from koordinator.process.connections import ConnectionLimits
from koordinator.process.http_server import HttpServer, is_loopback
from koordinator.process.termination import stop_on_signals
from koordinator.scheduler.features.audit import Audit
from koordinator.simulator import Simulation, demo_workload, read_workload
from koordinator.simulator.generation import unsimulated
from koordinator.simulator.manifests.reader import STDIN, files_below, read_manifests
from koordinator.simulator.policies import default_profile
from koordinator.simulator.recorder import opened_recording
from koordinator.simulator.replay import ReplayRun

_DESKTOPS = ("DISPLAY", "WAYLAND_DISPLAY")


def has_browser() -> bool:
    """Return whether the process runs in a terminal of a desktop.

    Browsers that draw in the terminal itself don't count: they would take it over.
    """
    if not (sys.stdout.isatty() and sys.stderr.isatty()):
        return False
    if sys.platform not in ("darwin", "win32") and not any(map(os.environ.get, _DESKTOPS)):
        return False
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True


def open_browser(url: str) -> None:
    """Open a page in the reader's browser."""
    webbrowser.open(url)


DEMO = "demo"
SIMULATED_SPEED, RECORDED_SPEED = 600.0, 60.0
LIMITS = ConnectionLimits(connections=256)  # browsers keep one for the stream and some for queries
SCORES_SHARE = 0.25  # of the time, for the scores of the nodes that were not chosen
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
REVIEWS_PER_S = 200.0
ASK_EVERY_S, ASK_TIMEOUT_S = 5.0, 5.0  # whether the API server is still there
LOOK_EVERY_S = 30.0  # how components are


@dataclass(frozen=True, slots=True)
class RealCluster:
    """Connections of a dashboard of a real cluster besides its source.

    ``reviewer`` connects to the API server that authorizes requests.
    """

    reviewer: Callable[[], Cluster]
    components: ComponentHealth
    read: ClusterReader


@with_flags
def dashboard(flags: DashboardFlags) -> None:
    """Show a cluster live in the browser: waiting pods with reasons, nodes, shares and time."""
    flags.check()
    clock, stopping = SystemClock(), stop_on_signals()
    with ExitStack() as cleanup:
        if flags.reads_cluster:
            live, cluster = _cluster(flags, clock, stopping, cleanup)
            serve(flags, live, clock, cleanup, cluster=cluster)
        else:
            other = _other_source(flags, clock)
            serve(flags, _source(flags, clock, cleanup), clock, cleanup, other=other)
        while not stopping.wait(0.5):
            pass


def serve(
    flags: DashboardFlags,
    source: ClusterSource,
    clock: Clock,
    cleanup: ExitStack,
    *,
    cluster: RealCluster | None = None,
    other: ClusterSource | None = None,
) -> Feed:
    """Follow a source and serve it from now on until ``cleanup``.

    ``cluster`` is what there is beside the source, if that is a real one; ``other`` is what readers
    compare the source with.
    Raises InputError for an address that can't be listened on, or may not.
    """
    feed = Feed(source, clock, cluster.components if cluster is not None else None)
    compared = None
    if other is not None:
        compared = ComparedRun(flags.compare_config, Feed(other, clock))
        compared.feed.start()
        cleanup.callback(compared.feed.stop)
    feed.start()
    cleanup.callback(feed.stop)
    for server, url in _servers(flags, feed, clock, cluster, compared):
        server.start()
        cleanup.callback(server.stop)
        shown = url.format(port=server.port)
        console(stderr=True).print(f"Dashboard: {shown}", soft_wrap=True, markup=False)
        if not flags.no_browser and has_browser():
            open_browser(shown)
    return feed


def _servers(
    flags: DashboardFlags,
    feed: Feed,
    clock: Clock,
    cluster: RealCluster | None,
    compared: ComparedRun | None,
) -> list[tuple[HttpServer, str]]:
    servers: list[tuple[HttpServer, str]] = []
    reviewer = cluster.reviewer if cluster is not None else None
    application = partial(
        dashboard_application,
        feed,
        read_text,
        clock,
        other=compared,
        archive=_archive(flags),
        planner=_planner(flags, feed.source, cluster.read if cluster is not None else None),
    )
    address = flags.address
    if address is not None:
        host, port = address
        policy = None
        if not is_loopback(host):
            policy = _reviewed(reviewer, clock)
            if policy is None:
                text = f"must be an address that only this machine reaches, got {flags.listen}"
                raise InputError(text, source="--listen")
        app = application(policy, hosts=LOCAL_NAMES if policy is None else ())
        name = "localhost" if policy is None else host
        servers.append((HttpServer(app, host, port, limits=LIMITS), f"http://{name}:{{port}}/"))
    if flags.secure_port:
        policy = _reviewed(reviewer, clock)
        if policy is None:
            raise InputError("requires a cluster", source="--secure-port")
        if flags.tls_cert_file is not None and flags.tls_private_key_file is not None:
            tls = context_of_files(flags.tls_cert_file, flags.tls_private_key_file)
        else:
            tls = self_signed_context(("localhost", "127.0.0.1", "koord-dashboard"), clock)
        server = HttpServer(
            application(policy), flags.bind_address, flags.secure_port, tls, limits=LIMITS
        )
        servers.append((server, "https://localhost:{port}/"))
    return servers


def _planner(
    flags: DashboardFlags, source: ClusterSource, read: ClusterReader | None
) -> MovePlanner:
    policy, origin = example_policy(source.configuration), "an example"
    if flags.descheduler_config is not None:
        origin = str(flags.descheduler_config)
        configuration = read_descheduler_configuration(flags.descheduler_config)
        descheduler_plugins_for(configuration)  # report missing plugins at start
        policy = flags.descheduler_config.read_text("utf-8")
    return MovePlanner(policy, origin, descheduler_plugins_for, plugins_for, read)


def _archive(flags: DashboardFlags) -> DecisionArchive | None:
    if flags.audit:
        archive = FileArchive(flags.audit)
        archive.newest(1)  # report unreadable files at start, not in the browser
        return archive
    if not flags.audit_server:
        return None
    from koordinator.cli.input.http_client import ComponentClient  # noqa: PLC0415 -- as of clusters

    own = (flags.audit_token, flags.audit_certificate_authority)
    if flags.audit_server.startswith("http:") and not any(own):  # send no credentials without TLS
        return ServerArchive(flags.audit_server, partial(ComponentClient().get, flags.audit_server))
    client = ComponentClient(
        kubeconfig=flags.kubeconfig,
        context=flags.context,
        in_cluster=flags.in_cluster,
        token=flags.audit_token,
        certificate_authority=flags.audit_certificate_authority,
        verifies=not flags.audit_insecure_skip_tls_verify,
    )
    return ServerArchive(flags.audit_server, partial(client.get, flags.audit_server))


def _reviewed(reviewer: Callable[[], Cluster] | None, clock: Clock) -> AccessPolicy | None:
    return None if reviewer is None else ReviewedAccess(reviewer(), clock)


# -- sources ---------------------------------------------------------------------------------


def _source(flags: DashboardFlags, clock: Clock, cleanup: ExitStack) -> ClusterSource:
    if flags.files:
        return _manifests(flags.files, flags.config, clock, cleanup)
    if flags.recording is not None:
        return _recording(flags, flags.recording, clock)
    return simulation_source(flags, clock)


def _other_source(flags: DashboardFlags, clock: Clock) -> ClusterSource | None:
    """Return the view with the other configuration; None without one."""
    if not flags.compare_config:
        return None
    changed = replace(flags, config=flags.compare_config)
    if flags.recording is not None:
        return _recording(changed, flags.recording, clock)
    return simulation_source(changed, clock)


def _manifests(
    paths: Sequence[str], config: str, clock: Clock, cleanup: ExitStack
) -> ManifestSource:
    if STDIN in paths:
        raise InputError("must be a file or folder, got -", source="-f")
    configuration = read_configuration(config)
    source = ManifestSource(
        ", ".join(paths),
        lambda: read_manifests(paths, on_notice=warn),
        lambda: _version(paths),
        configuration,
        clock.now_s,
        out_of_tree=plugins_for(configuration),
        config_name=config,
        connect=extender_connector(cleanup),
    )
    source.load()  # report unreadable manifests at start, not in the browser
    return source


def _version(paths: Sequence[str]) -> Hashable:
    """Return a value that changes when a file is changed, added or deleted."""
    versions: list[tuple[str, int, int]] = []
    for name in paths:
        try:
            for file in files_below(Path(name)):
                stat = os.stat(file)  # noqa: PTH116 -- one of thousands
                versions.append((str(file), stat.st_mtime_ns, stat.st_size))
        except (OSError, InputError):
            versions.append((name, 0, 0))
    return tuple(versions)


def simulation_source(flags: DashboardFlags, clock: Clock) -> SimulationSource:
    """Return the workload of the flags, ready to begin.  Raises InputError."""
    workload = demo_workload() if flags.workload == DEMO else read_workload(flags.workload)
    for sentence in unsimulated(workload):
        warn(sentence)
    configuration = read_configuration(flags.config, default_profile())
    trail = Audit(scores_share=SCORES_SHARE)
    simulation = Simulation(
        workload,
        configuration,
        seed=flags.seed,
        out_of_tree=plugins_for(configuration),
        source=flags.config,
        audit=trail,
        times_plugins=False,  # that the plugins themselves are asked costs nothing
    )
    speed = SIMULATED_SPEED if flags.speed is None else flags.speed
    return SimulationSource(simulation, configuration, clock, speed=speed, trail=trail)


def _recording(flags: DashboardFlags, path: Path, clock: Clock) -> RecordingSource:
    with opened_recording(path, warn) as recorded:
        header = recorded.header
        configuration = recorded_configuration(flags.config, header, str(path))

    def begin() -> ReplayRun:
        return ReplayRun.begin(
            header,
            configuration,
            out_of_tree=plugins_for(configuration),
            source=flags.config or str(path),
            audit=Audit(scores_share=SCORES_SHARE),
        )

    begin()  # report an invalid configuration at start, not in the browser
    speed = RECORDED_SPEED if flags.speed is None else flags.speed
    return RecordingSource(
        path.name, lambda: opened_recording(path, warn), begin, configuration, clock, speed=speed
    )


def _cluster(
    flags: DashboardFlags, clock: Clock, stopping: threading.Event, cleanup: ExitStack
) -> tuple[LiveClusterSource, RealCluster]:
    from koordinator.cluster.kubernetes.cluster import (  # noqa: PLC0415 -- loading it takes a
        KubernetesCluster,  # quarter of a second that manifests should not pay
    )
    from koordinator.cluster.kubernetes.connection import find_connection  # noqa: PLC0415
    from koordinator.cluster.kubernetes.credentials import Credentials  # noqa: PLC0415

    connection = find_connection(flags.kubeconfig, flags.context)
    credentials = Credentials(connection, clock)

    def connect(
        *, may_write: bool = False, qps: float | None = None, timeout_s: float = 30.0
    ) -> KubernetesCluster:
        cluster = KubernetesCluster(
            credentials,
            clock,
            may_write=lambda: may_write,
            qps=qps,
            timeout_s=timeout_s,
            user_agent="koord-dashboard",
        )
        cleanup.callback(cluster.close)
        return cluster

    configuration = read_configuration(flags.config)
    api_cluster = connect(timeout_s=ASK_TIMEOUT_S)
    components = ComponentHealth(api_cluster, CONFIG_NAMESPACE)
    contact = _Contact(api_cluster, clock, stopping, components)
    contact.start()
    followed = connect()
    source = LiveClusterSource(
        flags.context or flags.kubeconfig or "this cluster",
        followed,
        configuration,
        clock,
        out_of_tree=plugins_for(configuration),
        config_name=flags.config,
        gates=gates_of_component(flags.feature_gates, level_now(followed)),
        answered_s=lambda: contact.answered_s,
    )
    # A review is a question, but it is put by creating an object.
    reviewer = partial(connect, may_write=True, qps=REVIEWS_PER_S, timeout_s=10.0)
    reader = connect()
    return source, RealCluster(reviewer, components, lambda kind: reader.list(kind).items)


class _Contact:
    """Prober of the API server and the components; a silent watch may be a broken connection."""

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        stopping: threading.Event,
        components: ComponentHealth,
    ) -> None:
        self._cluster, self._clock, self._stopping = cluster, clock, stopping
        self._components = components
        self.answered_s = clock.now_s()
        self._thread = threading.Thread(target=self._run, name="contact", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        looked_s = 0.0
        while not self._stopping.wait(ASK_EVERY_S):
            if self._clock.now_s() - looked_s > LOOK_EVERY_S:
                looked_s = self._clock.now_s()
                self._components.check(looked_s)
            try:
                self._cluster.list(PriorityClass)  # there are few, in any cluster
            except ClusterError:
                continue
            self.answered_s = self._clock.now_s()


def read_text(text: str) -> Sequence[KubeObject]:
    """Return the objects of manifests that a user entered in the page.  Raises InputError."""
    return read_manifests([STDIN], io.BytesIO(text.encode()), on_notice=warn)
