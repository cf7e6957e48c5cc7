"""Command ``koord koordlet``: the node agent, and its audit log.

Flags of the original that have no counterpart here are ignored with a warning.
"""

from pathlib import Path
from typing import Annotated

import typer

from koordinator.cli.component.dataclass_flags import with_flags
from koordinator.cli.component.flags import Print
from koordinator.cli.component.original_flags import KoordletGroup
from koordinator.cli.koordlet.flags import KoordletFlags
from koordinator.cli.output import Output, console, print_data

koordlet = typer.Typer(
    name="koordlet",
    cls=KoordletGroup,
    help="Run the node agent, or show its audit log.",
    invoke_without_command=True,
)


@koordlet.callback()
@with_flags
def run(invocation: typer.Context, flags: KoordletFlags) -> None:
    """Run the node agent until a signal stops it."""
    if invocation.invoked_subcommand is not None:
        return
    from koordinator.cli.koordlet.process import (  # noqa: PLC0415 -- servers and clients take
        KoordletSettings,  # half a second to load, which no other command should pay
        run_agent,
    )

    run_agent(KoordletSettings.of(flags))


@koordlet.command()
def audit(
    folder: Annotated[
        Path, typer.Option("--audit-log-dir", help="Folder of the agent's audit log.")
    ] = Path("/var/log/koordlet"),
    *,
    size: Annotated[
        int, typer.Option(min=1, help="Number of events to show, the newest first.")
    ] = 256,
    owner: Annotated[
        str,
        typer.Option(
            help="Show only events of this pod (namespace/name), tier, program or the node."
        ),
    ] = "",
    kind: Annotated[
        str,
        typer.Option(
            "--type",
            help="Show only events of this type: cgroup, file, resctrl, oom, core or eviction.",
        ),
    ] = "",
    failed: Annotated[
        bool, typer.Option("--failed", help="Show only changes that failed.")
    ] = False,
    output: Print = Output.TABLE,
) -> None:
    """Show the changes that the agent made on this machine, with time and reason."""
    from koordinator.host.linux.host import LinuxHost  # noqa: PLC0415
    from koordinator.koordlet.executor.audit import read_events  # noqa: PLC0415

    events = []
    for event in read_events(LinuxHost(), str(folder)):
        if (
            (not owner or event.owner == owner or event.owner.startswith(f"{owner}/"))
            and (not kind or event.type == kind)
            and (not failed or event.error)
        ):
            events.append(event)
            if len(events) == size:
                break
    if output is Output.TABLE:
        out = console()
        for event in events:
            line = f"{event.created_at:%Y-%m-%dT%H:%M:%SZ} {event.type} {event.message}"
            out.print(line, markup=False, highlight=False, soft_wrap=True)
        return
    print_data({"events": [_fields(event) for event in events]}, output)


def _fields(event: object) -> object:
    import msgspec  # noqa: PLC0415

    return msgspec.to_builtins(event)
