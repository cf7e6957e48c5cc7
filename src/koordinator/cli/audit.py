"""``koord audit``: what a scheduler has decided, from its files or from the running one."""

import datetime as dt
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from koordinator.cli.component.dataclass_flags import with_flags
from koordinator.cli.component.flags import Print
from koordinator.cli.input.times import parse_time
from koordinator.cli.output import Output, console, print_data, warn
from koordinator.domain.audit import (
    AuditChoice,
    AuditedPod,
    AuditEntry,
    AuditOutcome,
    AuditSummary,
    summarise,
)
from koordinator.domain.audit.entry import LONGEST_LINE_BYTES, from_lines
from koordinator.foundation.clock import UTC
from koordinator.foundation.decoders import decode_json
from koordinator.foundation.errors import ClusterError, InputError
from koordinator.foundation.files import bounded_lines

AnswerT = TypeVar("AnswerT")

_SERVER = "Asking a server"
_NAME = re.compile(r"audit\.jsonl(\.[0-9]+)?")


class AuditEntries(msgspec.Struct):
    """What a scheduler answers that is asked for its trail."""

    entries: list[AuditEntry]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditServerFlags:
    """Which scheduler is asked, and by whom."""

    server: Annotated[
        str,
        typer.Option(
            help="Ask this scheduler, such as https://127.0.0.1:10259 (its --secure-port).",
            rich_help_panel=_SERVER,
        ),
    ] = ""
    kubeconfig: Annotated[
        str,
        typer.Option(
            help="Who asks, and who certifies the server; default: nobody, the system.",
            rich_help_panel=_SERVER,
        ),
    ] = ""
    context: Annotated[
        str, typer.Option(help="Context of the kubeconfig.", rich_help_panel=_SERVER)
    ] = ""
    token: Annotated[
        str, typer.Option(help="Who asks: a bearer token.", rich_help_panel=_SERVER)
    ] = ""
    certificate_authority: Annotated[
        Path | None,
        typer.Option(help="Who certifies the server, PEM.", rich_help_panel=_SERVER),
    ] = None
    insecure_skip_tls_verify: Annotated[
        bool,
        typer.Option(
            "--insecure-skip-tls-verify",
            help="Take any certificate, such as the scheduler's own.",
            rich_help_panel=_SERVER,
        ),
    ] = False

    def ask(self, path: str, parameters: dict[str, str]) -> bytes:
        """Return what the server answers.  Raises ClusterError."""
        from koordinator.cli.input.http_client import ComponentClient  # noqa: PLC0415 -- files need no connection

        client = ComponentClient(
            kubeconfig=self.kubeconfig,
            context=self.context,
            token=self.token,
            certificate_authority=self.certificate_authority,
            verifies=not self.insecure_skip_tls_verify,
        )
        return client.ask(self.server, path, parameters)

    def check(self) -> None:
        """Raise InputError if there is no server, and something is said about it."""
        about = (self.kubeconfig, self.context, self.token, self.certificate_authority)
        if not self.server and (any(about) or self.insecure_skip_tls_verify):
            raise InputError("requires --server", source="--kubeconfig, --token …")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditChoiceFlags:
    """Which entries count."""

    pod: Annotated[str, typer.Option(help="namespace/name; may have *.")] = ""
    node: Annotated[str, typer.Option(help="May have *.")] = ""
    job: Annotated[str, typer.Option(help="namespace/name of a gang or owner; may have *.")] = ""
    plugin: Annotated[str, typer.Option(help="The one that decided.")] = ""
    outcome: Annotated[
        list[AuditOutcome] | None, typer.Option(help="Repeatable; default: every outcome.")
    ] = None
    since: Annotated[str, typer.Option(help="A time, RFC 3339.")] = ""

    def choice(self) -> AuditChoice:
        """Return the choice.  Raises InputError."""
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
        typer.Argument(help="Files or folders of --audit-dir; - for standard input."),
    ] = None,
    *,
    of: AuditServerFlags,
    chosen: AuditChoiceFlags,
    list_entries: Annotated[
        bool, typer.Option("--list", help="Show the entries themselves, not what they say.")
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="Newest entries, or rows of each list; default: 1000, 10."),
    ] = None,
    output: Print = Output.TABLE,
) -> None:
    """Tell what was decided: which plugins are slow, which jobs rejected, which nodes flap."""
    if bool(paths) is bool(of.server):
        raise InputError("must be given either files or --server, not both", source="audit")
    of.check()
    choice, most = chosen.choice(), limit or (1000 if list_entries else 10)
    if of.server:
        path = "/apis/v1/audit" if list_entries else "/apis/v1/audit/summary"
        answer = of.ask(path, _parameters(choice, most))
        if list_entries:
            _show_entries(decode_answer(answer, AuditEntries, of.server).entries, output)
        else:
            _show_summary(decode_answer(answer, AuditSummary, of.server), output)
        return
    entries = filter(choice.takes, read_entries(paths or []))
    if list_entries:
        _show_entries(list(entries)[-most:], output)
    else:
        _show_summary(summarise(entries, most), output)


