"""Commands ``koord record`` and ``koord replay``: a scheduler's input as a file, and its replay."""

import os
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from koordinator.api.kubescheduler import (
    KubeSchedulerConfiguration,
    decode_configuration,
)
from koordinator.api.meta import JsonObject
from koordinator.cli.component.flags import (
    KUBECONFIG_CONTEXT,
    KubeVersionFlag,
    Print,
    SchedulerGates,
)
from koordinator.cli.input.configuration import (
    CONFIGURATION_HELP,
    NAMED_CONFIGURATION,
    plugins_for,
    read_configuration,
    read_data,
)
from koordinator.cli.input.live import read_gates
from koordinator.cli.output import Output, console, print_data, warn
from koordinator.foundation.clock import Duration, SystemClock
from koordinator.foundation.errors import InputError
from koordinator.foundation.files import too_long
from koordinator.process.termination import stop_on_signals
from koordinator.scheduler.profile import BUILTIN_PLUGINS, installed_plugins
from koordinator.simulator.embedded import STOCK
from koordinator.simulator.recorder import Recorder, RecordingFile
from koordinator.simulator.recording import (
    Anonymiser,
    Comparison,
    PodOutcome,
    Recording,
    RecordingHeader,
    read_recording,
)
from koordinator.simulator.recording.batch import LONGEST_HEADER_BYTES, LONGEST_LINE_BYTES
from koordinator.simulator.replay import ReplayOutcomes
from koordinator.simulator.replay import replay as run

SECRET_BYTES = 16
READ_BYTES = 1 << 18  # per read, compressed
PART_BYTES = 1 << 24  # per part, unpacked; a few parts are in memory
MOST_MEMBERS = 10_000  # gzip members of a file: each copies the rest of the part that was read
_GZIP = 31  # zlib's code for gzip with the largest window


def record(
    path: Annotated[Path, typer.Argument(help="File to write, such as cluster.jsonl.gz.")],
    *,
    kubeconfig: Annotated[
        str,
        typer.Option(
            help="Kubeconfig file of the cluster. Default: the files of the variable KUBECONFIG, "
            "~/.kube/config, or the service account of this pod."
        ),
    ] = "",
    context: Annotated[str, typer.Option(help=KUBECONFIG_CONTEXT)] = "",
    duration: Annotated[
        Duration | None,
        typer.Option(
            "--for",
            parser=Duration.parse,
            metavar="DURATION",
            help="Duration of the recording. Default: until Ctrl-C.",
        ),
    ] = None,
    anonymous: Annotated[
        bool,
        typer.Option(
            "--anonymous", help="Replace names consistently by pseudonyms, and drop messages."
        ),
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(help="Configuration of the scheduler, which is copied into the recording."),
    ] = None,
) -> None:
    """Record what a scheduler reads from a cluster: all objects, and every change with its time."""
    from koordinator.cluster.kubernetes.cluster import (  # noqa: PLC0415 -- loading it takes a
        KubernetesCluster,  # quarter of a second that replays should not pay
    )
    from koordinator.cluster.kubernetes.connection import find_connection  # noqa: PLC0415
    from koordinator.cluster.kubernetes.credentials import Credentials  # noqa: PLC0415

    configuration = _raw_configuration(config)
    clock = SystemClock()
    stopping = stop_on_signals()
    errors = console(stderr=True)
    with ExitStack() as cleanup:
        credentials = Credentials(find_connection(kubeconfig, context), clock)
        cluster = cleanup.enter_context(KubernetesCluster(credentials, clock))
        file = cleanup.enter_context(RecordingFile(path, clock))
        recorder = Recorder(
            cluster,
            clock,
            file.write,
            anonymiser=_anonymiser() if anonymous else None,
            configuration=configuration,
        )
        recorder.follow(
            stopping,
            None if duration is None else duration.total_seconds(),
            lambda: errors.print(
                f"recording to {path}; {recorder.events} objects exist", markup=False
            ),
        )
    errors.print(f"{recorder.events} objects and changes are in {path}", markup=False)


def _anonymiser() -> Anonymiser:
    """Return an anonymiser with a random key, which is not stored."""
    plugins = (spec.name for spec in (*BUILTIN_PLUGINS, *installed_plugins().specs))
    return Anonymiser(os.urandom(SECRET_BYTES), plugins)


def replay(
    path: Annotated[Path, typer.Argument(help="File that koord record wrote.")],
    *,
    config: Annotated[
        str,
        typer.Option(
            metavar=NAMED_CONFIGURATION,
            help=f"{CONFIGURATION_HELP} Default: the configuration of the recording.",
        ),
    ] = "",
    feature_gates: SchedulerGates = "",
    kube_version: KubeVersionFlag = "",
    output: Print = Output.TABLE,
) -> None:
    """Replay a recording, and compare the decisions pod by pod and in totals."""
    with opened_recording(path) as recorded:
        configuration = recorded_configuration(config, recorded.header, str(path))
        replayed = run(
            recorded,
            configuration,
            out_of_tree=plugins_for(configuration),
            source=str(config or path),
            gates=read_gates(feature_gates, kube_version),
        )
    for name, pods in sorted(replayed.foreign.items()):
        warn(f"no profile has the schedulerName {name!r}: {pods} pods keep their recorded nodes")
    if output is Output.TABLE:
        _print(console(), replayed, replayed.comparison())
    else:
        print_data(as_data(replayed), output)


