"""Python API: ``schedule`` and ``simulate`` on paths or objects, with plugins of one's own."""

from collections.abc import Callable, Iterable, Mapping
from math import inf, isfinite
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from koordinator.api.kubescheduler import (
    NO_GATES,
    FeatureGates,
    KubeSchedulerConfiguration,
    decode_configuration,
)
from koordinator.api.meta import KubeObject
from koordinator.foundation.clock import Clock, Duration
from koordinator.foundation.errors import InputError
from koordinator.foundation.files import LARGEST_CONFIGURATION_BYTES, read_file
from koordinator.foundation.yaml_documents import yaml_document
from koordinator.scheduler.contract import PluginSpec
from koordinator.scheduler.features.audit import Audit
from koordinator.simulator.embedded import STOCK, ScheduleResult
from koordinator.simulator.embedded import schedule as schedule_objects
from koordinator.simulator.manifests.reader import read_manifests
from koordinator.simulator.plugin_files import load_plugins
from koordinator.simulator.policies import BY_NAME, with_plugins
from koordinator.simulator.results import SimulationResult
from koordinator.simulator.run import MoveSettings, Simulation
from koordinator.simulator.sources.google import google_source
from koordinator.simulator.sources.gpu_clusters import (
    alibaba_2025_source,
    helios_source,
    philly_source,
)
from koordinator.simulator.sources.manifests import manifest_source, object_source
from koordinator.simulator.sources.recordings import recording_source
from koordinator.simulator.sources.source import Source, as_arrivals, workload_source
from koordinator.simulator.workload import Workload
from koordinator.simulator.workload_file import read_workload

if TYPE_CHECKING:  # an optional part
    from koordinator.simulator.research.bound import AllocationBound

#: How pods come and go: one after another without leaving, or at the times of the source.
PROTOCOLS: Final = ("arrivals", "times")
OPENB: Final = "openb"
#: Readers of the folders of traces by format; openb has further arguments.
TRACE_READERS: Final[Mapping[str, Callable[[Path], Source]]] = MappingProxyType(
    {
        "alibaba-2025": alibaba_2025_source,
        "philly": philly_source,
        "helios": helios_source,
        "google-2019": google_source,
    }
)
TRACES: Final = (OPENB, *TRACE_READERS)
_OPENB_AT: Final = "https://github.com/alibaba/clusterdata/tree/master/cluster-trace-gpu-v2023"

AnySource = Source | Workload | Path | str | Iterable[KubeObject]
PluginSources = Iterable[PluginSpec[Any] | Path | str] | PluginSpec[Any] | Path | str


def load_source(
    source: AnySource,
    *,
    trace: str = "",
    pods: str = "",
    demand: float | None = None,
    protocol: str = "",
    topology: bool = False,
    on_notice: Callable[[str], object] | None = None,
) -> Source:
    """Return the source of a simulation.

    ``source`` is a workload file, a Workload, manifests as a file, folder or objects, a recording,
    or the folder of a trace, whose format ``trace`` names.  ``pods`` is the name or file of a
    trace's pod list.  ``protocol`` is one of ``PROTOCOLS``: arrivals by default for openb,
    otherwise times.  ``demand`` is the GPU demand of all arrivals of openb as a ratio of the
    cluster's GPUs.  ``topology`` adds the assumed wiring of openb's GPUs.  ``on_notice`` receives a
    sentence for each object of manifests that has no effect.

    Raises InputError for contradictory arguments and files that can't be read.
    """
    if protocol not in {"", *PROTOCOLS}:
        accepted = ", ".join(PROTOCOLS)
        raise InputError(f"must be one of {accepted}, got {protocol!r}", source="--protocol")
    if demand is not None and not 0 < demand < inf:
        raise InputError(f"must be a ratio over 0, got {demand}", source="--tune")
    if trace:
        if trace not in TRACES:
            text = f"must be one of {', '.join(TRACES)}, got {trace!r}"
            raise InputError(text, source="--trace")
        folder = Path(str(source))
        if trace == OPENB:
            return _openb(folder, pods, demand, protocol, topology=topology)
        _check_openb_only(demand, pods, topology=topology)
        loaded = TRACE_READERS[trace](folder)
        return as_arrivals(loaded) if protocol == "arrivals" else loaded
    _check_openb_only(demand, pods, topology=topology)
    if isinstance(source, Path | str):
        source = _read(Path(source), on_notice)
    elif isinstance(source, Workload):
        source = workload_source(source)
    elif not isinstance(source, Source):
        source = object_source(source)
    return as_arrivals(source) if protocol == "arrivals" else source


