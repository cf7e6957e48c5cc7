"""Command ``koord migrate``: from the original's charts, configurations and clusters to these."""

import sys
from typing import Annotated

import typer

from koordinator.cli.component.dataclass_flags import with_flags
from koordinator.cli.component.flags import KUBECONFIG_CONTEXT, READ_CLUSTER, ManifestFiles, Print
from koordinator.cli.help_pages import HelpGroup
from koordinator.cli.input.live import is_live
from koordinator.cli.migrate.chart_values import check_values, is_values
from koordinator.cli.migrate.configurations import DESCHEDULER, SCHEDULER, check_file
from koordinator.cli.migrate.conversion import converted_values
from koordinator.cli.migrate.documents import (
    NOTABLE,
    Document,
    FindingStatus,
    MigrationFinding,
    as_data,
    cluster_documents,
    file_documents,
    merged,
    summary,
    table_rows,
)
from koordinator.cli.migrate.objects import check_object
from koordinator.cli.migrate.programs import check_command
from koordinator.cli.output import Output, console, print_data, print_with_reasons, warn
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.yaml_documents import to_yaml

app = typer.Typer(
    cls=HelpGroup,
    help="Check and convert settings and objects of the original Koordinator.",
    no_args_is_help=True,
)


@app.callback()
def migrate() -> None:
    """Check and convert settings and objects of the original Koordinator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFlags:
    """Input of the check, and its output."""

    files: ManifestFiles = None
    command: Annotated[
        list[str] | None,
        typer.Option(
            "--command",
            metavar="'PROGRAM FLAG ...'",
            help="Command line of a program of the original to check. Repeatable.",
        ),
    ] = None
    kubeconfig: Annotated[str, typer.Option(help=READ_CLUSTER)] = ""
    context: Annotated[str, typer.Option(help=KUBECONFIG_CONTEXT)] = ""
    every: Annotated[
        bool, typer.Option("--all", help="Show also what works unchanged, in a table.")
    ] = False
    output: Print = Output.TABLE


@app.command()
@with_flags
def check(flags: CheckFlags) -> None:
    """Report which settings and objects of the original work here, differ, or must be changed.

    Reads chart values, rendered manifests, ConfigMaps, configuration files and custom resources of
    -f, command lines of --command, and otherwise a cluster. Exit status: 0 if nothing must be
    changed by hand, 1 if something must, 2 if the input can't be read.
    """
    findings: list[MigrationFinding] = []
    for document in file_documents(flags.files or ()):
        findings += _findings(document)
    for line in flags.command or ():
        findings += check_command(line)
    if is_live([*(flags.files or ()), *(flags.command or ())], flags.kubeconfig, flags.context):
        for document in cluster_documents(flags.kubeconfig, flags.context):
            findings += check_object(document)
    merged_findings = merged(findings)
    if flags.output is Output.TABLE:
        _print_table(merged_findings, every=flags.every)
    else:
        print_data(as_data(merged_findings), flags.output)
    if any(each.status is FindingStatus.ACTION for each in merged_findings):
        raise typer.Exit(1)


@app.command()
def values(
    files: Annotated[
        list[str],
        typer.Argument(
            help="Values of the original's chart, and ConfigMaps of its cluster; - for standard "
            "input. A later file of values overrides an earlier one.",
        ),
    ],
) -> None:
    """Convert values of the original's chart, 1.4 to 1.8, to values of this chart, as YAML.

    ConfigMaps that were changed in the cluster, such as slo-controller-config, become the values
    that replace them. Settings that can't be converted cause warnings.
    """
    documents = list(file_documents(files))
    for document in documents:
        if is_values(document):
            for finding in check_values(document):
                if finding.status in (FindingStatus.ACTION, FindingStatus.DIFFERS):
                    parts = (finding.field, finding.message, finding.action)
                    warn(": ".join(filter(None, parts)))
        elif document.kind != "ConfigMap":
            raise InputError(
                f"must be values of a chart or a ConfigMap, got {document.kind or 'another file'}",
                source=document.source,
            )
    sys.stdout.write(to_yaml(converted_values(documents), allow_unicode=True))


def _findings(document: Document) -> list[MigrationFinding]:
    if document.kind in (SCHEDULER, DESCHEDULER):
        return check_file(document)
    if is_values(document):
        return list(check_values(document))
    if not document.kind:
        raise InputError(
            "must be a manifest, a configuration or values of the original's chart",
            source=document.source,
        )
    return list(check_object(document))


def _print_table(findings: list[MigrationFinding], *, every: bool) -> None:
    shown = [each for each in findings if every or each.status in NOTABLE]
    out = console()
    headers = ("STATUS", "OBJECT", "FIELD", "MESSAGE")
    empty = "everything works unchanged" if findings else "nothing of Koordinator was found"
    print_with_reasons(out, headers, table_rows(shown), empty)
    counts = ", ".join(f"{count} {status}" for status, count in summary(findings).items())
    out.print(counts, style="bold")
