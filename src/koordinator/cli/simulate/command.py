"""Command ``koord simulate``: a source of pods on the scheduler, in virtual time."""

import enum
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from math import ceil, inf, isfinite
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from koordinator.api.kubescheduler import FeatureGates
from koordinator.cli.component.dataclass_flags import with_flags
from koordinator.cli.component.flags import KubeVersionFlag, Print, SchedulerGates
from koordinator.cli.input.configuration import (
    CONFIGURATION_HELP,
    NAMED_CONFIGURATION,
    PluginFiles,
    plugins_for,
    read_configuration,
)
from koordinator.cli.input.live import read_gates
from koordinator.cli.input.unused_objects import unused_objects
from koordinator.cli.output import Output, check_writable, print_data, warn
from koordinator.cli.simulate.reports import (
    INTERRUPTED,
    figures_of,
    print_arrivals,
    print_comparison,
    print_report,
    print_runs,
    run_watched,
    write_html,
    write_placements,
)
from koordinator.cli.simulate.variants import (
    COLOCATION,
    DESCHEDULER,
    PlannedRun,
    Variant,
    compared,
    planned_runs,
)
from koordinator.domain.gpus.mix import WHOLE_GPU
from koordinator.foundation.clock import SystemClock
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.process.logs import RotatedFile
from koordinator.scheduler.contract import PluginSpec
from koordinator.scheduler.features.audit import AUDIT_FILE, Audit
from koordinator.simulator import (
    POLICIES,
    MoveSettings,
    Simulation,
    SimulationResult,
    Source,
    load_plugins,
    load_source,
    proven_bound,
)
from koordinator.simulator.api import build_simulation
from koordinator.simulator.recorder import RecordingFile

DEFAULT_POLICY: Final = "price"  # of traces
WEEK_POLICIES: Final = ("price", "fgd")
PAIR: Final = 2


class TraceFormat(enum.StrEnum):
    """Supported formats of traces."""

    OPENB = "openb"
    ALIBABA_2025 = "alibaba-2025"
    PHILLY = "philly"
    HELIOS = "helios"
    GOOGLE_2019 = "google-2019"


class Protocol(enum.StrEnum):
    """Arrivals and departures of the pods of a trace."""

    ARRIVALS = "arrivals"
    TIMES = "times"


