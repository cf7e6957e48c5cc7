"""Command ``koord audit``: decisions of a scheduler, from its files or its server."""

import datetime as dt
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from koordinator.cli.component.dataclass_flags import with_flags
from koordinator.cli.component.flags import KUBECONFIG_CONTEXT, Print
from koordinator.cli.input.scope import parse_time
from koordinator.cli.output import Output, console, print_data, warn
from koordinator.domain.audit import (
    LONGEST_LINE_BYTES,
    AuditChoice,
    AuditedPod,
    AuditEntry,
    AuditOutcome,
    AuditSummary,
    from_lines,
    summarise,
)
from koordinator.foundation.clock import UTC
from koordinator.foundation.decoders import decode_json
from koordinator.foundation.errors import ClusterError, InputError
from koordinator.foundation.files import bounded_lines
from koordinator.foundation.lazy_dataclass import dataclass

AnswerT = TypeVar("AnswerT")

_SERVER = "Scheduler to query"
_NAME = re.compile(r"audit\.jsonl(\.[0-9]+)?")


class AuditEntries(msgspec.Struct):
    """Response of a scheduler to a request for its audit trail."""

    entries: list[AuditEntry]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditServerFlags:
    """Scheduler to query, and credentials for it."""

    server: Annotated[
        str,
        typer.Option(
            help="URL of the scheduler's --secure-port, such as https://127.0.0.1:10259.",
            rich_help_panel=_SERVER,
        ),
    ] = ""
    kubeconfig: Annotated[
        str,
        typer.Option(
            help="Kubeconfig file with the credentials and CA certificates for the server. "
            "Default: no credentials, and the CA certificates of the system.",
            rich_help_panel=_SERVER,
        ),
    ] = ""
    context: Annotated[str, typer.Option(help=KUBECONFIG_CONTEXT, rich_help_panel=_SERVER)] = ""
    token: Annotated[
        str, typer.Option(help="Bearer token for requests to the server.", rich_help_panel=_SERVER)
    ] = ""
    certificate_authority: Annotated[
        Path | None,
        typer.Option(
            help="CA certificates for the server, in PEM format.", rich_help_panel=_SERVER
        ),
    ] = None
    insecure_skip_tls_verify: Annotated[
        bool,
        typer.Option(
            "--insecure-skip-tls-verify",
            help="Accept any certificate of the server, such as a self-signed one.",
            rich_help_panel=_SERVER,
        ),
    ] = False

    def get(self, path: str, parameters: dict[str, str]) -> bytes:
        """Return the response of the server.  Raises ClusterError."""
        from koordinator.cli.input.http_client import ComponentClient  # noqa: PLC0415 -- files need no connection

        client = ComponentClient(
            kubeconfig=self.kubeconfig,
            context=self.context,
            token=self.token,
            certificate_authority=self.certificate_authority,
            verifies=not self.insecure_skip_tls_verify,
        )
        return client.get(self.server, path, parameters)

    def check(self) -> None:
        """Raise InputError for credentials without a server."""
        credentials = (self.kubeconfig, self.context, self.token, self.certificate_authority)
        if not self.server and (any(credentials) or self.insecure_skip_tls_verify):
            raise InputError("requires --server", source="--kubeconfig, --token …")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditChoiceFlags:
    """Filter of audit entries."""

    pod: Annotated[
        str, typer.Option(help="Count only this pod (namespace/name); * matches any text.")
    ] = ""
    node: Annotated[str, typer.Option(help="Count only this node; * matches any text.")] = ""
    job: Annotated[
        str,
        typer.Option(
            help="Count only pods of this gang or owner (namespace/name); * matches any text."
        ),
    ] = ""
    plugin: Annotated[str, typer.Option(help="Count only decisions of this plugin.")] = ""
    outcome: Annotated[
        list[AuditOutcome] | None,
        typer.Option(help="Count only this outcome. Repeatable. Default: every outcome."),
    ] = None
    since: Annotated[
        str, typer.Option(help="Count only entries since this time, in RFC 3339 format.")
    ] = ""

    def choice(self) -> AuditChoice:
        """Return the filter.  Raises InputError."""
        return AuditChoice(
            pod=self.pod,
            node=self.node,
            job=self.job,
            plugin=self.plugin,
            outcomes=frozenset(self.outcome or ()),
            since_s=parse_time(self.since, "--since") if self.since else 0.0,
        )


@with_flags
def audit(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(help="Files or folders of --audit-dir, or - for standard input."),
    ] = None,
    *,
    of: AuditServerFlags,
    chosen: AuditChoiceFlags,
    list_entries: Annotated[
        bool, typer.Option("--list", help="List the entries, instead of the summary.")
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Most entries to list, the newest ones, or most rows per list of the summary. "
            "Default: 1000 entries, 10 rows.",
        ),
    ] = None,
    output: Print = Output.TABLE,
) -> None:
    """Summarize scheduling decisions: slow plugins, rejected jobs and flapping nodes."""
    if bool(paths) is bool(of.server):
        given = "both" if paths else "neither"
        raise InputError(f"must be given either files or --server, got {given}", source="audit")
    of.check()
    choice, most = chosen.choice(), limit or (1000 if list_entries else 10)
    if of.server:
        path = "/apis/v1/audit" if list_entries else "/apis/v1/audit/summary"
        answer = of.get(path, _parameters(choice, most))
        if list_entries:
            _show_entries(decode_answer(answer, AuditEntries, of.server).entries, output)
        else:
            _show_summary(decode_answer(answer, AuditSummary, of.server), output)
        return
    entries = choice.select(read_entries(paths or []))
    if list_entries:
        _show_entries(list(entries)[-most:], output)
    else:
        _show_summary(summarise(entries, most), output)


