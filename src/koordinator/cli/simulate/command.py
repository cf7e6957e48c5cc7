"""Command ``koord simulate``: a workload or a trace on the scheduler, in virtual time."""

import enum
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from koordinator.cli.component.dataclass_flags import with_flags
from koordinator.cli.component.flags import KubeVersionFlag, Print
from koordinator.cli.input.configuration import (
    CONFIGURATION_HELP,
    NAMED_CONFIGURATION,
    plugins_for,
    read_configuration,
)
from koordinator.cli.input.live import read_gates
from koordinator.cli.interruption import INTERRUPTED
from koordinator.cli.output import Output, check_writable, warn
from koordinator.cli.simulate.reports import print_comparison, print_report, run_watched, write_html
from koordinator.foundation.clock import Duration, SystemClock
from koordinator.foundation.errors import InputError
from koordinator.process.logs import RotatedFile
from koordinator.scheduler.features.audit import AUDIT_FILE, Audit
from koordinator.simulator import Simulation, SimulationResult, read_workload
from koordinator.simulator.configurations import default_profile
from koordinator.simulator.generation import unsimulated
from koordinator.simulator.recorder import RecordingFile
from koordinator.simulator.run import MoveSettings
from koordinator.simulator.workload import Workload

if TYPE_CHECKING:
    from koordinator.cli.simulate.trace import Replay


class TraceFormat(enum.StrEnum):
    """Supported formats of traces."""

    OPENB = "openb"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateFlags:
    """Workload or trace, scheduler, duration and output."""

    workload: Annotated[
        str,
        typer.Option(
            "--workload",
            "-w",
            help="YAML file that describes nodes and pods. With --trace: name or file of a pod "
            "list; by default the trace's default list.",
        ),
    ] = ""
    trace: Annotated[
        TraceFormat | None, typer.Option(help="Replay a trace of this format instead.")
    ] = None
    data: Annotated[
        Path | None, typer.Option(help="With --trace: folder of the trace's files.")
    ] = None
    policy: Annotated[str, typer.Option(help="With --trace: policy that places GPU pods.")] = ""
    tune: Annotated[
        float | None,
        typer.Option(
            help="With --trace: ratio of the GPU demand of all arrivals to the GPUs of the cluster."
        ),
    ] = None
    bound: Annotated[
        bool,
        typer.Option("--bound", help="With --trace: add a proven upper bound of the allocation."),
    ] = False
    departures: Annotated[
        bool,
        typer.Option(
            "--departures",
            help="With --trace: simulate a week in which pods arrive, wait, run for the duration "
            "in the list, and end.",
        ),
    ] = False
    migrate: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="With --workload or --departures: run a descheduler with at most this many moves "
            "per 1,000 arrivals.",
        ),
    ] = None
    descheduler_config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="With --workload and --migrate: file of a DeschedulerConfiguration. Default: "
            "LowNodeLoad if load is simulated, GPUDefragmentation if there are GPUs.",
        ),
    ] = None
    placements: Annotated[
        Path | None,
        typer.Option(help="With --trace: CSV file to write, with a line per arrival."),
    ] = None
    config: Annotated[
        str,
        typer.Option(
            metavar=NAMED_CONFIGURATION,
            help=f"{CONFIGURATION_HELP} Default: the configuration of koord demo.",
        ),
    ] = ""
    kube_version: KubeVersionFlag = ""
    seed: Annotated[
        int | None, typer.Option(min=0, help="Random seed. Default: the seed of the workload file.")
    ] = None
    until: Annotated[
        str,
        typer.Option(
            help="Virtual time at which the simulation stops, such as 36h. Default: the horizon of "
            "the workload file."
        ),
    ] = ""
    output: Print = Output.TABLE
    compare: Annotated[
        bool,
        typer.Option(
            "--compare", help="Run the workload also without colocation, and compare both runs."
        ),
    ] = False
    report: Annotated[Path | None, typer.Option(help="HTML report to write.")] = None
    record: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Recording of the scheduler's input to write for koord replay, such as "
            "run.jsonl.gz.",
        ),
    ] = None
    audit: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Folder to write the scheduler's decisions to, for koord audit."
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
        self.refuse(
            "can't be used with --migrate: migrations are neither recorded nor compared",
            *("compare", "record"),
        )
        if path is None:
            return MoveSettings(self.migrate)
        from koordinator.cli.descheduler.flags import (  # noqa: PLC0415 -- a descheduler is not
            read_descheduler_configuration,  # loaded unless a flag needs it
        )

        return MoveSettings(self.migrate, read_descheduler_configuration(path), str(path))

    def replay(self) -> "Replay":
        """Return the settings of the trace's replay.  Raises InputError without its files."""
        if self.data is None:
            problem = "is required with --trace: the folder of its files"
            raise InputError(problem, source="--data")
        from koordinator.cli.simulate.trace import Replay  # noqa: PLC0415 -- optional

        return Replay(
            self.data,
            self.workload,
            self.policy,
            self.tune,
            self.seed,
            self.output,
            self.placements,
            with_bound=self.bound,
            departures=self.departures,
            migrate=self.migrate,
        )