SOURCE = "Source"
SCHEDULER = "Scheduler"
RUNS = "Runs"
FILES = "Output"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateFlags:
    """Source, scheduler, runs and output."""

    workload: Annotated[
        str,
        typer.Option(
            "--workload",
            "-w",
            help="Source: a workload file, manifests (a file or a folder), or a recording of koord "
            "record or --record. With --trace: name or file of a pod list; by default the trace's "
            "default list.",
            rich_help_panel=SOURCE,
        ),
    ] = ""
    trace: Annotated[
        TraceFormat | None,
        typer.Option(
            help="Format of a trace, which is the source; --data is then required.",
            rich_help_panel=SOURCE,
        ),
    ] = None
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of the trace's files. Requires --trace.", rich_help_panel=SOURCE),
    ] = None
    protocol: Annotated[
        Protocol | None,
        typer.Option(
            help="arrivals: pods come one after another, never leave, and don't wait. times: pods "
            "come and go when the source says. Default: arrivals for --trace openb, else times.",
            rich_help_panel=SOURCE,
        ),
    ] = None
    tune: Annotated[
        float | None,
        typer.Option(
            help="Ratio of the GPU demand of all arrivals to the GPUs of the cluster. Requires "
            "--trace openb and the protocol arrivals.",
            rich_help_panel=SOURCE,
        ),
    ] = None
    departures: Annotated[
        bool,
        typer.Option(
            "--departures",
            help="Simulate a week on a model of the GPUs instead of the scheduler: pods arrive, "
            "wait, run for the duration in the list, and end. Requires --trace openb; only "
            f"--policy ({', '.join(WEEK_POLICIES)}), --seed and --migrate go with it.",
            rich_help_panel=SOURCE,
        ),
    ] = False
    policy: Annotated[
        str,
        typer.Option(
            help="Policy that scores nodes instead of the configuration's plugins: "
            f"{', '.join(POLICIES)}, or the name of a plugin of --plugin. Default for traces: "
            f"{DEFAULT_POLICY}, unless --config is given.",
            rich_help_panel=SCHEDULER,
        ),
    ] = ""
    config: Annotated[
        str,
        typer.Option(
            metavar=NAMED_CONFIGURATION,
            help=f"{CONFIGURATION_HELP} Default: of a workload, the configuration of koord demo; "
            "of manifests, both; of a recording, its own.",
            rich_help_panel=SCHEDULER,
        ),
    ] = ""
    plugin: PluginFiles = None
    feature_gates: SchedulerGates = ""
    kube_version: KubeVersionFlag = ""
    migrate: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Run a descheduler with at most this many moves per 1,000 arrivals.",
            rich_help_panel=SCHEDULER,
        ),
    ] = None
    descheduler_config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File of a DeschedulerConfiguration. Requires --migrate. Default: LowNodeLoad if "
            "load is simulated, GPUDefragmentation if there are GPUs.",
            rich_help_panel=SCHEDULER,
        ),
    ] = None
    seed: Annotated[
        list[int] | None,
        typer.Option(
            min=0,
            help="Random seed; several give one run each. Default: the seed of the workload file, "
            "42 for --trace openb.",
            rich_help_panel=RUNS,
        ),
    ] = None
    compare: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Compare runs, with one --compare for each: a policy, a configuration or its "
            "file, no-colocation, no-descheduler. A single one is compared with the run of the "
            "other flags.",
            rich_help_panel=RUNS,
        ),
    ] = None
    until: Annotated[
        str,
        typer.Option(
            help="Virtual time at which the simulation stops, such as 36h. Not for the protocol "
            "arrivals. Default: the horizon of the workload file, the end of other sources.",
            rich_help_panel=RUNS,
        ),
    ] = ""
    bound: Annotated[
        bool,
        typer.Option(
            "--bound",
            help="Add proven upper bounds of the GPU allocation. Requires the protocol arrivals.",
            rich_help_panel=FILES,
        ),
    ] = False
    placements: Annotated[
        Path | None,
        typer.Option(
            help="CSV file to write, with a line per pod.",
            rich_help_panel=FILES,
        ),
    ] = None
    output: Print = Output.TABLE
    report: Annotated[
        Path | None, typer.Option(help="HTML report to write.", rich_help_panel=FILES)
    ] = None
    record: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Recording of the scheduler's input to write for koord replay, such as "
            "run.jsonl.gz. Not with --migrate.",
            rich_help_panel=FILES,
        ),
    ] = None
    audit: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder to write the scheduler's decisions to, for koord audit.",
            rich_help_panel=FILES,
        ),
    ] = None

    def refuse(self, problem: str, *names: str) -> None:
        """Raise InputError for the first of these flags that is set."""
        for name in names:
            if getattr(self, name):
                raise InputError(problem, source=f"--{name.replace('_', '-')}")

    def moves(self) -> MoveSettings | None:
        """Return the settings of the descheduler; None without one.

        Raises InputError for contradictory flags and a policy that can't be read.
        """
        path = self.descheduler_config
        if self.migrate is None:
            if path is not None:
                raise InputError("requires --migrate", source="--descheduler-config")
            return None
        self.refuse("cannot be used with --migrate: a replay could not repeat the moves", "record")
        if path is None:
            return MoveSettings(self.migrate)
        from koordinator.cli.descheduler.flags import (  # noqa: PLC0415 -- a descheduler is not
            read_descheduler_configuration,  # loaded unless a flag needs it
        )

        return MoveSettings(self.migrate, read_descheduler_configuration(path), str(path))

    def source(self) -> Source:
        """Return the source.  Raises InputError for contradictory flags and unreadable files."""
        protocol = "" if self.protocol is None else str(self.protocol)
        if self.trace is not None:
            if self.trace is not TraceFormat.OPENB and self.workload:
                text = "cannot be used with this trace, which has one list of jobs"
                raise InputError(text, source="--workload")
            if self.data is None:
                problem = "is required with --trace: the folder of its files"
                raise InputError(problem, source="--data")
            return load_source(
                self.data,
                trace=str(self.trace),
                pods=self.workload,
                demand=self.tune,
                protocol=protocol,
                on_notice=warn,
            )
        self.refuse("requires --trace", "data")
        self.refuse("requires --trace openb", "tune")
        if not self.workload:
            problem = "is required: a YAML file, or --trace with --data"
            raise InputError(problem, source="--workload")
        return load_source(self.workload, protocol=protocol, on_notice=warn)


