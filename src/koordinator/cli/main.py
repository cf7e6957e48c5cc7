"""``koord``: the commands, and what their failures exit with.

0 done, 1 the work failed, 2 the input is wrong.
"""

import gc
import sys

import typer

from koordinator.cli.audit import audit
from koordinator.cli.crds import crds
from koordinator.cli.demo import demo
from koordinator.cli.explain import explain
from koordinator.cli.gang import gang
from koordinator.cli.koordlet import koordlet
from koordinator.cli.manager import manager
from koordinator.cli.node_show import show as show_node
from koordinator.cli.original_flags import ManagerCommand, SchedulerCommand
from koordinator.cli.output import console
from koordinator.cli.quota import app as quota
from koordinator.cli.recording import record, replay
from koordinator.cli.schedule import schedule
from koordinator.cli.scheduler import scheduler
from koordinator.cli.simulate import simulate
from koordinator.foundation.errors import InputError, InvalidError, KoordinatorError
from koordinator.process.logs import tell_warnings

app = typer.Typer(
    name="koord",
    help="QoS-aware scheduling, co-location and device management for Kubernetes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(schedule)
app.command()(simulate)
app.command(cls=SchedulerCommand)(scheduler)
app.add_typer(gang, name="gang")
app.add_typer(explain, name="explain")
app.command(cls=ManagerCommand)(manager)
app.command()(audit)
app.command()(record)
app.command()(replay)
app.command()(demo)
app.command()(crds)
app.add_typer(quota, name="quota")
app.add_typer(koordlet)
nodes = typer.Typer(name="node", help="Look at nodes.", no_args_is_help=True)
nodes.command("show")(show_node)
app.add_typer(nodes)


@nodes.callback()
def _nodes() -> None:
    """Keep ``show`` a command of its own while it is the only one."""


def spare_the_collector() -> None:
    """Let the garbage collector look at new objects only, and less often.

    A cluster is millions of objects that live as long as the process; walking over them again and
    again would take a quarter of its time.
    """
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


def main() -> None:
    """Run the command line; never returns."""
    spare_the_collector()
    tell_warnings()
    errors = console(stderr=True)
    try:
        app()
    except (InputError, InvalidError) as error:
        errors.print(f"error: {error}", style="red", markup=False, soft_wrap=True)
        sys.exit(2)
    except KoordinatorError as error:
        errors.print(f"failed: {error}", style="red", markup=False, soft_wrap=True)
        sys.exit(1)
    except BrokenPipeError:
        sys.exit(1)