@with_flags
def simulate(flags: SimulateFlags) -> None:
    """Simulate a workload, or replay a trace, and report the outcome of its pods."""
    if flags.migrate is not None and not isfinite(flags.migrate):
        raise InputError(f"must be at least 0, got {flags.migrate}", source="--migrate")
    if flags.trace is not None:
        flags.refuse(
            "can't be used with --trace",
            *(
                "config",
                "kube_version",
                "until",
                "report",
                "compare",
                "record",
                "audit",
                "descheduler_config",
            ),
        )
        from koordinator.cli.simulate.trace import replay  # noqa: PLC0415 -- as above

        replay(flags.replay())
        return
    flags.refuse(
        "requires --trace",
        *("data", "policy", "tune", "bound", "placements", "departures"),
    )
    if not flags.workload:
        problem = "is required: a YAML file, or --trace with --data"
        raise InputError(problem, source="--workload")
    moves = flags.moves()
    described = read_workload(flags.workload)
    for sentence in unsimulated(described):
        warn(sentence)
    if flags.compare:
        flags.refuse("can't be used with --compare, which runs twice", "record", "audit")
        _check_comparable(described)

    configuration = read_configuration(flags.config, default_profile())
    out_of_tree = plugins_for(configuration)
    gates = read_gates("", flags.kube_version)

    def simulation_of(*, colocates: bool, audit: Audit | None = None) -> Simulation:
        return Simulation(
            described,
            configuration,
            seed=flags.seed,
            until_s=_seconds(flags.until) if flags.until else None,
            out_of_tree=out_of_tree,
            source=flags.config,
            colocates=colocates,
            audit=audit,
            moves=moves,
            gates=gates,
        )

    files = _Files(flags.report, flags.record, flags.audit)
    files.check()
    if _run(simulation_of, files, flags.output, compare=flags.compare):
        raise typer.Exit(INTERRUPTED)


@dataclass(frozen=True, slots=True)
class _Files:
    report: Path | None
    record: Path | None
    audit: Path | None  # a folder

    def check(self) -> None:
        """Raise InputError for files that can't be written, or that are the same file."""
        files = [file for file in (self.report, self.record) if file is not None]
        if len({file.resolve() for file in files}) < len(files):
            text = "must not be the file of --report"
            raise InputError(text, source="--record")
        for file in files:
            check_writable(file)
        if self.audit is not None and (self.audit / AUDIT_FILE).exists():
            # Virtual time starts at zero in each run, so two runs can't share a trail.
            text = f"must be a folder without {AUDIT_FILE}, got the folder of another run"
            raise InputError(text, source=str(self.audit))


def _run(
    simulation_of: Callable[..., Simulation], files: _Files, output: Output, *, compare: bool
) -> bool:
    """Run and print; return whether Ctrl-C ended it, which skips the second run."""
    report = files.report
    with ExitStack() as cleanup:
        trail: RotatedFile | None = None

        def keep(lines: bytes) -> None:
            if trail is not None:
                trail.write(lines)

        audit = Audit(keep) if files.audit is not None else None
        simulation = simulation_of(colocates=True, audit=audit)
        if files.audit is not None:  # not before the simulation could be built
            trail = cleanup.enter_context(closing(RotatedFile(files.audit, AUDIT_FILE)))
        record = None
        if files.record is not None:
            record = cleanup.enter_context(RecordingFile(files.record, SystemClock())).write
        before: SimulationResult | None = None
        if compare:
            before, is_interrupted = run_watched(simulation_of(colocates=False))
            if is_interrupted:
                print_report(before.report, output)
                if report is not None:
                    write_html(before, report)
                return True
        after, is_interrupted = run_watched(simulation, record)
    if before is None:
        print_report(after.report, output)
    else:
        print_comparison(before.report, after.report, output)
    if report is not None:
        write_html(after, report, before.report if before is not None else None)
    return is_interrupted


def _check_comparable(workload: Workload) -> None:
    if workload.colocation is None:
        raise InputError("requires a workload with the field colocation", source="--compare")


def _seconds(text: str) -> float:
    try:
        span_s = Duration.parse(text).total_seconds()
    except InputError as error:
        raise error.within(source="--until") from None
    if span_s <= 0:
        raise InputError(f"must be more than 0s, got {text}", source="--until")
    return span_s