@contextmanager
def opened_recording(path: Path) -> Iterator[Recording]:
    """Yield a recording that can be iterated once.

    Raises InputError for a file that can't be read, here or during the iteration.
    """
    try:
        with path.open("rb") as file:
            yield read_recording(_lines(file, path), str(path))
    except InputError as error:
        raise error.within(source=str(path)) from None
    except (OSError, zlib.error) as error:
        text = f"can't be read: {getattr(error, 'strerror', None) or error}"
        raise InputError(text, source=str(path)) from None


def _lines(file: BinaryIO, path: Path) -> Iterator[bytes]:
    """Yield the lines of a recording, up to its end or to where the file was cut off.

    Raises InputError for a line that is longer than a recording allows.
    """
    torn: list[bytes] = []
    number, size = 1, 0  # of the current line; bytes of it read so far
    try:
        for part in _read_ahead(_unpacked(file)):
            *ends, rest = part.split(b"\n")
            for end in ends:
                yield b"".join((*torn, end, b"\n"))
                torn.clear()
                number, size = number + 1, 0
            torn.append(rest)
            size += len(rest)
            if size > (LONGEST_LINE_BYTES if number > 1 else LONGEST_HEADER_BYTES):
                raise too_long(f"{path}:{number}", LONGEST_LINE_BYTES)
    except EOFError:
        warn(f"{path} is incomplete; the part that could be read is replayed")
    yield b"".join(torn)


def _read_ahead(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the parts; a thread makes the next part while the caller works on the current one."""
    with ThreadPoolExecutor(1) as thread:
        ahead = thread.submit(next, parts, b"")
        while part := ahead.result():
            ahead = thread.submit(next, parts, b"")
            yield part


def _unpacked(file: BinaryIO) -> Iterator[bytes]:
    """Yield the content of a gzip file in large parts.

    zlib releases the interpreter lock while it unpacks.  The parts of the module gzip are so small
    that the threads would spend more time on waiting for each other than on unpacking.
    Raises EOFError if the file ends in the middle, zlib.error, InputError.
    """
    unpacker = zlib.decompressobj(_GZIP)
    members = 1
    while packed := file.read(READ_BYTES):
        while packed:
            if unpacker.eof:  # a file may have several members, one after the other
                unpacker = zlib.decompressobj(_GZIP)
                members += 1
                if members > MOST_MEMBERS:
                    text = f"must have at most {MOST_MEMBERS:,} gzip members"
                    raise InputError(text)
            if part := unpacker.decompress(packed, PART_BYTES):
                yield part
            packed = unpacker.unconsumed_tail or unpacker.unused_data
    if not unpacker.eof:
        raise EOFError


def as_data(replayed: ReplayOutcomes) -> dict[str, Any]:
    """Return the comparison and every decision of the replay."""
    comparison: dict[str, Any] = msgspec.to_builtins(replayed.comparison())
    return {
        "events": replayed.events,
        "seconds": replayed.to_s - replayed.from_s,
        **comparison,
        "pods": {
            name: msgspec.to_builtins(pod_outcome)
            for name, pod_outcome in replayed.pod_outcomes.items()
        },
    }


def recorded_configuration(
    named: str, header: RecordingHeader, source: str
) -> KubeSchedulerConfiguration:
    """Return the named configuration, or the recording's own.  Raises InputError."""
    if named:
        return read_configuration(named)
    if header.configuration is None:
        return STOCK
    return decode_configuration(header.configuration, source)


def _raw_configuration(path: Path | None) -> JsonObject | None:
    """Return the validated configuration as it is written in the file."""
    if path is None:
        return None
    read_configuration(path)
    data: JsonObject = read_data(path)
    return data


def _print(printer: Console, replayed: ReplayOutcomes, comparison: Comparison) -> None:
    if comparison.differences:
        table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
        for column in ("POD", "RECORDED", "REPLAYED", "WHY"):
            table.add_column(column, overflow="fold")
        for it in comparison.differences:
            row = (it.pod, _place(it.before), _place(it.after), it.after.why)
            table.add_row(*map(escape, row))
        printer.print(table)
        printer.print()
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("", "RECORDED", "REPLAYED"):
        table.add_column(column, justify="left" if not column else "right")
    before, after = map(msgspec.to_builtins, (comparison.before, comparison.after))
    for field, title in _TITLES.items():
        table.add_row(title, *(f"{side[field]:.6g}" for side in (before, after)))
    printer.print(table)
    printer.print(
        f"{replayed.events} events in {replayed.to_s - replayed.from_s:.0f} s: {comparison.same} "
        f"pods the same, {comparison.moved} on other nodes, {comparison.gained} placed only in the "
        f"replay, {comparison.lost} only in the recording"
    )


_TITLES = {
    "pods": "pods",
    "placed": "placed",
    "evicted": "evicted",
    "nodes": "nodes that got pods",
    "meanWaitS": "mean wait, s",
    "longestWaitS": "longest wait, s",
}


def _place(pod_outcome: PodOutcome) -> str:
    evicted = " (evicted)" if pod_outcome.evicted else ""
    if pod_outcome.waited_s is None:
        return f"-{evicted}"
    return f"{pod_outcome.node} after {pod_outcome.waited_s:.1f} s{evicted}"
