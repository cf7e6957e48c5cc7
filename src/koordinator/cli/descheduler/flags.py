"""Flags of ``koord descheduler``, which are those of koord-descheduler, and of its ``plan``."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import replace

from koordinator.api.codec import spelt_out
from koordinator.cli.component.flags import (
    ONCE,
    ConnectionFlags,
    Files,
    KubeVersionFlag,
    Now,
    OnceFiles,
    OnceNow,
    OncePrint,
    PageFlags,
    Print,
    ProcessFlags,
    Strict,
)
from koordinator.cli.input.configuration import NAMED_CONFIGURATION, WHAT_NAMES_MEAN
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
from koordinator.foundation.yaml_documents import to_yaml, yaml_document

GATES = ("DisablePVCReservation",)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeschedulerFlags:
    """What the command line says; no file is read yet."""

    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="DeschedulerConfiguration; default: no plugin looks."),
    ] = None
    connection: ConnectionFlags = field(default_factory=ConnectionFlags)
    write_config_to: Annotated[
        Path | None, typer.Option(help="Write the configuration that would be used, and exit.")
    ] = None
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
            help="Keep here what became of each pod that a plugin wanted to go: koord audit, "
            "koord explain pod --audit.",
        ),
    ] = None
    feature_gates: Annotated[
        str, typer.Option(metavar="NAME=true,...", help=f"Known: {', '.join(GATES)}.")
    ] = ""
    process: ProcessFlags = field(default_factory=ProcessFlags)
    once: Annotated[
        bool,
        typer.Option(
            "--once",
            help="Run a cycle over the objects given with -f and print what was written.",
            rich_help_panel=ONCE,
        ),
    ] = False
    files: OnceFiles = None
    now: OnceNow = ""
    cycles: Annotated[
        int,
        typer.Option(help="How many, an interval apart.", min=1, max=1000, rich_help_panel=ONCE),
    ] = 1
    scheduler_config: Annotated[
        str,
        typer.Option(
            metavar=NAMED_CONFIGURATION,
            help="The configuration of the scheduler by which moves are proven; pods of a "
            "schedulerName without profile stay. With --once what is evicted is also replaced and "
            f"scheduled until every job has ended. {WHAT_NAMES_MEAN} Default: both, each for its "
            "schedulerName; nothing is scheduled.",
        ),
    ] = ""
    output: OncePrint = Output.YAML

    @property
    def source(self) -> str:
        """What messages call the configuration."""
        return str(self.config or "")

    @property
    def gates(self) -> frozenset[str]:
        """The feature gates that are on.  Raises InputError."""
        return parse_gates(self.feature_gates)

    def configuration(self) -> DeschedulerConfiguration:
        """Return the configuration of the file as the flags change it.  Raises InputError."""
        configuration = DeschedulerConfiguration()
        if self.config is not None:
            configuration = read_descheduler_configuration(self.config)
        election = self.election.over_election(configuration.leader_election)
        return replace(configuration, leader_election=election)


def write_descheduler_configuration(configuration: DeschedulerConfiguration, path: Path) -> None:
    """Write the configuration with all its defaults.  Raises InputError if that is impossible."""
    head = {"apiVersion": DESCHEDULER_API_VERSION, "kind": type(configuration).__name__}
    text = to_yaml({**head, **spelt_out(configuration)})
    write_text(text, path)


def read_descheduler_configuration(path: Path) -> DeschedulerConfiguration:
    """Return the configuration of a file.  Raises InputError naming file and path."""
    try:
        text = read_file(path, LARGEST_CONFIGURATION_BYTES)
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror}", source=str(path)) from None
    return decode_descheduler_configuration(yaml_document(text, str(path)), str(path))


def parse_gates(text: str) -> frozenset[str]:
    """Return the feature gates that are on.  Raises InputError."""
    said = parse_feature_gates(text, beta=GATES)
    unknown = [name for name in said if name not in GATES]
    if unknown:
        accepted = f"{', '.join(GATES)} with =true or =false"
        raise InputError(f"must be one of {accepted}, got {unknown[0]!r}", source=SOURCE)
    return frozenset(name for name, is_on in said.items() if is_on)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFlags:
    """What is looked at, by which policy, and what is made of it."""

    files: Files = None
    kubeconfig: Annotated[str, typer.Option(help="Read this cluster.")] = ""
    context: Annotated[str, typer.Option(help="Context of the kubeconfig.")] = ""
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="DeschedulerConfiguration.")
    ] = None
    scheduler_config: Annotated[
        str,
        typer.Option(
            metavar=NAMED_CONFIGURATION,
            help=f"By which moves are proven. {WHAT_NAMES_MEAN} Default: both, each for its "
            "schedulerName.",
        ),
    ] = ""
    cycles: Annotated[
        int,
        typer.Option(min=1, max=1000, help="Most cycles, until one of them wants a pod to go."),
    ] = 10  # a node counts as hot after fewer looks, unless told otherwise
    now: Now = ""
    feature_gates: Annotated[
        str, typer.Option(metavar="NAME=true,...", help="As for the descheduler.")
    ] = ""
    kube_version: KubeVersionFlag = ""
    strict: Strict = False
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page with before and after.")
    ] = None
    apply: Annotated[
        bool,
        typer.Option("--apply", help="Create the PodMigrationJobs of the plan in the cluster."),
    ] = False
    output: Print = Output.TABLE
