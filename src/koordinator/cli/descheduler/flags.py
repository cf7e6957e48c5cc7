"""Flags of ``koord descheduler``, from koord-descheduler, and of ``koord descheduler plan``."""

from dataclasses import field
from pathlib import Path
from typing import Annotated, Final

import typer
from msgspec.structs import replace

from koordinator.api.codec import with_all_fields
from koordinator.cli.component.flags import (
    KUBECONFIG_CONTEXT,
    ONCE,
    READ_CLUSTER,
    WRITE_CONFIG,
    ConnectionFlags,
    KubeVersionFlag,
    ManifestFiles,
    Now,
    OnceFiles,
    OnceNow,
    OncePrint,
    PageFlags,
    Print,
    ProcessFlags,
    Strict,
)
from koordinator.cli.input.configuration import CONFIGURATION_HELP, NAMED_CONFIGURATION
from koordinator.cli.output import Output, write_text
from koordinator.cli.scheduler.flags import SchedulerElectionFlags
from koordinator.descheduler.configuration import (
    DESCHEDULER_API_VERSION,
    SECURE_PORT,
    DeschedulerConfiguration,
    decode_descheduler_configuration,
)
from koordinator.foundation.errors import InputError
from koordinator.foundation.feature_gates import SOURCE, parse_feature_gates
from koordinator.foundation.files import LARGEST_CONFIGURATION_BYTES, read_file
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.yaml_documents import to_yaml, yaml_document

GATES = (
    "DisablePVCReservation",  # reservations of moved pods have no volumes
)
SCHEDULER_GATES: Final = "--scheduler-feature-gates"
ProverGates = Annotated[
    str,
    typer.Option(
        SCHEDULER_GATES,
        metavar="NAME=true,...",
        help="Feature gates of the scheduler that checks whether moved pods fit elsewhere: the "
        "--feature-gates of koord scheduler.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeschedulerFlags:
    """Values of the command line; no file has been read yet."""

    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File of a DeschedulerConfiguration. Default: a configuration without plugins.",
        ),
    ] = None
    connection: ConnectionFlags = field(default_factory=ConnectionFlags)
    write_config_to: Annotated[Path | None, typer.Option(help=WRITE_CONFIG)] = None
    election: SchedulerElectionFlags = field(default_factory=SchedulerElectionFlags)
    pages: PageFlags = field(
        default_factory=lambda: PageFlags(
            secure_port=SECURE_PORT,
            bind_address="0.0.0.0",  # noqa: S104 -- the original's
        )
    )
    audit_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder to write the outcome of each eviction candidate to, for koord audit and "
            "koord explain pod --audit.",
        ),
    ] = None
    feature_gates: Annotated[
        str,
        typer.Option(
            metavar="NAME=true,...",
            help=f"Feature gates to set. Known gates: {', '.join(GATES)}.",
        ),
    ] = ""
    process: ProcessFlags = field(default_factory=ProcessFlags)
    once: Annotated[
        bool,
        typer.Option(
            "--once",
            help="Run cycles over the objects of -f, and print all objects that were written.",
            rich_help_panel=ONCE,
        ),
    ] = False
    files: OnceFiles = None
    now: OnceNow = ""
    cycles: Annotated[
        int,
        typer.Option(
            help="Number of cycles; they are one descheduling interval apart.",
            min=1,
            max=1000,
            rich_help_panel=ONCE,
        ),
    ] = 1
    scheduler_config: Annotated[
        str,
        typer.Option(
            metavar=NAMED_CONFIGURATION,
            help="Configuration of the scheduler that checks whether moved pods fit elsewhere; "
            "pods whose schedulerName has no profile are not moved. With --once, evicted pods are "
            "also replaced and scheduled until every job has ended. "
            f"{CONFIGURATION_HELP} Default: both, each for its schedulerName; --once then "
            "schedules nothing.",
        ),
    ] = ""
    scheduler_feature_gates: ProverGates = ""
    kube_version: KubeVersionFlag = ""
    output: OncePrint = Output.YAML

    @property
    def source(self) -> str:
        """Name of the configuration in messages."""
        return str(self.config or "")

    @property
    def gates(self) -> frozenset[str]:
        """Enabled feature gates.  Raises InputError."""
        return parse_gates(self.feature_gates)

    def configuration(self) -> DeschedulerConfiguration:
        """Return the configuration of the file with the flags applied.  Raises InputError."""
        configuration = DeschedulerConfiguration()
        if self.config is not None:
            configuration = read_descheduler_configuration(self.config)
        election = self.election.over_election(configuration.leader_election)
        return replace(configuration, leader_election=election)


def write_descheduler_configuration(configuration: DeschedulerConfiguration, path: Path) -> None:
    """Write the configuration with all its defaults.  Raises InputError if writing fails."""
    head = {"apiVersion": DESCHEDULER_API_VERSION, "kind": type(configuration).__name__}
    text = to_yaml({**head, **with_all_fields(configuration)})
    write_text(text, path)


def read_descheduler_configuration(path: Path) -> DeschedulerConfiguration:
    """Return the configuration of a file.  Raises InputError naming file and path."""
    try:
        text = read_file(path, LARGEST_CONFIGURATION_BYTES)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=str(path)) from None
    return decode_descheduler_configuration(yaml_document(text, str(path)), str(path))


def parse_gates(text: str) -> frozenset[str]:
    """Return the enabled feature gates.  Raises InputError."""
    gates = parse_feature_gates(text, beta=GATES)
    unknown = [name for name in gates if name not in GATES]
    if unknown:
        accepted = f"{', '.join(GATES)} with =true or =false"
        raise InputError(f"must be one of {accepted}, got {unknown[0]!r}", source=SOURCE)
    return frozenset(name for name, is_on in gates.items() if is_on)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFlags:
    """Cluster, policy and output of a plan."""

    files: ManifestFiles = None
    kubeconfig: Annotated[str, typer.Option(help=READ_CLUSTER)] = ""
    context: Annotated[str, typer.Option(help=KUBECONFIG_CONTEXT)] = ""
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File of a DeschedulerConfiguration.")
    ] = None
    scheduler_config: Annotated[
        str,
        typer.Option(
            metavar=NAMED_CONFIGURATION,
            help="Configuration of the scheduler that checks whether moved pods fit elsewhere. "
            f"{CONFIGURATION_HELP} Default: both, each for its schedulerName.",
        ),
    ] = ""
    scheduler_feature_gates: ProverGates = ""
    cycles: Annotated[
        int,
        typer.Option(
            min=1, max=1000, help="Most cycles to run; the first one with a candidate is the last."
        ),
    ] = 10  # by default a node counts as hot after fewer consecutive observations
    now: Now = ""
    feature_gates: Annotated[
        str,
        typer.Option(
            metavar="NAME=true,...",
            help="Feature gates of the descheduler: see koord descheduler --help.",
        ),
    ] = ""
    kube_version: KubeVersionFlag = ""
    strict: Strict = False
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write an HTML page that compares before and after."),
    ] = None
    apply: Annotated[
        bool,
        typer.Option("--apply", help="Create the PodMigrationJobs of the plan in the cluster."),
    ] = False
    output: Print = Output.TABLE