def decode_answer(answer: bytes, wanted: type[AnswerT], server: str) -> AnswerT:
    """Decode the response of a scheduler.  Raises ClusterError for any other response."""
    try:
        return decode_json(answer, wanted)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        text = f"{server} is not a scheduler, or its version is not compatible: {error}"
        raise ClusterError(text) from None


def read_entries(paths: Iterable[Path]) -> Iterator[AuditEntry]:
    """Yield the entries of files and folders; a folder's oldest file comes first.

    Raises InputError for a path that can't be read, and for a folder without a trail.
    """
    for path in paths:
        if str(path) == "-":
            lines = bounded_lines(sys.stdin.buffer, "-", LONGEST_LINE_BYTES)
            yield from from_lines(lines, "-", warn)
            continue
        for file in trail_files(path):
            yield from read_trail(file, warn)


def trail_files(path: Path) -> list[Path]:
    """Return the files of a folder, the oldest first, or the file itself.

    Raises InputError for a folder that can't be read or has no trail.
    """
    if not path.is_dir():
        return [path]
    try:
        files = [file for file in path.iterdir() if _NAME.fullmatch(file.name)]
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=str(path)) from None
    if not files:
        text = "has no audit.jsonl; must be a folder that --audit-dir wrote"
        raise InputError(text, source=str(path))
    return sorted(files, key=_age, reverse=True)


def read_trail(file: Path, on_warning: Callable[[str], object]) -> Iterator[AuditEntry]:
    """Yield the entries of one file.  Raises InputError if it can't be read or has none."""
    try:
        with file.open("rb") as opened:
            lines = bounded_lines(opened, str(file), LONGEST_LINE_BYTES)
            yield from from_lines(lines, str(file), on_warning)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=str(file)) from None


def _age(file: Path) -> int:
    number = file.suffix[1:]
    return int(number) if number.isdigit() else 0


def _parameters(choice: AuditChoice, limit: int) -> dict[str, str]:
    return {
        "pod": choice.pod,
        "node": choice.node,
        "job": choice.job,
        "plugin": choice.plugin,
        "outcome": ",".join(sorted(choice.outcomes)),
        "since": str(choice.since_s) if choice.since_s else "",
        "limit": str(limit),
    }


def _show_entries(entries: list[AuditEntry], output: Output) -> None:
    if output is not Output.TABLE:
        print_data({"entries": msgspec.to_builtins(entries)}, output)
        return
    table = _table("TIME", "OUTCOME", "POD", "TRY", "NODE", "BY", "WHY")
    for entry in entries:
        why = entry.reason or ", ".join(f"{it.node} {it.total}" for it in entry.best)
        when, by = _time(entry.at_s), entry.plugin or entry.by
        for it in entry.pods or (AuditedPod(""),):
            tries = str(it.attempt or "")
            row = (when, str(entry.outcome), it.pod, tries, it.node or entry.node, by, why)
            table.add_row(*map(escape, row))
    console().print(table)


def _show_summary(summary: AuditSummary, output: Output) -> None:
    if output is not Output.TABLE:
        print_data(msgspec.to_builtins(summary), output)
        return
    printer = console()
    if not summary.entries:
        printer.print("there are no matching decisions")
        return
    pods = ", ".join(f"{count} {outcome}" for outcome, count in summary.pods.items())
    printer.print(
        f"{_time(summary.from_s)} to {_time(summary.to_s)}: {pods or 'no pods'}; "
        f"{summary.deciding_s:.3f} s of decision time"
    )
    if summary.decisive:
        text = ", ".join(f"{plugin} {count}" for plugin, count in summary.decisive.items())
        printer.print(f"rejections by plugin: {escape(text)}")
    _print_lists(printer, summary)


def _print_lists(printer: Console, summary: AuditSummary) -> None:
    slow = _table("SLOWEST PLUGINS", "POINT", "SECONDS", "SHARE", "µs PER POD")
    for time in summary.slowest:
        each = f"{time.seconds / max(time.pods, 1) * 1e6:.1f}"
        slow.add_row(time.plugin, time.point, f"{time.seconds:.3f}", f"{time.share:.0%}", each)
    jobs = _table("MOST REJECTED JOBS", "TIMES", "PODS", "PLUGIN", "REASON")
    for job in summary.rejected:
        row = (job.job, str(job.rejections), str(job.pods), job.plugin, job.reason)
        jobs.add_row(*map(escape, row))
    nodes = _table("FLAPPING NODES", "CLOSED", "REASON")
    for node in summary.flapping:
        nodes.add_row(*map(escape, (node.node, str(node.closed), node.reason)))
    for table in (slow, jobs, nodes):
        if table.row_count:
            printer.print()
            printer.print(table)


def _table(*columns: str) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _time(at_s: float) -> str:
    return dt.datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds")