@with_flags
def simulate(flags: SimulateFlags) -> None:
    """Simulate a workload, manifests, a trace or a recording, and report the outcome of its pods.

    Every option goes with every source unless its help names what it requires.
    """
    if flags.migrate is not None and not isfinite(flags.migrate):
        raise InputError(f"must be at least 0, got {flags.migrate}", source="--migrate")
    if flags.departures:
        _simulate_week(flags)
        return
    moves = flags.moves()
    source = flags.source()
    plugins = load_plugins(flags.plugin or ())
    given = Variant(flags.policy, flags.config, descheduler=moves is not None)
    if source.kind == "trace" and not (flags.policy or flags.config):
        given = replace(given, policy=DEFAULT_POLICY)
    names = flags.compare or []
    variants = compared(given, names, [spec.name for spec in plugins])
    _check_switches(flags, source, names)
    runs = list(planned_runs(variants, flags.seed or []))
    gates = read_gates(flags.feature_gates, flags.kube_version)
    for sentence in (*source.notices, *_unused(source, variants, plugins, gates)):
        warn(sentence)
    shared = _Shared(flags, source, plugins, moves, gates)
    for run in runs:
        shared.check_files(run)
    results, figures = [], []
    is_interrupted = False
    for run in runs:
        result, figure, is_interrupted = shared.run(run)
        results.append(result)
        figures.append(figure)
        if is_interrupted:
            break
    _print(flags.output, results, figures, is_pair=len(names) > 0 and len(runs) == PAIR)
    if flags.report is not None:
        _write_reports(runs, results, flags.report, is_pair=len(names) > 0 and len(runs) == PAIR)
    if is_interrupted:
        raise typer.Exit(INTERRUPTED)


def _unused(
    source: Source,
    variants: Sequence[Variant],
    plugins: tuple[PluginSpec[Any], ...],
    gates: FeatureGates,
) -> list[str]:
    """Return a sentence for each thing of manifests that no plugin reads in one of the runs."""
    if source.kind != "manifests":
        return []
    plan = source.generate(0, inf)
    objects = [*plan.objects, *(each.pod for each in plan.submissions)]
    sentences: list[str] = []
    for name in dict.fromkeys(variant.config for variant in variants):
        configuration = read_configuration(name) if name else source.configuration()
        installed = plugins_for(configuration)
        sentences += unused_objects(
            objects, configuration, out_of_tree=(*installed, *plugins), source=name, gates=gates
        )
    return list(dict.fromkeys(sentences))


def _check_switches(flags: SimulateFlags, source: Source, names: Sequence[str]) -> None:
    """Raise InputError for a comparison with a part that the run does not have."""
    has_colocation = source.workload is not None and source.workload.colocation is not None
    for name in names:
        if name.endswith(COLOCATION) and not has_colocation:
            problem = "requires a workload with the field colocation"
            raise InputError(problem, source=f"--compare {name}")
        if name.endswith(DESCHEDULER) and flags.migrate is None:
            problem = "requires --migrate, the number of moves of the descheduler"
            raise InputError(problem, source=f"--compare {name}")