def _check_openb_only(demand: float | None, pods: str, *, topology: bool) -> None:
    given = {"--tune": demand is not None, "topology": topology, "pods": bool(pods)}
    for name, is_given in given.items():
        if is_given:
            raise InputError("requires --trace openb", source=name)


def _read(path: Path, on_notice: Callable[[str], object] | None) -> Source:
    """Return the source of a path: a recording, manifests or a workload."""
    name = path.name.removesuffix(".gz")
    if name.endswith(".jsonl"):
        return recording_source(path, on_notice)
    if path.is_dir() or name.endswith(".json") or path.suffix == ".gz" or _has_kinds(path):
        return manifest_source([path], on_notice)
    return workload_source(read_workload(path))


def _has_kinds(path: Path) -> bool:
    """Return whether a YAML file has manifests: a line with the kind of an object."""
    try:
        with path.open("rb") as file:
            return any(line.startswith((b"kind:", b"- kind:")) for line in file)
    except OSError:
        return False  # ``read_workload`` reports it


def _openb(
    folder: Path, pods: str, demand: float | None, protocol: str, *, topology: bool
) -> Source:
    from koordinator.simulator.research.openb import (  # noqa: PLC0415 -- an optional part
        NODE_FILE,
        read_trace,
    )
    from koordinator.simulator.sources.openb import (  # noqa: PLC0415
        arriving_openb,
        timed_openb,
    )

    if not any((folder / name).exists() for name in (NODE_FILE, f"{NODE_FILE}.gz")):
        text = f"{NODE_FILE} is missing; the trace is at {_OPENB_AT}"
        raise InputError(text, source=str(folder))
    read = read_trace(folder, pods or "default")
    if protocol == "times":
        if demand is not None:
            text = "cannot be used with --protocol times: the trace's own demand arrives"
            raise InputError(text, source="--tune")
        return timed_openb(read, with_topology=topology)
    ratio = read.demand_ratio if demand is None else demand
    return arriving_openb(read, ratio, folder, with_topology=topology)


def simulate(
    source: AnySource,
    config: KubeSchedulerConfiguration | Path | str | None = None,
    *,
    policy: str = "",
    plugins: PluginSources = (),
    seed: int | None = None,
    until: float | str | None = None,
    trace: str = "",
    pods: str = "",
    demand: float | None = None,
    protocol: str = "",
    topology: bool = False,
    migrate: float | MoveSettings | None = None,
    colocates: bool = True,
    gates: FeatureGates = NO_GATES,
    audit: Audit | None = None,
    record: Callable[[bytes], object] | None = None,
    stopwatch: Clock | None = None,
    on_sample: Callable[[], None] | None = None,
) -> SimulationResult:
    """Run a source through the scheduler in virtual time, and return what became of its pods.

    ``source`` is a workload file, a Workload, a trace's folder, or what ``load_source`` returned;
    ``trace``, ``pods``, ``demand``, ``protocol`` and ``topology`` are as for ``load_source``.
    ``config`` is a configuration, its file, or ``koordinator`` or ``kubernetes``; by default that
    of the source, which is the demo's profile for workloads.  ``policy`` scores the nodes instead
    of the configuration's plugins: one of ``POLICIES``, or the name of one of ``plugins``, which
    are PluginSpec objects, ``FILE.py`` or ``FILE.py:NAME``.  ``seed`` overrides the source's, and
    ``until`` its end, in seconds or as ``36h``.  ``migrate`` adds a descheduler with so many moves
    per 1,000 arrivals.  ``colocates`` false runs a workload with colocation without it.  ``audit``
    and ``record`` receive decisions and the lines of a recording.  ``on_sample`` is called after
    each sample; RunInterrupted, raised by it, ends the run with its result so far.

    Raises InputError for wrong arguments, PluginError for an exception of one's own plugin.
    """
    loaded = load_source(
        source, trace=trace, pods=pods, demand=demand, protocol=protocol, topology=topology
    )
    simulation = build_simulation(
        loaded,
        config,
        policy=policy,
        plugins=plugins,
        seed=seed,
        until=until,
        migrate=migrate,
        colocates=colocates,
        gates=gates,
        audit=audit,
        stopwatch=stopwatch,
    )
    return simulation.run(on_sample, record=record)


