"""Commands ``koord record`` and ``koord replay``: a scheduler's input as a file, and its replay."""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from koordinator.api.codec import with_all_fields
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
    PluginFiles,
    plugins_for,
    read_configuration,
    read_data,
)
from koordinator.cli.input.live import read_gates
from koordinator.cli.output import Output, console, print_data, warn
from koordinator.foundation.clock import Duration, SystemClock
from koordinator.process.termination import stop_on_signals
from koordinator.scheduler.profile import builtin_plugins, installed_plugins
from koordinator.simulator.embedded import STOCK
from koordinator.simulator.policies import BY_NAME
from koordinator.simulator.recorder import Recorder, RecordingFile, opened_recording
from koordinator.simulator.recording import (
    Anonymiser,
    Comparison,
    PodOutcome,
    RecordingHeader,
)
from koordinator.simulator.replay import ReplayOutcomes
from koordinator.simulator.replay import replay as run

SECRET_BYTES = 16


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
        str,
        typer.Option(
            metavar=NAMED_CONFIGURATION,
            help=f"Configuration of the scheduler, which is copied into the recording. "
            f"{CONFIGURATION_HELP}",
        ),
    ] = "",
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
    plugins = (spec.name for spec in (*builtin_plugins(), *installed_plugins().specs))
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
    plugin: PluginFiles = None,
    feature_gates: SchedulerGates = "",
    kube_version: KubeVersionFlag = "",
    output: Print = Output.TABLE,
) -> None:
    """Replay a recording, and compare the decisions pod by pod and in totals."""
    with opened_recording(path, warn) as recorded:
        configuration = recorded_configuration(config, recorded.header, str(path), plugin)
        replayed = run(
            recorded,
            configuration,
            out_of_tree=plugins_for(configuration, plugin),
            source=str(config or path),
            gates=read_gates(feature_gates, kube_version),
        )
    for name, pods in sorted(replayed.foreign.items()):
        warn(f"no profile has the schedulerName {name!r}: {pods} pods keep their recorded nodes")
    if output is Output.TABLE:
        _print(console(), replayed, replayed.comparison())
    else:
        print_data(as_data(replayed), output)


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
    named: str, header: RecordingHeader, source: str, plugins: Sequence[str] | None = None
) -> KubeSchedulerConfiguration:
    """Return the named configuration, or the recording's own, with the plugins of files.

    Raises InputError.
    """
    own = STOCK
    if header.configuration is not None and not named:
        own = decode_configuration(header.configuration, source)
    return read_configuration(named, own, plugins)


def _raw_configuration(named: str) -> JsonObject | None:
    """Return the validated configuration as it is written in the file, or the named one."""
    if not named:
        return None
    configuration = read_configuration(named)
    data: JsonObject = (
        with_all_fields(configuration) if named in BY_NAME else read_data(Path(named))
    )
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