@dataclass(frozen=True, slots=True)
class _Shared:
    """Arguments that all runs of a command share."""

    flags: SimulateFlags
    source: Source
    plugins: tuple[PluginSpec[Any], ...]
    moves: MoveSettings | None
    gates: FeatureGates

    def check_files(self, run: PlannedRun) -> None:
        """Raise InputError for files that can't be written, or that are the same file."""
        flags = self.flags
        known: dict[Path, str] = {}
        for name in ("report", "record", "placements"):
            file = run.file(getattr(flags, name))
            if file is None:
                continue
            if file.resolve() in known:
                text = f"must not be the file of --{known[file.resolve()]}"
                raise InputError(text, source=f"--{name}")
            known[file.resolve()] = name
        for file in known:
            check_writable(file)
        audit = run.file(flags.audit)
        if audit is not None and (audit / AUDIT_FILE).exists():
            # Virtual time starts at zero in each run, so two runs can't share a trail.
            text = f"must be a folder without {AUDIT_FILE}, got the folder of another run"
            raise InputError(text, source=str(audit))

    def run(self, run: PlannedRun) -> tuple[SimulationResult, dict[str, Any], bool]:
        """Run once; return result, figures, and whether Ctrl-C ended it."""
        flags, variant = self.flags, run.variant
        audit_folder, record_file = run.file(flags.audit), run.file(flags.record)
        with ExitStack() as cleanup:
            trail: RotatedFile | None = None

            def keep(lines: bytes) -> None:
                if trail is not None:
                    trail.write(lines)

            simulation = self._simulation(run, Audit(keep) if audit_folder is not None else None)
            if flags.bound:
                bound = _bound(simulation)
            if audit_folder is not None:  # not before the simulation could be built
                trail = cleanup.enter_context(closing(RotatedFile(audit_folder, AUDIT_FILE)))
            record = None
            if record_file is not None:
                record = cleanup.enter_context(RecordingFile(record_file, SystemClock())).write
            result, is_interrupted = run_watched(simulation, record)
        if variant.label:
            result = replace(result, labels={"variant": variant.label})
        placements = run.file(flags.placements)
        if placements is not None:
            write_placements(placements, result)
        return result, figures_of(result, bound if flags.bound else None), is_interrupted

    def _simulation(self, run: PlannedRun, audit: Audit | None) -> Simulation:
        flags, variant = self.flags, run.variant
        configuration = None
        if variant.config:
            configuration = read_configuration(variant.config)
        installed = plugins_for(configuration or self.source.configuration())
        return build_simulation(
            self.source,
            configuration,
            policy=variant.policy,
            plugins=self.plugins,
            seed=run.seed,
            until=flags.until or None,
            migrate=self.moves if variant.descheduler else None,
            colocates=variant.colocates,
            audit=audit,
            gates=self.gates,
            installed=installed,
            name=variant.config,
        )


def _bound(simulation: Simulation) -> dict[str, Any]:
    gpus = sum(group.gpus for group in simulation.recorder.groups)
    if not gpus:
        raise InputError("requires a cluster with GPUs", source="--bound")
    proven = proven_bound(simulation)
    percent = 100 / (gpus * WHOLE_GPU)
    bounds = {"gpuAllocatedPercent": _rounded_up(percent * proven.gpu_milli)}
    if simulation.is_conserving:
        conserving = proven_bound(simulation, conserving=True)
        bounds["workConservingPercent"] = _rounded_up(percent * conserving.gpu_milli)
    return {**bounds, "method": proven.method}


def _rounded_up(percent: float) -> float:
    """Round a bound to two digits without making it too low; 1e-6 is for the arithmetic's error."""
    return ceil(100 * percent - 1e-6) / 100


def _print(
    output: Output,
    results: Sequence[SimulationResult],
    figures: Sequence[dict[str, Any]],
    *,
    is_pair: bool,
) -> None:
    if len(results) == 1:
        if results[0].curve is None:
            print_report(results[0].report, output)
        elif output is Output.TABLE:
            print_arrivals(results[0], figures[0])
        else:
            print_data(figures[0], output)
    elif is_pair and all(result.report.colocation is not None for result in results):
        print_comparison(results[0].report, results[1].report, output)
    else:
        print_runs(results, figures, output)


def _write_reports(
    runs: Sequence[PlannedRun], results: Sequence[SimulationResult], path: Path, *, is_pair: bool
) -> None:
    """Write a page per run; of two runs that are compared, one page with both."""
    if is_pair and len(results) == PAIR:
        write_html(results[1], path, results[0].report)
        return
    for run, result in zip(runs, results, strict=False):
        file = path if is_pair else run.file(path)
        if file is not None:
            write_html(result, file)


def _simulate_week(flags: SimulateFlags) -> None:
    if flags.trace is not TraceFormat.OPENB:
        raise InputError("requires --trace openb", source="--departures")
    flags.refuse(
        "cannot be used with --departures, which runs no scheduler; --protocol times does",
        *(
            "config",
            "plugin",
            "feature_gates",
            "kube_version",
            "until",
            "report",
            "record",
            "audit",
        ),
        *("descheduler_config", "compare", "placements", "bound", "protocol"),
    )
    if flags.tune is not None:
        text = "cannot be used with --departures: the demand is that of a week in a steady state"
        raise InputError(text, source="--tune")
    if flags.data is None:
        raise InputError("is required with --trace: the folder of its files", source="--data")
    from koordinator.cli.simulate.week import simulate_weeks  # noqa: PLC0415 -- optional

    policy = flags.policy or DEFAULT_POLICY
    simulate_weeks(
        flags.data,
        flags.workload,
        policy,
        flags.seed or [],
        output=flags.output,
        migrate=flags.migrate,
    )