def build_simulation(
    source: Source,
    config: KubeSchedulerConfiguration | Path | str | None = None,
    *,
    policy: str = "",
    plugins: PluginSources = (),
    seed: int | None = None,
    until: float | str | None = None,
    migrate: float | MoveSettings | None = None,
    installed: Iterable[PluginSpec[Any]] = (),
    name: str = "",
    **more: Any,
) -> Simulation:
    """Return a simulation before its start; see ``simulate``.

    ``installed`` are plugins that run only if the configuration names them; ``name`` is the
    configuration's in errors.
    """
    own = load_plugins(plugins)
    until_s = None if until is None else _seconds(until)
    if until_s is not None and source.timeless:
        text = f"cannot be used with --protocol arrivals, where {source.timeless}"
        raise InputError(text, source="--until")
    if isinstance(migrate, float | int):
        if not isfinite(migrate) or migrate < 0:
            raise InputError(f"must be at least 0, got {migrate}", source="--migrate")
        migrate = MoveSettings(migrate)
    configuration, named = _configuration(config)
    return Simulation(
        source,
        configuration,
        policy=policy,
        seed=seed,
        until_s=until_s,
        out_of_tree=own,
        source=name or named,
        installed=installed,
        moves=migrate,
        **more,
    )


def _configuration(
    given: KubeSchedulerConfiguration | Path | str | None,
) -> tuple[KubeSchedulerConfiguration | None, str]:
    """Return the configuration, None for the source's own, and its name."""
    if given is None or given == "":
        return None, ""
    if isinstance(given, KubeSchedulerConfiguration):
        return given, ""
    if isinstance(given, str) and given in BY_NAME:
        return BY_NAME[given](), given
    path = Path(given)
    try:
        text = read_file(path, LARGEST_CONFIGURATION_BYTES)
    except OSError as error:
        text_ = f"{error.strerror}; must be a file, {' or '.join(BY_NAME)}"
        raise InputError(text_, source=str(path)) from None
    return decode_configuration(yaml_document(text, str(path)), str(path)), str(path)


def schedule(
    objects: Iterable[KubeObject] | Path | str,
    config: KubeSchedulerConfiguration | Path | str | None = None,
    *,
    plugins: PluginSources = (),
    **more: Any,
) -> ScheduleResult:
    """Schedule the pending pods of manifests and return every decision.

    ``objects`` are a file or folder of manifests, or their objects.  ``config`` and ``plugins`` are
    as for ``simulate``; the default is kube-scheduler's configuration.  Further arguments are those
    of ``embedded.schedule``.  Raises InputError, and InvalidError for an object that admission
    rejects.  A fault of a plugin affects its pods only and is listed in ``faults`` of the result.
    """
    if isinstance(objects, Path | str):
        objects = read_manifests([str(objects)])
    own = load_plugins(plugins)
    configuration, name = _configuration(config)
    more = {"out_of_tree": own, **more} if own else more
    more.setdefault("source", name)
    return schedule_objects(objects, with_plugins(configuration or STOCK, own), **more)


def proven_bound(simulation: Simulation, *, conserving: bool = False) -> "AllocationBound":
    """Return a proven upper bound of the GPU milli that any placement could allocate.

    ``conserving``: that any policy could allocate that places every pod that fits a node, which
    requires ``simulation.is_conserving``.

    Raises InputError unless all pods arrive and stay.
    """
    if not simulation.source.endless:
        text = "requires --protocol arrivals: the bound is of pods that stay, and these come and go"
        raise InputError(text, source="--bound")
    from koordinator.simulator.research.bound import bound_of_plan  # noqa: PLC0415 -- optional

    if conserving and not simulation.is_conserving:
        text = "requires openb with arrivals, without a descheduler"
        raise InputError(text, source="conserving")
    return bound_of_plan(simulation.plan, conserving=conserving)


def _seconds(until: float | str) -> float:
    if isinstance(until, str):
        try:
            until = Duration.parse(until).total_seconds()
        except InputError as error:
            raise error.within(source="--until") from None
    if not 0 < until < inf:
        raise InputError(f"must be more than 0s, got {until:g}s", source="--until")
    return until
