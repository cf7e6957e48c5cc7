"""Command ``koord descheduler``: the descheduler on a cluster, once on manifests, or a plan."""

import typer

from koordinator.api.kubescheduler import check_gate_names
from koordinator.cli.component.dataclass_flags import with_flags
from koordinator.cli.component.original_flags import DeschedulerGroup
from koordinator.cli.descheduler.flags import (
    SCHEDULER_GATES,
    DeschedulerFlags,
    PlanFlags,
    write_descheduler_configuration,
)
from koordinator.foundation.errors import InputError

descheduler = typer.Typer(
    name="descheduler",
    cls=DeschedulerGroup,
    help="Run the descheduler on a cluster until a signal stops it, or plan its moves.",
    invoke_without_command=True,
)


@descheduler.callback()
@with_flags
def run(invocation: typer.Context, flags: DeschedulerFlags) -> None:
    """Run the descheduler on a cluster until a signal stops it."""
    if invocation.invoked_subcommand is not None:
        return
    configuration = flags.configuration()
    check_gate_names(flags.scheduler_feature_gates, SCHEDULER_GATES)
    if flags.once:
        from koordinator.cli.descheduler.plan import run_once  # noqa: PLC0415 -- takes long to load

        run_once(configuration, flags)
        return
    if flags.files or flags.now or flags.cycles != 1 or flags.kube_version:
        source = "--filename, --now, --cycles, --kube-version"
        raise InputError("requires --once", source=source)
    if flags.write_config_to is not None:
        write_descheduler_configuration(configuration, flags.write_config_to)
        return
    from koordinator.cli.descheduler.process import (  # noqa: PLC0415 -- servers and clients take
        run_descheduler,  # half a second to load, which no other command should pay
    )

    run_descheduler(configuration, flags)


@descheduler.command("plan")
@with_flags
def show_plan(flags: PlanFlags) -> None:
    """Print the moves that a policy would make, their gain and cost, and which pods stay."""
    from koordinator.cli.descheduler.plan import plan  # noqa: PLC0415 -- takes long to load

    plan(flags)