def decode_answer(answer: bytes, wanted: type[AnswerT], server: str) -> AnswerT:
    """Decode what a scheduler has answered.  Raises ClusterError if it is none."""
    try:
        return decode_json(answer, wanted)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        text = f"{server} is no scheduler, or of another version: {error}"
        raise ClusterError(text) from None


def read_entries(paths: Iterable[Path]) -> Iterator[AuditEntry]:
    """Yield the entries of files and folders, of a folder the oldest file first.

    Raises InputError for a path that can't be read, or has nothing of the kind.
    """
    for path in paths:
        if str(path) == "-":
            lines = bounded_lines(sys.stdin.buffer, "-", LONGEST_LINE_BYTES)
            yield from from_lines(lines, "-", warn)
            continue
        for file in trail_files(path):
            yield from read_trail(file, warn)


def trail_files(path: Path) -> list[Path]:
    """Return the files of a folder, the oldest first, or a file itself.

    Raises InputError for a folder without any, or that can't be read.
    """
    if not path.is_dir():
        return [path]
    try:
        files = [file for file in path.iterdir() if _NAME.fullmatch(file.name)]
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror}", source=str(path)) from None
    if not files:
        text = "has no audit.jsonl; must be a folder that --audit-dir wrote"
        raise InputError(text, source=str(path))
    return sorted(files, key=_age, reverse=True)


def read_trail(file: Path, complain: Callable[[str], object]) -> Iterator[AuditEntry]:
    """Yield the entries of one file.  Raises InputError if it can't be read, or has none."""
    try:
        with file.open("rb") as opened:
            lines = bounded_lines(opened, str(file), LONGEST_LINE_BYTES)
            yield from from_lines(lines, str(file), complain)
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror}", source=str(file)) from None


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


def _show_entries(found: list[AuditEntry], output: Output) -> None:
    if output is not Output.TABLE:
        print_data({"entries": msgspec.to_builtins(found)}, output)
        return
    table = _table("TIME", "OUTCOME", "POD", "TRY", "NODE", "BY", "WHY")
    for entry in found:
        why = entry.reason or ", ".join(f"{it.node} {it.total}" for it in entry.best)
        when, by = _time(entry.at_s), entry.plugin or entry.by
        for it in entry.pods or (AuditedPod(""),):
            tries = str(it.attempt or "")
            row = (when, str(entry.outcome), it.pod, tries, it.node or entry.node, by, why)
            table.add_row(*map(escape, row))
    console().print(table)


def _show_summary(told: AuditSummary, output: Output) -> None:
    if output is not Output.TABLE:
        print_data(msgspec.to_builtins(told), output)
        return
    printer = console()
    if not told.entries:
        printer.print("nothing was decided, or nothing like that")
        return
    pods = ", ".join(f"{count} {outcome}" for outcome, count in told.pods.items())
    printer.print(
        f"{_time(told.from_s)} to {_time(told.to_s)}: {pods or 'no pods'}; "
        f"{told.deciding_s:.3f} s of deciding"
    )
    if told.decisive:
        text = ", ".join(f"{plugin} {count}" for plugin, count in told.decisive.items())
        printer.print(f"what decided rejections: {escape(text)}")
    _print_lists(printer, told)


def _print_lists(printer: Console, told: AuditSummary) -> None:
    slow = _table("SLOWEST PLUGINS", "POINT", "SECONDS", "SHARE", "µs PER POD")
    for time in told.slowest:
        each = f"{time.seconds / max(time.pods, 1) * 1e6:.1f}"
        slow.add_row(time.plugin, time.point, f"{time.seconds:.3f}", f"{time.share:.0%}", each)
    jobs = _table("MOST REJECTED JOBS", "TIMES", "PODS", "PLUGIN", "REASON")
    for job in told.rejected:
        row = (job.job, str(job.rejections), str(job.pods), job.plugin, job.reason)
        jobs.add_row(*map(escape, row))
    nodes = _table("FLAPPING NODES", "CLOSED", "REASON")
    for node in told.flapping:
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
